"""A run that waits for a lane is told when the journal fails meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from journalkit import fill_disk
from runkit import TALK, TASK, blueprint, stage, swarm_of

from shoal.blueprints import Nudge, Region, ToolSeedCall, ToolsSeed
from shoal.errors import JournalFailed
from shoal.runtime import SqliteJournal, tool
from shoal.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)


async def test_a_journal_that_fails_while_a_run_waits_for_a_lane_ends_the_wait(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db")
    calls = 0

    @tool(reads=True)
    async def facts() -> str:
        """Give facts; the second time the disk is full."""
        nonlocal calls
        calls += 1
        if calls == 2:
            fill_disk(journal)
            journal.define("big", b"0" * 200_000)
            with pytest.raises(JournalFailed):
                await journal.barrier()
        return f"fact {calls}"

    seeded = Region("facts", kind="pinned", seed=ToolsSeed((ToolSeedCall("facts"),), refresh="each_stage"))
    made = blueprint(stage("one", nudge=QUIET), stage("two", nudge=QUIET), regions=(TASK, seeded, TALK))
    provider = ScriptedProvider("one", "two", purposes={"titling": "T"})
    async with swarm_of(provider, journal=journal) as swarm:
        run = await swarm.spawn(made, task="t", tools=(facts,))
        with pytest.raises(JournalFailed):
            await run.result()
    journal.close()
