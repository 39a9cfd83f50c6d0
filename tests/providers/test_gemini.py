"""Requests as Gemini bodies: the rules G1 to G10."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import PNG, ask, assistant, block, request, requests, result, tool, tools, user

from shoal.errors import ProviderRefused
from shoal.providers import (
    Message,
    ModelProfile,
    OutputFormat,
    ProviderState,
    Request,
    Text,
    ToolCall,
    blob,
    shipped_profile,
)
from shoal.providers._gemini import GeminiEncoder
from shoal.providers._states import Reader

MODEL = "gemini-4-argon"
NEW = shipped_profile(MODEL)
OLD = shipped_profile("gemini-2.5-flash")
PLACEHOLDER = "skip_thought_signature_validator"


def body(asked: Request, profile: ModelProfile = NEW, **settings: Any) -> dict[str, Any]:
    made = GeminiEncoder("google", profile, **settings).encode(asked)
    assert len(bytes(made.body)) == made.body.size
    decoded: dict[str, Any] = json.loads(bytes(made.body))
    return decoded


def contents(asked: Request, profile: ModelProfile = NEW) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = body(asked, profile)["contents"]
    return listed


def state(*layout: Any, model: str = MODEL, provider: str = "google", api: str = "gemini") -> ProviderState:
    return Reader(provider, model, api).seal(json.dumps(layout).encode())


def assert_legal(made: dict[str, Any], profile: ModelProfile) -> None:
    """Check rules G1 to G7 on what is sent; none of it is the encoder's code."""
    listed = made["contents"]
    assert listed
    assert listed[-1]["role"] == "user"
    waiting: list[tuple[str, str | None]] = []
    before = "user"
    for content in listed:
        assert content["role"] in ("user", "model")
        assert content["parts"]
        kinds = [set(part) - {"thought", "thoughtSignature"} for part in content["parts"]]
        assert all(len(kind) == 1 for kind in kinds)
        answered = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        assert [(one["name"], one.get("id")) for one in answered] == waiting
        assert all(isinstance(one["response"], dict) for one in answered)
        asked = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        assert not asked or (content["role"], before) == ("model", "user")
        assert all(isinstance(one["args"], dict) for one in asked)
        assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", one["name"]) for one in asked)
        signatures = [part.get("thoughtSignature") for part in content["parts"] if "functionCall" in part]
        if "level" in (profile.thinking or ()):
            assert not signatures or signatures[0]
        waiting = [(one["name"], one.get("id")) for one in asked]
        before = content["role"]
    assert not waiting


# --- contents (G1 to G6)


def test_a_conversation_is_sent_as_contents():
    talk = request(
        user("hi"),
        assistant("why", ask("a", "look", '{"x": 1}')),
        result("a"),
        user("and?"),
        assistant("so"),
        user("?"),
    )
    assert contents(talk, OLD) == [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"text": "why"}, {"functionCall": {"id": "a", "name": "look", "args": {"x": 1}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "a", "name": "look", "response": {"output": "found"}}}],
        },
        {"role": "user", "parts": [{"text": "and?"}]},
        {"role": "model", "parts": [{"text": "so"}]},
        {"role": "user", "parts": [{"text": "?"}]},
    ]


def test_results_of_parallel_calls_stand_in_one_content_of_their_own():
    talk = request(user("x"), assistant("", ask("a"), ask("b")), result("b"), result("a"), user("y"), tail=Text.of("T"))
    listed = contents(talk)
    assert [part["functionResponse"]["id"] for part in listed[2]["parts"]] == ["a", "b"]
    assert [part["text"] for part in listed[3]["parts"]] == ["y", "T"]


def test_a_failed_result_is_an_error_and_says_something():
    talk = request(user("x"), assistant("", ask("a"), ask("b")), result("a", "", is_error=True), result("b", ""))
    first, second = [part["functionResponse"]["response"] for part in contents(talk)[2]["parts"]]
    assert first["error"]
    assert second == {"output": ""}


