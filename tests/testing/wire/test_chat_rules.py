"""Each rule of Chat Completions is broken by itself and noticed by itself; what is legal breaks none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wirekit import OPENAI, Desk, Got, image, png

from shoal.testing import wire
from shoal.testing.wire._openai._chat_options import UNSIMULATED

PLAIN = "gpt-4.1"
REASONS = "gpt-5.4"
OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}


def say(content: Any = "hi", role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def calling(*calls: Any, content: Any = None) -> dict[str, Any]:
    return say(content, "assistant", tool_calls=list(calls))


def made(call_id: str = "call_1", name: str = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(call_id: str = "call_1", content: Any = "42") -> dict[str, Any]:
    return say(content, "tool", tool_call_id=call_id)


def function(name: str = "f", **more: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": {"type": "object"}, **more},
    }


def chat(*messages: Any, model: str = PLAIN, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": list(messages) or [say()], **more}


def send(body: Any, **settings: Any) -> Got:
    return Desk(settings=wire.Settings(**settings)).send("/v1/chat/completions", body, OPENAI)


def formatted(schema: dict[str, Any], name: str = "n", **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True, **more}}


def without(key: str) -> dict[str, Any]:
    body = chat()
    del body[key]
    return body


PICTURE = {"type": "image_url", "image_url": {"url": "https://there/x.png"}}
POINT = {"mode": "explicit"}

BAD: list[tuple[str, str, dict[str, Any]]] = [
    ("O1", "Invalid 'messages': empty array", chat() | {"messages": []}),
    ("O1", "Missing required parameter: 'messages'", without("messages")),
    ("O1", "Missing required parameter: 'model'", without("model")),
    ("O1", "Invalid value: 'robot'", chat(say(role="robot"))),
    ("O2", "must be a response to a preceeding message", chat(say(), answer())),
    ("O2", "must be a response to a preceeding message", chat(say(), calling(made()), answer(), say(), answer())),
    ("O2", "'tool_call_id' of 'call_2' not found", chat(say(), calling(made()), answer(), answer("call_2"))),
    ("O2", "not found in 'tool_calls'", chat(say(), calling(made()), answer(), answer())),
    ("O3", "did not have response messages: call_1", chat(say(), calling(made()))),
    ("O3", "did not have response messages: call_2", chat(say(), calling(made(), made("call_2")), answer(), say())),
    ("O4", "empty string", chat(say(), calling(made(arguments="")), answer())),
    ("O4", "expected a string, but got an object", chat(say(), calling(made(arguments={})), answer())),
    ("O5", "expected a string, got null", chat(say(), say(None, "assistant"), say())),
    ("O5", "expected a string, got null", chat(say(), {"role": "assistant"}, say())),
    ("O5", "messages[0].content': empty array", chat(say([]))),
    ("O5", "tool_calls': empty array", chat(say(), calling(content="x"), say())),
    ("O6", "Invalid value: 'image_url'", chat(say(), calling(made()), answer(content=[PICTURE]))),
    ("O7", "does not match pattern", chat(tools=[function("a.b")])),
    ("O7", "maximum length 64", chat(tools=[function("x" * 65)])),
    ("O7", "maximum length 128", chat(tools=[function(f"f{n}") for n in range(129)])),
    ("O7", "maximum length 40, but got a string with length 41",
     chat(say(), calling(made("x" * 41)), answer("x" * 41))),
    ("O7", "minimum length 1", chat(say(), calling(made("")), answer(""))),
    ("O7", "tool_calls[0].function.name", chat(say(), calling(made(name="a b")), answer())),
    ("O8", "'tool_choice' is only allowed when", chat(tool_choice="auto")),
    ("O8", "'parallel_tool_calls' is only allowed", chat(parallel_tool_calls=True)),
    ("O8", "'g' not found", chat(tools=[function()], tool_choice={"type": "function", "function": {"name": "g"}})),
    ("O9", "<= 2, but got 3", chat(temperature=3)),
    ("O9", ">= -2, but got -3", chat(presence_penalty=-3)),
    ("O9", "<= 20", chat(top_logprobs=21)),
    ("O9", ">= 1", chat(n=0)),
    ("O9", "maximum length 4, but got an array with length 5", chat(stop=list("abcde"))),
    ("O9", "at most 32768 completion tokens", chat(max_tokens=40_000)),
    ("O9", "too many properties", chat(metadata={str(n): "x" for n in range(17)})),
    ("O9", "string too long", chat(metadata={"k": "x" * 513})),
    ("O10", "'max_tokens' is not supported", chat(model=REASONS, max_tokens=10)),
    ("O10", "does not support 0.5", chat(model=REASONS, temperature=0.5)),
    ("O10", "'stop' is not supported", chat(model=REASONS, stop=["x"])),
    ("O10", "Only the default (0) value", chat(model=REASONS, frequency_penalty=1)),
    ("O10", "'reasoning_effort' is not supported", chat(reasoning_effort="low")),
    ("O11", "must contain the word 'json'", chat(response_format={"type": "json_object"})),
    ("O11", "does not match pattern", chat(response_format=formatted(OBJECT, "a b"))),
    ("O11", "'additionalProperties' is required", chat(response_format=formatted({"type": "object"}))),
    ("O11", "Missing 'y'", chat(response_format=formatted(OBJECT | {"properties": {"x": {}, "y": {}}}))),
    ("O11", "schema must be a JSON Schema of 'type: \"object\"'", chat(response_format=formatted({"type": "string"}))),
    ("O11", "'allOf' is not permitted", chat(response_format=formatted(OBJECT | {"properties": {"x": {"allOf": []}}}))),
    ("O11", "leads nowhere", chat(response_format=formatted(OBJECT | {"properties": {"x": {"$ref": "#/gone"}}}))),
    ("O11", "Invalid schema for function 'f'", chat(tools=[function(strict=True)])),
    ("O12", "only allowed when 'stream'", chat(stream_options={"include_usage": True})),
    ("O13", "'prompt_cache_options'", chat(prompt_cache_options={"mode": "explicit"})),
    ("O13", "prompt_cache_breakpoint'", chat(say([{"type": "text", "text": "x", "prompt_cache_breakpoint": POINT}]))),
    ("unknown", "Unknown parameter: 'foo'", chat(foo=1)),
    ("unknown", "Unknown parameter: 'messages[0].foo'", chat(say(foo=1))),
    ("schema", "Invalid type for 'temperature': expected a decimal or null, but got a string", chat(temperature="x")),
    ("schema", "but got a boolean", chat(stop=True)),
    ("window", "maximum context length is 1047576 tokens", chat(say("x" * 4_190_308))),
    ("unsimulated", "'audio'", chat(audio={"format": "mp3", "voice": "x"}, modalities=["text", "audio"])),
    ("unsimulated", "one choice", chat(n=2)),
    ("unsimulated", "'logprobs'", chat(logprobs=True)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "fragment", "body"), BAD, ids=[f"{rule} {what}" for rule, what, _ in BAD])
def test_a_bad_body_breaks_its_rule_and_no_other(rule: str, fragment: str, body: dict[str, Any]):
    got = send(body)
    assert got.rules == [rule]
    assert fragment in got.json["error"]["message"]
    assert got.reply.status == (501 if rule == "unsimulated" else 400)


def test_every_rule_of_the_endpoint_is_broken_at_least_once():
    assert {rule for rule, _, _ in BAD} >= {f"O{number}" for number in range(1, 14)}
    assert set(UNSIMULATED) == {"audio", "functions", "function_call", "web_search_options"}


LEGAL: list[dict[str, Any]] = [
    chat(),
    chat(model="gpt-6.1-sol", max_completion_tokens=10, reasoning_effort="high", verbosity="low"),
    chat(say("s", "system"), say("d", "developer"), say([{"type": "text", "text": "x"}, PICTURE])),
    chat(say(), calling(made(), made("call_2")), answer("call_2"), answer(), say()),
    chat(say(), calling(made(), content="so"), answer(content=[{"type": "text", "text": "x"}])),
    chat(say(), calling({"id": "c", "type": "custom", "custom": {"name": "g", "input": "free"}}), answer("c")),
    chat(say(), say(None, "assistant", refusal="no"), say()),
    chat(say(), say([{"type": "refusal", "refusal": "no"}], "assistant"), say()),
    chat(tools=[function(), {"type": "custom", "custom": {"name": "g"}}], tool_choice="required"),
    chat(tools=[function()], parallel_tool_calls=False),
    chat(tools=[function()], tool_choice={"type": "function", "function": {"name": "f"}}),
    chat(tools=[function()], tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}),
    chat(tools=[function(strict=True, parameters=OBJECT)], tool_choice="none"),
    chat(temperature=2, top_p=0, stop="x", seed=1, frequency_penalty=-2, n=1, metadata={"k": "v"}, stream=True),
    chat(model=REASONS, temperature=1, top_p=1, presence_penalty=0),
    chat(say("give me JSON"), response_format={"type": "json_object"}),
    chat(response_format=formatted(OBJECT | {"properties": {"x": {"$ref": "#"}}})),
    chat(response_format=formatted({"type": "string"}, strict=False)),
    chat(response_format={"type": "text"}, stream=True, stream_options={"include_usage": True}),
    chat(say([{"type": "text", "text": "x", "prompt_cache_breakpoint": {**POINT, "ttl": "12h"}}]), model="gpt-6.1-sol",
         prompt_cache_options={"mode": "explicit", "ttl": "30m"}, prompt_cache_key="k", max_completion_tokens=5),
    chat(say([{"type": "file", "file": {"file_id": "f"}}, {"type": "input_audio",
                                                           "input_audio": {"data": "", "format": "wav"}}])),
]  # fmt: skip


@pytest.mark.parametrize("body", LEGAL, ids=lambda body: json.dumps(body)[:60])
def test_a_legal_body_breaks_no_rule(body: dict[str, Any]):
    got = send(body)
    assert (got.exchange.violations, got.reply.status) == ((), 200)


def test_a_system_message_is_converted_with_a_warning():
    got = send(chat(say("s", "system"), say(), model=REASONS))
    assert (got.rules, got.warnings, got.reply.status) == ([], ["O10"], 200)


def test_arguments_that_are_no_object_are_a_mistake_that_passes():
    got = send(chat(say(), calling(made(arguments="[1]")), answer()))
    assert (got.rules, got.warnings) == ([], ["O4"])


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (chat(foo=1), "unknown_parameter", "foo"),
        (without("model"), "missing_required_parameter", "model"),
        (chat(temperature="x"), "invalid_type", "temperature"),
        (chat(say(role="robot")), "invalid_value", "messages[0].role"),
        (
            chat(say(), calling(made("x" * 41)), answer("x" * 41)),
            "string_above_max_length",
            "messages[1].tool_calls[0].id",
        ),
        (chat(model=REASONS, max_tokens=9), "unsupported_parameter", "max_tokens"),
        (chat(say("x" * 4_190_308)), "context_length_exceeded", "messages"),
    ],
)
def test_an_error_has_the_vendors_code_and_says_where(body: dict[str, Any], code: str, param: str):
    error = send(body).json["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)


@pytest.mark.parametrize(
    ("headers", "fragment"),
    [({}, "You didn't provide"), ({"authorization": "Bearer wrong"}, "Incorrect API key provided: wron…")],
)
def test_a_key_must_come_and_be_known(headers: dict[str, str], fragment: str):
    desk = Desk(settings=wire.Settings(keys=frozenset({"right"})))
    got = desk.send("/v1/chat/completions", chat(), headers)
    assert (got.reply.status, got.json["error"]["code"]) == (401, "invalid_api_key")
    assert fragment in got.json["error"]["message"]


@pytest.mark.parametrize("model", ["gone", "claude-opus-4-8"])
def test_a_model_that_is_not_theirs_is_not_found(model: str):
    got = send(chat(model=model))
    assert (got.reply.status, got.json["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("body", [b"{", [], {"messages": "x"}])
def test_what_is_no_request_is_refused(body: Any):
    assert send(body).reply.status == 400


# --- other servers


def open_server(name: Any, body: Any, **headers: str) -> Got:
    return Desk(settings=wire.Settings(server=name)).send("/v1/chat/completions", body, headers)


@pytest.mark.parametrize("server", ["llama.cpp", "vllm", "ollama"])
def test_servers_of_your_own_let_pass_what_is_a_mistake(server: str):
    got = open_server(server, chat(say(), answer(), foo=1, model="mine"))
    assert (got.reply.status, got.rules, got.warnings) == (200, [], ["unknown", "O2"])


def test_llama_takes_nothing_to_answer():
    got = open_server("llama.cpp", {"messages": []})
    assert (got.reply.status, got.warnings) == (200, ["O1"])


def test_no_messages_at_all_are_refused_everywhere():
    assert open_server("llama.cpp", {}).reply.status == 400


@pytest.mark.parametrize(
    ("server", "field"),
    [("deepseek", "reasoning_content"), ("llama.cpp", "reasoning_content"), ("openrouter", "reasoning_details")],
)
def test_reasoning_may_come_back_in_the_servers_own_field(server: str, field: str):
    thought = say("a", "assistant", **{field: "hm"})
    got = open_server(server, chat(say(), thought, say(), model="m"), authorization="Bearer k")
    assert (got.reply.status, got.rules, got.warnings) == (200, [], [])


def test_reasoning_in_another_field_is_unknown():
    thought = say("a", "assistant", reasoning_details=[])
    assert open_server("deepseek", chat(say(), thought, say()), authorization="Bearer k").rules == ["unknown"]


@pytest.mark.parametrize("server", ["llama.cpp", "vllm"])
@pytest.mark.parametrize("arguments", ["", "{", "[1]"])
def test_arguments_that_are_no_object_crash_their_templates(server: str, arguments: str):
    got = open_server(server, chat(say(), calling(made(arguments=arguments)), answer()))
    assert (got.reply.status, got.rules) == (500, ["O4"])


def test_llama_says_how_much_was_too_much():
    got = open_server("llama.cpp", chat(say("x" * 32_772), model="mine"))
    error = got.json["error"]
    assert (got.reply.status, error["type"], error["n_prompt_tokens"], error["n_ctx"], error["code"]) == (
        400, "exceed_context_size_error", 8193, 8192, 400,
    )  # fmt: skip


def test_llama_has_no_eyes():
    got = open_server("llama.cpp", chat(say([{"type": "text", "text": "x"}, PICTURE])))
    assert (got.reply.status, "mmproj" in got.json["error"]["message"]) == (500, True)


def test_ollama_drops_the_oldest_and_says_nothing():
    got = open_server("ollama", chat(say("x" * 32_000), say("y" * 8_000), say("z"), model="mine"))
    assert (got.reply.status, got.json["usage"]["prompt_tokens"]) == (200, 2001)


def test_mistral_wants_ids_of_nine():
    long, right = (open_server("mistral", chat(say(), calling(made(i)), answer(i)), authorization="Bearer k")
                   for i in ("call_1234", "abcDEF123"))  # fmt: skip
    assert (long.rules, right.rules) == (["O7"], [])
    assert "with a length of 9" in long.json["error"]["message"]


def test_azure_takes_its_own_header():
    assert open_server("azure", chat(model="my-deployment"), **{"api-key": "k"}).reply.status == 200


def test_a_gateway_hands_on_the_vendors_refusal():
    parts = [{"type": "text", "text": str(n), "cache_control": {"type": "ephemeral"}} for n in range(5)]
    got = open_server("openrouter", chat(say(parts), model="anthropic/claude-opus-4.8"), authorization="Bearer k")
    assert got.rules == ["A9"]
    raw = json.loads(got.json["error"]["metadata"]["raw"])
    assert "maximum of 4 blocks" in raw["error"]["message"]


def test_markers_mean_nothing_to_other_models_of_a_gateway():
    parts = [{"type": "text", "text": str(n), "cache_control": {"type": "ephemeral"}} for n in range(5)]
    assert open_server("openrouter", chat(say(parts), model="acme/m"), authorization="Bearer k").rules == []


def test_an_image_shows_its_size():
    url = f"data:image/png;base64,{image(png(64, 64))['source']['data']}"
    counts = [
        {"url": url}, {"url": url, "detail": "low"},
        {"url": "https://there/x.png"}, {"url": "data:image/png;base64,AAAA"},
        {"url": f"data:image/png;base64,{image(png(4000, 4000))['source']['data']}"},
    ]  # fmt: skip
    seen = [send(chat(say([{"type": "image_url", "image_url": one}]))).json["usage"]["prompt_tokens"] for one in counts]
    assert seen == [4, 85, 765, 765, 1536]
