"""What the script of a custom region rendered, as blocks and messages of a prompt.

It is made anew for every request; what says the same as before stays the same object, so that nothing is encoded twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.providers import Block, Message, Segment, Text
from shoal.runtime.context._entry import estimate, estimate_text
from shoal.runtime.context._render import Rendered, Theme
from shoal.runtime.context._said import Rendering
from shoal.runtime.context._store import SEGMENT_MESSAGES, RegionState


def drawn(state: RegionState, rendering: Rendering, theme: Theme) -> Rendered:
    """Return *rendering* of *state* as what a prompt shows; no heading of ours stands over it."""
    before: Rendered = state.drawn or Rendered()
    known_blocks = {(block.digest, block.volatility): block for block in before.blocks}
    known_segments = {(segment.digest, segment.closed): segment for segment in before.segments}
    blocks = [_block(state, text, theme) for text in rendering.system]
    segments = _segments(state.region.name, rendering.messages)
    state.drawn = made = Rendered(
        tuple([known_blocks.get((block.digest, block.volatility), block) for block in blocks]),
        tuple([known_segments.get((segment.digest, segment.closed), segment) for segment in segments]),
    )
    return made


def _block(state: RegionState, text: Text, theme: Theme) -> Block:
    region = state.region
    safe = theme.escaped(text, own=region.name)
    return Block(region.name, (safe,), estimate_text(safe), region.volatility)


def _segments(owner: str, messages: Sequence[Message]) -> list[Segment]:
    """Return *messages* in segments as a window cuts them; none ends between a call and its result."""
    groups: list[list[Message]] = []
    for message in messages:
        if not groups or (len(groups[-1]) >= SEGMENT_MESSAGES and message.role != "tool"):
            groups.append([])
        groups[-1].append(message)
    return [Segment(owner, tuple(group), sum(map(estimate, group)), closed=group is not groups[-1]) for group in groups]
