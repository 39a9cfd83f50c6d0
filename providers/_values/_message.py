"""What is said: messages, the calls in them, and the stored parts behind their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from operator import attrgetter
from typing import Literal, TypeAlias, final

import msgspec

from shoal.providers._text import Text, join
from shoal.providers._values._digest import Remembering, digest, to_bytes

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


@final
class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call that a model asked for.

    Args:
        call_id: Shoal's own id, unique in its run; an encoder maps it to what its vendor takes.
        name: The tool, as the request named it.
        arguments: The JSON source of the arguments object, as the model wrote it; may be malformed.
        vendor_id: The vendor's own id, sent back to that vendor where it insists; empty where it gave none.
    """

    call_id: str
    name: str
    arguments: Text
    vendor_id: str = ""


@final
class ProviderState(msgspec.Struct, frozen=True, gc=False):
    """What a vendor wants back byte for byte: thinking, signatures, encrypted reasoning, item ids.

    Args:
        provider: Name of the provider that made it.
        model: The model that made it; it is sent back to no other.
        data: JSON that only the encoder of one API reads; it names that API, so no other one sends it.
    """

    provider: str
    model: str
    data: bytes


@final
class Blob(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A stored part: an image, a document or other bytes that stand in a message behind its text.

    A model that takes its type is sent the bytes behind the stand-in line, any other the stand-in line alone. The bytes
    are read when a request is written and kept by nobody, so they have to stay the same.

    Args:
        mime: What the bytes are, by their own first bytes (`sniff`) and not by a file's name, such as `image/png`.
        size: How many bytes, 0 or more.
        digest: 16 bytes or more that stand for the bytes.
        load: Returns the bytes. Called in a worker thread.
        stand_in: The line that names it where the bytes are not sent, such as `[image/png 64x64, 2 KB] hero.png`.
        name: The name of its file; empty where it has none.
        text: What it says, of a part that is text by its bytes: sent as text to every model.
        side_px: The longer side of an image in pixels; `None` where it is unknown or no image.
        width_px: Width of an image; `None` where it is unknown.
        height_px: Height of an image; `None` where it is unknown.
        pages: Pages of a document; `None` where they are unknown.
        seconds: How long a recording lasts; `None` where it is unknown.
    """

    mime: str
    size: int
    digest: bytes
    load: Callable[[], bytes]
    stand_in: Text
    name: str = ""
    text: Text | None = None
    side_px: int | None = None
    width_px: int | None = None
    height_px: int | None = None
    pages: int | None = None
    seconds: float | None = None


_next_number = count(1).__next__
_PLAIN: Mapping[Role, bytes] = {role: f"{role}|||0".encode() for role in ROLES}


@final
class Message(Remembering, frozen=True, gc=False, eq=False):
    """One message of a conversation.

    Args:
        role: Who speaks. A `tool` message answers one call.
        texts: What is said, n pieces in order; joined they are the text.
        calls: Of an assistant: the tools it asked for, in its order.
        call_id: Of a tool message: the call that it answers.
        tool_name: Of a tool message: the tool that answered.
        is_error: Of a tool message: the call failed.
        state: Of an assistant: what its vendor wants back; `None` where there is nothing.
        blobs: Stored parts that stand behind its text; of an assistant: what it made.
        turn_scoped: Of a system message: it counts until the next user message only, and stays in its place. Models
            that know no such messages take it for one that counts from then on.
    """

    role: Role
    texts: tuple[Text, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    state: ProviderState | None = None
    blobs: tuple[Blob, ...] = ()
    turn_scoped: bool = False
    _number: int = 0

    def __post_init__(self) -> None:
        if self._digest or self._wire is not None or self._number:
            self._forget()
            msgspec.structs.force_setattr(self, "_number", 0)

    @property
    def text(self) -> str:
        """What is said, as one string."""
        return join(self.texts)

    @property
    def number(self) -> int:
        """A number, 1 or more, that no other message of this process has; it says nothing of order."""
        if not self._number:
            msgspec.structs.force_setattr(self, "_number", _next_number())
        return self._number

    def _pieces(self) -> Iterable[bytes]:
        plain = not (self.call_id or self.tool_name or self.is_error)
        pieces = [
            _PLAIN[self.role] if plain else to_bytes(f"{self.role}|{self.call_id}|{self.tool_name}|{self.is_error:d}")
        ]
        pieces += [text.digest for text in self.texts]
        if self.calls:
            pieces += [_digest_of(call) for call in self.calls]
        pieces.append(b"" if self.state is None else self.state.data)
        if self.blobs:
            pieces += [digest(blob.digest, blob.stand_in.digest) for blob in self.blobs]
        if self.turn_scoped:
            pieces.append(b"turn")
        return pieces


def _digest_of(call: ToolCall) -> bytes:
    made = (to_bytes(call.call_id), to_bytes(call.name), call.arguments.digest)
    return digest(*made, to_bytes(call.vendor_id)) if call.vendor_id else digest(*made)


known_number = attrgetter("_number")
"""Returns the `Message.number` of a message, or 0 where nobody has asked for it yet."""


def numbers_of(messages: Iterable[Message]) -> tuple[int, ...]:
    """Return the `Message.number` of each of *messages*."""
    return tuple([m._number or m.number for m in messages])  # pyright: ignore[reportPrivateUsage] # a call each is slow
