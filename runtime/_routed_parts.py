"""Where what a model makes beside text goes: to the region of the narrowest pattern that covers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import msgspec

from shoal.providers import Message, matches
from shoal.runtime._live import Live
from shoal.runtime._scripting import vetted
from shoal.runtime._side import write
from shoal.runtime.context import Draft, Said, estimate


def region_of(routing: Mapping[str, str], mime: str) -> str | None:
    """Return the region of the narrowest pattern of *routing* that covers *mime*; `None` where none does."""
    covering = [pattern for pattern in routing if matches((pattern,), mime)]
    # `image/png` has no star, `image/*` has one, `*/*` two.
    return routing[min(covering, key=lambda pattern: pattern.count("*"))] if covering else None


@final
class Places(msgspec.Struct, frozen=True):
    """Where the parts of a reply are to go.

    Args:
        regions: The region of each part that a rule covers, by seq of the part.
        said: What the scripts of those regions say of it, by seq of the part.
        staying: Parts that no rule covers, in order.
    """

    regions: Mapping[int, str]
    said: Mapping[int, Said]
    staying: tuple[int, ...]


_NOWHERE = Places({}, {}, ())


async def vetted_parts(live: Live, parts: Sequence[int]) -> Places:
    """Return where *parts* of a reply go; ask before the reply is journaled, since scripts may have to be heard."""
    if not parts:
        return _NOWHERE
    routing = live.state.stage.stage.output_routing
    wanted = {seq: region_of(routing, live.state.shelf.stored[seq].mime) for seq in parts}
    regions = {seq: region for seq, region in wanted.items() if region is not None}
    said = {
        seq: await vetted(live, region, _draft(live, region, 0, seq), refusable=True) for seq, region in regions.items()
    }
    return Places(regions, said, tuple([seq for seq in parts if seq not in regions]))


def route_parts(live: Live, source: int, parts: Sequence[int], places: Places) -> tuple[int, ...]:
    """Put parts of the reply *source* into the regions that the stage routes them to, each an entry of its own.

    Nothing is waited for: the reply and what becomes of it are durable together.

    Returns:
        Those that stay in the conversation: no rule covers them, or their region does not take them.
    """
    staying: list[int] = []
    for seq in parts:
        region = places.regions.get(seq)
        if region is None or not _put(live, region, source, seq, places.said[seq]):
            staying.append(seq)
    return tuple(staying)


def _put(live: Live, region: str, source: int, seq: int, said: Said) -> bool:
    return write(live, region, _draft(live, region, source, seq), said=said).outcome == "written"


def _draft(live: Live, region: str, source: int, seq: int) -> Draft:
    shelf, state = live.state.shelf, live.state.view.states[region]
    message = Message("user", blobs=shelf.blobs((seq,)))
    # A hashmap keeps nothing without a key.
    key = state.free_key(shelf.stored[seq].name) if state.region.kind == "hashmap" else None
    cost = max(1, estimate(message, live.state.view.intake))
    return Draft("text", message, cost, source, key=key, cut=0, parts=(seq,))
