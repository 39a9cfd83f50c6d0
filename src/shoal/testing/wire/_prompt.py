"""A prompt as a cache sees it: blocks in order, each with its bytes and its tokens."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

from shoal.testing.wire._ledger import Counted


@final
@dataclass(frozen=True, slots=True)
class Block:
    """One piece of a prompt.

    Args:
        path: Where it stands in the request, in the vendor's way of writing paths.
        tier: The part of the prompt that it belongs to.
        data: What the cache compares, byte for byte; markers are no part of it.
        tokens: What it counts.
        frame: What has to be the same as a whole: who says it, and in which kind of block.
        marker: How long a cache entry that ends here is to live; `None` without a marker.
        place: Whether it takes up one of the places that a look-back counts.
    """

    path: str
    tier: str
    data: bytes
    tokens: int
    frame: bytes = b""
    marker: str | None = None
    place: bool = True


@final
@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request makes the model read.

    Args:
        model: The model's name: no cache is shared between models.
        scope: Who may share a cache: the workspace, the organisation.
        blocks: In the order in which the cache sees them.
        tiers: What has to be the same, besides the blocks, for a tier to be found again.
    """

    model: str
    scope: str
    blocks: tuple[Block, ...]
    tiers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def tokens(self) -> int:
        """All tokens."""
        return sum(block.tokens for block in self.blocks)

    @property
    def counted(self) -> tuple[Counted, ...]:
        """Every block with its tokens, for the ledger."""
        return tuple(Counted(block.path, block.tier, block.tokens) for block in self.blocks)

    def upto(self) -> list[int]:
        """Return, for each block, the tokens of everything up to its end."""
        return list(itertools.accumulate(block.tokens for block in self.blocks))

    def pieces(self) -> list[tuple[bytes, bytes]]:
        """Return what is compared at each block: its frame, at a tier's first with what that needs, and its bytes."""
        found: list[tuple[bytes, bytes]] = []
        seen: set[str] = set()
        for block in self.blocks:
            front = b"" if block.tier in seen else f"{block.tier}\0{self.tiers.get(block.tier, '')}\0".encode()
            seen.add(block.tier)
            found.append((front + block.frame, block.data))
        return found

    def keys(self) -> list[bytes]:
        """Return, for each block, a digest of everything up to its end."""
        running = hashlib.sha256(f"{self.scope}\0{self.model}".encode())
        keys: list[bytes] = []
        for frame, data in self.pieces():
            running.update(b"%d %d " % (len(frame), len(data)) + frame + data)
            keys.append(running.digest())
        return keys

    def whole_blocks(self, tokens: int) -> int:
        """Return how many leading blocks *tokens* cover whole."""
        return sum(1 for upto in self.upto() if upto <= tokens) if tokens else 0


def common_bytes(ours: bytes, theirs: bytes) -> int:
    """Return how many bytes *ours* and *theirs* begin with alike."""
    low, high = 0, min(len(ours), len(theirs))
    while low < high:  # by halves: slices compare at the speed of memory
        middle = (low + high + 1) // 2
        low, high = (middle, high) if ours[:middle] == theirs[:middle] else (low, middle - 1)
    return low


@final
@dataclass(frozen=True, slots=True)
class Lookup:
    """What a cache has for a prompt.

    Args:
        read: Tokens that were read.
        writes: Tokens that will be written, by how long they live.
        commit: Writes them; called with the time of the first byte, from which on they can be read.
    """

    read: int
    writes: Mapping[str, int]
    commit: Callable[[float], None]
