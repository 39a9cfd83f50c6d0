"""Images and documents, read as far as a vendor's checks and counts need it: type, size, pages."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@final
@dataclass(frozen=True, slots=True)
class Image:
    """What an image says of itself. Sides in pixels."""

    media_type: str
    width: int
    height: int


@final
@dataclass(frozen=True, slots=True)
class Pdf:
    """What a PDF says of itself, as far as it is not compressed."""

    pages: int
    encrypted: bool


def decoded(data: str) -> bytes | None:
    """Return the bytes of base64; `None` if it is none."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def image(raw: bytes) -> Image | None:
    """Return what *raw* is, by its first bytes; `None` if it is no PNG, JPEG, GIF or WebP."""
    if raw[:8] == b"\x89PNG\r\n\x1a\n" and len(raw) >= 24:
        return Image("image/png", int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big"))
    if raw[:6] in (b"GIF87a", b"GIF89a") and len(raw) >= 10:
        return Image("image/gif", int.from_bytes(raw[6:8], "little"), int.from_bytes(raw[8:10], "little"))
    if raw[:3] == b"\xff\xd8\xff":
        return next(_jpeg(raw), None)
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return _webp(raw)
    return None


def _jpeg(raw: bytes) -> Iterator[Image]:
    """Yield the sizes that the segments of a JPEG give."""
    place = 2
    while place + 9 <= len(raw) and raw[place] == 0xFF:
        if raw[place + 1] in _JPEG_SIZES:
            height, width = raw[place + 5 : place + 7], raw[place + 7 : place + 9]
            yield Image("image/jpeg", int.from_bytes(width, "big"), int.from_bytes(height, "big"))
        place += 2 + int.from_bytes(raw[place + 2 : place + 4], "big")


def _webp(raw: bytes) -> Image | None:
    if len(raw) < 30:
        return None
    match raw[12:16]:
        case b"VP8 ":
            width, height = (int.from_bytes(raw[at : at + 2], "little") & 0x3FFF for at in (26, 28))
        case b"VP8L":
            bits = int.from_bytes(raw[21:25], "little")
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, height = (int.from_bytes(raw[at : at + 3], "little") + 1 for at in (24, 27))
        case _:
            return None
    return Image("image/webp", width, height)


def pdf(raw: bytes) -> Pdf | None:
    """Return what *raw* says of itself; `None` if it is no PDF."""
    if not raw.startswith(b"%PDF-"):
        return None
    return Pdf(len(_PAGE.findall(raw)), b"/Encrypt" in raw)
