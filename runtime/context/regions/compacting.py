"""`compacting`: summarised instead of dropped; the newest group always stays raw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft, ids_of
from shoal.runtime.context._render import Rendered, Theme, as_blocks
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import Admission, Asked, Shrunk, full, roll, too_big


@final
class Compacting:
    """Material that is summarised instead of dropped."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*; reaching the trigger orders a summary, and a write that does not fit waits for it."""
        limits = asked.limits
        if draft.tokens > asked.most(state):
            return too_big(state, draft, asked)
        # What is there now is what the summary stands for: the new entry is the newest group and stays raw.
        raw = () if asked.in_flight else tuple(i for i in ids_of(state.groups()) if i not in asked.replaces)
        if asked.fits(state, draft):
            return Admission(order=raw if asked.after(state, draft) >= limits.compact_at else ())
        if state.region.admission == "reject":
            return full(state, draft, asked)
        if asked.may_wait and (raw or asked.in_flight):
            return Admission("wait", order=raw)
        return Admission(evict=roll(state, draft, asked).evict, reason="compaction_failed")

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Ask for a summary of everything but the newest group."""
        return Shrunk(order=ids_of(list(state.groups())[:-1]))

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Render one block, or one a chunk where it grows."""
        return as_blocks(state, theme)
