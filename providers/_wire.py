"""Request bodies as trees of byte strings that are never joined before they are written.

What does not change between two requests is the same subtree in both, so building a request costs what is new in it,
and the text of a message is the very bytes its `Text` holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, final

import msgspec

Fragments: TypeAlias = "tuple[bytes | Fragments, ...]"

PIECE_BYTES = 64 * 1024


@final
class Flat(tuple[bytes, ...]):
    """Fragments without a tree below them: what will never change again, joined in one step when it is written."""

    __slots__ = ()


@final
class Wire(msgspec.Struct, frozen=True, gc=False):
    """An encoded part, or a whole request body.

    Args:
        fragments: Its bytes, nested; read from left to right.
        size: How many bytes they are.
    """

    fragments: Fragments
    size: int

    @classmethod
    def of(cls, *fragments: bytes | Wire) -> Wire:
        """Return *fragments*, one behind the other."""
        return cls(
            tuple([f if isinstance(f, bytes) else f.fragments for f in fragments]),
            sum([len(f) if isinstance(f, bytes) else f.size for f in fragments]),
        )

    def leaves(self) -> Iterator[bytes]:
        """Yield the byte strings of the tree from left to right, each the object that stands in it."""
        for part in _walk(self.fragments):
            if isinstance(part, bytes):
                yield part
            else:
                yield from part

    def _parts(self) -> Iterator[bytes]:
        for part in _walk(self.fragments):
            yield part if isinstance(part, bytes) else b"".join(part)

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield the body in pieces of at least *piece_bytes* (the last may be smaller), ready to be written."""
        held: list[bytes] = []
        size = 0
        for part in self._parts():
            held.append(part)
            size += len(part)
            if size >= piece_bytes:
                yield b"".join(held)
                held.clear()
                size = 0
        if held:
            yield b"".join(held)

    def __bytes__(self) -> bytes:
        return b"".join(self._parts())


def _walk(fragments: Fragments) -> Iterator[bytes | Flat]:
    """Yield the leaves of *fragments* from left to right; flat ones as they are."""
    stack: list[Iterator[bytes | Fragments]] = [iter(fragments)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, bytes | Flat):
                yield item
            else:
                stack.append(iter(item))
                break
        else:
            stack.pop()
