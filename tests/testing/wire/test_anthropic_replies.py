"""What Anthropic answers: messages whole and streamed, errors, counts, models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wirekit import ANTHROPIC, Desk, Got, assistant, image, message, pdf, png, result, text, tool, use, user

from shoal.testing import wire

ADAPTIVE = {"type": "adaptive"}
FULL = wire.turn(
    wire.think("let me see", redacted=False), wire.think("x" * 40, redacted=True), "wörds of mine", wire.call("f", x=1)
)


def streamed(desk: Desk, **more: Any) -> Got:
    return desk.anthropic(message(stream=True, **more))


def gathered(events: list[Any]) -> list[dict[str, Any]]:
    """Put a stream together as a client does."""
    blocks: list[dict[str, Any]] = []
    given = ""
    for event in events:
        match event:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append(dict(block))
                given = ""
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}:
                blocks[-1]["text"] += piece
            case {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": piece}}:
                blocks[-1]["thinking"] += piece
            case {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": seal}}:
                blocks[-1]["signature"] = seal
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": piece}}:
                given += piece
                blocks[-1]["input"] = json.loads(given) if given.endswith("}") else {}
            case _:
                pass
    return blocks


def test_a_stream_holds_what_the_whole_reply_holds():
    settings = wire.Settings(ids="same")
    whole = Desk(wire.Script(FULL), settings).anthropic(message(thinking=ADAPTIVE)).json
    events = streamed(Desk(wire.Script(FULL), settings), thinking=ADAPTIVE).events
    assert gathered(events)[2:] == whole["content"][2:]
    assert [block["type"] for block in gathered(events)] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert gathered(events)[0]["thinking"] == "let me see"


def test_the_events_of_a_stream_come_in_their_order():
    kinds = [event["type"] for event in streamed(Desk(wire.Script(("a", wire.call("f"))))).events]
    assert kinds == [
        "message_start",
        "content_block_start", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_stop",
        "message_delta",
        "message_stop",
    ]  # fmt: skip


def test_each_event_is_named_by_its_type():
    reply = streamed(Desk()).reply
    assert reply.events is not None
    assert all(json.loads(event.data)["type"] == event.name for event in reply.events)


def test_a_tool_without_arguments_streams_an_empty_string():
    events = streamed(Desk(wire.Script(wire.call("f")))).events
    assert [
        event["delta"]["partial_json"] for event in events if "delta" in event and event["type"] != "message_delta"
    ] == [""]


def test_a_signature_comes_right_before_the_end_of_its_block():
    events = streamed(Desk(wire.Script(wire.think("x" * 40))), thinking=ADAPTIVE).events
    kinds = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert kinds == ["thinking_delta"] * 3 + ["signature_delta"]


def test_redacted_thinking_arrives_whole():
    events = streamed(Desk(wire.Script(wire.think("x", redacted=True))), thinking=ADAPTIVE).events
    assert [event["type"] for event in events][1:3] == ["content_block_start", "content_block_stop"]
    assert events[1]["content_block"]["data"]


def test_hidden_thinking_has_a_signature_only():
    events = streamed(Desk(wire.Script(wire.think("x" * 40))), thinking={**ADAPTIVE, "display": "omitted"}).events
    assert [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"] == ["signature_delta"]


def test_thinking_is_not_sent_where_thinking_is_off():
    got = Desk(wire.Script((wire.think("hm"), "so"))).anthropic(message())
    assert [block["type"] for block in got.json["content"]] == ["text"]


def test_counters_at_the_end_are_totals():
    events = streamed(Desk(wire.Script("x" * 400))).events
    start, end = events[0]["message"]["usage"], events[-2]["usage"]
    assert (start["input_tokens"], start["output_tokens"]) == (1, 1)
    assert (end["input_tokens"], end["output_tokens"]) == (1, 100)


def test_reasoning_is_part_of_the_output():
    usage = Desk(wire.Script((wire.think("x" * 40), "y" * 40))).anthropic(message(thinking=ADAPTIVE)).json["usage"]
    assert (usage["output_tokens"], usage["output_tokens_details"]["thinking_tokens"]) == (20, 10)


STOPS: list[tuple[wire.Turn, str]] = [
    (wire.turn("a"), "end_turn"),
    (wire.turn(), "end_turn"),
    (wire.turn(wire.call("f")), "tool_use"),
    (wire.turn("a", stop="length"), "max_tokens"),
    (wire.turn("a", stop="pause"), "pause_turn"),
    (wire.turn("a", stop="window"), "model_context_window_exceeded"),
    (wire.turn("a", stop="refusal"), "refusal"),
    (wire.turn("a", stop="end_turn"), "end_turn"),
    (wire.turn(stop="tools"), "tool_use"),
    (wire.turn("a", stop="compaction"), "compaction"),
]


@pytest.mark.parametrize(("turn", "reason"), STOPS)
def test_every_way_to_stop_has_its_word(turn: wire.Turn, reason: str):
    assert Desk(wire.Script(turn)).anthropic(message()).json["stop_reason"] == reason


@pytest.mark.parametrize(
    ("detail", "category", "explanation"), [("cyber", "cyber", None), ("no", None, "no"), (None, None, None)]
)
def test_a_refusal_says_why(detail: str | None, category: str | None, explanation: str | None):
    told = Desk(wire.Script(wire.turn("a", stop="refusal", detail=detail))).anthropic(message()).json
    assert told["stop_details"] == {"type": "refusal", "category": category, "explanation": explanation}


def test_a_reply_ends_at_a_stop_sequence():
    told = Desk(wire.Script("one END two")).anthropic(message(stop_sequences=["two", "END"])).json
    assert (told["content"][0]["text"], told["stop_reason"], told["stop_sequence"]) == ("one ", "stop_sequence", "END")


def test_a_reply_that_begins_with_a_stop_sequence_is_empty():
    told = Desk(wire.Script("END")).anthropic(message(stop_sequences=["END"])).json
    assert told["content"] == []


def test_a_reply_is_cut_at_its_budget():
    told = Desk(wire.Script(("x" * 8, "y" * 80, "z"))).anthropic(message(max_tokens=12)).json
    assert [block["text"] for block in told["content"]] == ["x" * 8, "y" * 40]
    assert (told["stop_reason"], told["usage"]["output_tokens"]) == ("max_tokens", 12)


def test_a_call_that_is_cut_streams_half_its_arguments():
    desk = Desk(wire.Script(wire.call("f", x="y" * 80)))
    events = desk.anthropic(message(max_tokens=11, stream=True)).events
    given = "".join(
        event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta"
    )
    assert given == '{"x":"' + "y" * 34


def test_a_call_that_is_cut_has_no_arguments_as_a_whole():
    told = Desk(wire.Script(wire.call("f", x="y" * 80))).anthropic(message(max_tokens=11)).json
    assert (told["content"][0]["input"], told["stop_reason"]) == ({}, "max_tokens")


@pytest.mark.parametrize("part", [wire.call("f" * 8), "x", wire.think("hm")])
def test_what_does_not_fit_at_all_is_not_sent(part: Any):
    told = Desk(wire.Script(("x" * 8, part))).anthropic(message(max_tokens=2, thinking=ADAPTIVE)).json
    assert (len(told["content"]), told["stop_reason"]) == (1, "max_tokens")


def test_thinking_is_cut_like_text():
    told = Desk(wire.Script(wire.think("x" * 80))).anthropic(message(max_tokens=2, thinking=ADAPTIVE)).json
    assert told["content"][0]["thinking"] == "x" * 8


def test_the_window_cuts_a_reply_of_newer_models():
    ask = message(user("x" * 4 * 199_990), model="claude-haiku-4-5", max_tokens=100)
    told = Desk(wire.Script("y" * 80)).anthropic(ask).json
    assert (told["usage"]["output_tokens"], told["stop_reason"]) == (10, "model_context_window_exceeded")


def test_blocks_in_the_vendors_own_words_go_out_as_they_are():
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    listed = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    turn = wire.turn(wire.Raw(block), wire.Raw(listed))
    assert Desk(wire.Script(turn)).anthropic(message()).json["content"] == [block, listed]
    assert gathered(streamed(Desk(wire.Script(turn))).events) == [block, listed]


def test_a_paused_turn_may_be_sent_back():
    desk = Desk(wire.Script(wire.turn("thinking about it", stop="pause"), "done"))
    paused = desk.anthropic(message(model="claude-opus-5-5")).json["content"]
    assert desk.anthropic(message(user("hi"), assistant(*paused), model="claude-opus-5-5")).rules == []


def test_billing_may_be_told_by_the_turn():
    told = Desk(lambda _: wire.Turn((wire.Text("a"),), output_tokens=77)).anthropic(message()).json
    assert told["usage"]["output_tokens"] == 77


@pytest.mark.parametrize(("kind", "ids"), [("same", 1), ("missing", 0)])
def test_ids_of_calls_can_go_wrong(kind: Any, ids: int):
    desk = Desk(wire.Script((wire.call("f"), wire.call("g"))), wire.Settings(faults=[wire.CallIds(kind)]))
    content = desk.anthropic(message()).json["content"]
    assert len({block["id"] for block in content if "id" in block}) == ids


def test_a_call_keeps_the_id_that_the_brain_gave():
    assert Desk(wire.Script(wire.call("f", "mine"))).anthropic(message()).json["content"][0]["id"] == "mine"


def test_arguments_that_are_no_object_are_sent_as_they_are():
    brain = wire.Script(last=wire.turn(wire.Call("f", "[1,"), wire.Call("g", "[1]")))
    told = Desk(brain).anthropic(message()).json
    assert [block["input"] for block in told["content"]] == [{}, {}]
    events = streamed(Desk(brain)).events
    assert "[1," in [event["delta"].get("partial_json") for event in events if event["type"] == "content_block_delta"]


# --- errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (402, "billing_error"),
        (403, "permission_error"), (404, "not_found_error"), (409, "conflict_error"), (413, "request_too_large"),
        (429, "rate_limit_error"), (500, "api_error"), (503, "api_error"), (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)  # fmt: skip
def test_an_error_has_the_type_of_its_status(status: int, kind: str):
    got = Desk(wire.Script(wire.Failure(status))).anthropic(message())
    assert (got.reply.status, got.json["type"], got.json["error"]["type"]) == (status, "error", kind)
    assert dict(got.reply.headers)["request-id"] == got.json["request_id"]


def test_an_error_says_what_it_is_told():
    failure = wire.Failure(
        429, "custom", "wait", retry_after="7", headers={"x-should-retry": "false"}, details={"details": {"a": 1}}
    )
    got = Desk(wire.Script(failure)).anthropic(message())
    assert got.json["error"] == {"type": "custom", "message": "wait", "details": {"a": 1}}
    assert (dict(got.reply.headers)["retry-after"], dict(got.reply.headers)["x-should-retry"]) == ("7", "false")


def test_an_error_in_a_stream_has_the_vendors_shape():
    desk = Desk(settings=wire.Settings(faults=[wire.ErrorEvent(at=2)]))
    said = streamed(desk).bytes.decode()
    assert said.endswith(
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )
    assert "message_stop" not in said


# --- beside messages


def count(body: dict[str, Any]) -> Got:
    return Desk().send("/v1/messages/count_tokens", body, ANTHROPIC)


def test_counting_gives_the_sum_of_the_blocks():
    body = message(user(text("x" * 40), image(png(56, 28))), system="s" * 8)
    del body["max_tokens"]
    assert count(body).json == {"input_tokens": 10 + 2 + 2}


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ([text("x" * 9)], 3),
        ([image(png(29, 28))], 2),
        ([image(png(5000, 28))], 92),
        ([{"type": "image", "source": {"type": "url", "url": "https://there/x.png"}}], 4784),
        ([image(png(8000, 8000))], 4784),
        ([pdf(3)], 6000),
        ([{"type": "document", "source": {"type": "url", "url": "https://there/x.pdf"}}], 2000),
        ([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x" * 40}}], 10),
        ([{"type": "document", "source": {"type": "content", "content": "x" * 38}}], 10),
        ([{"type": "search_result", "title": "t", "source": "s", "content": [text("x")]}], 22),
    ],
)  # fmt: skip
def test_each_block_has_its_count(content: list[Any], tokens: int):
    body = message(user(*content))
    del body["max_tokens"]
    assert count(body).json == {"input_tokens": tokens}


def test_counting_checks_as_answering_does():
    body = message(model="claude-opus-5-5", tools=[tool()], tool_choice={"type": "any"})
    del body["max_tokens"]
    assert count(body).rules == ["A15"]


def test_counting_takes_no_budget():
    assert count(message()).rules == ["unknown"]


def test_counting_ignores_the_budget_of_thinking():
    body = message(model="claude-haiku-4-5", thinking={"type": "enabled", "budget_tokens": 9999})
    del body["max_tokens"]
    assert count(body).rules == []


def test_counting_holds_the_prompt_against_the_window():
    body = message(user("x" * 800_004), model="claude-haiku-4-5")
    del body["max_tokens"]
    assert count(body).rules == ["A20"]


def test_models_are_listed_with_what_they_can_do():
    listed = Desk().send("/v1/models", headers=ANTHROPIC, method="GET").json
    known = {model["id"]: model for model in listed["data"]}
    assert (known["claude-haiku-4-5"]["max_input_tokens"], known["claude-haiku-4-5"]["max_tokens"]) == (200_000, 64_000)
    assert known["claude-opus-5-5"]["capabilities"]["thinking"]["types"]["disabled"] == {"supported": False}
    assert (listed["has_more"], listed["first_id"]) == (False, listed["data"][0]["id"])


def test_a_model_can_be_asked_for():
    desk = Desk(settings=wire.Settings(models={"mine": {"like": "claude-haiku-4-5", "window": 5000}}))
    assert desk.send("/v1/models/mine", headers=ANTHROPIC, method="GET").json["max_input_tokens"] == 5000
    assert desk.send("/v1/models/gone", headers=ANTHROPIC, method="GET").reply.status == 404


def test_what_is_asked_stands_in_the_record():
    body = message(
        user("hi"), assistant("so", use(x=1)), user(result(content=[text("a"), text("b")], is_error=True), "and?"),
        system=[text("one"), text("two")], tools=[tool(), {"type": "bash_20250124", "name": "bash"}],
        tool_choice={"type": "tool", "name": "f"},
    )  # fmt: skip
    ask = Desk().anthropic(body).exchange.ask
    assert ask is not None
    assert (ask.system, ask.task, ask.text, ask.choice, ask.max_tokens) == ("one\n\ntwo", "hi", "and?", "f", 1000)
    assert ask.results == (wire.Result("toolu_1", "f", "a\nb", is_error=True),)
    assert ask.calls == (wire.Call("f", {"x": 1}, "toolu_1"),)
    assert [offered.name for offered in ask.tools] == ["f"]
