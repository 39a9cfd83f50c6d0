"""`temporary`: recent material; whole oldest groups go, in steps, when it is full or the window is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Rendered, Theme, as_blocks
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import Admission, Asked, Shrunk, roll, shed


@final
class Temporary:
    """Recent material, whole oldest groups first."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*; the oldest groups make room."""
        return roll(state, draft, asked)

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up the oldest groups, down to `shed_to`; the newest stays."""
        return shed(state, limits, need_tokens)

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Render one block, or one a chunk where it grows."""
        return as_blocks(state, theme)
