"""Runs that are taken up again after their process is gone: what they are made of first, then children, then they."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.errors import RunEnded as RunIsOver
from shoal.runtime._change import made_of
from shoal.runtime._control import Cancel, steer
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


def defined(hall: Hall, run_id: str, given: Sequence[Tool]) -> Program:
    """Return what a run of the journal is made of, with the functions that are *given* again.

    Raises:
        DefinitionMissing: It cannot be had, or needs a function that is not given.
    """
    made = made_of(hall.journal, run_id)
    program = hall.defined(made.definition, given)
    hall.check_functions(made, given)
    hall.check_function(program)
    return program


async def take_up(hall: Hall, rows: Sequence[RunRow], programs: Mapping[str, Program]) -> None:
    """Let runs live here again; *rows* are in the order in which they were spawned."""
    # Children first: a parent that waits for one finds it at home.
    for each in reversed(rows):
        await hall.take_up(each.run_id, programs[each.run_id], RESTART)


async def cancel_orphans(hall: Hall, rows: Sequence[RunRow]) -> frozenset[str]:
    """Cancel those of *rows* (one or more, of one tree) whose parent is over, and return their ids."""
    ended = {each.run_id for each in hall.journal.runs(root=rows[0].root) if each.ended}
    orphans = [each.run_id for each in rows if each.parent in ended and not each.detached]
    for run_id in orphans:
        with suppress(RunIsOver):
            await steer(hall, run_id, Cancel("its parent ended"))
    return frozenset(orphans)
