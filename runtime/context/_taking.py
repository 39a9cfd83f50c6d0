"""What a region takes: which types of parts, and how many stored parts at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

import msgspec

from shoal.blueprints import Region
from shoal.providers import Message, Text, matches
from shoal.runtime.context._changes import SeedBlock
from shoal.runtime.context._entry import Draft, Entry, Group
from shoal.runtime.context._shelf import Shelf
from shoal.runtime.context._store import RegionState

TEXT = "text/plain"
_LISTED = 12


def types_of(message: Message) -> tuple[str, ...]:
    """Return the types of what *message* says and holds, each once; text counts as `text/plain`."""
    text = (TEXT,) if message.text.strip() else ()
    return tuple(dict.fromkeys((*text, *[blob.mime for blob in message.blobs])))


def uncovered(region: Region, types: Iterable[str]) -> str | None:
    """Return why *region* does not take *types*, for the writer; `None` where it takes all of them."""
    accepts = region.accepts
    left_out = [] if accepts is None else [mime for mime in types if not matches(accepts, mime)]
    if accepts is None or not left_out:
        return None
    return f"takes {', '.join(accepts)}, and this holds {', '.join(left_out)}"


def keeps_all(region: Region) -> bool:
    """Say whether *region* drops nothing by itself to make room."""
    pinned = region.kind in ("pinned", "compact_history") or (region.kind == "custom" and region.pinned)
    return pinned or region.admission == "reject"


@final
class Crowd(msgspec.Struct, frozen=True):
    """What `max_stored` makes of a write.

    Args:
        evict: Ids that go, oldest first.
        tokens: What they hold.
        why: Why it is refused; empty where it is not.
    """

    evict: tuple[int, ...] = ()
    tokens: int = 0
    why: str = ""


def crowd(state: RegionState, draft: Draft, replaces: frozenset[int], *, joins: bool) -> Crowd:
    """Return what has to go so that *state* holds no more stored parts than it may with *draft* in it.

    Args:
        state: The region.
        draft: What is to be written.
        replaces: Ids of the entries whose place it takes.
        joins: It becomes part of the newest group, which therefore stays.
    """
    most = state.region.max_stored
    if most is None or not draft.parts:
        return Crowd()
    coming = len(draft.parts)
    swapped = state.region.kind == "hashmap"  # a key's entry goes with the write to it
    going = [e for e in state.all_entries() if e.entry_id in replaces or (swapped and e.key == draft.key)]
    surplus = state.parts - sum(len(entry.parts) for entry in going) + coming - most
    if surplus <= 0:
        return Crowd()
    if coming > most:
        return Crowd(why=f"keeps {most} stored parts at most, and this holds {coming}")
    if keeps_all(state.region):
        return Crowd(why=f"keeps {most} stored parts at most. It holds: {_held(state)}")
    evict: list[Entry] = []
    gone = {entry.entry_id for entry in going}
    for group in _oldest(state, joins=joins):
        if surplus <= 0:
            break
        if any(entry.parts for entry in group.entries):
            evict += [entry for entry in group.entries if entry.entry_id not in gone]
            surplus -= sum(len(entry.parts) for entry in group.entries if entry.entry_id not in gone)
    if surplus > 0:
        return Crowd(why=f"keeps {most} stored parts at most, and what stands there cannot go yet")
    return Crowd(tuple([entry.entry_id for entry in evict]), sum([entry.tokens for entry in evict]))


def _oldest(state: RegionState, *, joins: bool) -> Sequence[Group]:
    """Return the groups of *state* that may go, oldest first."""
    groups = list(state.groups())
    if state.region.kind == "hashmap":
        return sorted(groups, key=lambda group: group.entries[0].entry_id)
    return groups[:-1] if groups and (joins or groups[-1].waits) else groups


def _held(state: RegionState) -> str:
    named = [
        f"id {entry.entry_id} ({', '.join(blob.name for blob in entry.message.blobs)})"
        for entry in state.all_entries()
        if entry.parts
    ]
    more = len(named) - _LISTED
    return ", ".join(named[:_LISTED]) + (f" and {more} more" if more > 0 else "")


# --- seeds


def said_by(block: SeedBlock) -> str:
    """Return what *block* says beside the line that names where it comes from."""
    first, _, rest = str(block.text).partition("\n")
    return rest if block.name and first.startswith("--- ") and first.endswith(" ---") else str(block.text)


def takes_blocks(
    region: Region, blocks: Sequence[SeedBlock], shelf: Shelf, held_parts: int = 0
) -> tuple[list[SeedBlock], list[str]]:
    """Return which of *blocks* the region takes, in order, and a note on each other.

    Of more stored parts than it may hold, a region that drops nothing keeps the first ones, any other the last ones.
    The *held_parts* that stand there and stay have been there longer, and are not given up for a seed.
    """
    notes: list[str] = []
    taken: list[SeedBlock] = []
    for block in blocks:
        message = Message("user", (Text.of(said_by(block)),), blobs=shelf.blobs(block.parts))
        why = uncovered(region, types_of(message))
        if why is None:
            taken.append(block)
        else:
            notes.append(f"{block.name or 'seed'} is left out: the region {why}")
    most = region.max_stored
    room = 0 if most is None else max(0, most - held_parts)
    if most is None or sum(len(block.parts) for block in taken) <= room:
        return taken, notes
    kept: list[SeedBlock] = []
    for block in taken if keeps_all(region) else reversed(taken):
        if len(block.parts) <= room:
            kept.append(block)
            room -= len(block.parts)
        else:
            notes.append(f"{block.name or 'seed'} is left out: the region keeps {most} stored parts at most")
    return kept if keeps_all(region) else kept[::-1], notes
