"""Agents of trees after their process died: the next one with the same tree goes on with what they were doing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from runkit import blueprint, events_of, kinds, payloads, stage, swarm_of
from test_agents import PARENT, cast, child_files, does
from test_control import process, scripted

from shoal.actors import Supervisor
from shoal.errors import StartFailed
from shoal.runtime import Attachment, Event, SpawnRequest, agent, tool
from shoal.runtime._trees import _Agent
from shoal.runtime.events import RunEnded
from shoal.runtime.journal import SqliteJournal
from shoal.testing import Say

pytestmark = pytest.mark.anyio

PLAIN = blueprint(stage(available_tools=()))
SLOW = Say("too late", delay_s=500)


def team(**more: Any) -> Supervisor:
    """Return a tree with one agent."""
    more.setdefault("blueprint", PLAIN)
    more.setdefault("task", "x")
    return Supervisor("team", children=[agent("one", **more)])


async def died(path: Path, **more: Any) -> str:
    """Return the run that a process left behind which died in the middle of its agent's request."""
    async with process(path, "first", scripted(SLOW)) as swarm:
        await swarm.start(team(**more))
        await anyio.sleep(5)
        return swarm.runs()[0].run_id


async def test_an_agent_goes_on_with_what_an_earlier_process_left_behind(tmp_path: Path):
    path = tmp_path / "runs.db"
    left = await died(path)
    async with process(path, "second", scripted("said"), seed=1) as swarm:
        await swarm.start(team())
        [run] = swarm.runs()
        assert (run.run_id, (await run.result()).output) == (left, "said")
        assert [each.by for each in payloads(events_of(swarm, run), "RunResumed")] == ["restart"]


async def test_an_agent_that_is_to_begin_afresh_ends_what_was_left_behind(tmp_path: Path):
    path = tmp_path / "runs.db"
    await died(path, resume="fresh")
    async with process(path, "second", scripted("said"), seed=1) as swarm:
        await swarm.start(team(resume="fresh"))
        left, run = swarm.runs()
        assert (await run.result()).output == "said"
        [ended] = payloads(events_of(swarm, left), "RunEnded")
        assert ended.reason == "its process died, and its supervisor started the agent afresh"


