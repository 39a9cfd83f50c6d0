"""Requests as OpenAI Responses bodies: the rules R1 to R8, and what the Codex-like transport makes of them."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import (
    PNG,
    ask,
    assistant,
    block,
    request,
    requests,
    result,
    segment,
    tool,
    tools,
    user,
)

from shoal.errors import ProviderRefused
from shoal.providers import Message, ModelProfile, OutputFormat, ProviderState, Request, Text, blob, shipped_profile
from shoal.providers._codex import SERVER as CODEX
from shoal.providers._responses import OPENAI_SERVER, ResponsesEncoder, ResponsesServer
from shoal.providers._responses_items import MAX_IMAGE_CHARS
from shoal.providers._states import Reader

MODEL = "gpt-6.1-sol"
PROFILE = shipped_profile(MODEL)
EAGER = replace(PROFILE, min_cacheable_tokens=0)
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e=="}


def body(asked: Request, profile: ModelProfile = PROFILE, server: ResponsesServer = OPENAI_SERVER) -> dict[str, Any]:
    made = ResponsesEncoder("openai", profile, server).encode(asked)
    assert len(bytes(made.body)) == made.body.size
    decoded: dict[str, Any] = json.loads(bytes(made.body))
    return decoded


def items(asked: Request, profile: ModelProfile = PROFILE) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = body(asked, profile)["input"]
    return listed


def state(*layout: Any, model: str = MODEL, provider: str = "openai", api: str = "responses") -> ProviderState:
    return Reader(provider, model, api).seal(json.dumps(layout).encode())


def assert_legal(listed: list[dict[str, Any]]) -> None:
    """Check rules R1 and R2 on what is sent; none of it is the encoder's code."""
    assert listed
    waiting: list[str] = []
    for place, item in enumerate(listed):
        if item["type"] == "function_call":
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["call_id"])
            assert item["call_id"] not in waiting
            assert isinstance(json.loads(item["arguments"]), dict)
            waiting.append(item["call_id"])
        elif item["type"] == "function_call_output":
            assert item["call_id"] == waiting.pop(0)
        elif item["type"] == "reasoning":
            assert item["encrypted_content"]
            assert listed[place + 1]["type"] in ("function_call", "message", "reasoning")
            assert listed[place + 1].get("role", "assistant") == "assistant"
        elif item["role"] != "assistant":
            assert not waiting
            assert item["content"]
    assert not waiting
    assert listed[-1].get("role") != "assistant"


# --- items (R1, R2, R3)


def test_a_conversation_is_sent_as_items():
    talk = request(
        user("hi"), assistant("why", ask("a", "look", '{"x": 1}')), result("a"), assistant("so"), user("?"), model=MODEL
    )
    assert items(talk) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "message", "role": "assistant", "content": "why"},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"x": 1}'},
        {"type": "function_call_output", "call_id": "a", "output": "found"},
        {"type": "message", "role": "assistant", "content": "so"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}]},
    ]


def test_reasoning_goes_back_in_its_place_without_ids_that_nobody_stored():
    layout = (THOUGHT, ["text", 1, "commentary"], ["call", 0], {**THOUGHT, "id": "rs_2"}, ["call", 1])
    turn = assistant("a", ask("1"), ask("2"), state=state(*layout))
    listed = items(request(user("x"), turn, result("1"), result("2")))
    assert [item["type"] for item in listed[1:6]] == [
        "reasoning",
        "message",
        "function_call",
        "reasoning",
        "function_call",
    ]
    assert listed[1] == THOUGHT
    assert listed[2]["phase"] == "commentary"
    assert "id" not in listed[3]


def test_encrypted_reasoning_has_the_bytes_that_came():
    raw = b'{"id" : "rs_1","type":"reasoning", "summary":[],"encrypted_content":"a\\/b", "status":null}'
    turn = assistant("a", state=Reader("openai", MODEL, "responses").seal(b"[" + raw + b',["text",1]]'))
    assert raw in bytes(ResponsesEncoder("openai", PROFILE).encode(request(user("x"), turn)).body)


