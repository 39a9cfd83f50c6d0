"""How a region's content becomes blocks and segments: headings, descriptions, escapes.

Rendering is kept by chunk: a chunk is rendered again only after it changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import final

import msgspec

from shoal.blueprints import CallerSeed, Region
from shoal.providers import Block, Reach, Segment, Text
from shoal.runtime.context._entry import Entry, estimate_text
from shoal.runtime.context._store import Chunk, RegionState

BLANK_LINE = Text.of("\n\n")
NEW_LINE = Text.of("\n")
_LINE_MARK = b"## "


@final
class Theme:
    """What rendering has to know of the whole window: which headings must not be forged.

    Args:
        names: Every region that any layout declares, and those that every run has.
    """

    __slots__ = ("_forged", "_headings")

    def __init__(self, names: Iterable[str]) -> None:
        known = "|".join(re.escape(name) for name in sorted(names))
        self._forged = re.compile(rf"^## (?P<name>{known})(?: \((?:continued|now)\))?[ \t]*\r?$", re.MULTILINE)
        self._headings: dict[tuple[str, bool, str | None], Text] = {}

    def escaped(self, text: Text, *, own: str | None = None) -> Text:
        r"""Return *text* with a backslash in front of each line that reads like the heading of a region but *own*."""
        if _LINE_MARK not in text.body:
            return text
        plain = str(text)
        safe = self._forged.sub(lambda found: found[0] if found["name"] == own else "\\" + found[0], plain)
        return text if safe == plain else Text.of(safe)

    def heading(self, region: Region, *, continued: bool = False) -> Text:
        """Return the heading of *region*, its description under it where the model is to see that."""
        description = region.description if region.describe_in_prompt and not continued else None
        key = (region.name, continued, description)
        made = self._headings.get(key)
        if made is None:
            line = f"## {region.name}{' (continued)' if continued else ''}\n"
            under = self.escaped(Text.of(f"{description}\n\n")) if description else Text.of("")
            made = self._headings[key] = Text(Text.of(line).body + under.body)
        return made

    def now(self, region: Region) -> Text:
        """Return the heading of *region* where it is said again."""
        return Text.of(f"## {region.name} (now)\n")


@final
class Rendered(msgspec.Struct, frozen=True, gc=False):
    """What a region shows: blocks of the system section, segments of messages, or nothing."""

    blocks: tuple[Block, ...] = ()
    segments: tuple[Segment, ...] = ()


def as_blocks(state: RegionState, theme: Theme) -> Rendered:
    """Render *state* as system blocks, one a chunk; instructions stand at the end of the last."""
    return Rendered(blocks=tuple(_blocks(state, theme)))


def _blocks(state: RegionState, theme: Theme) -> Iterator[Block]:
    chunks = state.chunks
    if state.instructions is None:
        yield from (_block(state.region, chunk, theme) for chunk in chunks)
        return
    yield from (_block(state.region, chunk, theme) for chunk in chunks[:-1])
    last = chunks[-1] if chunks else Chunk(0, continued=False)
    # Not kept: the chunk outlives the stage, and the next append moves the instructions to another one.
    yield _instructed(_block(state.region, last, theme), state.instructions)


def _block(region: Region, chunk: Chunk, theme: Theme) -> Block:
    """Return the block of *chunk*; only what is new in it is rendered."""
    before = chunk.block
    if before is not None and chunk.rendered == len(chunk.groups):
        return before
    heading = theme.heading(region, continued=chunk.continued)
    texts = [heading] if before is None else list(before.texts)
    for group in chunk.groups[chunk.rendered :]:
        for entry in group.entries:
            if len(texts) > 1:
                texts.append(BLANK_LINE)
            texts.extend([theme.escaped(text) for text in said_in_block(entry)])
    chunk.rendered = len(chunk.groups)
    tokens = chunk.tokens - chunk.part_tokens + estimate_text(heading)
    chunk.block = Block(
        region.name, tuple(texts), tokens, region.volatility, frozen=chunk.frozen, reach=reach_of(region)
    )
    return chunk.block


def said_in_block(entry: Entry) -> Sequence[Text]:
    """Return what *entry* says in a system block: its text, and the stand-in of each stored part below it."""
    if not entry.message.blobs:
        return entry.message.texts
    lines = [piece for blob in entry.message.blobs for piece in (NEW_LINE, blob.stand_in)]
    return (*entry.message.texts, *lines) if any(entry.message.texts) else lines[1:]


def reach_of(region: Region) -> Reach:
    """Return where else the text of *region* may stand: what a caller gives is a run's own."""
    if isinstance(region.seed, CallerSeed):
        return "run"
    return "any" if getattr(region.seed, "refresh", "once") == "once" else "stage"


def _instructed(block: Block, instructions: Text) -> Block:
    """Return *block* with *instructions* behind what it says."""
    between = (BLANK_LINE,) if len(block.texts) > 1 else ()
    tokens = block.tokens + estimate_text(instructions)
    return Block(block.owner, (*block.texts, *between, instructions), tokens, block.volatility, reach="stage")


def one_block(region: Region, texts: Sequence[Text], tokens: int, theme: Theme) -> Rendered:
    """Render *texts*, whose forged headings are escaped here, as the single block of *region*."""
    heading = theme.heading(region)
    whole = (heading, *[theme.escaped(text) for text in texts])
    block = Block(region.name, whole, tokens + estimate_text(heading), region.volatility, reach=reach_of(region))
    return Rendered(blocks=(block,))


def as_segments(state: RegionState) -> Rendered:
    """Render *state* as segments of a conversation, one a chunk, as its stage sees it."""
    if state.view is not None:
        seen: tuple[Segment, ...] = state.view.segments(state)
        return Rendered(segments=seen)
    return Rendered(segments=tuple([_segment(state.region.name, chunk) for chunk in state.chunks]))


def _segment(owner: str, chunk: Chunk) -> Segment:
    if chunk.segment is None:
        messages = tuple([entry.message for group in chunk.groups for entry in group.entries])
        chunk.segment = Segment(owner, messages, chunk.tokens, closed=chunk.frozen)
    return chunk.segment
