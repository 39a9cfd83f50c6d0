"""What stands on a journal that is lost goes down with it, comes back with it, and goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from runkit import blueprint, events_of, stage, stages_of, swarm_of

from shoal.actors import Supervisor, Worker
from shoal.blueprints import FanOut, Nudge
from shoal.errors import RestartsExhausted
from shoal.providers import Request
from shoal.runtime import Journal, Limits, MemoryJournal, SqliteJournal, Swarm, agent
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

LOST_S = 15.0
TWO = blueprint(stage("a", available_tools=()), stage("b", available_tools=()))


class Loses:
    """Serves a journal, and is lost at each of these times (seconds of the loop, in order)."""

    def __init__(self, journal: Journal, *times_s: float) -> None:
        self._serve = journal.serve
        self._times_s = list(times_s)
        journal.serve = self.serve  # type: ignore[method-assign]

    async def serve(self) -> None:
        if not self._times_s:
            await self._serve()
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve)
            await anyio.sleep_until(self._times_s[0])
            self._times_s.pop(0)
            raise RuntimeError("the journal is lost")


@pytest.fixture(params=["memory", "file"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    return MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "runs.db", host="here")


@asynccontextmanager
async def losing(journal: Journal, provider: ScriptedProvider, times: int = 1) -> AsyncIterator[Swarm]:
    """Open a swarm that loses its journal *times* times, each `LOST_S` after the last."""
    began = anyio.current_time()
    Loses(journal, *(began + LOST_S * number for number in range(1, times + 1)))
    async with swarm_of(provider, journal=journal, limits=Limits(idle_s=5.0)) as swarm:
        yield swarm
    journal.close()


def slow(request: Request) -> object:
    return Say("words", delay_s=10.0) if request.purpose == "stage" else "T"


async def test_a_run_goes_on_where_it_was_when_its_journal_was_lost(journal: Journal):
    provider = ScriptedProvider(script=slow)  # type: ignore[arg-type]
    async with losing(journal, provider) as swarm:
        run = await swarm.spawn(TWO, task="x")
        assert (await run.result()).status == "complete"
        assert stages_of(events_of(swarm, run)) == ["a", "b"]
        assert swarm.healthy
    assert sum(request.purpose == "stage" for request in provider.requests) == 3  # the one that was cut, again


async def test_a_tree_of_runs_goes_on(journal: Journal):
    lead = blueprint(
        stage("split", mode="fan_out", fan_out=FanOut(worker_stage="crew", merge_stage="merge")),
        stage("merge", available_tools=(), transitions=()),
        stage("crew", available_tools=(), allow_as_worker=True),
    )

    def answer(request: Request) -> object:
        offered = {spec.name for spec in request.tools.specs}
        items = [{"id": item, "seeds": {"task": item}} for item in "ab"]
        return call("fan_out", items=items) if "fan_out" in offered else slow(request)

    async with losing(journal, ScriptedProvider(script=answer)) as swarm:  # type: ignore[arg-type]
        run = await swarm.spawn(lead, task="x")
        await anyio.sleep(LOST_S - 8)
        assert (await run.result()).status == "complete"
        assert [row.status for row in swarm.journal.runs()] == ["complete"] * 3


async def test_a_run_that_slept_can_still_be_reached(journal: Journal):
    asking = blueprint(stage(available_tools=("ask_user_text",), nudge=Nudge(enabled=False)))
    provider = ScriptedProvider(call("ask_user_text", prompt="?"), "the end", purposes={"titling": "T"})
    async with losing(journal, provider) as swarm:
        run = await swarm.spawn(asking, task="x", unattended=False)
        await anyio.sleep(LOST_S * 2)
        await run.answer("go on")
        assert (await run.result()).output == "the end"


async def test_a_started_tree_comes_back_with_its_agents(journal: Journal):
    ticks: list[int] = []

    async def tick() -> None:
        ticks.append(1)
        await anyio.sleep_forever()

    tree = Supervisor("team", children=[Worker("tick", tick), agent("one", blueprint=TWO, task="x")])
    async with losing(journal, ScriptedProvider(script=slow)) as swarm:  # type: ignore[arg-type]
        started = await swarm.start(tree)
        [run] = swarm.runs()
        assert (await run.result()).status == "complete"
        assert (len(swarm.runs()), len(ticks), tree.status) == (1, 2, "running")
        await started.stop()
        assert swarm.healthy


async def test_a_tree_that_comes_back_is_still_watched():
    crash = anyio.Event()

    async def fail() -> None:
        await crash.wait()
        raise RuntimeError("broken")

    with pytest.raises(RestartsExhausted, match="team"):  # noqa: PT012 - leaving the block raises
        async with losing(MemoryJournal(), ScriptedProvider()) as swarm:
            await swarm.start(Supervisor("team", max_restarts=0, children=[Worker("w", fail)]))
            await anyio.sleep(LOST_S * 2)
            crash.set()
            await anyio.sleep_forever()


async def test_a_tree_that_ends_as_it_comes_back_keeps_no_other_from_coming_back():
    starts: list[str] = []

    async def brief() -> None:
        starts.append("brief")
        if starts.count("brief") == 1:
            await anyio.sleep_forever()

    async def steady() -> None:
        starts.append("steady")
        await anyio.sleep_forever()

    short = Worker("w", brief, restart="transient", significant=True)
    async with losing(MemoryJournal(), ScriptedProvider()) as swarm:
        await swarm.start(Supervisor("short", auto_shutdown="any_significant", children=[short]))
        await swarm.start(Supervisor("long", children=[Worker("w", steady)]))
        await anyio.sleep(LOST_S * 2)
        assert starts == ["brief", "steady", "brief", "steady"]


async def test_a_journal_that_is_lost_again_and_again_ends_the_swarm():
    began = anyio.current_time()
    journal = MemoryJournal()
    Loses(journal, *(began + 5 + number for number in range(3)))
    with pytest.raises(RestartsExhausted, match="'journal' was to be started again"):
        async with swarm_of(ScriptedProvider(), journal=journal):
            await anyio.sleep_forever()
