"""The rules of each vendor that make a request legal, one by one: what a run does to break it, and what is sent then.

`RULES` names tests for each of them, `CASES` for what went wrong at others; those that stand nowhere else are here.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import test_gemini
import test_messages
import test_responses
from providers_parts import PNG, ask, assistant, block, request, result, tool, tools, user

from shoal.errors import ProviderRefused
from shoal.providers import (
    SERVERS,
    Message,
    OutputFormat,
    Request,
    Text,
    ToolCall,
    blob,
    chat_encoder,
    shipped_models,
    shipped_profile,
)
from shoal.providers._breakpoints import MarkerRules
from shoal.providers._codex import SERVER as CODEX
from shoal.providers._gemini import GeminiEncoder
from shoal.providers._messages import MessagesEncoder
from shoal.providers._responses import OPENAI_SERVER, ResponsesEncoder
from shoal.providers._responses_items import MAX_TEXT_CHARS
from shoal.providers._sent import Sent

RULES: Mapping[str, tuple[str, ...]] = {
    # Anthropic's Messages
    "A1": ("test_a1_a_request_of_nothing_still_asks_something_and_leaves_room_for_a_reply",),
    "A2": ("test_a2_a_user_speaks_first",),
    "A3": ("test_a3_every_call_is_answered_in_the_next_message",),
    "A4": ("test_a4_a_result_that_nobody_asked_for_is_not_sent",),
    "A5": ("test_results_of_parallel_calls_stand_in_one_message_before_what_the_user_says",),
    "A6": ("test_a6_what_is_said_stands_in_front_of_the_calls",),
    "A7": (
        "test_names_are_mapped_and_lead_back",
        "test_a_schema_that_describes_no_object_takes_any",
        "test_ids_that_cannot_be_sent_are_mapped",
        "test_a7_a_name_is_offered_once",
    ),
    "A8": ("test_a_text_of_white_space_is_no_block", "test_a_result_that_says_nothing_has_no_content"),
    "A9": ("test_a9_no_more_markers_than_four_and_the_longer_lifetime_first",),
    "A10": (
        "test_thoughts_go_back_in_their_places_with_the_vendors_ids",
        "test_what_is_sent_back_has_the_bytes_that_came",
    ),
    "A11": ("test_a11_nothing_in_front_of_a_thought_changes_while_a_conversation_grows",),
    "A12": (
        "test_a_system_message_in_another_place_is_a_users",
        "test_a_model_that_takes_no_system_message_gets_a_users",
    ),
    "A13": ("test_a_conversation_that_an_assistant_ends_is_closed_since_prefill_is_refused",),
    "A14": ("test_thinking_is_set_as_the_model_takes_it", "test_no_high_effort_without_thinking"),
    "A15": (
        "test_no_tool_is_forced_where_the_model_takes_no_force",
        "test_a_choice_without_tools_or_of_an_unknown_tool_is_left_out",
    ),
    "A16": ("test_no_sampling_where_the_model_takes_none", "test_no_sampling_from_the_version_on_that_refuses_it"),
    "A17": ("test_the_form_of_a_reply_is_a_closed_schema", "test_a_schema_that_leaves_too_much_open_is_refused"),
    "A18": (
        "test_an_image_that_is_too_large_is_named",
        "test_too_many_images_are_refused_here",
        "test_many_large_images_are_refused_here",
        "test_a_request_above_the_vendors_size_is_refused_here",
    ),
    "A19": (
        "test_a19_a_document_with_too_many_pages_is_named_only",
        "test_a_locked_document_has_a_type_of_its_own_that_nobody_takes",
    ),
    "A20": ("test_an_overflow_is_known_by_its_wording",),
    "A21": ("test_a_beta_that_a_request_needs_is_asked_for_with_it",),
    # Chat Completions
    "O1": ("test_a_request_without_a_conversation_has_a_user_message",),
    "O2": ("test_o2_a_result_without_its_call_is_not_sent",),
    "O3": ("test_o3_each_call_is_answered_before_anything_else_is_said",),
    "O4": ("test_o4_arguments_are_the_source_of_an_object",),
    "O5": ("test_o5_a_turn_that_only_calls_has_no_content_and_one_that_does_nothing_is_not_sent",),
    "O6": ("test_o6_images_of_results_stand_behind_all_results",),
    "O7": (
        "test_tools_are_sent_with_names_that_the_vendor_takes",
        "test_more_tools_than_the_server_takes_are_refused",
        "test_o7_ids_are_as_long_as_the_server_takes_on_call_and_result_alike",
    ),
    "O8": ("test_o8_nothing_is_said_of_tools_where_none_are_offered",),
    "O9": ("test_what_a_strict_server_would_refuse_is_not_sent",),
    "O10": ("test_o10_a_model_that_reasons_is_sent_no_sampling_and_no_stops",),
    "O11": (
        "test_what_a_strict_server_would_refuse_is_not_sent",
        "test_o11_json_is_asked_for_only_where_the_prompt_says_so",
    ),
    "O12": ("test_a_request_that_does_not_stream_says_nothing_of_streams",),
    "O13": ("test_o13_markers_and_what_is_said_of_them_are_for_models_that_have_them",),
    # Responses
    "R1": ("test_ids_above_64_characters_are_mapped_on_call_and_result_alike", "test_a_call_without_a_result_gets_one"),
    "R2": (
        "test_reasoning_goes_back_in_its_place_without_ids_that_nobody_stored",
        "test_r2_reasoning_of_a_turn_that_never_ended_is_not_sent",
    ),
    "R3": ("test_nothing_is_stored_and_reasoning_comes_encrypted", "test_encrypted_reasoning_has_the_bytes_that_came"),
    "R4": ("test_an_option_that_replaces_the_request_or_its_statelessness_is_refused",),
    "R5": ("test_the_shortest_reply_that_is_taken_is_asked_for",),
    "R6": ("test_tools_are_flat",),
    "R7": ("test_a_part_that_is_not_taken_is_named", "test_r7_a_text_longer_than_is_taken_comes_in_pieces"),
    "R8": ("test_the_form_of_a_reply_is_strict_where_its_schema_is",),
    # Gemini
    "G1": ("test_g1_a_turn_that_says_nothing_is_no_content",),
    "G2": ("test_results_of_parallel_calls_stand_in_one_content_of_their_own", "test_g2_as_many_results_as_calls"),
    "G3": (
        "test_an_id_goes_back_where_the_vendor_gave_one_and_nowhere_else",
        "test_a_failed_result_is_an_error_and_says_something",
    ),
    "G4": ("test_each_signature_goes_back_to_its_part",),
    "G5": ("test_the_first_call_of_a_turn_without_its_signature_has_the_placeholder",),
    "G6": ("test_names_begin_with_a_letter_and_lead_back",),
    "G7": ("test_a_tool_without_parameters_sends_none", "test_g7_a_schema_travels_as_json_schema"),
    "G8": ("test_thinking_is_set_in_one_way", "test_tools_are_forced_as_far_as_the_model_takes_it"),
    "G9": ("test_the_form_of_a_reply_goes_with_tools_on_newer_models_only",),
    "G10": (
        "test_a_request_with_parts_above_the_inline_size_is_refused_here",
        "test_what_the_model_takes_travels_inline",
    ),
    # What holds for all
    "ids": (
        "test_ids_are_legal_different_and_the_same_each_time",
        "test_ids_of_any_shape_lead_from_call_to_result_on_every_wire",
    ),
    "closed turns": ("test_every_call_has_one_result_whatever_the_messages",),
    "call order": ("test_results_stand_in_call_order_on_every_wire",),
    "no split": ("test_a_call_cut_off_from_its_result_over_three_segments_finds_it",),
    "empty turns": ("test_an_empty_turn_of_an_assistant_is_on_no_wire",),
    "opaque state": ("test_what_one_vendor_thought_is_on_no_other_wire",),
    "one serialisation": ("test_a_request_has_the_same_bytes_each_time_on_every_wire",),
    "tool names": ("test_names_of_tools_lead_back_on_every_wire",),
}

CASES: Mapping[str, tuple[str, ...]] = {
    # Streams of calls
    "deltas without a number": ("test_without_an_index_a_new_id_is_a_new_call",),
    "numbered deltas beside others": ("test_indexed_and_other_fragments_mix",),
    "a number that is null": ("test_a_null_index_is_no_index",),
    "one number for all calls": (
        "test_calls_that_are_all_numbered_zero_are_told_apart_by_their_ids",
        "test_calls_are_told_apart_whatever_a_server_calls_them",
    ),
    "a call without arguments": (
        "test_no_arguments_are_an_empty_object",
        "test_a_reply_of_every_kind_of_block_is_read",
    ),
    "malformed arguments": (
        "test_arguments_that_are_malformed_stay_for_the_model_to_be_told",
        "test_malformed_arguments_stay_as_the_model_wrote_them",
    ),
    "empty arguments in the history": ("test_o4_arguments_are_the_source_of_an_object",),
    "calls under another finish reason": (
        "test_a_reply_with_calls_finishes_with_them_whatever_the_vendor_says",
        "test_calls_are_calls_whatever_the_stop_reason_says",
    ),
    # Events and connections
    "line ends of every kind, split anywhere": (
        "test_lines_end_at_lf_crlf_and_cr",
        "test_an_lf_in_the_next_read_belongs_to_the_cr_before_it",
        "test_the_events_do_not_depend_on_how_the_bytes_are_cut",
        "test_a_reply_does_not_depend_on_how_its_bytes_are_cut",
        "test_what_is_read_does_not_depend_on_how_it_travels",
    ),
    "no space behind the colon": ("test_only_one_space_behind_the_colon_is_dropped",),
    "line separators of Unicode in the data": ("test_other_line_separators_of_unicode_stay_in_the_data",),
    "comments and pings": ("test_comments_and_unknown_fields_are_no_events", "test_pings_keep_a_silent_stream_alive"),
    "a byte order mark": ("test_a_byte_order_mark_in_front_of_the_stream_is_dropped",),
    "an overload behind status 200": (
        "test_an_error_in_the_stream_is_raised_by_its_type",
        "test_an_overload_within_a_stream_is_a_busy_vendor",
    ),
    "a stream that ends early": (
        "test_a_stream_that_breaks_off_is_no_reply",
        "test_a_stream_without_its_end_is_cut",
        "test_a_cut_stream_is_asked_again_and_its_calls_are_not_in_the_reply",
        "test_deltas_of_a_cut_stream_are_void_once_the_retry_is_told",
        "test_a_reply_that_is_cut_each_time_is_partial",
    ),
    "a start that got lost": ("test_a_start_that_got_lost_is_made_up",),
    # Counters
    "counters that are said again": ("test_a_later_counter_replaces_an_earlier_one",),
    "counters that overlap": ("test_counters_become_disjoint_buckets", "test_counters_are_split_into_disjoint_buckets"),
    # Transcripts
    "a pair that was cut": ("test_a_call_cut_off_from_its_result_over_three_segments_finds_it",),
    "ids that are too long": ("test_o7_ids_are_as_long_as_the_server_takes_on_call_and_result_alike",),
    "ids of nine characters": ("test_ids_have_nine_characters_where_the_server_wants_them",),
    "names of other protocols": ("test_names_of_tools_lead_back_on_every_wire",),
    # What a model thought
    "reasoning without a follower": ("test_reasoning_without_a_follower_is_left_out",),
    "a call without its reasoning": ("test_reasoning_goes_back_in_its_place_without_ids_that_nobody_stored",),
    "signatures in a stream": ("test_texts_with_and_without_a_signature_are_not_merged",),
    "a gateway that returns no signatures": (
        "test_the_first_call_of_a_turn_without_its_signature_has_the_placeholder",
    ),
    "a thought in front of the call": ("test_a_reply_of_every_kind_of_part_is_read",),
    # Gateways
    "markers through a gateway": ("test_a_gateway_to_claude_is_sent_no_more_markers_than_claude_takes",),
    "an error within an error": ("test_a_nested_error_of_a_gateway_decides_too",),
    "results that do not match their calls": ("test_g2_as_many_results_as_calls",),
}
"""What went wrong at others, as their public reports tell."""

MODELS: Mapping[str, str] = {
    "anthropic": "claude-opus-5-5",
    "openai": "gpt-6.1-sol",
    "openai-chat": "gpt-6.1-sol",
    "codex": "gpt-6.1-sol",
    "google": "gemini-4-argon",
}
everywhere = pytest.mark.parametrize("vendor", MODELS)


def test_every_rule_has_its_tests():
    here = Path(__file__).parent
    written = {
        node.name
        for path in here.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name for names in (*RULES.values(), *CASES.values()) for name in names} - written == set()


def test_no_rule_is_left_out():
    counted = {"A": 21, "O": 13, "R": 8, "G": 10}
    wanted = {f"{letter}{number}" for letter, most in counted.items() for number in range(1, most + 1)}
    assert wanted - RULES.keys() == set()


# --- Anthropic's Messages


def test_a1_a_request_of_nothing_still_asks_something_and_leaves_room_for_a_reply():
    made = test_messages.body(request(max_tokens=0))
    assert made["max_tokens"] == 1
    assert made["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Begin."}]}]


def test_a2_a_user_speaks_first():
    assert test_messages.roles(request(assistant("a"), user("b"))) == ["user", "assistant", "user"]


def test_a3_every_call_is_answered_in_the_next_message():
    crashed = request(user("x"), assistant("", ask("a"), ask("b")), result("b"), user("and?"))
    answers = test_messages.said(crashed)[2]["content"]
    assert [part.get("tool_use_id") for part in answers] == ["a", "b", None]
    assert answers[0]["is_error"] is True


@pytest.mark.parametrize("stray", [result("gone"), result("a", "again")])
def test_a4_a_result_that_nobody_asked_for_is_not_sent(stray: Message):
    listed = test_messages.said(request(user("x"), assistant("", ask("a")), result("a"), stray, user("y")))
    assert [part["type"] for part in listed[2]["content"]] == ["tool_result", "text"]


def test_a6_what_is_said_stands_in_front_of_the_calls():
    listed = test_messages.said(request(user("x"), assistant("so", ask("a"), ask("b")), result("a"), result("b")))
    assert [part["type"] for part in listed[1]["content"]] == ["text", "tool_use", "tool_use"]


def test_a7_a_name_is_offered_once():
    offered = tools(tool("look"), tool("look", description="Again."))
    assert len(test_messages.body(request(user("x"), tools=offered))["tools"]) == 1


def test_a9_no_more_markers_than_four_and_the_longer_lifetime_first():
    said = [block(f"{n} " + "x" * 9000, volatility=kind) for n, kind in enumerate(("stable", "grows", "rewritten"))]
    calls = [ask(f"a{n}") for n in range(30)]
    turns = [
        user("y" * 9000),
        assistant("z" * 9000),
        user("y"),
        assistant("", *calls),
        *[result(c.call_id) for c in calls],
    ]
    asked = request(*turns, system=tuple(said), tools=tools(tool()))
    made = test_messages.body(asked, rules=MarkerRules(long_stable=True))
    test_messages.assert_markers(made)
    assert str(made).count("cache_control") == 4


def test_a11_nothing_in_front_of_a_thought_changes_while_a_conversation_grows():
    turns: list[Message] = [user("x")]
    bodies: list[Any] = []
    for number in range(12):
        thought = {**test_messages.THOUGHT, "thinking": str(number)}
        turns += [
            assistant("", ask(f"a{number}"), state=test_messages.state(thought, ["call", 0])),
            result(f"a{number}", "y" * 4000),
        ]
        grown = request(
            *turns, system=(block("s" * 9000, volatility="stable"),), tools=tools(tool()), max_tokens=number + 1
        )
        bodies.append(_unmarked(test_messages.body(grown)))
    for before, after in itertools.pairwise(bodies):
        assert (after["tools"], after["system"]) == (before["tools"], before["system"])
        assert after["messages"][: len(before["messages"])] == before["messages"]


def _unmarked(part: Any) -> Any:
    if isinstance(part, list):
        return [_unmarked(one) for one in part]
    if isinstance(part, dict):
        return {name: _unmarked(value) for name, value in part.items() if name != "cache_control"}
    return part


@pytest.mark.parametrize(
    ("model", "pages", "kinds"),
    [
        ("claude-opus-5-5", 600, ["text", "document"]),
        ("claude-opus-5-5", 601, ["text"]),
        ("claude-haiku-4-5", 100, ["text", "document"]),
        ("claude-haiku-4-5", 101, ["text"]),
    ],
)
def test_a19_a_document_with_too_many_pages_is_named_only(model: str, pages: int, kinds: list[str]):
    shown = Message("user", blobs=(blob(b"%PDF-1.7" + b" /Type /Page" * pages, "long.pdf"),))
    [message] = test_messages.said(request(shown), shipped_profile(model))
    assert [part["type"] for part in message["content"]] == kinds


# --- Chat Completions


def chat(asked: Request, server: str = "openai", model: str = "gpt-4.1") -> dict[str, Any]:
    profile = shipped_profile(model)
    encoder = chat_encoder(SERVERS[server], "p", model, profile)
    decoded: dict[str, Any] = json.loads(bytes(encoder.encode(asked, temperature=profile.temperature)))
    return decoded


def test_o2_a_result_without_its_call_is_not_sent():
    evicted = request(result("a"), user("x"), result("a"), assistant("", ask("b")), result("a"), result("b"))
    assert [message["role"] for message in chat(evicted)["messages"]] == ["user", "assistant", "tool"]


def test_o3_each_call_is_answered_before_anything_else_is_said():
    late = request(user("x"), assistant("", ask("a"), ask("b")), result("b"), user("y"), result("a", "late"))
    listed = chat(late)["messages"]
    assert [(m["role"], m.get("tool_call_id")) for m in listed[2:]] == [("tool", "a"), ("tool", "b"), ("user", None)]
    assert listed[2]["content"] == "late"


@pytest.mark.parametrize("broken", ["", "[1]", "{broken", "null", "NaN"])
def test_o4_arguments_are_the_source_of_an_object(broken: str):
    listed = chat(request(user("x"), assistant("", ask("a", arguments=broken)), result("a")))["messages"]
    assert listed[1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_o5_a_turn_that_only_calls_has_no_content_and_one_that_does_nothing_is_not_sent():
    listed = chat(request(user("x"), assistant(), assistant("", ask("a")), result("a")))["messages"]
    assert [(message["role"], message["content"]) for message in listed[:2]] == [("user", "x"), ("assistant", None)]


def test_o6_images_of_results_stand_behind_all_results():
    shown = replace_blobs(result("a"))
    listed = chat(request(user("x"), assistant("", ask("a"), ask("b")), shown, result("b")), model="gpt-5.4")[
        "messages"
    ]
    assert [message["role"] for message in listed[2:]] == ["tool", "tool", "user"]
    assert all(isinstance(message["content"], str) for message in listed[2:4])


def replace_blobs(message: Message) -> Message:
    return msgspec.structs.replace(message, blobs=(blob(PNG),))


@pytest.mark.parametrize(("server", "length"), [("openai", 40), ("mistral", 9), ("azure", 40)])
def test_o7_ids_are_as_long_as_the_server_takes_on_call_and_result_alike(server: str, length: int):
    long = "call_" + "x" * 70
    listed = chat(request(user("x"), assistant("", ask(long)), result(long)), server)["messages"]
    made = listed[1]["tool_calls"][0]["id"]
    assert listed[2]["tool_call_id"] == made
    assert 0 < len(made) <= length


def test_o8_nothing_is_said_of_tools_where_none_are_offered():
    made = chat(request(user("x"), options={"tool_choice": "auto", "parallel_tool_calls": False}))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & made.keys()


def test_o10_a_model_that_reasons_is_sent_no_sampling_and_no_stops():
    asked = request(user("x"), temperature=0.5, options={"top_p": 0.5, "stop": ["a"], "presence_penalty": 1, "seed": 3})
    assert chat(asked, model="gpt-5.4").keys() == {
        "max_completion_tokens", "messages", "model", "seed", "stream", "stream_options",
    }  # fmt: skip
    assert {"temperature", "stop"} <= chat(asked, model="gpt-4.1").keys()


def test_o11_json_is_asked_for_only_where_the_prompt_says_so():
    wanted = {"response_format": {"type": "json_object"}}
    with pytest.raises(ProviderRefused, match="say `JSON`"):
        chat(request(user("x"), options=wanted))
    for said in (request(user("As JSON."), options=wanted), request(user("x"), tail=Text.of("json"), options=wanted)):
        assert chat(said)["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(("model", "expected"), [("gpt-5.5", False), ("gpt-6.1-sol", True)])
def test_o13_markers_and_what_is_said_of_them_are_for_models_that_have_them(model: str, *, expected: bool):
    long = (block("s" * 9000, volatility="stable"), block("r" * 9000))
    options = {"prompt_cache_options": {"mode": "explicit"}}
    made = chat(request(user("x"), system=long, options=options), model=model)
    assert ("prompt_cache_options" in made) == expected
    assert ("prompt_cache_breakpoint" in json.dumps(made)) == expected


# --- Responses


def test_r2_reasoning_of_a_turn_that_never_ended_is_not_sent():
    cut = Message("assistant", (), (), state=test_responses.state(test_responses.THOUGHT, ["call", 0]))
    listed = test_responses.items(request(user("x"), cut, user("y")))
    assert [item["type"] for item in listed] == ["message", "message"]


def test_r7_a_text_longer_than_is_taken_comes_in_pieces():
    long = "é" * (MAX_TEXT_CHARS + 1)
    said, _, answered = test_responses.items(request(user(long), assistant("", ask("a")), result("a", long)))
    for parts in (said["content"], answered["output"]):
        assert [len(part["text"]) for part in parts] == [MAX_TEXT_CHARS, 1]


# --- Gemini


def test_g1_a_turn_that_says_nothing_is_no_content():
    listed = test_gemini.contents(request(user(" "), user("x"), assistant(), user("")))
    assert listed == [{"role": "user", "parts": [{"text": "x"}]}]


def test_g2_as_many_results_as_calls():
    crashed = request(user("x"), assistant("", ask("a"), ask("b"), ask("c")), result("b"), user("y"))
    calls, results = test_gemini.contents(crashed)[1:3]
    assert len(calls["parts"]) == len(results["parts"]) == 3


def test_g7_a_schema_travels_as_json_schema():
    odd = b'{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"const":1}}}'
    [declared] = test_gemini.body(request(user("x"), tools=tools(tool("f", odd))))["tools"][0]["functionDeclarations"]
    assert declared["parametersJsonSchema"] == json.loads(odd)
    assert "parameters" not in declared


# --- what holds for all


def made(vendor: str, asked: Request, model: str | None = None) -> Sent:
    named = model or MODELS[vendor]
    profile, asked = shipped_profile(named), msgspec.structs.replace(asked, model=named)
    match vendor:
        case "anthropic":
            return MessagesEncoder(vendor, profile).encode(asked)
        case "google":
            return GeminiEncoder(vendor, profile).encode(asked)
        case "openai-chat":
            return chat_encoder(SERVERS["openai"], vendor, named, profile).sent(asked, temperature=profile.temperature)
        case _:
            return ResponsesEncoder(vendor, profile, CODEX if vendor == "codex" else OPENAI_SERVER).encode(asked)


def sent(vendor: str, asked: Request) -> str:
    return bytes(made(vendor, asked).body).decode()


def sent_ids(vendor: str, asked: Request) -> tuple[list[str], list[str]]:
    """Return the ids of all calls and of all results in what goes to *vendor*, in order."""
    calls: list[str] = []
    results: list[str] = []

    def walk(part: Any) -> None:
        if isinstance(part, list):
            for one in part:
                walk(one)
        elif isinstance(part, dict):
            match part:
                case (
                    {"type": "tool_use", "id": id_}
                    | {"type": "function_call", "call_id": id_}
                    | {"functionCall": {"id": id_}}
                ):
                    calls.append(id_)
                case {"type": "function", "id": id_}:
                    calls.append(id_)
                case {"tool_use_id": id_} | {"tool_call_id": id_} | {"functionResponse": {"id": id_}}:
                    results.append(id_)
                case {"type": "function_call_output", "call_id": id_}:
                    results.append(id_)
                case _:
                    pass
            for one in part.values():
                walk(one)

    walk(json.loads(sent(vendor, asked)))
    return calls, results


ODD_IDS = ("call_abc", "a.b c", "x" * 200, "", "é", "sh_taken", "toolu_01", "a\0b")


@everywhere
def test_ids_of_any_shape_lead_from_call_to_result_on_every_wire(vendor: str):
    asked = request(user("x"), assistant("", *map(ask, ODD_IDS)), *map(result, ODD_IDS))
    calls, results = sent_ids(vendor, asked)
    assert calls == results
    assert len(set(calls)) == len(ODD_IDS)
    assert all(id_.isascii() and 0 < len(id_) <= 64 for id_ in calls)


@everywhere
def test_results_stand_in_call_order_on_every_wire(vendor: str):
    asked = request(user("x"), assistant("", ask("a"), ask("b"), ask("c")), result("c"), result("a"), result("b"))
    calls, results = sent_ids(vendor, asked)
    assert results == calls


@everywhere
def test_an_empty_turn_of_an_assistant_is_on_no_wire(vendor: str):
    with_it = request(user("x"), assistant(), user("y"))
    assert sent(vendor, with_it) == sent(vendor, request(user("x"), user("y")))


@everywhere
def test_what_one_vendor_thought_is_on_no_other_wire(vendor: str):
    secret = {"type": "thinking", "thinking": "mine alone", "signature": "c2ln", "encrypted_content": "mine alone"}
    others = [
        test_messages.state(secret, ["text", 1], provider=other, model=model, api=api)
        for other, model, api in (
            ("elsewhere", MODELS[vendor], "messages"),
            (vendor, "another-model", "responses"),
            (vendor, MODELS[vendor], "an API that nobody speaks"),
        )
    ]
    asked = request(user("x"), *[assistant("a", state=state) for state in others], user("y"))
    assert "mine alone" not in sent(vendor, asked)


@everywhere
def test_a_request_has_the_same_bytes_each_time_on_every_wire(vendor: str):
    def anew() -> Request:
        call = ToolCall("a", "look", Text.of('{"b": 1, "a": "\ud83d"}'))
        return request(
            user("half \ud83d"),
            Message("assistant", (Text.of("b"),), (call,)),
            result("a", "é\N{LINE SEPARATOR}"),
            system=(block("s" * 9000, volatility="stable"),),
            tools=tools(tool("b"), tool("a")),
            options={"metadata": {"b": "1", "a": "2"}},
            output=OutputFormat("o", b'{"type":"object","properties":{"z":{},"a":{}}}'),
        )

    once = anew()
    assert sent(vendor, once) == sent(vendor, once) == sent(vendor, anew())


@pytest.mark.parametrize(
    ("vendor", "setting"),
    [
        ("anthropic", '"max_tokens":1,'),
        ("openai", '"max_output_tokens":16,'),
        ("openai-chat", '"max_completion_tokens":1,'),
        ("google", '"maxOutputTokens":1}'),
    ],
)
def test_a_reply_without_room_gets_the_least_that_is_taken(vendor: str, setting: str):
    assert setting in sent(vendor, request(user("x"), max_tokens=0))


@everywhere
def test_names_of_tools_lead_back_on_every_wire(vendor: str):
    names = ("server.tool", "9 lives", "a" * 90, "a" * 89 + "b", "é", "look")
    there = made(vendor, request(user("x"), tools=tools(*map(tool, names))))
    assert sorted(there.names.values()) == sorted(names)
    assert all(len(name) <= 64 and name.isascii() and f'"{name}"' in bytes(there.body).decode() for name in there.names)


@pytest.mark.parametrize("model", shipped_models())
def test_a_model_is_sent_no_longer_reply_than_it_can_write(model: str):
    vendors = {"claude": "anthropic", "gemini": "google"}
    vendor = vendors.get(model.partition("-")[0], "openai-chat")
    body = bytes(made(vendor, request(user("x"), max_tokens=10**9), model).body).decode()
    assert f":{shipped_profile(model).max_output_tokens}" in body