@pytest.mark.parametrize(
    "foreign",
    [state(THOUGHT, ["text", 1], model="gpt-5"), state(THOUGHT, ["text", 1], provider="codex"), state(api="messages")],
)
def test_reasoning_of_another_is_left_out(foreign: ProviderState):
    assert [item["type"] for item in items(request(user("x"), assistant("a", state=foreign), user("y")))] == [
        "message"
    ] * 3


def test_ids_above_64_characters_are_mapped_on_call_and_result_alike():
    listed = items(request(user("x"), assistant("", ask("i" * 69)), result("i" * 69)))
    assert listed[1]["call_id"] == listed[2]["call_id"]
    assert len(listed[1]["call_id"]) <= 64


def test_a_call_without_a_result_gets_one():
    assert items(request(user("x"), assistant("", ask("a"))))[-1]["type"] == "function_call_output"


def test_a_system_message_is_the_developers():
    assert items(request(user("a"), Message("system", (Text.of("now"),))))[1]["role"] == "developer"


def test_each_system_block_is_a_message_of_its_own():
    listed = items(request(user("x"), system=(block("A"), block(" "), block("B"))))
    assert [(item["role"], item["content"][0]["text"]) for item in listed] == [
        ("developer", "A"),
        ("developer", "B"),
        ("user", "x"),
    ]


def test_the_tail_is_a_message_at_the_end():
    assert items(request(user("x"), tail=Text.of("T")))[-1]["content"] == [{"type": "input_text", "text": "T"}]
    assert items(request(tail=Text.of("T")))[0]["content"] == [{"type": "input_text", "text": "T"}]


# --- stored parts (R7)


def test_images_and_documents_travel_as_data():
    seen = Message(
        "user", (Text.of("look"),), blobs=(blob(PNG, "a.png"), blob(b"%PDF-1.7", "b.pdf"), blob(b"t", "c.txt"))
    )
    parts = items(request(seen))[0]["content"]
    text, image, file = "input_text", "input_image", "input_file"
    assert [part["type"] for part in parts] == [text, text, image, text, file, text]
    assert parts[1]["text"].endswith("a.png")
    assert parts[2]["image_url"].startswith("data:image/png;base64,")
    assert parts[4]["filename"] == "b.pdf"


def test_an_image_of_a_result_stands_in_the_output():
    shown = Message("tool", (Text.of("see"),), call_id="a", blobs=(blob(PNG),))
    output = items(request(user("x"), assistant("", ask("a")), shown))[2]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_text", "input_image"]


def test_what_another_model_made_is_named_in_its_turn():
    drawn = Message("assistant", (Text.of("Here:"),), blobs=(blob(PNG, "a.png"),))
    assert items(request(user("draw"), drawn))[1]["content"].endswith("a.png")


@pytest.mark.parametrize("data", [b"ID3 sound", PNG + b"\0" * MAX_IMAGE_CHARS])
def test_a_part_that_is_not_taken_is_named(data: bytes):
    [part] = items(request(Message("user", blobs=(blob(data, "a.bin"),))))[0]["content"]
    assert "a.bin" in part["text"]


# --- settings (R4, R5, R6, R8)


def settings(profile: ModelProfile = PROFILE, server: ResponsesServer = OPENAI_SERVER, **fields: Any) -> dict[str, Any]:
    fields.setdefault("tools", tools(tool()))
    made = body(request(user("x"), model=profile.model, **fields), profile, server)
    return {name: value for name, value in made.items() if name not in ("input", "model", "tools")}


