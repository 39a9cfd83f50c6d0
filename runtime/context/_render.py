"""How a region's content becomes blocks and segments: headings, descriptions, escapes.

Rendering is cached by chunk: a chunk is rendered again only after it changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import final

from shoal.blueprints import Region
from shoal.providers import Block, Message, Segment, Text
from shoal.runtime.context._entry import Entry, estimate_text
from shoal.runtime.context._store import HEAD, Chunk, RegionState

BLANK_LINE = Text.of("\n\n")
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
        self._forged = re.compile(rf"^## (?:{known})(?: \((?:continued|now)\))?[ \t]*\r?$", re.MULTILINE)
        self._headings: dict[tuple[str, bool, str | None], Text] = {}

    def escaped(self, text: Text) -> Text:
        r"""Return *text* with a backslash in front of each line that reads like the heading of a region."""
        if _LINE_MARK not in text.body:
            return text
        plain = str(text)
        safe = self._forged.sub(lambda found: "\\" + found.group(), plain)
        return text if safe == plain else Text.of(safe)

    def heading(self, region: Region, *, continued: bool = False) -> Text:
        """Return the heading of *region*, its description under it where the model is to see that."""
        description = region.description if region.describe_in_prompt and not continued else None
        key = (region.name, continued, description)
        made = self._headings.get(key)
        if made is None:
            line = f"## {region.name}{' (continued)' if continued else ''}\n"
            made = Text.of(f"{line}{description}\n\n" if description else line)
            self._headings[key] = made
        return made


def system_blocks(state: RegionState, theme: Theme) -> tuple[Block, ...]:
    """Render *state* as system blocks, one a chunk; instructions stand at the end of the last."""
    if state.cached is None:
        state.cached = tuple(_blocks(state, theme))
    made: tuple[Block, ...] = state.cached
    return made


def _blocks(state: RegionState, theme: Theme) -> Iterable[Block]:
    chunks = state.chunks
    if state.instructions is None:
        for position, chunk in enumerate(chunks):
            yield _kept(state.region, chunk, theme, first=position == 0)
        return
    for position, chunk in enumerate(chunks[:-1]):
        yield _kept(state.region, chunk, theme, first=position == 0)
    # Not kept: the chunk outlives the stage, and the next append moves the instructions to another one.
    last = chunks[-1] if chunks else Chunk(0)
    yield _block(state.region, last, theme, state.instructions, first=len(chunks) < 2)


def _kept(region: Region, chunk: Chunk, theme: Theme, *, first: bool) -> Block:
    if chunk.made is None:
        chunk.made = _block(region, chunk, theme, None, first=first)
    assert isinstance(chunk.made, Block)  # a region renders as blocks or as segments, never as both
    return chunk.made


def _block(region: Region, chunk: Chunk, theme: Theme, instructions: Text | None, *, first: bool) -> Block:
    plain = chunk.number == HEAD or (chunk.number == 0 and first)
    heading = theme.heading(region, continued=not plain)
    texts: list[Text] = [heading]
    for group in chunk.groups:
        for entry in group.entries:
            if len(texts) > 1:
                texts.append(BLANK_LINE)
            texts.extend(theme.escaped(text) for text in entry.message.texts)
    tokens = chunk.tokens + estimate_text(heading)
    if instructions is not None:
        if len(texts) > 1:
            texts.append(BLANK_LINE)
        texts.append(instructions)
        tokens += estimate_text(instructions)
    return Block(region.name, tuple(texts), tokens, region.volatility, frozen=chunk.frozen and instructions is None)


def one_block(region: Region, texts: Sequence[Text], tokens: int, theme: Theme) -> tuple[Block, ...]:
    """Render *texts* as the single block of *region*; nothing where there is no text."""
    if not texts:
        return ()
    heading = theme.heading(region)
    return (Block(region.name, (heading, *texts), tokens + estimate_text(heading), region.volatility),)


def message_segments(state: RegionState) -> tuple[Segment, ...]:
    """Render *state* as segments of a conversation, one a chunk."""
    if state.cached is None:
        state.cached = tuple(_segment(state.region.name, chunk) for chunk in state.chunks)
    made: tuple[Segment, ...] = state.cached
    return made


def _segment(owner: str, chunk: Chunk) -> Segment:
    if chunk.made is None:
        messages = tuple(as_message(entry) for group in chunk.groups for entry in group.entries)
        chunk.made = Segment(owner, messages, chunk.tokens, closed=chunk.frozen)
    assert isinstance(chunk.made, Segment)  # see `_blocks`
    return chunk.made


def as_message(entry: Entry) -> Message:
    """Return *entry* as the message that a conversation shows."""
    return entry.message
