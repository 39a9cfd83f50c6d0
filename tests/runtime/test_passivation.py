"""Runs that have only to wait leave memory, and nobody can tell the difference."""

from __future__ import annotations

import gc
from pathlib import Path

import anyio
import pytest
from runkit import blueprint, events_of, kinds, sent, stage, swarm_of
from test_control import TWO, fan, hand_out, scripted

from shoal.actors import Supervisor
from shoal.errors import ProviderSetup, RunIsPaused
from shoal.runtime import Limits, Outcome, RunState, Swarm, agent
from shoal.testing import Say

pytestmark = pytest.mark.anyio

IDLE = Limits(idle_s=30.0)
PLAIN = blueprint(stage(available_tools=()))


async def asleep(swarm: Swarm) -> None:
    """Wait until nothing lives."""
    while swarm.hall.home.live:  # noqa: ASYNC110 - virtual time
        await anyio.sleep(5)


async def test_a_paused_run_leaves_memory_and_goes_on_when_it_is_resumed():
    async with swarm_of(scripted(ProviderSetup("no credits"), "hello"), limits=IDLE) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await asleep(swarm)
        await run.resume()
        assert (await run.result()).output == "hello"
        assert kinds(events_of(swarm, run), "RunPassivated") == ["RunPassivated"]


async def test_a_run_that_sleeps_is_as_paused_as_one_that_lives():
    async with swarm_of(scripted(ProviderSetup("no credits")), limits=IDLE) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await asleep(swarm)
        await anyio.sleep(500)
        with pytest.raises(RunIsPaused, match="no credits"):
            await run.result()


async def test_mail_for_a_run_that_sleeps_is_in_its_next_request():
    provider = scripted(Say("one", delay_s=1), "two")
    async with swarm_of(provider, limits=IDLE) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.pause()
        await asleep(swarm)
        await run.send("look left")
        await run.resume()
        await run.result()
    assert "look left" in sent(provider.requests[-1])


async def test_a_parent_sleeps_while_its_children_work_and_is_woken_by_their_ends(tmp_path: Path):
    provider = scripted(hand_out("1", "2"), Say("a", delay_s=300), Say("b", delay_s=400), "merged")
    async with swarm_of(provider, limits=IDLE) as swarm:
        run = await swarm.spawn(fan(tmp_path), task="x")
        await anyio.sleep(200)
        assert run.run_id not in swarm.hall.home.live
        assert (await run.result()).output == "merged"
        assert kinds(events_of(swarm, run), "ChildEnded") == ["ChildEnded"] * 2


async def test_cancelling_a_parent_that_sleeps_stops_its_children(tmp_path: Path):
    provider = scripted(hand_out("1", "2"), Say("a", delay_s=600), Say("b", delay_s=600))
    async with swarm_of(provider, limits=IDLE) as swarm:
        run = await swarm.spawn(fan(tmp_path), task="x")
        await anyio.sleep(200)
        await run.cancel()
        assert (await run.result()).status == "cancelled"
        assert {row.status for row in swarm.journal.runs()} == {"cancelled"}
        assert swarm.hall.home.live == {}


async def test_a_run_at_work_never_sleeps():
    async with swarm_of(scripted(Say("late", delay_s=1000)), limits=IDLE) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await run.result()
        assert "RunPassivated" not in kinds(events_of(swarm, run))


async def test_nothing_sleeps_where_no_idle_time_is_set():
    async with swarm_of(scripted(ProviderSetup("no credits")), limits=Limits(idle_s=None)) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await anyio.sleep(10_000)
        assert run.run_id in swarm.hall.home.live


async def test_an_agent_of_a_users_tree_stays_as_long_as_its_supervisor_counts_on_it():
    async with swarm_of(scripted(ProviderSetup("no credits")), limits=IDLE) as swarm:
        await swarm.start(Supervisor("tree", children=[agent("a", blueprint=PLAIN, task="x")]))
        await anyio.sleep(1000)
        assert len(swarm.hall.home.live) == 1


async def test_a_pause_that_ends_while_the_run_is_put_to_sleep_is_not_missed():
    async with swarm_of(scripted(ProviderSetup("no credits"), "hello"), limits=IDLE) as swarm:
        run = await swarm.spawn(PLAIN, task="x")

        def resume_at_once(event: object) -> None:
            if getattr(event, "kind", "") == "RunPassivated":
                tasks.start_soon(run.resume)

        swarm.journal.observers.append(resume_at_once)
        async with anyio.create_task_group() as tasks:
            await anyio.sleep(1000)
        assert (await run.result()).output == "hello"


def in_memory() -> list[RunState | Outcome]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, RunState | Outcome)]


async def test_no_object_of_a_run_that_sleeps_or_is_over_stays_in_memory():
    others = in_memory()  # what other tests have left
    provider = scripted(Say("one", delay_s=5), "done")
    async with swarm_of(provider, limits=IDLE) as swarm:
        paused = await swarm.spawn(TWO, task="x")
        await anyio.sleep(1)
        await paused.pause()
        await (await swarm.spawn(PLAIN, task="y")).result()
        await anyio.sleep(1000)
        provider._played.requests.clear()  # the last that hold on to what a run looked like
        assert [each for each in in_memory() if not any(each is other for other in others)] == []
        assert len(swarm.hall.home.standings) == 0
