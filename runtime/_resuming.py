"""Runs that are taken up again after their process is gone: what they are made of first, then children, then they."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from shoal.errors import JournalDamaged
from shoal.errors import RunEnded as RunIsOver
from shoal.runtime._change import made_of
from shoal.runtime._control import Cancel, steer
from shoal.runtime._mending import BORN
from shoal.runtime._program import Program
from shoal.runtime.journal import Journal, RunRow
from shoal.runtime.tools import Tool

if TYPE_CHECKING:
    from shoal.runtime._hall import Hall

RESTART = "restart"
"""Who resumed a run that a process takes up again, as its `RunResumed` says it."""


def open_runs(journal: Journal, root: str) -> Sequence[RunRow]:
    """Return the runs of a tree that are not over, in the order in which they were spawned: parents first."""
    return [row for row in journal.runs(root=root) if not row.ended]


def claim(journal: Journal, run_ids: Sequence[str], now: float) -> None:
    """Make this process the host of those runs, all or none; *now* is unix seconds.

    Raises:
        RunOwned: Another process hosts one of them.
    """
    if journal.shared is not None:
        journal.shared.claim(run_ids, now=now)


def release(journal: Journal, run_ids: Sequence[str]) -> None:
    """Give up those runs: they are not taken up after all."""
    if journal.shared is not None:
        journal.shared.release(run_ids)


def _defined(hall: Hall, run_id: str, given: Sequence[Tool]) -> Program:
    deque(islice(hall.journal.read(run_id), BORN), maxlen=0)  # without these there is nothing to go on from
    made = made_of(hall.journal, run_id)
    program = hall.programs.defined(made.definition, given)
    hall.programs.check_functions(made, given)
    hall.programs.check_function(program)
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
            programs[row.run_id] = _defined(hall, row.run_id, given)
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
