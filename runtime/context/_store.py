"""What a region holds: groups in chunks, with the rendering of each chunk kept until the chunk changes.

A chunk is what is rendered together. In a region whose kind renders messages it is a segment of the conversation; in a
`grows` region it freezes once it is big enough, so that its bytes stay put; anything else is one chunk for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, final

import msgspec

from shoal.blueprints import Region
from shoal.providers import Block, Intake, Segment, Text, digest
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Entry, Group, Turn, part_tokens, size, unused

CHUNK_TOKENS = 2_048
"""A chunk of a `grows` region freezes once it holds this many tokens."""
SEGMENT_MESSAGES = 16
SEGMENT_CHARS = 32_768
"""A segment of messages closes at whichever comes first; small enough that the open one is cheap to make again."""

Cut: TypeAlias = Literal["grows", "messages", "never"]


@final
class Chunk(msgspec.Struct, gc=False, eq=False):
    """Groups that are rendered together.

    Args:
        number: It counts chunks for the life of the region and is never used again.
        continued: It stood behind another chunk when it was begun, and its heading says so for good.
        groups: The groups, oldest first.
        tokens: What they cost; this and the next four are counted as they come and go.
        chars: Their length in characters.
        entries: How many entries they are.
        parts: How many stored parts stand behind these.
        part_tokens: What of *tokens* the model reads in their place.
        frozen: No group comes any more.
        block: What was rendered of it as a block; `None` for nothing.
        rendered: How many of its groups stand in *block*; what was added since is added to it.
        segment: What was rendered of it as messages; `None` for nothing.
    """

    number: int
    continued: bool
    groups: list[Group] = []
    tokens: int = 0
    chars: int = 0
    entries: int = 0
    parts: int = 0
    part_tokens: int = 0
    frozen: bool = False
    block: Block | None = None
    rendered: int = 0
    segment: Segment | None = None

    def __repr__(self) -> str:
        return f"<Chunk {self.number} {len(self.groups)} groups {self.tokens} tokens{' frozen' if self.frozen else ''}>"

    def changed(self) -> None:
        """Forget what was rendered of it."""
        self.block = self.segment = None
        self.rendered = 0

    def count(self) -> None:
        """Count again after groups went or changed."""
        self.tokens = sum(group.tokens for group in self.groups)
        self.entries = sum(len(group.entries) for group in self.groups)
        self.chars = sum(entry.chars for group in self.groups for entry in group.entries)
        self.parts = sum(len(entry.parts) for group in self.groups for entry in group.entries)
        self.part_tokens = sum(entry.part_tokens for group in self.groups for entry in group.entries)
        self.changed()


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

    @property
    def chars(self) -> int:
        """Its length in characters, notes and reason included."""
        return sum(size(text)[0] for text in (self.text, *self.notes, self.reason) if text is not None)


_NO_ITEMS: dict[int, Item] = {}
"""Shared by all regions that never have any: an empty one for each costs more than what most of them hold."""


@final
class RegionState(msgspec.Struct, gc=False, eq=False):
    """One region of a live window. A run has one for each, and most stay empty: so it costs little to make and to keep.

    Args:
        region: Its definition in the current layout.
        limits: Its limits on the current model.
        cut: How its content is cut into chunks.
        chunks: What it holds, oldest first.
        tokens: What that costs; this and the next four are counted as it comes and goes.
        chars: Its length in characters.
        entries: How many entries it is.
        parts: How many stored parts it holds.
        part_tokens: What of *tokens* the model reads in their place.
        next_id: Id of the entry that comes next.
        next_chunk: Number of the chunk that is begun next.
        next_item: Id of the checklist's item that comes next.
        items: Of a checklist: its items, by id.
        instructions: The stage's instructions, where they stand in this region.
        instruction_tokens: What they cost.
        moved: How often entries went, so that others may have another number now. None comes in front without that.
        listed: *moved* as it was when the model last saw its entries numbered.
        cached: What was rendered of the region as a whole, until it changes.
        rendering: What the script of a custom region made of it; `None` for nothing that can be used.
        view: What a stage sees of a conversation; `None` for all of it as it is.
        drawn: Its blocks and segments, as they were sent last.
    """

    region: Region
    limits: Limits
    cut: Cut
    chunks: Sequence[Chunk] = ()
    tokens: int = 0
    chars: int = 0
    entries: int = 0
    parts: int = 0
    part_tokens: int = 0
    next_id: int = 1
    next_chunk: int = 0
    next_item: int = 1
    items: dict[int, Item] = msgspec.field(default_factory=lambda: _NO_ITEMS)
    instructions: Text | None = None
    instruction_tokens: int = 0
    moved: int = 0
    listed: int = 0
    cached: Any = None
    rendering: Any = None
    view: Any = None
    drawn: Any = None

    def __post_init__(self) -> None:
        if self.region.kind == "checklist":
            self.items = {}

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

    def units(self, *, keep_newest: bool = False) -> Iterator[tuple[Group, ...]]:
        """Yield what goes together when room is made, oldest first: frozen chunks, then single groups.

        Args:
            keep_newest: The newest group is not among them, and the chunk that holds it goes group by group.
        """
        newest = self.chunks[-1] if self.chunks and keep_newest else None
        for chunk in self.chunks:
            if chunk.frozen and self.cut == "grows" and chunk is not newest:
                yield tuple(chunk.groups)
            else:
                yield from ((group,) for group in (chunk.groups[:-1] if chunk is newest else chunk.groups))

    def free_key(self, name: str) -> str:
        """Return *name*, or *name* with the first number that no entry's key has yet."""
        return unused(name, {entry.key for entry in self.all_entries()})

    # --- changing (by applied events only)

    def touched(self) -> None:
        """Forget what was rendered of the region as a whole."""
        self.cached = None

    def redraw(self) -> None:
        """Forget everything that was rendered of the region."""
        for chunk in self.chunks:
            chunk.changed()
        self.touched()

    def instruct(self, instructions: Text | None, tokens: int) -> None:
        """Let *instructions*, which cost *tokens*, stand behind what it holds; `None` for none."""
        if self.instructions != instructions:
            self.instructions, self.instruction_tokens = instructions, tokens
            self.touched()

    def append(self, entry: Entry) -> None:
        """Put *entry* behind what is there, as a group of its own."""
        self._put(entry)

    def join(self, entry: Entry) -> None:
        """Put *entry* behind what is there, into the newest group; a frozen chunk takes it too."""
        chunk = self.chunks[-1]
        chunk.groups[-1] += entry
        self._grew(chunk, (entry,))

    def put_at_head(self, entry: Entry) -> None:
        """Put *entry* in front of everything; what is already cut into chunks stays cut so."""
        if not self.chunks:
            self.append(entry)
            return
        first = self.chunks[0]
        if self.cut == "never":
            first.groups.insert(0, entry)
            first.changed()
            self._grew(first, (entry,))
            return
        if not first.continued:
            first.continued = True
            first.changed()
        head = self._begun(continued=False)
        head.frozen = True
        head.groups.append(entry)
        self.chunks = (head, *self.chunks)
        self._grew(head, (entry,))

    def replace(self, entry_ids: Iterable[int], entries: Iterable[Entry] = ()) -> None:
        """Take the groups of those ids out and put *entries* where the first of them stood, or else behind all."""
        gone = frozenset(entry_ids)
        coming = list(entries)
        hit = [chunk for chunk in self.chunks if any(not gone.isdisjoint(group.ids) for group in chunk.groups)]
        for chunk in hit:
            kept: list[Group] = []
            for group in chunk.groups:
                if gone.isdisjoint(group.ids):
                    kept.append(group)
                else:
                    kept += coming
                    coming = []
            chunk.groups = kept
            chunk.count()
            self._freeze(chunk)
        if hit:
            self.moved += 1
            self.chunks = tuple([chunk for chunk in self.chunks if chunk.groups])
            self.recount()
        for entry in coming:
            self.append(entry)

    def clear(self) -> None:
        """Take everything out; ids go on counting."""
        self.moved += 1
        self.chunks = ()
        if self.items:
            self.items = {}
        self.recount()

    def recut(self, cut: Cut) -> None:
        """Cut what is there into chunks anew."""
        groups = list(self.groups())
        self.cut = cut
        self.chunks = ()
        self.recount()
        for group in groups:
            self._put(group)

    def recount(self) -> None:
        """Count what is there again after something went or changed."""
        items = self.items.values()
        self.tokens = sum(chunk.tokens for chunk in self.chunks) + sum(item.tokens for item in items)
        self.chars = sum(chunk.chars for chunk in self.chunks) + sum(item.chars for item in items)
        self.entries = sum(chunk.entries for chunk in self.chunks)
        self.parts = sum(chunk.parts for chunk in self.chunks)
        self.part_tokens = sum(chunk.part_tokens for chunk in self.chunks)
        self.touched()

    def reprice(self, intake: Intake) -> None:
        """Count what its stored parts cost on a model with that *intake*; nothing is cut anew."""
        if not self.parts:
            return
        for chunk in self.chunks:
            if chunk.parts:
                chunk.groups = [_repriced(group, intake) for group in chunk.groups]
                chunk.count()
        self.recount()

    def _put(self, group: Group) -> None:
        chunk = self.chunks[-1] if self.chunks else None
        if chunk is None or chunk.frozen:
            chunk = self._begun(continued=chunk is not None)
            self.chunks = (*self.chunks, chunk)
        chunk.groups.append(group)
        self._grew(chunk, group.entries)

    def _begun(self, *, continued: bool) -> Chunk:
        chunk = Chunk(self.next_chunk, continued=continued)
        self.next_chunk += 1
        return chunk

    def _grew(self, chunk: Chunk, entries: tuple[Entry, ...]) -> None:
        tokens = sum([entry.tokens for entry in entries])
        chars = sum([entry.chars for entry in entries])
        chunk.tokens += tokens
        chunk.entries += len(entries)
        chunk.chars += chars
        for entry in entries:
            if entry.parts:
                chunk.parts += len(entry.parts)
                chunk.part_tokens += entry.part_tokens
                self.parts += len(entry.parts)
                self.part_tokens += entry.part_tokens
        chunk.segment = None
        self._freeze(chunk)
        self.tokens += tokens
        self.chars += chars
        self.entries += len(entries)
        self.touched()

    def _freeze(self, chunk: Chunk) -> None:
        """Freeze *chunk* where it is big enough; one that is frozen stays so, whatever goes or comes in it by name."""
        if self.cut == "grows":
            chunk.frozen = chunk.frozen or chunk.tokens >= CHUNK_TOKENS
        elif self.cut == "messages":
            chunk.frozen = chunk.frozen or chunk.entries >= SEGMENT_MESSAGES or chunk.chars >= SEGMENT_CHARS


def _repriced(group: Group, intake: Intake) -> Group:
    if not any(entry.parts for entry in group.entries):
        return group
    entries = tuple([_at_price(entry, intake) if entry.parts else entry for entry in group.entries])
    return Turn(entries, sum([entry.tokens for entry in entries])) if isinstance(group, Turn) else entries[0]


def _at_price(entry: Entry, intake: Intake) -> Entry:
    cost = part_tokens(entry.message, intake)
    return msgspec.structs.replace(entry, tokens=entry.tokens - entry.part_tokens + cost, part_tokens=cost)
