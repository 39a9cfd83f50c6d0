"""`checklist`: a task list whose items carry state; written through tools of its own, never evicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.providers import Text
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Rendered, Theme, one_block
from shoal.runtime.context._store import Item, RegionState
from shoal.runtime.context.regions._kind import NOTHING, Admission, Asked, Shrunk, refuse


@final
class Checklist:
    """A task list whose items carry state."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft*, an item or a note, where it fits."""
        if asked.fits(state, draft):
            return Admission()
        held, tokens, budget = asked.shown(state.charged), asked.shown(draft.tokens), state.limits.budget
        closed = ", ".join(str(item.item_id) for item in state.items.values() if item.state != "open")
        return refuse(
            state,
            f"is full: {held} of {budget} tokens, and this needs {tokens}",
            f"Remove closed items with `context_delete` first: {closed or 'none is closed yet'}.",
            max(1, asked.shown(asked.after(state, draft)) - budget),
        )

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Only closed items may be released; here ids are items."""
        still_open = [str(item_id) for item_id in entry_ids if state.items[item_id].state == "open"]
        if not still_open:
            return None
        listed = ", ".join(still_open)
        return f"items {listed} of `{state.region.name}` are open: close them with `todo_done` or `todo_drop` first"

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up nothing."""
        return NOTHING

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Render a line of counts, then the open items, then the closed ones."""
        items = list(state.items.values())
        still_open = [item for item in items if item.state == "open"]
        closed = [item for item in items if item.state != "open"]
        lines = [f"{len(still_open)} open, {len(closed)} closed"]
        for item in (*still_open, *closed):
            lines.append(item_line(item))
            lines.extend(f"  {_indented(note)}" for note in item.notes)
        return one_block(state.region, [Text.of("\n".join(lines))], state.tokens, theme)


_MARKS = {"open": "[ ]", "done": "[x]", "dropped": "[-]"}


def item_line(item: Item) -> str:
    """Return *item* as the line that the model reads."""
    reason = f" ({_indented(item.reason)})" if item.reason is not None else ""
    return f"{_MARKS[item.state]} {item.item_id} {_indented(item.text)}{reason}"


def _indented(text: Text) -> str:
    """Return *text* with its further lines indented, so that no text can pass for an item."""
    return "\n  ".join(str(text).splitlines())
