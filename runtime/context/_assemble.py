"""From a window to what is sent: blocks in order, each with its owner.

A pure function of the window. What a region shows is kept until the region changes, so that an assembly after one new
entry touches that entry's region and joins what the others have ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import msgspec

from shoal.providers import NO_TOOLS, Blob, Block, Intake, Message, Request, Segment, Text, ToolSet, Volatility
from shoal.runtime.context._drawn import drawn
from shoal.runtime.context._entry import chars_of, estimate_text, size
from shoal.runtime.context._layout import Layout, place_of
from shoal.runtime.context._render import BLANK_LINE, Theme
from shoal.runtime.context._said import Rendering
from shoal.runtime.context._store import RegionState
from shoal.runtime.context._window import Window
from shoal.runtime.context.regions import KINDS

if TYPE_CHECKING:
    from shoal.providers import Breakpoint

TOOLS = "tools"
"""Owner of the tool schemas in an attribution."""

FRAMING_TOKENS = 3
"""Estimate of what frames one message."""

Section: TypeAlias = Literal["tools", "system", "parts", "messages", "tail"]


@final
class Part(msgspec.Struct, frozen=True, gc=False):
    """A stretch of the prompt that one owner has.

    Args:
        owner: The region or component.
        tokens: Estimate of what it costs, 0 or more.
        section: Where it stands.
        cacheable: False ends the prefix that a cache may hold.
    """

    owner: str
    tokens: int
    section: Section = "system"
    cacheable: bool = True


@final
class Prompt(msgspec.Struct, frozen=True, eq=False):
    """What a stage's next request shows the model.

    Args:
        tools: The tools.
        system: Blocks of the system section, in order.
        messages: Segments of messages, in order: the stored parts of system regions first, the conversation last.
        tail: Text behind the conversation; `None` for nothing.
        tokens: Estimate of all of it, tools included.
        chars: Characters of text and tool arguments, tools excluded.
        parts: Owners with their tokens, in prompt order; one a block of the system section.
    """

    tools: ToolSet
    system: tuple[Block, ...]
    messages: tuple[Segment, ...]
    tail: Text | None
    tokens: int
    chars: int
    parts: tuple[Part, ...]

    def digest_on(self, model: str) -> str:
        """Return what stands for the bytes of a request that shows it to *model*, hex."""
        return Request(model, self.system, self.messages, self.tail, self.tools).digest.hex()

    @property
    def framing_tokens(self) -> int:
        """Estimate of what frames the messages; it is in no part."""
        return FRAMING_TOKENS * sum([len(segment.messages) for segment in self.messages])

    def explain(self, breakpoints: Sequence[Breakpoint] = ()) -> Sequence[Mapping[str, object]]:
        """Return one row a part, in order: block, owner, tokens, offset, cacheable or not, why, and its breakpoint.

        A part is cacheable where a cache may hold it together with everything in front of it; why it may stay there,
        and what would cost it, follows from what the regions declare.

        Args:
            breakpoints: The cache markers of the request, as its provider plans them (`shoal.providers.Marking`).

        Returns:
            Rows with `offset` in tokens from the start of the prompt; `breakpoint` is the lifetime that a marker in the
            part asks for, `None` where there is none.
        """
        rows: list[Mapping[str, object]] = []
        blocks = iter(self.system)
        seen: dict[str, int] = {}
        offset = 0
        ended = moving = ""
        for part in self.parts:
            index = seen[part.section] = seen.get(part.section, -1) + 1
            block = next(blocks) if part.section == "system" else None
            why = _why(part, block)
            if ended:
                why = f"it stands behind `{ended}`, which no cache holds"
            elif not part.cacheable:
                ended = part.owner
            elif moving:
                why = f"{why}; a change of `{moving}` in front of it costs it"
            place = f"{part.section}[{index}]"
            rows.append(
                {
                    "block": place,
                    "owner": part.owner,
                    "tokens": part.tokens,
                    "offset": offset,
                    "cacheable": not ended,
                    "why": why,
                    "breakpoint": _marked(part, index, offset, breakpoints),
                }
            )
            offset += part.tokens
            if block is not None and not moving and block.volatility == "rewritten":
                moving = part.owner
        return rows


def _marked(part: Part, index: int, offset: int, breakpoints: Sequence[Breakpoint]) -> str | None:
    """Return the lifetime of the last marker in *part*; `None` where it has none.

    In the conversation a vendor counts blocks of its own, so a marker is found by how much stands in front of it.
    """
    for mark in reversed(breakpoints):
        if mark.section != part.section:
            continue
        if part.section == "tools" or (part.section == "system" and mark.index == index):
            return mark.lifetime
        if part.section == "messages" and offset < mark.tokens <= offset + part.tokens:
            return mark.lifetime
    return None


def _why(part: Part, block: Block | None) -> str:
    """Return what is to be expected of one part of a prompt."""
    if part.section == "tail":
        return "at the tail: the next request leaves it out and says it anew at its own end"
    if not part.cacheable:
        return "it is made anew for every request"
    if part.section == "parts":
        return "stored parts of the region: sent anew after each change of them"
    if block is None:
        return "sent by every request of the stage" if part.section == "tools" else "new messages come at its end"
    if block.frozen:
        return "a frozen chunk: it stays as it is until its region sheds it"
    return _EXPECTED[block.volatility]


_EXPECTED: Mapping[Volatility, str] = {
    "stable": "declared `stable`: written once",
    "grows": "an open chunk: new entries come at its end until it freezes",
    "rewritten": "declared `rewritten`: sent anew after each change",
}


@final
class Shown(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What a region brings to a prompt, kept until it changes: blocks, messages, or both, each with what they have."""

    blocks: tuple[Block, ...] = ()
    block_parts: tuple[Part, ...] = ()
    block_tokens: int = 0
    block_chars: int = 0
    segments: tuple[Segment, ...] = ()
    message_parts: tuple[Part, ...] = ()
    message_tokens: int = 0
    message_chars: int = 0
    lifted: tuple[Blob, ...] = ()
    lifted_tokens: int = 0

    @property
    def digest(self) -> bytes:
        """Stands for all of it; empty for nothing."""
        return b"".join([*[block.digest for block in self.blocks], *[one.digest for one in self.segments]])

    @property
    def tokens(self) -> int:
        """Estimate of what all of it costs."""
        return self.block_tokens + self.message_tokens


