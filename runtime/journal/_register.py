"""The register: one row a run, kept up by the events that change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import msgspec

from shoal.errors import RunNotFound
from shoal.runtime.events import (
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunSpawned,
    RunTitled,
    StageEntered,
)
from shoal.runtime.journal._base import RunRow

NOTED = frozenset(
    (RunSpawned, RunTitled, RunPaused, RunResumed, RunEnded, StageEntered, QuestionAsked, QuestionAnswered)
)
"""Kinds that change a run's row."""


@final
class Register:
    """Rows of all runs, by run id, in the order in which they were spawned."""

    def __init__(self) -> None:
        self._rows: dict[str, RunRow] = {}

    def note(self, event: Event) -> None:
        """Bring the row of the event's run up to date."""
        if isinstance(event.payload, RunSpawned):
            self._rows[event.run_id] = row_of(event, event.payload)
        elif type(event.payload) in NOTED:
            row = self._rows[event.run_id]
            asked = asked_by(event)
            changes = {**change_of(event), **({"questions": row.questions + asked} if asked else {})}
            self._rows[event.run_id] = msgspec.structs.replace(row, **changes)

    def row(self, run_id: str) -> RunRow | None:
        """Return the row of *run_id*; `None` where there is none. How many events it has is not counted here."""
        return self._rows.get(run_id)

    def rows(self, root: str | None = None) -> Sequence[RunRow]:
        """Return all rows, or those of one tree; how many events a run has is not counted here."""
        return [row for row in self._rows.values() if root is None or row.root == root]


def register_of(events: Sequence[Event]) -> RunRow:
    """Return the row of a run with these *events* (1 or more, the oldest first)."""
    register = Register()
    for event in events:
        register.note(event)
    row = register.row(events[0].run_id)
    assert row is not None  # the first event of a run makes it
    return row


def row_of(event: Event, spawned: RunSpawned) -> RunRow:
    """Return the row that a run begins with; *event* is its first, with the payload *spawned*."""
    return RunRow(
        event.run_id,
        spawned.name,
        "running",
        spawned.parent,
        spawned.root,
        None,
        event.at,
        None,
        None,
        0,
        None,
        spawned.key,
        spawned.detached,
    )


def change_of(event: Event) -> Mapping[str, object]:
    """Return what *event* changes in the row of its run, by field."""
    match event.payload:
        case RunTitled(title):
            return {"title": title}
        case RunPaused():
            return {"status": "paused"}
        case RunResumed():
            return {"status": "running"}
        case RunEnded(status):
            return {"status": status, "ended_at": event.at}
        case StageEntered(stage):
            return {"stage": stage}
        case _:
            return {}


def asked_by(event: Event) -> int:
    """Return by how many *event* changes the questions that its run asks."""
    match event.payload:
        case QuestionAsked():
            return 1
        case QuestionAnswered():
            return -1
        case _:
            return 0


def pick(wanted: str, rows: Sequence[RunRow]) -> RunRow:
    """Return the one of *rows* (ids that begin with *wanted*) that is meant.

    Raises:
        RunNotFound: None is, or more than one could be.
    """
    exact = [row for row in rows if row.run_id == wanted]
    if exact:
        return exact[0]
    if not wanted:
        raise RunNotFound("no run has an empty id; `shoal ps` lists the runs", run_id=wanted)
    if len(rows) == 1:
        return rows[0]
    if not rows:
        raise RunNotFound(f"this journal has no run {wanted!r}; `shoal ps` lists them", run_id=wanted)
    some = ", ".join(row.run_id for row in rows[:3])
    raise RunNotFound(f"{wanted!r} could be {len(rows)} runs ({some} …); give more of the id", run_id=wanted)
