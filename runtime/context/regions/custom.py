"""`custom`: a script says what comes in, what goes first and what the model sees; the budget holds whatever it says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import final

from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._layout import CONVERSATION
from shoal.runtime.context._render import Rendered, Theme, as_blocks
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import NOTHING, Admission, Asked, Shrunk, full, oldest_until, shed, too_big


@final
class Custom:
    """What a script keeps and shows."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*; what the script frees goes first, then whole oldest groups, unless the region is pinned."""
        if not asked.record and draft.tokens > asked.most(state):
            return too_big(state, draft, asked)
        if asked.fits(state, draft):
            return Admission()
        if state.region.admission == "reject":
            return Admission(over_budget=True) if asked.record else full(state, draft, asked)
        freed = freed_by(state, asked.frees, asked.replaces, joins=asked.joins)
        if asked.after(state, draft) - freed.tokens <= asked.limits.budget:
            return Admission(evict=freed.evict)
        if state.region.pinned:
            return Admission(evict=freed.evict, over_budget=True) if asked.record else full(state, draft, asked)
        goal_tokens = max(0, asked.limits.shed_to - draft.tokens)
        leaving = asked.replaces | frozenset(freed.evict)
        rest = oldest_until(state, goal_tokens, keep_newest=asked.joins, leaving=leaving)
        gone = in_order(state, {*freed.evict, *rest.evict})
        left = asked.after(state, draft) - _tokens(state, gone)
        return Admission(evict=gone, over_budget=left > asked.limits.budget)

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released, whole groups at a time, but for a turn whose calls are still being answered."""
        newest = state.newest
        if newest is None or not newest.waits or not set(newest.ids).intersection(entry_ids):
            return None
        return f"the newest turn of `{state.region.name}` is still being answered and stays; name older entries"

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up the oldest groups, down to `shed_to`; a pinned one gives up nothing."""
        if state.region.pinned:
            return NOTHING
        newest = state.newest
        stays = state.region.name == CONVERSATION or (newest is not None and newest.waits)
        return shed(state, limits, need_tokens, keep_newest=stays)

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Render the entries as plain text: what stands in where the script shows nothing that can be used."""
        return as_blocks(state, theme)


def freed_by(
    state: RegionState, frees: Collection[int], replaces: frozenset[int] = frozenset(), *, joins: bool = False
) -> Shrunk:
    """Return what a script frees with the ids *frees*: what is gone, replaced or still being answered is not among it.

    Args:
        state: The region.
        frees: Ids that its script named.
        replaces: Ids that go in any case.
        joins: An entry is to be added to the newest group, which therefore stays.
    """
    newest = state.newest
    kept = newest.ids if newest is not None and (joins or newest.waits) else ()
    gone = in_order(state, set(frees).difference(replaces, kept))
    return Shrunk(gone, _tokens(state, gone))


def in_order(state: RegionState, ids: Collection[int]) -> tuple[int, ...]:
    """Return those of *ids* that are in *state*, oldest first."""
    return tuple(entry.entry_id for entry in state.all_entries() if entry.entry_id in ids)


def _tokens(state: RegionState, ids: Collection[int]) -> int:
    return sum(entry.tokens for entry in state.all_entries() if entry.entry_id in ids)
