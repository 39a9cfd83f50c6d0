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
