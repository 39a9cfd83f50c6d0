"""Requests as Anthropic Messages bodies: the rules A1 to A21, and what a request shares with the one before."""

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
    messages,
    request,
    requests,
    result,
    segment,
    tool,
    tools,
    user,
)

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
from shoal.providers._messages import MAX_BODY_BYTES, MessagesEncoder
from shoal.providers._sent import Sent
from shoal.providers._states import Reader
from shoal.providers._wire import Flat

MODEL = "claude-opus-5-5"
OLD = shipped_profile("claude-haiku-4-5")
NEW = shipped_profile(MODEL)
LONG = "x" * 8000


def encoder(profile: ModelProfile = NEW, **settings: Any) -> MessagesEncoder:
    return MessagesEncoder("anthropic", profile, **settings)


def sent(asked: Request, profile: ModelProfile = NEW, **settings: Any) -> Sent:
    return encoder(profile, **settings).encode(asked)


def body(asked: Request, profile: ModelProfile = NEW, **settings: Any) -> dict[str, Any]:
    made = bytes(sent(asked, profile, **settings).body)
    decoded: dict[str, Any] = json.loads(made)
    return decoded


def said(asked: Request, profile: ModelProfile = NEW) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = body(asked, profile)["messages"]
    return listed


def roles(asked: Request, profile: ModelProfile = NEW) -> list[str]:
    return [message["role"] for message in said(asked, profile)]


def state(*layout: Any, model: str = MODEL, provider: str = "anthropic", api: str = "messages") -> ProviderState:
    return Reader(provider, model, api).seal(json.dumps(layout).encode())


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def assert_legal(made: dict[str, Any], profile: ModelProfile) -> None:
    """Check what can be seen of rules A1 to A9, A12, A13 in one body; none of it is the encoder's code."""
    assert made["max_tokens"] >= 1
    listed = made["messages"]
    assert listed
    assert listed[0]["role"] == "user"
    assert listed[-1]["role"] != "assistant"
    assert all(one["role"] != other["role"] for one, other in itertools.pairwise(listed))
    asked: list[str] = []
    every: list[str] = []
    for place, message in enumerate(listed):
        assert message["content"]
        kinds = [part["type"] for part in message["content"]]
        answered = [part["tool_use_id"] for part in message["content"] if part["type"] == "tool_result"]
        assert answered == asked
        assert kinds[: len(answered)] == ["tool_result"] * len(answered)
        for part in message["content"]:
            assert part["type"] != "text" or part["text"].strip()
            inner = part.get("content", [])
            assert all(one["type"] != "text" or one["text"].strip() for one in inner)
        asked = [part["id"] for part in message["content"] if part["type"] == "tool_use"]
        every += asked
        assert not asked or message["role"] == "assistant"
        for part in message["content"]:
            assert part["type"] != "tool_use" or isinstance(part["input"], dict)
        if message["role"] == "system":
            assert profile.mid_system
            assert listed[place - 1]["role"] == "user"
            assert place == len(listed) - 1 or listed[place + 1]["role"] == "assistant"
    assert not asked
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in every)
    names = [one["name"] for one in made.get("tools", [])]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert_markers(made)


def assert_markers(made: dict[str, Any]) -> None:
    """Check rule A9: where markers stand, how many, and in which order their lifetimes come."""
    parts = [*made.get("tools", []), *made.get("system", []), *[p for m in made["messages"] for p in m["content"]]]
    marked = [part for part in parts if "cache_control" in part]
    assert len(marked) <= 4
    assert all(part.get("type") not in ("thinking", "redacted_thinking") for part in marked)
    ttls = [part["cache_control"].get("ttl", "5m") for part in marked]
    assert ttls == sorted(ttls)  # "1h" before "5m"


# --- messages (A1 to A8)


def test_a_conversation_is_sent_as_blocks():
    talk = request(
        user("hi"), assistant("why", ask("a", "look", '{"x": 1}')), result("a"), assistant("so"), user("?"), model=MODEL
    )
    assert said(talk) == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "why"},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"x": 1}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "found"}]}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "so"}]},
        {"role": "user", "content": [{"type": "text", "text": "?"}]},
    ]


def test_results_of_parallel_calls_stand_in_one_message_before_what_the_user_says():
    talk = request(user("x"), assistant("", ask("a"), ask("b")), result("b", "B"), result("a", "A"), user("y"))
    parts = said(talk)[2]["content"]
    assert [part.get("tool_use_id", part.get("text")) for part in parts] == ["a", "b", "y"]


