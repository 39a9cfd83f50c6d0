"""Bytes that somebody brings to a run, and what is made of them before they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast, final

import anyio
import anyio.to_thread
import msgspec

from shoal.errors import ConfigInvalid, PartRefused
from shoal.providers import Text, media_of, readable, stand_in
from shoal.runtime.context import PartStored, Shelf

_SMALL_BYTES = 64 * 1024
"""So much is looked at where it is; more goes to a thread."""
_NAME_CHARS = 200
_SUFFIXES = {
    "application/pdf": "pdf",
    "audio/mpeg": "mp3",
    "image/jpeg": "jpg",
    "text/plain": "txt",
    "video/quicktime": "mov",
}


@final
@dataclass(frozen=True, slots=True, repr=False)
class Attachment:
    """Bytes for a run: an image, a document, a recording, or anything else. What they are is read from them.

    Args:
        data: All of them.
        name: A name for people and models, such as the file's; empty has one made up.
    """

    data: bytes
    name: str = ""

    def __repr__(self) -> str:
        return f"<Attachment {self.name or 'without a name'}, {readable(len(self.data))}>"

    @classmethod
    def read(cls, path: str | Path) -> Attachment:
        """Return the file at *path* under its own name.

        Raises:
            ConfigInvalid: It cannot be read.
        """
        try:
            return cls(Path(path).read_bytes(), Path(path).name)
        except OSError as exc:
            raise ConfigInvalid(f"{str(path)!r} cannot be attached: {exc.strerror or exc}; check the path") from exc


Attachable: TypeAlias = bytes | Attachment
"""What is taken where parts are taken."""
SeedValue: TypeAlias = str | Attachable | Sequence[str | Attachable]
"""What a caller gives a region: text, parts, or both in a list."""


@final
class Prepared(msgspec.Struct, frozen=True):
    """Bytes that were looked at and can be kept; their name is not final yet."""

    stored: PartStored
    data: bytes


def attachment(given: object) -> Attachment | None:
    """Return *given* as an attachment; `None` where it is neither bytes nor one."""
    if isinstance(given, Attachment):
        return given
    if isinstance(given, bytes | bytearray):
        return Attachment(bytes(given))
    return Attachment(given.tobytes()) if isinstance(given, memoryview) else None


def attachments(given: Iterable[Attachable]) -> tuple[Attachment, ...]:
    """Return *given* as attachments.

    Raises:
        ConfigInvalid: One is neither bytes nor an `Attachment`.
    """
    made: list[Attachment] = []
    for each in given:
        known = attachment(each)
        if known is None:
            raise ConfigInvalid(f"{type(each).__name__!r} cannot be attached; give bytes, or an `Attachment`")
        made.append(known)
    return tuple(made)


def prepare(brought: Attachment, most_bytes: int) -> Prepared:
    """Return *brought* looked at: its type, its measures and its digest.

    Raises:
        PartRefused: It holds more than *most_bytes*.
    """
    size = len(brought.data)
    if size > most_bytes:
        named = f" {brought.name!r}" if brought.name else ""
        raise PartRefused(
            f"the part{named} holds {size:,} bytes and at most {most_bytes:,} are kept; "
            "send a smaller one, or raise the limit `part_bytes`"
        )
    media = media_of(brought.data)
    digest = hashlib.sha256(brought.data).hexdigest()
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in brought.name)[-_NAME_CHARS:]
    measures = (media.width_px, media.height_px, media.pages, media.seconds)
    return Prepared(PartStored(digest, name, media.mime, size, *measures), brought.data)


async def prepared(
    brought: Sequence[Attachment], most_bytes: int, threads: anyio.CapacityLimiter
) -> tuple[Prepared, ...]:
    """Return each of *brought* looked at, in order; what is large is looked at in a thread.

    Raises:
        PartRefused: One holds more than *most_bytes*.
    """

    def look() -> tuple[Prepared, ...]:
        return tuple(prepare(each, most_bytes) for each in brought)

    if sum(len(each.data) for each in brought) <= _SMALL_BYTES:
        return look()
    return await anyio.to_thread.run_sync(look, limiter=threads)


def named(stored: PartStored, shelf: Shelf) -> PartStored:
    """Return *stored* under a name that no part of *shelf* has."""
    name = stored.name
    if not name:
        major, _, minor = stored.mime.partition("/")
        kind = "document" if stored.mime == "application/pdf" else "file" if major == "application" else major
        suffix = _SUFFIXES.get(stored.mime, "bin" if minor == "octet-stream" else minor)
        name = f"{kind}-{len(shelf.stored) + 1}.{suffix}"
    return msgspec.structs.replace(stored, name=shelf.free_name(name))


@final
class Given(msgspec.Struct, frozen=True):
    """A caller's value: its text, and its parts, looked at."""

    text: Text
    parts: tuple[Prepared, ...] = ()

    @property
    def shown(self) -> Text:
        """The value in words, each part as its stand-in."""
        if not self.parts:
            return self.text
        lines = [stand_in(media_of(part.data), part.stored.size, part.stored.name) for part in self.parts]
        return Text.of("\n".join([*([str(self.text)] if self.text else []), *lines]))


async def given(value: SeedValue, most_bytes: int, threads: anyio.CapacityLimiter) -> Given:
    """Return *value* as its text and its parts.

    Raises:
        ConfigInvalid: It is no text and no part.
        PartRefused: A part holds more than *most_bytes*.
    """
    if isinstance(value, str):
        return Given(Text.of(value))
    one = attachment(value)
    pieces: Sequence[object] = [one] if one is not None else cast("Sequence[object]", value)
    if not isinstance(pieces, list | tuple):
        raise ConfigInvalid(f"{type(value).__name__!r} is no value for a region; give text, bytes, or a list of both")
    text = "\n".join([each for each in pieces if isinstance(each, str)])
    parts = attachments([cast("Attachable", each) for each in pieces if not isinstance(each, str)])
    return Given(Text.of(text), await prepared(parts, most_bytes, threads))
