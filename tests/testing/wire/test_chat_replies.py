"""What Chat Completions answer, by OpenAI and by servers that copy it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_chat_rules import answer, calling, chat, function, made, say
from wirekit import OPENAI, Desk, Got

from shoal.testing import wire

FULL = wire.turn(wire.think("hm " * 10), "wörds of mine", wire.call("f", x=1), wire.call("g"))
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def ask(brain: wire.Brain | str = "ok", body: dict[str, Any] | None = None, **settings: Any) -> Got:
    script = wire.Script(last=brain) if isinstance(brain, str) else brain
    desk = Desk(script, wire.Settings(**settings))
    return desk.send("/v1/chat/completions", body or chat(), OPENAI)


def said(turn: wire.Playable, **more: Any) -> Any:
    settings = {"server": more.pop("server", "openai"), "faults": more.pop("faults", ())}
    return ask(wire.Script(turn), chat(**more), **settings).json["choices"][0]


def chunks(turn: wire.Playable, **more: Any) -> list[Any]:
    settings = {"server": more.pop("server", "openai"), "faults": more.pop("faults", ())}
    return ask(wire.Script(turn), chat(**{**STREAM, **more}), **settings).events


def deltas(found: list[Any]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in found if chunk["choices"]]


def gathered(found: list[Any]) -> dict[str, Any]:
    """Put a stream together as a client does."""
    message: dict[str, Any] = {"content": "", "calls": {}}
    for delta in deltas(found):
        message["content"] += delta.get("content") or ""
        for call in delta.get("tool_calls", []):
            known = message["calls"].setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
            known["id"] += call.get("id", "")
            known["name"] += call["function"].get("name", "")
            known["arguments"] += call["function"]["arguments"]
    return message


def test_a_stream_holds_what_the_whole_reply_holds():
    settings = {"ids": "same"}
    whole = ask(wire.Script(FULL), chat(), **settings).json["choices"][0]["message"]
    streamed = gathered(ask(wire.Script(FULL), chat(**STREAM), **settings).events)
    assert streamed["content"] == whole["content"] == "wörds of mine"
    assert [[call["id"], call["name"], call["arguments"]] for call in streamed["calls"].values()] == [
        [call["id"], call["function"]["name"], call["function"]["arguments"]] for call in whole["tool_calls"]
    ]


def test_a_stream_has_its_order():
    found = chunks(("a", wire.call("f")))
    assert deltas(found) == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
        {"tool_calls": [{"index": 0, "id": found[2]["choices"][0]["delta"]["tool_calls"][0]["id"], "type": "function",
                         "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]  # fmt: skip
    assert [chunk["choices"][0]["finish_reason"] for chunk in found if chunk["choices"]] == [None] * 4 + ["tool_calls"]
    assert (found[-1]["choices"], found[-1]["usage"]["completion_tokens"]) == ([], 3)


def test_a_stream_ends_in_its_terminator():
    got = ask(body=chat(stream=True))
    assert got.bytes.endswith(b"data: [DONE]\n\n")
    assert not any("usage" in chunk for chunk in got.events)


def test_every_chunk_has_the_same_head():
    heads = {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks(FULL)}
    assert len(heads) == 1


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ("a", "stop"), (wire.call("f"), "tool_calls"), (wire.turn("a", stop="length"), "length"),
        (wire.turn("a", stop="filter"), "content_filter"), (wire.turn("a", stop="window"), "length"),
        (wire.turn("a", stop="stop_sequence"), "stop"), (wire.turn("a", stop="function_call"), "function_call"),
        (wire.turn(), "stop"),
    ],
)  # fmt: skip
def test_every_way_to_stop_has_its_word(turn: wire.Playable, reason: str):
    assert said(turn)["finish_reason"] == reason
    assert chunks(turn)[-2]["choices"][0]["finish_reason"] == reason


def test_a_refusal_stands_beside_the_content():
    message = said(wire.turn("no", stop="refusal"))["message"]
    assert (message["content"], message["refusal"]) == (None, "no")
    assert {"refusal": "no"} in deltas(chunks(wire.turn("no", stop="refusal")))


def test_calls_alone_have_no_content():
    assert said(wire.call("f"))["message"]["content"] is None


def test_reasoning_is_counted_and_not_shown():
    got = ask(wire.Script((wire.think("x" * 40), "y")), chat())
    assert got.json["choices"][0]["message"] == {
        "role": "assistant",
        "content": "y",
        "refusal": None,
        "annotations": [],
    }
    assert got.json["usage"]["completion_tokens_details"]["reasoning_tokens"] == 10
    assert got.json["usage"]["completion_tokens"] == 11


def test_what_a_vendor_has_of_its_own_goes_out_as_it_is():
    turn = wire.turn("a", wire.Raw({"annotations": [{"type": "url_citation"}], "odd": 1}))
    assert said(turn)["message"]["odd"] == 1
    assert {"odd": 1} in deltas(chunks(turn))


def test_a_reply_ends_at_a_stop_sequence():
    assert said("one two", stop="two")["message"]["content"] == "one "
    assert said("one two", stop=["x", "one"])["message"]["content"] == ""


def test_a_budget_cuts():
    choice = said("x" * 80, max_tokens=5)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("x" * 20, "length")


# --- what goes wrong inside of it


@pytest.mark.parametrize(("kind", "indexes"), [("zero", [0, 0]), ("null", [None, None]), ("missing", ["", ""])])
def test_numbers_of_calls_can_go_wrong(kind: Any, indexes: list[Any]):
    found = deltas(chunks((wire.call("f"), wire.call("g")), faults=[wire.CallIndexes(kind)]))
    starts = [call for delta in found for call in delta.get("tool_calls", []) if "name" in call["function"]]
    assert [call.get("index", "") for call in starts] == indexes


@pytest.mark.parametrize(("kind", "ids"), [("same", 1), ("missing", 0)])
def test_ids_of_calls_can_go_wrong(kind: Any, ids: int):
    calls = said((wire.call("f"), wire.call("g")), faults=[wire.CallIds(kind)])["message"]["tool_calls"]
    assert len({call["id"] for call in calls if "id" in call}) == ids


def test_a_call_can_come_in_one_piece():
    found = deltas(chunks(wire.call("f", x=1), faults=[wire.WholeCalls()]))
    [calls] = [delta["tool_calls"] for delta in found if "tool_calls" in delta]
    assert calls[0]["function"] == {"name": "f", "arguments": '{"x":1}'}


def test_an_error_in_a_stream_is_a_chunk():
    got = ask(body=chat(stream=True), faults=[wire.ErrorEvent(at=1)])
    assert got.events[0]["choices"]
    assert (
        b'data: {"error":{"message":"Overloaded","type":"server_error","param":null,"code":"overloaded"}}' in got.bytes
    )
    assert b"[DONE]" not in got.bytes


# --- errors


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None), (401, "invalid_request_error", "invalid_api_key"),
        (403, "permission_error", None), (404, "invalid_request_error", "model_not_found"),
        (409, "conflict_error", None), (429, "requests", "rate_limit_exceeded"), (500, "server_error", None),
        (503, "server_error", "overloaded"), (502, "server_error", None),
    ],
)  # fmt: skip
def test_an_error_has_the_type_of_its_status(status: int, kind: str, code: str | None):
    got = ask(wire.Script(wire.Failure(status)))
    assert (got.reply.status, got.json["error"]["type"], got.json["error"]["code"]) == (status, kind, code)
    assert dict(got.reply.headers)["x-request-id"].startswith("req_")


def test_an_empty_account_is_no_rate_limit():
    failure = wire.Failure(429, "insufficient_quota", "pay", retry_after="20", headers={"retry-after-ms": "20000"})
    got = ask(wire.Script(failure))
    assert got.json["error"] == {
        "message": "pay",
        "type": "insufficient_quota",
        "param": None,
        "code": "insufficient_quota",
    }
    assert {"retry-after", "retry-after-ms"} <= set(dict(got.reply.headers))


def test_limits_are_told():
    limits = wire.Limits(requests_per_minute=60, input_per_minute=100, output_per_minute=50)
    headers = dict(ask(body=chat(say("x" * 200)), limits=limits).reply.headers)
    assert {name: value for name, value in headers.items() if "ratelimit" in name} == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "50",
        "x-ratelimit-reset-tokens": "30s",
    }


@pytest.mark.parametrize(("requests", "told"), [(1000, "60ms"), (1, "1m0s")])
def test_a_reset_is_a_duration(requests: int, told: str):
    headers = dict(ask(limits=wire.Limits(requests_per_minute=requests)).reply.headers)
    assert headers["x-ratelimit-reset-requests"] == told


# --- other servers


def test_llama_shows_reasoning_and_its_timings():
    found = chunks((wire.think("hm"), "a"), server="llama.cpp")
    assert deltas(found)[:3] == [
        {"role": "assistant", "content": None}, {"reasoning_content": "hm"}, {"content": "a"}
    ]  # fmt: skip
    assert found[-1]["timings"]["prompt_n"] == 1
    assert "refusal" not in said("a", server="llama.cpp")["message"]


def test_a_refusal_of_other_servers_is_told_as_well():
    assert said(wire.turn("no", stop="refusal"), server="deepseek")["message"]["refusal"] == "no"


def test_vllm_has_a_stop_reason_of_its_own():
    assert said("a", server="vllm")["stop_reason"] is None


def test_ollama_numbers_nothing_and_stops_to_call():
    found = chunks((wire.call("f"), wire.call("g", x=1)), server="ollama")
    calls = [call for delta in deltas(found) for call in delta.get("tool_calls", [])]
    assert [(call["index"], call["function"]["arguments"]) for call in calls] == [(0, "{}"), (0, '{"x":1}')]
    assert found[-2]["choices"][0]["finish_reason"] == "stop"
    assert "prompt_tokens_details" not in found[-1]["usage"]


def test_a_gateway_tells_cost_and_wants_its_reasoning_back():
    body = chat(model="gpt-6-luna", max_completion_tokens=10)
    got = ask(wire.Script((wire.think("hm"), "a")), body, server="openrouter")
    message = got.json["choices"][0]["message"]
    assert message["reasoning"] == "hm"
    assert message["reasoning_details"][0]["text"] == "hm"
    assert got.json["usage"]["cost"] == pytest.approx(float(got.exchange.row.cost_usd))  # type: ignore[union-attr, arg-type]
    assert {"reasoning_details": message["reasoning_details"]} in deltas(
        chunks((wire.think("hm"), "a"), server="openrouter")
    )


def test_a_gateway_does_not_know_every_price():
    assert ask(body=chat(model="acme/m"), server="openrouter").json["usage"]["cost"] is None


def test_a_gateway_fails_inside_of_a_chunk():
    got = ask(body=chat(stream=True), server="openrouter", faults=[wire.ErrorEvent(at=1)])
    assert b'"finish_reason":"error"' in got.bytes


def test_deepseek_counts_hits_and_misses():
    usage = ask(body=chat(say("x" * 40)), server="deepseek").json["usage"]
    assert (usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"]) == (0, 10)


def test_mistral_sends_usage_unasked_and_ids_of_nine():
    found = ask(wire.Script(wire.call("f")), chat(stream=True), server="mistral").events
    [call] = [call for delta in deltas(found) for call in delta.get("tool_calls", []) if "id" in call]
    assert (len(call["id"]), found[-1]["usage"]["completion_tokens"]) == (9, 2)
    assert len(chunks("a", server="mistral")) == 3


def test_azure_begins_with_its_filters():
    found = chunks("a", server="azure")
    assert (found[0]["choices"], "prompt_filter_results" in found[0]) == ([], True)


# --- beside the API


def local(name: Any, path: str, body: Any = None, **more: Any) -> Got:
    return Desk(settings=wire.Settings(server=name)).send(path, body, method="GET" if body is None else "POST", **more)


def test_llama_counts_a_template_as_it_counts_the_request():
    messages = [say("s" * 9, "system"), say("wörd" * 3), calling(made(arguments='{"x":1}')), answer()]
    template = local("llama.cpp", "/apply-template", {"messages": messages, "tools": [function()]}).json["prompt"]
    tokens = local("llama.cpp", "/tokenize", {"content": template}).json["tokens"]
    used = ask(body=chat(*messages, tools=[function()]), server="llama.cpp").json["usage"]["prompt_tokens"]
    assert len(tokens) == used


def test_vllm_counts_messages():
    body = {"model": "m", "messages": [say("x" * 40)]}
    assert local("vllm", "/tokenize", body).json == {"count": 10, "max_model_len": 8192, "tokens": list(range(10))}


@pytest.mark.parametrize(("server", "body"), [("llama.cpp", {"content": 5}), ("vllm", {}), ("vllm", [])])
def test_what_cannot_be_counted_is_refused(server: str, body: Any):
    assert local(server, "/tokenize", body).reply.status == 400


def test_a_server_of_your_own_tells_its_health():
    assert local("llama.cpp", "/health").json == {"status": "ok"}
    assert local("vllm", "/health").json == {"status": "ok"}
    assert local("llama.cpp", "/props").json["default_generation_settings"]["n_ctx"] == 8192


@pytest.mark.parametrize("path", ["/tokenize", "/apply-template", "/health", "/props"])
def test_openai_has_none_of_that(path: str):
    assert local("openai", path).reply.status == 404


def models(server: Any, **settings: Any) -> Any:
    desk = Desk(settings=wire.Settings(server=server, **settings))
    return desk.send("/v1/models", headers=OPENAI, method="GET").json["data"]


def test_models_are_listed():
    assert {"gpt-5.4", "gpt-6.1-sol"} <= {model["id"] for model in models("openai")}
    assert [model["id"] for model in models("llama.cpp")] == ["local"]
    mine = {"mine": {"like": "local", "window": 99}}
    assert {model["id"]: model["max_model_len"] for model in models("vllm", models=mine)} == {"local": 8192, "mine": 99}
    assert models("llama.cpp")[0]["meta"]["n_ctx_train"] == 8192


def test_one_model_can_be_asked_for():
    desk = Desk()
    assert desk.send("/v1/models/gpt-5.4", headers=OPENAI, method="GET").json["id"] == "gpt-5.4"
    assert desk.send("/v1/models/gone", headers=OPENAI, method="GET").reply.status == 404


# --- what the brain is asked


def test_what_is_asked_stands_in_the_record():
    body = chat(
        say("s", "system"), say("d", "developer"), say("hi"), calling(made(arguments='{"x":1}'), content="so"),
        answer(content=[{"type": "text", "text": "r"}]), say([{"type": "text", "text": "and?"}]),
        tools=[function()], tool_choice="required", max_tokens=7,
    )  # fmt: skip
    asked = ask(body=body).exchange.ask
    assert asked is not None
    assert (asked.system, asked.task, asked.text, asked.choice, asked.max_tokens) == ("s\n\nd", "hi", "and?", "any", 7)
    assert asked.calls == (wire.Call("f", '{"x":1}', "call_1"),)
    assert asked.results == (wire.Result("call_1", "f", "r"),)
    assert asked.tools == (wire.Offered("f", "d", {"type": "object"}),)


@pytest.mark.parametrize(
    ("choice", "neutral"),
    [
        ("none", "none"), ("auto", "auto"), ({"type": "function", "function": {"name": "f"}}, "f"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}, "any"),
        ({"type": "custom", "custom": {"name": "g"}}, "auto"),
    ],
)  # fmt: skip
def test_choices_of_tools_are_told_in_plain_words(choice: Any, neutral: str):
    tools = [function(), {"type": "custom", "custom": {"name": "g"}}]
    asked = ask(body=chat(tools=tools, tool_choice=choice)).exchange.ask
    assert asked is not None
    assert asked.choice == neutral


def test_chunks_are_json():
    assert all(json.dumps(chunk) for chunk in chunks(FULL))
