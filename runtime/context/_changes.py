"""Changes to a window, as they stand in the journal: the only way in which a window ever changes.

Each is a positional array in the journal; fields are only ever appended, and a field that is added has a default.
Content stands once: a change that puts text into a region names the event that holds the text (`source`, `index`) and
adds only what differs from it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

from shoal.providers import Text

EntryKind: TypeAlias = Literal["text", "user_message", "assistant_turn", "tool_result", "summary"]
EvictReason: TypeAlias = Literal[
    "budget", "max_items", "max_entries", "pressure", "layout", "compaction_failed", "max_stored"
]

EpochReason: TypeAlias = Literal[
    "first",
    "model",
    "tools",
    "instructions",
    "layout",
    "eviction",
    "release",
    "reset",
    "compaction",
    "masking",
    "rewrite",
    "pressure",
    "cost",
    "parts",
    "replay",
    "components",
]
AmendmentForm: TypeAlias = Literal["system", "turn", "user", "entries"]

WHOLE = -1
"""`index` of an entry that takes the whole content of its source."""


@final
class PartStored(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Bytes came to the run: an image, a document or anything else. They stand once in the journal, by their digest.

    Args:
        digest: SHA-256 of the bytes, hex.
        name: The part's name, unique in its run.
        mime: What the bytes are, by themselves.
        size: How many bytes.
        width_px: Width of an image; `None` where it is unknown.
        height_px: Height of an image; `None` where it is unknown.
        pages: Pages of a document; `None` where they are unknown.
        seconds: How long a recording lasts; `None` where it is unknown.
    """

    digest: str
    name: str
    mime: str
    size: int
    width_px: int | None = None
    height_px: int | None = None
    pages: int | None = None
    seconds: float | None = None


