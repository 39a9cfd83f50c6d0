"""What the model does to its regions: the tools `context_*` and `todo_*`, as plans over a window.

Each returns what it did and the region's new size; what goes wrong is an error result that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shoal.runtime.context._desk import Answer, Desk, OperationRefused, Origin
from shoal.runtime.context._plan_custom import NOTHING_SAID, Said
from shoal.runtime.context._region_tools import (
    context_append,
    context_attach,
    context_delete,
    context_list,
    context_read,
    context_write,
)
from shoal.runtime.context._todo_tools import todo_add, todo_done, todo_drop, todo_note
from shoal.runtime.context._window import Window


def operate(
    window: Window,
    tool: str,
    args: Mapping[str, Any],
    origin: Origin,
    *,
    in_flight: frozenset[str] = frozenset(),
    may_wait: bool = False,
    said: Said = NOTHING_SAID,
) -> Answer:
    """Return what calling *tool* with *args* comes to; nothing changes.

    Args:
        window: The window.
        tool: One of `OPERATIONS`.
        args: Its arguments, already checked against its schema.
        origin: Where the arguments stand in the journal.
        in_flight: Regions whose summary is being made.
        may_wait: A write may wait for such a summary.
        said: What the script of the region said, where it was asked before.
    """
    try:
        return OPERATIONS[tool](Desk(window, origin, in_flight, may_wait, said), args)
    except OperationRefused as refusal:
        return Answer(f"[error] {refusal}", is_error=True)


OPERATIONS: Mapping[str, Callable[[Desk, Mapping[str, Any]], Answer]] = {
    "context_write": context_write,
    "context_append": context_append,
    "context_attach": context_attach,
    "context_read": context_read,
    "context_list": context_list,
    "context_delete": context_delete,
    "todo_add": todo_add,
    "todo_done": todo_done,
    "todo_note": todo_note,
    "todo_drop": todo_drop,
}
"""The operations by tool name; each checks first and returns a plan."""