def test_system_messages_in_the_conversation_are_a_users():
    listed = contents(request(user("a"), Message("system", (Text.of("now"),))))
    assert [part["text"] for part in listed[0]["parts"]] == ["a", "now"]


def test_each_system_block_is_a_part():
    made = body(request(user("x"), system=(block("A"), block(" "), block("B"))))
    assert made["systemInstruction"] == {"parts": [{"text": "A"}, {"text": "B"}]}


def test_names_begin_with_a_letter_and_lead_back():
    offered = tools(tool("1st.tool"), tool("-x"), tool("fine"))
    made = GeminiEncoder("google", NEW).encode(request(user("x"), tools=offered))
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", name) for name in made.names)
    assert list(made.names.values()) == ["1st.tool", "-x", "fine"]


def test_a_tool_without_parameters_sends_none():
    [made] = body(request(user("x"), tools=tools(tool("a", b'{"type":"object"}'))))["tools"][0]["functionDeclarations"]
    assert "parametersJsonSchema" not in made


def test_a_tail_alone_is_the_conversation():
    assert contents(request(tail=Text.of("T"))) == [{"role": "user", "parts": [{"text": "T"}]}]


# --- signatures (G4, G5)


def turn(*layout: Any, texts: tuple[str, ...] = (), calls: int = 0, **settings: Any) -> Message:
    made = tuple(ToolCall(f"own-{n}", "look", Text.of('{"x":1}'), f"id-{n}") for n in range(calls))
    return Message("assistant", tuple(map(Text.of, texts)), made, state=state(*layout, **settings))


def test_each_signature_goes_back_to_its_part():
    signed = {"text": "", "thoughtSignature": "c2ln"}
    spoken = turn(
        ["text", 3], ["text", 3, "b25l"], signed, ["call", 0, "dHdv"], ["call", 1], texts=("onetwo",), calls=2
    )
    parts = contents(request(user("x"), spoken, result("own-0"), result("own-1")))[1]["parts"]
    call = {"name": "look", "args": {"x": 1}}
    assert parts == [
        {"text": "one"},
        {"text": "two", "thoughtSignature": "b25l"},
        signed,
        {"functionCall": call, "thoughtSignature": "dHdv"},
        {"functionCall": call},
    ]


def test_an_id_goes_back_where_the_vendor_gave_one_and_nowhere_else():
    spoken = turn(["call", 0, "c2ln", True], ["call", 1, "", False], calls=2)
    listed = contents(request(user("x"), spoken, result("own-0"), result("own-1")))
    assert [part["functionCall"].get("id") for part in listed[1]["parts"]] == ["id-0", None]
    assert [part["functionResponse"].get("id") for part in listed[2]["parts"]] == ["id-0", None]