@final
class EntryWritten(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An entry went into a region.

    Args:
        region: The region.
        entry_id: Its id, unique in the region and never used again.
        kind: What it is.
        tokens: What it costs, as it was counted when it was written.
        source: Seq of the event that holds its text; 0 where *text* is all of it.
        index: Which part of that event: `WHOLE`, or the number of a tool call, a seed block and the like.
        key: Its key; `None` for an entry without one.
        cut: How many characters of the source's text it holds; `None` for all of them.
        text: Text that stands behind what the source gives; `None` for nothing.
        replaces: Ids of the entries that go in the same step (a replaced key, a rewritten region).
        over_budget: The region is over its budget by this group, and stays so until the next one.
        counted: How the tokens were counted: `estimate` or a tokenizer's name.
        parts: Seqs of the `PartStored` of each stored part that it holds, in order.
    """

    region: str
    entry_id: int
    kind: EntryKind
    tokens: int
    source: int = 0
    index: int = WHOLE
    key: str | None = None
    cut: int | None = None
    text: Text | None = None
    replaces: tuple[int, ...] = ()
    over_budget: bool = False
    counted: str = "estimate"
    parts: tuple[int, ...] = ()


@final
class EntriesEvicted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Entries went because room was needed.

    Args:
        region: The region.
        entry_ids: Which, oldest first.
        tokens: What they held.
        reason: Why room was needed.
    """

    region: str
    entry_ids: tuple[int, ...]
    tokens: int
    reason: EvictReason


@final
class EntriesReleased(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Entries went because somebody was done with them.

    Args:
        region: The region.
        entry_ids: Which, oldest first.
        tokens: What they held.
    """

    region: str
    entry_ids: tuple[int, ...]
    tokens: int


@final
class RegionReset(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A region was emptied for good.

    Args:
        region: The region.
        tokens: What it held.
        reason: `stage` (its `reset`), `transform` (an edge).
    """

    region: str
    tokens: int
    reason: Literal["stage", "transform"]


@final
class ItemChanged(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An item of a checklist was opened, closed, annotated or dropped.

    Args:
        region: The checklist.
        item_id: The item; ids count up for the life of the run and never come back.
        state: What it is now.
        note: Its text where it was opened, a note, or why it was dropped; `None` where nothing was said.
        tokens: What the change adds to the region.
    """

    region: str
    item_id: int
    state: Literal["open", "done", "note", "dropped"]
    note: Text | None
    tokens: int


@final
class ContextCompacted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Entries were folded into a summary.

    Args:
        region: The region they stood in.
        replaces_seq_range: First and last seq of the events that wrote them.
        entry_ids: Which entries the summary stands for.
        summary: The summary.
        tokens: What the summary costs.
        bytes_saved: Bytes of the entries less bytes of the summary.
        dropped_parts: Names of stored parts that left the window with them.
        into: The region that takes the summary; the same region where nothing is paired.
        entry_id: Id of the summary's entry in *into*.
    """

    region: str
    replaces_seq_range: tuple[int, int]
    entry_ids: tuple[int, ...]
    summary: Text
    tokens: int
    bytes_saved: int
    dropped_parts: tuple[str, ...] = ()
    into: str = ""
    entry_id: int = 0


@final
class SeedBlock(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One piece of what a seed gave.

    Args:
        name: What it came from: a path, a tool (the second of one name is `NAME (2)`); empty for a seed of one text.
        text: The text, its heading line included.
        tokens: What it costs.
        ok: False where this piece failed and *text* is the old one.
        parts: Seqs of the `PartStored` of each stored part behind the text.
    """

    name: str
    text: Text
    tokens: int
    ok: bool = True
    parts: tuple[int, ...] = ()


@final
class SeedResolved(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A seed gave its text at spawn.

    Args:
        region: The region.
        form: The seed's form, such as `files`.
        blocks: What it gave, in order; each becomes one entry.
        notes: What was left out or cut, for people.
        keys: Keys that the script of a custom region gave, by name of the block.
    """

    region: str
    form: str
    blocks: tuple[SeedBlock, ...]
    notes: tuple[str, ...] = ()
    keys: tuple[tuple[str, str], ...] = ()


@final
class SeedRefreshed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A seed was resolved again on stage entry, and gave something else than before.

    Args:
        region: The region.
        form: The seed's form.
        blocks: What it gave, in order; they take the place of the seed's earlier entries.
        entry_ids: Ids of the new entries, one a block.
        replaces: Ids of the seed's earlier entries that are still there.
        notes: What failed or was cut, for people.
        keys: Keys that the script of a custom region gave, by name of the block.
    """

    region: str
    form: str
    blocks: tuple[SeedBlock, ...]
    entry_ids: tuple[int, ...]
    replaces: tuple[int, ...]
    notes: tuple[str, ...] = ()
    keys: tuple[tuple[str, str], ...] = ()


@final
class BudgetChange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a change of stage or model did to one region: budgets before and after, tokens that were shed for it."""

    region: str
    before: int
    after: int
    shed: int = 0


@final
class LayoutChanged(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Budgets were resolved anew, for another layout or another model.

    Args:
        model: The model whose window they are shares of.
        window_tokens: That window.
        changes: Each region whose budget changed.
    """

    model: str
    window_tokens: int
    changes: tuple[BudgetChange, ...]


# --- what was sent to a model that binds its thinking to every byte in front of it


@final
class PromptEpoch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The next request is made anew; from it on nothing that was sent changes until the next epoch.

    Args:
        reason: What ended the epoch before: `first` and `model` had none, `layout` hides what it showed, `pressure`
            and `cost` drop its amendments; after `replay` the journal no longer adds up to what was sent, since another
            version rendered it; the others changed or removed what had been sent.
        tokens_rewritten: Estimate of what the request sends anew, from its first byte that differs on.
        thinking_dropped: How many turns lose their thinking: it is bound to what stood in front of it.
        silent_from: The conversation's entries from this id on are those; 0 for all of them.
        renders: What scripts had rendered of custom regions: region, and the digest under which the journal holds it.
    """

    reason: EpochReason
    tokens_rewritten: int
    thinking_dropped: int = 0
    silent_from: int = 0
    renders: tuple[tuple[str, str], ...] = ()


@final
class PromptAmended(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A region is said at the end of the next request, and stays there for the rest of the epoch.

    Args:
        region: The region.
        form: `system`, a system message within the conversation; `turn`, one that counts for one turn only; `user`,
            a user message behind the results; `entries`, the entries themselves as messages.
        text: What is said; `None` where it is what was last said of the region, or with `entries`.
        tokens: What it costs.
        entry_ids: Of `entries`: which, oldest first.
    """

    region: str
    form: AmendmentForm
    text: Text | None
    tokens: int
    entry_ids: tuple[int, ...] = ()


PromptChange: TypeAlias = PromptEpoch | PromptAmended
"""How the prompt of an append-only model goes on; it changes no region."""

Change: TypeAlias = (
    EntryWritten
    | EntriesEvicted
    | EntriesReleased
    | RegionReset
    | ItemChanged
    | ContextCompacted
    | SeedResolved
    | SeedRefreshed
    | LayoutChanged
)
