"""What changes the window: entries that are written, and every other change of a region."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.providers import Message
from shoal.runtime.context import (
    CONVERSATION,
    Edges,
    EntryWritten,
    PartStored,
    SeedRefreshed,
    SeedResolved,
    materialise,
)
from shoal.runtime.events import Event
from shoal.runtime.state._contents import content_of
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._visit import TALK


def write(state: RunRecord, event: Event, written: EntryWritten, message: Message | None) -> None:
    """Put an entry into its region; *message* is what it says, `None` where that is made from the events."""
    if message is None:
        message = _message_of(state, written)
    if state.epoch is not None and written.replaces:
        state.epoch.note(state.view, written)
    edges = (0, 0) if state.epoch is None else _edges_in(state, written)
    if written.counted != "estimate":
        state.tokenizer = written.counted
    state.view.apply(written, event.seq, event.at, message)
    if state.epoch is not None and edges != _edges_in(state, written):
        state.epoch.moved("masking")
    if state.inbox:
        state.inbox = [(seq, mail) for seq, mail in state.inbox if seq != written.source]
    if state.visit is not None and state.visit.points:
        _hear(state, written.source)
    if state.turn is not None:
        state.turn.brought |= {written.source}
    if written.kind == "tool_result" and state.turn is not None:
        state.turn.answered |= {next(i for i, call in enumerate(state.turn.calls) if call.call_id == message.call_id)}


def _message_of(state: RunRecord, written: EntryWritten) -> Message:
    blobs = state.shelf.blobs(written.parts)
    if not written.source:
        return Message("user", () if written.text is None else (written.text,), blobs=blobs)
    message = materialise(content_of(state, written.source, written.index), written.cut, written.text, blobs)
    if written.kind not in ("assistant_turn", "tool_result") and message.role != "user":
        # A result that was routed is plain text where it went.
        return Message("user", message.texts, blobs=blobs)
    return message


def _edges_in(state: RunRecord, written: EntryWritten) -> tuple[int, int]:
    """Return where the view of the conversation changes, where *written* is a turn of it."""
    held = state.view.states[CONVERSATION]
    if state.epoch is None or held.view is None or written.kind != "assistant_turn":
        return (0, 0)
    edges: Edges = held.view.edges(held)
    return edges.masked, edges.forgotten


def _hear(state: RunRecord, source: int) -> None:
    """Take note that what a person said at an interaction point stands in the window."""
    assert state.visit is not None  # the caller looked
    for name, point in state.visit.points.items():
        if point.answer is not None and point.answered == source:
            if point.edited and point.answer.text is not None:
                state.last_text, state.last_text_seq = point.answer.text, source
            if name == TALK:
                state.turn = state.routing = state.failure = None
            point.heard = name != TALK and not point.edited
            if not point.heard:
                point.begin_again()


def on_part(state: RunRecord, event: Event, payload: PartStored) -> None:
    state.shelf.keep(event.seq, payload)


def on_seed(state: RunRecord, event: Event, payload: SeedResolved | SeedRefreshed) -> None:
    blocks = [msgspec.structs.replace(block, text=state.program.share(block.text)) for block in payload.blocks]
    on_change(state, event, msgspec.structs.replace(payload, blocks=tuple(blocks)))


def on_change(state: RunRecord, event: Event, payload: Any) -> None:
    if state.epoch is not None:
        state.epoch.note(state.view, payload)
    state.view.apply(payload, event.seq, event.at)
