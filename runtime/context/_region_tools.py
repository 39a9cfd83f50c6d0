"""The tools `context_*`: what the model writes, reads, lists and releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.providers import Message, Text
from shoal.runtime.context._assemble import shown
from shoal.runtime.context._changes import WHOLE, EntriesEvicted, EntriesReleased, EntryWritten
from shoal.runtime.context._desk import Answer, Desk, OperationRefused, key_of, text_of
from shoal.runtime.context._entry import Draft, Entry, Group, estimate, ids_of, said_in
from shoal.runtime.context._layout import FINAL_OUTPUT, INSTRUCTIONS
from shoal.runtime.context._plan import Plan
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions import KINDS
from shoal.runtime.context.regions.checklist import item_line
from shoal.runtime.context.regions.hashmap import by_age

_FIRST_WORDS = 60


# --- writing


def context_write(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Put a text in place of all that a region holds, or of what one key holds."""
    state = desk.writable(args["region"])
    draft = desk.draft(text_of(args, "content"), key_of(args))
    old = [entry for entry in state.all_entries() if draft.key is None or entry.key == draft.key]
    what = "the whole region" if draft.key is None else f"key {draft.key!r}"
    # A custom region only shadows what a key held: its script still sees all of it when it has to free something.
    shadows = state.region.kind == "custom" and draft.key is not None
    done = "Shadowed" if shadows else "Replaced"
    said = f"{done} {what} ({len(old)} {_entries(old)})" if old else f"Wrote {what}"
    return _written(desk, state, draft, () if state.region.kind == "hashmap" or shadows else old, said)


