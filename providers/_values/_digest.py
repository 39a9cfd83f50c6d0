"""Digests of values, and what is forgotten of a value that another is made from."""

from __future__ import annotations

import hashlib

import msgspec


def digest(*pieces: bytes) -> bytes:
    """Return 16 bytes that stand for *pieces*, in order; no two lists of pieces share one."""
    whole = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        whole.update(len(piece).to_bytes(4, "little"))
        whole.update(piece)
    return whole.digest()


def to_bytes(text: str) -> bytes:
    """Return the bytes of *text*, of a lone surrogate too: names may come from anywhere."""
    return text.encode("utf-8", "surrogatepass")


def forget(part: msgspec.Struct) -> None:
    """Have *part*, made from another by `replace`, forget what was made of that one."""
    msgspec.structs.force_setattr(part, "_digest", b"")
    msgspec.structs.force_setattr(part, "_wire", None)
