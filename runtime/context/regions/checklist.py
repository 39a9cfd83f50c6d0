"""`checklist`: a task list whose items carry state; written through tools of its own, never evicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.providers import Block, Text
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Theme, one_block
from shoal.runtime.context._store import Item, RegionState
from shoal.runtime.context.regions._kind import NOTHING, Admission, Asked, Shrunk, full, too_big


@final
class Checklist:
    """A task list whose items carry state."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*, whose lines become items, where it fits."""
        if draft.tokens > asked.limits.budget:
            return too_big(state, draft, asked.limits)
        if state.tokens + draft.tokens > asked.limits.budget:
            return full(state, draft, asked.limits)
        return Admission()

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Only closed items may be released; here ids are items."""
        still_open = [i for i in entry_ids if state.items[i].state == "open"]
        if not still_open:
            return None
        listed = ", ".join(str(item_id) for item_id in still_open)
        return f"items {listed} of `{state.region.name}` are open: close them with `todo_done` or `todo_drop` first"

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up nothing."""
        return NOTHING

    def render(self, state: RegionState, theme: Theme) -> tuple[Block, ...]:
        """Render a line of counts, then the open items, then the closed ones."""
        if state.cached is None:
            texts = [Text.of("\n".join(self._lines(state)))] if state.items else []
            state.cached = one_block(state.region, [theme.escaped(t) for t in texts], state.tokens, theme)
        made: tuple[Block, ...] = state.cached
        return made

    def _lines(self, state: RegionState) -> list[str]:
        items = list(state.items.values())
        still_open = [item for item in items if item.state == "open"]
        closed = [item for item in items if item.state != "open"]
        lines = [f"{len(still_open)} open, {len(closed)} closed"]
        for item in (*still_open, *closed):
            lines.append(item_line(item))
            lines.extend(f"  {_indented(note)}" for note in item.notes)
        return lines


_MARKS = {"open": "[ ]", "done": "[x]", "dropped": "[-]"}


def item_line(item: Item) -> str:
    """Return *item* as the line that the model reads."""
    reason = f" ({_indented(item.reason)})" if item.reason is not None else ""
    return f"{_MARKS[item.state]} {item.item_id} {_indented(item.text)}{reason}"


def _indented(text: Text) -> str:
    """Return *text* with its further lines indented, so that no text can pass for an item."""
    return "\n  ".join(str(text).splitlines())
