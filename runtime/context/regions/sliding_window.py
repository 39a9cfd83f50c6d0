"""`sliding_window`: the newest turns, as messages; past its budget, whole oldest groups go in one step.

What happens past `max_items` entries is the strategy's: `per_item` drops the oldest group at once, `bulk` waits until
there are `overflow` more and then goes back to `max_items`, `compact` waits for `compact_count` more and has the
oldest `compact_count` groups folded into one summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import final

from shoal.providers import Segment
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Theme, message_segments
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import (
    Admission,
    Asked,
    Shrunk,
    full,
    ids_of,
    oldest_until,
    shed_to_share,
    too_big,
)


@final
class SlidingWindow:
    """The newest turns, as messages."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*. The record of the conversation is never refused, and never costs the call that it answers."""
        limits = asked.limits
        if state.tokens + draft.tokens > limits.budget:
            return self._over_budget(state, draft, asked)
        if state.region.admission == "reject" and self._over_count(state, 1) and not asked.record:
            return full(state, draft, limits)
        return self._by_count(state, asked)

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released, whole groups at a time."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up the oldest groups, down to `shed_to`; the newest stays."""
        return shed_to_share(state, limits, keep_newest=True)

    def render(self, state: RegionState, theme: Theme) -> tuple[Segment, ...]:
        """Render messages."""
        return message_segments(state)

    def _over_budget(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        limits = asked.limits
        newest = state.newest if asked.joins else None
        group_tokens = draft.tokens + (newest.tokens if newest else 0)
        if not asked.record:
            if group_tokens > limits.budget:
                return too_big(state, draft, limits)
            if state.region.admission == "reject":
                return full(state, draft, limits)
        if state.region.admission == "reject":
            return Admission(over_budget=True)
        over = group_tokens > limits.budget
        goal = 0 if over else max(0, limits.shed_to - draft.tokens)
        gone, _ = oldest_until(state, goal, keep_newest=newest is not None)
        return Admission(evict=gone, over_budget=over)

    def _over_count(self, state: RegionState, more: int) -> bool:
        most = state.region.max_items
        return most is not None and state.entries + more > most

    def _by_count(self, state: RegionState, asked: Asked) -> Admission:
        region = state.region
        if not self._over_count(state, 1) or region.admission == "reject":
            return Admission()
        most = region.max_items or 0
        held = state.entries + 1
        match region.strategy:
            case "per_item":
                return Admission(evict=self._oldest(state, held - most, asked), reason="max_items")
            case "bulk":
                if held <= most + region.overflow:
                    return Admission()
                return Admission(evict=self._oldest(state, held - most, asked), reason="max_items")
            case "compact":
                if held <= most + region.compact_count:
                    return Admission()
                if held > most + 2 * region.compact_count:
                    return Admission(evict=self._oldest(state, held - most, asked), reason="compaction_failed")
                if asked.in_flight:
                    return Admission()
                return Admission(order=ids_of(islice(state.units(), region.compact_count)))

    def _oldest(self, state: RegionState, surplus: int, asked: Asked) -> tuple[int, ...]:
        """Return ids of whole oldest groups that hold *surplus* entries or more; never of the group that is joined."""
        newest = state.newest if asked.joins else None
        gone: list[int] = []
        for group in state.groups():
            if len(gone) >= surplus or group is newest:
                break
            gone.extend(group.ids)
        return tuple(gone)
