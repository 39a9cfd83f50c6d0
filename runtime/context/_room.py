"""Making room: the cascade of a window under pressure, and what a smaller budget costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from shoal.blueprints import Region
from shoal.providers import Intake
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._calls import ScriptCall, overflow_call
from shoal.runtime.context._changes import Change, EntriesEvicted
from shoal.runtime.context._plan import Order, evicted
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions import KINDS
from shoal.runtime.context.regions._kind import shed
from shoal.runtime.context.regions.custom import freed_by, in_order

Frees: TypeAlias = Mapping[str, tuple[int, ...]]
"""Ids of the entries that the scripts of custom regions free, by region."""
NO_FREES: Frees = {}

SCRIPTED = "scripted"
CASCADE = ("clearable", SCRIPTED, "temporary", "compacting", "sliding_window", "hashmap")
"""Kinds in the order in which they give way; the others never do. Of custom ones goes what their script frees, and then
what `temporary` would give."""


def under_pressure(
    states: Iterable[RegionState],
    need_tokens: int,
    waited: Mapping[str, Order],
    ratio: float,
    frees: Frees = NO_FREES,
) -> tuple[tuple[Change, ...], tuple[Order, ...]]:
    """Return what goes so that *need_tokens* (estimated) become free, and which summaries have to come first.

    Args:
        states: The regions that the stage sees, in declared order.
        need_tokens: Tokens that are wanted, 1 or more.
        waited: Summaries that were ordered for this and are over, by region.
        ratio: What one estimated token really costs.
        frees: What the scripts of custom regions free.
    """
    willing = [state for state in states if state.region.admission != "reject"]
    changes: list[Change] = []
    freed: dict[str, EntriesEvicted] = {}
    for kind in CASCADE:
        orders: list[Order] = []
        for state in (state for state in willing if kind in _steps(state)):
            if need_tokens <= 0:
                break
            name = state.region.name
            given: EntriesEvicted | Order | None
            if kind == SCRIPTED:
                given = _freed(state, frees.get(name, ()))
                freed |= {} if given is None else {name: given}
            elif state.region.kind == "custom":
                given = _after(state, freed.get(name), need_tokens, ratio)
            else:
                given = _given(state, need_tokens, waited, ratio)
            if isinstance(given, EntriesEvicted):
                changes.append(given)
                need_tokens -= given.tokens
            elif given is not None:
                orders.append(given)
        if orders:
            return tuple(changes), tuple(orders)
    return tuple(changes), ()


def _steps(state: RegionState) -> tuple[str, ...]:
    """Return in which steps of the cascade *state* gives way."""
    kind = state.region.kind
    if kind != "custom":
        return (kind,)
    return () if state.region.pinned else (SCRIPTED, "temporary")


def calls_under_pressure(
    states: Iterable[RegionState], need_tokens: int, ratio: float, intake: Intake
) -> tuple[ScriptCall, ...]:
    """Return what the scripts of custom regions have to be asked where *need_tokens* (estimated) are to become free."""
    willing = [state for state in states if state.region.admission != "reject"]
    for state in (state for state in willing if state.region.kind == "clearable"):
        need_tokens -= KINDS["clearable"].shrink(state, state.limits.estimated(ratio), need_tokens).tokens
    asked = [state for state in willing if SCRIPTED in _steps(state) and not state.empty and need_tokens > 0]
    return tuple(overflow_call(state, need_tokens, state.limits.estimated(ratio), intake) for state in asked)


def _freed(state: RegionState, frees: tuple[int, ...]) -> EntriesEvicted | None:
    """Return what goes by the word of the script of *state*; `None` for nothing."""
    shrunk = freed_by(state, frees)
    return EntriesEvicted(state.region.name, shrunk.evict, shrunk.tokens, "pressure") if shrunk.evict else None


def _after(state: RegionState, freed: EntriesEvicted | None, need_tokens: int, ratio: float) -> EntriesEvicted | None:
    """Return what the custom region *state* gives way with beside what its script *freed*; `None` for nothing."""
    ids, tokens = ((), 0) if freed is None else (freed.entry_ids, freed.tokens)
    shrunk = KINDS["custom"].shrink(state, state.limits.estimated(ratio), need_tokens + tokens)
    rest = in_order(state, set(shrunk.evict).difference(ids))
    return evicted(state, rest, "pressure") if rest else None


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


def to_fit(state: RegionState, region: Region, limits: Limits, frees: tuple[int, ...] = ()) -> Iterator[EntriesEvicted]:
    """Yield what goes so that *state* fits *limits* as *region* says: by its own rule, newest kept.

    What has to be summarised first goes as in `temporary` here: a layout does not wait. *frees* is what the script of a
    custom region frees.
    """
    over = state.charged - limits.budget
    if over <= 0 or region.admission == "reject":
        return
    if region.kind == "custom":
        freed = freed_by(state, frees)
        rest = () if freed.tokens >= over or region.pinned else shed(state, limits, over).evict
        gone = in_order(state, {*freed.evict, *rest})
        if gone:
            yield evicted(state, gone, "layout")
        return
    rule = shed if region.kind == "compacting" else KINDS[region.kind].shrink
    shrunk = rule(state, limits, over)
    if shrunk.evict:
        yield EntriesEvicted(region.name, shrunk.evict, shrunk.tokens, "layout")
