"""Making room: the cascade of a window under pressure, and what a smaller budget costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shoal.blueprints import Region
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._changes import Change, EntriesEvicted
from shoal.runtime.context._plan import Order
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions import KINDS
from shoal.runtime.context.regions._kind import shed

CASCADE = ("clearable", "temporary", "compacting", "sliding_window", "hashmap")
"""Kinds in the order in which they give way; the others never do."""


def under_pressure(
    states: Iterable[RegionState], need_tokens: int, waited: Mapping[str, Order], ratio: float
) -> tuple[tuple[Change, ...], tuple[Order, ...]]:
    """Return what goes so that *need_tokens* (estimated) become free, and which summaries have to come first.

    Args:
        states: The regions that the stage sees, in declared order.
        need_tokens: Tokens that are wanted, 1 or more.
        waited: Summaries that were ordered for this and are over, by region.
        ratio: What one estimated token really costs.
    """
    willing = [state for state in states if state.region.admission != "reject"]
    changes: list[Change] = []
    for kind in CASCADE:
        orders: list[Order] = []
        for state in (state for state in willing if state.region.kind == kind):
            if need_tokens <= 0:
                break
            given = _given(state, need_tokens, waited, ratio)
            if isinstance(given, EntriesEvicted):
                changes.append(given)
                need_tokens -= given.tokens
            elif given is not None:
                orders.append(given)
        if orders:
            return tuple(changes), tuple(orders)
    return tuple(changes), ()


def _given(
    state: RegionState, need_tokens: int, waited: Mapping[str, Order], ratio: float
) -> EntriesEvicted | Order | None:
    """Return what *state* gives way with; `None` where it has nothing to give."""
    name, limits = state.region.name, state.limits.estimated(ratio)
    shrunk = KINDS[state.region.kind].shrink(state, limits, need_tokens)
    if not shrunk.order:
        return EntriesEvicted(name, shrunk.evict, shrunk.tokens, "pressure") if shrunk.evict else None
    before = waited.get(name)
    if before is None:
        return Order(name, shrunk.order)
    if all(entry.entry_id != before.entry_ids[0] for entry in state.all_entries()):
        return None  # the summary is there, and it would be the first to go
    shrunk = shed(state, limits, need_tokens)
    return EntriesEvicted(name, shrunk.evict, shrunk.tokens, "compaction_failed") if shrunk.evict else None


def to_fit(state: RegionState, region: Region, limits: Limits) -> Iterator[EntriesEvicted]:
    """Yield what goes so that *state* fits *limits* as *region* says: by its own rule, newest kept.

    What has to be summarised first goes as in `temporary` here: a layout does not wait.
    """
    over = state.charged - limits.budget
    if over <= 0 or region.admission == "reject":
        return
    rule = shed if region.kind == "compacting" else KINDS[region.kind].shrink
    shrunk = rule(state, limits, over)
    if shrunk.evict:
        yield EntriesEvicted(region.name, shrunk.evict, shrunk.tokens, "layout")
