"""What Responses answer: items, endings, usage, the order of events, and what stands beside them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_responses_rules import CODEX, ENCRYPTED, MARKS, REASONS, answer, ask, codex, function, made, part, say
from wirekit import OPENAI, Desk, Got

from shoal.testing import wire
from shoal.testing.wire._openai._responses_events import Stream

FULL = wire.turn(wire.think("hm " * 10), "wörds of mine", wire.call("f", x=1), wire.call("g"))
THINKS = {"model": REASONS, "include": [ENCRYPTED], "reasoning": {"summary": "auto"}}


def respond(turn: wire.Playable, body: dict[str, Any] | None = None, path: str = "/v1/responses", **more: Any) -> Got:
    return Desk(wire.Script(turn), wire.Settings(**more)).send(path, body or ask(), OPENAI)


def streamed(turn: wire.Playable, **more: Any) -> list[Any]:
    faults = more.pop("faults", ())
    return respond(turn, ask(stream=True, **more), faults=faults, ids="same").events


def kinds(events: list[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def gathered(events: list[Any]) -> list[Any]:
    """Put the items of a stream together from their pieces, as a client does."""
    items: dict[int, Any] = {}
    for event in events:
        at = event.get("output_index")
        match event["type"].removeprefix("response."):
            case "output_item.added":
                items[at] = {**event["item"]}
            case "content_part.added":
                items[at]["content"].append({**event["part"]})
            case "reasoning_summary_part.added":
                items[at]["summary"].append({**event["part"]})
            case "output_text.delta":
                items[at]["content"][event["content_index"]]["text"] += event["delta"]
            case "refusal.delta":
                items[at]["content"][event["content_index"]]["refusal"] += event["delta"]
            case "reasoning_summary_text.delta":
                items[at]["summary"][event["summary_index"]]["text"] += event["delta"]
            case "function_call_arguments.delta":
                items[at]["arguments"] += event["delta"]
            case _:
                pass
    return list(items.values())


def test_a_stream_holds_what_the_whole_reply_holds():
    whole = respond(FULL, ask(**THINKS), ids="same").json
    events = streamed(FULL, **THINKS)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == whole["output"] == events[-1]["response"]["output"]
    plain = [{key: item[key] for key in item if key not in ("status", "encrypted_content")} for item in done]
    assert [{key: item[key] for key in item if key != "status"} for item in gathered(events)] == plain


def test_a_stream_has_its_order():
    assert kinds(streamed((wire.think("hm"), "ab", wire.call("f")), **THINKS)) == [
        "created", "in_progress",
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip


def test_events_are_numbered_and_named():
    got = respond(FULL, ask(stream=True))
    assert [event["sequence_number"] for event in got.events] == list(range(len(got.events)))
    assert [event.name for event in got.reply.events or ()] == [event["type"] for event in got.events]


def test_a_stream_shows_whose_it_is():
    assert repr(Stream({"id": "resp_1"}, 16)) == "<Stream resp_1>"


def test_text_comes_in_pieces():
    deltas = [event["delta"] for event in streamed("x" * 40) if event["type"] == "response.output_text.delta"]
    assert deltas == ["x" * 16, "x" * 16, "x" * 8]


def test_a_response_begins_with_nothing_in_it():
    first = streamed("a")[0]["response"]
    assert (first["status"], first["output"], first["usage"]) == ("in_progress", [], None)


def test_only_the_last_event_tells_the_usage():
    events = streamed("a")
    assert events[-1]["response"]["usage"]["output_tokens"] == 1
    assert all((event.get("response") or {}).get("usage") is None for event in events[:-1])


def test_there_is_no_terminator():
    assert b"[DONE]" not in respond("a", ask(stream=True)).bytes


@pytest.mark.parametrize(
    ("stop", "status", "reason"),
    [
        (None, "completed", None), ("length", "incomplete", "max_output_tokens"),
        ("window", "incomplete", "max_output_tokens"), ("filter", "incomplete", "content_filter"),
        ("steered", "incomplete", "steered"), ("refusal", "completed", None), ("cancelled", "cancelled", None),
    ],
)  # fmt: skip
def test_every_way_to_end_has_its_words(stop: str | None, status: str, reason: str | None):
    response = respond(wire.turn("a", stop=stop)).json
    assert response["status"] == status
    assert response["incomplete_details"] == (reason and {"reason": reason})
    assert (response["completed_at"] is None) == (status != "completed")


@pytest.mark.parametrize(
    ("stop", "event"), [("length", "incomplete"), ("failed", "failed"), ("cancelled", "failed"), (None, "completed")]
)
def test_a_stream_ends_as_its_response_does(stop: str | None, event: str):
    assert kinds(streamed(wire.turn("a", stop=stop)))[-1] == event


def test_an_item_that_was_cut_says_so():
    response = respond("x" * 100, ask(max_output_tokens=16)).json
    assert [item["status"] for item in response["output"]] == ["incomplete"]
    assert response["output"][0]["content"][0]["text"] == "x" * 64


@pytest.mark.parametrize(
    ("stop", "code", "message"), [("failed", "server_error", "failed to generate"), ("bio_policy", "bio_policy", "no!")]
)
def test_a_response_can_fail(stop: str, code: str, message: str):
    error = respond(wire.turn("a", stop=stop, detail="no!" if stop != "failed" else None)).json["error"]
    assert error["code"] == code
    assert message in error["message"]


def test_a_refusal_is_a_part_of_its_own():
    content = respond(wire.turn("no", stop="refusal")).json["output"][0]["content"]
    assert content == [{"type": "refusal", "refusal": "no"}]
    assert kinds(streamed(wire.turn("no", stop="refusal")))[4:6] == ["refusal.delta", "refusal.done"]


def test_reasoning_shows_its_summary_if_asked():
    shown = respond(FULL, ask(**THINKS)).json["output"][0]
    hidden = respond(FULL, ask(model=REASONS, store=True)).json["output"][0]
    assert (shown["summary"][0]["text"], hidden["summary"]) == ("hm " * 10, [])
    assert "encrypted_content" in shown
    assert "encrypted_content" not in hidden


def test_redacted_reasoning_shows_none():
    thought = respond((wire.think("x", redacted=True), "a"), ask(**THINKS)).json["output"][0]
    assert thought["summary"] == []


def test_reasoning_is_counted():
    usage = respond((wire.think("x" * 40), "y"), ask(**THINKS)).json["usage"]
    assert (usage["output_tokens"], usage["output_tokens_details"]["reasoning_tokens"]) == (11, 10)


def test_a_model_that_does_not_reason_shows_none():
    assert [item["type"] for item in respond((wire.think("x"), "y")).json["output"]] == ["message"]


def test_an_empty_turn_has_no_items():
    assert respond(wire.turn()).json["output"] == []


def test_what_a_vendor_has_of_its_own_goes_out_as_it_is():
    odd = {"type": "odd_call", "x": [1]}
    assert respond(wire.Raw(odd)).json["output"] == [odd]
    assert kinds(streamed(wire.Raw(odd)))[2:4] == ["output_item.added", "output_item.done"]


@pytest.mark.parametrize(("kind", "ids"), [("same", 1), ("missing", 1)])
def test_ids_of_calls_can_go_wrong(kind: Any, ids: int):
    items = respond((wire.call("f"), wire.call("g")), faults=[wire.CallIds(kind)]).json["output"]
    assert len({item["call_id"] for item in items}) == ids
    assert (items[0]["call_id"] == "") == (kind == "missing")


def test_a_reply_tells_what_it_was_asked():
    body = ask(tools=[function()], tool_choice="required", metadata={"k": "v"}, parallel_tool_calls=False)
    response = respond("a", body).json
    assert {key: response[key] for key in ("tools", "tool_choice", "metadata", "parallel_tool_calls", "model")} == {
        key: body[key] for key in ("tools", "tool_choice", "metadata", "parallel_tool_calls", "model")
    }


def test_the_brain_sees_the_conversation():
    desk = Desk(wire.Script("a", last="ok"))
    items = [say("s", "developer"), say([part("u"), part("v")]), say("so", "assistant"), made(arguments='{"x":1}'),
             {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "free"}, answer(),
             {"type": "custom_tool_call_output", "call_id": "c", "output": "43"},
             {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": None}]  # fmt: skip
    got = desk.send("/v1/responses", ask(*items, instructions="be brief", tools=[function()]), OPENAI).exchange.ask
    assert got is not None
    assert (got.system, got.task, got.text) == ("be brief\n\ns", "u\nv", "u\nv")
    assert got.said[3] == wire.Said(
        "assistant", "so", (wire.Call("f", '{"x":1}', "call_1"), wire.Call("g", "free", "c"))
    )
    assert [(result.name, result.text) for result in got.results] == [("f", "42"), ("g", "43")]
    assert [tool.name for tool in got.tools] == ["f"]


def test_an_error_in_a_stream_takes_the_place_of_its_end():
    got = respond("a", ask(stream=True), faults=[wire.ErrorEvent()])
    last = json.loads(got.bytes.rstrip().splitlines()[-1].removeprefix(b"data: "))
    assert (last["type"], last["code"], last["message"]) == ("error", "server_error", "Overloaded")
    assert b"event: error" in got.bytes


@pytest.mark.parametrize(("status", "code"), [(429, "rate_limit_exceeded"), (500, None), (503, "overloaded")])
def test_an_error_has_its_shape(status: int, code: str | None):
    got = respond(wire.Failure(status, message="no", retry_after="3"))
    assert (got.reply.status, got.json["error"]["code"], got.json["error"]["message"]) == (status, code, "no")
    assert dict(got.reply.headers)["retry-after"] == "3"


def test_limits_are_told_and_kept():
    desk = Desk(settings=wire.Settings(limits=wire.Limits(requests_per_minute=1)))
    first, second = (desk.send("/v1/responses", ask(), OPENAI) for _ in range(2))
    assert dict(first.reply.headers)["x-ratelimit-remaining-requests"] == "0"
    assert (second.reply.status, second.json["error"]["code"]) == (429, "rate_limit_exceeded")


# --- beside it


def test_tokens_are_counted_as_they_will_be():
    body = ask(say("x" * 40), instructions="y" * 8, tools=[function()])
    desk = Desk()
    counted = desk.send("/v1/responses/input_tokens", body, OPENAI).json
    used = desk.send("/v1/responses", body, OPENAI).json["usage"]["input_tokens"]
    assert counted == {"object": "response.input_tokens", "input_tokens": used}


def test_counting_holds_to_the_rules():
    assert Desk().send("/v1/responses/input_tokens", ask(say(), answer()), OPENAI).rules == ["R1"]
    assert Desk().send("/v1/responses/input_tokens", ask(metadata={}), OPENAI).rules == ["unknown"]


@pytest.mark.parametrize(("store", "status"), [(True, 200), (False, 404)])
def test_a_stored_response_is_shown_again(store: bool, status: int):
    desk = Desk(wire.Script("a"))
    first = desk.send("/v1/responses", ask(store=store), OPENAI).json
    got = desk.send(f"/v1/responses/{first['id']}", headers=OPENAI, method="GET")
    assert got.reply.status == status
    assert (got.json == first) == store


def test_compaction_is_not_simulated():
    got = Desk().send("/v1/responses/compact", ask(), OPENAI)
    assert (got.rules, got.reply.status) == (["unsimulated"], 501)
    skipped = Desk(settings=wire.Settings(skip=frozenset({"unsimulated"})))
    assert skipped.send("/v1/responses/compact", ask(), OPENAI).reply.status == 501


def test_a_key_must_come():
    assert Desk().send("/v1/responses", ask()).reply.status == 401


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/responses"), ("DELETE", "/v1/responses/resp_1")])
def test_other_paths_are_no_ones(method: str, path: str):
    assert Desk().send(path, headers=OPENAI, method=method).reply.status == 404


# --- the cache


BIG = "x" * 8000


def row(desk: Desk, body: dict[str, Any], path: str = "/v1/responses", **headers: str) -> wire.Row:
    got = desk.send(path, body, {**OPENAI, **headers})
    assert got.exchange.row is not None, got.reply.body
    return got.exchange.row


def test_the_automatic_cache_reads_in_steps():
    desk = Desk()
    row(desk, ask(say(BIG)))
    assert row(desk, ask(say(BIG), say("so", "assistant"), say("y" * 40))).read == 1920


def test_writes_are_told_by_how_long_they_live():
    desk = Desk()
    body = ask(say([part(BIG, prompt_cache_breakpoint={"mode": "explicit", "ttl": "12h"})]), say(BIG), model=MARKS)
    usage = desk.send("/v1/responses", body, OPENAI).json["usage"]
    details = usage["input_tokens_details"]
    assert details == {
        "cached_tokens": 0,
        "cache_write_tokens": 4000,
        "cache_write_tokens_details": {"ttl_30m_tokens": 2000, "ttl_12h_tokens": 2000},
    }


def test_a_marker_on_a_result_does_nothing():
    desk = Desk()
    marked = answer(output=[part(BIG, prompt_cache_breakpoint={"mode": "explicit"})])
    body = ask(say(), made(), marked, model=MARKS, prompt_cache_options={"mode": "explicit"})
    assert row(desk, body).written == 0


def test_a_cache_can_be_filled_without_a_reply():
    desk = Desk()
    warming = {"mode": "implicit", "prewarm": True}
    first = desk.send("/v1/responses", ask(say(BIG), model=MARKS, prompt_cache_options=warming), OPENAI)
    assert first.json["output"] == []
    assert row(desk, ask(say(BIG), say("so"), model=MARKS)).read == 2000


@pytest.mark.parametrize(("session", "read"), [("a", 1920), ("b", 0)])
def test_a_session_finds_its_own_cache_again(session: str, read: int):
    desk = Desk()
    row(desk, codex(say(BIG)), CODEX, session_id="a")
    assert row(desk, codex(say(BIG)), CODEX, session_id=session).read == read


def test_a_cache_key_goes_before_the_session():
    desk = Desk()
    row(desk, codex(say(BIG), prompt_cache_key="k"), CODEX, session_id="a")
    assert row(desk, codex(say(BIG), prompt_cache_key="k"), CODEX, session_id="b").read == 1920


def test_a_local_server_keeps_what_was_said():
    desk = Desk(wire.Script(BIG, last="ok"), wire.Settings(server="llama.cpp"))
    said = desk.send("/v1/responses", ask(say(BIG), model="mine"), OPENAI).json["output"]
    assert row(desk, ask(say(BIG), said[0], say("y"), model="mine")).read == 4000


def test_a_local_server_does_not_tell_that_it_was_cut():
    got = respond("x" * 100, ask(max_output_tokens=16, model="mine"), server="llama.cpp")
    assert got.json["status"] == "completed"


# --- why it missed


def diagnosed(second: dict[str, Any], **first: Any) -> Any:
    """Return what is said of *second*, compared with a first request of *first*."""
    desk = Desk()
    body = {**ask(say(BIG), model=MARKS, tools=[function()], instructions="be brief"), **first}
    compared = desk.send("/v1/responses", body, OPENAI).json["id"]
    options = {"mode": "implicit", "comparison_response_id": compared}
    return desk.send("/v1/responses", {**body, "prompt_cache_options": options, **second}, OPENAI).json.get(
        "prompt_cache_diagnostics"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "gpt-6.1-terra"}, "model_changed"),
        ({"prompt_cache_key": "other"}, "prompt_cache_key_changed"),
        ({"service_tier": "flex"}, "service_tier_changed"),
        ({"tools": [function("g")]}, "tools_changed"),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}, "text_format_changed"),
        ({"reasoning": {"effort": "low"}}, "reasoning_effort_changed"),
        ({"text": {"verbosity": "low"}}, "verbosity_changed"),
        ({"instructions": "be long"}, "input_changed"),
        ({"input": [say("y" + BIG)]}, "input_changed"),
    ],
)
def test_a_miss_has_its_reason(change: dict[str, Any], reason: str):
    found = diagnosed(change)
    assert (found["type"], found["reason"]) == ("cache_miss", reason)
    assert found["cache_missed_tokens"] == found["comparison_reusable_tokens"] > 2000


def test_a_hit_is_one():
    assert diagnosed({}) == {"type": "cache_hit"}
    assert diagnosed({"input": [say(BIG), say("more")]}) == {"type": "cache_hit"}


def test_the_automatic_cache_is_explained_as_well():
    assert diagnosed({"tools": [function("g")]}, model=MARKS)["reason"] == "tools_changed"


def test_an_unknown_response_cannot_be_compared_with():
    options = {"mode": "implicit", "comparison_response_id": "resp_gone"}
    assert diagnosed({"prompt_cache_options": options}) == {"type": "comparison_response_not_found"}


def test_nothing_is_explained_unasked():
    assert diagnosed({"prompt_cache_options": {"mode": "implicit"}}) is None
