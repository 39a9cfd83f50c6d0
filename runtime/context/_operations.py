"""What the model does to its regions: the tools `context_*` and `todo_*`, as plans over a window.

Each returns what it did and the region's new size; what goes wrong is an error result that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import msgspec

from shoal.blueprints import ALWAYS_REGIONS
from shoal.providers import Block, Message, Text
from shoal.runtime.context._changes import Change, EntriesReleased, ItemChanged
from shoal.runtime.context._entry import Draft, Entry, Group, estimate_text
from shoal.runtime.context._store import Item, RegionState
from shoal.runtime.context._window import Order, Window, item_tokens
from shoal.runtime.context.regions import KINDS
from shoal.runtime.context.regions.checklist import item_line


@final
class Answer(msgspec.Struct, frozen=True):
    """What an operation comes to.

    Args:
        text: What the model is told.
        changes: Changes to journal and apply, in order, each with the message it brings (or `None`).
        orders: Summaries to order.
        is_error: The operation failed and changed nothing.
        wait: The operation has to wait for a summary of this region, then be asked for again; `None` for none.
    """

    text: str
    changes: tuple[tuple[Change, Message | None], ...] = ()
    orders: tuple[Order, ...] = ()
    is_error: bool = False
    wait: str | None = None


@final
class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where the arguments of an operation stand in the journal: the reply's seq and the number of the call in it."""

    seq: int
    index: int


class _Refused(Exception):
    """The operation cannot be done; the message is for the model."""


def operate(
    window: Window,
    tool: str,
    args: Mapping[str, Any],
    origin: Origin,
    *,
    in_flight: frozenset[str] = frozenset(),
    may_wait: bool = False,
) -> Answer:
    """Return what calling *tool* with *args* comes to; nothing changes.

    Args:
        window: The window.
        tool: One of `OPERATIONS`.
        args: Its arguments, already checked against its schema.
        origin: Where the arguments stand in the journal.
        in_flight: Regions whose summary is being made.
        may_wait: A write may wait for such a summary.
    """
    try:
        return OPERATIONS[tool](_Desk(window, origin, in_flight, may_wait), args)
    except _Refused as refusal:
        return Answer(f"[error] {refusal}", is_error=True)


@final
class _Desk(msgspec.Struct, frozen=True):
    """What every operation works with."""

    window: Window
    origin: Origin
    in_flight: frozenset[str]
    may_wait: bool

    def visible(self, name: str) -> RegionState:
        """Return the region called *name*, which the stage has to see."""
        if not self.window.layout.sees(name):
            seen = ", ".join(f"`{region}`" for region in self.window.layout.regions)
            raise _Refused(f"there is no region {name!r} in this stage; it has {seen}")
        return self.window.states[name]

    def writable(self, name: str) -> RegionState:
        """Return the region called *name*, which the model has to be allowed to write."""
        state = self.visible(name)
        if name in ALWAYS_REGIONS:
            raise _Refused(f"`{name}` is written by the runtime; write to a region of your own")
        if state.region.kind == "checklist":
            raise _Refused(f"`{name}` is a checklist and takes items; open one with `todo_add`")
        return state

    def checklist(self, name: str) -> RegionState:
        """Return the checklist called *name*."""
        state = self.visible(name)
        if state.region.kind != "checklist":
            raise _Refused(
                f"`{name}` is a {state.region.kind} region, not a checklist; write to it with `context_append`"
            )
        return state

    def item(self, name: str, item_id: int) -> Item:
        """Return an item of the checklist called *name*."""
        state = self.checklist(name)
        item = state.items.get(item_id)
        if item is None:
            still_open = [i.item_id for i in state.items.values() if i.state == "open"]
            listed = ", ".join(str(open_id) for open_id in still_open) or "none"
            raise _Refused(f"`{name}` has no item {item_id}; open items: {listed}")
        return item

    def draft(self, content: str, key: str | None) -> Draft:
        """Return *content*, which stands in the arguments at `origin`, as a draft."""
        text = Text.of(content)
        message = Message("user", (text,))
        return Draft("text", message, estimate_text(text), self.origin.seq, self.origin.index, key, writer="model")

    def size(self, state: RegionState, delta: int = 0) -> str:
        """Return the size of a region after *delta* tokens more, for the model."""
        ratio = self.window.ratio
        return f"`{state.region.name}` holds {round((state.charged + delta) * ratio)} of {state.limits.budget} tokens"


def _text(args: Mapping[str, Any], key: str) -> str:
    """Return a text argument that has to say something."""
    value = str(args[key])
    if not value.strip():
        raise _Refused(f"`{key}` is empty; say something in it")
    return value


