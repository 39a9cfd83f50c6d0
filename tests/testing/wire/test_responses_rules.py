"""Each rule of Responses is broken by itself and noticed by itself; what is legal breaks none."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from wirekit import OPENAI, Desk, Got

from shoal.testing import wire
from shoal.testing.wire._openai._responses_options import CODEX_REFUSES, UNSIMULATED

PLAIN = "gpt-4.1"
REASONS = "gpt-5.4"
MARKS = "gpt-6.1-sol"
OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
POINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
ENCRYPTED = "reasoning.encrypted_content"
CODEX = "/backend-api/codex/responses"


def say(content: Any = "hi", role: str = "user", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


def part(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "input_text", "text": text, **more}


def made(call_id: str = "call_1", name: str = "f", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def answer(call_id: str = "call_1", output: Any = "42") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def function(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False, **more}


def ask(*items: Any, model: str = PLAIN, **more: Any) -> dict[str, Any]:
    return {"model": model, "input": list(items) or "hi", **more}


def codex(*items: Any, **more: Any) -> dict[str, Any]:
    """A request that the transport takes which keeps nothing; `None` takes a field away."""
    asked = {"store": False, "stream": True, "instructions": "be brief", "include": [ENCRYPTED], **more}
    return ask(*items, model=REASONS, **{key: value for key, value in asked.items() if value is not None})


def send(body: Any, path: str = "/v1/responses", **settings: Any) -> Got:
    return Desk(settings=wire.Settings(**settings)).send(path, body, OPENAI)


def formatted(schema: dict[str, Any], name: str = "n") -> dict[str, Any]:
    return {"format": {"type": "json_schema", "name": name, "schema": schema, "strict": True}}


def without(key: str) -> dict[str, Any]:
    body = ask()
    del body[key]
    return body


BAD: list[tuple[str, str, dict[str, Any]]] = [
    ("R1", "No tool output found for function call call_1.", ask(say(), made())),
    ("R1", "No tool output found for function call call_2.", ask(say(), made(), made("call_2"), answer(), say())),
    ("R1", "No tool output found", ask(say(), made(), say("so", "assistant"), say(), answer())),
    ("R1", "No tool call found for function call output with call_id call_1", ask(say(), answer())),
    ("R1", "more than once", ask(say(), made(), answer(), answer())),
    ("R1", "without a call", ask(say(), made(), answer(), answer("call_2"))),
    ("R1", "Duplicate call_id 'call_1'", ask(say(), made(), answer(), made(), answer())),
    ("R1", "Duplicate call_id 'call_1'", ask(say(), made(), made(), answer())),
    ("R1", "maximum length 64, but got a string with length 65", ask(say(), made("x" * 65), answer("x" * 65))),
    ("R1", "minimum length 1", ask(say(), made(""), answer(""))),
    ("R3", "Item with id 'rs_1' not found.", ask({"type": "item_reference", "id": "rs_1"})),
    ("R3", "Item with id 'rs_1' not found.", ask(say(), {"type": "reasoning", "id": "rs_1", "summary": []}, say())),
    ("R3", "could not be verified", ask(say(), {"type": "reasoning", "id": "rs_1", "summary": [],
                                                "encrypted_content": "AAAA"}, say("x", "assistant"))),
    ("R3", "begins with 'fc'", ask(say(), made(id="call_1"), answer())),
    ("R3", "Item with id 'fc_1' not found.", ask(say(), made(id="fc_1"), answer())),
    ("R3", "Item with id 'msg_1' not found.", ask({"type": "message", "role": "assistant", "id": "msg_1",
        "status": "completed", "content": [{"type": "output_text", "text": "x", "annotations": []}]}, say())),
    ("R4", "Mutually exclusive", ask(previous_response_id="resp_1", conversation="conv_1")),
    ("R4", "Previous response with id 'resp_1' not found.", ask(previous_response_id="resp_1")),
    ("R5", "Expected a value >= 16, but got 15", ask(max_output_tokens=15)),
    ("R5", "at most 32768", ask(max_output_tokens=32_769)),
    ("R6", "Unknown parameter: 'tools[0].function'", ask(tools=[{"type": "function", "function": {"name": "f"}}])),
    ("R6", "Missing required parameter: 'tools[0].parameters'", ask(tools=[{"type": "function", "name": "f",
                                                                           "strict": False}])),
    ("R6", "Missing required parameter: 'tools[0].strict'", ask(tools=[{"type": "function", "name": "f",
                                                                       "parameters": {}}])),
    ("R6", "does not match pattern", ask(tools=[function("a.b")])),
    ("R6", "maximum length 64", ask(tools=[function("x" * 65)])),
    ("R6", "maximum length 128", ask(tools=[function(f"f{n}") for n in range(129)])),
    ("R6", "'g' not found", ask(tools=[function()], tool_choice={"type": "function", "name": "g"})),
    ("R8", "does not match pattern", ask(text=formatted(OBJECT, "a b"))),
    ("R8", "'additionalProperties' is required", ask(text=formatted({"type": "object"}))),
    ("R8", "Missing 'y'", ask(text=formatted(OBJECT | {"properties": {"x": {}, "y": {}}}))),
    ("R8", "Invalid schema for function 'f'", ask(tools=[function(strict=True)])),
    ("O9", "too many properties", ask(metadata={str(n): "x" for n in range(17)})),
    ("O10", "'temperature' is not supported", ask(model=REASONS, temperature=0.5)),
    ("O10", "'top_p' is not supported", ask(model=REASONS, top_p=0.5)),
    ("O10", "'reasoning' is not supported", ask(reasoning={"effort": "low"})),
    ("O12", "only allowed when 'stream'", ask(stream_options={"include_obfuscation": False})),
    ("O13", "'prompt_cache_options'", ask(prompt_cache_options={"mode": "explicit"})),
    ("O13", "'input[0].content[0].prompt_cache_breakpoint'", ask(say([part(**POINT)]))),
    ("O13", "'input[2].output[0].prompt_cache_breakpoint'", ask(say(), made(), answer(output=[part(**POINT)]))),
    ("unknown", "Unknown parameter: 'foo'", ask(foo=1)),
    ("schema", "Missing required parameter: 'model'", without("model")),
    ("schema", "Missing required parameter: 'input'", without("input")),
    ("schema", "Missing required parameter: 'input'", ask() | {"input": []}),
    ("schema", "expected a decimal or null, but got a string", ask(temperature="x")),
    ("schema", "Invalid value: 'robot'", ask(say(role="robot"))),
    ("schema", "expected a string", ask(say(), made(arguments={}), answer())),
    ("window", "exceeds the context window", ask("x" * 4_190_308) | {"input": "x" * 4_190_308}),
    *(("unsimulated", f"not simulate '{name}", ask(**{name: value})) for name, value in (
        ("background", True), ("conversation", "conv_1"), ("prompt", {"id": "p"}), ("truncation", "auto"),
        ("context_management", [{"type": "compaction"}]),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "fragment", "body"), BAD, ids=[f"{rule} {what}" for rule, what, _ in BAD])
def test_a_bad_body_breaks_its_rule_and_no_other(rule: str, fragment: str, body: dict[str, Any]):
    got = send(body)
    assert got.rules == [rule]
    assert fragment in got.json["error"]["message"]
    assert got.reply.status == (501 if rule == "unsimulated" else 404 if fragment.startswith("Item with") else 400)


def test_every_rule_of_the_endpoint_is_broken_at_least_once():
    elsewhere = {"R2", "R7"}
    assert {rule for rule, _, _ in BAD} | elsewhere >= {f"R{number}" for number in range(1, 9)}
    assert set(UNSIMULATED) == {"background", "conversation", "prompt", "context_management"}


LEGAL: list[dict[str, Any]] = [
    ask(),
    ask({"role": "user", "content": "without a type"}),
    ask(say("s", "system"), say("d", "developer"), say([part(), {"type": "input_image", "detail": "low",
                                                                 "image_url": "https://there/x.png"}])),
    ask(say(), made(), made("call_2"), answer("call_2"), answer(), say()),
    ask(say(), made(), say("so", "assistant"), answer(output=[part()]), say()),
    ask(say(), {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "free"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "42"}),
    ask(say([{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,"}])),
    ask(tools=[function(), {"type": "custom", "name": "g"}], tool_choice="required", parallel_tool_calls=False),
    ask(tools=[function()], tool_choice={"type": "function", "name": "f"}),
    ask(tools=[function()], tool_choice={"type": "allowed_tools", "mode": "required", "tools": []}),
    ask(tools=[function(strict=True, parameters=OBJECT)], tool_choice="none"),
    ask(temperature=2, top_p=0, metadata={"k": "v"}, max_output_tokens=16, truncation="disabled"),
    ask(model=REASONS, temperature=1, reasoning={"effort": "high", "summary": "auto"}, include=[ENCRYPTED]),
    ask(text=formatted(OBJECT | {"properties": {"x": {"$ref": "#"}}})),
    ask(text={"format": {"type": "text"}, "verbosity": "low"}, stream=True,
        stream_options={"include_obfuscation": False}),
    ask(say([part(prompt_cache_breakpoint={"mode": "explicit", "ttl": "12h"})]), model=MARKS,
        prompt_cache_options={"mode": "explicit", "ttl": "30m"}, prompt_cache_key="k"),
    ask(say(), {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search",
                                                                                          "query": "x"}}, say()),
]  # fmt: skip


@pytest.mark.parametrize("body", LEGAL, ids=lambda body: json.dumps(body)[:60])
def test_a_legal_body_breaks_no_rule(body: dict[str, Any]):
    got = send(body)
    assert (got.exchange.violations, got.reply.status) == ((), 200)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (ask(foo=1), "unknown_parameter", "foo"),
        (without("model"), "missing_required_parameter", "model"),
        (ask(temperature="x"), "invalid_type", "temperature"),
        (ask(say(role="robot")), "invalid_value", "input[0].role"),
        (ask(max_output_tokens=1), "integer_below_min_value", "max_output_tokens"),
        (ask(tools=[function("x" * 65)]), "string_above_max_length", "tools[0].name"),
        (ask(tools=[function(strict=True)]), "invalid_function_parameters", "tools[0].parameters"),
        (ask(text=formatted({})), "invalid_json_schema", "text.format"),
        (ask(previous_response_id="resp_1"), "previous_response_not_found", "previous_response_id"),
        (ask({"type": "item_reference", "id": "rs_1"}), "item_not_found", "input"),
        (ask("x" * 4_190_308) | {"input": "x" * 4_190_308}, "context_length_exceeded", "input"),
    ],
)
def test_an_error_has_the_vendors_code_and_says_where(body: dict[str, Any], code: str, param: str):
    error = send(body).json["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)


@pytest.mark.parametrize(
    ("field", "chars", "rules"),
    [
        ("text", 10_485_760, ["window"]),
        ("text", 10_485_761, ["R7"]),
        ("output", 10_485_760, ["window"]),
        ("output", 10_485_761, ["R7"]),
        ("image_url", 20_971_520, []),
        ("image_url", 20_971_521, ["R7"]),
        ("file_data", 73_400_321, ["R7"]),
    ],
)
def test_texts_images_and_files_have_their_limits(field: str, chars: int, rules: list[str]):
    assert send(ask(*holding(field, "x" * chars))).rules == rules


def test_what_is_too_large_has_its_code():
    got = send(ask(*holding("output", "x" * 10_485_761)))
    assert got.json["error"]["code"] == "string_above_max_length"


def holding(field: str, value: str) -> list[Any]:
    match field:
        case "text":
            return [say([part(value)])]
        case "image_url":
            return [say([{"type": "input_image", "detail": "auto", "image_url": value}])]
        case "file_data":
            return [say(), made(), answer(output=[{"type": "input_file", "file_data": value}])]
        case _:
            return [say(), made(), answer(output=value)]


@pytest.mark.parametrize("body", [b"{", [], {"model": "gone", "input": "hi"}])
def test_what_is_no_request_is_refused(body: Any):
    assert send(body).reply.status in (400, 404)


def test_what_has_no_shape_is_refused_even_if_its_rule_is_skipped():
    got = send(ask(tools=[{"type": "function", "name": "f"}]), skip=frozenset({"R6"}))
    assert (got.rules, got.reply.status) == ([], 400)


def test_a_field_that_is_not_known_may_be_let_pass():
    got = send(ask(foo=1), skip=frozenset({"unknown"}))
    assert (got.warnings, got.reply.status) == (["unknown"], 200)


def test_broken_pairs_may_be_let_pass():
    got = send(ask(say(), answer(), {"type": "item_reference", "id": "x"}), skip=frozenset({"R1", "R3"}))
    assert (got.warnings, got.reply.status) == (["R3", "R1"], 200)


# --- reasoning, by what the server itself said


class Talk:
    """A conversation whose newest reply thought, spoke and called twice."""

    def __init__(self, *, store: bool = False, encrypted: bool = True, model: str = REASONS) -> None:
        said = wire.turn(wire.think("hm"), "so", wire.call("f", call_id="call_1"), wire.call("f", call_id="call_2"))
        self.desk = Desk(wire.Script(said, last="ok"))
        include = [ENCRYPTED] if encrypted else []
        self.body = {"model": model, "store": store, "include": include, "reasoning": {"summary": "auto"}}
        first = self.desk.send("/v1/responses", {**self.body, "input": [say()]}, OPENAI)
        self.response_id = first.json["id"]
        self.said: list[dict[str, Any]] = first.json["output"]

    def replay(self, *items: Any, headers: Any = OPENAI, **more: Any) -> Got:
        given = [say(), *items, answer("call_1"), answer("call_2")]
        return self.desk.send("/v1/responses", {**self.body, "input": given, **more}, headers)

    def go_on(self, *items: Any, **more: Any) -> Got:
        body = {**self.body, "previous_response_id": self.response_id, "input": list(items), **more}
        return self.desk.send("/v1/responses", body, OPENAI)


def bare(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("id", "status")}


@pytest.mark.parametrize("store", [True, False])
def test_what_was_said_may_come_back_as_it_was(store: bool):
    talk = Talk(store=store)
    got = talk.replay(*talk.said)
    assert (got.exchange.violations, got.reply.status) == ((), 200)


def test_ids_of_what_was_said_may_be_left_out():
    talk = Talk()
    thought, said, *calls = talk.said
    plain = say(said["content"][0]["text"], "assistant")
    assert talk.replay(thought, plain, *map(bare, calls)).exchange.violations == ()


def test_calls_may_get_other_ids():
    talk = Talk()
    thought, said, *_ = talk.said
    assert talk.replay(thought, bare(said) | {"content": "so"}, made("call_1"), made("call_2")).rules == []


def test_all_reasoning_may_be_left_out_with_all_ids():
    talk = Talk()
    assert talk.replay(*(bare(item) for item in talk.said[2:])).exchange.violations == ()


@pytest.mark.parametrize("gone", [[0], [1]])
def test_reasoning_and_what_came_of_it_stay_together(gone: list[int]):
    talk = Talk()
    got = talk.replay(*(item for place, item in enumerate(talk.said) if place not in gone))
    assert got.rules == ["R2"]
    assert ("required 'reasoning' item" if gone == [0] else "required following item") in got.json["error"]["message"]


def test_reasoning_at_the_very_end_lacks_what_came_of_it():
    talk = Talk()
    body = {**talk.body, "input": [say(), talk.said[0]]}
    assert talk.desk.send("/v1/responses", body, OPENAI).rules == ["R2"]


def test_a_conversation_does_not_begin_with_what_came_of_reasoning():
    talk = Talk()
    body = {**talk.body, "input": [*talk.said[1:], answer("call_1"), answer("call_2")]}
    assert talk.desk.send("/v1/responses", body, OPENAI).rules == ["R2"]


def test_reasoning_behind_its_call_does_not_lead_it():
    talk = Talk()
    thought, said, first, second = talk.said
    assert talk.replay(said, first, thought, second).rules == ["R2"]


def test_nothing_may_stand_between_reasoning_and_what_came_of_it():
    talk = Talk()
    thought, said, *calls = talk.said
    assert talk.replay(thought, said, say("psst", "developer"), *calls).rules == ["R2"]


def test_a_changed_follower_is_none():
    talk = Talk()
    thought, _, *calls = talk.said
    assert talk.replay(thought, say("something else", "assistant"), *map(bare, calls)).rules == ["R2"]


def test_several_reasoning_items_may_follow_each_other():
    desk = Desk(wire.Script((wire.think("a"), wire.think("b"), "so"), last="ok"))
    body = {"model": REASONS, "store": False, "include": [ENCRYPTED]}
    said = desk.send("/v1/responses", {**body, "input": [say()]}, OPENAI).json["output"]
    assert desk.send("/v1/responses", {**body, "input": [say(), *said, say()]}, OPENAI).exchange.violations == ()


def test_a_refusal_comes_back_behind_its_reasoning():
    desk = Desk(wire.Script(wire.turn(wire.think("a"), "no", stop="refusal"), last="ok"))
    body = {"model": REASONS, "store": False, "include": [ENCRYPTED]}
    said = desk.send("/v1/responses", {**body, "input": [say()]}, OPENAI).json["output"]
    assert desk.send("/v1/responses", {**body, "input": [say(), *said, say()]}, OPENAI).exchange.violations == ()


def test_what_a_vendor_has_of_its_own_may_follow_reasoning():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": ""}}
    desk = Desk(wire.Script((wire.think("a"), wire.Raw(search)), last="ok"))
    body = {"model": REASONS, "store": False, "include": [ENCRYPTED]}
    said = desk.send("/v1/responses", {**body, "input": [say()]}, OPENAI).json["output"]
    got = desk.send("/v1/responses", {**body, "input": [say(), *said, say()]}, OPENAI)
    assert (said[1], got.exchange.violations) == (search, ())


def test_a_call_right_behind_its_reasoning_may_get_another_id_and_no_other_arguments():
    desk = Desk(wire.Script((wire.think("a"), wire.call("f", call_id="call_1")), last="ok"))
    body = {"model": REASONS, "store": False, "include": [ENCRYPTED]}
    thought, _ = desk.send("/v1/responses", {**body, "input": [say()]}, OPENAI).json["output"]
    same, other = ([say(), thought, made("mine", arguments=text), answer("mine")] for text in ("{}", '{"x":1}'))
    assert desk.send("/v1/responses", {**body, "input": same}, OPENAI).exchange.violations == ()
    assert desk.send("/v1/responses", {**body, "input": other}, OPENAI).rules == ["R2"]


def test_what_a_vendor_has_of_its_own_may_not_change_behind_reasoning():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": ""}}
    desk = Desk(wire.Script((wire.think("a"), wire.Raw(search)), last="ok"))
    body = {"model": REASONS, "store": False, "include": [ENCRYPTED]}
    thought, _ = desk.send("/v1/responses", {**body, "input": [say()]}, OPENAI).json["output"]
    changed = {**search, "action": {"type": "search", "query": "other"}}
    assert desk.send("/v1/responses", {**body, "input": [say(), thought, changed, say()]}, OPENAI).rules == ["R2"]


def test_stored_reasoning_leads_what_has_no_id():
    talk = Talk(store=True, encrypted=False)
    thought, _, *calls = talk.said
    assert talk.replay(thought, say("so", "assistant"), *map(bare, calls)).exchange.violations == ()


def test_an_item_of_another_response_does_not_stand_between_reasoning_and_what_came_of_it():
    talk = Talk(store=True)
    other = talk.desk.send("/v1/responses", {**talk.body, "input": [say()]}, OPENAI).json["output"]
    assert talk.replay(*talk.said[:2], *other, *talk.said[2:]).rules == ["R2"]


def test_an_id_that_was_never_given_is_just_not_found():
    got = send(ask({"type": "item_reference", "id": "rs_1"}))
    assert got.json["error"]["message"] == "Item with id 'rs_1' not found."


def test_stored_reasoning_does_not_lead_what_the_user_says():
    talk = Talk(store=True, encrypted=False)
    body = {**talk.body, "input": [say(), talk.said[0], say("more")]}
    assert talk.desk.send("/v1/responses", body, OPENAI).rules == ["R2"]


@pytest.mark.parametrize("change", [{"summary": []}, {"id": "rs_other"}, {"encrypted_content": "AAAA"}])
def test_reasoning_comes_back_unchanged(change: dict[str, Any]):
    talk = Talk()
    thought, *rest = talk.said
    got = talk.replay(thought | change, *rest)
    assert (got.rules, got.json["error"]["code"]) == (["R3"], "invalid_encrypted_content")


def test_one_changed_bit_is_noticed():
    talk = Talk()
    thought, *rest = talk.said
    raw = bytearray(base64.b64decode(thought["encrypted_content"]))
    raw[40] ^= 1
    assert talk.replay(thought | {"encrypted_content": base64.b64encode(raw).decode()}, *rest).rules == ["R3"]


def test_what_was_not_stored_has_to_come_back_encrypted():
    talk = Talk(encrypted=False)
    got = talk.replay(*talk.said)
    assert (got.rules, got.reply.status) == (["R3"], 404)
    assert "not persisted when `store` is set to false" in got.json["error"]["message"]


def test_what_was_stored_may_come_back_without():
    talk = Talk(store=True, encrypted=False)
    assert talk.replay(*talk.said).exchange.violations == ()


def test_stored_reasoning_leads_only_what_came_of_it():
    talk = Talk(store=True, encrypted=False)
    other = talk.desk.send("/v1/responses", {**talk.body, "input": [say()]}, OPENAI).json["output"]
    assert talk.replay(talk.said[0], *other, *talk.said[1:]).rules == ["R2"]


def test_reasoning_of_another_model_is_withheld_with_a_warning():
    talk = Talk()
    got = talk.replay(*talk.said, model=MARKS)
    removed = got.json["input_transformations"]
    assert (got.rules, got.warnings) == ([], ["R3"])
    assert removed == [{"id": talk.said[0]["id"], "type": "reasoning", "action": "removed", "reason": "model_mismatch"}]


def test_reasoning_of_another_organisation_is_withheld_with_a_warning():
    talk = Talk()
    got = talk.replay(*talk.said, headers={"authorization": "Bearer other"})
    assert got.json["input_transformations"][0]["reason"] == "organization_mismatch"


def test_withheld_reasoning_is_not_read():
    talk = Talk()
    here, there = (talk.replay(*talk.said, model=model).json["usage"]["input_tokens"] for model in (REASONS, MARKS))
    assert here - there == 1


def test_reasoning_of_earlier_turns_may_be_left_unread():
    talk = Talk()
    items = [*talk.said, answer("call_1"), answer("call_2"), say("more")]
    body = {**talk.body, "input": [say(), *items]}
    all_turns = talk.desk.send("/v1/responses", body, OPENAI).json["usage"]["input_tokens"]
    body["reasoning"] = {"context": "current_turn"}
    assert all_turns - talk.desk.send("/v1/responses", body, OPENAI).json["usage"]["input_tokens"] == 1


# --- what the server keeps


def test_a_stored_response_is_gone_on_from():
    talk = Talk(store=True)
    got = talk.go_on(answer("call_1"), answer("call_2"))
    assert got.exchange.violations == ()
    assert [said.role for said in got.exchange.ask.said] == ["user", "assistant", "user", "user"]  # type: ignore[union-attr] # it was asked
    assert [result.name for result in got.exchange.ask.results] == ["f", "f"]  # type: ignore[union-attr] # see above


def test_what_was_said_before_counts_as_input():
    talk = Talk(store=True)
    whole = talk.replay(*talk.said).json["usage"]["input_tokens"]
    assert talk.go_on(answer("call_1"), answer("call_2")).json["usage"]["input_tokens"] == whole


def test_a_response_that_is_gone_on_from_leaves_no_call_open():
    talk = Talk(store=True)
    assert talk.go_on(answer("call_1")).rules == ["R1"]


def test_a_response_may_be_gone_on_from_with_nothing_new():
    desk = Desk()
    first = desk.send("/v1/responses", ask(), OPENAI).json["id"]
    assert desk.send("/v1/responses", {"model": PLAIN, "previous_response_id": first}, OPENAI).reply.status == 200


def test_a_response_that_was_not_stored_is_not_found():
    talk = Talk(store=False)
    got = talk.go_on(answer("call_1"), answer("call_2"))
    assert (got.rules, got.json["error"]["code"]) == (["R4"], "previous_response_not_found")


def test_stored_items_may_be_referred_to():
    talk = Talk(store=True)
    got = talk.replay(*({"type": "item_reference", "id": item["id"]} for item in talk.said))
    assert (got.exchange.violations, got.reply.status) == ((), 200)
    assert len(got.exchange.ask.calls) == 2  # type: ignore[union-attr] # it was asked


def test_a_reference_needs_no_type():
    talk = Talk(store=True)
    assert talk.replay(*({"id": item["id"]} for item in talk.said)).exchange.violations == ()


def test_items_that_were_not_stored_cannot_be_referred_to():
    talk = Talk()
    assert talk.replay(*({"type": "item_reference", "id": item["id"]} for item in talk.said)).rules == ["R3"]


# --- the transport that keeps nothing


CODEX_BAD: list[tuple[str, dict[str, Any]]] = [
    ("Store must be set to false", codex(store=None)),
    ("Store must be set to false", codex(store=True)),
    ("Stream must be set to true", codex(stream=None)),
    ("Instructions are required", codex(instructions=None)),
    ("prompt_cache_breakpoint", codex(say([part(**POINT)]))),
    ("Unsupported parameter: max_output_tokens", codex(max_output_tokens=100)),
    ("Unsupported parameter: temperature", codex(temperature=1)),
    ("Unsupported parameter: metadata", codex(metadata={"k": "v"})),
    ("Unsupported parameter: previous_response_id", codex(previous_response_id="resp_1")),
    ("Unsupported parameter: prompt_cache_options", codex(prompt_cache_options={"mode": "explicit"})),
]


@pytest.mark.parametrize(("message", "body"), CODEX_BAD, ids=[message for message, _ in CODEX_BAD])
def test_the_transport_that_keeps_nothing_refuses_in_its_own_shape(message: str, body: dict[str, Any]):
    got = send(body, CODEX)
    assert (got.rules, got.reply.status) == (["codex"], 400)
    assert message in got.json["detail"]


def test_its_list_of_what_it_refuses_is_complete():
    assert {"max_output_tokens", "metadata", "temperature", "previous_response_id"} <= set(CODEX_REFUSES)


def test_it_takes_a_session_and_a_cache_key():
    got = send(codex(say(), made(), answer(), prompt_cache_key="k"), CODEX)
    assert (got.exchange.violations, got.exchange.endpoint) == ((), "responses.codex")


def test_other_rules_hold_there_too():
    got = send(codex(say(), made()), CODEX)
    assert (got.rules, got.json["error"]["code"]) == (["R1"], None)


def test_its_ids_of_calls_are_longer_than_it_takes_back():
    desk = Desk(wire.Script(wire.call("f"), last="ok"))
    item = desk.send(CODEX, codex(say()), OPENAI).events[-1]["response"]["output"][0]
    assert len(item["call_id"]) == 70
    assert desk.send(CODEX, codex(say(), bare(item), answer(item["call_id"])), OPENAI).rules == ["R1"]
    short = item["call_id"][:64]
    assert desk.send(CODEX, codex(say(), bare(item) | {"call_id": short}, answer(short)), OPENAI).rules == []


def test_nothing_that_it_said_can_be_referred_to():
    desk = Desk(wire.Script(wire.call("f", call_id="call_1"), last="ok"))
    item = desk.send(CODEX, codex(say()), OPENAI).events[-1]["response"]["output"][0]
    got = desk.send(CODEX, codex(say(), {"type": "item_reference", "id": item["id"]}, answer()), OPENAI)
    assert got.rules == ["R3"]
