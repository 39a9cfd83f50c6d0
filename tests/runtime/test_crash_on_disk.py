"""Runs whose journal is a file: a crash while events are on their way to it, and a disk that is full."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from runkit import blueprint, events_of, stage, swarm_of

from shoal.blueprints import Edge, FanOut
from shoal.errors import JournalFailed
from shoal.providers import Request, ToolCall
from shoal.runtime import SqliteJournal
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio


def crashing(times: int) -> ScriptedProvider:
    """A provider with a defect that shows *times* times."""
    left = [times]

    def answer(request: Request) -> str:
        if request.purpose == "stage" and left[0]:
            left[0] -= 1
            raise ZeroDivisionError("a defect " * 2000)
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


def full_after(journal: SqliteJournal, pages: int) -> None:
    """Let the file grow by *pages* pages of 8 kB more, as a disk does that is nearly full."""
    [size] = journal._writing.execute("PRAGMA page_count").fetchone()
    journal._writing.execute(f"PRAGMA max_page_count = {size + pages}")


def chatting(request: Request) -> ToolCall | Say:
    """Call tools without end, several at once, each with much to keep."""
    return Say(calls=tuple(call("context_append", region="notes", content="words " * 200) for _ in range(4)))


async def test_a_full_disk_in_the_middle_of_calls_ends_the_waiting(tmp_path: Path):
    with closing(SqliteJournal(tmp_path / "runs.db")) as journal:
        async with swarm_of(ScriptedProvider(script=chatting), journal=journal) as swarm:
            run = await swarm.spawn(blueprint(stage()), task="x")
            full_after(journal, 8)
            with pytest.raises(JournalFailed, match="full") as caught:
                await run.result()
            assert caught.value.run_id == run.run_id
            assert not swarm.healthy


async def test_a_full_disk_in_the_middle_of_a_fan_out_ends_the_waiting(tmp_path: Path):
    lead = blueprint(
        stage(
            "split",
            mode="fan_out",
            available_tools=("context_append",),
            fan_out=FanOut(worker_stage="read", results_region="notes"),
            transitions=(Edge("merge"),),
        ),
        stage("read", mode="output", available_tools=("context_append",)),
        stage("merge", available_tools=()),
    )

    def answer(request: Request) -> ToolCall | Say:
        offered = {spec.name for spec in request.tools.specs}
        items = [{"id": f"{number}", "seeds": {"task": "words " * 90}} for number in range(30)]
        return call("fan_out", items=items) if "fan_out" in offered else chatting(request)

    with closing(SqliteJournal(tmp_path / "runs.db")) as journal:
        async with swarm_of(ScriptedProvider(script=answer), journal=journal) as swarm:
            run = await swarm.spawn(lead, task="x")
            full_after(journal, 30)
            with pytest.raises(JournalFailed, match="full"):
                await run.result()
            assert len(journal.runs()) > 1


async def test_a_run_that_crashes_while_the_disk_is_full_is_not_started_again_and_again(tmp_path: Path):
    def answer(request: Request) -> str:
        full_after(journal, 0)
        raise ZeroDivisionError("a defect " * 2000)

    with closing(SqliteJournal(tmp_path / "runs.db")) as journal:
        async with swarm_of(ScriptedProvider(script=answer), journal=journal) as swarm:
            run = await swarm.spawn(blueprint(stage(available_tools=())), seeds={"task": "x"})
            with pytest.raises(JournalFailed, match="full"):
                await run.result()
            assert swarm.hall.home.live == {}
