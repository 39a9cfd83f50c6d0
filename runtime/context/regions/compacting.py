"""`compacting`: summarised instead of dropped; the newest group always stays raw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.providers import Block
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Theme, system_blocks
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import NOTHING, Admission, Asked, Shrunk, full, roll, too_big


def all_but_newest(state: RegionState) -> tuple[int, ...]:
    """Return the ids of everything but the newest group, oldest first."""
    newest = state.newest
    return tuple(i for group in state.groups() if group is not newest for i in group.ids)


@final
class Compacting:
    """Material that is summarised instead of dropped."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*; reaching the trigger orders a summary, and a write that does not fit waits for it."""
        limits = asked.limits
        if draft.tokens > limits.budget:
            return too_big(state, draft, limits)
        after = state.tokens + draft.tokens
        if after <= limits.budget:
            # What is there now is what the summary stands for: the new entry is the newest group and stays raw.
            due = after >= limits.compact_at and not asked.in_flight and not state.empty
            return Admission(order=tuple(i for group in state.groups() for i in group.ids) if due else ())
        if state.region.admission == "reject":
            return full(state, draft, limits)
        if not asked.may_wait:
            rolled = roll(state, draft, asked)
            return Admission(evict=rolled.evict, reason="compaction_failed")
        if asked.in_flight:
            return Admission("wait")
        return Admission("wait", order=tuple(i for group in state.groups() for i in group.ids))

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Ask for a summary of everything but the newest group."""
        order = all_but_newest(state)
        return Shrunk(order=order) if order else NOTHING

    def render(self, state: RegionState, theme: Theme) -> tuple[Block, ...]:
        """Render one block, or one a chunk where it grows."""
        return system_blocks(state, theme)