@pytest.mark.parametrize(
    "foreign",
    [
        turn(["call", 0, "c2ln"], ["call", 1], calls=2, model="gemini-3.5-flash"),
        turn(["call", 0, "c2ln"], ["call", 1], calls=2, provider="other"),
        turn(["call", 0], ["call", 1], calls=2),
        turn(["text", 9], ["call", 0, "c2ln"], ["call", 1], calls=2),
    ],
)
def test_the_first_call_of_a_turn_without_its_signature_has_the_placeholder(foreign: Message):
    parts = contents(request(user("x"), foreign, result("own-0"), result("own-1")))[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [PLACEHOLDER, None]


def test_a_model_that_checks_no_signatures_gets_no_placeholder():
    parts = contents(request(user("x"), assistant("", ask("a")), result("a")), OLD)[1]["parts"]
    assert "thoughtSignature" not in parts[0]


# --- what models made


def drawn(*layout: Any, **settings: Any) -> Message:
    picture = (blob(PNG, "a.png"),)
    return Message("assistant", (Text.of("one"),), blobs=picture, state=state(*layout, **settings))


@pytest.mark.parametrize(
    ("made", "profile"),
    [
        (drawn(["text", 3], ["made", 0, "c2ln"], model="other"), NEW),
        (drawn(["text", 3], ["made", 0, ""]), NEW),
        (drawn(["text", 3], ["made", 0, "c2ln"], ["made", 1, "c2ln"]), NEW),
        (drawn(["text", 3], ["made", 0, "c2ln"]), replace(NEW, input_types=("text/*",))),
    ],
)
def test_a_picture_that_cannot_go_back_is_named_in_the_models_own_turn(made: Message, profile: ModelProfile):
    parts = contents(request(user("x"), made), profile)[1]["parts"]
    assert "\n".join(part["text"] for part in parts) == f"one\n[image/png 64x48, {len(PNG)} bytes] a.png"


def test_a_model_that_signs_nothing_gets_its_picture_back():
    made = drawn(["text", 3], ["made", 0, ""], model=OLD.model)
    parts = contents(request(user("x"), made), OLD)[1]["parts"]
    assert [list(part) for part in parts] == [["text"], ["inlineData"]]


# --- settings (G7 to G9)


def settings(profile: ModelProfile = NEW, **fields: Any) -> dict[str, Any]:
    fields.setdefault("tools", tools(tool()))
    made = body(request(user("x"), **fields), profile)
    return {name: value for name, value in made.items() if name not in ("contents", "tools")}


def test_settings_stand_where_the_api_wants_them():
    made = settings(
        temperature=0.5,
        options={"generationConfig": {"topK": 3, "candidateCount": 2}, "safetySettings": [{"category": "C"}]},
    )
    assert made == {
        "generationConfig": {"maxOutputTokens": 4096, "temperature": 0.5, "topK": 3},
        "safetySettings": [{"category": "C"}],
    }


def test_no_sampling_where_the_model_takes_none():
    made = settings(replace(NEW, temperature=False), temperature=0.5, options={"generationConfig": {"topP": 1}})
    assert made["generationConfig"] == {"maxOutputTokens": 4096}


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (NEW, {"thinkingLevel": "LOW", "includeThoughts": True}),
        (OLD, {"thinkingBudget": 5, "includeThoughts": True}),
        (ModelProfile("m"), {"thinkingLevel": "LOW", "includeThoughts": True}),
    ],
)
def test_thinking_is_set_in_one_way(profile: ModelProfile, expected: dict[str, Any]):
    both = {"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 5, "includeThoughts": True}}
    assert settings(profile, options={"generationConfig": both})["generationConfig"]["thinkingConfig"] == expected


def test_thinking_that_cannot_be_set_is_left_out():
    budget = {"thinkingConfig": {"thinkingBudget": 5}}
    assert "thinkingConfig" not in settings(options={"generationConfig": budget})["generationConfig"]


def calling(profile: ModelProfile = NEW, **config: Any) -> Any:
    made = settings(profile, options={"toolConfig": {"functionCallingConfig": config}})
    return made["toolConfig"]["functionCallingConfig"]


def test_tools_are_forced_as_far_as_the_model_takes_it():
    assert calling(mode="ANY", allowedFunctionNames=["look", "other"]) == {
        "mode": "ANY",
        "allowedFunctionNames": ["look"],
    }
    assert calling(mode="AUTO", allowedFunctionNames=["look"]) == {"mode": "AUTO"}
    assert calling(replace(NEW, forced_tools=False), mode="ANY") == {"mode": "AUTO"}
    assert calling() == {"mode": "AUTO"}


def test_a_choice_of_tools_needs_tools():
    assert "toolConfig" not in settings(options={"toolConfig": {"functionCallingConfig": {}}}, tools=tools())


def test_the_form_of_a_reply_goes_with_tools_on_newer_models_only():
    wanted = OutputFormat("answer", b'{"type":"object"}')
    assert settings(output=wanted)["generationConfig"]["responseJsonSchema"] == {"type": "object"}
    assert "responseMimeType" not in settings(OLD, output=wanted)["generationConfig"]
    assert settings(OLD, output=wanted, tools=tools())["generationConfig"]["responseMimeType"] == "application/json"
    assert "responseMimeType" not in settings(replace(NEW, structured_output=False), output=wanted)["generationConfig"]


def test_more_stop_texts_than_are_taken_are_refused():
    with pytest.raises(ProviderRefused, match="6"):
        settings(options={"generationConfig": {"stopSequences": ["x"] * 6}})


@pytest.mark.parametrize("name", ["cachedContent", "contents", "model", "systemInstruction", "tools"])
def test_an_option_that_replaces_the_request_is_refused(name: str):
    with pytest.raises(ProviderRefused, match=f"`{name}`"):
        settings(options={name: 1})


# --- stored parts (G10)


def test_what_the_model_takes_travels_inline():
    seen = Message(
        "user", (Text.of("look"),), blobs=(blob(PNG), blob(b"%PDF-1.7"), blob(b"t"), blob(b"\0bin", "x.bin"))
    )
    parts = contents(request(seen))[0]["parts"]
    assert [part.get("inlineData", {}).get("mimeType") for part in parts] == [
        None,
        None,
        "image/png",
        None,
        "application/pdf",
        None,
        None,
    ]
    assert parts[1]["text"].startswith("[image/png 64x48")
    assert [parts[5]["text"].endswith("\nt"), "x.bin" in parts[6]["text"]] == [True, True]


SHOWN = Message(
    "tool", (Text.of("see"),), call_id="a", blobs=(blob(PNG), blob(PNG), blob(b"note"), blob(b"\0", "x.bin"))
)


def test_newer_models_get_the_parts_of_a_result_in_it():
    [part] = contents(request(user("x"), assistant("", ask("a")), SHOWN))[2]["parts"]
    made = part["functionResponse"]
    assert [one["inlineData"]["mimeType"] for one in made["parts"]] == ["image/png"] * 2
    lines = made["response"]["output"].splitlines()
    kinds = [line.partition(" ")[0].strip("[,") for line in lines]
    assert kinds == ["see", "image/png", "image/png", "text/plain", "note", "application/octet-stream"]


def test_older_models_get_the_parts_of_a_result_behind_it():
    listed = contents(request(user("x"), assistant("", ask("a")), SHOWN), OLD)
    assert list(listed[2]["parts"][0]) == ["functionResponse"]
    assert sum("inlineData" in part for part in listed[3]["parts"]) == 2


def test_a_result_of_nothing_but_a_part_names_it():
    only = Message("tool", (), call_id="a", blobs=(blob(b"\0", "x.bin"),))
    [part] = contents(request(user("x"), assistant("", ask("a")), only))[2]["parts"]
    assert part["functionResponse"]["response"]["output"].startswith("[application")


def test_a_request_with_parts_above_the_inline_size_is_refused_here():
    seen = request(Message("user", blobs=(blob(PNG),)))
    with pytest.raises(ProviderRefused, match="stored parts"):
        body(seen, max_inline_bytes=10)
    assert body(request(user("x" * 100)), max_inline_bytes=10)


# --- what any transcript becomes


@given(drawn=requests(), model=st.sampled_from([MODEL, "gemini-2.5-flash", "unheard-of"]))
def test_any_transcript_becomes_a_legal_body(drawn: Request, model: str):
    profile = shipped_profile(model)
    assert_legal(body(drawn, profile), profile)


def test_a_body_to_be_counted_names_the_model_inside():
    made = json.loads(bytes(GeminiEncoder("google", NEW).encode(request(user("x"), model="m"), counting=True).body))
    assert made["generateContentRequest"]["model"] == "models/m"
    assert made["generateContentRequest"]["contents"]


def test_blocks_and_tools_are_encoded_once():
    encoder = GeminiEncoder("google", NEW)
    one, offered = block("s"), tools(tool())
    assert encoder.block(one) is encoder.block(one)
    assert encoder.tools(offered) is encoder.tools(offered)


def test_the_reprs_name_the_model():
    assert repr(GeminiEncoder("google", NEW)) == f"<GeminiEncoder for {MODEL}>"
