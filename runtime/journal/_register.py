"""The register: one row a run, kept up by the events that change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec

from shoal.errors import RunNotFound
from shoal.runtime.events import (
    Event,
    RunEnded,
    RunPaused,
    RunResumed,
    RunSpawned,
    RunTitled,
    StageEntered,
)
from shoal.runtime.journal._base import RunRow

NOTED = (RunSpawned, RunTitled, RunPaused, RunResumed, RunEnded, StageEntered)
"""Kinds that change a run's row."""


@final
class Register:
    """Rows of all runs, by run id, in the order in which they were spawned."""

    def __init__(self) -> None:
        self._rows: dict[str, RunRow] = {}

    def note(self, event: Event) -> None:
        """Bring the row of the event's run up to date."""
        if isinstance(event.payload, NOTED):
            self._rows[event.run_id] = updated(self._rows.get(event.run_id), event)

    def rows(self, root: str | None = None) -> Sequence[RunRow]:
        """Return all rows, or those of one tree; how many events a run has is not counted here."""
        return [row for row in self._rows.values() if root is None or row.root == root]


def updated(row: RunRow | None, event: Event) -> RunRow:
    """Return *row* as it is after *event*; a run's first event makes its row."""
    payload = event.payload
    if isinstance(payload, RunSpawned):
        return RunRow(
            event.run_id,
            payload.name,
            "running",
            payload.parent,
            payload.root,
            None,
            event.at,
            None,
            None,
            0,
            None,
            payload.key,
        )
    assert row is not None  # the first event of a run is `RunSpawned`
    change: dict[str, object] = {}
    match payload:
        case RunTitled():
            change["title"] = payload.title
        case RunPaused():
            change["status"] = "paused"
        case RunResumed():
            change["status"] = "running"
        case RunEnded():
            change |= {"status": payload.status, "ended_at": event.at}
        case StageEntered():
            change["stage"] = payload.stage
        case _:
            pass
    return msgspec.structs.replace(row, **change)


def pick(wanted: str, rows: Sequence[RunRow]) -> RunRow:
    """Return the one of *rows* (ids that begin with *wanted*) that is meant.

    Raises:
        RunNotFound: None is, or more than one could be.
    """
    exact = [row for row in rows if row.run_id == wanted]
    if exact:
        return exact[0]
    if len(rows) == 1 and wanted:
        return rows[0]
    if not rows:
        raise RunNotFound(f"this journal has no run {wanted!r}; `shoal ps` lists them", run_id=wanted)
    some = ", ".join(row.run_id for row in rows[:3])
    raise RunNotFound(f"{wanted!r} could be {len(rows)} runs ({some} …); give more of the id", run_id=wanted)
