"""Children, and items of a fan-out that no child was made for."""

from __future__ import annotations

from shoal.runtime.events import ChildEnded, ChildSpawned, Event, ItemRefused
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._visit import Child


def on_child_spawned(state: RunRecord, event: Event, payload: ChildSpawned) -> None:
    state.children[payload.child] = Child(payload)
    turn = state.turn
    if payload.waited and payload.item is None and turn is not None and payload.source == turn.seq:
        turn.waiting[payload.index] = payload.child
    if state.visit is not None:
        state.visit.children += 1


def on_child_ended(state: RunRecord, event: Event, payload: ChildEnded) -> None:
    state.recent[event.seq] = payload
    child = state.children[payload.child]
    state.children[payload.child] = Child(child.spawned, payload, event.seq)


def on_item_refused(state: RunRecord, event: Event, payload: ItemRefused) -> None:
    state.recent[event.seq] = payload
    if state.turn is not None and payload.source == state.turn.seq:
        state.turn.refused += ((event.seq, payload),)
