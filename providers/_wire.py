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
        stack: list[Iterator[bytes | Fragments]] = [iter(self.fragments)]
        while stack:
            for item in stack[-1]:
                if isinstance(item, bytes):
                    yield item
                else:
                    stack.append(iter(item))
                    break
            else:
                stack.pop()

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield the body in pieces of at least *piece_bytes* (the last may be smaller), ready to be written."""
        held: list[bytes] = []
        size = 0
        for leaf in self.leaves():
            held.append(leaf)
            size += len(leaf)
            if size >= piece_bytes:
                yield b"".join(held)
                held.clear()
                size = 0
        if held:
            yield b"".join(held)

    def __bytes__(self) -> bytes:
        return b"".join(self.leaves())
