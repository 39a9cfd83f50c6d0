"""What was counted and billed: the server's own sum, to hold a client's against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, final

from shoal.testing.wire._values import Dialect


@final
@dataclass(frozen=True, slots=True)
class Counted:
    """One block of a prompt, counted by itself.

    Args:
        path: Where it stands in the request.
        tier: The part of the prompt that it belongs to, as the vendor's cache orders them.
        tokens: What it counts.
    """

    path: str
    tier: str
    tokens: int


@final
@dataclass(frozen=True, slots=True)
class Row:
    """The tokens and the cost of one reply. `uncached + read + Σ writes` is the whole prompt.

    Args:
        exchange: Number of the exchange in the journal.
        dialect: The API.
        model: The model.
        blocks: The prompt in the order in which the cache sees it.
        read: Tokens read from the cache.
        writes: Tokens written to it, by how long they live; empty where writing is not counted.
        uncached: All other tokens of the prompt.
        output: Tokens of the reply, with *reasoning*.
        reasoning: Tokens of the reply that were reasoning.
        boundary: How many of *blocks* were read whole from the cache.
        oracle_read: What a cache that forgets nothing within the vendor's longest lifetime could have read at best.
        cost_usd: What it costs; `None` if the price is not known.
    """

    exchange: int
    dialect: Dialect
    model: str
    blocks: tuple[Counted, ...]
    read: int
    writes: Mapping[str, int]
    uncached: int
    output: int
    reasoning: int
    boundary: int
    oracle_read: int
    cost_usd: Decimal | None

    @property
    def input(self) -> int:
        """All tokens of the prompt."""
        return self.uncached + self.read + self.written

    @property
    def written(self) -> int:
        """Tokens written to the cache, whatever their lifetime."""
        return sum(self.writes.values())

    def as_json(self) -> dict[str, Any]:
        """Return what `/__ledger` shows of it."""
        return {
            "exchange": self.exchange,
            "dialect": self.dialect,
            "model": self.model,
            "blocks": [{"path": block.path, "tier": block.tier, "tokens": block.tokens} for block in self.blocks],
            "read": self.read,
            "writes": dict(self.writes),
            "uncached": self.uncached,
            "output": self.output,
            "reasoning": self.reasoning,
            "boundary": self.boundary,
            "oracle_read": self.oracle_read,
            "cost_usd": None if self.cost_usd is None else str(self.cost_usd),
        }


@final
class Ledger:
    """The rows of a server, oldest first."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def __repr__(self) -> str:
        return f"<Ledger of {len(self._rows)} rows: {self.read} of {self.input} tokens read>"

    def add(self, row: Row) -> None:
        """Append *row*."""
        self._rows.append(row)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> Row:
        return self._rows[index]

    @property
    def input(self) -> int:
        """Tokens of all prompts."""
        return sum(row.input for row in self._rows)

    @property
    def read(self) -> int:
        """Tokens read from caches."""
        return sum(row.read for row in self._rows)

    @property
    def written(self) -> int:
        """Tokens written to caches."""
        return sum(row.written for row in self._rows)

    @property
    def output(self) -> int:
        """Tokens of all replies."""
        return sum(row.output for row in self._rows)

    @property
    def oracle_read(self) -> int:
        """Tokens that could have been read at best."""
        return sum(row.oracle_read for row in self._rows)

    @property
    def hit_efficiency(self) -> float:
        """What was read of what could have been, 0 to 1; 1 if nothing could."""
        return self.read / self.oracle_read if self.oracle_read else 1.0

    @property
    def cost_usd(self) -> Decimal | None:
        """What all replies cost; `None` if the price of one is not known."""
        costs = [row.cost_usd for row in self._rows]
        return None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0))

    def as_json(self) -> dict[str, Any]:
        """Return what `/__ledger` shows."""
        return {
            "rows": [row.as_json() for row in self._rows],
            "input": self.input,
            "read": self.read,
            "written": self.written,
            "output": self.output,
            "oracle_read": self.oracle_read,
            "hit_efficiency": self.hit_efficiency,
            "cost_usd": None if self.cost_usd is None else str(self.cost_usd),
        }
