"""Where a summary goes, and what it takes the place of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.providers import Text
from shoal.runtime.context._changes import ContextCompacted
from shoal.runtime.context._entry import Entry, bytes_of, size
from shoal.runtime.context._plan import Order
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions.compact_history import oldest_half


def plan_summary(
    states: Mapping[str, RegionState],
    state: RegionState,
    entry_ids: Sequence[int],
    summary: Text,
    tokens: int,
    ratio: float,
) -> tuple[ContextCompacted | None, tuple[Order, ...]]:
    """Return what putting *summary* in place of those entries of *state* comes to; see `Window.plan_summary`."""
    wanted = frozenset(entry_ids)
    # Whole groups only, and none whose calls are still being answered: no request ever holds half a turn.
    groups = [group for group in state.groups() if wanted.issuperset(group.ids) and not group.waits]
    entries = [entry for group in groups for entry in group.entries]
    if tokens >= sum(entry.tokens for entry in entries) or not str(summary).strip():
        return None, ()
    home, orders = _home(states, state, tokens, ratio)
    change = ContextCompacted(
        state.region.name,
        (min(entry.seq for entry in entries), max(entry.seq for entry in entries)),
        tuple(entry.entry_id for entry in entries),
        summary,
        tokens,
        bytes_of(entries) - size(summary)[1],
        _dropped(states, entries),
        into=home.region.name,
        entry_id=home.next_id,
    )
    return change, orders


def _dropped(states: Mapping[str, RegionState], entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the names of the stored parts that leave the window with *entries*."""
    names = {seq: blob.name for entry in entries for seq, blob in zip(entry.parts, entry.message.blobs, strict=True)}
    if not names:
        return ()
    going = {id(entry) for entry in entries}
    held = (entry for state in states.values() if state.parts for entry in state.all_entries())
    staying = {seq for entry in held if id(entry) not in going for seq in entry.parts}
    return tuple([name for seq, name in names.items() if seq not in staying])


def _home(
    states: Mapping[str, RegionState], state: RegionState, tokens: int, ratio: float
) -> tuple[RegionState, tuple[Order, ...]]:
    """Return the region that takes a summary of *state*, and what its paired history wants folded to take the next."""
    name = state.region.name
    paired = (s for s in states.values() if s.region.kind == "compact_history" and s.region.source_region == name)
    history = next(paired, None)
    if history is None:
        return state, ()
    if history.charged + tokens <= history.limits.estimated(ratio).budget:
        return history, ()
    fold = oldest_half(history)
    return state, (Order(history.region.name, fold),) if fold else ()
