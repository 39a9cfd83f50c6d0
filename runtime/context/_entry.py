"""Entries, groups of entries, and what a writer hands in."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import chain, count
from typing import Literal, TypeAlias, final

import msgspec

from shoal.providers import TEXT_ONLY, Intake, Message, Text, TextCounter
from shoal.runtime.context._changes import WHOLE, EntryKind

Writer: TypeAlias = Literal["model", "framework", "routing", "seed"]


@final
class Entry(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One immutable thing in a region.

    Args:
        entry_id: Its id, unique in its region and never used again.
        seq: Seq of the event that wrote it.
        kind: What it is.
        message: What it says, as the message that it is in a conversation.
        tokens: What it costs, counted once when it was written.
        chars: Its length in characters, tool arguments included.
        created: When it was written, unix seconds.
        key: Its key; `None` for an entry without one.
        seed: Name of the block of a seed that it is, which a refresh replaces; `None` where no seed put it here.
        parts: Seqs of the stored parts that stand behind its text, one a blob of *message*.
        stands_for: Of a summary: seq of the newest event that it stands for; 0 otherwise.
        part_tokens: What of *tokens* the model reads in their place: their bytes, or what they say.
    """

    entry_id: int
    seq: int
    kind: EntryKind
    message: Message
    tokens: int
    chars: int
    created: float
    key: str | None = None
    seed: str | None = None
    parts: tuple[int, ...] = ()
    stands_for: int = 0
    part_tokens: int = 0

    @property
    def text(self) -> str:
        """What it says, as one string; a stored part is there as its stand-in."""
        return said_in(self.message)

    # An entry that nothing joined is a group of its own: most are, and a value around each costs more than it says.

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entry itself, as a group has entries."""
        return (self,)

    @property
    def ids(self) -> tuple[int, ...]:
        """Its id, as a group has ids."""
        return (self.entry_id,)

    @property
    def waits(self) -> bool:
        """It is a turn, and no call of it has a result yet."""
        return bool(self.message.calls)

    def asked(self, call_id: str) -> bool:
        """Say whether it made the call *call_id*."""
        return any(call.call_id == call_id for call in self.message.calls)

    def __add__(self, entry: Entry) -> Turn:
        return Turn((self, entry), self.tokens + entry.tokens)


@final
class Turn(msgspec.Struct, frozen=True, gc=False, eq=False):
    """An assistant turn with every result that answers it so far: what comes and goes together.

    Args:
        entries: The turn and its results, 2 or more, oldest first.
        tokens: What they cost together.
    """

    entries: tuple[Entry, ...]
    tokens: int

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of the entries, oldest first."""
        return tuple([entry.entry_id for entry in self.entries])

    @property
    def waits(self) -> bool:
        """A call of it has no result yet."""
        return len(self.entries) <= len(self.entries[0].message.calls)

    def asked(self, call_id: str) -> bool:
        """Say whether it made the call *call_id*."""
        return self.entries[0].asked(call_id)

    def __add__(self, entry: Entry) -> Turn:
        return Turn((*self.entries, entry), self.tokens + entry.tokens)


Group: TypeAlias = Entry | Turn
"""Entries that come and go together."""


def ids_of(groups: Iterable[Group]) -> tuple[int, ...]:
    """Return the ids of the entries of *groups*, in order."""
    return tuple([entry_id for group in groups for entry_id in group.ids])


@final
class Draft(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What a writer wants to put into a region.

    Args:
        kind: What it is.
        message: What it says.
        tokens: What it costs.
        source: Seq of the event that holds its text; 0 where the change itself has to hold it.
        index: Which part of that event.
        key: Its key; `None` for none.
        cut: How many characters of the source's text *message* holds; `None` for all of them.
        text: What *message* says behind them; `None` for nothing.
        writer: Who writes. `routing` is cut to what fits; the others are refused.
        counted: How the tokens were counted.
        parts: Seqs of the stored parts that stand behind its text, one a blob of *message*.
    """

    kind: EntryKind
    message: Message
    tokens: int
    source: int = 0
    index: int = WHOLE
    key: str | None = None
    cut: int | None = None
    text: Text | None = None
    writer: Writer = "framework"
    counted: str = "estimate"
    parts: tuple[int, ...] = ()


def unused(name: str, taken: Container[str | None]) -> str:
    """Return *name*, or *name* with the first number that makes it none of *taken*."""
    names = chain((name,), (f"{name} ({number})" for number in count(2)))
    return next(name for name in names if name not in taken)


def size(text: Text) -> tuple[int, int]:
    """Return the characters and the UTF-8 bytes of *text*."""
    return text.measured


def said_in(message: Message) -> str:
    """Return what *message* says as one string, each of its stored parts as its stand-in on a line of its own."""
    if not message.blobs:
        return message.text
    lines = (message.text, *[str(blob.stand_in) for blob in message.blobs])
    return "\n".join(line for line in lines if line)


def chars_of(message: Message) -> int:
    """Return the length of *message* in characters, tool arguments and what its stored parts say included."""
    chars = 0
    for text in message.texts:
        chars += size(text)[0]
    for blob in message.blobs:
        chars += size(blob.stand_in)[0] + (0 if blob.text is None else size(blob.text)[0])
    for call in message.calls:
        chars += size(call.arguments)[0]
    return chars


def bytes_of(entries: Sequence[Entry]) -> int:
    """Return the UTF-8 bytes of what *entries* say, a stored part counting as its stand-in."""
    texts = sum(size(text)[1] for entry in entries for text in entry.message.texts)
    return texts + sum(size(blob.stand_in)[1] for entry in entries for blob in entry.message.blobs)


BYTES_PER_TOKEN = 4


def estimate_text(text: Text) -> int:
    """Estimate what *text* costs in tokens: its UTF-8 bytes over four, rounded up."""
    return -(-size(text)[1] // BYTES_PER_TOKEN)


def estimate(message: Message, intake: Intake = TEXT_ONLY) -> int:
    """Estimate what *message* costs in tokens on a model with that *intake*, tool calls included, framing excluded."""
    total = 0
    for text in message.texts:
        total += size(text)[1]
    for call in message.calls:
        total += size(call.arguments)[1] + len(call.name)
    if not message.blobs:
        return -(-total // BYTES_PER_TOKEN)
    total += sum([size(blob.stand_in)[1] for blob in message.blobs])
    return -(-total // BYTES_PER_TOKEN) + part_tokens(message, intake)


def part_tokens(message: Message, intake: Intake) -> int:
    """Estimate what the stored parts of *message* cost on a model with that *intake*, beside their stand-ins."""
    tokens = 0
    for blob in message.blobs:
        tokens += intake.tokens(blob) if blob.text is None else estimate_text(blob.text)
    return tokens


COUNTED_BYTES = 32_768
"""A longer text is estimated: counting one would hold up everybody else."""


def counted(draft: Draft, counter: TextCounter | None) -> Draft:
    """Return *draft* as *counter* counts it; as it is where nobody counts, or where it is too long to be counted."""
    if counter is None or counter.estimates or draft.message.blobs or draft.tokens * BYTES_PER_TOKEN > COUNTED_BYTES:
        return draft
    message = draft.message
    tokens = sum([counter.count(text) for text in message.texts])
    tokens += sum([counter.count(call.arguments) + counter.count(Text.of(call.name)) for call in message.calls])
    return msgspec.structs.replace(draft, tokens=max(1, tokens), counted=counter.name)
