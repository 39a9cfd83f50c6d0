"""Runs that are taken up again after their process is gone: what they are made of first, then children, then they."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from shoal.blueprints import Blueprint
from shoal.errors import JournalDamaged
from shoal.errors import RunEnded as RunIsOver
from shoal.runtime._change import made_of
from shoal.runtime._control import Cancel, Resume, steer
from shoal.runtime._hall import Hall
from shoal.runtime._mending import BORN
from shoal.runtime._standings import open_runs
from shoal.runtime.events import BudgetGiven
from shoal.runtime.journal import RunRow
from shoal.runtime.program import Program
from shoal.runtime.tools import Tool

RESTART = "restart"
"""Who resumed a run that a process takes up again, as its `RunResumed` says it."""


def _defined(hall: Hall, row: RunRow, given: Sequence[Tool]) -> Program:
    deque(islice(hall.journal.read(row.run_id), BORN), maxlen=0)  # without these there is nothing to go on from
    made = made_of(hall.journal, row.run_id)
    program = hall.programs.defined(made.definition, given)
    hall.check_fit(row.run_id, program, made, row.stage, given)
    return program


def definitions(
    hall: Hall, rows: Sequence[RunRow], needed: str, given: Sequence[Tool]
) -> tuple[dict[str, Program], dict[str, JournalDamaged]]:
    """Return what runs are made of, with the functions that are *given* again, and which of them nobody can read.

    Args:
        hall: The hall.
        rows: The runs.
        needed: The run that is to go on in any case: it, and those above it, have to be readable.
        given: The functions.

    Raises:
        DefinitionMissing: One cannot be had, or needs a function that is not given.
        SpawnRefused: Nobody here serves the stage that one is in.
        JournalDamaged: The run *needed*, or one above it, cannot be read.
    """
    parents = {row.run_id: row.parent for row in rows}
    above: list[str | None] = [needed]
    while above[-1] is not None:
        above.append(parents.get(above[-1]))
    programs: dict[str, Program] = {}
    lost: dict[str, JournalDamaged] = {}
    for row in rows:
        try:
            programs[row.run_id] = _defined(hall, row, given)
        except JournalDamaged as damage:
            if row.run_id in above:
                raise
            lost[row.run_id] = damage
    return programs, lost


async def write_off(hall: Hall, lost: Mapping[str, JournalDamaged]) -> None:
    """End the runs of *lost*, which nobody can read, so that those who wait for them learn of it."""
    for run_id, damage in lost.items():
        await hall.home.write_off(run_id, f"its record cannot be read: {damage}")


async def take_up(hall: Hall, programs: dict[str, Program]) -> None:
    """Let runs live here again that are made of *programs*, by run id, in the order in which they were spawned."""
    # Children first: a parent that waits for one finds it at home.
    for run_id in reversed(programs):
        await hall.take_up(run_id, programs[run_id], RESTART)


async def cancel_orphans(hall: Hall, rows: Sequence[RunRow]) -> frozenset[str]:
    """Cancel those of *rows* (one or more, of one tree) whose parent is over, and return their ids."""
    ended = {each.run_id for each in hall.journal.runs(root=rows[0].root) if each.ended}
    orphans = [each.run_id for each in rows if each.parent in ended and not each.detached]
    for run_id in orphans:
        with suppress(RunIsOver):
            await steer(hall.home, run_id, Cancel("its parent ended"))
    return frozenset(orphans)


async def resume_tree(
    hall: Hall,
    row: RunRow,
    given: Sequence[Tool],
    *,
    budget: BudgetGiven | None,
    blueprint: str | Path | Blueprint | None,
) -> type[Any] | None:
    """Take up a run that was interrupted or is paused, with everything of its tree that is not over.

    Args:
        hall: The hall.
        row: The run; the whole tree it belongs to is taken up.
        given: The functions that runs of the tree were given as tools.
        budget: Limits of the run in place of those that it has, where it is paused; `None` leaves them.
        blueprint: What the run goes on with; `None` for what it is made of.

    Returns:
        The type of what it gives, where it is an agentic function; `None` for text.

    Raises:
        ShoalError: See `Swarm.resume_tree`.
    """
    rows = open_runs(hall.journal, row.root)
    if not rows or (blueprint is not None and row.ended):
        raise RunIsOver(
            f"run {row.run_id} is over ({row.status}); spawn it again to run it once more", run_id=row.run_id
        )
    hosted = hall.home.keeper.made_of
    asleep = [each for each in rows if each.run_id not in hosted]
    with hall.home.claims.held([each.run_id for each in asleep]):
        # Every definition is read first: what is missing refuses the whole tree before any of it moves.
        unchanged = [each for each in asleep if blueprint is None or each.run_id != row.run_id]
        programs, lost = definitions(hall, unchanged, row.run_id, given)
        if blueprint is not None:
            programs[row.run_id] = await hall.programs.of(hall.programs.bundle(blueprint), given)
            await hall.change(row.run_id, programs[row.run_id])
        program = programs.get(row.run_id) or hosted.get(row.run_id)
        function = None if program is None else program.function
        returns = None if function is None else hall.programs.function(function.qualname).returns
        await write_off(hall, lost)
        await take_up(hall, {each.run_id: programs[each.run_id] for each in asleep if each.run_id in programs})
    orphans = await cancel_orphans(hall, rows)
    # The run itself first: its limits change as it goes on.
    for each in sorted(rows, key=lambda each: each.run_id != row.run_id):
        if each.status == "paused" and each.run_id not in orphans and each.run_id not in lost:
            await steer(hall.home, each.run_id, Resume(each.run_id, budget if each.run_id == row.run_id else None))
    return returns
