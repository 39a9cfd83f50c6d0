"""What a seed gives when it is resolved again: what failed keeps its old block, and equal bytes write nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from shoal.providers import EMPTY, Message, Text
from shoal.runtime.context._changes import SeedBlock, SeedRefreshed
from shoal.runtime.context._cut import fit_blocks, named
from shoal.runtime.context._entry import Draft, Entry
from shoal.runtime.context._plan import Planned, plan_items
from shoal.runtime.context._shelf import Shelf
from shoal.runtime.context._store import RegionState
from shoal.runtime.context._taking import said_by
from shoal.runtime.context.regions import Asked

BlockKeys: TypeAlias = tuple[tuple[str, str], ...]
"""Keys that a script gave to pieces of a seed, by name of the piece."""


def plan_refresh(
    state: RegionState,
    asked: Asked,
    form: str,
    blocks: Sequence[SeedBlock],
    notes: tuple[str, ...],
    shelf: Shelf,
    keys: BlockKeys = (),
) -> tuple[Planned, ...]:
    """Return what changes where the seed of *state* gives *blocks* now; nothing where it gives the same bytes.

    A block that keeps its old text keeps its key.
    """
    if state.region.kind == "checklist":
        return _new_items(state, asked, blocks)
    old = {entry.seed: entry for entry in state.all_entries() if entry.seed is not None}
    room = asked.limits.budget - state.charged + sum(entry.tokens for entry in old.values())
    held = state.parts - sum(len(entry.parts) for entry in old.values())
    fitting, left_out = fit_blocks(tuple(_with_old(blocks, old)), room, state.region, shelf, held_parts=held)
    if [(block.text, block.parts) for block in fitting] == [(_text(entry), entry.parts) for entry in old.values()]:
        return ()
    ids = tuple(range(state.next_id, state.next_id + len(fitting)))
    replaces = tuple(entry.entry_id for entry in old.values())
    kept = {b.name: old[b.name].key for b in named(blocks) if not b.ok and b.name in old}
    every = (*keys, *((name, key) for name, key in kept.items() if key is not None and state.region.kind == "custom"))
    return ((SeedRefreshed(state.region.name, form, fitting, ids, replaces, (*notes, *left_out), every), None),)


def _with_old(blocks: Sequence[SeedBlock], old: Mapping[str, Entry]) -> Iterator[SeedBlock]:
    """Yield *blocks* with its own old block in place of each that failed."""
    for block in named(blocks):
        held = old.get(block.name)
        if held is None or block.ok:
            yield block
        else:
            yield SeedBlock(block.name, _text(held), held.tokens, parts=held.parts)


def _text(entry: Entry) -> Text:
    return next(iter(entry.message.texts), EMPTY)


def _new_items(state: RegionState, asked: Asked, blocks: Sequence[SeedBlock]) -> tuple[Planned, ...]:
    """Return an open item for each line that no item has yet; what is on the list stays as it is."""
    known = {str(item.text) for item in state.items.values()}
    lines = [line.strip() for block in blocks if block.ok for line in said_by(block).splitlines()]
    text = Text.of("\n".join(line for line in dict.fromkeys(lines) if line not in known))
    return plan_items(state, Draft("text", Message("user", (text,)), 0, writer="seed"), asked, None).changes
