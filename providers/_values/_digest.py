"""Digests of values, and the values that keep theirs."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

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


class Remembering(msgspec.Struct, frozen=True, gc=False, eq=False, kw_only=True):
    """A part of requests, which keeps what was made of it; one made from it by `replace` keeps nothing of that."""

    _digest: bytes = b""
    _wire: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        if self._digest or self._wire is not None:
            self._forget()

    def _forget(self) -> None:
        msgspec.structs.force_setattr(self, "_digest", b"")
        msgspec.structs.force_setattr(self, "_wire", None)

    @abstractmethod
    def _pieces(self) -> Iterable[bytes]:
        """Return what its digest is made of."""
        ...

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for all that it says."""
        if not self._digest:
            msgspec.structs.force_setattr(self, "_digest", digest(*self._pieces()))
        return self._digest
