"""What bytes are, by themselves: their type, and what a vendor counts of them. Nobody's word for it is taken.

Each reader looks where its format keeps a number and answers `None` where that is not there; nothing is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, final

import msgspec

from shoal.providers._media_images import bmp_size, gif_size, heif_size, jpeg_size, png_size, webp_size
from shoal.providers._media_pdf import pdf_locked, pdf_pages
from shoal.providers._media_sound import aiff_seconds, flac_seconds, mp3_seconds, mp4_seconds, ogg_seconds, wav_seconds

BINARY: Final = "application/octet-stream"
TEXT: Final = "text/plain"
LOCKED_PDF: Final = "application/x-encrypted-pdf"
"""A type of its own, since no model takes it."""
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"II*\0", 0, "image/tiff"),
    (b"MM\0*", 0, "image/tiff"),
    (b"%PDF-", 0, "application/pdf"),
    (b"ID3", 0, "audio/mpeg"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"\x1aE\xdf\xa3", 0, "video/webm"),
)
_CONTAINED: Final = {
    (b"RIFF", b"WEBP"): "image/webp",
    (b"RIFF", b"WAVE"): "audio/wav",
    (b"FORM", b"AIFF"): "audio/aiff",
    (b"FORM", b"AIFC"): "audio/aiff",
}
_BRANDS: Final = {
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"msf1": "image/heif",
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"M4A ": "audio/mp4",
    b"qt  ": "video/quicktime",
}
_BMP_HEADERS: Final = (12, 40, 52, 56, 64, 108, 124)


def sniff(data: bytes) -> str:
    """Return the mime type of *data* by its first bytes; `text/plain` for UTF-8, else `application/octet-stream`."""
    for magic, at, mime in _MAGIC:
        if data[at : at + len(magic)] == magic:
            return mime
    contained = _CONTAINED.get((data[:4], data[8:12]))
    if contained is not None:
        return contained
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "video/mp4")
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _BMP_HEADERS:
        return "image/bmp"
    if b"\0" not in data:
        try:
            data.decode()
        except UnicodeDecodeError:
            pass
        else:
            return TEXT
    # Two bytes are a weak sign, so that a whole header behind them has to make sense.
    return "audio/mpeg" if mp3_seconds(data) is not None else BINARY


@final
class Media(msgspec.Struct, frozen=True, gc=False):
    """What bytes say of themselves.

    Args:
        mime: Their type.
        width_px: Of an image: its width; `None` where it is unknown.
        height_px: Of an image: its height; `None` where it is unknown.
        pages: Of a document: how many, 1 or more; `None` where it is unknown.
        seconds: Of a recording: how long it lasts; `None` where it is unknown.
    """

    mime: str
    width_px: int | None = None
    height_px: int | None = None
    pages: int | None = None
    seconds: float | None = None


def media_of(data: bytes) -> Media:
    """Return what *data*, a whole file, says of itself."""
    mime = sniff(data)
    try:
        if mime in _SIZES:
            size = _SIZES[mime](data)
            return Media(mime) if size is None or 0 in size else Media(mime, size[0], size[1])
        if mime in _SECONDS:
            seconds = _SECONDS[mime](data)
            return Media(mime, seconds=None if seconds is None else round(seconds, 3))
    except (struct.error, IndexError, OverflowError):
        return Media(mime)  # it ends where a number should stand, or has one beyond all others
    if mime != "application/pdf":
        return Media(mime)
    return Media(LOCKED_PDF) if pdf_locked(data) else Media(mime, pages=pdf_pages(data))


_SIZES: Mapping[str, Callable[[bytes], tuple[int, int] | None]] = {
    "image/avif": heif_size,
    "image/bmp": bmp_size,
    "image/gif": gif_size,
    "image/heic": heif_size,
    "image/heif": heif_size,
    "image/jpeg": jpeg_size,
    "image/png": png_size,
    "image/webp": webp_size,
}
_SECONDS: Mapping[str, Callable[[bytes], float | None]] = {
    "audio/aiff": aiff_seconds,
    "audio/flac": flac_seconds,
    "audio/mp4": mp4_seconds,
    "audio/mpeg": mp3_seconds,
    "audio/ogg": ogg_seconds,
    "audio/wav": wav_seconds,
    "video/mp4": mp4_seconds,
    "video/quicktime": mp4_seconds,
}
