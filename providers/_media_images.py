"""Width and height of images, in pixels, from where each format keeps them."""

from __future__ import annotations

import struct

Size = tuple[int, int]

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a length behind them."""


def png_size(data: bytes) -> Size | None:
    """Return the size of a PNG."""
    if data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def gif_size(data: bytes) -> Size | None:
    """Return the size of a GIF."""
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def bmp_size(data: bytes) -> Size | None:
    """Return the size of a BMP."""
    if int.from_bytes(data[14:18], "little") == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    width, height = struct.unpack_from("<ii", data, 18)
    return abs(width), abs(height)  # below zero: its rows stand from the top


def jpeg_size(data: bytes) -> Size | None:
    """Return the size of a JPEG, as its first frame says it."""
    at = 2
    while True:
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # filled up
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            (length,) = struct.unpack_from(">H", data, at + 2)
            at += 2 + length


def webp_size(data: bytes) -> Size | None:
    """Return the size of a WebP in any of its three forms."""
    match data[12:16]:
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if data[20] == 0x2F:
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X" if len(data) >= 30:
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case _:
            return None


def heif_size(data: bytes) -> Size | None:
    """Return the size of a HEIF or AVIF: the largest that it names, since it may be laid out in tiles."""
    found: list[Size] = []
    at = data.find(b"ispe")
    while at >= 0:
        width, height = struct.unpack_from(">II", data, at + 8)
        found.append((width, height))
        at = data.find(b"ispe", at + 4)
    return max(found, key=lambda size: size[0] * size[1], default=None)