def test_messages_of_one_role_share_a_message_over_segments_too():
    split = Request("m", messages=(segment(user("a")), segment(user("b")), segment(assistant("c"), user("d"))))
    assert [[part["text"] for part in message["content"]] for message in said(split)] == [["a", "b"], ["c"], ["d"]]


def test_a_failed_result_says_so_and_is_never_empty():
    talk = request(user("x"), assistant("", ask("a")), result("a", " ", is_error=True))
    [part] = said(talk)[2]["content"]
    assert part["is_error"] is True
    assert part["content"][0]["text"].strip()


def test_a_result_that_says_nothing_has_no_content():
    [part] = said(request(user("x"), assistant("", ask("a")), result("a", "\n")))[2]["content"]
    assert "content" not in part


@pytest.mark.parametrize("empty", ["", " ", "\n\t", "\N{NO-BREAK SPACE}"])
def test_a_text_of_white_space_is_no_block(empty: str):
    assert said(request(user(empty), user("x")))[0]["content"] == [{"type": "text", "text": "x"}]


def test_halves_of_characters_in_arguments_are_replaced():
    call = ask("a", "look", r'{"x": "\ud83d", "y": "\ud83d\ude00"}')
    assert said(request(user("x"), assistant("", call), result("a")))[1]["content"][0]["input"] == {
        "x": "\N{REPLACEMENT CHARACTER}",
        "y": "\N{GRINNING FACE}",
    }


def test_a_schema_that_describes_no_object_takes_any():
    offered = tools(tool("a", b'{"properties":{}}'), tool("b", b"[]"), tool("c", b'{"type":"string"}'), tool("d"))
    assert [one["input_schema"]["type"] for one in body(request(user("x"), tools=offered))["tools"]] == ["object"] * 4


def test_a_tool_without_a_description_sends_none():
    assert "description" not in body(request(user("x"), tools=tools(tool(description=" "))))["tools"][0]


def test_names_are_mapped_and_lead_back():
    made = sent(request(user("x"), tools=tools(tool("server.tool"))))
    [name] = [one["name"] for one in json.loads(bytes(made.body))["tools"]]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    assert made.names == {name: "server.tool"}


def test_the_reply_is_no_longer_than_the_model_can_write():
    assert body(request(user("x"), max_tokens=10_000_000))["max_tokens"] == 128_000


# --- system messages in the conversation (A12)


def system(text: str) -> Message:
    return Message("system", (Text.of(text),))


def test_a_system_message_behind_a_user_stays_one_where_the_model_takes_it():
    assert roles(request(user("a"), system("now"), assistant("b"), user("c"))) == [
        "user",
        "system",
        "assistant",
        "user",
    ]
    assert roles(request(user("a"), system("now"))) == ["user", "system"]


@pytest.mark.parametrize(
    "spoken",
    [
        (system("now"), user("a")),
        (user("a"), system("now"), user("b")),
        (user("a"), assistant("b"), system("now")),
    ],
)
def test_a_system_message_in_another_place_is_a_users(spoken: tuple[Message, ...]):
    assert "system" not in roles(request(*spoken))


def test_a_system_message_at_the_end_of_a_segment_looks_at_the_next():
    before, after = segment(user("a"), system("now"), closed=True), segment(assistant("b"), user("c"))
    assert "system" in roles(Request(MODEL, messages=(before, after)))
    assert "system" not in roles(Request(MODEL, messages=(before, segment(user("c")))))


def test_a_model_that_takes_no_system_message_gets_a_users():
    assert roles(request(user("a"), system("now")), OLD) == ["user"]


# --- what its vendor wants back (A10, A11)


def test_thoughts_go_back_in_their_places_with_the_vendors_ids():
    turn = Message(
        "assistant",
        (Text.of("one"), Text.of("two")),
        (ToolCall("own-1", "look", Text.of("{}"), "toolu_1"),),
        state=state(THOUGHT, ["text", 3], {"type": "redacted_thinking", "data": "x"}, ["text", 3], ["call", 0]),
    )
    listed = said(request(user("x"), turn, result("own-1")))
    assert listed[1]["content"] == [
        THOUGHT,
        {"type": "text", "text": "one"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "two"},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    ]
    assert listed[2]["content"][0]["tool_use_id"] == "toolu_1"


