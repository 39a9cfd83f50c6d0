"""A run that crashes while its newest events are still on their way to the disk."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from runkit import blueprint, events_of, stage, swarm_of

from shoal.providers import Request
from shoal.runtime import SqliteJournal
from shoal.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


def crashing(times: int) -> ScriptedProvider:
    """A provider with a defect that shows *times* times."""
    left = [times]

    def answer(request: Request) -> str:
        if request.purpose == "stage" and left[0]:
            left[0] -= 1
            raise ZeroDivisionError("a defect")
        return "done"

    return ScriptedProvider(script=answer)


async def test_a_restart_waits_for_what_the_life_before_had_appended(tmp_path: Path):
    # At `full` each commit runs in a thread, so that a restart would overtake it.
    with closing(SqliteJournal(tmp_path / "runs.db", durability="full")) as journal:
        async with swarm_of(crashing(1), journal=journal) as swarm:
            run = await swarm.spawn(blueprint(stage(available_tools=())), task="x")
            assert (await run.result()).status == "complete"
            assert swarm.healthy
            assert [event.seq for event in events_of(swarm, run)] == list(range(1, swarm.row(run.run_id).events + 1))
