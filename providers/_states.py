"""What a vendor wants back, sealed with the API that can read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, final

import msgspec

from shoal.providers._values import Message, ProviderState


@final
class _Sealed(msgspec.Struct, frozen=True):
    api: str
    state: msgspec.Raw


_decode = msgspec.json.Decoder(_Sealed).decode


@final
class Reader(msgspec.Struct, frozen=True):
    """Who reads a state: one API of one provider, for one model.

    Args:
        provider: Name of the provider.
        model: The model.
        api: Name of the API.
    """

    provider: str
    model: str
    api: str

    def seal(self, value: bytes) -> ProviderState:
        """Return *value*, JSON, as a state that only this reader reads."""
        return ProviderState(self.provider, self.model, b'{"api":"%b","state":%b}' % (self.api.encode(), value))

    def read(self, message: Message) -> bytes | None:
        """Return what is to be sent back with *message*; `None` where that is nothing, or another's."""
        state = message.state
        if state is None or (state.provider, state.model) != (self.provider, self.model):
            return None
        try:
            sealed = _decode(state.data)
        except msgspec.MsgspecError:
            return None
        return bytes(sealed.state) if sealed.api == self.api else None


# --- layouts: the parts of a turn in the order in which its model wrote them


@final
class Opaque(msgspec.Struct, frozen=True, gc=False):
    """A part that goes back as it came."""

    raw: bytes


@final
class Said(msgspec.Struct, frozen=True, gc=False):
    """A part of the text: its place in the JSON body of the whole text, and more that the vendor said of it."""

    start: int
    end: int
    note: str = ""


@final
class Called(msgspec.Struct, frozen=True, gc=False):
    """A call, by its number, and more that the vendor said of it; *named*: it came with an id of its own."""

    index: int
    note: str = ""
    named: bool = False


@final
class Made(msgspec.Struct, frozen=True, gc=False):
    """A stored part that the model made, by its number, and more that the vendor said of it."""

    index: int
    note: str = ""


Part: TypeAlias = Opaque | Said | Called | Made

_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_piece = msgspec.json.Decoder(list[Any]).decode


def said_piece(size: int, note: str = "") -> bytes:
    """Return what stands in a layout for a text of *size* bytes in its JSON form."""
    return msgspec.json.encode(["text", size, note] if note else ["text", size])


def called_piece(index: int, note: str = "", *, named: bool = False) -> bytes:
    """Return what stands in a layout for the call *index*."""
    return msgspec.json.encode(["call", index, note, named] if note or named else ["call", index])


def made_piece(index: int, note: str = "") -> bytes:
    """Return what stands in a layout for the stored part *index*."""
    return msgspec.json.encode(["made", index, note])


def pieces(state: bytes, body: bytes, calls: int, made: int = 0) -> Iterator[Part]:
    """Yield the parts of a turn in their order.

    Where the turn is no longer what its model wrote, what was opaque in front of its first text or call is all that
    still holds; the whole text and the calls follow.

    Args:
        state: The layout: parts as they came, with pieces for texts, calls and stored parts.
        body: The JSON body of the turn's text.
        calls: How many calls it has.
        made: How many stored parts it has.
    """
    parts: list[Part] = []
    at = 0
    for raw in map(bytes, _raws(state)):
        if raw[:1] != b"[":
            parts.append(Opaque(raw))
            continue
        kind, number, *notes = _piece(raw)
        if kind == "call":
            parts.append(Called(number, *notes))
        elif kind == "made":
            parts.append(Made(number, *notes))
        else:
            parts.append(Said(at, at + number, *notes))
            at += number
    asked = [part.index for part in parts if isinstance(part, Called)]
    shown = [part.index for part in parts if isinstance(part, Made)]
    if at == len(body) and asked == list(range(calls)) and shown == list(range(made)):
        yield from parts
        return
    for part in parts:
        if not isinstance(part, Opaque):
            break
        yield part
    if body:
        yield Said(0, len(body))
    yield from map(Made, range(made))
    yield from map(Called, range(calls))
