"""Caches that match the longest prefix: OpenAI's automatic one, Gemini's implicit one, and those of open servers.

The same tree, with a lifetime of its own, is the oracle of every ledger: what a cache could have read at best.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from shoal.testing.wire._prompt import Prompt, common_bytes
from shoal.testing.wire._tokens import BYTES_PER_TOKEN


@final
@dataclass(slots=True)
class _Node:
    """A block behind a certain prefix; of each use, when it was sent and from when on it could be read."""

    uses: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    children: dict[tuple[bytes, bytes], _Node] = field(default_factory=dict[tuple[bytes, bytes], "_Node"])

    def alive(self, start_s: float, life_s: float) -> bool:
        return any(ready <= start_s < used + life_s for used, ready in self.uses)


@final
class PrefixTree:
    """Every prompt that was sent, as a tree of blocks.

    Args:
        life_s: How long a prefix is found after it was last sent, in seconds.
    """

    def __init__(self, life_s: float) -> None:
        self._life_s = life_s
        self._roots: dict[tuple[str, str], _Node] = {}

    def __repr__(self) -> str:
        return f"<PrefixTree of {len(self._roots)} models, {self._life_s} s>"

    def find(self, prompt: Prompt, start_s: float, *, whole: bool = False) -> int:
        """Return the tokens of the longest prefix of *prompt* found at *start_s*; with *whole*, of whole blocks."""
        node = self._roots.get((prompt.scope, prompt.model))
        tokens = 0
        for block, piece in zip(prompt.blocks, prompt.pieces(), strict=True):
            if node is None:
                break
            child = node.children.get(piece)
            if child is None or not child.alive(start_s, self._life_s):
                return tokens if whole else tokens + self._part(node, piece, block.tokens, start_s)
            tokens += block.tokens
            node = child
        return tokens

    def _part(self, node: _Node, piece: tuple[bytes, bytes], tokens: int, start_s: float) -> int:
        """Return the tokens that *piece* has in common with the most similar block at its place."""
        frame, data = piece
        alive = (
            other
            for (its_frame, other), child in node.children.items()
            if its_frame == frame and child.alive(start_s, self._life_s)
        )
        return min(max((common_bytes(data, other) // BYTES_PER_TOKEN for other in alive), default=0), tokens)

    def add(self, prompt: Prompt, start_s: float, ready_s: float) -> None:
        """Keep *prompt*, sent at *start_s* and readable from *ready_s* on."""
        node = self._roots.setdefault((prompt.scope, prompt.model), _Node())
        for piece in prompt.pieces():
            node = node.children.setdefault(piece, _Node())
            # Of the uses that could be read before this one was sent, only the newest matters from now on.
            old = max((use for use in node.uses if use[1] <= start_s), default=None)
            node.uses = [use for use in node.uses if use[1] > start_s or use is old] + [(start_s, ready_s)]
