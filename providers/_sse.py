"""Server-sent events, decoded from bytes.

Lines end at CR, LF or CRLF and nowhere else: text-level line splitters also cut at U+2028 and U+0085, which stand
unescaped inside perfectly good JSON. A decoder sees bytes as they arrive, so nothing here depends on how they were cut.
"""

from __future__ import annotations

import re
from typing import final

import msgspec

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_MAX_NAMES = 256

# Each ends with a part that takes all that is left: what does not look so is tried once, and not at each of its bytes.
_NAMED = re.compile(rb"event: ([^\n]*)\ndata: ([^\n]*)\n\n|(?s:.+)")
_BARE = re.compile(rb"data: ([^\n]*)\n\n|(?s:.+)")

MAX_EVENT_BYTES = 16 * 1024 * 1024


class EventTooLong(ValueError):
    """One event passed the limit of bytes; what sends it is no event stream."""


@final
class Event(msgspec.Struct, frozen=True, gc=False):
    """One event.

    Args:
        data: Its data lines, joined by LF.
        name: What the sender called it; `message` where it said nothing.
    """

    data: bytes
    name: str = "message"


@final
class SseDecoder:
    """Turns bytes into events; one per response.

    Args:
        max_event_bytes: What one event may hold, lines not yet ended included, 1 or more.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.last_id = ""
        self.retry_ms: int | None = None
        self._max_event_bytes = max_event_bytes
        self._block: list[bytes] = []
        """Pieces of an event whose end has not arrived, as long as every line ends in LF."""
        self._names: dict[bytes, str] = {}
        self._by_line = False
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._held_bytes = 0
        self._at_start = True
        self._after_cr = False

    def __repr__(self) -> str:
        return f"<SseDecoder holding {self._held_bytes} bytes>"

    def feed(self, data: bytes) -> list[Event]:
        """Take *data* and return the events that it completes, in order.

        Raises:
            EventTooLong: An event is larger than `max_event_bytes`.
        """
        if self._by_line:
            return self._feed_lines(data)
        if b"\r" in data:
            # Where a line may end in CR, an event may end in more ways than one.
            self._block.append(data)
            return self._line_by_line()
        return self._feed_blocks(data)

    def end(self) -> list[Event]:
        """Return the last event where only the line end behind it, or the empty line, is missing.

        Browsers forget it, since it may have been cut. But servers write their last event so, and data that was cut is
        no JSON.
        """
        events = [] if self._by_line else self._line_by_line()
        line, self._line = b"".join(self._line), []
        last = [*events, self._take(line) if line else None, self._dispatch()]
        return [event for event in last if event is not None and event.data.rstrip()[-1:] in (b"}", b"]")]

    def _line_by_line(self) -> list[Event]:
        """Go on line by line, from what is held on."""
        self._by_line = True
        held, self._block, self._held_bytes = b"".join(self._block), [], 0
        return self._feed_lines(held)

    def _feed_blocks(self, data: bytes) -> list[Event]:
        """Take *data* of a stream whose lines end in LF: an event is what stands in front of an empty line."""
        parts = self._block
        ends = b"\n\n" in data or (data[:1] == b"\n" and self._ends_line())
        if not ends:
            parts.append(data)
            self._held_bytes += len(data)
            # Only lines tell data, which are limited, from comments, which are not.
            return [] if self._held_bytes <= self._max_event_bytes else self._line_by_line()
        whole = b"".join((*parts, data)) if parts else data
        end = whole.rfind(b"\n\n") + 2
        body, rest = (whole, b"") if end == len(whole) else (whole[:end], whole[end:])
        self._block = [rest] if rest else []
        events = self._usual(body)
        self._held_bytes = len(rest)
        return events if self._held_bytes <= self._max_event_bytes else events + self._line_by_line()

    def _usual(self, body: bytes) -> list[Event]:
        """Return the events of *body*, which ends with an empty line: at once where all of them look as they mostly do.

        A pattern takes all the bytes that it is given, the rest of them as an event of which nothing is said: where the
        last one says something, there is no such rest.
        """
        if len(body) <= self._max_event_bytes:
            named = _NAMED.findall(body)
            if any(named[-1]):
                self._at_start = False
                return [Event(data, self._named(name)) for name, data in named]
            bare = _BARE.findall(body)
            if bare[-1]:
                self._at_start = False
                return [Event(data) for data in bare]
        return [event for block in body[:-2].split(b"\n\n") for event in self._events(block)]

    def _named(self, name: bytes) -> str:
        known = self._names.get(name)
        if known is None:
            known = name.decode("utf-8", "replace") or "message"
            if len(self._names) < _MAX_NAMES:
                self._names[name] = known
        return known

    def _ends_line(self) -> bool:
        """Say whether what is held ends with a line."""
        return next((part[-1:] == b"\n" for part in reversed(self._block) if part), False)

    def _events(self, block: bytes) -> list[Event]:
        """Return the event that the lines of *block* are; none where they have no data.

        Where a third line end follows two, the block ends with an empty line, which ends its event too.
        """
        self._held_bytes = 0
        if self._at_start:
            self._at_start = False
            block = block.removeprefix(_BOM)
        events: list[Event | None] = []
        for line in block.split(b"\n"):
            self._hold(len(line))
            events.append(self._take(line))
        events.append(self._dispatch())
        return [event for event in events if event is not None]

    def _feed_lines(self, data: bytes) -> list[Event]:
        if self._after_cr and data:
            # The CR ended the line; an LF that follows it in the next read belongs to the same line end.
            self._after_cr = False
            data = data.removeprefix(b"\n")
        self._after_cr = self._after_cr or data[-1:] == b"\r"
        *ended, rest = _LINE_END.split(data)
        events: list[Event] = []
        for line in ended:
            whole = b"".join((*self._line, line))
            self._hold(len(line))
            self._line.clear()
            event = self._take(whole)
            if event is not None:
                events.append(event)
        if rest:
            self._line.append(rest)
            self._hold(len(rest))
        return events

    def _hold(self, count: int) -> None:
        self._held_bytes += count
        if self._held_bytes > self._max_event_bytes:
            raise EventTooLong(f"an event passed {self._max_event_bytes!r} bytes")

    def _take(self, line: bytes) -> Event | None:
        """Take one whole *line*; return the event that it ends, if it ends one with data."""
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._name = value
            case b"id" if b"\0" not in value:
                self.last_id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                self.retry_ms = int(value)
            case _:  # a comment has an empty name, and unknown fields are to be skipped
                pass
        if name != b"data":
            self._held_bytes -= len(line)
        return None

    def _dispatch(self) -> Event | None:
        data, name = self._data, self._name
        self._data, self._name, self._held_bytes = [], b"", 0
        if not data:
            return None
        return Event(b"\n".join(data), name.decode("utf-8", "replace") or "message")