def test_nothing_is_stored_and_reasoning_comes_encrypted():
    assert settings() == {
        "store": False,
        "stream": True,
        "max_output_tokens": 4096,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize(
    ("taken", "asked", "sent"),
    [
        (None, "xhigh", {"effort": "xhigh"}),
        (("low", "high"), "max", {"effort": "high"}),
        (("low", "high"), "none", {"effort": "low"}),
        (("low", "high"), "odd", {"effort": "odd"}),
        ((), "low", {}),
    ],
)
def test_effort_is_the_nearest_that_the_model_takes(taken: tuple[str, ...] | None, asked: str, sent: dict[str, str]):
    profile = ModelProfile("gpt-6.1-sol", temperature=False, efforts=taken)
    given = {"reasoning": {"effort": asked, "summary": "auto"}}
    assert settings(profile, options=given)["reasoning"] == {"summary": "auto", **sent}
    assert given == {"reasoning": {"effort": asked, "summary": "auto"}}


def test_a_model_that_does_not_reason_is_asked_for_no_reasoning():
    plain = ModelProfile("gpt-4.1")
    assert "include" not in settings(plain)
    assert settings(plain, options={"reasoning": {"effort": "low"}})["include"] == ["reasoning.encrypted_content"]
    wanted = settings(options={"include": ["message.output_text.logprobs"]})["include"]
    assert wanted == ["message.output_text.logprobs", "reasoning.encrypted_content"]
    assert settings(options={"include": [{"a": 1}, "b"]})["include"] == ["b", "reasoning.encrypted_content"]


def test_the_shortest_reply_that_is_taken_is_asked_for():
    assert settings(max_tokens=1)["max_output_tokens"] == 16
    assert settings(max_tokens=10**9)["max_output_tokens"] == 128_000


def test_tools_are_flat():
    assert body(request(user("x"), tools=tools(tool("s.t"))))["tools"][0].keys() == {
        "type",
        "name",
        "description",
        "parameters",
        "strict",
    }


def test_no_sampling_where_the_model_takes_none():
    assert "temperature" not in settings(temperature=0.5, options={"top_p": 0.1})
    assert settings(ModelProfile("m"), temperature=0.5, options={"top_p": 0.1})["temperature"] == 0.5


def test_a_choice_of_tools_needs_tools():
    assert "tool_choice" not in settings(options={"tool_choice": "auto", "parallel_tool_calls": False}, tools=tools())
    assert settings(options={"tool_choice": "required"})["tool_choice"] == "required"


def test_a_named_tool_is_named_as_it_is_sent_and_must_be_there():
    offered = tools(tool("s.t"))
    choice = settings(options={"tool_choice": {"type": "function", "name": "s.t"}}, tools=offered)["tool_choice"]
    assert re.fullmatch(r"s_t_\w{8}", choice["name"])
    assert "tool_choice" not in settings(options={"tool_choice": {"type": "function", "name": "other"}})


def test_no_tool_is_forced_where_the_model_takes_no_force():
    profile = replace(PROFILE, forced_tools=False)
    assert settings(profile, options={"tool_choice": "required"})["tool_choice"] == "auto"
    assert settings(profile, options={"tool_choice": "none"})["tool_choice"] == "none"


@pytest.mark.parametrize("strict", [True, False])
def test_the_form_of_a_reply_is_strict_where_its_schema_is(strict: bool):
    closed = b',"required":["x"],"additionalProperties":false' if strict else b""
    wanted = OutputFormat("answer", b'{"type":"object","properties":{"x":{"type":"string"}}%b}' % closed)
    made = settings(output=wanted, options={"text": {"verbosity": "low"}})["text"]
    assert (made["verbosity"], made["format"]["name"], made["format"]["strict"]) == ("low", "answer", strict)
    assert "text" not in settings(replace(PROFILE, structured_output=False), output=wanted)


@pytest.mark.parametrize(
    "name", ["previous_response_id", "conversation", "store", "input", "instructions", "stream", "background", "model"]
)
def test_an_option_that_replaces_the_request_or_its_statelessness_is_refused(name: str):
    with pytest.raises(ProviderRefused, match=f"`{name}`"):
        settings(options={name: "x"})


# --- markers


def marked(made: dict[str, Any]) -> list[str]:
    return [
        part.get("text", part["type"])[:1]
        for item in made["input"]
        if isinstance(item.get("content"), list)
        for part in item["content"]
        if "prompt_cache_breakpoint" in part
    ]


TALK = (user("a"), assistant("b"), user("c"))
SYSTEM = (block("s" * 400, volatility="stable"), block("r" * 400))


def test_without_a_tail_the_vendor_marks_the_end_itself():
    made = body(request(*TALK, system=SYSTEM), EAGER)
    assert marked(made) == ["s", "r"]
    assert "prompt_cache_options" not in made


def test_with_a_tail_the_end_in_front_of_it_is_marked_and_nothing_else():
    made = body(request(*TALK, system=SYSTEM, tail=Text.of("T")), EAGER)
    assert marked(made) == ["s", "r", "a", "c"]
    assert made["prompt_cache_options"] == {"mode": "explicit"}


def test_results_take_a_marker_only_where_that_has_an_effect():
    talk = request(user("a"), assistant("", ask("1")), result("1"), tail=Text.of("T"))
    assert marked(body(talk, EAGER)) == ["a"]
    with_results = body(talk, EAGER, replace(OPENAI_SERVER, marks_results=True))
    assert with_results["input"][2]["output"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}


@pytest.mark.parametrize("profile", [shipped_profile("gpt-5.5"), ModelProfile("m"), PROFILE])
def test_older_and_unknown_models_and_short_prefixes_get_no_marker(profile: ModelProfile):
    made = body(request(*TALK, system=SYSTEM, tail=Text.of("T")), profile)
    assert marked(made) == []
    assert "prompt_cache_options" not in made


def test_an_image_at_the_end_takes_the_marker():
    seen = Message("user", (Text.of("look"),), blobs=(blob(PNG),))
    parts = body(request(seen, tail=Text.of("T")), EAGER)["input"][0]["content"]
    assert [("prompt_cache_breakpoint" in part) for part in parts] == [False, False, True]


# --- the Codex-like transport


def test_the_first_system_block_is_the_instructions():
    made = body(request(user("x"), system=(block("A"), block("B"))), server=CODEX)
    assert made["instructions"] == "A"
    assert [item["content"][0]["text"] for item in made["input"]] == ["B", "x"]


def test_without_a_system_section_there_are_instructions_all_the_same():
    assert body(request(user("x")), server=CODEX)["instructions"]


def test_limits_sampling_and_markers_are_left_out():
    made = body(
        request(
            *TALK,
            system=SYSTEM,
            tail=Text.of("T"),
            temperature=1.0,
            options={"metadata": {}, "truncation": "disabled", "safety_identifier": "me"},
        ),
        EAGER,
        CODEX,
    )
    assert set(made) == {"model", "store", "stream", "instructions", "input", "include"}
    assert marked(made) == []


# --- what any transcript becomes


@given(drawn=requests(), server=st.sampled_from([OPENAI_SERVER, CODEX, replace(OPENAI_SERVER, marks_results=True)]))
def test_any_transcript_becomes_a_legal_body(drawn: Request, server: ResponsesServer):
    made = body(drawn, EAGER, server)
    assert_legal(made["input"])
    assert len(marked(made)) <= 4


@given(texts=st.lists(st.text(min_size=1, max_size=5).filter(str.strip), min_size=1, max_size=6))
def test_a_conversation_that_grows_only_appends_items(texts: list[str]):
    spoken = [user(t) if index % 2 == 0 else assistant(t) for index, t in enumerate(texts)]
    bodies = [items(Request(MODEL, messages=(segment(*spoken[: n + 1]),))) for n in range(0, len(spoken), 2)]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(bodies))


def test_the_reprs_name_the_model():
    assert repr(ResponsesEncoder("openai", PROFILE)) == f"<ResponsesEncoder for {MODEL}>"
