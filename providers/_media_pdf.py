"""How many pages a PDF has, and whether it is locked, as far as that can be told without reading it as one."""

from __future__ import annotations

import re
import zlib

_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
_COUNT = re.compile(rb"/Count\s+(\d{1,6})(?!\d)")
_PACKED = re.compile(rb"/ObjStm\b.{0,400}?>>\s{0,8}stream\r?\n", re.DOTALL)
_LOCK = re.compile(rb"/Encrypt\s*(?:<<|\d{1,10}\s+\d{1,5}\s+R\b)")
_MOST_UNPACKED = 16 * 1024 * 1024
"""Most bytes that are unpacked of one file: a small one may claim to be huge."""


def pdf_locked(data: bytes) -> bool:
    """Say whether *data* is encrypted, so that no vendor reads it."""
    return _LOCK.search(data) is not None


def pdf_pages(data: bytes) -> int | None:
    """Return how many pages *data* has: those that stand in it, packed ones too; `None` where none is found."""
    plain = [data, *_unpacked(data)]
    pages = sum(len(_PAGE.findall(piece)) for piece in plain)
    # A file that was saved again and again holds pages that are gone; the tree of pages says how many there are.
    counts = [int(count) for piece in plain if b"/Pages" in piece for count in _COUNT.findall(piece)]
    if counts and pages:
        return min(pages, max(counts)) or pages
    return pages or max(counts, default=0) or None


def _unpacked(data: bytes) -> list[bytes]:
    """Return what the object streams of *data* hold, as far as it can be unpacked."""
    found: list[bytes] = []
    room = _MOST_UNPACKED
    view = memoryview(data)
    for packed in _PACKED.finditer(data):
        # Up to its end only: what stands behind it would be copied, for each of thousands.
        end = data.find(b"endstream", packed.end())
        try:
            piece = zlib.decompressobj().decompress(view[packed.end() : end if end >= 0 else len(data)], room)
        except zlib.error:
            piece = b""
        found.append(piece)
        room -= len(piece)
        if end < 0 or room <= 0:
            break
    return found