def test_what_is_sent_back_has_the_bytes_that_came():
    odd = b'{"type" : "thinking", "signature":"s", "thinking":"\\u00e9 \\/", "new":1e5}'
    turn = assistant("a", state=Reader("anthropic", MODEL, "messages").seal(b"[" + odd + b',["text",1]]'))
    assert odd in bytes(sent(request(user("x"), turn, user("y"))).body)


@pytest.mark.parametrize(
    "foreign",
    [
        state(THOUGHT, ["text", 1], model="claude-opus-4-8"),
        state(THOUGHT, ["text", 1], provider="other"),
        state(THOUGHT, ["text", 1], api="chat"),
        ProviderState("anthropic", MODEL, b"not sealed"),
    ],
)
def test_what_another_made_is_left_out(foreign: ProviderState):
    assert said(request(user("x"), assistant("a", state=foreign), user("y")))[1]["content"] == [
        {"type": "text", "text": "a"}
    ]


def test_behind_a_text_that_has_changed_no_thought_holds():
    turn = assistant("changed", state=state(THOUGHT, ["text", 3], {**THOUGHT, "thinking": "later"}, ["call", 0]))
    assert [part["type"] for part in said(request(user("x"), turn, user("y")))[1]["content"]] == ["thinking", "text"]


def test_calls_that_are_gone_leave_the_first_thoughts():
    turn = Message("assistant", (), (ask("a"),), state=state(THOUGHT, ["call", 0], ["call", 1]))
    assert [p["type"] for p in said(request(user("x"), turn, result("a")))[1]["content"]] == ["thinking", "tool_use"]


@pytest.mark.parametrize("ids", [("", ""), ("same", "same"), ("a.b", "c"), ("x" * 70, "y")])
def test_ids_that_cannot_be_sent_are_mapped(ids: tuple[str, str]):
    calls = tuple(ToolCall(f"own-{n}", "look", Text.of("{}"), id_) for n, id_ in enumerate(ids))
    turn = Message("assistant", (), calls, state=state(THOUGHT, ["call", 0], ["call", 1]))
    assert_legal(body(request(user("x"), turn, result("own-0"), result("own-1"))), NEW)


# --- settings (A13 to A17)


def settings(profile: ModelProfile = NEW, *, version: str = "2023-06-01", **fields: Any) -> dict[str, Any]:
    fields.setdefault("tools", tools(tool()))
    made = body(request(user("x"), model=profile.model, **fields), profile, version=version)
    return {name: value for name, value in made.items() if name not in ("messages", "model", "tools", "stream")}


def test_a_conversation_that_an_assistant_ends_is_closed_since_prefill_is_refused():
    assert said(request(user("a"), assistant("b")))[-1] == {
        "role": "user",
        "content": [{"type": "text", "text": "Continue."}],
    }


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-opus-4-8", "claude-fable-5-2"])
def test_no_sampling_where_the_model_takes_none(model: str):
    made = settings(shipped_profile(model), temperature=0.5, options={"top_p": 0.5, "top_k": 3})
    assert not {"temperature", "top_p", "top_k"} & made.keys()


def test_an_old_model_is_sent_a_temperature_within_its_range_and_nothing_beside_it():
    made = settings(OLD, temperature=1.5, options={"top_p": 0.5})
    assert made["temperature"] == 1
    assert "top_p" not in made
    assert settings(OLD, options={"top_p": 0.5})["top_p"] == 0.5


def test_a_temperature_that_is_no_number_is_for_the_vendor_to_refuse():
    assert settings(OLD, options={"temperature": "hot"})["temperature"] == "hot"


def test_no_sampling_from_the_version_on_that_refuses_it():
    assert "temperature" not in settings(OLD, temperature=0.5, version="2026-10-21")


@pytest.mark.parametrize(
    ("model", "asked", "expected"),
    [
        ("claude-opus-5-5", {"type": "disabled"}, None),
        ("claude-opus-5-5", {"type": "enabled", "budget_tokens": 2000}, {"type": "adaptive"}),
        ("claude-opus-5-5", {"type": "adaptive", "display": "omitted"}, {"type": "adaptive", "display": "omitted"}),
        ("claude-haiku-4-5", {"type": "adaptive"}, {"type": "enabled", "budget_tokens": 2048}),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 9000}, {"type": "enabled", "budget_tokens": 4095}),
        ("claude-haiku-4-5", {"type": "disabled"}, {"type": "disabled"}),
        ("unheard-of", {"type": "between_tools"}, {"type": "between_tools"}),
        ("claude-opus-5-5", {}, None),
    ],
)
def test_thinking_is_set_as_the_model_takes_it(model: str, asked: Any, expected: Any):
    assert settings(shipped_profile(model), options={"thinking": asked}).get("thinking") == expected