_NOTHING = Shown()


@final
class Around(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What stands around the messages of a prompt, kept until a region of it changes.

    Args:
        layout: The layout that it was made for.
        standing: What components show.
        made: What the regions of the system section and of the tail bring, in order.
        blocks: Blocks of the system section, in order.
        lifted: The stored parts of these regions, as one segment or none.
        tail: Text behind the conversation; `None` for nothing.
        before: Owners of what stands in front of the messages, tools excluded, in order.
        behind: Owners of what stands behind them.
        tokens: Estimate of all of it.
        chars: Characters of its text.
    """

    layout: Layout
    standing: tuple[tuple[tuple[int, int], Any], ...]
    made: list[Shown]
    blocks: tuple[Block, ...]
    lifted: tuple[Segment, ...]
    tail: Text | None
    before: tuple[Part, ...]
    behind: tuple[Part, ...]
    tokens: int
    chars: int


def assemble(window: Window, tools: ToolSet = NO_TOOLS) -> Prompt:
    """Return the prompt of *window*'s stage with *tools* on offer. Same window, same bytes."""
    layout = window.layout
    around = around_of(window)
    messages = [shown(window.states[name], layout.theme, window.intake) for name in layout.messages]
    offered = (Part(TOOLS, tools.tokens, "tools"),) if tools.specs else ()
    return Prompt(
        tools,
        around.blocks,
        (*around.lifted, *chain.from_iterable([one.segments for one in messages])),
        around.tail,
        tools.tokens + around.tokens + sum([one.message_tokens for one in messages]),
        around.chars + sum([one.message_chars for one in messages]),
        (
            *offered,
            *around.before,
            *chain.from_iterable([one.message_parts for one in messages]),
            *around.behind,
        ),
    )


def around_of(window: Window) -> Around:
    """Return what stands around the messages of *window*'s prompt: the same object until something of it changes."""
    layout, states, theme, intake = window.layout, window.states, window.layout.theme, window.intake
    made = [states[name].cached or shown(states[name], theme, intake) for name in (*layout.system, *layout.tail)]
    held: Around | None = window.around
    # Each of what is made is equal to nothing but itself.
    if held is not None and held.layout is layout and held.standing is window.standing and held.made == made:
        return held
    system, tail = _ordered(window, made[: len(layout.system)]), made[len(layout.system) :]
    lifted, stored = lifted_of(window)
    held = window.around = Around(
        layout,
        window.standing,
        made,
        tuple(chain.from_iterable([one.blocks for one in system])),
        lifted,
        _joined([block for one in tail for block in one.blocks]),
        (*chain.from_iterable([one.block_parts for one in system]), *stored),
        tuple(chain.from_iterable([one.block_parts for one in tail])),
        sum([one.block_tokens + one.lifted_tokens for one in (*system, *tail)]),
        sum([one.block_chars for one in (*system, *tail)]),
    )
    return held


def front(window: Window) -> list[Shown]:
    """Return what the system section of *window* shows, in order: regions, and the components between them."""
    layout = window.layout
    return _ordered(window, [shown(window.states[name], layout.theme, window.intake) for name in layout.system])


def _ordered(window: Window, regions: list[Shown]) -> list[Shown]:
    """Return *regions*, which the system section shows in that order, with the components between them."""
    if not window.standing:
        return regions
    places = [place_of(window.layout.regions[name]) for name in window.layout.system]
    standing: list[tuple[tuple[int, int], Shown]] = [*window.standing, *zip(places, regions, strict=True)]
    return [one for _, one in sorted(standing, key=itemgetter(0))]


def lifted_of(window: Window) -> tuple[tuple[Segment, ...], tuple[Part, ...]]:
    """Return the stored parts of system regions as one user message, and what each region has of it.

    Returns:
        One segment, the same object while the parts are the same, or none; and one part a region.
    """
    layout = window.layout
    every = [(name, shown(window.states[name], layout.theme, window.intake)) for name in (*layout.system, *layout.tail)]
    lifting = [(name, one) for name, one in every if one.lifted]
    if not lifting:
        return (), ()
    blobs = tuple(chain.from_iterable([one.lifted for _, one in lifting]))
    held = window.lifted
    if held is None or held.messages[0].blobs != blobs:  # parts are equal only where they are the same
        owner = ", ".join([name for name, _ in lifting])
        tokens = sum([one.lifted_tokens for _, one in lifting])
        held = window.lifted = Segment(owner, (Message("user", blobs=blobs),), tokens, closed=True)
    return (held,), tuple([Part(name, one.lifted_tokens, "parts") for name, one in lifting])


def _joined(blocks: Sequence[Block]) -> Text | None:
    """Return what *blocks* say as one text, a blank line between two of them; `None` for nothing."""
    bodies = [b"".join([text.body for text in block.texts]) for block in blocks]
    return Text(BLANK_LINE.body.join(bodies)) if bodies else None


def shown(state: RegionState, theme: Theme, intake: Intake) -> Shown:
    """Return what *state* brings to a prompt for a model with that *intake*."""
    if state.cached is None:
        state.cached = _show(state, theme, intake)
    made: Shown = state.cached
    return made


def _show(state: RegionState, theme: Theme, intake: Intake) -> Shown:
    scripted = isinstance(state.rendering, Rendering)
    if state.empty and state.instructions is None and not scripted:
        return _NOTHING
    name = state.region.name
    made = drawn(state, state.rendering, theme) if scripted else KINDS[state.region.kind].render(state, theme)
    if state.region.placement == "tail":
        parts = tuple(Part(name, block.tokens, "tail", cacheable=False) for block in made.blocks)
    else:
        parts = tuple([Part(name, block.tokens, cacheable=block.cacheable) for block in made.blocks])
    if scripted or state.view is not None:
        messages = sum([segment.tokens for segment in made.segments])
        block_chars = sum([size(text)[0] for block in made.blocks for text in block.texts])
        message_chars = sum([chars_of(m) for segment in made.segments for m in segment.messages])
    else:
        messages = state.tokens
        chars = state.chars + (0 if state.instructions is None else size(state.instructions)[0])
        block_chars, message_chars = (0, chars) if made.segments else (chars, 0)
    said = (Part(name, messages, "messages"),) if made.segments else ()
    # In messages of the window's own they stand where they came.
    lifted = tuple(_pointed_at(state, intake)) if state.parts and (scripted or not made.segments) else ()
    lines = sum([estimate_text(blob.stand_in) for blob in lifted])
    return Shown(
        made.blocks,
        parts,
        sum([part.tokens for part in parts]),
        block_chars,
        made.segments,
        said,
        messages if said else 0,
        message_chars,
        lifted,
        state.part_tokens + lines if lifted else 0,
    )


def _pointed_at(state: RegionState, intake: Intake) -> Iterator[Blob]:
    """Yield the stored parts of *state* that a model with that *intake* is shown, each with a line that says where."""
    for entry in state.all_entries():
        key = "" if entry.key is None else f" under `{entry.key}`"
        for blob in entry.message.blobs:
            if intake.shows(blob):
                line = Text.of(f"In `{state.region.name}`{key}: {blob.stand_in}")
                yield msgspec.structs.replace(blob, stand_in=line)