async def test_an_agent_whose_run_is_over_is_spawned_anew(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with process(path, "first", scripted("one")) as swarm:
        await swarm.start(team())
        await swarm.runs()[0].result()
    async with process(path, "second", scripted("two"), seed=1) as swarm:
        await swarm.start(team())
        assert [(await run.result()).output for run in swarm.runs()] == ["one", "two"]


@pytest.mark.parametrize(
    "other",
    [{"task": "y"}, {"model": "scripted:other"}, {"blueprint": blueprint(stage(available_tools=()), version="2")}],
    ids=["task", "model", "version"],
)
async def test_an_agent_is_known_by_what_it_is_asked_and_not_by_how_its_blueprint_was_edited(
    tmp_path: Path, other: dict[str, Any]
):
    path = tmp_path / "runs.db"
    await died(path)
    async with process(path, "second", scripted("said"), seed=1) as swarm:
        await swarm.start(team(**other))
        assert len(swarm.runs()) == (1 if "blueprint" in other else 2)


async def test_seeds_and_parts_tell_agents_apart(tmp_path: Path):
    path = tmp_path / "runs.db"
    made = [{"task": "x", "seeds": {"task": [each, b"and"]}} for each in (Attachment(b"1", "a"), Attachment(b"2", "a"))]
    agents = [agent("one", blueprint=PLAIN, seeds=each["seeds"]) for each in made]  # type: ignore[arg-type]
    async with process(path, "first", scripted(SLOW, SLOW)) as swarm:
        await swarm.start(Supervisor("team", children=[agents[0]]))
    async with process(path, "second", scripted(SLOW), seed=1) as swarm:
        await swarm.start(Supervisor("team", children=[agents[1]]))
        assert len(swarm.runs()) == 2


async def test_an_agent_leaves_the_run_of_another_process_that_lives_alone(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with (
        process(path, "first", scripted(SLOW)) as first,
        process(path, "second", scripted("said"), seed=1) as second,
    ):
        await first.start(team())
        await anyio.sleep(1)
        await second.start(team())
        theirs, ours = second.runs()
        assert (await ours.result()).output == "said"
        assert theirs.status == "running"


async def test_children_of_an_agent_are_taken_up_with_it(tmp_path: Path):
    path, asks = tmp_path / "runs.db", does("spawn_agent", blueprint=child_files(tmp_path), task="t", wait=True)
    async with process(path, "first", cast([asks], [SLOW])) as swarm:
        await swarm.start(team(blueprint=PARENT))
        await anyio.sleep(5)
        assert [run.status for run in swarm.runs()] == ["running", "running"]
    async with process(path, "second", cast(["heard"], ["said"]), seed=1) as swarm:
        await swarm.start(team(blueprint=PARENT))
        parent, child = swarm.runs()
        assert ((await child.result()).output, (await parent.result()).output) == ("said", "heard")
        assert [each.by for each in payloads(events_of(swarm, child), "RunResumed")] == ["restart"]


async def test_a_child_whose_parent_was_over_is_cancelled(tmp_path: Path):
    path, asks = tmp_path / "runs.db", does("spawn_agent", blueprint=child_files(tmp_path), task="t", wait=True)
    async with process(path, "first", cast([asks], [SLOW])) as swarm:
        await swarm.start(team(blueprint=PARENT))
        await anyio.sleep(5)
        ran = swarm.runs()[1]
        first, *more = events_of(swarm, ran)
    orphan = msgspec.structs.replace(first.payload, parent=ran.run_id, depth=2)  # type: ignore[type-var]
    with closing(SqliteJournal(path)) as journal:
        journal.append(Event("orphan", 1, first.at, orphan))  # type: ignore[arg-type]
        for event in more:
            journal.append(Event("orphan", event.seq, event.at, event.payload))
        journal.append(Event(ran.run_id, journal.find(ran.run_id).events + 1, first.at, RunEnded("complete", "over")))
    async with process(path, "second", cast(["heard"], []), seed=1) as swarm:
        await swarm.start(team(blueprint=PARENT))
        assert swarm.get("orphan").status == "cancelled"
        assert (await swarm.runs()[0].result()).output == "heard"


async def test_an_agent_that_was_paused_stays_paused_until_somebody_resumes_it(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with process(path, "first", scripted(SLOW)) as swarm:
        await swarm.start(team())
        await anyio.sleep(5)
        await swarm.runs()[0].pause()
    async with process(path, "second", scripted("said"), seed=1) as swarm:
        await swarm.start(team())
        [run] = swarm.runs()
        assert run.status == "paused"
        await run.resume()
        assert (await run.result()).output == "said"


async def test_a_function_that_is_not_given_again_fails_the_start_and_is_named(tmp_path: Path):
    @tool
    async def count() -> int:
        """Count."""
        return 7

    path = tmp_path / "runs.db"
    left = await died(path, tools=[count])
    async with process(path, "second", seed=1) as swarm:
        with pytest.raises(StartFailed) as failed:
            await swarm.start(team(), critical=False)
        assert "the functions `count` as tools; give them again" in str(failed.value)
        assert swarm.journal.find(left).host is None


async def test_an_agent_whose_run_was_resumed_by_hand_does_not_live_twice(tmp_path: Path):
    path = tmp_path / "runs.db"
    left = await died(path)
    async with process(path, "second", scripted(SLOW), seed=1) as swarm:
        await swarm.resume_tree(left)
        with pytest.raises(StartFailed, match="goes on already"):
            await swarm.start(team(), critical=False)
        assert len(swarm.runs()) == 1


async def test_a_tree_that_was_stopped_and_is_started_again_goes_on(tmp_path: Path):
    async with process(tmp_path / "runs.db", "first", scripted(SLOW, "said")) as swarm:
        started = await swarm.start(team())
        await anyio.sleep(5)
        await started.stop()
        await swarm.start(team())
        [run] = swarm.runs()
        assert (await run.result()).output == "said"


async def test_an_agent_that_restarts_over_and_over_gets_a_run_each_time(tmp_path: Path):
    async with process(tmp_path / "runs.db", "first", scripted("one", "two", "three", SLOW)) as swarm:
        tree = Supervisor(
            "team", max_restarts=3, children=[agent("one", blueprint=PLAIN, task="x", restart="permanent")]
        )
        await swarm.start(tree)
        await anyio.sleep(5)
        assert [str(row.key)[-6:] for row in swarm.journal.runs()] == ["000001", "000002", "000003", "000004"]
        assert kinds(events_of(swarm, swarm.runs()[0]))[-1] == "RunEnded"


async def test_an_agent_whose_next_place_another_process_has_just_taken_takes_the_one_behind(tmp_path: Path):
    async with process(tmp_path / "runs.db", "first", scripted("one", "two")) as swarm:
        spec = agent("one", blueprint=PLAIN, task="x")
        await swarm.start(Supervisor("team", children=[spec]))
        await swarm.runs()[0].result()
        place = str(swarm.journal.runs()[0].key)[: -len("000001")]
        late = _Agent("one", SpawnRequest(PLAIN, task="x"), afresh=False)
        await late._spawn(swarm.hall, place)
        assert [row.key for row in swarm.journal.keyed(place)] == [f"{place}000002", f"{place}000001"]


async def test_a_tree_may_be_started_again_in_another_swarm_on_another_journal():
    tree = team()
    for said in ("one", "two"):
        async with swarm_of(scripted(said)) as swarm:
            await swarm.start(tree)
            [run] = swarm.runs()
            assert (await run.result()).output == said
