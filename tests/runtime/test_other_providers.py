"""Runs that are resumed where other providers are: nothing of them is lost."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from runkit import blueprint, events_of, kinds, payloads, stage, swarm_of

from shoal.actors import Supervisor
from shoal.blueprints import Edge, ModelChoice, ModelSettings
from shoal.errors import RunIsPaused, SpawnRefused, StartFailed
from shoal.providers import offline
from shoal.runtime import agent
from shoal.runtime._fork import Copy
from shoal.runtime.events import RunSpawned
from shoal.runtime.journal import MemoryJournal
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

ONE, TWO = ModelSettings((ModelChoice("one"),)), ModelSettings((ModelChoice("two"),))
BOTH = blueprint(
    replace(stage("first", available_tools=(), transitions=(Edge("second"),)), model=ONE),
    replace(stage("second", available_tools=(), transitions=()), model=TWO),
)


def named(name: str, *replies: str | Say) -> ScriptedProvider:
    return ScriptedProvider(*replies, name=name, purposes={"titling": "T"})


async def test_a_run_whose_stage_nobody_serves_any_more_is_not_taken_up_and_not_lost():
    journal = MemoryJournal()
    async with swarm_of(named("one", Say("late", delay_s=600.0)), named("two"), journal=journal) as swarm:
        run = await swarm.spawn(BOTH, task="x")
    async with swarm_of(named("two"), journal=journal) as swarm:
        with pytest.raises(SpawnRefused, match="cannot go on in stage 'first': no provider here serves one"):
            await swarm.resume_tree(run.run_id)
        assert swarm.get(run.run_id).status == "interrupted"
    async with swarm_of(named("one", "a"), named("two", "b"), journal=journal) as swarm:
        assert (await (await swarm.resume_tree(run.run_id)).result()).output == "b"


async def test_a_run_that_comes_to_a_stage_nobody_serves_pauses():
    journal = MemoryJournal()
    async with swarm_of(named("one", Say("late", delay_s=600.0)), named("two"), journal=journal) as swarm:
        run = await swarm.spawn(BOTH, task="x")
    async with swarm_of(named("one", "a"), journal=journal) as swarm:
        with pytest.raises(RunIsPaused, match="stage 'second' has nobody to serve it: no provider here serves two"):
            await (await swarm.resume_tree(run.run_id)).result()
    async with swarm_of(named("one"), named("two", "b"), journal=journal) as swarm:
        again = await swarm.resume_tree(run.run_id)
        assert (await again.result()).output == "b"
        assert kinds(events_of(swarm, again), "StageEntered", "RunPaused") == [
            "StageEntered",
            "RunPaused",
            "StageEntered",
        ]


async def test_a_model_that_was_asked_for_is_not_stood_in_for_when_its_run_goes_on():
    journal = MemoryJournal()
    made = blueprint(stage(available_tools=()))
    async with swarm_of(named("one", Say("late", delay_s=600.0)), journal=journal) as swarm:
        run = await swarm.spawn(made, task="x", model="one:m")
    async with swarm_of(offline(), journal=journal) as swarm:
        with pytest.raises(SpawnRefused, match="no provider here serves one:m; this swarm has offline"):
            await swarm.resume_tree(run.run_id)


async def test_an_agent_of_a_tree_whose_stage_nobody_serves_does_not_start():
    journal = MemoryJournal()
    made = blueprint(replace(stage(available_tools=()), model=ONE))

    def tree() -> Supervisor:
        return Supervisor("team", children=[agent("a", blueprint=made, task="x")])

    async with swarm_of(named("one", Say("late", delay_s=600.0)), journal=journal) as swarm:
        await swarm.start(tree())
    async with swarm_of(named("two"), journal=journal) as swarm:
        with pytest.raises(StartFailed, match="no provider here serves one"):
            await swarm.start(tree())
        [run] = swarm.runs()
        assert payloads(events_of(swarm, run), "RunEnded") == []


# --- forks


async def test_a_fork_whose_stage_nobody_serves_is_refused_and_nothing_is_made():
    journal = MemoryJournal()
    async with swarm_of(named("one", "a"), named("two", "b"), journal=journal) as swarm:
        run = await swarm.spawn(BOTH, task="x")
        await run.result()
    async with swarm_of(named("one", "a"), journal=journal, seed=1) as swarm:
        why = f"run {run.run_id} cannot go on in stage 'second': no provider here serves two"
        with pytest.raises(SpawnRefused, match=why):
            await swarm.fork(run.run_id)
        assert [row.run_id for row in journal.runs()] == [run.run_id]


async def test_a_fork_asks_nothing_of_the_stages_that_come_before_or_behind_its_own():
    journal = MemoryJournal()
    async with swarm_of(named("one", "a"), named("two", "b"), journal=journal) as swarm:
        run = await swarm.spawn(BOTH, task="x")
        await run.result()
    async with swarm_of(named("two", "again"), journal=journal, seed=1) as swarm:
        fork = await swarm.fork(run.run_id)
        assert (await fork.result()).output == "again"


async def test_a_fork_is_refused_where_nobody_serves_a_child_that_worked():
    journal = MemoryJournal()
    child = blueprint(replace(stage("below", available_tools=(), transitions=()), model=TWO))
    async with swarm_of(
        named("one", Say("late", delay_s=600.0)), named("two", Say("late", delay_s=600.0)), journal=journal
    ) as swarm:
        run = await swarm.spawn(blueprint(replace(BOTH.stages[0], transitions=())), task="x")
        below = await run.spawn(child, task="y")
        await anyio.sleep(1)
    async with swarm_of(named("one", "a"), journal=journal, seed=1) as swarm:
        with pytest.raises(SpawnRefused, match=f"run {below.run_id} cannot go on in stage 'below'"):
            await swarm.fork(run.run_id)
        assert len(journal.runs()) == 2


async def test_a_fork_between_two_stages_needs_who_serves_the_one_that_it_goes_to():
    journal = MemoryJournal()
    async with swarm_of(named("one", "a"), named("two", "b"), journal=journal) as swarm:
        run = await swarm.spawn(BOTH, task="x")
        await run.result()
        [chosen, _] = [e for e in events_of(swarm, run) if e.kind == "TransitionChosen"]
    source, history = run.run_id, tuple(journal.read(run.run_id))[: chosen.seq]
    made = history[0].payload
    assert isinstance(made, RunSpawned)
    assert Copy("fork", source, made, False, history).stage == "second"
    assert Copy("fork", source, made, False, history[: chosen.seq - 1]).stage == "first"
    assert Copy("fork", source, made, False, history[:1]).stage is None
