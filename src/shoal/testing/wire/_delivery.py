"""From a reply and what goes wrong with it to the steps that a connection performs."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, final

from shoal.testing.wire._faults import (
    At,
    Bom,
    Chunks,
    Comments,
    ContentType,
    Cut,
    DuplicateDone,
    ErrorEvent,
    Fault,
    Gzip,
    HangUp,
    Inject,
    Newlines,
    Pings,
    Reset,
    Slow,
    SplitCharacters,
    SplitNewlines,
    Stall,
    found,
)

GZIP_WINDOW = 31  # zlib's way to ask for a gzip header around the largest window


@final
@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream: its JSON, and its name where the vendor gives one."""

    data: str
    name: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Reply:
    """What a dialect answers: a whole body, or a stream.

    Args:
        status: The HTTP status.
        headers: Names and values; those that frame the body are added when it is sent.
        body: The whole body; of a stream, what an error in the middle would look like.
        events: The stream; `None` for a whole body.
        newline: How its lines end.
        ping: The event that keeps it alive; `None` for an empty comment.
        failed: Makes the event of an error after status 200 from its type, `None` for the usual one, and its message.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    events: tuple[Event, ...] | None = None
    newline: str = "\n"
    ping: Event | None = None
    failed: Callable[[str | None, str], Event] | None = None


@final
@dataclass(frozen=True, slots=True)
class Head:
    """Send the head. *length* frames the body; `None` sends it in chunks."""

    status: int
    headers: tuple[tuple[str, str], ...]
    length: int | None


@final
@dataclass(frozen=True, slots=True)
class Data:
    """Send bytes of the body."""

    data: bytes


@final
@dataclass(frozen=True, slots=True)
class Pause:
    """Send nothing for a time."""

    seconds: float


@final
@dataclass(frozen=True, slots=True)
class Finish:
    """End the body properly."""


@final
@dataclass(frozen=True, slots=True)
class Leave:
    """Close the connection, with a reset or without."""

    reset: bool


Step: TypeAlias = Head | Data | Pause | Finish | Leave


def steps(reply: Reply, faults: Sequence[Fault] = ()) -> tuple[Step, ...]:
    """Return what a connection does to deliver *reply* with *faults*.

    The result ends in exactly one `Finish` or `Leave`.
    """
    placed = [_within_reply(fault) for fault in faults]
    body = _until_end([*_at("headers", placed), *_body(reply, placed)])
    body = _compressed(body) if found(faults, Gzip) else body
    body = _chunked(body, found(faults, Chunks))
    length = None if reply.events is not None else _length(reply, body, compressed=bool(found(faults, Gzip)))
    head = Head(reply.status, _headers(reply, faults), length)
    return tuple(_until_end([*_at("request", placed), head, *body]))


def _within_reply(fault: Fault) -> Fault:
    """Return *fault* with a moment that it can have: what is sent needs a head, an event needs a stream."""
    match fault:
        case Cut("request"):
            return Cut("headers")
        case ErrorEvent("request" | "headers") | Inject(_, "request" | "headers"):
            return replace(fault, at=0)
        case _:
            return fault


def _headers(reply: Reply, faults: Sequence[Fault]) -> tuple[tuple[str, str], ...]:
    headers = dict(reply.headers)
    if reply.events is not None:
        headers |= {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    if claimed := found(faults, ContentType):
        headers["content-type"] = claimed.value
    if found(faults, Gzip):
        headers["content-encoding"] = "gzip"
    return tuple(headers.items())


def _length(reply: Reply, body: Sequence[Step], *, compressed: bool) -> int:
    """Return what the head promises: all of it, even if the connection will not live to see its end."""
    sent = sum(len(step.data) for step in body if isinstance(step, Data))
    ended = isinstance(body[-1], Finish)
    return sent if ended or compressed else len(reply.body)


def _until_end(body: Sequence[Step]) -> Sequence[Step]:
    """Return *body* up to its first end."""
    end = next(place for place, step in enumerate(body) if isinstance(step, Finish | Leave))
    return body[: end + 1]


def _at(moment: At, faults: Sequence[Fault]) -> Iterator[Step]:
    """Yield the steps that *faults* put at *moment*, in their order."""
    for fault in faults:
        match fault:
            case Stall(seconds, at) if at == moment:
                yield Pause(seconds)
            case Reset(at) if at == moment:
                yield Leave(reset=True)
            case HangUp(at) if at == moment:
                yield Leave(reset=False)
            case Cut(at) if at == moment:
                yield Finish()
            case _:
                pass


def _body(reply: Reply, faults: Sequence[Fault]) -> Iterator[Step]:
    frames = _halves(reply, faults) if reply.events is None else _frames(reply, faults)
    total = len(frames)
    placed = [_placed(fault, total) for fault in faults]
    for number, frame in enumerate([*frames, None]):
        yield from _events_at(number, reply, placed, faults)
        yield from _at(number, placed)
        if frame is not None:
            if slow := found(faults, Slow):
                yield Pause(slow.seconds)
            yield from (Data(piece) for piece in _split(frame, faults))
    yield Finish()


def _placed(fault: Fault, total: int) -> Fault:
    """Return *fault* with a number from the end turned into one from the start, within the stream."""
    match fault:
        case Stall() | Reset() | HangUp() | Cut() | ErrorEvent() | Inject() if isinstance(fault.at, int):
            at = fault.at + total if fault.at < 0 else fault.at
            return replace(fault, at=min(max(at, 0), total))
        case _:
            return fault


def _halves(reply: Reply, faults: Sequence[Fault]) -> list[bytes]:
    """Return a whole body in two parts, or the error that took its place."""
    body = reply.body
    if (error := found(faults, ErrorEvent)) and reply.failed:
        body = reply.failed(error.kind, error.message).data.encode()
    middle = len(body) // 2
    return [body[:middle], body[middle:]]


def _frames(reply: Reply, faults: Sequence[Fault]) -> list[bytes]:
    """Return the bytes of each event, with the comments and pings that stand in front of it."""
    assert reply.events is not None
    events = reply.events + reply.events[-1:] if found(faults, DuplicateDone) else reply.events
    end = _newline(reply, faults)
    frames: list[bytes] = []
    for number, event in enumerate(events):
        front = ""
        if (comments := found(faults, Comments)) and number % comments.every == 0:
            front += f": {comments.text}{end}{end}"
        if (pings := found(faults, Pings)) and number % pings.every == 0:
            front += framed(reply.ping, end) if reply.ping else f":{end}{end}"
        frames.append((front + framed(event, end)).encode("utf-8", "surrogatepass"))
    if found(faults, Bom):
        frames[0] = b"\xef\xbb\xbf" + frames[0]
    return frames


def _newline(reply: Reply, faults: Sequence[Fault]) -> str:
    if found(faults, SplitNewlines):
        return "\r\n"
    asked = found(faults, Newlines)
    return asked.kind if asked else reply.newline


def framed(event: Event, end: str = "\n") -> str:
    """Return *event* as a server-sent event whose lines end in *end*."""
    name = f"event: {event.name}{end}" if event.name else ""
    return f"{name}data: {event.data}{end}{end}"


def _events_at(number: int, reply: Reply, placed: Sequence[Fault], faults: Sequence[Fault]) -> Iterator[Step]:
    """Yield what *placed* puts into the stream in front of event *number*."""
    end = _newline(reply, faults)
    for fault in placed if reply.events is not None else ():
        match fault:
            case Inject(data, at, name) if at == number:
                yield Data(framed(Event(data, name), end).encode())
            case ErrorEvent(at, kind, message) if at == number and reply.failed:
                yield Data(framed(reply.failed(kind, message), end).encode())
                yield Finish()
            case _:
                pass


def _split(frame: bytes, faults: Sequence[Fault]) -> list[bytes]:
    cuts: list[int] = []
    if found(faults, SplitCharacters):
        cuts += [place for place, byte in enumerate(frame) if byte & 0xC0 == 0x80 and frame[place - 1] & 0xC0 == 0xC0]
    if found(faults, SplitNewlines):
        cuts += [place for place in range(1, len(frame)) if frame[place - 1 : place + 1] == b"\r\n"]
    edges = [0, *sorted(cuts), len(frame)]
    return [frame[start:stop] for start, stop in itertools.pairwise(edges) if start < stop]


def _compressed(body: Sequence[Step]) -> list[Step]:
    """Return *body* with its bytes compressed as one stream, flushed after each piece."""
    packer = zlib.compressobj(wbits=GZIP_WINDOW)
    packed: list[Step] = []
    for step in body:
        match step:
            case Data(data):
                packed.append(Data(packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)))
            case Finish():
                packed += [Data(packer.flush()), step]
            case _:
                packed.append(step)
    return packed


def _chunked(body: Sequence[Step], chunks: Chunks | None) -> list[Step]:
    if chunks is None:
        return list(body)
    cut: list[Step] = []
    for step in body:
        if isinstance(step, Data):
            size, data = chunks.size, step.data
            cut += [Data(data[start : start + size]) for start in range(0, len(data), size)]
        else:
            cut.append(step)
    return cut
