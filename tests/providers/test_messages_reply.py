"""Anthropic Messages answers, read event by event."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import user

from shoal.errors import ProviderBusy, ProviderRefused, ProviderUnavailable
from shoal.providers import (
    Completed,
    Message,
    ReasoningDelta,
    Request,
    Segment,
    Text,
    TextDelta,
    Usage,
    shipped_profile,
)
from shoal.providers._messages import MessagesEncoder
from shoal.providers._messages_reply import MessagesReply, usage_of
from shoal.providers._refusals import Asked
from shoal.providers._sse import Event, SseDecoder
from shoal.providers._states import Reader

MODEL = "claude-opus-5-5"
ASKED = Asked("anthropic", MODEL)
READER = Reader("anthropic", MODEL, "messages")


def fresh(**settings: Any) -> MessagesReply:
    return MessagesReply(ASKED, headers=settings.get("headers", {}), names=settings.get("names", {}), reader=READER)


def feed(reply: MessagesReply, *events: dict[str, Any]) -> list[Any]:
    return [delta for event in events for delta in reply.feed(Event(json.dumps(event).encode(), event["type"]))]


def start(**usage: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "model": f"{MODEL}-20261001", "content": [], "usage": usage}
    return {"type": "message_start", "message": message}


def block(index: int, kind: str, *deltas: dict[str, Any], **content: Any) -> list[dict[str, Any]]:
    said = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    opened = {"type": "content_block_start", "index": index, "content_block": {"type": kind, **content}}
    return [opened, *said, {"type": "content_block_stop", "index": index}]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    return block(index, "text", *[{"type": "text_delta", "text": piece} for piece in pieces], text="")


def thinking(index: int, thought: str, signature: str = "c2ln") -> list[dict[str, Any]]:
    deltas = [{"type": "thinking_delta", "thinking": thought}, {"type": "signature_delta", "signature": signature}]
    return block(index, "thinking", *deltas, thinking="", signature="")


def tool(index: int, *pieces: str, name: str = "look", id_: str = "toolu_1", **content: Any) -> list[dict[str, Any]]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, "tool_use", *deltas, **{"id": id_, "name": name, "input": {}, **content})


def end(reason: str = "end_turn", details: Any = None, **usage: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def completed(*events: dict[str, Any], **settings: Any) -> Completed:
    reply = fresh(**settings)
    feed(reply, *events)
    return reply.completed(prompt_bytes=40)


WHOLE = [
    start(input_tokens=10, cache_read_input_tokens=3, output_tokens=1),
    {"type": "ping"},
    *thinking(0, "hm é"),
    *text(1, "Hel", "lo\N{LINE SEPARATOR}"),
    *tool(2, "", '{"x"', ":1}"),
    *block(3, "redacted_thinking", data="eA=="),
    *tool(4, name="find", id_="toolu_2"),
    {"type": "something_new", "data": 1},
    *end("tool_use", output_tokens=20),
]


def test_a_reply_of_every_kind_of_block_is_read():
    reply = fresh()
    assert feed(reply, *WHOLE) == [ReasoningDelta("hm é"), TextDelta("Hel"), TextDelta("lo\N{LINE SEPARATOR}")]
    assert reply.ended
    made = reply.completed(prompt_bytes=0)
    assert str(made.reply.text) == "Hello\N{LINE SEPARATOR}"
    assert [(c.call_id, c.name, str(c.arguments)) for c in made.reply.calls] == [
        ("toolu_1", "look", '{"x":1}'),
        ("toolu_2", "find", "{}"),
    ]
    assert (made.reply.reasoning, made.finish, made.model) == ("hm é", "tool_calls", f"{MODEL}-20261001")
    assert made.usage == Usage(10, 3, output=20)
    assert not made.estimated


def test_what_came_goes_back_as_it_came():
    made = completed(*WHOLE)
    turn = Message("assistant", (made.reply.text,), made.reply.calls, state=made.reply.state)
    results = [Message("tool", (Text.of("r"),), call_id=call.call_id) for call in made.reply.calls]
    asked = Request(MODEL, messages=(Segment("c", (user("x"), turn, *results), 1),))
    sent = json.loads(bytes(MessagesEncoder("anthropic", shipped_profile(MODEL)).encode(asked).body))
    assert sent["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm é", "signature": "c2ln"},
        {"type": "text", "text": "Hello\N{LINE SEPARATOR}"},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"x": 1}},
        {"type": "redacted_thinking", "data": "eA=="},
        {"type": "tool_use", "id": "toolu_2", "name": "find", "input": {}},
    ]


@given(cuts=st.lists(st.integers(0, 4000), max_size=30), end_=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_reply_does_not_depend_on_how_its_bytes_are_cut(cuts: list[int], end_: bytes):
    lines = [
        b"event: %b%bdata: %b%b%b" % (e["type"].encode(), end_, json.dumps(e, ensure_ascii=False).encode(), end_, end_)
        for e in WHOLE
    ]
    stream = b"\xef\xbb\xbf: hello" + end_ + b"".join(lines)
    places = sorted({0, *[cut for cut in cuts if cut < len(stream)], len(stream)})
    decoder, reply = SseDecoder(), fresh()
    for first, last in itertools.pairwise(places):
        for event in decoder.feed(stream[first:last]):
            list(reply.feed(event))
    assert reply.completed(prompt_bytes=0) == completed(*WHOLE)


def test_without_thoughts_nothing_has_to_come_back():
    assert completed(start(), *text(0, "a"), *end()).reply.state is None


def test_a_thought_behind_the_last_text_cannot_end_a_turn_and_is_left_out():
    state = completed(start(), *thinking(0, "a"), *text(1, "b"), *thinking(2, "c"), *end()).reply.state
    assert state is not None
    assert b'"c"' not in state.data
    assert b'"a"' in state.data


def test_a_thought_alone_is_no_turn():
    assert completed(start(), *thinking(0, "a"), *end("max_tokens")).reply.state is None


def test_a_thought_without_its_signature_is_left_out():
    made = completed(start(), *thinking(0, "a", ""), *text(1, "b"), *end())
    assert (made.reply.state, made.reply.reasoning) == (None, "a")


def test_a_thought_that_is_only_a_signature_is_kept():
    signed = block(0, "thinking", {"type": "signature_delta", "signature": "s"}, thinking="", signature="")
    state = completed(start(), *signed, *text(1, "b"), *end()).reply.state
    assert state is not None
    assert b'{"type":"thinking","thinking":"","signature":"s"}' in state.data


def test_a_block_of_an_unknown_kind_is_kept_as_it_came():
    made = completed(start(), *block(0, "novelty", a=[1, {"b": None}]), *text(1, "b"), *end())
    assert made.reply.state is not None
    assert b'{"type": "novelty", "a": [1, {"b": null}]}' in made.reply.state.data


def test_the_streamed_input_of_an_unknown_block_is_put_in():
    piece = {"type": "input_json_delta", "partial_json": '{"q":1}'}
    made = completed(start(), *block(0, "server_tool_use", piece, id="s", input={}), *text(1, "b"), *end())
    assert made.reply.state is not None
    assert b'"input":{"q":1}' in made.reply.state.data
    broken = {"type": "input_json_delta", "partial_json": "{"}
    assert completed(start(), *block(0, "server_tool_use", broken), *text(1, "b"), *end()).reply.state is None


def test_a_block_of_white_space_is_no_text():
    made = completed(start(), *thinking(0, "a"), *text(1, "\n\n"), *text(2, "b"), *end())
    assert str(made.reply.text) == "b"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "stop"),
        ("a_new_one", "stop"),
    ],
)
def test_why_it_stopped(reason: str, finish: str):
    assert completed(start(), *text(0, "a"), *end(reason)).finish == finish


def test_calls_are_calls_whatever_the_stop_reason_says():
    assert completed(start(), *tool(0), *end("end_turn")).finish == "tool_calls"


def test_what_was_said_before_a_refusal_is_thrown_away():
    details = {"type": "refusal", "category": "cyber", "explanation": "No."}
    made = completed(start(), *thinking(0, "a"), *text(1, "Well"), *tool(2), *end("refusal", details))
    assert (made.finish, str(made.reply.text), made.reply.calls, made.reply.state) == ("refusal", "No.", (), None)
    assert str(completed(start(), *text(0, "W"), *end("refusal")).reply.text) == ""


def test_arguments_that_came_whole_are_taken():
    made = completed(start(), *tool(0, input={"x": 1}), *end())
    assert str(made.reply.calls[0].arguments) == '{"x":1}'


def test_malformed_arguments_stay_as_the_model_wrote_them():
    assert str(completed(start(), *tool(0, '{"x"'), *end("max_tokens")).reply.calls[0].arguments) == '{"x"'


def test_missing_and_repeated_ids_are_replaced():
    ids = [
        c.call_id
        for c in completed(start(), *tool(0, id_=""), *tool(1, id_="a"), *tool(2, id_="a"), *end()).reply.calls
    ]
    assert len(set(ids)) == 3


def test_names_lead_back_to_our_own():
    assert completed(start(), *tool(0, name="s_t"), *end(), names={"s_t": "s.t"}).reply.calls[0].name == "s.t"


def test_a_start_that_got_lost_is_made_up():
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {}}},
    ]
    made = completed(*deltas, *end(output_tokens=1))
    assert (str(made.reply.text), made.reply.reasoning, made.model) == ("a", "hm", MODEL)


def test_a_whole_message_is_read_as_one_event():
    whole = {
        "type": "message",
        "model": "m-1",
        "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "look", "input": {"x": 1}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    made = completed(whole)
    assert (str(made.reply.text), made.model, made.usage) == ("a", "m-1", Usage(3, output=2))
    assert str(made.reply.calls[0].arguments) == '{"x":1}'


# --- usage


def test_a_later_counter_replaces_an_earlier_one():
    made = completed(
        start(input_tokens=10, cache_creation_input_tokens=5, output_tokens=1),
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 4, "input_tokens": 10}},
        *end(output_tokens=9, cache_read_input_tokens=None),
    )
    assert made.usage == Usage(10, cache_write=5, output=9)


def test_writes_are_split_by_their_lifetime():
    created = {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}
    counted = usage_of({"input_tokens": 1, "cache_creation_input_tokens": 7, "cache_creation": created})
    assert counted == Usage(1, cache_write=3, cache_write_long=4)


def test_thinking_is_a_part_of_the_output():
    assert usage_of({"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}) == Usage(
        output=9, reasoning=4
    )


def test_a_server_that_counts_nothing_is_estimated():
    made = completed({"type": "message_start"}, *text(0, "abcd"), {"type": "message_stop"})
    assert (made.estimated, made.usage) == (True, Usage(uncached=10, output=1))


# --- errors


@pytest.mark.parametrize(
    ("kind", "leaf"),
    [
        ("overloaded_error", ProviderBusy),
        ("api_error", ProviderUnavailable),
        ("invalid_request_error", ProviderRefused),
    ],
)
def test_an_error_in_the_stream_is_raised_by_its_type(kind: str, leaf: type[Exception]):
    reply = fresh()
    feed(reply, start(), *text(0, "a"))
    with pytest.raises(leaf):
        feed(reply, {"type": "error", "error": {"type": kind, "message": "no"}})


def test_an_error_without_a_type_is_one_too():
    with pytest.raises(ProviderUnavailable):
        list(fresh().feed(Event(b'{"error":{"message":"no"}}')))


def test_a_stream_without_its_end_is_cut():
    reply = fresh(headers={"request-id": "r-1"})
    feed(reply, start(), *text(0, "a"), {"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    with pytest.raises(ProviderUnavailable, match="end mark") as caught:
        reply.completed(prompt_bytes=0)
    assert caught.value.request_id == "r-1"


@pytest.mark.parametrize("data", [b"hello", b"[]", b'{"type":1}'])
def test_an_event_of_another_api_is_an_error(data: bytes):
    with pytest.raises(ProviderUnavailable, match="none of its API"):
        list(fresh().feed(Event(data)))


def test_the_repr_says_how_far_it_is():
    reply = fresh()
    feed(reply, *text(0, "a"))
    assert repr(reply) == f"<MessagesReply of {MODEL}, 1 blocks>"


def test_a_character_that_was_cut_in_a_block_that_goes_back_is_replaced_there():
    reply = fresh()
    feed(reply, start())
    damaged = b'{"type":"content_block_start","index":0,"content_block":{"type":"novelty","a":"b\xff"}}'
    assert list(reply.feed(Event(damaged))) == []
    feed(reply, *text(1, "c"), *end())
    state = reply.completed(prompt_bytes=0).reply.state
    assert state is not None
    assert '{"type":"novelty","a":"b\N{REPLACEMENT CHARACTER}"}'.encode() in state.data


def test_a_block_that_is_no_object_is_an_error():
    whole = {"type": "message", "content": ["a"], "stop_reason": "end_turn"}
    with pytest.raises(ProviderUnavailable, match="none of its API"):
        feed(fresh(), whole)
