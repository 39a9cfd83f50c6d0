"""Request bodies as trees of byte strings that are never joined before they are written.

What does not change between two requests is the same subtree in both, so building a request costs what is new in it,
and the text of a message is the very bytes its `Text` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, final

import msgspec

Fragments: TypeAlias = "tuple[bytes | Deferred | Fragments, ...]"

PIECE_BYTES = 64 * 1024


@final
class Deferred(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Bytes that are fetched when the body is written and kept by nobody.

    Args:
        size: How many bytes they are.
        load: Returns them; reads a file, so it wants a thread.
    """

    size: int
    load: Callable[[], bytes]

    def __len__(self) -> int:
        """Return how many bytes they are."""
        return self.size


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

    def leaves(self) -> Iterator[bytes | Deferred]:
        """Yield the leaves of the tree from left to right, each the object that stands in it."""
        for part in _walk(self.fragments):
            if isinstance(part, bytes | Deferred):
                yield part
            else:
                yield from part

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes | Deferred]:
        """Yield the body in pieces of at least *piece_bytes*, ready to be written.

        The last piece may be smaller, and the one in front of bytes that have to be fetched.
        """
        held: list[bytes] = []
        size = 0
        for made in _walk(self.fragments):
            if isinstance(made, Deferred):
                if held:
                    yield b"".join(held)
                yield made
                held.clear()
                size = 0
                continue
            part = made if isinstance(made, bytes) else b"".join(made)
            held.append(part)
            size += len(part)
            if size >= piece_bytes:
                yield b"".join(held)
                held.clear()
                size = 0
        if held:
            yield b"".join(held)

    def __bytes__(self) -> bytes:
        return b"".join([leaf if isinstance(leaf, bytes) else leaf.load() for leaf in self.leaves()])


def _walk(fragments: Fragments) -> Iterator[bytes | Deferred | Flat]:
    """Yield the leaves of *fragments* from left to right; flat ones as they are."""
    stack: list[Iterator[bytes | Deferred | Fragments]] = [iter(fragments)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, bytes | Flat | Deferred):
                yield item
            else:
                stack.append(iter(item))
                break
        else:
            stack.pop()
