"""What a region holds: groups in chunks, with the rendering of each chunk kept until the chunk changes.

A chunk is what is rendered together. In a region whose kind renders messages it is a segment of the conversation; in a
`grows` region it freezes once it is big enough, so that its bytes stay put; anything else is one chunk for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, final

import msgspec

from shoal.blueprints import Region
from shoal.providers import Block, Segment, Text, digest
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Entry, Group

CHUNK_TOKENS = 2_048
"""A chunk of a `grows` region freezes once it holds this many tokens."""
SEGMENT_MESSAGES = 16
SEGMENT_BYTES = 32_768
"""A segment of messages closes at whichever comes first; small enough that the open one is cheap to make again."""

HEAD = -1
"""Number of a chunk that was put in front of the others."""

Cut: TypeAlias = Literal["grows", "messages", "never"]


class Chunk:
    """Groups that are rendered together. *number* counts chunks for the life of the region and is never used again."""

    __slots__ = ("chars", "entries", "frozen", "groups", "made", "number", "tokens")

    def __init__(self, number: int) -> None:
        self.number = number
        self.groups: list[Group] = []
        self.tokens = 0
        self.chars = 0
        self.entries = 0
        self.frozen = False
        self.made: Block | Segment | None = None

    def __repr__(self) -> str:
        return f"<Chunk {self.number} {len(self.groups)} groups {self.tokens} tokens{' frozen' if self.frozen else ''}>"

    def count(self) -> None:
        """Count again after groups went or changed."""
        self.tokens = sum(group.tokens for group in self.groups)
        self.entries = sum(len(group.entries) for group in self.groups)
        self.chars = sum(entry.chars for group in self.groups for entry in group.entries)
        self.made = None


@final
class Item(msgspec.Struct, frozen=True, gc=False):
    """One item of a checklist.

    Args:
        item_id: Its id.
        text: What is to be done.
        state: Whether it is still to be done.
        notes: What was said of it, oldest first.
        reason: Why it was dropped; `None` unless it was.
        tokens: What it costs with its notes.
    """

    item_id: int
    text: Text
    state: Literal["open", "done", "dropped"] = "open"
    notes: tuple[Text, ...] = ()
    reason: Text | None = None
    tokens: int = 0


@final
class RegionState:
    """One region of a live window.

    Args:
        region: Its definition in the current layout.
        limits: Its limits on the current model.
    """

    __slots__ = (
        "cached",
        "chars",
        "chunks",
        "cut",
        "entries",
        "instruction_tokens",
        "instructions",
        "items",
        "limits",
        "next_chunk",
        "next_id",
        "next_item",
        "region",
        "tokens",
        "version",
    )

    def __init__(self, region: Region, limits: Limits, cut: Cut) -> None:
        self.region = region
        self.limits = limits
        self.cut: Cut = cut
        self.chunks: list[Chunk] = []
        self.tokens = 0
        self.chars = 0
        self.entries = 0
        self.next_id = 1
        self.next_chunk = 0
        self.next_item = 1
        self.items: dict[int, Item] = {}
        self.instructions: Text | None = None
        self.instruction_tokens = 0
        self.version = 0
        self.cached: Any = None

    def __repr__(self) -> str:
        return f"<RegionState {self.region.name} {self.region.kind} {self.tokens}/{self.limits.budget} tokens>"

    # --- reading

    @property
    def charged(self) -> int:
        """Tokens that count against the budget: what it holds, and the instructions where they stand in it."""
        return self.tokens + self.instruction_tokens

    @property
    def empty(self) -> bool:
        """Nothing is in it; a checklist without items is empty."""
        return not self.entries and not self.items

    def groups(self) -> Iterator[Group]:
        """Yield its groups, oldest first."""
        for chunk in self.chunks:
            yield from chunk.groups

    def all_entries(self) -> Iterator[Entry]:
        """Yield its entries, oldest first."""
        for group in self.groups():
            yield from group.entries

    @property
    def newest(self) -> Group | None:
        """The newest group; `None` where there is none."""
        return self.chunks[-1].groups[-1] if self.chunks else None

    def digest(self) -> bytes:
        """Return 16 bytes that stand for its content, whatever its ids."""
        items = [f"{item.item_id}|{item.state}|{len(item.notes)}".encode() for item in self.items.values()]
        return digest(*[entry.message.digest for entry in self.all_entries()], *items)

    def units(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """Yield what goes together, oldest first, as (entry ids, tokens, entries): frozen chunks, then groups."""
        for chunk in self.chunks:
            if chunk.frozen and self.cut == "grows":
                yield tuple(i for group in chunk.groups for i in group.ids), chunk.tokens, chunk.entries
            else:
                for group in chunk.groups:
                    yield group.ids, group.tokens, len(group.entries)

    # --- changing (by applied events only)

    def touched(self) -> None:
        """Forget what was rendered of the region as a whole."""
        self.version += 1
        self.cached = None

    def append(self, entry: Entry, *, joins: bool) -> None:
        """Put *entry* behind what is there; where it *joins*, into the newest group."""
        chunk = self._open_chunk(joins=joins)
        if joins:
            chunk.groups[-1] = chunk.groups[-1] + entry
        else:
            chunk.groups.append(Group((entry,), entry.tokens))
        self._grew(chunk, entry)

    def insert(self, entry: Entry, where: int) -> None:
        """Put *entry* in front of the group at position *where* (0 is the oldest)."""
        for chunk in self.chunks:
            if where < len(chunk.groups) or (where == len(chunk.groups) and chunk is self.chunks[-1]):
                chunk.groups.insert(where, Group((entry,), entry.tokens))
                self._grew(chunk, entry)
                return
            where -= len(chunk.groups)
        self.append(entry, joins=False)

    def put_at_head(self, entry: Entry) -> None:
        """Put *entry* in front of everything; what is already cut into chunks keeps its bytes."""
        if self.cut == "never" or not self.chunks:
            self.insert(entry, 0)
            return
        head = Chunk(HEAD)
        head.groups.append(Group((entry,), entry.tokens))
        head.frozen = True
        if self.chunks[0].number == 0:
            self.chunks[0].made = None  # it had the heading, which the new head takes
        self.chunks.insert(0, head)
        self._grew(head, entry)

    def remove(self, entry_ids: Iterable[int]) -> int | None:
        """Take those entries out and return the position of the first group that was touched; `None` for none."""
        gone = set(entry_ids)
        first: int | None = None
        position = 0
        left: list[Chunk] = []
        for chunk in self.chunks:
            hit = False
            kept: list[Group] = []
            for group in chunk.groups:
                if gone.isdisjoint(group.ids):
                    kept.append(group)
                    continue
                hit = True
                if first is None:
                    first = position + len(kept)
                smaller = group.without(gone)
                if smaller is not None:
                    kept.append(smaller)
            if hit:
                chunk.groups = kept
                chunk.count()
            if kept:
                left.append(chunk)
            position += len(kept)
        self.chunks = left
        self._recount()
        return first

    def clear(self) -> None:
        """Take everything out; ids go on counting."""
        self.chunks = []
        self.items = {}
        self._recount()

    def clear_chunks(self) -> None:
        """Take all entries out, to put them in again in another cut."""
        self.chunks = []
        self._recount()

    def _open_chunk(self, *, joins: bool) -> Chunk:
        if self.chunks:
            last = self.chunks[-1]
            if not last.frozen or joins:
                return last
        if not self.chunks:
            self.next_chunk = 0  # a region that was emptied begins anew, under its plain heading
        chunk = Chunk(self.next_chunk)
        self.next_chunk += 1
        self.chunks.append(chunk)
        return chunk

    def _grew(self, chunk: Chunk, entry: Entry) -> None:
        chunk.tokens += entry.tokens
        chunk.entries += 1
        chunk.chars += entry.chars
        chunk.made = None
        if self.cut == "grows":
            # A summary at the head may grow a frozen chunk; it stays one.
            chunk.frozen = chunk.frozen or chunk.tokens >= CHUNK_TOKENS
        elif self.cut == "messages":
            chunk.frozen = chunk.frozen or chunk.entries >= SEGMENT_MESSAGES or chunk.chars >= SEGMENT_BYTES
        self.tokens += entry.tokens
        self.chars += entry.chars
        self.entries += 1
        self.touched()

    def _recount(self) -> None:
        self.tokens = sum(chunk.tokens for chunk in self.chunks) + sum(item.tokens for item in self.items.values())
        self.chars = sum(chunk.chars for chunk in self.chunks)
        self.entries = sum(chunk.entries for chunk in self.chunks)
        self.touched()
