"""The rows of a ledger: what a region, a stage and a transition used."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, final

from shoal.providers import Usage

NO_USAGE = Usage()


@dataclass(slots=True)
class Tally:
    """Tokens in disjoint buckets, and their cost in USD (`None` once any part of it is unknown).

    Args:
        usage: What was billed.
        cost: USD.
        calls: How many inferences it comes from.
    """

    usage: Usage = NO_USAGE
    cost: Decimal | None = Decimal(0)
    calls: int = 0

    def add(self, usage: Usage, cost: Decimal | None, calls: int = 1) -> None:
        """Add one inference's worth."""
        self.usage = self.usage + usage
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.calls += calls

    @property
    def cache_hit_ratio(self) -> float | None:
        """Share of the input that was read from a cache; `None` where nothing was sent."""
        return self.usage.cache_read / self.usage.input if self.usage.input else None

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        hit = self.cache_hit_ratio
        return {
            "calls": self.calls,
            "usage": plain_usage(self.usage),
            "cost_usd": None if self.cost is None else format(self.cost, "f"),
            "cache_hit_ratio": None if hit is None else round(hit, 4),
        }


@final
@dataclass(slots=True)
class RegionRow(Tally):
    """What one region used in one stage.

    Args:
        high_water_tokens: The most it cost in one request.
        budget_tokens: The most it may hold, the largest value of the stage; `None` for what is no region, and where it
            is not known.
    """

    high_water_tokens: int = 0
    budget_tokens: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            **Tally.plain(self),
            "high_water_tokens": self.high_water_tokens,
            "budget_tokens": self.budget_tokens,
        }


@final
@dataclass(slots=True)
class StageRow(Tally):
    """What one stage used, over all its visits.

    Args:
        stage: Its name.
        visits: How often it was entered.
        tool_calls: Tool calls that came to an end in it.
        seconds: Time spent in it, without pauses.
        regions: What each owner used, by name, in order of first appearance.
        chars: Characters of each request of the stage, oldest first: a line that keeps climbing sheds nothing.
        by_purpose: Inferences by what they were for.
    """

    stage: str = ""
    visits: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    regions: dict[str, RegionRow] = field(default_factory=dict[str, RegionRow])
    chars: list[int] = field(default_factory=list[int])
    by_purpose: dict[str, Tally] = field(default_factory=dict[str, Tally])

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "stage": self.stage,
            "visits": self.visits,
            "tool_calls": self.tool_calls,
            "seconds": round(self.seconds, 6),
            **Tally.plain(self),
            "purposes": {purpose: tally.plain() for purpose, tally in self.by_purpose.items()},
            "approx_context_chars": list(self.chars),
            "regions": [{"region": name, **row.plain()} for name, row in self.regions.items()],
        }


@final
@dataclass(frozen=True, slots=True)
class RegionMove:
    """What one transition did to one region.

    Args:
        tokens_before: What it cost in the last request before it.
        tokens_after: What it cost in the first request after it.
        cached_before: What the last request before it read from a cache or wrote to one.
        cached_after: What the first request after it read from a cache.
    """

    tokens_before: int
    tokens_after: int
    cached_before: int
    cached_after: int

    @property
    def cache_tokens_lost(self) -> int:
        """Tokens of it that were cached before the transition and are not after it."""
        return max(0, self.cached_before - self.cached_after)

    def plain(self) -> dict[str, int]:
        """Return it as plain values."""
        return {
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "cached_before": self.cached_before,
            "cached_after": self.cached_after,
            "cache_tokens_lost": self.cache_tokens_lost,
        }


@final
@dataclass(slots=True)
class TransitionRow:
    """What one transition did.

    Args:
        source: The stage that was left.
        target: The stage that was entered; `None` for the end of the run.
        condition: The edge's condition.
        cost: USD of the routing call and of the summaries that the edge ordered; `None` where unknown.
        uncached_after: Input that the first request after it had to send uncached or written.
        cached_after: Input that the first request after it read from a cache.
        cached_before: Input that the last request before it read from a cache or wrote to one.
        regions: What it did to each region that was sent before it or after it, in order of first appearance; empty
            where no request came after it.
    """

    source: str
    target: str | None
    condition: str
    cost: Decimal | None = Decimal(0)
    uncached_after: int = 0
    cached_after: int = 0
    cached_before: int = 0
    regions: dict[str, RegionMove] = field(default_factory=dict[str, RegionMove])

    @property
    def cache_tokens_lost(self) -> int:
        """Tokens that were cached before it and are not after it."""
        return max(0, self.cached_before - self.cached_after)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "from": self.source,
            "to": self.target,
            "condition": self.condition,
            "cost_usd": None if self.cost is None else format(self.cost, "f"),
            "cache_tokens_lost": self.cache_tokens_lost,
            "cached_before": self.cached_before,
            "cached_after": self.cached_after,
            "uncached_after": self.uncached_after,
            "regions": [{"region": name, **move.plain()} for name, move in self.regions.items()],
        }


def plain_usage(usage: Usage) -> dict[str, int]:
    """Return *usage* as plain values; writes of every lifetime are one number."""
    return {
        "uncached": usage.uncached,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write + usage.cache_write_long,
        "output": usage.output,
        "reasoning": usage.reasoning,
    }
