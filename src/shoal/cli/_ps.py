"""`shoal ps`: live and recent runs, and where they stand."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from shoal.cli._places import JournalOption, JsonOption, journal_reader, status_of
from shoal.cli._print import ago, line, print_json, print_table, say, status
from shoal.runtime import RunRow


def command(
    *,
    all_runs: Annotated[bool, Parameter(name="--all", negative="", help="Children too, and however old.")] = False,
    most: Annotated[int, Parameter(name="--last", help="How many runs to show.")] = 20,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """List live and recent runs, the newest last."""
    with journal_reader(journal) as reader:
        every = [] if reader is None else list(reader.runs())
        owners = {} if reader is None else reader.owners()
    shown = every if all_runs else [row for row in every if row.parent is None][-max(1, most) :]
    below, asked = _sums(every)
    if as_json:
        print_json([_plain(row, owners, below[row.run_id], asked[row.run_id]) for row in shown])
    elif shown:
        print_table(
            ("run", "name", "status", "stage", "below", "asks", "began", "title"),
            [
                (
                    row.run_id,
                    line(row.name),
                    status(status_of(row, owners)),
                    line(row.stage or "-"),
                    str(below[row.run_id]),
                    str(asked[row.run_id] or "-"),
                    ago(row.spawned_at),
                    line(row.title or "", 60),
                )
                for row in shown
            ],
            right=("below", "asks"),
        )
    else:
        say("Nothing has run yet. Try: shoal run digest --task 'What is in here?'")
    return 0


def _sums(rows: Sequence[RunRow]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return how many runs are below each, and how many questions it and they ask, by run id.

    *rows* are all runs, in the order in which they were spawned: a run stands behind its parent.
    """
    below, asked = Counter[str](), Counter[str]()
    for row in reversed(rows):
        asked[row.run_id] += 0 if row.ended else row.questions
        if row.parent is not None:
            below[row.parent] += 1 + below[row.run_id]
            asked[row.parent] += asked[row.run_id]
    return below, asked


def _plain(row: RunRow, owners: dict[str, str], below: int, asked: int) -> dict[str, Any]:
    return {
        "run_id": row.run_id,
        "name": row.name,
        "title": row.title,
        "status": status_of(row, owners),
        "stage": row.stage,
        "parent": row.parent,
        "root": row.root,
        "runs_below": below,
        "questions": asked,
        "events": row.events,
        "spawned_at": _time(row.spawned_at),
        "ended_at": None if row.ended_at is None else _time(row.ended_at),
        "host": owners.get(row.run_id),
    }


def _time(unix: float) -> str:
    return dt.datetime.fromtimestamp(unix, dt.UTC).isoformat()
