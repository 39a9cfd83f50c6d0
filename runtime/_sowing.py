"""What regions begin with: what seeds give, and what a child is given of its parent's."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.errors import SpawnRefused
from shoal.providers import Message, Text
from shoal.runtime._live import Live
from shoal.runtime._parts import with_parts
from shoal.runtime._scripting import vetted, vetted_blocks
from shoal.runtime._seeds import Resolved, fitted, in_text
from shoal.runtime._transforms import Carried
from shoal.runtime.context import Draft, SeedResolved, estimate, said_by


async def sow(live: Live, resolved: Resolved) -> None:
    """Put what a seed gave into its region, which is empty.

    Raises:
        SpawnRefused: The caller's own word does not fit.
    """
    region = live.state.view.states[resolved.region]
    caller = resolved.form == "caller"
    if region.region.kind == "checklist":
        _sow_items(live, in_text(resolved, refuses=caller), "framework" if caller else "seed")
        return
    room = region.limits.budget - region.instruction_tokens
    held = with_parts(live, resolved)
    blocks, keys = await vetted_blocks(live, held.region, held.blocks)
    vetted = msgspec.structs.replace(held, blocks=blocks)
    fitting = fitted(vetted, room, region.region, live.state.shelf, refuses=caller)
    live.emit(SeedResolved(resolved.region, resolved.form, fitting.blocks, fitting.notes, keys))


async def carry(live: Live, given: Carried) -> None:
    """Put what a child is given of a region of its parent into its own, cut to what fits."""
    message = Message("user", (Text.of(given.text),))
    state = live.state.view.states[given.region]
    key = given.source if state.region.kind == "hashmap" else None
    draft = Draft("text", message, max(1, estimate(message)), key=key, writer="seed")
    plan = live.write(given.region, draft, said=await vetted(live, given.region, draft))
    if plan.outcome == "refused":
        raise SpawnRefused(
            f"what {given.source!r} of its parent gives to region {given.region!r} is refused: {plan.why}"
        )


def _sow_items(live: Live, resolved: Resolved, writer: Literal["framework", "seed"]) -> None:
    """Open an item for each line: the first ones that fit, or, of the caller's own word, all of them."""
    blocks = tuple(block for block in resolved.blocks if block.ok)
    seq = live.emit(SeedResolved(resolved.region, resolved.form, blocks, resolved.notes))
    for block in blocks:
        message = Message("user", (Text.of(said_by(block)),))
        plan = live.write(resolved.region, Draft("text", message, block.tokens, seq, writer=writer))
        if plan.outcome == "refused":
            raise SpawnRefused(f"the seed of region {resolved.region!r} does not fit: {plan.why}")
