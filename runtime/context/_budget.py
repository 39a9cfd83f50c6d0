"""What a region's budget is in tokens, on a model."""

from __future__ import annotations

from typing import final

import msgspec

from shoal.blueprints import DEFAULT_REGION_TOKENS, Region


@final
class Limits(msgspec.Struct, frozen=True, gc=False):
    """A region's limits, resolved against one window.

    Args:
        budget: Most tokens it may hold.
        shed_to: Tokens that a rolling kind goes down to when it sheds.
        compact_at: Tokens at which a compacting kind orders a summary.
    """

    budget: int
    shed_to: int
    compact_at: int

    def estimated(self, ratio: float) -> Limits:
        """Return the limits in estimated tokens, where one estimated token costs *ratio* real ones."""
        if ratio == 1.0:
            return self
        return Limits(int(self.budget / ratio), int(self.shed_to / ratio), int(self.compact_at / ratio))


def resolve(region: Region, window_tokens: int) -> Limits:
    """Return the limits of *region* on a model whose window holds *window_tokens*.

    A share is rounded down; `max_tokens` caps it; `min_tokens` is a floor and is applied last.
    """
    if region.budget is not None:
        budget = share(window_tokens, region.budget)
        if region.max_tokens is not None:
            budget = min(budget, region.max_tokens)
    else:
        budget = DEFAULT_REGION_TOKENS if region.max_tokens is None else region.max_tokens
    if region.min_tokens is not None:
        budget = max(budget, region.min_tokens)
    trigger = share(budget, region.compact_at)
    if region.threshold_tokens is not None:
        trigger = min(trigger, region.threshold_tokens)
    return Limits(budget, share(budget, region.shed_to), trigger)


def share(tokens: int, part: float) -> int:
    """Return *part* of *tokens*, rounded down; 29 % of 100 is 29, although the float product is a little less."""
    return int(tokens * part + 1e-9)