def test_a_reply_too_short_to_think_in_is_not_thought_about():
    asked = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    assert "thinking" not in settings(OLD, options=asked, max_tokens=1024)


def test_a_turn_of_another_model_is_gone_on_with_without_thinking():
    asked = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    foreign = request(user("x"), assistant("", ask("a")), result("a"), options=asked)
    assert "thinking" not in body(foreign, OLD)
    own = assistant("", ask("a"), state=state(THOUGHT, ["call", 0], model=OLD.model))
    assert "thinking" in body(request(user("x"), own, result("a"), options=asked), OLD)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "look"}])
def test_no_tool_is_forced_where_the_model_takes_no_force(choice: dict[str, str]):
    assert settings(options={"tool_choice": choice})["tool_choice"] == {"type": "auto"}
    assert settings(OLD, options={"tool_choice": choice})["tool_choice"] == choice


def test_no_tool_is_forced_while_the_model_thinks_within_a_budget():
    asked = {"tool_choice": {"type": "any"}, "thinking": {"type": "enabled", "budget_tokens": 2000}}
    assert settings(OLD, options=asked)["tool_choice"] == {"type": "auto"}


def test_a_choice_without_tools_or_of_an_unknown_tool_is_left_out():
    named = {"tool_choice": {"type": "tool", "name": "find"}}
    assert "tool_choice" not in settings(OLD, options=named)
    assert "tool_choice" not in settings(OLD, options={"tool_choice": {"type": "auto"}}, tools=tools())


@pytest.mark.parametrize(
    ("model", "asked", "expected"),
    [
        ("claude-opus-5-5", "xhigh", "xhigh"),
        ("claude-opus-4-5", "max", "high"),
        ("claude-haiku-4-5", "low", None),
        ("claude-opus-5-5", "enormous", None),
    ],
)
def test_effort_is_the_nearest_that_the_model_takes(model: str, asked: str, expected: str | None):
    made = settings(shipped_profile(model), options={"output_config": {"effort": asked}})
    assert made.get("output_config", {}).get("effort") == expected


def test_the_lowest_effort_stands_in_for_a_lower_one():
    profile = replace(OLD, efforts=("medium", "high"))
    assert settings(profile, options={"output_config": {"effort": "low"}})["output_config"]["effort"] == "medium"


