"""Stored parts: what their bytes are, and what of them a request carries."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

from shoal.errors import PartMissing, ProviderRefused
from shoal.providers._intake import matches
from shoal.providers._media import TEXT, Media, media_of
from shoal.providers._text import Text
from shoal.providers._values import Blob, Message, ModelProfile
from shoal.providers._wire import Deferred


def blob(data: bytes, name: str = "", *, load: Callable[[], bytes] | None = None) -> Blob:
    """Return *data* as a stored part.

    Args:
        data: All of its bytes.
        name: The name of its file, for its stand-in.
        load: Returns the same bytes again when they are sent; `None` keeps *data* in memory.
    """
    media = media_of(data)
    text = Text.of(data.decode()) if media.mime == TEXT else None
    return blob_of(media, len(data), hashlib.sha256(data).digest(), load or (lambda: data), name=name, text=text)


def blob_of(
    media: Media, size: int, digest: bytes, load: Callable[[], bytes], *, name: str = "", text: Text | None = None
) -> Blob:
    """Return as a stored part what is known of bytes that lie elsewhere.

    Args:
        media: What they say of themselves.
        size: How many they are.
        digest: 16 bytes or more that stand for them.
        load: Returns them. Called in a worker thread.
        name: The name of their file, for the stand-in.
        text: What they say, where they are text.
    """
    side = None if media.width_px is None or media.height_px is None else max(media.width_px, media.height_px)
    line = Text.of(stand_in(media, size, name))
    measures = (media.width_px, media.height_px, media.pages, media.seconds)
    return Blob(media.mime, size, digest, load, line, name, text, side, *measures)


def stand_in(media: Media, size: int, name: str) -> str:
    """Return the line that names a part: its type, its measure where it has one, its size, and its name."""
    if media.width_px is not None:
        measure = f" {media.width_px}x{media.height_px}"
    elif media.pages is not None:
        measure = f" {media.pages} page{'' if media.pages == 1 else 's'}"
    else:
        measure = "" if media.seconds is None else f" {media.seconds:.0f} s"
    return f"[{media.mime}{measure}, {readable(size)}]" + (f" {name}" if name else "")


def readable(size: int) -> str:
    """Return a size in bytes as people read it."""
    if size < 1024:
        return f"{size} bytes"
    return f"{size / 1024:.0f} KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f} MB"


def takes(profile: ModelProfile, mime: str) -> bool:
    """Say whether the model of *profile* takes parts of the type *mime*."""
    return matches(profile.input_types, mime)


def said_of(part: Blob) -> bytes:
    """Return what is said of *part* in words, as the inside of a JSON string: its stand-in, and its text below that."""
    return part.stand_in.body if not part.text else part.stand_in.body + b"\\n" + part.text.body


def in_words(message: Message) -> Message:
    """Return *message* with the stand-ins of its parts in place of them: a model's own turn holds no bytes."""
    if not message.blobs:
        return message
    body = b"\\n".join([said_of(part) for part in message.blobs])
    line = Text(b"\\n" + body if any(message.texts) else body)
    return Message(
        message.role,
        (*message.texts, line),
        message.calls,
        message.call_id,
        message.tool_name,
        message.is_error,
        message.state,
    )


def in_base64(part: Blob) -> Deferred:
    """Return the bytes of *part* in base64, fetched when the request is written.

    What it loads raises `ProviderRefused` where the bytes cannot be had, or have another size by then.
    """

    def load() -> bytes:
        try:
            data = part.load()
        except (OSError, PartMissing) as exc:
            raise ProviderRefused(
                f"the stored part {part.name or part.mime!r} cannot be read ({exc}); attach it again"
            ) from exc
        if len(data) != part.size:
            raise ProviderRefused(
                f"the stored part {part.name or part.mime!r} holds {len(data)!r} bytes and was {part.size!r}; "
                "attach it again"
            )
        return base64.b64encode(data)

    return Deferred(4 * -(-part.size // 3), load)
