"""Applying changes: the only thing that changes a window.

Live runs apply what was planned, resumed ones what the journal holds; whatever is worked out here is worked out from
the change and the window alone, so that both end in the same window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import msgspec

from shoal.providers import EMPTY, Intake, Message
from shoal.runtime.context._changes import (
    ContextCompacted,
    EntryWritten,
    ItemChanged,
    SeedRefreshed,
    SeedResolved,
)
from shoal.runtime.context._entry import Entry, chars_of, part_tokens, unused
from shoal.runtime.context._shelf import Shelf
from shoal.runtime.context._store import Item, RegionState


def apply_write(
    state: RegionState, change: EntryWritten, seq: int, at: float, message: Message, intake: Intake
) -> None:
    """Put an entry that says *message* into *state*: in place of others, into the turn it answers, or behind all."""
    state.next_id = max(state.next_id, change.entry_id + 1)
    entry = Entry(
        change.entry_id,
        seq,
        change.kind,
        message,
        change.tokens,
        chars_of(message),
        at,
        change.key,
        None,
        change.parts,
        part_tokens=part_tokens(message, intake) if change.parts else 0,
    )
    newest = state.newest
    if change.replaces:
        state.replace(change.replaces, (entry,))
    elif newest is not None and newest.asked(message.call_id):
        state.join(entry)
    else:
        state.append(entry)


def apply_removal(state: RegionState, ids: tuple[int, ...]) -> None:
    """Take entries (of a checklist: items) out of *state*."""
    if state.region.kind != "checklist":
        state.replace(ids)
        return
    for item_id in ids:
        del state.items[item_id]
    state.recount()


def apply_item(state: RegionState, change: ItemChanged) -> None:
    """Open, close, annotate or drop an item of the checklist *state*."""
    said = EMPTY if change.note is None else change.note
    if change.state == "open":
        state.next_item = max(state.next_item, change.item_id + 1)
        state.items[change.item_id] = Item(change.item_id, said, tokens=change.tokens)
    else:
        item = state.items[change.item_id]
        tokens = item.tokens + change.tokens
        if change.state == "done":
            item = msgspec.structs.replace(item, state="done", tokens=tokens)
        elif change.state == "dropped":
            item = msgspec.structs.replace(item, state="dropped", reason=said, tokens=tokens)
        else:
            item = msgspec.structs.replace(item, notes=(*item.notes, said), tokens=tokens)
        state.items[change.item_id] = item
    state.recount()


def apply_summary(states: Mapping[str, RegionState], change: ContextCompacted, seq: int, at: float) -> None:
    """Put a summary in place of the entries that it stands for, here or in the region that carries summaries on."""
    source, target = states[change.region], states[change.into]
    source.replace(change.entry_ids)
    target.next_id = max(target.next_id, change.entry_id + 1)
    message = Message("user", (change.summary,))
    newest = change.replaces_seq_range[1]
    entry = Entry(change.entry_id, seq, "summary", message, change.tokens, chars_of(message), at, stands_for=newest)
    if target is source:
        target.put_at_head(entry)
    else:
        target.append(entry)


@final
class Sown(msgspec.Struct, frozen=True):
    """What a seed brought, and when: event *seq*, at unix seconds *at*, with its parts from *shelf*."""

    seq: int
    at: float
    shelf: Shelf
    intake: Intake


def apply_seed(state: RegionState, change: SeedResolved, sown: Sown) -> None:
    """Put what a seed gave into *state*; of a checklist the items follow as changes of their own."""
    if state.region.kind != "checklist":
        ids = range(state.next_id, state.next_id + len(change.blocks))
        state.replace((), _seed_entries(state, ids, change, (), sown))


def apply_refresh(state: RegionState, change: SeedRefreshed, sown: Sown) -> None:
    """Put what a seed gave in place of what it gave before."""
    entries = _seed_entries(state, change.entry_ids, change, change.replaces, sown)
    state.replace(change.replaces, entries)


def _seed_entries(
    state: RegionState,
    ids: Sequence[int],
    change: SeedResolved | SeedRefreshed,
    replaces: Sequence[int],
    sown: Sown,
) -> list[Entry]:
    """Return the blocks of *change* as entries.

    In a hashmap each gets a key that nobody else has: what others wrote stays theirs.
    """
    taken = {entry.key for entry in state.all_entries() if entry.entry_id not in replaces}
    given = dict(change.keys)
    entries: list[Entry] = []
    for entry_id, block in zip(ids, change.blocks, strict=True):
        state.next_id = max(state.next_id, entry_id + 1)
        key = unused(block.name, taken) if state.region.kind == "hashmap" and block.name else given.get(block.name)
        taken.add(key)
        message = Message("user", (block.text,) if block.text else (), blobs=sown.shelf.blobs(block.parts))
        entries.append(
            Entry(
                entry_id,
                sown.seq,
                "text",
                message,
                block.tokens,
                chars_of(message),
                sown.at,
                key,
                block.name,
                block.parts,
                part_tokens=part_tokens(message, sown.intake),
            )
        )
    return entries
