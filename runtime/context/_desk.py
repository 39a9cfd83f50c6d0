"""What every operation of the model on its regions works with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import msgspec

from shoal.blueprints import ALWAYS_REGIONS
from shoal.providers import Message, Text
from shoal.runtime.context._calls import ScriptCall
from shoal.runtime.context._entry import Draft, estimate_text
from shoal.runtime.context._plan import Order, Planned
from shoal.runtime.context._plan_custom import NOTHING_SAID, Said
from shoal.runtime.context._store import Item, RegionState
from shoal.runtime.context._window import Window
from shoal.runtime.context.regions import Asked


@final
class Answer(msgspec.Struct, frozen=True):
    """What an operation comes to.

    Args:
        text: What the model is told.
        changes: Changes to journal and apply, in order, each with the message it brings (or `None`).
        orders: Summaries to order.
        is_error: The operation failed and changed nothing.
        wait: The operation has to wait for a summary of this region, then be asked for again; `None` for none.
        call: A script has to be asked, and then the operation again with what it said; `None` for none.
    """

    text: str
    changes: tuple[Planned, ...] = ()
    orders: tuple[Order, ...] = ()
    is_error: bool = False
    wait: str | None = None
    call: ScriptCall | None = None


@final
class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where the arguments of an operation stand in the journal: the reply's seq and the number of the call in it."""

    seq: int
    index: int


class OperationRefused(Exception):
    """The operation cannot be done; the message is for the model."""


@final
class Desk(msgspec.Struct, frozen=True):
    """The window with what is known of the call.

    Args:
        window: The window.
        origin: Where the arguments stand in the journal.
        in_flight: Regions whose summary is being made.
        may_wait: A write may wait for such a summary.
        said: What the script of the region said.
    """

    window: Window
    origin: Origin
    in_flight: frozenset[str]
    may_wait: bool
    said: Said = NOTHING_SAID

    def visible(self, name: str) -> RegionState:
        """Return the region called *name*, which the stage has to see."""
        if not self.window.layout.sees(name):
            seen = ", ".join(f"`{region}`" for region in self.window.layout.regions)
            raise OperationRefused(f"there is no region {name!r} in this stage; it has {seen}")
        return self.window.states[name]

    def writable(self, name: str) -> RegionState:
        """Return the region called *name*, which the model has to be allowed to write."""
        state = self.visible(name)
        if name in ALWAYS_REGIONS:
            raise OperationRefused(f"`{name}` is written by the runtime; write to a region of your own")
        if state.region.kind == "checklist":
            raise OperationRefused(f"`{name}` is a checklist and takes items; open one with `todo_add`")
        return state

    def checklist(self, name: str) -> RegionState:
        """Return the checklist called *name*."""
        state = self.visible(name)
        if state.region.kind != "checklist":
            raise OperationRefused(
                f"`{name}` is a {state.region.kind} region, not a checklist; write to it with `context_append`"
            )
        return state

    def item(self, name: str, item_id: int) -> Item:
        """Return an item of the checklist called *name*."""
        state = self.checklist(name)
        item = state.items.get(item_id)
        if item is None:
            still_open = [str(item.item_id) for item in state.items.values() if item.state == "open"]
            raise OperationRefused(f"`{name}` has no item {item_id}; open items: {', '.join(still_open) or 'none'}")
        return item

    def draft(self, content: str, key: str | None) -> Draft:
        """Return *content*, which stands in the arguments at `origin`, as a draft."""
        text = Text.of(content)
        message = Message("user", (text,))
        return Draft("text", message, estimate_text(text), self.origin.seq, self.origin.index, key, writer="model")

    def asked(self, state: RegionState) -> Asked:
        """Return how a write of the model into *state* stands."""
        return Asked(state.limits.estimated(self.window.ratio), self.window.ratio)

    def shown(self, tokens: int) -> int:
        """Return *tokens*, an estimate, as the model reads it."""
        return round(tokens * self.window.ratio)

    def size(self, state: RegionState, delta: int = 0) -> str:
        """Return the size of a region after *delta* tokens more, for the model."""
        return f"`{state.region.name}` holds {self.shown(state.charged + delta)} of {state.limits.budget} tokens."


def text_of(args: Mapping[str, Any], name: str) -> str:
    """Return the text argument *name*, which has to say something."""
    value = str(args[name])
    if not value.strip():
        raise OperationRefused(f"`{name}` is empty; say something in it")
    return value


def key_of(args: Mapping[str, Any]) -> str | None:
    """Return the argument `key`; `None` where it is left out."""
    return None if args.get("key") is None else text_of(args, "key")