def _append(desk: _Desk, args: Mapping[str, Any]) -> Answer:
    state = desk.writable(args["region"])
    draft = desk.draft(_text(args, "content"), args.get("key"))
    if state.region.kind == "hashmap" and draft.key is not None:
        held = [entry for entry in state.all_entries() if entry.key == draft.key]
        if held:
            return _joined(desk, state, held[0], draft)
    return _written(desk, state, draft)


def _written(desk: _Desk, state: RegionState, draft: Draft) -> Answer:
    name = state.region.name
    plan = desk.window.plan_write(name, draft, in_flight=name in desk.in_flight, may_wait=desk.may_wait)
    if plan.outcome == "wait":
        return Answer("", orders=plan.orders, wait=name)
    if plan.outcome == "refused":
        return Answer(f"[error] {plan.why}", orders=plan.orders, is_error=True)
    gone = sum(getattr(change, "tokens", 0) for change, message in plan.changes if message is None)
    replaced = _replaced(state, plan.changes)
    dropped = f"; {gone} tokens of older entries were dropped for it" if gone else ""
    said = f"Added entry {state.next_id}{dropped}. {desk.size(state, plan.tokens - gone - replaced)}."
    return Answer(said, plan.changes, plan.orders)


def _replaced(state: RegionState, changes: Sequence[tuple[Change, Message | None]]) -> int:
    ids = {i for change, _ in changes for i in getattr(change, "replaces", ())}
    return sum(entry.tokens for entry in state.all_entries() if entry.entry_id in ids)


def _joined(desk: _Desk, state: RegionState, held: Entry, draft: Draft) -> Answer:
    """Append to a key of a hashmap: its text and the new one, as one entry."""
    text = Text.of(f"{held.text}\n{draft.message.text}")
    joined = msgspec.structs.replace(
        draft, message=Message("user", (text,)), tokens=estimate_text(text), source=0, index=-1
    )
    return _swapped(desk, state, joined, [held], f"Added to key {held.key!r}")


def _swapped(desk: _Desk, state: RegionState, draft: Draft, old: Sequence[Entry], said: str) -> Answer:
    plan = desk.window.plan_replace(state.region.name, draft, [entry.entry_id for entry in old])
    if plan.outcome == "refused":
        return Answer(f"[error] {plan.why}", is_error=True)
    freed = sum(entry.tokens for entry in old)
    return Answer(f"{said}. {desk.size(state, plan.tokens - freed)}.", plan.changes)


def _write(desk: _Desk, args: Mapping[str, Any]) -> Answer:
    state = desk.writable(args["region"])
    draft = desk.draft(_text(args, "content"), args.get("key"))
    if state.region.kind == "hashmap":
        return _written(desk, state, draft)
    old = [entry for entry in state.all_entries() if draft.key is None or entry.key == draft.key]
    what = "the whole region" if draft.key is None else f"key {draft.key!r}"
    return _swapped(desk, state, draft, old, f"Replaced {what} ({len(old)} entries)")


def _read(desk: _Desk, args: Mapping[str, Any]) -> Answer:
    state = desk.visible(args["region"])
    key = args.get("key")
    if key is not None:
        found = [entry for entry in state.all_entries() if entry.key == key]
        if not found:
            keys = ", ".join(sorted({repr(e.key) for e in state.all_entries() if e.key is not None})) or "none"
            raise _Refused(f"`{state.region.name}` has no key {key!r}; keys: {keys}")
        return Answer("\n\n".join(entry.text for entry in found))
    if state.region.kind == "sliding_window":
        return Answer("\n\n".join(f"{e.message.role}: {e.text}" for e in state.all_entries()) or "(empty)")
    blocks = KINDS[state.region.kind].render(state, desk.window.layout.theme)
    return Answer("\n\n".join(block.text for block in blocks if isinstance(block, Block)) or "(empty)")


def _list(desk: _Desk, args: Mapping[str, Any]) -> Answer:
    name = args.get("region")
    if name is None:
        return Answer("\n".join(f"{n}: {used} of {of} tokens" for n, (used, of) in desk.window.fill().items()))
    state = desk.visible(name)
    if state.region.kind == "checklist":
        return Answer("\n".join(item_line(item) for item in state.items.values()) or "(empty)")
    rows = [
        f"[{index}] id {entry.entry_id}{'' if entry.key is None else f' key {entry.key!r}'} "
        f"{entry.tokens} tokens: {_first_words(entry)}"
        for index, entry in enumerate(state.all_entries())
    ]
    return Answer("\n".join(rows) or "(empty)")


