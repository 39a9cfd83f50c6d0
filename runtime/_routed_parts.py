"""Where what a model makes beside text goes: to the region of the narrowest pattern that covers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.providers import Message, matches
from shoal.runtime._live import Live
from shoal.runtime._side import write
from shoal.runtime.context import Draft, estimate


def region_of(routing: Mapping[str, str], mime: str) -> str | None:
    """Return the region of the narrowest pattern of *routing* that covers *mime*; `None` where none does."""
    covering = [pattern for pattern in routing if matches((pattern,), mime)]
    # `image/png` has no star, `image/*` has one, `*/*` two.
    return routing[min(covering, key=lambda pattern: pattern.count("*"))] if covering else None


def route_parts(live: Live, source: int, parts: Sequence[int]) -> tuple[int, ...]:
    """Put parts of the reply *source* into the regions that the stage routes them to, each an entry of its own.

    Nothing is waited for: the reply and what becomes of it are durable together.

    Returns:
        Those that stay in the conversation: no rule covers them, or their region does not take them.
    """
    routing = live.state.stage.stage.output_routing
    staying: list[int] = []
    for seq in parts:
        region = region_of(routing, live.state.shelf.stored[seq].mime)
        if region is None or not _put(live, region, source, seq):
            staying.append(seq)
    return tuple(staying)


def _put(live: Live, region: str, source: int, seq: int) -> bool:
    """Put one part into *region*; false where that does not take it."""
    view, shelf = live.state.view, live.state.shelf
    state = view.states[region]
    message = Message("user", blobs=shelf.blobs((seq,)))
    key = state.free_key(shelf.stored[seq].name) if state.region.kind == "hashmap" else None
    cost = max(1, estimate(message, view.intake))
    draft = Draft("text", message, cost, source, key=key, cut=0, parts=(seq,))
    return write(live, region, draft).outcome == "written"
