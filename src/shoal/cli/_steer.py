"""Steering runs from a process of its own: the part that `msg`, `answer`, `pause`, `cancel` and `resume` share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import anyio
from cyclopts import Parameter

import shoal
from shoal.cli._places import run_reader, status_of
from shoal.cli._print import print_json, say
from shoal.providers import offline
from shoal.runtime import Run, RunRow

ReasonOption: TypeAlias = Annotated[str | None, Parameter(name="--reason", help="Why; it stands in the journal.")]


def steer(run: str, journal: Path | None, act: Callable[[Run], Awaitable[None]]) -> tuple[RunRow, str | None]:
    """Have *act* do something to *run*, wherever it is; return its row afterwards, and the process that hosts it.

    Raises:
        RunNotFound: There is no such run, or more than one.
        RunEnded: It is over.
    """
    with run_reader(run, journal) as (reader, row):
        path, run_id = reader.path, row.run_id

    async def carry_out() -> None:
        # Whoever hosts the run asks its provider; this swarm hosts nothing, and so asks nobody.
        async with shoal.Swarm((offline(),), journal=path) as swarm:
            await act(swarm.get(run_id))

    anyio.run(carry_out)
    with run_reader(run_id, path) as (reader, row):
        return row, reader.owners().get(run_id)


def tell(row: RunRow, host: str | None, said: str, *, as_json: bool) -> int:
    """Print what became of a run that was steered; *said* follows its id."""
    if as_json:
        print_json(plain_standing(row, host))
        return 0
    say(f"run {row.run_id} {said}")
    if host is None and not row.ended:
        say(f"no process hosts it; it goes on with `shoal resume {row.run_id}`")
    return 0


def plain_standing(row: RunRow, host: str | None) -> dict[str, Any]:
    """Return where a run stands as plain values."""
    owners = {} if host is None else {row.run_id: host}
    return {"run_id": row.run_id, "status": status_of(row, owners), "questions": row.questions, "host": host}