def _first_words(entry: Entry) -> str:
    line = " ".join(entry.text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


def _delete(desk: _Desk, args: Mapping[str, Any]) -> Answer:
    named = [key for key in ("key", "index", "id", "oldest") if args.get(key) is not None]
    if len(named) != 1:
        raise _Refused("name exactly one of `key`, `index`, `id`, `oldest`")
    state = desk.visible(args["region"])
    if state.region.name in ALWAYS_REGIONS and state.region.name != "conversation":
        raise _Refused(f"`{state.region.name}` is kept by the runtime; release entries of a region of your own")
    if state.region.kind == "checklist":
        return _delete_item(desk, state, named[0], args)
    ids, tokens = _chosen(state, named[0], args[named[0]])
    refusal = KINDS[state.region.kind].release(state, ids)
    if refusal is not None:
        raise _Refused(refusal)
    change = EntriesReleased(state.region.name, ids, tokens)
    said = f"Released {len(ids)} entries, {tokens} tokens. {desk.size(state, -tokens)}."
    return Answer(said, ((change, None),))


def _delete_item(desk: _Desk, state: RegionState, named: str, args: Mapping[str, Any]) -> Answer:
    if named != "id":
        raise _Refused(f"`{state.region.name}` is a checklist; name the `id` of a closed item")
    item = desk.item(state.region.name, args["id"])
    refusal = KINDS["checklist"].release(state, (item.item_id,))
    if refusal is not None:
        raise _Refused(refusal)
    change = EntriesReleased(state.region.name, (item.item_id,), item.tokens)
    return Answer(f"Removed item {item.item_id}. {desk.size(state, -item.tokens)}.", ((change, None),))


def _chosen(state: RegionState, named: str, value: Any) -> tuple[tuple[int, ...], int]:
    """Return ids and tokens of the whole groups that hold the entries that were named."""
    groups = list(state.groups())
    name = state.region.name
    hit: list[Group]
    if named == "oldest":
        if value < 1:
            raise _Refused(f"`oldest` is {value}; give 1 or more")
        hit = groups[:value]
    elif named == "index":
        entries = [(group, entry) for group in groups for entry in group.entries]
        if not 0 <= value < len(entries):
            raise _Refused(f"`{name}` has no index {value}: it has {len(entries)} entries; see `context_list`")
        hit = [entries[value][0]]
    elif named == "id":
        hit = [group for group in groups if value in group.ids]
    else:
        hit = [group for group in groups if any(entry.key == value for entry in group.entries)]
    if not hit:
        what = {"key": f"key {value!r}", "id": f"entry with id {value}", "oldest": "entry"}[named]
        raise _Refused(f"`{name}` has no {what}; see `context_list`")
    return tuple(i for group in hit for i in group.ids), sum(group.tokens for group in hit)


def _todo_add(desk: _Desk, args: Mapping[str, Any]) -> Answer:
    state = desk.checklist(args["region"])
    text = Text.of(_text(args, "item"))
    cost = item_tokens(text)
    _room(desk, state, cost)
    item_id = state.next_item
    change = ItemChanged(state.region.name, item_id, "open", text, cost)
    return Answer(f"Opened item {item_id}. {desk.size(state, cost)}.", ((change, None),))


def _todo_done(desk: _Desk, args: Mapping[str, Any]) -> Answer:
    item = desk.item(args["region"], args["id"])
    change = ItemChanged(args["region"], item.item_id, "done", None, 0)
    left = sum(i.state == "open" for i in desk.checklist(args["region"]).items.values()) - (item.state == "open")
    return Answer(
        f"Closed item {item.item_id}. {left} open. {desk.size(desk.checklist(args['region']))}.", ((change, None),)
    )


def _todo_note(desk: _Desk, args: Mapping[str, Any]) -> Answer:
    return _annotated(desk, args, "note", "note", "Noted on item")


def _todo_drop(desk: _Desk, args: Mapping[str, Any]) -> Answer:
    return _annotated(desk, args, "reason", "dropped", "Dropped item")


def _annotated(desk: _Desk, args: Mapping[str, Any], key: str, state_name: Any, said: str) -> Answer:
    item = desk.item(args["region"], args["id"])
    state = desk.checklist(args["region"])
    text = Text.of(_text(args, key))
    cost = item_tokens(text)
    _room(desk, state, cost)
    change = ItemChanged(args["region"], item.item_id, state_name, text, cost)
    return Answer(f"{said} {item.item_id}. {desk.size(state, cost)}.", ((change, None),))


def _room(desk: _Desk, state: RegionState, cost: int) -> None:
    budget = state.limits.estimated(desk.window.ratio).budget
    if state.tokens + cost > budget:
        raise _Refused(
            f"`{state.region.name}` is full: {state.tokens} of {budget} tokens, and this needs {cost}. "
            "Remove closed items with `context_delete` first"
        )


OPERATIONS: Mapping[str, Callable[[_Desk, Mapping[str, Any]], Answer]] = {
    "context_write": _write,
    "context_append": _append,
    "context_read": _read,
    "context_list": _list,
    "context_delete": _delete,
    "todo_add": _todo_add,
    "todo_done": _todo_done,
    "todo_note": _todo_note,
    "todo_drop": _todo_drop,
}
"""The operations by tool name; each checks first and returns a plan."""
