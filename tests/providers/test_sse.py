"""The decoder of server-sent events."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.providers._sse import Event, EventTooLong, SseDecoder


def decoded(*reads: bytes) -> list[Event]:
    decoder = SseDecoder()
    return [event for read in reads for event in decoder.feed(read)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_at_lf_crlf_and_cr(end: bytes):
    assert decoded(b"data: a" + end + b"data: b" + end + end) == [Event(b"a\nb")]


def test_an_lf_in_the_next_read_belongs_to_the_cr_before_it():
    assert decoded(b"data: a\r", b"\ndata: b\r", b"", b"\n\r", b"\n") == [Event(b"a\nb")]


@pytest.mark.parametrize("char", ["\N{LINE SEPARATOR}", "\x85", "\x0b", "\x0c"])
def test_other_line_separators_of_unicode_stay_in_the_data(char: str):
    assert decoded(f"data: a{char}b\n\n".encode()) == [Event(f"a{char}b".encode())]


def test_a_byte_order_mark_in_front_of_the_stream_is_dropped():
    assert decoded(b"\xef\xbb", b"\xbfdata: a\n\n") == [Event(b"a")]


def test_comments_and_unknown_fields_are_no_events():
    assert decoded(b": ping\n\n: ping\nfoo: bar\nbaz\n\n") == []


def test_only_one_space_behind_the_colon_is_dropped():
    assert decoded(b"data:a\n\ndata:  b\n\n") == [Event(b"a"), Event(b" b")]


def test_an_empty_data_line_is_an_event_without_data():
    assert decoded(b"data\n\ndata:\ndata\n\n") == [Event(b""), Event(b"\n")]


def test_an_event_without_data_is_dropped_with_its_name():
    assert decoded(b"event: a\n\ndata: b\n\n") == [Event(b"b", "message")]


def test_an_event_keeps_its_name():
    assert decoded(b"event: error\ndata: {}\n\n") == [Event(b"{}", "error")]


def test_the_last_id_and_the_retry_time_are_kept():
    decoder = SseDecoder()
    decoder.feed(b"id: 7\nretry: 250\n\nid: bad\0id\nretry: soon\nretry: " + b"9" * 10 + b"\n\n")
    assert (decoder.last_id, decoder.retry_ms) == ("7", 250)


def test_an_event_that_the_end_of_the_stream_cuts_is_not_given():
    assert decoded(b"data: a\n\ndata: b\n") == [Event(b"a")]


def test_an_event_larger_than_the_limit_is_refused_before_its_line_ends():
    decoder = SseDecoder(max_event_bytes=10)
    decoder.feed(b"data: ")
    with pytest.raises(EventTooLong, match="passed 10 bytes"):
        decoder.feed(b"x" * 10)


def test_lines_of_one_event_add_up_to_the_limit():
    decoder = SseDecoder(max_event_bytes=20)
    with pytest.raises(EventTooLong):
        decoder.feed(b"data: 12345\ndata: 12345\n")


def test_comments_do_not_add_up_to_the_limit():
    decoder = SseDecoder(max_event_bytes=20)
    assert [event for _ in range(50) for event in decoder.feed(b": ping\nid: 1\n")] == []


def test_the_limit_counts_each_event_anew():
    decoder = SseDecoder(max_event_bytes=20)
    assert len([event for _ in range(50) for event in decoder.feed(b"data: 12345\n\n")]) == 50


def test_the_repr_shows_what_is_held():
    decoder = SseDecoder()
    decoder.feed(b"data: a")
    assert repr(decoder) == "<SseDecoder holding 7 bytes>"


STREAM = (
    '\N{BYTE ORDER MARK}: hi\r\n\r\nevent: delta\rdata: {"t": "é\N{LINE SEPARATOR}\N{GRINNING FACE}"}\r\r'
    "data: a\ndata: b\n\n\r\nid: 4\ndata:c\r\n\r\ndata: [DONE]\n\n"
).encode()


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_events_do_not_depend_on_how_the_bytes_are_cut(cuts: list[int]):
    edges = [0, *sorted(cuts), len(STREAM)]
    reads = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    assert decoded(*reads) == decoded(STREAM)
    assert len(decoded(STREAM)) == 4


@pytest.mark.parametrize("more", [1, 2, 3, 4])
def test_empty_lines_behind_an_event_take_nothing_of_it(more: int):
    assert decoded(b"data: x\n\n" + b"\n" * more) == [Event(b"x")]
    assert decoded(b"data: x\n\n" + b"\n" * more + b"data: y\n\n") == [Event(b"x"), Event(b"y")]


@given(lines=st.lists(st.sampled_from(["data: x", "data", "event: e", ":c", "", "id: 1"]), max_size=12), data=st.data())
def test_events_of_any_lines_with_any_ends_do_not_depend_on_the_cuts(lines: list[str], data: st.DataObject):
    ends = data.draw(st.lists(st.sampled_from(["\n", "\r", "\r\n"]), min_size=len(lines), max_size=len(lines)))
    stream = "".join(line + end for line, end in zip(lines, ends, strict=True)).encode()
    assert decoded(*[stream[i : i + 1] for i in range(len(stream))]) == decoded(stream)


def ended(*reads: bytes) -> list[Event]:
    decoder = SseDecoder()
    read = [event for one in reads for event in decoder.feed(one)]
    return read + decoder.end()


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("before", [b"", b"data: {}\n\n", b"data: {}\r\n\r\n"])
def test_an_event_whose_empty_line_is_missing_is_one_at_the_end(before: bytes, end: bytes):
    assert ended(before, b"event: e\ndata: [DONE]" + end)[-1] == Event(b"[DONE]", "e")


@pytest.mark.parametrize("held", [b"", b": ping", b"event: e\n", b'data: {"a":', b"data: [DON", b"data:"])
def test_an_event_that_was_cut_is_none(held: bytes):
    assert ended(b"data: {}\n\n", held) == [Event(b"{}")]


@pytest.mark.parametrize("word", [b"event: ", b"data: "])
def test_a_line_that_repeats_how_events_begin_is_read_like_any_other(word: bytes):
    long = word * 400_000
    assert decoded(b"event: e\ndata: " + long + b"\n\n") == [Event(long, "e")]
    assert decoded(b"data: " + long + b"\n\ndata: x\n\n") == [Event(long), Event(b"x")]
    assert decoded(word + long + b"x\ny\n\n") == ([Event(long + b"x")] if word == b"data: " else [])
