"""From a window to what is sent: blocks in order, each with its owner.

A pure function of the window. Every block and segment comes from the rendering that its region keeps, so that an
assembly after one new entry touches that entry and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, final

import msgspec

from shoal.providers import NO_TOOLS, Block, Segment, Text, ToolSet
from shoal.runtime.context._render import BLANK_LINE
from shoal.runtime.context._window import Window
from shoal.runtime.context.regions import KINDS

TOOLS = "tools"
"""Owner of the tool schemas in an attribution."""


Section: TypeAlias = Literal["tools", "system", "messages", "tail"]


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
        messages: Segments of messages, in order; the conversation is last.
        tail: Text behind the conversation; `None` for nothing.
        tokens: Estimate of all of it, tools included.
        chars: Characters of text and tool arguments, tools excluded.
        parts: Owners with their tokens, in prompt order.
    """

    tools: ToolSet
    system: tuple[Block, ...]
    messages: tuple[Segment, ...]
    tail: Text | None
    tokens: int
    chars: int
    parts: tuple[Part, ...]

    def explain(self) -> Sequence[Mapping[str, object]]:
        """Return one row a part, in order: block, owner, tokens, offset in tokens, cacheable and why."""
        rows: list[Mapping[str, object]] = []
        offset = 0
        moved = ""
        seen: dict[str, int] = {}
        for part in self.parts:
            index = seen.setdefault(part.section, 0)
            seen[part.section] += 1
            if not part.cacheable and not moved:
                moved = f"`{part.owner}` ends the cacheable prefix"
            rows.append(
                {
                    "block": f"{part.section}[{index}]",
                    "owner": part.owner,
                    "tokens": part.tokens,
                    "offset": offset,
                    "cacheable": not moved,
                    "why": moved or "every byte in front of it stands still",
                }
            )
            offset += part.tokens
        return rows


def assemble(window: Window, tools: ToolSet = NO_TOOLS) -> Prompt:
    """Return the prompt of *window*'s stage with *tools* on offer. Same window, same bytes."""
    theme = window.layout.theme
    parts: list[Part] = [Part(TOOLS, tools.tokens, "tools")] if tools.specs else []
    tokens = tools.tokens
    chars = 0
    system: list[Block] = []
    for name in window.layout.system:
        state = window.states[name]
        if state.empty and state.instructions is None:
            continue
        for block in KINDS[state.region.kind].render(state, theme):
            assert isinstance(block, Block)  # kinds that render messages stand in `layout.messages`
            system.append(block)
            parts.append(Part(name, block.tokens, cacheable=block.cacheable))
            tokens += block.tokens
        chars += state.chars
    messages: list[Segment] = []
    for name in window.layout.messages:
        state = window.states[name]
        if state.empty:
            continue
        for segment in KINDS["sliding_window"].render(state, theme):
            assert isinstance(segment, Segment)  # see above
            messages.append(segment)
        parts.append(Part(name, state.tokens, "messages"))
        tokens += state.tokens
        chars += state.chars
    tail, tail_parts = _tail(window)
    return Prompt(
        tools,
        tuple(system),
        tuple(messages),
        tail,
        tokens + sum(part.tokens for part in tail_parts),
        chars,
        (*parts, *tail_parts),
    )


def _tail(window: Window) -> tuple[Text | None, tuple[Part, ...]]:
    pieces: list[bytes] = []
    parts: list[Part] = []
    for name in window.layout.tail:
        state = window.states[name]
        if state.empty:
            continue
        for block in KINDS[state.region.kind].render(state, window.layout.theme):
            assert isinstance(block, Block)  # only system kinds may stand in the tail
            pieces.append(b"".join(text.body for text in block.texts))
            parts.append(Part(name, block.tokens, "tail", cacheable=False))
    return (Text(BLANK_LINE.body.join(pieces)) if pieces else None), tuple(parts)
