"""`clearable`: scratch space; wiped in one go, before anything else, when room is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.providers import Block
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Theme, system_blocks
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import Admission, Asked, Shrunk, full, ids_of, too_big


@final
class Clearable:
    """Scratch space that is wiped in one go."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*; where it does not fit, everything else goes."""
        if draft.tokens > asked.limits.budget:
            return too_big(state, draft, asked.limits)
        if state.tokens + draft.tokens <= asked.limits.budget:
            return Admission()
        if state.region.admission == "reject":
            return full(state, draft, asked.limits)
        return Admission(evict=ids_of(state.units()))

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up everything."""
        return Shrunk(ids_of(state.units()), state.tokens)

    def render(self, state: RegionState, theme: Theme) -> tuple[Block, ...]:
        """Render one block, or one a chunk where it grows."""
        return system_blocks(state, theme)
