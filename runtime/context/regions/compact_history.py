"""`compact_history`: summaries carried forward; when it is full its own oldest are summarised again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec

from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft, ids_of
from shoal.runtime.context._render import Rendered, Theme, as_blocks
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import NOTHING, Admission, Asked, Shrunk, full, too_big


def oldest_half(state: RegionState) -> tuple[int, ...]:
    """Return the ids of the older half of the groups, at least two; none where that could free nothing."""
    groups = list(state.groups())
    if len(groups) < 2 or state.region.admission == "reject":
        return ()
    return ids_of(groups[: max(2, len(groups) // 2)])


@final
class CompactHistory:
    """Summaries carried forward."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft* where it fits; otherwise fold the oldest summaries first."""
        if draft.tokens > asked.most(state):
            return too_big(state, draft, asked)
        if asked.fits(state, draft):
            return Admission()
        order = () if asked.in_flight else oldest_half(state)
        if asked.may_wait and (order or asked.in_flight):
            return Admission("wait", order=order)
        return msgspec.structs.replace(full(state, draft, asked), order=order)

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released by name."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up nothing."""
        return NOTHING

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Render one block, or one a chunk where it grows."""
        return as_blocks(state, theme)
