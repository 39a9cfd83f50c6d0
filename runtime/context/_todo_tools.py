"""The tools `todo_*`: the items of a checklist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.providers import Text
from shoal.runtime.context._changes import ItemChanged
from shoal.runtime.context._desk import Answer, Desk, OperationRefused, text_of
from shoal.runtime.context._plan import item_tokens
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions import KINDS


def todo_add(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Open an item."""
    state = desk.checklist(args["region"])
    text, cost = _said(desk, state, args, "item")
    change = ItemChanged(state.region.name, state.next_item, "open", text, cost)
    return Answer(f"Opened item {state.next_item}. {desk.size(state, cost)}", ((change, None),))


def todo_done(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Close an item."""
    state = desk.checklist(args["region"])
    item = desk.item(args["region"], args["id"])
    left = sum(other.state == "open" for other in state.items.values())
    if item.state != "open":
        return Answer(f"Item {item.item_id} is closed already. {left} open.")
    change = ItemChanged(state.region.name, item.item_id, "done", None, 0)
    return Answer(f"Closed item {item.item_id}. {left - 1} open. {desk.size(state)}", ((change, None),))


def todo_note(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Add a note to an item; it stays as it is."""
    state = desk.checklist(args["region"])
    item = desk.item(args["region"], args["id"])
    text, cost = _said(desk, state, args, "note")
    change = ItemChanged(state.region.name, item.item_id, "note", text, cost)
    return Answer(f"Noted on item {item.item_id}. {desk.size(state, cost)}", ((change, None),))


def todo_drop(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Close an item that will not be done, and keep why."""
    state = desk.checklist(args["region"])
    item = desk.item(args["region"], args["id"])
    if item.state != "open":
        raise OperationRefused(f"item {item.item_id} of `{state.region.name}` is closed already; nothing is to be done")
    text, cost = _said(desk, state, args, "reason")
    change = ItemChanged(state.region.name, item.item_id, "dropped", text, cost)
    return Answer(f"Dropped item {item.item_id}. {desk.size(state, cost)}", ((change, None),))


def _said(desk: Desk, state: RegionState, args: Mapping[str, Any], name: str) -> tuple[Text, int]:
    """Return the text argument *name* and what it costs on the list, which has to have room for it."""
    draft = desk.draft(text_of(args, name), None)
    text = draft.message.texts[0]
    cost = item_tokens(text)
    admission = KINDS["checklist"].write(state, msgspec.structs.replace(draft, tokens=cost), desk.asked(state))
    if admission.verdict == "refuse":
        raise OperationRefused(f"{admission.why}. {admission.remedy}")
    return text, cost
