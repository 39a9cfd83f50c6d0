"""Stored parts: what their bytes are, and what of them a request carries."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable
from typing import Final

from shoal.errors import ProviderRefused
from shoal.providers._text import Text
from shoal.providers._values import Blob, ModelProfile
from shoal.providers._wire import Deferred

_BINARY: Final = "application/octet-stream"
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"%PDF-", 0, "application/pdf"),
    (b"WAVE", 8, "audio/wav"),
    (b"ID3", 0, "audio/mpeg"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"ftypheic", 4, "image/heic"),
    (b"ftyp", 4, "video/mp4"),
)


def sniff(data: bytes) -> str:
    """Return the mime type of *data* by its first bytes; `text/plain` for UTF-8, else `application/octet-stream`."""
    for magic, at, mime in _MAGIC:
        if data[at : at + len(magic)] == magic:
            return mime
    if b"\0" in data:
        return _BINARY
    try:
        data.decode()
    except UnicodeDecodeError:
        return _BINARY
    return "text/plain"


def blob(data: bytes, name: str = "", *, load: Callable[[], bytes] | None = None) -> Blob:
    """Return *data* as a stored part.

    Args:
        data: All of its bytes.
        name: The name of its file, for its stand-in.
        load: Returns the same bytes again when they are sent; `None` keeps *data* in memory.
    """
    mime = sniff(data)
    sides = image_size(data)
    measure = "" if sides is None else f" {sides[0]}x{sides[1]}"
    return Blob(
        mime,
        len(data),
        hashlib.sha256(data).digest(),
        load or (lambda: data),
        Text.of(f"[{mime}{measure}, {_readable(len(data))}]" + (f" {name}" if name else "")),
        name,
        Text.of(data.decode()) if mime == "text/plain" else None,
        None if sides is None else max(sides),
    )


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height of an image in pixels; `None` where they do not stand where they should."""
    try:
        match sniff(data[:64]):
            case "image/png":
                width, height = struct.unpack(">II", data[16:24])
            case "image/gif":
                width, height = struct.unpack("<HH", data[6:10])
            case "image/jpeg":
                width, height = _jpeg_size(data)
            case _:
                return None
    except struct.error:
        return None
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while True:
        marker, length = struct.unpack(">HH", data[at : at + 4])
        if 0xFFC0 <= marker <= 0xFFCF and marker not in (0xFFC4, 0xFFC8, 0xFFCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + length


def _readable(size: int) -> str:
    if size < 1024:
        return f"{size} bytes"
    return f"{size / 1024:.0f} KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f} MB"


def takes(profile: ModelProfile, mime: str) -> bool:
    """Say whether the model of *profile* takes parts of the type *mime*."""
    kind = mime.partition("/")[0]
    return any(pattern in (mime, f"{kind}/*", "*/*") for pattern in profile.input_types)


def in_base64(part: Blob) -> Deferred:
    """Return the bytes of *part* in base64, fetched when the request is written.

    What it loads raises `ProviderRefused` where the bytes cannot be had, or have another size by then.
    """

    def load() -> bytes:
        try:
            data = part.load()
        except OSError as exc:
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
