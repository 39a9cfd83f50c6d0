"""`sliding_window`: the newest turns, as messages; past its budget, whole oldest groups go in one step.

What happens past `max_items` entries is the strategy's: `per_item` drops the oldest group at once, `bulk` waits until
there are `overflow` more and then goes back to `max_items`, `compact` waits for `compact_count` more and has the
oldest `compact_count` groups folded into one summary; without one it goes back to `max_items` as `bulk` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.runtime.context._budget import Limits
from shoal.runtime.context._changes import EvictReason
from shoal.runtime.context._entry import Draft, ids_of
from shoal.runtime.context._render import Rendered, Theme, as_segments
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import (
    Admission,
    Asked,
    Shrunk,
    full,
    full_by_count,
    oldest_until,
    shed,
    too_big,
)


@final
class SlidingWindow:
    """The newest turns, as messages."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*. The record of the conversation is never refused, and never costs the call that it answers."""
        if state.region.admission == "reject":
            return _kept_whole(state, draft, asked)
        if not asked.record and draft.tokens > asked.most(state):
            return too_big(state, draft, asked)
        room = _room(state, draft, asked)
        count = _by_count(state, asked)
        # Both are the oldest groups, so the longer list holds the shorter one.
        gone = max(room, count.evict, key=len)
        return Admission(
            evict=gone,
            reason="budget" if room else count.reason,
            order=() if gone else count.order,
            over_budget=_group_tokens(state, draft, asked) > asked.limits.budget,
        )

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released, whole groups at a time, but for a turn whose calls are still being answered."""
        newest = state.newest
        if newest is None or not newest.waits or not set(newest.ids).intersection(entry_ids):
            return None
        return f"the newest turn of `{state.region.name}` is still being answered and stays; name older entries"

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up the oldest groups, down to `shed_to`; the newest stays, whatever it holds."""
        return shed(state, limits, need_tokens, keep_newest=True)

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Render messages."""
        return as_segments(state)


def _entries_after(state: RegionState, asked: Asked) -> int:
    return state.entries - len(asked.replaces) + 1


def _group_tokens(state: RegionState, draft: Draft, asked: Asked) -> int:
    """Return what the newest group holds with *draft* in it."""
    joined = state.newest if asked.joins else None
    return draft.tokens + (0 if joined is None else joined.tokens)


def _kept_whole(state: RegionState, draft: Draft, asked: Asked) -> Admission:
    """Admit *draft* where nothing may go: the record in any case, anything else where it fits."""
    fits = asked.fits(state, draft)
    if asked.record:
        return Admission(over_budget=not fits)
    if draft.tokens > asked.most(state):
        return too_big(state, draft, asked)
    if not fits:
        return full(state, draft, asked)
    most = state.region.max_items
    if most is not None and _entries_after(state, asked) > most:
        return full_by_count(state, asked, most, "entries")
    return Admission()


def _room(state: RegionState, draft: Draft, asked: Asked) -> tuple[int, ...]:
    """Return what goes for the budget: down to `shed_to`, but never the group that is joined."""
    if asked.fits(state, draft):
        return ()
    # Where the newest group alone is too big, no goal is reached and everything older goes.
    goal = max(0, asked.limits.shed_to - draft.tokens)
    return oldest_until(state, goal, keep_newest=asked.joins, leaving=asked.replaces).evict


def _by_count(state: RegionState, asked: Asked) -> Admission:
    """Return what goes, or is to be folded, for the number of entries."""
    region = state.region
    if region.max_items is None:
        return Admission()
    surplus = _entries_after(state, asked) - region.max_items
    if region.strategy == "compact" and (asked.in_flight or surplus <= region.compact_count):
        return Admission()  # what is being folded waits for its summary, as long as the budget holds
    if region.strategy == "compact" and surplus <= 2 * region.compact_count:
        # Never the newest group: its calls may still be waiting for their results.
        return Admission(order=ids_of(list(state.groups())[:-1][: region.compact_count]))
    if region.strategy == "bulk" and surplus <= region.overflow:
        return Admission()
    reason: EvictReason = "compaction_failed" if region.strategy == "compact" else "max_items"
    return Admission(evict=_oldest(state, surplus, asked), reason=reason)


def _oldest(state: RegionState, surplus: int, asked: Asked) -> tuple[int, ...]:
    """Return ids of whole oldest groups that hold *surplus* entries or more; never of the group that is joined."""
    gone: list[int] = []
    for (group,) in state.units(keep_newest=asked.joins):
        if len(gone) >= surplus:
            break
        gone.extend(i for i in group.ids if i not in asked.replaces)
    return tuple(gone)
