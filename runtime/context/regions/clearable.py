"""`clearable`: scratch space; wiped in one go, before anything else, when room is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Rendered, Theme, as_blocks
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import Admission, Asked, Shrunk, full, oldest_until, too_big


@final
class Clearable:
    """Scratch space that is wiped in one go."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*; where it does not fit, everything else goes."""
        if draft.tokens > asked.most(state):
            return too_big(state, draft, asked)
        if asked.fits(state, draft):
            return Admission()
        if state.region.admission == "reject":
            return full(state, draft, asked)
        return Admission(evict=oldest_until(state, 0, leaving=asked.replaces).evict)

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up everything."""
        return oldest_until(state, 0)

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Render one block, or one a chunk where it grows."""
        return as_blocks(state, theme)
