"""OpenAI Responses answers, read event by event."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import (
    ContextOverflow,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
    ProviderSetup,
    ProviderUnavailable,
)
from shoal.providers import Completed, ReasoningDelta, TextDelta, Usage
from shoal.providers._refusals import Asked
from shoal.providers._responses_reply import ResponsesReply, usage_of
from shoal.providers._sse import Event, SseDecoder
from shoal.providers._states import Reader

MODEL = "gpt-6.1-sol"
ASKED = Asked("openai", MODEL)
READER = Reader("openai", MODEL, "responses")


def fresh(**settings: Any) -> ResponsesReply:
    settings = {"headers": {}, "names": {}, **settings}
    return ResponsesReply(ASKED, reader=READER, **settings)


def feed(reply: ResponsesReply, *events: dict[str, Any]) -> list[Any]:
    return [delta for event in events for delta in reply.feed(Event(json.dumps(event, ensure_ascii=False).encode()))]


def created(**more: Any) -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", **more}}


def item(index: int, start: dict[str, Any], deltas: list[dict[str, Any]], done: dict[str, Any]) -> list[dict[str, Any]]:
    middle = [{"output_index": index, **delta} for delta in deltas]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": start},
        *middle,
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


def message(index: int, *pieces: str, **more: Any) -> list[dict[str, Any]]:
    start = {"type": "message", "id": f"msg_{index}", "role": "assistant", "content": [], "status": "in_progress"}
    deltas = [{"type": "response.output_text.delta", "content_index": 0, "delta": piece} for piece in pieces]
    part = {"type": "output_text", "text": "".join(pieces), "annotations": []}
    return item(index, start, deltas, {**start, "content": [part], "status": "completed", **more})


def reasoning(index: int, thought: str = "", encrypted: str | None = "e==") -> list[dict[str, Any]]:
    start = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
    deltas = [{"type": "response.reasoning_summary_text.delta", "delta": thought}] if thought else []
    summary = [{"type": "summary_text", "text": thought}] if thought else []
    more = {} if encrypted is None else {"encrypted_content": encrypted}
    return item(index, start, deltas, {**start, "summary": summary, **more})


def call(index: int, *pieces: str, call_id: str = "call_1", name: str = "look") -> list[dict[str, Any]]:
    start = {"type": "function_call", "id": f"fc_{index}", "call_id": call_id, "name": name, "arguments": ""}
    deltas = [{"type": "response.function_call_arguments.delta", "delta": piece} for piece in pieces]
    return item(index, start, deltas, {**start, "arguments": "".join(pieces), "status": "completed"})


def end(kind: str = "completed", **more: Any) -> dict[str, Any]:
    response = {"id": "resp_1", "model": f"{MODEL}-2026-09-01", "status": kind, **more}
    return {"type": f"response.{kind}", "response": response}


def completed(*events: dict[str, Any], **settings: Any) -> Completed:
    reply = fresh(**settings)
    feed(reply, *events)
    return reply.completed(prompt_bytes=40)


USAGE = {"input_tokens": 10, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 2}}
WHOLE = [
    created(),
    {"type": "response.in_progress"},
    *reasoning(0, "hm é"),
    *message(1, "Hel", "lo\N{LINE SEPARATOR}", phase="commentary"),
    *call(2, '{"x"', ":1}"),
    *call(3, call_id="call_2", name="find"),
    {"type": "response.something_new", "delta": 1},
    end(usage=USAGE),
]


def test_a_reply_of_every_kind_of_item_is_read():
    reply = fresh()
    assert feed(reply, *WHOLE) == [ReasoningDelta("hm é"), TextDelta("Hel"), TextDelta("lo\N{LINE SEPARATOR}")]
    made = reply.completed(prompt_bytes=0)
    assert str(made.reply.text) == "Hello\N{LINE SEPARATOR}"
    assert [(c.call_id, c.name, str(c.arguments)) for c in made.reply.calls] == [
        ("call_1", "look", '{"x":1}'),
        ("call_2", "find", "{}"),
    ]
    assert (made.reply.reasoning, made.finish, made.request_id) == ("hm é", "tool_calls", "resp_1")
    assert made.usage == Usage(10, output=7, reasoning=2)


@given(cuts=st.lists(st.integers(0, 4000), max_size=30), end_=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_reply_does_not_depend_on_how_its_bytes_are_cut(cuts: list[int], end_: bytes):
    stream = b"".join(
        [
            b"event: %b%bdata:%b%b%b"
            % (e["type"].encode(), end_, json.dumps(e, ensure_ascii=False).encode(), end_, end_)
            for e in WHOLE
        ]
    )
    places = sorted({0, *[cut for cut in cuts if cut < len(stream)], len(stream)})
    decoder, reply = SseDecoder(), fresh()
    for first, last in itertools.pairwise(places):
        for event in decoder.feed(stream[first:last]):
            list(reply.feed(event))
    assert reply.completed(prompt_bytes=0) == completed(*WHOLE)


def test_what_has_to_come_back_is_kept_in_its_order():
    made = completed(*WHOLE)
    assert made.reply.state is not None
    layout = json.loads(made.reply.state.data)["state"]
    assert [part["type"] if isinstance(part, dict) else part for part in layout] == [
        "reasoning",
        ["text", len(made.reply.text), "commentary"],
        ["call", 0],
        ["call", 1],
    ]


def test_reasoning_that_was_not_encrypted_is_not_kept():
    assert completed(created(), *reasoning(0, "a", None), *message(1, "b"), end()).reply.state is None


def test_reasoning_without_a_follower_is_left_out():
    made = completed(created(), *reasoning(0), *message(1, "b"), *reasoning(2), end("incomplete"))
    assert made.reply.state is not None
    assert b"rs_0" in made.reply.state.data
    assert b"rs_2" not in made.reply.state.data


def test_reasoning_that_did_not_arrive_whole_is_left_out():
    made = completed(created(), *reasoning(0)[:1], *message(1, "b"), end())
    assert made.reply.state is None


def test_a_turn_of_reasoning_alone_leaves_nothing():
    assert completed(created(), *reasoning(0), end("incomplete")).reply.state is None


def test_an_item_of_an_unknown_kind_is_kept_as_it_came():
    strange = {"type": "novelty", "a": [1, None]}
    made = completed(created(), *item(0, strange, [], strange), *message(1, "b"), end())
    assert made.reply.state is not None
    assert b'{"type": "novelty", "a": [1, null]}' in made.reply.state.data


def test_items_that_only_the_end_names_are_taken():
    output = [message(0, "a")[-1]["item"], call(1, '{"x":1}')[-1]["item"]]
    made = completed(created(), end(output=output))
    assert (str(made.reply.text), str(made.reply.calls[0].arguments)) == ("a", '{"x":1}')


def test_an_item_that_is_never_done_is_what_its_deltas_say():
    events = [*message(0, "a", "b")[:-1], *call(1, '{"x"', ":1}")[:-1], *reasoning(2, "hm")[:-1]]
    made = completed(created(), *events, end())
    assert (str(made.reply.text), str(made.reply.calls[0].arguments), made.reply.reasoning) == ("ab", '{"x":1}', "hm")


def test_deltas_without_their_item_are_taken():
    made = completed(
        {"type": "response.output_text.delta", "output_index": 0, "delta": "a"},
        {"type": "response.reasoning_text.delta", "output_index": 1, "delta": ""},
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"x":1}'},
        {"type": "response.output_text.delta", "output_index": 0, "delta": ""},
        end(),
    )
    assert (str(made.reply.text), str(made.reply.calls[0].arguments)) == ("a", '{"x":1}')


def test_the_name_of_an_event_stands_in_for_its_type():
    reply = fresh()
    list(reply.feed(Event(b'{"response":{"status":"completed"}}', "response.completed")))
    assert reply.ended


def test_an_end_mark_of_a_gateway_says_nothing():
    reply = fresh()
    assert list(reply.feed(Event(b"[DONE]"))) == []
    assert not reply.ended


@pytest.mark.parametrize(
    ("events", "finish"),
    [
        ([*message(0, "a"), end()], "stop"),
        ([*message(0, "a"), end("incomplete", incomplete_details={"reason": "max_output_tokens"})], "length"),
        ([*message(0, "a"), end("incomplete", incomplete_details={"reason": "content_filter"})], "refusal"),
        ([*message(0, "a"), end("incomplete", incomplete_details={"reason": "steered"})], "stop"),
        ([*message(0, "a"), end("incomplete")], "stop"),
        ([{"type": "response.refusal.delta", "output_index": 0, "delta": "No."}, end()], "refusal"),
        (
            [
                *item(
                    0, {"type": "message"}, [], {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
                ),
                end(),
            ],
            "refusal",
        ),
    ],
)
def test_why_it_stopped(events: list[dict[str, Any]], finish: str):
    made = completed(created(), *events)
    assert made.finish == finish
    assert made.reply.text


def test_a_limit_that_a_server_hides_is_seen_from_what_it_counted():
    events = (created(), *message(0, "a"), end(usage={"input_tokens": 1, "output_tokens": 5}))
    assert completed(*events, limit_tokens=5).finish == "length"
    assert completed(*events, limit_tokens=6).finish == "stop"


def test_a_message_of_white_space_is_no_text():
    made = completed(created(), *message(0, "\n"), *message(1, "b"), end())
    assert str(made.reply.text) == "b"


def test_names_lead_back_to_our_own_and_ids_are_distinct():
    made = completed(created(), *call(0, call_id=""), *call(1), *call(2), end(), names={"look": "l.k"})
    assert {c.name for c in made.reply.calls} == {"l.k"}
    assert len({c.call_id for c in made.reply.calls}) == 3


def test_a_whole_response_is_read_as_one_event():
    whole = {"object": "response", "status": "completed", "output": [message(0, "a")[-1]["item"]], "usage": USAGE}
    reply = fresh()
    assert feed(reply, whole) == [TextDelta("a")]
    assert reply.completed(prompt_bytes=0).usage.input == 10


# --- usage


def test_counters_are_split_into_disjoint_buckets():
    counted = usage_of(
        {
            "input_tokens": 100,
            "input_tokens_details": {
                "cached_tokens": 40,
                "cache_write_tokens": 30,
                "cache_write_tokens_details": {"ttl_30m_tokens": 20, "ttl_12h_tokens": 10},
            },
            "output_tokens": 9,
        }
    )
    assert counted == Usage(30, 40, 20, 10, 9)


def test_counters_that_contradict_each_other_stay_within_the_total():
    counted = usage_of({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 9}})
    assert counted == Usage(0, 5)


def test_a_server_that_counts_nothing_is_estimated():
    made = completed(created(), *message(0, "abcd"), end())
    assert (made.estimated, made.usage) == (True, Usage(uncached=10, output=1))


# --- errors


@pytest.mark.parametrize(
    ("event", "leaf"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, ProviderBusy),
        ({"type": "error", "error": {"code": "insufficient_quota", "message": "pay"}}, ProviderSetup),
        ({"type": "error", "error": {"code": "context_length_exceeded", "message": "long"}}, ContextOverflow),
        (end("failed", error={"code": "server_error", "message": "oops"}), ProviderUnavailable),
        (end("failed", error={"code": "invalid_prompt", "message": "no"}), ProviderRefused),
        (end("failed"), ProviderUnavailable),
        ({"type": "response.failed"}, ProviderUnavailable),
        ({"type": "response.completed", "response": {"status": "cancelled"}}, ProviderUnavailable),
        ({"object": "response", "status": "in_progress"}, ProviderUnavailable),
        ({"error": {"code": "server_error"}}, ProviderUnavailable),
    ],
)
def test_an_error_in_the_stream_is_raised_by_its_type(event: dict[str, Any], leaf: type[ProviderError]):
    reply = fresh()
    feed(reply, created(), *message(0, "a"))
    with pytest.raises(leaf):
        feed(reply, event)


def test_a_stream_without_its_end_is_cut():
    reply = fresh()
    feed(reply, created(), *message(0, "a"))
    with pytest.raises(ProviderUnavailable, match="end mark") as caught:
        reply.completed(prompt_bytes=0)
    assert caught.value.request_id == "resp_1"


def test_the_repr_says_how_far_it_is():
    reply = fresh()
    feed(reply, *message(0, "a"))
    assert repr(reply) == f"<ResponsesReply of {MODEL}, 1 items>"


def test_what_the_model_drew_is_a_part():
    picture = {"type": "image_generation_call", "id": "ig_1", "result": base64.b64encode(b"bytes").decode()}
    begun = {"type": "image_generation_call", "id": "ig_0", "result": None}
    reply = fresh()
    feed(reply, *item(0, picture, [], picture), *item(1, begun, [], begun), {"type": "response.completed"})
    made = reply.completed(prompt_bytes=0).reply
    assert (made.parts, made.state) == ((b"bytes",), None)


def test_a_reply_that_was_cut_at_its_limit_says_so_by_its_event_alone():
    response = {"incomplete_details": {"reason": "max_output_tokens"}}
    assert completed(*message(0, "a"), {"type": "response.incomplete", "response": response}).finish == "length"


def test_a_character_that_was_cut_in_an_item_that_goes_back_is_replaced_there():
    reply = fresh()
    item = b'{"type":"reasoning","encrypted_content":"e","a":"b\xff"}'
    damaged = b'{"type":"response.output_item.done","output_index":0,"item":%b}' % item
    assert list(reply.feed(Event(damaged))) == []
    feed(reply, *message(1, "c"), end())
    state = reply.completed(prompt_bytes=0).reply.state
    assert state is not None
    assert '"a":"b\N{REPLACEMENT CHARACTER}"'.encode() in state.data


def test_an_end_is_one_though_its_response_still_calls_itself_in_progress():
    made = completed(*message(0, "a"), {"type": "response.completed", "response": {"status": "in_progress"}})
    assert (str(made.reply.text), made.finish) == ("a", "stop")
