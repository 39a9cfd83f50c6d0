"""Ledgers of a journal: what bills say, and the budgets beside it."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from shoal.blueprints import Blueprint, CallerSeed, Nudge, Region, Stage, StageContext
from shoal.errors import DefinitionMissing
from shoal.runtime import Event, MemoryJournal, Swarm, account_of, ledger_of, virtual
from shoal.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)
TASK = Region("task", kind="pinned", max_tokens=500, seed=CallerSeed("task"))
TALK = Region("conversation", kind="sliding_window", max_tokens=4000, max_items=None)
SMALL = Region("task", kind="pinned", max_tokens=200, seed=CallerSeed("task"))
TWO = Blueprint(
    "two",
    (
        Stage("wide", nudge=QUIET),
        Stage("narrow", nudge=QUIET, context=StageContext(regions=(SMALL, TALK), mode="fresh")),
    ),
    regions=(TASK, TALK),
)


async def journal_of(made: Blueprint) -> tuple[MemoryJournal, str]:
    journal = MemoryJournal()
    provider = ScriptedProvider("one", "two", purposes={"titling": "A title"})
    with anyio.fail_after(3600):
        async with Swarm([provider], journal, clock=virtual()) as swarm:
            run = await swarm.spawn(made, task="the task")
            await run.result()
            assert run.ledger().plain() == swarm.ledger(run.run_id).plain() == account_of(journal, [run.run_id]).plain()
    return journal, run.run_id


async def test_each_region_stands_with_the_budget_that_it_had_in_the_stage():
    journal, run_id = await journal_of(TWO)
    stages = account_of(journal, [run_id]).stages
    budgets = {(stage, name): row.budget_tokens for stage in stages for name, row in stages[stage].regions.items()}
    assert (budgets["wide", "task"], budgets["narrow", "task"]) == (500, 200)
    assert budgets["wide", "reply.text"] is None


async def test_bills_are_those_of_the_events_alone():
    journal, run_id = await journal_of(TWO)
    plain, bills = account_of(journal, [run_id]).plain(), ledger_of(journal.read(run_id)).plain()
    for stage in plain["stages"]:
        for region in stage["regions"]:
            region["budget_tokens"] = None
    assert plain == bills


async def test_where_what_a_run_is_made_of_is_gone_its_budgets_are_unknown_and_its_bills_are_there():
    class Gone:
        """A journal that has lost what its runs are made of."""

        def __init__(self, journal: MemoryJournal) -> None:
            self._journal = journal

        def read(self, run_id: str) -> Iterator[Event]:
            return self._journal.read(run_id)

        def definition(self, digest: str) -> bytes:
            raise DefinitionMissing("it is gone")

    journal, run_id = await journal_of(TWO)
    found = account_of(Gone(journal), [run_id])  # type: ignore[arg-type] # all of a reader that is needed
    assert found.plain() == ledger_of(journal.read(run_id)).plain()
