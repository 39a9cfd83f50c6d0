"""`shoal ps`: live and recent runs, and where they stand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
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
    below = {row.run_id: _below(row, every) for row in shown}
    if as_json:
        print_json([_plain(row, owners, below[row.run_id]) for row in shown])
    elif shown:
        print_table(
            ("run", "name", "status", "stage", "below", "asks", "began", "title"),
            [
                (
                    row.run_id,
                    line(row.name),
                    status(status_of(row, owners)),
                    line(row.stage or "-"),
                    str(len(below[row.run_id])),
                    str(_asked(row, below[row.run_id]) or "-"),
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


def _below(above: RunRow, rows: Sequence[RunRow]) -> Sequence[RunRow]:
    """Return those of *rows*, which stand in the order in which they were spawned, that are below the run *above*."""
    ids, found = {above.run_id}, list[RunRow]()
    for row in rows:
        if row.parent in ids:
            ids.add(row.run_id)
            found.append(row)
    return found


def _asked(row: RunRow, below: Sequence[RunRow]) -> int:
    """Return how many questions wait for a person, of a run and those below it."""
    return sum(each.questions for each in (row, *below) if not each.ended)


def _plain(row: RunRow, owners: dict[str, str], below: Sequence[RunRow]) -> dict[str, Any]:
    return {
        "run_id": row.run_id,
        "name": row.name,
        "title": row.title,
        "status": status_of(row, owners),
        "stage": row.stage,
        "parent": row.parent,
        "root": row.root,
        "runs_below": len(below),
        "questions": _asked(row, below),
        "events": row.events,
        "spawned_at": _time(row.spawned_at),
        "ended_at": None if row.ended_at is None else _time(row.ended_at),
        "host": owners.get(row.run_id),
    }


def _time(unix: float) -> str:
    return dt.datetime.fromtimestamp(unix, dt.UTC).isoformat()
