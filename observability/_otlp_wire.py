"""Our spans as the bytes of an OTLP request, written straight away.

The SDK's encoder makes a message object of each attribute, and each span of ours has some twenty: that was most of what
watching cost. Here an attribute that was written before is looked up, since most come again in every span of a run.

Source: OpenTelemetry protocol 1.9, `trace/v1/trace.proto` and `common/v1/common.proto`; the wire format of Protocol
Buffers. Fields stand in the order of their numbers, as the official encoder writes them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import final

from shoal.observability import names
from shoal.observability._spans import Link, Span, SpanEvent, Value

KINDS = {"internal": 1, "client": 3}
STATUSES = {"unset": 0, "ok": 1, "error": 2}
KNOWS_REMOTE = 0x100
IS_REMOTE = 0x200

MOST_KEPT = 2_048
"""How many texts of attributes are kept, of each kind."""
_MOST_KEPT_CHARS = 64

_ONE = tuple(bytes((number,)) for number in range(128))
_LIST_ATTRIBUTE, _EVENT_ATTRIBUTE, _LINK_ATTRIBUTE = b"\x4a", b"\x1a", b"\x22"
_fixed64 = struct.Struct("<Q").pack
_fixed32 = struct.Struct("<I").pack
_double = struct.Struct("<d").pack
_times = struct.Struct("<cQcQ").pack
_INTS = tuple(b"\x12" + _ONE[size + 1] + b"\x18" for size in range(11))
"""What stands between an attribute's key and a whole number of so many bytes."""
_TRUE, _FALSE = b"\x10\x01", b"\x10\x00"


def varint(number: int) -> bytes:
    """Return *number*, 0 or more, in groups of seven bits, lowest first."""
    if number < 128:
        return _ONE[number]
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _field(tag: bytes, body: bytes) -> bytes:
    return b"".join((tag, varint(len(body)), body))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which a model may well have written
        return text.encode("utf-8", "replace")


