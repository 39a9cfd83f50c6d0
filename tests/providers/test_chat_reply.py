"""Chat Completions answers, read chunk by chunk."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProviderBusy, ProviderUnavailable
from shoal.providers import Completed, ReasoningDelta, TextDelta, ToolCall, Usage
from shoal.providers._calls import CallAssembler, CallDelta, FunctionDelta
from shoal.providers._chat_reply import ChatReply, usage_of
from shoal.providers._refusals import Asked
from shoal.providers._sse import Event, SseDecoder

ASKED = Asked("acme", "m")


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def fresh(**settings: Any) -> ChatReply:
    return ChatReply(ASKED, headers={}, names=settings.pop("names", {}), **settings)


def fed(reply: ChatReply, data: bytes) -> list[Any]:
    return list(reply.feed(Event(data)))


def completed(*chunks: dict[str, Any], prompt_bytes: int = 0, **settings: Any) -> Completed:
    reply = fresh(**settings)
    for chunk in chunks:
        fed(reply, json.dumps(chunk).encode())
    fed(reply, b"[DONE]")
    return reply.completed(prompt_bytes=prompt_bytes)


def called(*deltas: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    chunks = [delta(tool_calls=None if one is None else [one]) for one in deltas]
    return [(c.call_id, c.name, str(c.arguments)) for c in completed(*chunks).reply.calls]


def piece(arguments: Any = None, name: str | None = None, **said: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**said, "function": function}


WHOLE = (
    delta(role="assistant", content=None),
    delta(content="Grüße\N{LINE SEPARATOR}\N{FISH}"),
    delta(reasoning_content="hm"),
    delta(tool_calls=[{"index": 0, "id": "a", **piece('{"x":', name="look")}]),
    delta(tool_calls=[{"index": 0, **piece('"é"}')}]),
    delta("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}},
)


@given(cuts=st.lists(st.integers(0, 1500), max_size=30), end=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_reply_does_not_depend_on_how_its_bytes_are_cut(cuts: list[int], end: bytes):
    datas = [*[json.dumps(chunk, ensure_ascii=False).encode() for chunk in WHOLE], b"[DONE]"]
    stream = b"\xef\xbb\xbf: PROCESSING" + end + end + b"".join([b"data:" + data + end + end for data in datas])
    places = sorted({0, *[cut for cut in cuts if cut < len(stream)], len(stream)})
    decoder, reply = SseDecoder(), fresh()
    for first, last in itertools.pairwise(places):
        for event in decoder.feed(stream[first:last]):
            list(reply.feed(event))
    assert reply.completed(prompt_bytes=0) == completed(*WHOLE)


# --- text and reasoning


def test_text_streams_as_deltas_and_ends_as_one_text():
    reply = fresh()
    deltas = [fed(reply, json.dumps(delta(content=text)).encode()) for text in ("Hel", "", "lo")]
    assert deltas == [[TextDelta("Hel")], [], [TextDelta("lo")]]
    fed(reply, b"[DONE]")
    assert str(reply.completed(prompt_bytes=0).reply.text) == "Hello"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_streams_beside_the_text(field: str):
    reply = fresh()
    assert fed(reply, json.dumps(delta(**{field: "hm"})).encode()) == [ReasoningDelta("hm")]
    fed(reply, b"[DONE]")
    assert reply.completed(prompt_bytes=0).reply.reasoning == "hm"


def test_reasoning_that_is_sent_under_both_names_counts_once():
    assert completed(delta(reasoning="hm", reasoning_content="hm")).reply.reasoning == "hm"


def test_content_may_be_a_list_of_parts():
    assert str(completed(delta(content=[{"type": "text", "text": "a"}, {"text": "b"}])).reply.text) == "ab"


def test_a_chunk_without_choices_says_nothing():
    assert str(completed({"choices": []}, {"choices": None}, {}, delta(content="a")).reply.text) == "a"


def test_a_whole_completion_is_read_as_one_chunk():
    whole = {"id": "c-1", "model": "m-1", "choices": [{"message": {"content": "a"}, "finish_reason": "length"}]}
    made = completed(whole)
    assert (str(made.reply.text), made.finish, made.model, made.request_id) == ("a", "length", "m-1", "c-1")


def test_the_id_in_the_headers_wins():
    reply = ChatReply(ASKED, headers={"x-request-id": "r"}, names={})
    fed(reply, json.dumps({"id": "c-1", **delta("stop")}).encode())
    fed(reply, b"[DONE]")
    assert reply.completed(prompt_bytes=0).request_id == "r"


# --- the end


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("content_filter", "refusal"),
        ("tool_calls", "tool_calls"),
        ("other", "stop"),
        (None, "stop"),
    ],
)
def test_the_finish_is_translated(reason: str | None, finish: str):
    assert completed(delta(reason, content="a")).finish == finish


@pytest.mark.parametrize("reason", ["stop", "other", "length"])
def test_a_reply_with_calls_finishes_with_them_whatever_the_vendor_says(reason: str):
    assert completed(delta(reason, tool_calls=[piece("{}", "look", id="a", index=0)])).finish == "tool_calls"


def test_a_refusal_is_text_that_finishes_as_one():
    made = completed(delta("stop", refusal="no"))
    assert (str(made.reply.text), made.finish) == ("no", "refusal")


@pytest.mark.parametrize("reason", ["abort", "error", "insufficient_system_resource"])
def test_a_reply_that_the_server_gave_up_is_none(reason: str):
    with pytest.raises(ProviderUnavailable, match=reason):
        completed(delta(reason, content="a"))


def test_an_error_in_the_stream_is_raised_by_its_type():
    with pytest.raises(ProviderBusy):
        completed(delta(content="a"), {"error": {"type": "rate_limit_error", "message": "slow"}})


def test_an_error_without_an_envelope_is_raised_too():
    with pytest.raises(ProviderUnavailable, match="gone"):
        completed({"object": "error", "message": "gone", "code": 500})


@pytest.mark.parametrize("data", [b"hello", b'{"choices": 1}', b"[" * 100_000, b"[]"])
def test_an_event_that_is_no_chunk_is_an_error(data: bytes):
    with pytest.raises(ProviderUnavailable, match="none of its API"):
        fed(fresh(), data)


@pytest.mark.parametrize("content", [b"a\xffb", b"a\\ud83db"])
def test_a_character_that_was_cut_does_not_end_the_stream(content: bytes):
    reply = fresh()
    fed(reply, b'{"choices":[{"delta":{"content":"' + content + b'"}}]}')
    fed(reply, b"[DONE]")
    assert str(reply.completed(prompt_bytes=0).reply.text) == "a\N{REPLACEMENT CHARACTER}b"


def test_a_character_whose_halves_are_both_there_is_whole():
    reply = fresh()
    data = b'{"choices":[{"delta":{"content":"\\ud83d\\ude00 \\ud83d"}}]}'
    assert [delta.text for delta in fed(reply, data)] == ["\N{GRINNING FACE} \N{REPLACEMENT CHARACTER}"]


def test_done_is_the_end_mark():
    reply = fresh()
    fed(reply, b"{}")
    assert not reply.ended
    fed(reply, b" [DONE]\n")
    assert reply.ended


def test_the_reprs_show_how_far_it_is():
    reply = fresh()
    fed(reply, json.dumps(delta("stop")).encode())
    assert repr(reply) == "<ChatReply of m, finish stop>"
    assembler = CallAssembler()
    assembler.add(CallDelta(function=FunctionDelta(name="look")))
    assert repr(assembler) == "<CallAssembler of ['look']>"


# --- tool calls


def test_fragments_are_joined_by_their_index():
    assert called(
        piece("", "look", index=0, id="a"),
        piece("", "find", index=1, id="b"),
        piece('{"x"', index=0),
        piece('{"y"', index=1),
        piece(":1}", index=0),
        piece(":2}", index=1),
    ) == [("a", "look", '{"x":1}'), ("b", "find", '{"y":2}')]


def test_without_an_index_a_new_id_is_a_new_call():
    assert called(piece("{", "look", id="a"), piece("}"), piece("{}", "look", id="b")) == [
        ("a", "look", "{}"),
        ("b", "look", "{}"),
    ]


def test_a_null_index_is_no_index():
    assert called(piece("{", "look", id="a", index=None), piece("}", index=None)) == [("a", "look", "{}")]


def test_indexed_and_other_fragments_mix():
    assert called(piece("{", "look", id="a", index=0), piece("}"), piece("{}", "find", id="b", index=1)) == [
        ("a", "look", "{}"),
        ("b", "find", "{}"),
    ]


def test_calls_that_are_all_numbered_zero_are_told_apart_by_their_ids():
    assert called(piece("{}", "look", index=0, id="a"), piece("{}", "look", index=0, id="b")) == [
        ("a", "look", "{}"),
        ("b", "look", "{}"),
    ]


def test_calls_that_are_all_numbered_zero_without_ids_are_told_apart_when_whole():
    assert called(piece('{"x":1}', "look", index=0), piece('{"x":2}', "look", index=0)) == [
        ("call_0", "look", '{"x":1}'),
        ("call_1", "look", '{"x":2}'),
    ]


def test_a_name_that_is_repeated_in_each_fragment_is_one_call():
    assert called(piece('{"x"', "look", index=0), piece(":1}", "look", index=0)) == [("call_0", "look", '{"x":1}')]


def test_an_id_that_is_repeated_in_each_fragment_is_one_call():
    assert called(piece("{", "look", index=0, id="a"), piece("}", "look", index=0, id="a")) == [("a", "look", "{}")]


def test_another_name_without_an_id_is_another_call():
    assert [name for _, name, _ in called(piece("", "look"), piece("", "find"))] == ["look", "find"]


def test_an_id_that_comes_late_belongs_to_the_call():
    assert called(piece("{", "look", index=0), piece("}", index=0, id="a")) == [("a", "look", "{}")]


def test_an_id_that_is_used_twice_is_replaced():
    ids = [call_id for call_id, _, _ in called(piece("{}", "a", index=0, id="x"), piece("{}", "b", index=1, id="x"))]
    assert ids == ["x", "call_1"]


def test_a_replaced_id_meets_no_other():
    ids = [i for i, _, _ in called(piece("{}", "a", index=0, id="call_1"), piece("{}", "b", index=1))]
    assert ids == ["call_1", "call_1_"]


@pytest.mark.parametrize("arguments", ["", None, " "])
def test_no_arguments_are_an_empty_object(arguments: str | None):
    assert called(piece(arguments, "look", index=0, id="a")) == [("a", "look", "{}")]


def test_arguments_that_are_malformed_stay_for_the_model_to_be_told():
    assert called(piece('{"x', "look", index=0, id="a")) == [("a", "look", '{"x')]


def test_arguments_may_come_decoded():
    assert called(piece({"x": 1}, "look", index=0, id="a")) == [("a", "look", '{"x":1}')]


def test_a_fragment_without_a_function_opens_the_call():
    assert called({"index": 0, "id": "a"}, piece("{}", "look", index=0)) == [("a", "look", "{}")]


def test_a_delta_whose_calls_are_null_has_none():
    assert called(None) == []


def test_a_call_gets_the_name_that_we_know_its_tool_by():
    made = completed(delta(tool_calls=[piece("{}", "s_tool", index=0, id="a")]), names={"s_tool": "s.tool"})
    assert [call.name for call in made.reply.calls] == ["s.tool"]
    assert isinstance(made.reply.calls[0], ToolCall)


# --- reasoning that has to come back


def test_reasoning_is_kept_where_it_has_to_come_back():
    state = completed(
        delta(reasoning_content="a"), delta(reasoning_content="b"), reasoning_field="reasoning_content"
    ).reply.state
    assert state is not None
    assert (state.provider, state.model, state.data) == ("acme", "m", b'{"api":"chat","state":"ab"}')


def test_pieces_of_reasoning_details_are_joined_by_index_and_type():
    pieces = [
        {"index": 0, "type": "reasoning.text", "text": "a", "signature": None},
        {"index": 0, "type": "reasoning.text", "text": "b", "signature": "s"},
        {"index": 1, "type": "reasoning.encrypted", "data": "x"},
        {"type": "reasoning.summary", "summary": "y"},
        {"type": "reasoning.summary", "summary": "z"},
        {"index": 0, "type": "reasoning.text", "text": None, "format": "f"},
    ]
    state = completed(
        *[delta(reasoning_details=[one]) for one in pieces], reasoning_field="reasoning_details"
    ).reply.state
    assert state is not None
    assert json.loads(state.data)["state"] == [
        {"index": 0, "type": "reasoning.text", "text": "ab", "signature": "s", "format": "f"},
        pieces[2],
        pieces[3],
        pieces[4],
    ]


def kept(*pieces: dict[str, Any]) -> Any:
    made = completed(delta(reasoning_details=list(pieces)), reasoning_field="reasoning_details")
    assert made.reply.state is not None
    return json.loads(made.reply.state.data)["state"]


def test_a_detail_that_changes_its_kind_is_what_came_last():
    assert kept({"index": 0, "text": "a"}, {"index": 0, "text": ["b"]}) == [{"index": 0, "text": ["b"]}]
    changed = ({"index": 0, "text": "a"}, {"index": 0, "text": 1}, {"index": 0, "text": "b"}, {"index": 0, "text": "c"})
    assert kept(*changed) == [{"index": 0, "text": "bc"}]
    assert kept({"index": [0], "text": "a"}, {"index": [0], "text": "b"}) == [
        {"index": [0], "text": "a"},
        {"index": [0], "text": "b"},
    ]


def test_any_number_of_details_and_calls_is_put_together_in_a_moment():
    assert len(kept(*[{"index": index, "text": "a"} for index in range(50_000)])) == 50_000
    many = [{"index": index, **piece("{}", "look")} for index in range(50_000)]
    assert len(completed(delta(tool_calls=many)).reply.calls) == 50_000


def test_a_name_in_front_of_every_piece_of_a_call_costs_next_to_nothing():
    pieces = [piece('{"a":"', "look"), *[piece("x" * 100, "look")] * 20_000, piece('"}', "look")]
    [call] = completed(*[delta(tool_calls=[one]) for one in pieces]).reply.calls
    assert len(str(call.arguments)) == 2_000_008


@pytest.mark.parametrize("field", [None, "reasoning_content", "reasoning_details"])
def test_without_reasoning_there_is_nothing_to_keep(field: Any):
    assert completed(delta(content="a"), reasoning_field=field).reply.state is None


def test_nothing_is_kept_for_a_server_that_wants_nothing_back():
    assert completed(delta(reasoning_content="a")).reply.state is None


# --- usage


@pytest.mark.parametrize(
    ("usage", "timings", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 3}, None, Usage(10, output=3)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 3},
            },
            None,
            Usage(1, 6, 3, output=3),
        ),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2}, None, Usage(2, 8)),
        ({"prompt_tokens": 10}, {"cache_n": 4}, Usage(6, 4)),
        ({"prompt_tokens": 10, "prompt_tokens_details": None}, None, Usage(10)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": None}}, None, Usage(10)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}}, None, Usage(0, 10)),
        ({"prompt_tokens": -1, "completion_tokens": "3"}, None, Usage()),
        (
            {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}},
            None,
            Usage(output=9, reasoning=4),
        ),
        (
            {
                "prompt_tokens": 1,
                "completion_tokens": 5,
                "total_tokens": 10,
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            None,
            Usage(1, output=9, reasoning=4),
        ),
        (
            {"completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 4}},
            None,
            Usage(output=2, reasoning=2),
        ),
    ],
)
def test_counters_become_disjoint_buckets(usage: dict[str, Any], timings: dict[str, Any] | None, expected: Usage):
    assert usage_of(usage, timings) == expected


def test_a_later_counter_replaces_an_earlier_one():
    made = completed({"usage": {"prompt_tokens": 5, "completion_tokens": 1}}, {"usage": {"completion_tokens": 4}})
    assert made.usage == Usage(5, output=4)
    assert not made.estimated


def test_a_server_that_counts_nothing_gets_an_estimate_that_says_so():
    made = completed(delta(content="12345678"), prompt_bytes=39)
    assert made.usage == Usage(10, output=2)
    assert made.estimated


def test_images_that_come_with_a_reply_are_parts():
    here = {"image_url": {"url": "data:image/png;base64," + base64.b64encode(b"bytes").decode()}}
    elsewhere = {"image_url": {"url": "https://example.com/a.png"}}
    written = {"image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}}
    assert completed(delta(images=[here, elsewhere, written, {}])).reply.parts == (b"bytes",)


def test_an_end_mark_behind_nothing_is_the_end_of_no_reply():
    with pytest.raises(ProviderUnavailable, match="end mark"):
        completed()


def test_a_counter_that_is_null_leaves_the_next_one_its_say():
    usage = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": None}}
    assert usage_of({**usage, "prompt_cache_hit_tokens": 4}) == Usage(5, 4)
    assert usage_of(usage, {"cache_n": 3}) == Usage(6, 3)


def test_json_of_any_depth_is_an_error_of_the_server():
    with pytest.raises(ProviderUnavailable, match="none of its API"):
        fed(fresh(), b'{"usage":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001)


def test_a_secret_at_the_edge_of_what_is_quoted_is_struck_out_whole():
    reply = ChatReply(Asked("acme", "m", ("sk-secret-key",)), headers={}, names={})
    with pytest.raises(ProviderUnavailable) as caught:
        fed(reply, b"x" * 195 + b"sk-secret-key")
    assert str(caught.value).count("sk-") == 0


def test_a_chunk_with_a_message_beside_its_delta_is_not_the_end():
    first = {"choices": [{"delta": {"content": "a"}, "message": {"content": "a"}}]}
    reply = fresh()
    fed(reply, json.dumps(first).encode())
    assert not reply.ended
    assert str(completed(first, delta("stop", content="b")).reply.text) == "ab"
