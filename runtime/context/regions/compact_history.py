"""`compact_history`: summaries carried forward; when it is full its own oldest are summarised again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.providers import Block
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Theme, system_blocks
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import NOTHING, Admission, Asked, Shrunk, full, too_big


def oldest_half(state: RegionState) -> tuple[int, ...]:
    """Return the ids of the older half of the groups, at least two; nothing where folding could free nothing."""
    groups = list(state.groups())
    take = max(2, len(groups) // 2)
    return tuple(i for group in groups[:take] for i in group.ids) if len(groups) >= 2 else ()


@final
class CompactHistory:
    """Summaries carried forward."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft* where it fits; otherwise fold the oldest summaries first."""
        limits = asked.limits
        if draft.tokens > limits.budget:
            return too_big(state, draft, limits)
        if state.tokens + draft.tokens <= limits.budget:
            return Admission()
        order = () if asked.in_flight else oldest_half(state)
        if asked.may_wait and (asked.in_flight or order) and state.region.admission != "reject":
            return Admission("wait", order=order)
        refusal = full(state, draft, limits)
        return Admission("refuse", over_tokens=refusal.over_tokens, why=refusal.why, order=order)

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released by name."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up nothing."""
        return NOTHING

    def render(self, state: RegionState, theme: Theme) -> tuple[Block, ...]:
        """Render one block, or one a chunk where it grows."""
        return system_blocks(state, theme)
