"""Trees that users start in a swarm: children that come later, budgets, and what is told where they give up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import TaskStatus
from runkit import blueprint, payloads, stage, swarm_of

from shoal.actors import Backoff, ChildSpec, DynamicSupervisor, Supervisor, Worker
from shoal.errors import ChildSpecInvalid, RestartsExhausted, RunInterrupted, RunNotFound
from shoal.providers import Request, offline
from shoal.runtime import Swarm, agent, tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

PLAIN = blueprint(stage(available_tools=()))


async def fail() -> None:
    raise RuntimeError("broken")


def hello(request: Request) -> str:
    return "hello"


def defective(request: Request) -> str:
    raise ZeroDivisionError("a defect")


@asynccontextmanager
async def swarm_with(tree: Supervisor | DynamicSupervisor, script: object = hello) -> AsyncIterator[Swarm]:
    async with swarm_of(ScriptedProvider(script=script)) as swarm:  # type: ignore[arg-type]
        await swarm.start(tree)
        yield swarm


async def test_an_agent_that_is_added_to_a_tree_at_run_time_runs_in_its_swarm():
    tree = Supervisor("team")
    async with swarm_with(tree) as swarm:
        await tree.start_child(agent("late", blueprint=PLAIN, task="x"))
        assert (await swarm.runs()[0].result()).output == "hello"


async def test_agents_may_be_the_children_of_a_dynamic_supervisor():
    tree = DynamicSupervisor("team")
    async with swarm_with(tree) as swarm:
        for number in range(3):
            await tree.start_child(agent(f"agent-{number}", blueprint=PLAIN, task="x"))
        assert [(await run.result()).status for run in swarm.runs()] == ["complete"] * 3


async def test_what_an_agent_was_in_the_middle_of_ends_where_it_is_started_afresh():
    spec = agent("one", blueprint=PLAIN, task="x", resume="fresh", max_restarts=1, within_s=60.0)
    async with swarm_with(Supervisor("team", children=[spec]), defective) as swarm:
        await anyio.sleep(1)
        first, second = swarm.runs()
        assert (first.status, second.status) == ("cancelled", "running")
        [ended] = payloads(list(swarm.journal.read(first.run_id)), "RunEnded")
        assert ended.reason == "it crashed, and its supervisor started the agent afresh"


async def test_an_agent_that_spent_a_budget_of_its_own_ends_alone():
    spec = agent("one", blueprint=PLAIN, task="x", max_restarts=0, within_s=60.0)
    tree = Supervisor("team", children=[spec, Worker("other", anyio.sleep_forever)])
    async with swarm_with(tree, defective) as swarm:
        await anyio.sleep(1)
        assert [(child.state, child.restarts) for child in tree.children()] == [("gave_up", 0), ("running", 0)]
        assert swarm.healthy


async def test_an_agent_waits_between_its_restarts_as_its_tree_says():
    tree = Supervisor(
        "team",
        max_restarts=9,
        within_s=60.0,
        backoff=Backoff(initial=10.0, jitter=0.0),
        children=[agent("one", blueprint=PLAIN, task="x")],
    )
    async with swarm_with(tree, defective):
        await anyio.sleep(5)
        [child] = tree.children()
        assert (child.state, child.retry_in_s) == ("restarting", pytest.approx(5, abs=0.5))


async def test_a_nested_supervisor_that_gives_up_carries_its_history_out_of_the_swarm():
    inner = Supervisor("inner", max_restarts=1, children=[Worker("w", fail)])
    with pytest.raises(RestartsExhausted) as gave_up:
        async with swarm_with(Supervisor("outer", max_restarts=0, children=[inner])):
            await anyio.sleep_forever()
    assert [event.kind for event in gave_up.value.history if event.error] == ["exited", "gave_up"]
    below = gave_up.value.__cause__
    assert isinstance(below, RestartsExhausted)
    assert [event.child for event in below.history if event.kind == "exited"] == ["w", "w"]
    assert isinstance(below.__cause__, RuntimeError)


async def test_a_nested_supervisor_that_gives_up_where_it_is_transient_ends_for_good():
    inner = Supervisor("inner", max_restarts=0, children=[Worker("w", fail)])
    outer = Supervisor("outer", children=[ChildSpec("inner", inner, restart="transient")])
    async with swarm_with(outer) as swarm:
        await anyio.sleep(1)
        assert (inner.status, outer.status, swarm.healthy) == ("gave_up", "running", True)


async def test_a_swarm_whose_own_root_gives_up_says_so_and_never_looks_alive():
    with pytest.raises(RestartsExhausted) as gave_up:  # noqa: PT012 - leaving the block raises
        async with swarm_of(ScriptedProvider(), services={"doomed": fail}) as swarm:
            try:
                await anyio.sleep_forever()
            finally:
                assert not swarm.healthy
    assert gave_up.value.child == "services"


async def test_the_swarm_draws_a_tree_that_was_started_in_it():
    async with swarm_with(Supervisor("team", children=[Worker("w", anyio.sleep_forever)])) as swarm:
        drawn = swarm.tree.render().splitlines()
    [line] = [number for number, text in enumerate(drawn) if "team  supervisor  temporary  running" in text]
    assert "w  worker  permanent  running" in drawn[line + 1]


async def test_who_waits_for_a_run_that_its_tree_starts_again_waits_on():
    slow_starts, lives = iter([0.0, 60.0]), iter([10.0, 1e6])

    async def feed(*, task_status: TaskStatus[None]) -> None:
        await anyio.sleep(next(slow_starts))
        task_status.started()
        await anyio.sleep(next(lives))
        raise OSError("no feed")

    children = [ChildSpec("feed", feed), agent("one", blueprint=PLAIN, task="x")]
    provider = ScriptedProvider(*[Say("done", delay_s=30.0)] * 2, purposes={"titling": "T"})
    async with swarm_of(provider) as swarm:
        await swarm.start(Supervisor("team", strategy="rest_for_one", children=children))
        assert (await swarm.runs()[0].result()).output == "done"


async def test_the_run_of_an_agent_is_found_by_its_place():
    def team() -> Supervisor:
        desk = Supervisor("desk", children=[agent("a", blueprint=PLAIN, task="x")])
        return Supervisor("team", children=[desk, agent("a b", blueprint=PLAIN, task="y")])

    async with swarm_of(ScriptedProvider(*["done"] * 9, purposes={"titling": "T"})) as swarm:
        started = await swarm.start(team())
        first = swarm.run_of("team/desk/a")
        assert (first.region("task"), swarm.run_of("team/a b").region("task")) == ("x", "y")
        await first.result()
        await started.stop()
        await swarm.start(team())
        assert swarm.run_of("team/desk/a").run_id != first.run_id


async def test_a_place_without_an_agent_is_told_with_those_that_have_one():
    tree = Supervisor("team", children=[agent("a b", blueprint=PLAIN, task="x")])
    async with swarm_of(ScriptedProvider("done", purposes={"titling": "T"})) as swarm:
        with pytest.raises(RunNotFound, match="no agent had a run at 'team/a'; this journal has none"):
            swarm.run_of("team/a")
        await swarm.start(tree)
        with pytest.raises(RunNotFound, match="at 'team/a'; this journal has `team/a b`"):
            swarm.run_of("team/a")


async def test_a_word_that_says_no_way_to_resume_is_refused():
    with pytest.raises(ChildSpecInvalid, match="agent 'a': `resume` is 'frsh'; take `journal` or `fresh`"):
        agent("a", blueprint=PLAIN, resume="frsh")  # type: ignore[arg-type]


async def test_an_observer_is_shown_what_happens_in_its_tree_and_nothing_else():
    seen: list[str] = []

    async def flaky() -> None:
        await anyio.sleep(1)
        raise OSError("no luck")

    inner = Supervisor("inner", max_restarts=1, children=[Worker("flaky", flaky)])
    tree = Supervisor("team", max_restarts=0, children=[inner])
    other = Supervisor("team-b", max_restarts=0, children=[Worker("flaky", flaky)])
    async with swarm_of(offline()) as swarm:
        started = await swarm.start(
            tree, critical=False, observer=lambda event: seen.append(f"{event.supervisor}/{event.child} {event.kind}")
        )
        await swarm.start(other, critical=False)
        with pytest.raises(RestartsExhausted):
            await started.wait()
    assert [each for each in seen if each.endswith(("started", "restarting", "gave_up"))] == [
        "/swarm/runs/team/inner/flaky started",
        "/swarm/runs/team/inner started",
        "/swarm/runs/team/inner/flaky restarting",
        "/swarm/runs/team/inner/flaky started",
        "/swarm/runs/team/inner/flaky gave_up",
        "/swarm/runs/team/inner gave_up",
    ]
    assert not [each for each in seen if "/team-b" in each]


async def test_who_waits_for_a_run_of_a_tree_that_is_stopped_is_told():
    tree = Supervisor("team", children=[agent("one", blueprint=PLAIN, task="x")])
    async with swarm_of(ScriptedProvider(Say("late", delay_s=600.0))) as swarm:
        started = await swarm.start(tree)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(started.stop)
            with pytest.raises(RunInterrupted):
                await swarm.runs()[0].result()


async def test_a_tree_that_is_stopped_is_over_and_its_runs_can_be_resumed():
    tree = Supervisor("team", children=[agent("one", blueprint=PLAIN, task="x")])

    def slow(request: Request) -> Say:
        return Say("hello", delay_s=10.0)

    async with swarm_of(ScriptedProvider(script=slow)) as swarm:
        started = await swarm.start(tree)
        await anyio.sleep(1)
        assert repr(started) == "<Started <Supervisor 'team' running, 1 children>>"
        await started.stop()
        await started.stop()
        assert ((await started.wait()).kind, started.healthy, swarm.healthy) == ("shutdown", True, True)
        assert swarm.runs()[0].status == "interrupted"
        resumed = await swarm.resume_tree(swarm.runs()[0].run_id)
        assert (await resumed.result()).output == "hello"


async def test_an_agent_that_is_stopped_with_its_group_goes_on_with_its_functions():
    crashes = [True]

    @tool(reads=True)
    async def look() -> str:
        """Look around."""
        return "seen"

    def script(request: Request) -> object:
        said = [message for segment in request.messages for message in segment.messages]
        return Say("the end", delay_s=10.0) if any(m.role == "tool" for m in said) else call("look")

    async def crash_once() -> None:
        await anyio.sleep(5)
        if crashes and crashes.pop():
            raise RuntimeError("broken")
        await anyio.sleep_forever()

    made = blueprint(stage(available_tools=("look",)))
    one = agent("one", blueprint=made, task="x", tools=[look])
    tree = Supervisor("team", strategy="one_for_all", children=[one, Worker("w", crash_once)])
    async with swarm_of(ScriptedProvider(script=script)) as swarm:  # type: ignore[arg-type]
        await swarm.start(tree)
        await anyio.sleep(7)
        assert [run.status for run in swarm.runs()] == ["running"]
        assert (await swarm.runs()[0].result()).output == "the end"


@pytest.mark.parametrize("paused", [False, True], ids=["at work", "paused"])
async def test_an_agent_that_is_cancelled_leaves_nothing_under_way(paused: bool):
    at_work: list[str] = []

    @tool(reads=True)
    async def look() -> str:
        """Look for long."""
        at_work.append("look")
        try:
            await anyio.sleep(20)
        finally:
            at_work.remove("look")
        return "seen"

    made = blueprint(stage(available_tools=("look",)))
    tree = Supervisor("team", children=[agent("one", blueprint=made, task="x", tools=[look])])
    async with swarm_with(tree, lambda _request: call("look")) as swarm:
        [run] = swarm.runs()
        await anyio.sleep(5)
        assert at_work == ["look"]
        if paused:
            await run.pause()
            await anyio.sleep(60)
        await run.cancel()
        assert (run.status, at_work, dict(swarm.hall.home.live)) == ("cancelled", [], {})
        await anyio.sleep(1)
        assert [child.state for child in tree.children()] == ["finished"]


async def test_an_agent_may_end_itself():
    runs: list[object] = []

    @tool
    async def leave() -> str:
        """Cancel the run that calls this."""
        await runs[0].cancel("enough")  # type: ignore[attr-defined]
        return "left"

    made = blueprint(stage(available_tools=("leave",)))
    tree = Supervisor("team", children=[agent("one", blueprint=made, task="x", tools=[leave])])
    async with swarm_of(ScriptedProvider(script=lambda _request: call("leave"))) as swarm:
        await swarm.start(tree)
        runs.append(swarm.runs()[0])
        await anyio.sleep(5)
        assert (swarm.runs()[0].status, dict(swarm.hall.home.live)) == ("cancelled", {})