@final
class SpanWriter:
    """Writes spans as requests.

    Args:
        resource: What they come from, such as `service.name`.
    """

    def __init__(self, resource: Mapping[str, Value]) -> None:
        self._keys: dict[str, bytes] = {}
        """Field `key`, by name."""
        self._floats: dict[str, bytes] = {}
        """All of an attribute that is a number with a point but the number."""
        self._texts: dict[tuple[str, str], bytes] = {}
        """Attributes whose value is a short text, behind their tag."""
        self._resource = _field(b"\x0a", b"".join([b"\x0a" + piece for piece in self._attributes(resource)]))
        self._scope = _field(b"\x0a", _field(b"\x0a", _utf8(names.SCOPE)))

    def requests(self, spans: Iterable[Span], most_bytes: int) -> Iterator[tuple[int, bytes]]:
        """Yield requests that together hold *spans*, each with how many of them.

        Args:
            spans: In the order in which they are sent.
            most_bytes: Most bytes of one request; a span that is larger goes alone.
        """
        pieces: list[bytes] = []
        size = 0
        for span in spans:
            piece = self.span(span)
            if pieces and size + len(piece) > most_bytes:
                yield len(pieces), self.request(pieces)
                pieces, size = [], 0
            pieces.append(piece)
            size += len(piece) + 6
        if pieces:
            yield len(pieces), self.request(pieces)

    def request(self, spans: Sequence[bytes]) -> bytes:
        """Return the request that holds *spans*, written by `span`."""
        parts = [self._scope]
        for span in spans:
            parts += (b"\x12", varint(len(span)), span)
        listed = b"".join(parts)
        return _field(b"\x0a", self._resource + _field(b"\x12", listed))

    def span(self, span: Span) -> bytes:
        """Return *span* as a message."""
        name = _utf8(span.name)
        trace_id = bytes.fromhex(span.trace_id)
        head = [b"\x0a\x10", trace_id, b"\x12\x08", bytes.fromhex(span.span_id)]
        if span.parent_id is not None:
            head += (b"\x22\x08", bytes.fromhex(span.parent_id))
        head += (b"\x2a", varint(len(name)), name, b"\x30", _ONE[KINDS[span.kind]])
        head.append(_times(b"\x39", span.start_ns, b"\x41", span.end_ns))
        parts = [_LIST_ATTRIBUTE.join((b"".join(head), *self._attributes(span.attributes)))]
        parts += [_field(b"\x5a", self._event(event)) for event in span.events]
        parts += [_field(b"\x6a", self._link(trace_id, link)) for link in span.links]
        parts.append(_field(b"\x7a", _status(span)))
        parts.append(b"\x85\x01" + _fixed32(KNOWS_REMOTE | (IS_REMOTE if span.remote_parent else 0)))
        return b"".join(parts)

    def _event(self, event: SpanEvent) -> bytes:
        head = b"\x09" + _fixed64(event.at_ns) + _field(b"\x12", _utf8(event.name))
        return _EVENT_ATTRIBUTE.join((head, *self._attributes(event.attributes)))

    def _link(self, trace_id: bytes, link: Link) -> bytes:
        head = b"".join((b"\x0a\x10", trace_id, b"\x12\x08", bytes.fromhex(link.span_id)))
        said = _LINK_ATTRIBUTE.join((head, *self._attributes({names.LINK_KIND: link.kind})))
        return said + b"\x35" + _fixed32(KNOWS_REMOTE)

    def _attributes(self, attributes: Mapping[str, Value]) -> list[bytes]:
        """Return each of *attributes* as its length and itself; its tag stands in front of that."""
        pieces: list[bytes] = []
        keys, texts, floats = self._keys, self._texts, self._floats
        for name, value in attributes.items():
            if type(value) is str:
                piece = texts.get((name, value)) or self._text(name, value)
            elif type(value) is float:
                piece = (floats.get(name) or self._float(name)) + _double(value)
            else:
                key = keys.get(name) or self._key(name)
                if type(value) is int and value >= 0:
                    number = varint(value)
                    size = len(number)
                    piece = b"".join((varint(len(key) + size + 3), key, _INTS[size], number))
                else:
                    body = key + _field(b"\x12", _any(value))
                    piece = varint(len(body)) + body
            pieces.append(piece)
        return pieces

    def _key(self, name: str) -> bytes:
        key = _field(b"\x0a", _utf8(name))
        if len(self._keys) >= MOST_KEPT:
            self._keys.clear()
        self._keys[name] = key
        return key

    def _float(self, name: str) -> bytes:
        key = self._keys.get(name) or self._key(name)
        front = b"".join((varint(len(key) + 11), key, b"\x12\x09\x21"))
        if len(self._floats) >= MOST_KEPT:
            self._floats.clear()
        self._floats[name] = front
        return front

    def _text(self, name: str, value: str) -> bytes:
        body = (self._keys.get(name) or self._key(name)) + _field(b"\x12", _any(value))
        piece = varint(len(body)) + body
        if len(value) <= _MOST_KEPT_CHARS:
            if len(self._texts) >= MOST_KEPT:
                self._texts.clear()
            self._texts[name, value] = piece
        return piece


def _any(value: Value) -> bytes:
    """Return *value* as an `AnyValue`."""
    if isinstance(value, str):
        return _field(b"\x0a", _utf8(value))
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        # As 64 bits in two's complement.
        return b"\x18" + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    if isinstance(value, float):
        return b"\x21" + _double(value)
    return _field(b"\x2a", b"".join([_field(b"\x0a", _any(item)) for item in value]))


def _status(span: Span) -> bytes:
    """Return how *span* ended; only an error says why."""
    code = STATUSES[span.status]
    said = b"\x18" + _ONE[code] if code else b""
    reason = span.attributes.get(names.REASON)
    return _field(b"\x12", _utf8(str(reason))) + said if span.status == "error" and reason else said
