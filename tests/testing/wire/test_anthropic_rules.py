"""Each rule of Anthropic's is broken by itself and noticed by itself; what is legal breaks none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from wirekit import ANTHROPIC, Desk, assistant, image, message, pdf, png, result, text, tool, use, user

from shoal.testing import wire

EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
CALLED = (user("hi"), assistant(use()), user(result()))
OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
URL = {"type": "image", "source": {"type": "url", "url": "https://there/x.png"}}


def formatted(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return message(output_config={"format": {"type": "json_schema", "schema": schema}, **more})


def without(key: str) -> dict[str, Any]:
    body = message()
    del body[key]
    return body


BAD: list[tuple[str, str, dict[str, Any]]] = [
    ("A1", "model: Field required", without("model")),
    ("A1", "max_tokens: Field required", without("max_tokens")),
    ("A1", "messages: Field required", without("messages")),
    ("A1", "at least one message", message() | {"messages": []}),
    ("A1", "greater than or equal to 0", message(max_tokens=-1)),
    ("A1", "128001 > 128000, which is the maximum", message(max_tokens=128_001)),
    ("A1", "0 is not supported with `stream`", message(max_tokens=0, stream=True)),
    (
        "A1",
        "`thinking.type: enabled`",
        message(max_tokens=0, model="claude-opus-4-6", thinking={"type": "enabled", "budget_tokens": 1024}),
    ),
    ("A1", "`output_config.format`", formatted(OBJECT) | {"max_tokens": 0}),
    ("A1", "`tool_choice.type: any`", message(max_tokens=0, tools=[tool()], tool_choice={"type": "any"})),
    ("A2", "first message must use", message(assistant("hi"), user("hi"))),
    ("A3", "`tool_use` ids were found without `tool_result`", message(user("hi"), assistant(use()), user("and?"))),
    ("A3", "toolu_2", message(user("hi"), assistant(use(), use(use_id="toolu_2")), user(result()))),
    ("A3", "immediately after: toolu_1", message(user("hi"), assistant(use()))),
    ("A4", "unexpected `tool_use_id`", message(*CALLED, assistant("so"), user(result()))),
    ("A4", "unexpected `tool_use_id`", message(user(result()))),
    ("A4", "must have a single result", message(user("hi"), assistant(use()), user(result(), result()))),
    ("A4", "must be unique", message(*CALLED, assistant(use()), user(result()))),
    ("A5", "must come first", message(user("hi"), assistant(use()), user(text(), result()))),
    ("A5", "srvtoolu_1 is at work", message(user("hi"), assistant(SEARCH, use()), user(result(), text()))),
    ("A6", "'text' block stands between", message(user("hi"), assistant(use(), text(), use(use_id="toolu_2")),
                                                   user(result(), result("toolu_2")))),
    ("A7", "^[a-zA-Z0-9_-]{1,64}$", message(tools=[tool("server.tool")])),
    ("A7", "tools.0.custom.name", message(tools=[tool("x" * 65)])),
    ("A7", "must be unique", message(tools=[tool(), tool()])),
    ("A7", "Input should be 'object'", message(tools=[tool() | {"input_schema": {"properties": {}}}])),
    ("A7", "messages.1.content.0.tool_use.name", message(user("hi"), assistant(use("a b")), user(result()))),
    ("A7", "tool_use.id", message(user("hi"), assistant(use(use_id="a.b")), user(result("a.b")))),
    ("A7", "tool_use.input: Input should be a valid dictionary",
     message(user("hi"), assistant(use() | {"input": "{}"}), user(result()))),
    ("A8", "must be non-empty", message(user(text("")))),
    ("A8", "must be non-empty", message(user(""))),
    ("A8", "must contain non-whitespace", message(user(text(" \n")))),
    ("A8", "system: text content blocks", message(system=[text("")])),
    ("A8", "messages: text content blocks", message(user("hi"), assistant(use()), user(result(content=[text("")])))),
    ("A8", "all messages must have non-empty content", message(user(), assistant("x"), user("hi"))),
    ("A8", "trailing whitespace", message(user("hi"), assistant("so "), model="claude-opus-4-5")),
    ("A9", "Found 5", message(user(*[text(str(n), cache_control=EPHEMERAL) for n in range(5)]))),
    ("A9", "Found 5", message(user(*[text(str(n), cache_control=EPHEMERAL) for n in range(4)], text("z")),
                              cache_control=EPHEMERAL)),
    ("A9", "cannot be set for empty text", message(user(text("", cache_control=EPHEMERAL), text("x")))),
    ("A9", "Extra inputs", message(user("hi"), assistant({"type": "thinking", "thinking": "t", "signature": "s",
                                                          "cache_control": EPHEMERAL}, text()), user("x"))),
    ("A9", "must not come after a ttl='5m'", message(user(text(cache_control=HOUR)),
                                                     system=[text("s", cache_control=EPHEMERAL)])),
    ("A9", "'1h' or '5m'", message(user(text(cache_control={"type": "ephemeral", "ttl": "2h"})))),
    ("A9", "does not agree", message(user(text(cache_control=HOUR)), cache_control=EPHEMERAL)),
    ("A9", "mark the 'search_result' block", message(user({"type": "search_result", "title": "t", "source": "s",
                                                           "content": [text(cache_control=EPHEMERAL)]}))),
    ("A10", "Invalid `signature`", message(
        user("hi"), assistant({"type": "thinking", "thinking": "t", "signature": "s"}, "x"), user("y"))),
    ("A12", "must not be the first", message({"role": "system", "content": "s"}, user("hi"))),
    ("A12", "must directly follow", message(user("hi"), assistant("x"), {"role": "system", "content": "s"},
                                            assistant("y"), user("z"))),
    ("A12", "or be followed by an 'assistant'", message(user("hi"), {"role": "system", "content": "s"}, user("x"))),
    ("A12", "between `tool_use`", message(user("hi"), assistant(use()), {"role": "system", "content": "s"},
                                          user(result()))),
    ("A12", "Input should be 'text'", message(user("hi"), {"role": "system", "content": [image(png())]})),
    ("A12", "is not supported by claude-sonnet-5", message(user("hi"), {"role": "system", "content": "s"},
                                                           model="claude-sonnet-5")),
    ("A13", "does not support assistant message prefill", message(user("hi"), assistant("so"))),
    ("A14", '"thinking.type.enabled" is not supported', message(thinking={"type": "enabled", "budget_tokens": 1024},
                                                                max_tokens=2000)),
    ("A14", '"thinking.type.disabled"', message(thinking={"type": "disabled"}, model="claude-opus-5-5")),
    ("A14", '"thinking.type.adaptive"', message(thinking={"type": "adaptive"}, model="claude-haiku-4-5")),
    ("A14", "greater than or equal to 1024", message(thinking={"type": "enabled", "budget_tokens": 1000},
                                                     model="claude-haiku-4-5")),
    ("A14", "must be greater than `thinking.budget_tokens`",
     message(thinking={"type": "enabled", "budget_tokens": 1024}, model="claude-haiku-4-5", max_tokens=1024)),
    ("A14", "when tool_choice forces", message(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000,
                                               model="claude-haiku-4-5", tools=[tool()], tool_choice={"type": "any"})),
    ("A14", "disabled at effort 'xhigh'", message(thinking={"type": "disabled"}, output_config={"effort": "xhigh"},
                                                  model="claude-opus-5")),
    ("A15", "'any' is not supported by", message(tools=[tool()], tool_choice={"type": "any"}, model="claude-opus-5-5")),
    ("A15", "'tool' is not supported by", message(tools=[tool()], tool_choice={"type": "tool", "name": "f"},
                                                  model="claude-fable-5-2")),
    ("A15", "only be specified while providing tools", message(tool_choice={"type": "auto"})),
    ("A15", "'g' not found", message(tools=[tool()], tool_choice={"type": "tool", "name": "g"})),
    ("A16", "temperature: is not supported", message(temperature=0.5)),
    ("A16", "top_k: is not supported", message(top_k=5, model="claude-opus-4-7")),
    ("A17", "explicitly set to false", formatted({"type": "object", "properties": {}})),
    ("A17", "'minimum' is not supported", formatted(OBJECT | {"properties": {"x": {"type": "integer", "minimum": 1}}})),
    ("A17", "'maxLength' is not supported", formatted(
        OBJECT | {"properties": {"x": {"type": "array", "items": {"type": "string", "maxLength": 1}}}})),
    ("A17", "External $ref", formatted(OBJECT | {"properties": {"x": {"$ref": "https://there/schema"}}})),
    ("A17", "Recursive $ref", formatted(OBJECT | {"properties": {"x": {"$ref": "#"}}})),
    ("A17", "leads nowhere", formatted(OBJECT | {"properties": {"x": {"$ref": "#/$defs/gone"}}})),
    ("A17", "21 strict tools", message(tools=[tool(f"f{n}", strict=True, input_schema=OBJECT) for n in range(21)])),
    ("A17", "25 optional parameters", formatted(
        OBJECT | {"properties": {f"x{n}": {"type": "string"} for n in range(25)}, "required": []})),
    ("A17", "17 unions", formatted(
        OBJECT | {"properties": (many := {f"x{n}": {"type": ["string", "null"]} for n in range(17)}),
                  "required": list(many)})),
    ("A18", "too many images: 101 > 100", message(user(*[URL] * 101), model="claude-haiku-4-5")),
    ("A18", "exceeds 10 MB", message(user(image(bytes(8 * 1024 * 1024))))),
    ("A18", "should be valid base64", message(user({"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": "%"}}))),
    ("A18", "Could not process", message(user(image(b"GIF8")))),
    ("A18", "does not match the provided media type", message(user(image(png(), "image/jpeg")))),
    ("A18", "max allowed size: 8000", message(user(image(png(8001, 1))))),
    ("A18", "max allowed size: 2000", message(user(*[image(png(2001, 1))] * 21))),
    ("A18", "'image/jpeg'", message(user(image(png(), "image/bmp")))),
    ("A19", "not valid", message(user(pdf() | {"source": pdf()["source"] | {"data": "AAAA"}}))),
    ("A19", "password protected", message(user(pdf(extra=b"/Encrypt 5 0 R")))),
    ("A19", "maximum of 600", message(user(pdf(601)))),
    ("A19", "maximum of 100", message(user(pdf(101)), model="claude-haiku-4-5")),
    ("A20", "prompt is too long: 200001 tokens > 200000 maximum",
     message(user("x" * 800_004), model="claude-haiku-4-5")),
    ("A20", "exceed context limit: 199000 + 2000 > 200000", message(user("x" * 796_000), model="claude-sonnet-4",
                                                                    max_tokens=2000)),
    ("A21", "context_management: Extra inputs", message(context_management={"edits": []})),
    ("A21", "clear_at: Extra inputs", message(user("hi"), {"role": "system", "content": "s", "clear_at": "never"})),
    ("unknown", "foo: Extra inputs are not permitted", message(foo=1)),
    ("unknown", "tools.0", message(tools=[tool(parameters={})])),
    ("schema", "Input should be a valid string", message(user({"type": "text", "text": 5}))),
    ("schema", "'text'", message(user({"type": "telepathy"}))),
    ("schema", "role", message({"role": "tool", "content": "x"})),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "fragment", "body"), BAD, ids=[f"{rule} {what}" for rule, what, _ in BAD])
def test_a_bad_body_breaks_its_rule_and_no_other(rule: str, fragment: str, body: dict[str, Any]):
    got = Desk().anthropic(body)
    assert got.rules == [rule]
    assert fragment in got.json["error"]["message"]
    assert (got.reply.status, got.json["error"]["type"]) == (400, "invalid_request_error")


def test_every_rule_of_the_vendor_is_broken_at_least_once():
    # A11 needs thinking that this server made: see the tests of bindings.
    assert {rule for rule, _, _ in BAD} >= {f"A{number}" for number in range(1, 22)} - {"A11"}


LEGAL: list[dict[str, Any]] = [
    message(),
    message(model="claude-fable-5-2"),
    message(user(text()), system="s", stream=True, stop_sequences=["x"], metadata={"user_id": "u"}),
    message(*CALLED, tools=[tool(), tool("g")], tool_choice={"type": "auto", "disable_parallel_tool_use": True}),
    message(*CALLED, assistant("so"), user("more")),
    message(user("hi"), assistant("first", use(), use("g", "toolu_2")), user(result("toolu_2"), result(), text())),
    message(user("hi"), assistant(use()), user(result(content=[text("x"), image(png())], is_error=True))),
    message(user("hi"), assistant(use()), user({"type": "tool_result", "tool_use_id": "toolu_1"})),
    message(user("hi"), assistant(SEARCH, FOUND, text("so")), user("more")),
    message(user("hi"), assistant(SEARCH), model="claude-opus-5-5"),
    message(user("hi"), assistant(SEARCH, use()), user(result())),
    message(user("hi"), assistant("so"), model="claude-opus-4-5"),
    message(user("hi"), {"role": "system", "content": "now"}),
    message(user("hi"), {"role": "system", "content": [text("now")]}, assistant("x"), user("y")),
    message(user("hi"), assistant(SEARCH, FOUND), {"role": "system", "content": "s"}, assistant("x"), user("y")),
    message(user(text("s" * 9000, cache_control=HOUR), text("x", cache_control=EPHEMERAL)), cache_control=EPHEMERAL),
    message(user("hi"), assistant(use()), user(result(content=[text("x", cache_control=EPHEMERAL)]))),
    message(user(text("a")), tools=[tool(cache_control=HOUR)], system=[text("s", cache_control=HOUR)],
            cache_control=EPHEMERAL),
    message(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000, model="claude-haiku-4-5"),
    message(thinking={"type": "adaptive", "display": "omitted"}, output_config={"effort": "max"}),
    message(thinking={"type": "disabled"}, output_config={"effort": "high"}, model="claude-opus-5"),
    message(tools=[tool()], tool_choice={"type": "tool", "name": "f"}),
    message(tools=[tool()], tool_choice={"type": "none"}, model="claude-opus-5-5"),
    message(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
    message(temperature=0.5, top_p=0.5, top_k=5, model="claude-haiku-4-5"),
    message(temperature=1.0, top_p=0.99),
    message(max_tokens=0),
    formatted(OBJECT | {"properties": {"x": {"$ref": "#/$defs/y"}}, "$defs": {"y": {"type": "string"}}}),
    formatted({"type": ["object", "null"], "properties": {"x": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
               "required": ["x"], "additionalProperties": False}),
    message(user(image(png()), pdf(), {"type": "document", "source": {"type": "text", "media_type": "text/plain",
                                                                      "data": "d"}, "title": "t"})),
    message(user({"type": "document", "source": {"type": "content", "content": [text("in it")]}})),
    message(user({"type": "document", "source": {"type": "url", "url": "https://there/x.pdf"}}, URL)),
    message(user({"type": "search_result", "title": "t", "source": "s", "content": [text("found")]})),
    message(speed="fast", service_tier="standard_only", inference_geo="us", container=None),
]  # fmt: skip


@pytest.mark.parametrize("body", LEGAL, ids=lambda body: json.dumps(body)[:60])
def test_a_legal_body_breaks_no_rule(body: dict[str, Any]):
    got = Desk().anthropic(body)
    assert (got.exchange.violations, got.reply.status) == ((), 200)


def test_neighbours_of_one_role_are_merged_with_a_warning():
    got = Desk().anthropic(message(user("a"), user("b"), assistant("c"), user("d")))
    assert (got.rules, got.warnings, got.reply.status) == ([], ["A2"], 200)


def test_a_rule_that_is_skipped_is_recorded_and_not_enforced():
    desk = Desk(settings=wire.Settings(skip=frozenset({"A6"})))
    body = next(body for rule, _, body in BAD if rule == "A6")
    got = desk.anthropic(body)
    assert (got.rules, got.warnings, got.reply.status) == ([], ["A6"], 200)


def test_what_has_no_shape_cannot_be_let_pass():
    desk = Desk(settings=wire.Settings(skip=frozenset({"schema"})))
    assert desk.anthropic(message(user({"type": "text"}))).rules == ["schema"]


def test_no_messages_are_refused_even_where_that_rule_is_skipped():
    got = Desk(settings=wire.Settings(skip=frozenset({"A1"}))).anthropic(message() | {"messages": []})
    assert got.reply.status == 400


def test_a_field_of_a_beta_is_taken_with_its_header():
    beta = "mid-conversation-system-clear-at-2026-08-21"
    body = message(user("hi"), {"role": "system", "content": "s", "clear_at": "next_user_message"})
    assert Desk().anthropic(body, betas=f"other-2026-01-01, {beta}").reply.status == 200


def test_a_value_that_a_beta_does_not_have_is_refused():
    beta = "mid-conversation-system-clear-at-2026-08-21"
    body = message(user("hi"), {"role": "system", "content": "s", "clear_at": "soon"})
    assert Desk().anthropic(body, betas=beta).rules == ["schema"]


def test_a_beta_that_is_not_simulated_says_so():
    got = Desk().anthropic(message(context_management={"edits": []}), betas="context-management-2025-06-27")
    assert (got.rules, got.reply.status) == (["unsimulated"], 501)


def test_the_newer_version_takes_no_documents_of_the_assistant():
    body = message(user("hi"), assistant("x", pdf()), user("y"))
    assert Desk().anthropic(body).rules == []
    assert Desk().anthropic(body, version="2026-10-21").rules == ["A21"]


def test_the_newer_version_takes_no_citations_in_a_users_text():
    place = {"document_index": 0, "document_title": "t", "start_char_index": 0, "end_char_index": 1}
    cited = text("x", citations=[{"type": "char_location", "cited_text": "c", **place}])
    assert Desk().anthropic(message(user(cited))).rules == []
    assert Desk().anthropic(message(user(cited)), version="2026-10-21").rules == ["A21"]


def test_the_newer_version_takes_no_temperature_at_all():
    got = Desk().anthropic(message(temperature=1.0, model="claude-haiku-4-5"), version="2026-10-21")
    assert got.rules == ["A16"]


def test_the_version_must_be_named_and_known():
    desk = Desk()
    missing = desk.send("/v1/messages", message(), {"x-api-key": "k"})
    unknown = desk.anthropic(message(), version="2020-01-01")
    assert (missing.rules, unknown.rules) == (["A21"], ["A21"])
    assert "header is required" in missing.json["error"]["message"]


def test_the_version_need_not_be_named_where_that_rule_is_skipped():
    desk = Desk(settings=wire.Settings(skip=frozenset({"A21"})))
    assert desk.send("/v1/messages", message(), {"x-api-key": "k"}).reply.status == 200


@pytest.mark.parametrize(
    ("headers", "message_part"),
    [({}, "x-api-key header is required"), ({"x-api-key": "wrong"}, "invalid x-api-key")],
)
def test_a_key_must_come_and_be_known(headers: dict[str, str], message_part: str):
    desk = Desk(settings=wire.Settings(keys=frozenset({"right"})))
    got = desk.send("/v1/messages", message(), {"anthropic-version": "2023-06-01", **headers})
    assert (got.reply.status, got.json["error"]["type"]) == (401, "authentication_error")
    assert message_part in got.json["error"]["message"]


def test_a_key_may_come_as_a_bearer():
    desk = Desk(settings=wire.Settings(keys=frozenset({"right"})))
    headers = {"authorization": "Bearer right", "anthropic-version": "2023-06-01"}
    assert desk.send("/v1/messages", message(), headers).reply.status == 200


def test_a_model_that_is_not_theirs_is_not_found():
    got = Desk().anthropic(message(model="gpt-5.4"))
    assert (got.reply.status, got.json["error"]["message"]) == (404, "model: gpt-5.4")


def test_what_is_no_json_is_refused():
    got = Desk().anthropic(b"{")
    assert "not valid JSON" in got.json["error"]["message"]


def test_what_is_no_object_is_refused():
    assert Desk().anthropic([]).rules == ["schema"]


def test_a_request_above_32_megabytes_is_too_large():
    got = Desk().send("/v1/messages", b" " * (32 * 1024 * 1024 + 1), ANTHROPIC)
    assert (got.reply.status, got.json["error"]["type"], got.rules) == (413, "request_too_large", ["A18"])


def test_the_shapes_are_those_of_the_official_client():
    pytest.importorskip("anthropic", reason="the dependency group `wire` is not installed")
    from shapes_from_clients import HERE, anthropic
    from shapes_from_clients import text as written

    assert written(anthropic()) == (Path(HERE) / "shape_anthropic.json").read_text("utf-8")