def test_no_high_effort_without_thinking():
    asked = {"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}
    assert settings(shipped_profile("claude-opus-5"), options=asked)["output_config"] == {"effort": "high"}


def test_the_form_of_a_reply_is_a_closed_schema():
    wanted = OutputFormat("answer", b'{"properties":{"n":{"minimum":1,"type":"integer"}},"type":"object"}')
    made = settings(output=wanted)["output_config"]["format"]
    assert made == {
        "type": "json_schema",
        "schema": {
            "properties": {"n": {"type": "integer", "description": "minimum: 1"}},
            "type": "object",
            "additionalProperties": False,
        },
    }
    assert "output_config" not in settings(replace(NEW, structured_output=False), output=wanted)


def test_stop_texts_of_white_space_are_left_out():
    assert settings(options={"stop_sequences": ["\n", "END"]})["stop_sequences"] == ["END"]
    assert "stop_sequences" not in settings(options={"stop_sequences": [" "]})


@pytest.mark.parametrize("name", ["cache_control", "messages", "model", "stream", "system", "tools", "max_tokens"])
def test_an_option_that_replaces_the_request_is_refused(name: str):
    with pytest.raises(ProviderRefused, match=f"`{name}`"):
        settings(options={name: 1})


# --- stored parts (A18, A19)


def test_an_image_stands_behind_the_text_where_the_model_takes_it():
    seen = Message("user", (Text.of("look"),), blobs=(blob(PNG, "a.png"),))
    text, line, image = said(request(seen))[0]["content"]
    assert [text["text"], line["text"]] == ["look", f"[image/png 64x48, {len(PNG)} bytes] a.png"]
    assert image["source"]["media_type"] == "image/png"
    assert image["source"]["type"] == "base64"


def test_an_image_of_a_result_stands_in_the_result():
    shown = Message("tool", (), call_id="a", tool_name="look", blobs=(blob(PNG),))
    [part] = said(request(user("x"), assistant("", ask("a")), shown))[2]["content"]
    assert [one["type"] for one in part["content"]] == ["text", "image"]


def test_a_document_is_a_document():
    seen = Message("user", blobs=(blob(b"%PDF-1.7 ..."),))
    assert [one["type"] for one in said(request(seen))[0]["content"]] == ["text", "document"]


@pytest.mark.parametrize(
    ("part", "profile"),
    [
        (blob(PNG, "a.png"), ModelProfile(MODEL)),
        (blob(b"ID3 sound", "a.png"), NEW),
        (blob(PNG, "a.png"), replace(NEW, input_types=("text/*", "application/pdf"))),
    ],
)
def test_a_part_that_the_model_does_not_take_is_named(part: Any, profile: ModelProfile):
    [shown] = said(request(Message("user", blobs=(part,))), profile)[0]["content"]
    assert "a.png" in shown["text"]


def test_an_image_that_is_too_large_is_named():
    import msgspec

    large = msgspec.structs.replace(blob(PNG, "a.png"), side_px=9000)
    [line] = said(request(Message("user", blobs=(large,))))[0]["content"]
    assert "a.png" in line["text"]


def test_a_part_that_is_text_is_sent_as_text_to_every_model():
    seen = Message("user", blobs=(blob("Grüße".encode(), "a.txt"),))
    text = "[text/plain, 7 bytes] a.txt\nGrüße"
    assert said(request(seen), ModelProfile("m"))[0]["content"] == [{"type": "text", "text": text}]


def test_what_another_model_made_is_named_in_its_turn():
    drawn = Message("assistant", (Text.of("Here:"),), blobs=(blob(PNG, "a.png"),))
    [turn] = said(request(user("draw"), drawn, user("good")))[1]["content"]
    assert turn == {"type": "text", "text": f"Here:\n[image/png 64x48, {len(PNG)} bytes] a.png"}


def test_too_many_images_are_refused_here():
    many = Message("user", blobs=(blob(PNG),) * 101)
    with pytest.raises(ProviderRefused, match="101"):
        sent(request(many), OLD)


def test_many_large_images_are_refused_here():
    import msgspec

    large = msgspec.structs.replace(blob(PNG), side_px=3000)
    assert sent(request(Message("user", blobs=(large,))))
    with pytest.raises(ProviderRefused, match="3000 pixels"):
        sent(request(Message("user", blobs=(large,) * 21)))


def test_a_request_above_the_vendors_size_is_refused_here():
    with pytest.raises(ProviderRefused, match="bytes long"):
        sent(request(user("x" * MAX_BODY_BYTES)))


def test_several_system_messages_in_front_of_a_user_are_the_users():
    spoken = [user("a"), Message("system", (Text.of("b"),)), Message("system", (Text.of("c"),)), user("d")]
    assert [one["role"] for one in said(request(*spoken), shipped_profile("claude-opus-5-5"))] == ["user"]


# --- the tail


def test_the_tail_is_the_last_text_of_the_last_user_message():
    assert [p["text"] for p in said(request(user("a"), tail=Text.of("T")), OLD)[-1]["content"]] == ["a", "T"]


@pytest.mark.parametrize("spoken", [(), (user("a"), assistant("b"))])
def test_a_tail_behind_no_user_is_a_message_of_its_own(spoken: tuple[Message, ...]):
    assert said(request(*spoken, tail=Text.of("T")), OLD)[-1]["content"] == [{"type": "text", "text": "T"}]


def test_the_tail_behind_a_system_message_stands_in_it():
    last = said(request(user("a"), system("now"), tail=Text.of("T")))[-1]
    assert (last["role"], [part["text"] for part in last["content"]]) == ("system", ["now", "T"])


def for_one_turn(text: str) -> Message:
    return Message("system", (Text.of(text),), turn_scoped=True)


def test_a_message_for_one_turn_stays_in_its_place_and_is_cleared_by_the_vendor():
    made = sent(request(user("a"), for_one_turn("T"), assistant("b"), user("c")))
    assert json.loads(bytes(made.body))["messages"][1] == {
        "role": "system",
        "clear_at": "next_user_message",
        "content": [{"type": "text", "text": "T"}],
    }
    assert made.headers == {"anthropic-beta": "mid-conversation-system-clear-at-2026-08-21"}


def test_a_model_that_knows_no_turns_takes_it_for_a_system_message():
    made = said(request(user("a"), for_one_turn("T")), shipped_profile("claude-opus-4-8"))
    assert made[-1] == {"role": "system", "content": [{"type": "text", "text": "T"}]}


def test_of_two_kinds_of_system_messages_in_a_row_the_last_stays_one():
    listed = said(request(user("a"), system("now"), for_one_turn("T")))
    assert [message["role"] for message in listed] == ["user", "system"]
    assert [part["text"] for part in listed[0]["content"]] == ["a", "now"]
    assert "clear_at" in listed[1]


# --- markers


def marked(made: dict[str, Any]) -> list[str]:
    places = [("tool", one["name"], one) for one in made.get("tools", [])]
    places += [("system", one["text"][:1], one) for one in made.get("system", [])]
    places += [("message", str(p.get("text", p["type"]))[:1], p) for m in made["messages"] for p in m["content"]]
    return [f"{kind} {name}" for kind, name, part in places if "cache_control" in part]


def test_markers_stand_at_the_stable_end_the_system_end_and_the_tip():
    asked = request(
        user("u" * 4000),
        model=MODEL,
        system=(block("s" * 4000, volatility="stable"), block("r" * 4000)),
        tail=Text.of("t" * 4000),
    )
    assert marked(body(asked)) == ["system s", "system r", "message u"]


def test_the_longer_lifetime_goes_to_the_stable_end():
    from shoal.providers._breakpoints import MarkerRules

    asked = request(user("u" * 4000), system=(block("s" * 4000, volatility="stable"),), model=MODEL)
    made = body(asked, NEW, rules=MarkerRules(long_stable=True))
    assert made["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert_markers(made)


def test_a_body_to_be_counted_has_no_markers_and_nothing_about_generating():
    asked = request(user(LONG), model=MODEL, system=(block(LONG),), options={"thinking": {"type": "adaptive"}})
    counted = json.loads(bytes(encoder().encode(asked, counting=True).body))
    assert set(counted) == {"messages", "model", "system", "thinking"}
    assert marked(counted) == []


def test_tools_alone_can_be_marked():
    asked = request(user("x"), model=MODEL, tools=tools(tool("a", description=LONG), tool("b")))
    assert marked(body(asked)) == ["tool b", "message x"]


# --- what any transcript becomes


@given(drawn=requests(), model=st.sampled_from([MODEL, "claude-haiku-4-5", "claude-opus-4-8", "unheard-of"]))
def test_any_transcript_becomes_a_legal_body_of_the_size_that_is_said(drawn: Request, model: str):
    profile = replace(shipped_profile(model), min_cacheable_tokens=0, cache="markers")
    made = sent(drawn, profile)
    assert len(bytes(made.body)) == made.body.size
    assert_legal(json.loads(bytes(made.body)), profile)


@given(drawn=requests())
def test_the_same_request_has_the_same_bytes_from_fresh_and_from_kept_fragments(drawn: Request):
    first = encoder()
    bytes_ = bytes(first.encode(drawn).body)
    encoder(OLD).encode(drawn)
    assert bytes(first.encode(drawn).body) == bytes_


@given(closed=st.lists(messages(), max_size=6), grown=st.lists(messages(), min_size=1, max_size=6))
def test_where_segments_are_cut_changes_only_where_a_turn_is_cut(closed: list[Message], grown: list[Message]):
    whole = [*closed, user("cut here"), *grown]
    one = Request("m", messages=(segment(*whole),))
    parts = [
        part for part in (segment(*closed, closed=True) if closed else None, segment(user("cut here"), *grown)) if part
    ]
    assert_legal(body(Request("m", messages=tuple(parts)), OLD), OLD)
    assert_legal(body(one, OLD), OLD)


def test_a_marker_elsewhere_leaves_the_fragments_of_a_segment_alone():
    made = encoder(replace(NEW, min_cacheable_tokens=0))
    first = segment(user("a"), assistant("b"), user("c"), closed=True)
    made.encode(Request(MODEL, messages=(first,)))
    kept = first._wire
    later = made.encode(Request(MODEL, messages=(first, segment(assistant("d"), user("e")))))
    assert first._wire is kept
    assert kept is not None
    assert isinstance(kept[1].wire.fragments, Flat)
    assert b'"text":"e","cache_control"' in bytes(later.body)


def test_the_reprs_name_the_model():
    assert repr(encoder()) == f"<MessagesEncoder for {MODEL}>"
