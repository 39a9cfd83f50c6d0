"""From a reply and its faults to steps, without a socket."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.testing import wire
from shoal.testing.wire._delivery import Data, Event, Finish, Head, Leave, Pause, Reply, Step, framed, steps


def failed(kind: str | None, message: str) -> Event:
    return Event(f'{{"error":"{kind} {message}"}}', "error")


STREAM = Reply(200, events=(Event("zero", "a"), Event("öne"), Event("two", "c")), failed=failed)
WHOLE = Reply(200, (("content-type", "application/json"),), b'{"a":"b"}', failed=failed)


def data(made: tuple[Step, ...]) -> bytes:
    return b"".join(step.data for step in made if isinstance(step, Data))


def head(made: tuple[Step, ...]) -> Head:
    return next(step for step in made if isinstance(step, Head))


def deliver(*faults: wire.Fault, reply: Reply = STREAM) -> tuple[Step, ...]:
    return steps(reply, faults)


def test_a_stream_is_its_events():
    assert data(deliver()) == "event: a\ndata: zero\n\ndata: öne\n\nevent: c\ndata: two\n\n".encode()
    assert head(deliver()) == Head(
        200, (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")), None
    )


def test_a_whole_body_is_framed_by_its_length():
    made = deliver(reply=WHOLE)
    assert (data(made), head(made).length, made[-1]) == (WHOLE.body, 9, Finish())


def test_pieces_have_the_size_that_was_asked_for():
    pieces = [step.data for step in deliver(wire.Chunks(4)) if isinstance(step, Data)]
    assert {len(piece) for piece in pieces} <= {1, 2, 3, 4}
    assert b"".join(pieces) == data(deliver())


def test_characters_are_cut_in_their_middle():
    pieces = [step.data for step in deliver(wire.SplitCharacters()) if isinstance(step, Data)]
    assert [piece[-1:] for piece in pieces][1] == "ö".encode()[:1]
    assert b"".join(pieces) == data(deliver())


def test_line_ends_are_cut_in_their_middle():
    pieces = [step.data for step in deliver(wire.SplitNewlines()) if isinstance(step, Data)]
    assert all(b"\r\n" not in piece for piece in pieces)
    assert b"".join(pieces) == data(deliver(wire.Newlines("\r\n")))


@pytest.mark.parametrize("kind", ["\n", "\r\n", "\r"])
def test_lines_end_as_they_are_told(kind: Any):
    assert data(deliver(wire.Newlines(kind))).decode().count(kind) == 8


def test_a_vendor_has_line_ends_of_its_own():
    reply = Reply(200, events=(Event("x"),), newline="\r\n")
    assert data(deliver(reply=reply)) == b"data: x\r\n\r\n"


def test_a_mark_stands_in_front_of_everything():
    assert data(deliver(wire.Bom())).startswith(b"\xef\xbb\xbfevent")


def test_comments_stand_in_front_of_events():
    said = data(deliver(wire.Comments("WAIT", every=2))).decode()
    assert said.split("\n\n")[:4] == [": WAIT", "event: a\ndata: zero", "data: öne", ": WAIT"]


def test_a_ping_is_an_event_where_the_vendor_has_one():
    reply = Reply(200, events=(Event("x"), Event("y")), ping=Event("{}", "ping"))
    assert data(deliver(wire.Pings(), reply=reply)).count(b"event: ping\ndata: {}\n\n") == 2
    assert data(deliver(wire.Pings(2))).startswith(b":\n\nevent: a")


@pytest.mark.parametrize("reply", [STREAM, WHOLE])
def test_a_body_can_be_compressed(reply: Reply):
    made = deliver(wire.Gzip(), wire.Chunks(3), reply=reply)
    assert zlib.decompress(data(made), wbits=31) == data(deliver(reply=reply))
    assert ("content-encoding", "gzip") in head(made).headers
    assert head(made).length in (None, len(data(made)))


def test_a_compressed_stream_is_flushed_after_each_event():
    unpacker = zlib.decompressobj(wbits=31)
    first = next(step for step in deliver(wire.Gzip()) if isinstance(step, Data))
    assert unpacker.decompress(first.data) == b"event: a\ndata: zero\n\n"


def test_a_body_can_claim_to_be_something_else():
    assert dict(head(deliver(wire.ContentType("text/plain"))).headers)["content-type"] == "text/plain"


def test_each_event_can_take_its_time():
    assert sum(step.seconds for step in deliver(wire.Slow(2.0)) if isinstance(step, Pause)) == 6.0


def where(made: tuple[Step, ...], kind: type[Step]) -> tuple[bool, bytes]:
    """Whether the head is out when the first *kind* comes, and what of the body."""
    place = next(place for place, step in enumerate(made) if isinstance(step, kind))
    return any(isinstance(step, Head) for step in made[:place]), data(made[:place])


ZERO, ONE, TWO = (framed(event).encode() for event in STREAM.events or ())


@pytest.mark.parametrize(
    ("at", "seen"),
    [
        ("request", (False, b"")),
        ("headers", (True, b"")),
        (0, (True, b"")),
        (1, (True, ZERO)),
        (-1, (True, ZERO + ONE)),
        (3, (True, ZERO + ONE + TWO)),
        (9, (True, ZERO + ONE + TWO)),
        (-9, (True, b"")),
    ],
)
def test_a_break_comes_where_it_is_told(at: Any, seen: tuple[bool, bytes]):
    assert where(deliver(wire.Stall(5.0, at)), Pause) == seen
    assert where(deliver(wire.Reset(at)), Leave) == seen
    assert where(deliver(wire.HangUp(at)), Leave) == seen


@pytest.mark.parametrize(("at", "seen"), [("request", b""), ("headers", b""), (1, ZERO), (-1, ZERO + ONE)])
def test_a_body_that_is_cut_has_a_head(at: Any, seen: bytes):
    assert where(deliver(wire.Cut(at)), Finish) == (True, seen)


@pytest.mark.parametrize("at", ["request", "headers", 0])
def test_what_is_put_in_early_comes_first(at: Any):
    assert data(deliver(wire.Inject("{}", at))).startswith(b"data: {}")
    assert data(deliver(wire.ErrorEvent(at))).startswith(b"event: error")


def test_resetting_and_hanging_up_differ():
    assert (deliver(wire.Reset())[-1], deliver(wire.HangUp())[-1]) == (Leave(reset=True), Leave(reset=False))


def test_nothing_comes_behind_an_end():
    made = deliver(wire.Cut(1), wire.Reset(2))
    assert [step for step in made if isinstance(step, Finish | Leave)] == [Finish()]


def test_a_whole_body_breaks_in_its_middle():
    cut, hung = deliver(wire.Cut(1), reply=WHOLE), deliver(wire.HangUp(1), reply=WHOLE)
    assert (data(cut), head(cut).length) == (b'{"a"', 4)
    assert (data(hung), head(hung).length) == (b'{"a"', 9)


def test_an_error_ends_a_stream():
    said = data(deliver(wire.ErrorEvent(at=1, kind="busy", message="wait"))).decode()
    assert said == 'event: a\ndata: zero\n\nevent: error\ndata: {"error":"busy wait"}\n\n'


def test_an_error_can_take_the_place_of_a_whole_body():
    assert data(deliver(wire.ErrorEvent(), reply=WHOLE)) == b'{"error":"None Overloaded"}'


def test_a_reply_that_cannot_fail_does_not():
    assert data(deliver(wire.ErrorEvent(), reply=Reply(200, body=b"x"))) == b"x"
    assert data(deliver(wire.ErrorEvent(), reply=Reply(200, events=(Event("x"),)))) == b"data: x\n\n"


def test_an_event_can_be_put_in():
    said = data(deliver(wire.Inject("{}", at=1, name="news"), wire.Inject("half", at=3))).decode()
    assert said.split("\n\n") == [
        "event: a\ndata: zero",
        "event: news\ndata: {}",
        "data: öne",
        "event: c\ndata: two",
        "data: half",
        "",
    ]


def test_the_end_can_come_twice():
    assert data(deliver(wire.DuplicateDone())).endswith(TWO + TWO)


BREAKS = (wire.Reset, wire.HangUp, wire.Cut, wire.ErrorEvent)
MOMENTS = st.sampled_from(["request", "headers"]) | st.integers(-4, 4)
ANY: st.SearchStrategy[wire.Fault] = st.one_of(
    st.builds(wire.Chunks, st.integers(1, 9)),
    st.just(wire.SplitCharacters()),
    st.just(wire.SplitNewlines()),
    st.just(wire.Bom()),
    st.builds(wire.Comments, every=st.integers(1, 3)),
    st.builds(wire.Pings, st.integers(1, 3)),
    st.just(wire.Gzip()),
    st.builds(wire.Slow, st.floats(0.1, 1.0)),
    st.builds(wire.Stall, st.floats(0.1, 1.0), MOMENTS),
    st.sampled_from(BREAKS).flatmap(lambda kind: st.builds(kind, at=MOMENTS)),
    st.just(wire.DuplicateDone()),
    st.builds(wire.Inject, st.just("{}"), MOMENTS),
)


@given(faults=st.lists(ANY, max_size=5), reply=st.sampled_from([STREAM, WHOLE]))
def test_delivery_has_at_most_one_head_and_exactly_one_end(faults: list[wire.Fault], reply: Reply):
    made = steps(reply, faults)
    assert sum(isinstance(step, Head) for step in made) <= 1
    assert [isinstance(step, Finish | Leave) for step in made] == [False] * (len(made) - 1) + [True]
    lengths = [step.length for step in made if isinstance(step, Head) and step.length is not None]
    if isinstance(made[-1], Finish):
        assert lengths in ([], [len(data(made))])


@given(
    faults=st.lists(
        ANY.filter(lambda fault: not isinstance(fault, (*BREAKS, wire.DuplicateDone, wire.Inject))), max_size=5
    )
)
def test_faults_of_the_way_change_no_event(faults: list[wire.Fault]):
    said = data(steps(STREAM, faults))
    if any(isinstance(fault, wire.Gzip) for fault in faults):
        said = zlib.decompress(said, wbits=31)
    lines = said.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    assert [line for line in lines if line.startswith("data")] == ["data: zero", "data: öne", "data: two"]