def context_append(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Add a text to a region; in a hashmap, to what its key holds."""
    state = desk.writable(args["region"])
    draft = desk.draft(text_of(args, "content"), key_of(args))
    held = [entry for entry in state.all_entries() if entry.key == draft.key] if draft.key else []
    if state.region.kind != "hashmap" or not held:
        return _written(desk, state, draft, (), f"Added entry {state.next_id}")
    old = held[0]
    text = Text.of(f"{old.message.text}\n{draft.message.text}" if old.message.texts else draft.message.text)
    message = Message("user", (text,), blobs=old.message.blobs)
    tokens = estimate(message, desk.window.intake)
    joined = msgspec.structs.replace(draft, message=message, tokens=tokens, source=0, index=WHOLE, parts=old.parts)
    return _written(desk, state, joined, (), f"Added to key {draft.key!r}")


def context_attach(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Add a stored part to a region; in a hashmap, in place of what its key holds."""
    state = desk.writable(args["region"])
    part, key, shelf = text_of(args, "part"), key_of(args), desk.window.shelf
    seq = shelf.find(part)
    if seq is None:
        names = ", ".join(repr(stored.name) for stored in shelf.stored.values()) or "none"
        raise OperationRefused(f"there is no stored part {part!r}; stored parts: {names}")
    message = Message("user", blobs=shelf.blobs((seq,)))
    tokens = max(1, estimate(message, desk.window.intake))
    draft = Draft("text", message, tokens, key=key, writer="model", parts=(seq,))
    return _written(desk, state, draft, (), f"Attached {message.blobs[0].stand_in}")


def _written(desk: Desk, state: RegionState, draft: Draft, old: Sequence[Entry], said: str) -> Answer:
    name = state.region.name
    replaces = [entry.entry_id for entry in old]
    call = desk.window.write_call(name, draft, desk.said, replaces=replaces)
    if call is not None:
        return Answer("", call=call)
    plan = desk.window.plan_write(
        name,
        draft,
        replaces=replaces,
        in_flight=name in desk.in_flight,
        may_wait=desk.may_wait,
        said=desk.said,
    )
    if plan.outcome == "wait":
        return Answer("", orders=plan.orders, wait=name)
    if plan.outcome == "refused":
        return Answer(f"[error] {plan.refusal}", orders=plan.orders, is_error=True)
    dropped = sum(change.tokens for change, _ in plan.changes if isinstance(change, EntriesEvicted))
    also = f"; {desk.shown(dropped)} tokens of older entries were dropped for it" if dropped else ""
    delta = plan.tokens - dropped - _replaced(state, plan)
    return Answer(f"{said}{also}. {desk.size(state, delta)}", plan.changes, plan.orders)


def _replaced(state: RegionState, plan: Plan) -> int:
    """Return what the entries held whose place *plan* takes."""
    ids = {i for change, _ in plan.changes if isinstance(change, EntryWritten) for i in change.replaces}
    return sum(entry.tokens for entry in state.all_entries() if entry.entry_id in ids)


def _entries(entries: Sequence[object]) -> str:
    return "entry" if len(entries) == 1 else "entries"


# --- looking


def context_read(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Show what a region holds, or what one key holds."""
    state = desk.visible(args["region"])
    key = key_of(args)
    if key is not None:
        found = [entry for entry in state.all_entries() if entry.key == key]
        if not found:
            keys = ", ".join(sorted({repr(e.key) for e in state.all_entries() if e.key is not None})) or "none"
            raise OperationRefused(f"`{state.region.name}` has no key {key!r}; keys: {keys}")
        return Answer("\n\n".join(entry.text for entry in found))
    held = shown(state, desk.window.layout.theme, desk.window.intake)
    said = [f"{message.role}: {said_in(message)}" for segment in held.segments for message in segment.messages]
    return Answer("\n\n".join((*(block.text for block in held.blocks), *said)) or "(empty)")


def context_list(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Show the entries of a region by number, or all regions with their fill."""
    name = args.get("region")
    if name is None:
        fill = desk.window.fill().items()
        return Answer("\n".join(f"{region}: {used} of {budget} tokens" for region, (used, budget) in fill))
    state = desk.visible(name)
    rows = [item_line(item) for item in state.items.values()]
    for index, entry in enumerate(state.all_entries()):
        key = "" if entry.key is None else f" key {entry.key!r}"
        rows.append(f"[{index}] id {entry.entry_id}{key} {desk.shown(entry.tokens)} tokens: {_first_words(entry)}")
    return Answer("\n".join(rows) or "(empty)")


def _first_words(entry: Entry) -> str:
    line = " ".join(entry.text.split())
    return line if len(line) <= _FIRST_WORDS else f"{line[: _FIRST_WORDS - 1]}…"


# --- releasing


def context_delete(desk: Desk, args: Mapping[str, Any]) -> Answer:
    """Release entries of a region, whole groups at a time, or a closed item."""
    named = [name for name in ("key", "index", "id", "oldest") if args.get(name) is not None]
    if len(named) != 1:
        raise OperationRefused("name exactly one of `key`, `index`, `id`, `oldest`")
    state = desk.visible(args["region"])
    name = state.region.name
    if name in (FINAL_OUTPUT, INSTRUCTIONS):
        raise OperationRefused(f"`{name}` is kept by the runtime; release entries of another region")
    if state.region.kind == "checklist":
        ids, tokens, what = _closed_item(desk, state, named[0], args)
    else:
        groups = _CHOSEN[named[0]](state, args[named[0]])
        ids, tokens = ids_of(groups), sum(group.tokens for group in groups)
        what = f"Released {len(ids)} {_entries(ids)}, {desk.shown(tokens)} tokens"
    refusal = KINDS[state.region.kind].release(state, ids)
    if refusal is not None:
        raise OperationRefused(refusal)
    return Answer(f"{what}. {desk.size(state, -tokens)}", ((EntriesReleased(name, ids, tokens), None),))


def _closed_item(
    desk: Desk, state: RegionState, named: str, args: Mapping[str, Any]
) -> tuple[tuple[int, ...], int, str]:
    if named != "id":
        raise OperationRefused(f"`{state.region.name}` is a checklist; name the `id` of a closed item")
    item = desk.item(state.region.name, args["id"])
    return (item.item_id,), item.tokens, f"Removed item {item.item_id}"


def _oldest(state: RegionState, count: int) -> list[Group]:
    if count < 1:
        raise OperationRefused(f"`oldest` is {count}; give 1 or more")
    groups = [group for group in state.groups() if not group.waits]
    if state.region.kind == "hashmap":
        age = {entry.entry_id: position for position, entry in enumerate(by_age(state))}
        groups.sort(key=lambda group: age[group.entries[0].entry_id])
    return _found(state, groups[:count], "entry to release")


def _by_index(state: RegionState, index: int) -> list[Group]:
    name = state.region.name
    if state.listed != state.moved:
        raise OperationRefused(
            f"`{name}` changed since it was listed, and index {index} may be another entry now; "
            "see `context_list`, or name the `id`"
        )
    groups = [group for group in state.groups() for _ in group.entries]
    if not 0 <= index < len(groups):
        raise OperationRefused(f"`{name}` has no index {index}: it has {len(groups)} entries; see `context_list`")
    return [groups[index]]


def _by_id(state: RegionState, entry_id: int) -> list[Group]:
    return _found(state, [g for g in state.groups() if entry_id in g.ids], f"entry with id {entry_id}")


def _by_key(state: RegionState, key: str) -> list[Group]:
    hit = [group for group in state.groups() if any(entry.key == key for entry in group.entries)]
    return _found(state, hit, f"key {key!r}")


def _found(state: RegionState, groups: list[Group], what: str) -> list[Group]:
    if not groups:
        raise OperationRefused(f"`{state.region.name}` has no {what}; see `context_list`")
    return groups


_CHOSEN: Mapping[str, Any] = {"oldest": _oldest, "index": _by_index, "id": _by_id, "key": _by_key}
