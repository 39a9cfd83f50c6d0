"""A run whose record is damaged goes on from the last good event, does nothing again by itself, and is told."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from journalkit import changed
from runkit import blueprint, events_of, kinds, payloads, sent, stage, swarm_of

from shoal.blueprints import FanOut, InteractionPoint, Nudge
from shoal.errors import JournalDamaged, JournalFailed, StartFailed
from shoal.providers import Request
from shoal.runtime import Event, Limits, MemoryJournal, SqliteJournal, tool
from shoal.runtime._mending import mended
from shoal.runtime.events import RunEnded
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

done: list[str] = []


@tool(writes=True)
async def touch(name: str) -> str:
    """Touch a file."""
    done.append(name)
    return f"touched {name}"


MADE = blueprint(stage(available_tools=("touch", "context_append"), nudge=Nudge(enabled=False)))


def plays(*replies: object) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "T"})  # type: ignore[arg-type]


async def left_behind(path: Path) -> list[Event]:
    """Leave a run behind that has called its tool once and waits for a reply, and return its events."""
    done.clear()
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(plays(call("touch", name="a"), Say("late", delay_s=1e5)), journal=journal) as swarm:
            run = await swarm.spawn(MADE, task="x", tools=(touch,))
            await anyio.sleep(10)
            return events_of(swarm, run)


def seq_of(events: list[Event], kind: str) -> int:
    return next(event.seq for event in events if event.kind == kind)


def damage(path: Path, seq: int) -> None:
    changed(path, f"UPDATE events SET payload = x'00' WHERE seq = {seq}")


async def go_on(path: Path, provider: ScriptedProvider) -> tuple[str, list[Event]]:
    """Resume the run, and return its status and its events."""
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(provider, journal=journal, seed=1) as swarm:
            run = await swarm.resume_tree(swarm.runs()[0].run_id, tools=(touch,))
            return (await run.result()).status, events_of(swarm, run)


@pytest.mark.parametrize("torn", ["InferenceStarted", "InferenceCompleted", "ToolCallStarted", "ToolCallCompleted"])
async def test_a_run_goes_on_from_the_event_before_the_damage(tmp_path: Path, torn: str):
    path = tmp_path / "runs.db"
    seq = seq_of(before := await left_behind(path), torn)
    damage(path, seq)
    status, events = await go_on(path, plays("looked"))
    assert status == "complete"
    assert events[: seq - 1] == before[: seq - 1]
    assert kinds(events[seq - 1 :])[0] == "RunResumed"


async def test_a_call_that_may_have_begun_behind_the_damage_is_not_run_again(tmp_path: Path):
    path = tmp_path / "runs.db"
    damage(path, seq_of(await left_behind(path), "ToolCallStarted"))
    _, events = await go_on(path, plays("looked"))
    assert done == ["a"]
    assert [result.interrupted for result in payloads(events, "ToolCallCompleted")] == [True]


async def test_the_model_is_told_what_was_damaged(tmp_path: Path):
    path = tmp_path / "runs.db"
    seq = seq_of(await left_behind(path), "ToolCallCompleted")
    damage(path, seq)
    await go_on(path, provider := plays("looked"))
    asked = [request for request in provider.requests if request.purpose == "stage"]
    assert f"was damaged from event {seq} on" in sent(asked[0])


async def test_what_was_set_aside_stays_in_the_file(tmp_path: Path):
    path = tmp_path / "runs.db"
    before = await left_behind(path)
    seq = seq_of(before, "ToolCallStarted")
    damage(path, seq)
    with closing(SqliteJournal(path)) as journal:
        journal.set_aside(before[0].run_id, seq)
        kept = journal._query("SELECT seq FROM events WHERE run < 0 ORDER BY seq")
    assert [row[0] for row in kept] == list(range(seq, len(before) + 1))


async def test_the_register_says_what_is_left(tmp_path: Path):
    path = tmp_path / "runs.db"
    before = await left_behind(path)
    with closing(SqliteJournal(path)) as journal:
        journal.set_aside(before[0].run_id, 2)
        row = journal.find(before[0].run_id)
    assert (row.events, row.stage, row.title, row.status) == (1, None, None, "running")


async def test_a_run_may_be_damaged_twice(tmp_path: Path):
    path = tmp_path / "runs.db"
    before = await left_behind(path)
    with closing(SqliteJournal(path)) as journal:
        for seq in (9, 5):
            journal.set_aside(before[0].run_id, seq)
        assert [event.seq for event in journal.read(before[0].run_id)] == [1, 2, 3, 4]


async def test_a_run_without_a_first_event_cannot_go_on(tmp_path: Path):
    path = tmp_path / "runs.db"
    await left_behind(path)
    damage(path, 1)
    with pytest.raises(JournalDamaged, match="event 1 "):
        await go_on(path, plays())


async def test_a_run_without_the_event_that_says_its_stage_cannot_go_on(tmp_path: Path):
    path = tmp_path / "runs.db"
    await left_behind(path)
    damage(path, 2)
    with pytest.raises(JournalDamaged, match="event 2 "):
        await go_on(path, plays())


async def test_children_that_only_the_damaged_part_knew_of_are_cancelled(tmp_path: Path):
    path = tmp_path / "runs.db"
    lead = blueprint(
        stage("split", mode="fan_out", fan_out=FanOut(worker_stage="read", results_region="notes"), transitions=()),
        stage("read", mode="output"),
    )

    def answer(request: Request) -> object:
        offered = {spec.name for spec in request.tools.specs}
        return call("fan_out", items=[{"id": "a", "seeds": {"task": "a"}}]) if "fan_out" in offered else hangs

    hangs = Say("late", delay_s=1e5)
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(ScriptedProvider(script=answer), journal=journal) as swarm:  # type: ignore[arg-type]
            run = await swarm.spawn(lead, task="x")
            await anyio.sleep(10)
            seq = seq_of(events_of(swarm, run), "ChildSpawned")
    changed(path, f"UPDATE events SET payload = x'00' WHERE seq = {seq} AND run = 1")
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(ScriptedProvider(script=answer), journal=journal, seed=1) as swarm:  # type: ignore[arg-type]
            await swarm.resume_tree(run.run_id)
            await anyio.sleep(10)
            assert [row.status for row in journal.runs()] == ["running", "cancelled", "running"]


async def test_a_journal_that_cannot_be_mended_says_so(tmp_path: Path):
    path = tmp_path / "runs.db"
    before = await left_behind(path)
    with closing(SqliteJournal(path)) as journal:
        journal._writing.execute("PRAGMA query_only = 1")
        with pytest.raises(JournalFailed, match="cannot be mended"):
            journal.set_aside(before[0].run_id, 4)
        journal._writing.execute("PRAGMA query_only = 0")


async def test_a_journal_in_memory_can_be_gone_on_with_earlier_too():
    journal = MemoryJournal()
    async with swarm_of(plays("hello"), journal=journal) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=())), task="x")
        await run.result()
    journal.set_aside(run.run_id, 3)
    assert (journal.find(run.run_id).events, journal.find(run.run_id).status) == (2, "running")
    assert [event.seq for event in journal.read(run.run_id)] == [1, 2]


@pytest.mark.parametrize("seq", [None, 1])
async def test_damage_with_no_good_event_before_it_cannot_be_mended(seq: int | None):
    async with swarm_of(plays()) as swarm:
        with pytest.raises(JournalDamaged, match="torn"):
            mended(swarm.hall.home, "r", JournalDamaged("torn", run_id="r", seq=seq))


async def test_a_run_that_cannot_be_read_back_after_a_crash_is_not_tried_without_end():
    loads: list[str] = []

    def crashing(request: Request) -> str:
        raise ZeroDivisionError("a defect")

    def load(run_id: str) -> None:
        loads.append(run_id)
        raise ValueError("another defect")

    async with swarm_of(ScriptedProvider(script=crashing)) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=())), task="x")
        swarm.hall.home.load = load  # type: ignore[assignment,method-assign]
        outcome = await run.result()
        assert (outcome.status, outcome.flags) == ("error", {"unreadable": 1})
        assert "it crashed and cannot be taken up again (ValueError: another defect); it crashed with" in outcome.reason
        assert "a defect" in outcome.reason
        assert (loads, swarm.healthy) == ([run.run_id], True)


async def test_a_run_that_cannot_be_read_back_is_not_resumed(tmp_path: Path):
    path = tmp_path / "runs.db"
    await left_behind(path)

    def load(run_id: str) -> None:
        raise ValueError("a defect")

    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(plays(), journal=journal) as swarm:
            swarm.hall.home.load = load  # type: ignore[assignment,method-assign]
            with pytest.raises(StartFailed) as caught:
                await swarm.resume_tree(swarm.runs()[0].run_id, tools=(touch,))
    assert isinstance(caught.value.__cause__, ValueError)


# --- children that cannot be read


LEAD = blueprint(
    stage(
        "split", mode="fan_out", fan_out=FanOut(worker_stage="read", results_region="notes"), nudge=Nudge(enabled=False)
    ),
    stage("read", mode="output", available_tools=(), allow_as_worker=True),
    stage("merge", available_tools=()),
    entry_stage="split",
)


def leads(*, worker: object) -> ScriptedProvider:
    """Hand out two items, let each *worker* say what it says, and merge."""

    def answer(request: Request) -> object:
        offered = {spec.name for spec in request.tools.specs}
        if "fan_out" in offered:
            return call("fan_out", items=[{"id": name, "seeds": {"task": name}} for name in "ab"])
        return "merged" if "(complete)" in sent(request) else worker

    return ScriptedProvider(script=answer)  # type: ignore[arg-type]


async def handed_out(path: Path) -> tuple[str, str, str]:
    """Leave a run behind that waits for two children, and return its id and theirs."""
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(leads(worker=Say("late", delay_s=1e5)), journal=journal) as swarm:
            await swarm.spawn(LEAD, task="x")
            await anyio.sleep(10)
            run, one, other = (row.run_id for row in journal.runs())
            return run, one, other


@pytest.mark.parametrize("seq", [1, 2])
async def test_a_child_that_cannot_be_read_ends_alone_and_its_parent_is_told(tmp_path: Path, seq: int):
    path = tmp_path / "runs.db"
    run, one, other = await handed_out(path)
    changed(path, f"UPDATE events SET payload = x'00' WHERE seq = {seq} AND run = 2")
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(leads(worker="said"), journal=journal, seed=1) as swarm:
            resumed = await swarm.resume_tree(run)
            assert (await resumed.result()).output == "merged"
            ended = {each.child: each.status for each in payloads(events_of(swarm, resumed), "ChildEnded")}
            assert ended == {one: "error", other: "complete"}
            lost = await swarm.get(one).result()
            assert "cannot be read" in lost.reason
            assert journal.find(one).status == "error"
    with closing(SqliteJournal(path, host="third")) as journal:
        async with swarm_of(leads(worker="said"), journal=journal, seed=2) as swarm:
            assert await swarm.get(one).result() == lost


async def test_a_child_that_was_over_and_cannot_be_read_counts_as_failed(tmp_path: Path):
    path = tmp_path / "runs.db"
    run, one, other = await handed_out(path)
    with closing(SqliteJournal(path)) as journal:
        seq = journal.find(one).events + 1
        journal.append(Event(one, seq, 1.8e9, RunEnded("complete", "over")))
    changed(path, f"UPDATE events SET payload = x'00' WHERE seq = {seq - 1} AND run = 2")
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(leads(worker="said"), journal=journal, seed=1) as swarm:
            resumed = await swarm.resume_tree(run)
            assert (await resumed.result()).output == "merged"
            ended = {each.child: each.status for each in payloads(events_of(swarm, resumed), "ChildEnded")}
            assert ended == {one: "error", other: "complete"}


async def test_a_child_of_a_child_that_cannot_be_read_is_cancelled(tmp_path: Path):
    path = tmp_path / "runs.db"
    run, one, other = await handed_out(path)
    changed(path, "UPDATE events SET payload = x'00' WHERE seq = 1 AND run = 2")
    changed(path, f"UPDATE runs SET parent = '{one}' WHERE run = 3")
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(leads(worker="said"), journal=journal, seed=1) as swarm:
            await swarm.resume_tree(run)
            await anyio.sleep(5)
            assert journal.find(other).status == "cancelled"


async def test_a_run_below_one_that_cannot_be_read_is_not_resumed_alone(tmp_path: Path):
    path = tmp_path / "runs.db"
    _, one, _ = await handed_out(path)
    changed(path, "UPDATE events SET payload = x'00' WHERE seq = 1 AND run = 1")
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(leads(worker="said"), journal=journal, seed=1) as swarm:
            with pytest.raises(JournalDamaged):
                await swarm.resume_tree(one)
            assert [row.status for row in journal.runs()] == ["running"] * 3


async def test_a_sleeping_child_that_cannot_be_read_when_it_wakes_ends_and_its_parent_is_told(tmp_path: Path):
    path = tmp_path / "runs.db"
    asks = blueprint(stage(available_tools=(), interaction_points=(InteractionPoint("go", "Go?", style="confirm"),)))
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(plays("one", "two"), journal=journal, limits=Limits(idle_s=30.0)) as swarm:
            run = await swarm.spawn(asks, task="x", unattended=False)
            child = await run.spawn(asks, task="y")
            await child.wake_at(swarm.hall.clock.unix() + 500)
            await anyio.sleep(200)
            assert not swarm.hall.home.live
            changed(path, "UPDATE events SET payload = x'00' WHERE seq = 2 AND run = 2")
            await anyio.sleep(600)
            assert (await child.result()).flags == {"unreadable": 1}
            assert [each.status for each in payloads(events_of(swarm, run), "ChildEnded")] == ["error"]


async def test_a_change_of_the_blueprint_that_cannot_be_read_is_behind_where_the_run_goes_on(tmp_path: Path):
    path = tmp_path / "runs.db"
    await left_behind(path)
    louder = replace(MADE, description="louder")
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(plays(Say("late", delay_s=1e5)), journal=journal, seed=1) as swarm:
            run = await swarm.resume_tree(swarm.runs()[0].run_id, tools=(touch,), blueprint=louder)
            seq = seq_of(events_of(swarm, run), "BlueprintChanged")
    damage(path, seq)
    status, events = await go_on(path, plays("looked"))
    assert status == "complete"
    assert "BlueprintChanged" not in kinds(events)
