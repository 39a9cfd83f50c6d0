"""Request bodies as trees of byte strings that are never joined before they are written.

What does not change between two requests is the same subtree in both, so building a request costs what is new in it,
and the text of a message is the very bytes its `Text` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, cast, final

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


_WRITTEN = (bytes, Flat, Deferred)


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
        made: list[bytes | Fragments] = []
        size = 0
        for fragment in fragments:
            if type(fragment) is Wire:
                made.append(fragment.fragments)
                size += fragment.size
            else:
                made.append(fragment)
                size += len(fragment)
        return cls(tuple(made), size)

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
        if self.size <= piece_bytes:
            leaves: list[bytes | Deferred] = []
            _gather(self.fragments, leaves)
            if Deferred not in {*map(type, leaves)}:
                if leaves:
                    yield b"".join(cast("list[bytes]", leaves))
                return
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


def _gather(fragments: Fragments, into: list[bytes | Deferred]) -> None:
    """Put the leaves of *fragments* into a list, from left to right: trees of small bodies are flat enough."""
    for item in fragments:
        if isinstance(item, bytes):
            into.append(item)
        elif isinstance(item, Flat):
            into += item
        elif isinstance(item, Deferred):
            into.append(item)
        else:
            _gather(item, into)


def _walk(fragments: Fragments) -> Iterator[bytes | Deferred | Flat]:
    """Yield the leaves of *fragments* from left to right; flat ones as they are."""
    stack: list[Iterator[bytes | Deferred | Fragments]] = [iter(fragments)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, _WRITTEN):
                yield item
            else:
                stack.append(iter(item))
                break
        else:
            stack.pop()
