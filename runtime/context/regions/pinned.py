"""`pinned`: what must stay in front of the model; never evicted, and a write that does not fit is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Rendered, Theme, as_blocks
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import NOTHING, Admission, Asked, Shrunk, full, too_big


@final
class Pinned:
    """What must stay in front of the model."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft* where it fits, and refuse it otherwise."""
        if draft.tokens > asked.most(state):
            return too_big(state, draft, asked)
        return Admission() if asked.fits(state, draft) else full(state, draft, asked)

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released by name."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up nothing."""
        return NOTHING

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Render one block, or one a chunk where it grows."""
        return as_blocks(state, theme)
