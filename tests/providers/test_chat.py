"""Requests as Chat Completions bodies."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import (
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
    SERVERS,
    Capabilities,
    Message,
    ModelProfile,
    ProviderState,
    Request,
    Segment,
    Text,
    ToolCall,
    Wire,
    chat_encoder,
)
from shoal.providers._states import Reader
from shoal.providers._wire import Flat, _walk

GENERIC = chat_encoder(SERVERS["generic"])


def body(request: Request, server: str = "generic") -> dict[str, Any]:
    wire = chat_encoder(SERVERS[server], "p", "m").encode(request)
    decoded: dict[str, Any] = json.loads(bytes(wire))
    return decoded


def sent(request: Request, server: str = "generic") -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = body(request, server)["messages"]
    return listed


def assert_legal(listed: list[dict[str, Any]]) -> None:
    """Check rules O1 to O5 on what is sent."""
    assert listed
    waiting: list[str] = []
    for message in listed:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(message["content"], str)
            continue
        assert not waiting
        calls = message.get("tool_calls", [])
        assert message["content"] or calls
        assert "tool_calls" not in message or (message["role"] == "assistant" and calls)
        waiting = [call["id"] for call in calls]
        assert len(set(waiting)) == len(waiting)
        assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
    assert not waiting


# --- messages


def test_a_conversation_is_sent_as_it_is():
    talk = request(
        user("hi"), assistant("", ask("a", "look", '{"x": 1}')), result("a", "found"), assistant("so"), user("?")
    )
    assert sent(talk) == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "found"},
        {"role": "assistant", "content": "so"},
        {"role": "user", "content": "?"},
    ]


def test_pieces_of_a_text_are_joined():
    assert sent(request(Message("user", (Text.of("a\n"), Text.of('"b"')))))[0]["content"] == 'a\n"b"'


def test_an_assistant_that_speaks_and_calls_keeps_its_text():
    assert sent(request(user("x"), assistant("why", ask("a")), result("a")))[1]["content"] == "why"


def test_a_conversation_that_an_assistant_begins_gets_a_user_in_front():
    assert [m["content"] for m in sent(request(assistant("hello"), user("hi")))] == ["Begin.", "hello", "hi"]


def test_a_conversation_that_an_assistant_ends_goes_on_with_a_user():
    assert sent(request(user("hi"), assistant("hello")))[-1] == {"role": "user", "content": "Continue."}


def test_a_request_without_a_conversation_has_a_user_message():
    assert sent(request(system=(block("Be brief."),))) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Begin."},
    ]


def test_a_system_message_in_the_conversation_stays_there():
    assert [m["role"] for m in sent(request(user("a"), Message("system", (Text.of("now"),))))] == ["user", "system"]


def test_results_in_the_segment_behind_their_call_are_not_lost():
    split = Request("m", messages=(segment(user("x"), assistant("", ask("a"))), segment(result("a", "A"), user("y"))))
    assert [m["content"] for m in sent(split)] == ["x", None, "A", "y"]


def test_a_call_cut_off_from_its_result_over_three_segments_finds_it():
    call = assistant("", ask("a"), ask("b"))
    split = Request("m", messages=(segment(user("x"), call), segment(result("a", "A")), segment(result("b", "B"))))
    assert [m["content"] for m in sent(split)] == ["x", None, "A", "B"]


def test_a_call_at_the_end_of_a_segment_is_answered_before_the_next_segment():
    split = Request("m", messages=(segment(user("x"), assistant("", ask("a"))), segment(user("y"))))
    assert [m["role"] for m in sent(split)] == ["user", "assistant", "tool", "user"]


def test_a_segment_that_says_nothing_leaves_no_trace():
    empty = Request("m", messages=(segment(result("a")), segment(user("y"))))
    assert sent(empty) == [{"role": "user", "content": "y"}]


# --- the tail


def test_the_tail_stands_behind_the_text_of_the_last_user_message():
    assert sent(request(user("hi"), tail=Text.of("## now")))[-1] == {"role": "user", "content": "hi\n\n## now"}


def test_the_tail_stands_behind_the_text_of_the_last_result():
    last = sent(request(user("x"), assistant("", ask("a")), result("a", "A"), tail=Text.of("T")))[-1]
    assert (last["role"], last["content"]) == ("tool", "A\n\nT")


def test_the_tail_of_an_empty_result_is_all_it_says():
    assert sent(request(user("x"), assistant("", ask("a")), result("a", ""), tail=Text.of("T")))[-1]["content"] == "T"


def test_the_tail_behind_an_assistant_is_a_user_message():
    assert sent(request(user("x"), assistant("y"), tail=Text.of("T")))[-1] == {"role": "user", "content": "T"}


def test_the_tail_behind_a_system_message_is_a_user_message():
    assert sent(request(Message("system", (Text.of("s"),)), tail=Text.of("T")))[-1]["content"] == "T"


def test_a_tail_without_a_conversation_is_the_conversation():
    assert sent(request(tail=Text.of("T"))) == [{"role": "user", "content": "T"}]


def test_the_tail_stands_behind_the_last_message_of_a_closed_segment():
    closed = segment(user("a"), user("b"), closed=True)
    assert [m["content"] for m in sent(Request("m", messages=(closed,), tail=Text.of("T")))] == ["a", "b\n\nT"]


def test_the_tail_is_gone_from_the_next_request():
    talk = segment(user("hi"))
    assert len(sent(Request("m", messages=(talk,), tail=Text.of("T")))[0]["content"]) > 2
    assert sent(Request("m", messages=(talk,)))[0]["content"] == "hi"


# --- the system section


def test_system_blocks_are_joined_by_blank_lines():
    assert sent(request(user("x"), system=(block("A"), block(""), block("B"))))[0] == {
        "role": "system",
        "content": "A\n\nB",
    }


def test_system_blocks_travel_alone_where_the_server_takes_several():
    listed = sent(request(user("x"), system=(block("A"), block("B"))), "openrouter")
    assert [m["content"] for m in listed] == ["A", "B", "x"]


def test_the_system_speaks_in_the_role_that_the_server_gives_it():
    encoder = chat_encoder(Capabilities("other", system_role="developer"))
    wire = encoder.encode(request(user("x"), Message("system", (Text.of("now"),)), system=(block("A"),)))
    assert [m["role"] for m in json.loads(bytes(wire))["messages"]] == ["developer", "user", "developer"]


def test_no_system_message_is_sent_for_empty_blocks():
    assert [m["role"] for m in sent(request(user("x"), system=(block(""),)))] == ["user"]


# --- tools and ids


def test_tools_are_sent_with_names_that_the_vendor_takes():
    made = body(request(user("x"), tools=tools(tool("server.tool"), tool("look"))))["tools"]
    assert made[1] == {
        "type": "function",
        "function": {"name": "look", "description": "Looks.", "parameters": json.loads(tool().schema)},
    }
    assert made[0]["function"]["name"].startswith("server_tool_")


@pytest.mark.parametrize(
    ("choice", "forced", "sent"),
    [
        ("auto", True, "auto"),
        ("required", True, "required"),
        ("required", False, "auto"),
        ({"type": "function", "function": {"name": "look"}}, True, {"type": "function", "function": {"name": "look"}}),
        ({"type": "function", "function": {"name": "look"}}, False, "auto"),
        ({"type": "function", "function": {"name": "gone"}}, True, None),
    ],
)
def test_a_choice_of_tools_is_one_that_can_be_had(choice: object, forced: bool, sent: object):
    encoder = chat_encoder(SERVERS["openai"], "p", "m", ModelProfile("m", forced_tools=forced))
    asked = request(user("x"), tools=tools(tool("look")), options={"tool_choice": choice})
    assert json.loads(bytes(encoder.encode(asked))).get("tool_choice") == sent


def test_a_tool_that_is_chosen_goes_by_the_name_under_which_it_is_sent():
    choice = {"type": "function", "function": {"name": "server.tool"}}
    made = body(request(user("x"), tools=tools(tool("server.tool")), options={"tool_choice": choice}))
    assert made["tool_choice"]["function"]["name"] == made["tools"][0]["function"]["name"] != "server.tool"


def test_effort_is_the_nearest_that_the_model_takes():
    encoder = chat_encoder(SERVERS["openai"], "p", "m", ModelProfile("m", efforts=("low", "high")))
    asked = request(user("x"), options={"reasoning_effort": "medium"})
    assert json.loads(bytes(encoder.encode(asked)))["reasoning_effort"] == "low"
    assert body(asked)["reasoning_effort"] == "medium"


def test_a_schema_that_describes_no_object_takes_any_object():
    offered = tools(tool("a", b'{"properties":{}}'), tool("b", b"[]"), tool("c", b'{"type":"string"}'), tool("d"))
    made = body(request(user("x"), tools=offered))["tools"]
    assert [one["function"]["parameters"]["type"] for one in made] == ["object"] * 4


def test_names_of_tools_lead_back():
    made = GENERIC.tools(tools(tool("server.tool")))
    assert list(made.names.values()) == ["server.tool"]


def test_a_request_without_tools_has_no_field_for_them():
    made = body(request(user("x"), options={"tool_choice": "auto", "parallel_tool_calls": False}))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & made.keys()


def test_more_tools_than_the_server_takes_are_refused():
    many = tools(*[tool(f"t{number}") for number in range(129)])
    with pytest.raises(ProviderRefused, match="129 tools"):
        body(request(user("x"), tools=many))
    assert len(body(request(user("x"), tools=many), "vllm")["tools"]) == 129


def test_ids_have_nine_characters_where_the_server_wants_them():
    listed = sent(request(user("x"), assistant("", ask("call_123456789")), result("call_123456789")), "mistral")
    call_id = listed[1]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert call_id.isalnum()
    assert listed[2]["tool_call_id"] == call_id


def test_one_id_used_twice_in_a_turn_is_two_ids_on_the_wire():
    listed = sent(request(user("x"), assistant("", ask("a"), ask("a")), result("a", "1"), result("a", "2")))
    assert_legal(listed)
    assert [m["content"] for m in listed] == ["x", None, "1", "2"]


# --- settings


def test_settings_stand_behind_the_messages_in_order():
    made = body(request(user("x"), max_tokens=7, temperature=0.5, options={"seed": 3}))
    assert list(made) == ["model", "messages", "max_tokens", "seed", "stream", "stream_options", "temperature"]
    assert (made["max_tokens"], made["temperature"], made["seed"]) == (7, 0.5, 3)


def test_a_model_that_takes_no_temperature_gets_none():
    sampled = request(user("x"), temperature=0.5, options={"top_p": 0.9, "temperature": 1, "seed": 2})
    made = json.loads(bytes(GENERIC.encode(sampled, temperature=False)))
    assert not {"temperature", "top_p"} & made.keys()
    assert made["seed"] == 2


def test_a_request_that_does_not_stream_says_nothing_of_streams():
    made = json.loads(bytes(GENERIC.encode(request(user("x")), stream=False)))
    assert made["stream"] is False
    assert "stream_options" not in made


def test_azure_calls_the_reply_budget_by_its_newer_name():
    made = body(request(user("x"), max_tokens=9), "azure")
    assert made["max_completion_tokens"] == 9
    assert "max_tokens" not in made


def test_mistral_is_not_asked_for_a_usage_chunk():
    assert "stream_options" not in body(request(user("x")), "mistral")


@pytest.mark.parametrize("name", ["max_tokens", "messages", "model", "stream", "stream_options", "tools"])
def test_an_option_that_the_request_itself_says_is_refused(name: str):
    with pytest.raises(ProviderRefused, match=f"`{name}` is made from the request"):
        body(request(user("x"), options={name: 1}))


def test_more_than_one_reply_is_refused():
    with pytest.raises(ProviderRefused, match="one reply") as caught:
        GENERIC.encode(request(user("x"), options={"n": 2}), provider="acme")
    assert (caught.value.provider, caught.value.model) == ("acme", "m")


def schema(**inner: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, **inner}}}


LOOSE = {"type": "object", "properties": {"a": {"type": "string"}}}
STRICT = {**LOOSE, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 2.5},
        {"temperature": "hot"},
        {"top_logprobs": 21},
        {"presence_penalty": -3},
        {"stop": ["a"] * 5},
        schema(name="a b"),
        schema(schema=LOOSE),
        schema(
            schema={
                "type": "object",
                "properties": {"x": {"anyOf": [LOOSE]}},
                "required": ["x"],
                "additionalProperties": False,
            }
        ),
    ],
)
def test_what_a_strict_server_would_refuse_is_not_sent(options: dict[str, Any]):
    with pytest.raises(ProviderRefused):
        body(request(user("x"), options=options), "azure")
    assert body(request(user("x"), options=options))


@pytest.mark.parametrize(
    "options", [{"temperature": None}, {"stop": "a"}, schema(schema=STRICT), schema(strict=False, schema=LOOSE)]
)
def test_what_a_strict_server_takes_is_sent(options: dict[str, Any]):
    assert body(request(user("x"), options=options), "azure").items() >= options.items()


# --- reasoning that has to come back


def test_reasoning_goes_back_to_the_model_that_made_it_only():
    states = [
        Reader("p", "m", "chat").seal(b'"because"'),
        Reader("p", "another", "chat").seal(b'"because"'),
        Reader("other", "m", "chat").seal(b'"because"'),
        Reader("p", "m", "messages").seal(b'"because"'),
        ProviderState("p", "m", b"not sealed"),
    ]
    turns = [turn for state in states for turn in (user("x"), assistant("a", state=state))]
    listed = sent(request(*turns, user("y")), "deepseek")
    assert [m["reasoning_content"] for m in listed if "reasoning_content" in m] == ["because"]


def test_two_assistant_turns_in_a_row_have_a_user_between_them():
    two = request(user("x"), assistant("a"), assistant("b"), user("y"))
    assert [m["content"] for m in sent(two)] == ["x", "a", "Continue.", "b", "y"]


def test_two_assistant_turns_of_two_segments_have_a_user_between_them():
    two = Request("m", messages=(segment(user("x"), assistant("a")), segment(assistant("b"), user("y"))))
    assert [m["content"] for m in sent(two)] == ["x", "a", "Continue.", "b", "y"]


def test_reasoning_goes_back_to_no_server_that_does_not_ask():
    listed = sent(request(user("x"), assistant("a", state=ProviderState("p", "m", b'"r"')), user("y")))
    assert listed[1] == {"role": "assistant", "content": "a"}


# --- what any transcript becomes


@given(drawn=requests(), server=st.sampled_from(sorted(SERVERS)))
def test_any_transcript_becomes_a_legal_body_of_the_size_that_is_said(drawn: Request, server: str):
    wire = chat_encoder(SERVERS[server]).encode(drawn)
    assert len(bytes(wire)) == wire.size
    assert_legal(json.loads(bytes(wire))["messages"])


@given(drawn=requests())
def test_the_same_request_has_the_same_bytes_from_fresh_and_from_kept_fragments(drawn: Request):
    first = bytes(GENERIC.encode(drawn))
    chat_encoder(SERVERS["mistral"]).encode(drawn)
    assert bytes(GENERIC.encode(drawn)) == first


@given(closed=st.lists(messages(), max_size=6), grown=st.lists(messages(), min_size=1, max_size=6), data=st.data())
def test_what_stands_in_front_of_the_open_segment_keeps_its_bytes(
    closed: list[Message], grown: list[Message], data: st.DataObject
):
    front = (segment(user("start"), *closed, user("and"), closed=True),)
    shorter = grown[: data.draw(st.integers(0, len(grown)))]
    before = bytes(GENERIC.encode(Request("m", messages=(*front, segment(user("on"), *shorter)))))
    after = bytes(GENERIC.encode(Request("m", messages=(*front, segment(user("on"), *grown)))))
    prefix = bytes(GENERIC.encode(Request("m", messages=(*front, segment(user("on")))))).rpartition(b"}]")[0]
    assert before.startswith(prefix[:-1])
    assert after.startswith(prefix[:-1])


@given(texts=st.lists(st.text(min_size=1, max_size=5).filter(str.strip), min_size=1, max_size=6))
def test_a_legal_conversation_that_grows_only_appends_bytes(texts: list[str]):
    spoken = [user(t) if index % 2 == 0 else assistant(t) for index, t in enumerate(texts)]
    bodies = [bytes(GENERIC.messages(request(*spoken[: n + 1]))) for n in range(0, len(spoken), 2)]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(bodies))


# --- what encoding costs


def long_request(segments: int, each: int) -> Request:
    made = [
        segment(*[user(f"{n} {m}") if m % 2 == 0 else assistant(f"{n} {m}") for m in range(each)], closed=True)
        for n in range(segments)
    ]
    return Request("m", messages=(*made, segment(user("last"))))


def nodes(wire: Wire) -> int:
    """Return how many fragments a request is made of: those that never change count as one."""
    return sum(1 for _ in _walk(wire.fragments))


def test_a_text_travels_as_the_very_bytes_of_the_window():
    text = Text.of("x" * 1000)
    wire = GENERIC.encode(request(Message("user", (text,)), system=(block("s"),)))
    assert any(leaf is text.body for leaf in wire.leaves())


def test_arguments_travel_as_the_very_bytes_of_the_window():
    call = ToolCall("a", "look", Text.of('{"x": 1}'))
    wire = GENERIC.encode(request(user("x"), assistant("", call), result("a")))
    assert any(leaf is call.arguments.body for leaf in wire.leaves())


def test_a_request_has_a_fragment_for_each_segment_and_none_for_each_message():
    few, many = GENERIC.encode(long_request(10, 2)), GENERIC.encode(long_request(10, 200))
    assert nodes(few) == nodes(many)


def test_a_closed_segment_has_the_bytes_of_an_open_one_and_no_tree():
    said = [user("a"), assistant("b", ask("1")), result("1"), user("c")]
    open_one, closed = segment(*said), segment(*said, closed=True)
    assert bytes(GENERIC.segment(open_one).wire) == bytes(GENERIC.segment(closed).wire)
    assert isinstance(GENERIC.segment(closed).wire.fragments, Flat)


def test_a_segment_is_encoded_once():
    talk = long_request(3, 4)
    kept = [GENERIC.segment(part) for part in talk.messages]
    GENERIC.encode(talk)
    assert all(GENERIC.segment(part) is was for part, was in zip(talk.messages, kept, strict=True))


def test_a_message_in_a_segment_that_grew_is_not_encoded_again():
    first = user("first")
    GENERIC.encode(Request("m", messages=(segment(first),)))
    kept = first._wire
    GENERIC.encode(Request("m", messages=(Segment("c", (first, user("second")), 2),)))
    assert kept is not None
    assert first._wire is kept


def test_a_block_is_encoded_once():
    said = block("s")
    assert GENERIC.block(said) is GENERIC.block(said)


def test_encoders_for_equal_servers_are_one():
    assert chat_encoder(SERVERS["vllm"], "a", "b") is chat_encoder(SERVERS["vllm"])
    assert chat_encoder(SERVERS["deepseek"], "a", "b") is not chat_encoder(SERVERS["deepseek"], "a", "c")


def test_the_repr_names_server_and_model():
    assert repr(chat_encoder(SERVERS["deepseek"], "a", "b")) == "<ChatEncoder for deepseek b>"
