"""Forks: a copy of a run goes on from any of its events, made of what the run was made of."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runkit import blueprint, edge, events_of, kinds, payloads, stage, stages_of, swarm_of, write_files

from shoal.blueprints import FanOut, Gate, Nudge
from shoal.errors import DefinitionMissing, RunNotFound, SpawnRefused
from shoal.providers import Request, Text, offline
from shoal.runtime import Event, SqliteJournal, Swarm, tool
from shoal.runtime._fork import rests
from shoal.runtime.events import MessageReceived, Nudged, RunEnded, RunPaused, ToolCallCompleted, ToolCallStarted
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)
TWO = blueprint(stage("a", transitions=(edge("b"),), nudge=QUIET), stage("b", available_tools=()))


def plays(*replies: object) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "T"})  # type: ignore[arg-type]


def seq_of(events: Sequence[Event], kind: str) -> int:
    return next(event.seq for event in events if event.kind == kind)


async def test_a_fork_begins_with_the_history_and_goes_on_by_itself():
    provider = plays(call("context_append", region="notes", content="n"), "one", "two", "other one", "other two")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(TWO, task="x")
        first = await run.result()
        asked = [p for p in events_of(swarm, run) if p.kind == "InferenceStarted" and p.payload.purpose == "stage"]
        at = asked[1].seq - 1
        fork = await run.fork(at=at)
        second = await fork.result()
        copied = events_of(swarm, fork)
        assert [event.payload for event in copied[1:at]] == [e.payload for e in events_of(swarm, run)[1:at]]
        assert fork.region("notes") == "n"
    assert (first.output, second.output) == ("two", "other two")
    assert copied[at].payload.by == "fork"
    assert [event.seq for event in copied] == list(range(1, len(copied) + 1))


async def test_the_run_itself_is_left_as_it_is():
    async with swarm_of(plays("one", "two", "three", "four")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.result()
        before = events_of(swarm, run)
        fork = await swarm.fork(run.run_id)
        await fork.result()
        assert events_of(swarm, run) == before
        assert fork.run_id != run.run_id
        assert swarm.row(fork.run_id).root == fork.run_id


async def test_a_fork_says_what_it_was_copied_from():
    async with swarm_of(plays("one", "two", "three")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.result()
        fork = await run.fork()
        copied = seq_of(events_of(swarm, fork), "RunResumed") - 1
        [spawned] = payloads(events_of(swarm, fork), "RunSpawned")
        assert spawned.forked_from == (run.run_id, copied)


async def test_what_is_copied_is_billed_once():
    async with swarm_of(plays("one", "two", "three")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.result()
        before = swarm.ledger().total
        fork = await run.fork()
        outcome = await fork.result()
        assert swarm.ledger().total.calls == before.calls + 1
        assert swarm.ledger(fork.run_id).total.usage == outcome.usage
        assert fork.ledger().stages["b"].seconds >= 0


async def test_observers_are_not_shown_the_copied_history():
    shown: list[Event] = []
    async with swarm_of(plays("one", "two", "three"), observers=[shown.append]) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.result()
        fork = await run.fork()
        await fork.result()
    news = [event for event in shown if event.run_id == fork.run_id]
    assert news[0].kind == "RunResumed"
    assert [event.seq for event in news] == list(range(news[0].seq, news[-1].seq + 1))


async def test_a_fork_of_a_fork_is_one_too():
    async with swarm_of(plays("one", "two", "three", "four")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.result()
        fork = await run.fork()
        await fork.result()
        again = await fork.fork()
        assert (await again.result()).output == "four"
        assert swarm.ledger(again.run_id).total.calls == 1


async def test_a_run_that_lives_is_forked_while_it_goes_on():
    async with swarm_of(plays(Say("one", delay_s=100), Say("one", delay_s=100), "two", "two")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await anyio.sleep(50)
        fork = await run.fork()
        assert [(await each.result()).status for each in (run, fork)] == ["complete", "complete"]


async def test_a_paused_run_goes_on_in_its_fork():
    async with swarm_of(plays(Say("one", delay_s=10), "two")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.pause()
        await anyio.sleep(60)
        fork = await run.fork()
        assert (await fork.result()).output == "two"
        assert run.status == "paused"


async def test_a_tool_that_had_not_begun_is_run_in_the_fork():
    done: list[str] = []

    @tool(writes=True)
    async def touch(name: str) -> str:
        """Touch a file."""
        done.append(name)
        return f"touched {name}"

    made = blueprint(stage(available_tools=("touch",), nudge=QUIET))
    async with swarm_of(plays(call("touch", name="a"), "done", "done again")) as swarm:
        run = await swarm.spawn(made, task="x", tools=(touch,))
        await run.result()
        fork = await run.fork(at=seq_of(events_of(swarm, run), "ToolCallStarted"), tools=(touch,))
        assert (await fork.result()).output == "done again"
        assert done == ["a", "a"]
        with pytest.raises(DefinitionMissing, match="`touch`"):
            await run.fork()


@pytest.mark.parametrize("at", [0, -1, 10_000])
async def test_a_fork_at_an_event_that_is_not_there_is_refused(at: int):
    async with swarm_of(plays("one", "two")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.result()
        with pytest.raises(RunNotFound, match=f"has no event {at}; its last is "):
            await run.fork(at=at)
        assert len(swarm.runs()) == 1


async def test_a_fork_at_the_first_event_begins_where_the_run_began():
    async with swarm_of(plays("one", "two", "other one", "other two")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.result()
        fork = await run.fork(at=1)
        assert (await fork.result()).output == "other two"
        assert stages_of(events_of(swarm, fork)) == ["a", "b"]


async def test_a_fork_is_made_of_what_the_run_was_made_of_whatever_became_of_the_files(tmp_path: Path):
    folder = write_files(tmp_path / "work", {"a.md": "Ants are small.\n"})
    path = tmp_path / "runs.db"
    mine = write_files(
        tmp_path / "mine",
        {
            "blueprint.toml": """
[agent]
name = "mine"
[context.regions]
task = { kind = "pinned", max_tokens = 200, seed = "task_input" }
[stages.first]
system_prompt = "As it was."
available_tools = []
[[stages.first.offline.policy]]
say = "as it was"
"""
        },
    )
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(offline(), journal=journal) as swarm:
            run = await swarm.spawn(mine, task="x", workdir=folder)
            first = await run.result()
    text = (mine / "blueprint.toml").read_text()
    (mine / "blueprint.toml").write_text(text.replace("as it was", "as it is").replace("As it was", "As it is"))
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(offline(), journal=journal, seed=1) as swarm:
            fork = await swarm.fork(run.run_id, at=1)
            second = await fork.result()
            edited = await (await swarm.spawn(mine, task="x", workdir=folder)).result()
    assert (first.output, second.output, edited.output) == ("as it was", "as it was", "as it is")


# --- children


def fanning(delay_s: float) -> ScriptedProvider:
    """Hand two items out; the worker of the second takes its time."""

    def answer(request: Request) -> object:
        offered = {spec.name for spec in request.tools.specs}
        if request.purpose != "stage":
            return "T"
        if "fan_out" in offered:
            return call("fan_out", items=[{"id": item, "seeds": {"task": item}} for item in ("a", "b")])
        if "submit_output" not in offered:
            return "merged"
        assert request.situation is not None
        item = request.situation().regions["task"]
        return Say(calls=(call("submit_output", content=f"did {item}"),), delay_s=delay_s if item == "b" else 0.0)

    return ScriptedProvider(script=answer)  # type: ignore[arg-type]


LEAD = blueprint(
    stage(
        "split",
        mode="fan_out",
        fan_out=FanOut(worker_stage="read", results_region="notes", merge_stage="merge"),
    ),
    stage("merge", available_tools=(), transitions=()),
    stage("read", mode="output", max_iterations=1),
)


async def test_children_that_worked_are_forked_along_and_those_that_had_ended_are_not():
    async with swarm_of(fanning(100.0)) as swarm:
        run = await swarm.spawn(LEAD, task="x")
        await anyio.sleep(50)
        fork = await run.fork()
        assert [(await each.result()).output for each in (run, fork)] == ["merged", "merged"]
        rows = swarm.journal.runs(root=fork.run_id)
        assert [row.parent for row in rows] == [None, fork.run_id]
        spawned = {known.item: known.child for known in payloads(events_of(swarm, fork), "ChildSpawned")}
        assert spawned["b"] == rows[1].run_id
        assert spawned["a"] in {row.run_id for row in swarm.journal.runs(root=run.run_id)}
        assert swarm.get(fork.run_id).region("notes") == run.region("notes")


async def test_a_fork_behind_the_end_of_its_children_reads_of_them():
    async with swarm_of(fanning(0.0)) as swarm:
        run = await swarm.spawn(LEAD, task="x")
        await run.result()
        fork = await run.fork()
        await fork.result()
        assert len(swarm.journal.runs(root=fork.run_id)) == 1
        assert "did a" in fork.region("notes")


async def test_an_agent_is_known_under_its_new_id_in_what_its_parent_reads(tmp_path: Path):
    worker = write_files(
        tmp_path / "worker",
        {
            "blueprint.toml": '[agent]\nname = "worker"\n[context.regions]\ntask = { seed = "task_input" }\n'
            "[stages.only]\navailable_tools = []\n"
        },
    )

    def answer(request: Request) -> object:
        if request.purpose != "stage":
            return "T"
        said = [message for segment in request.messages for message in segment.messages]
        results = [message.text for message in said if message.role == "tool"]
        offered = {spec.name for spec in request.tools.specs}
        if "spawn_agent" not in offered:
            return Say("worked", delay_s=100.0)
        if not results:
            return call("spawn_agent", blueprint=str(worker), task="work")
        if len(results) == 1:
            return call("wait_for_agent", agent_id=results[0].partition("agent ")[2].partition(";")[0])
        return "done" if "worked" in results[1] else results[1]

    lead = blueprint(stage(available_tools=("spawn_agent", "wait_for_agent")))
    async with swarm_of(ScriptedProvider(script=answer)) as swarm:  # type: ignore[arg-type]
        (tmp_path / "work").mkdir()
        run = await swarm.spawn(lead, task="x", workdir=tmp_path / "work")
        await anyio.sleep(50)
        child = swarm.journal.runs(root=run.run_id)[1].run_id
        fork = await run.fork()
        await run.result()
        assert (await fork.result()).output == "done"
        copied = str([event.payload for event in events_of(swarm, fork)])
        assert child not in copied


# --- where a fork can begin


async def outcome_of_each_fork(swarm: Swarm, run_id: str) -> set[tuple[str, str | None, str]]:
    found = set()
    for seq in range(1, swarm.row(run_id).events + 1):
        fork = await swarm.fork(run_id, at=seq)
        outcome = await fork.result()
        found.add((outcome.status, outcome.output, fork.region("notes")))
    return found


async def test_a_fork_behind_any_event_ends_as_the_run_did():
    gated = edge("b", gate=Gate(require_regions=("notes",)))

    def answer(request: Request) -> object:
        if request.purpose != "stage":
            return "T"
        assert request.situation is not None
        seen = request.situation()
        if seen.stage == "a":
            if "notes" in seen.regions:
                return "done"
            said = [message for segment in request.messages for message in segment.messages]
            return call("context_append", region="notes", content="noted") if len(said) > 2 else "too early"
        return "the end"

    made = blueprint(stage("a", transitions=(gated,), nudge=QUIET), stage("b", available_tools=(), transitions=()))
    async with swarm_of(ScriptedProvider(script=answer)) as swarm:  # type: ignore[arg-type]
        run = await swarm.spawn(made, task="x")
        outcome = await run.result()
        assert "GateBlocked" in kinds(events_of(swarm, run))
        assert await outcome_of_each_fork(swarm, run.run_id) == {(outcome.status, outcome.output, "noted")}


async def test_a_fork_of_a_fan_out_behind_any_event_ends_as_the_run_did():
    async with swarm_of(fanning(5.0)) as swarm:
        run = await swarm.spawn(LEAD, task="x")
        outcome = await run.result()
        notes = run.region("notes")
        assert await outcome_of_each_fork(swarm, run.run_id) == {(outcome.status, outcome.output, notes)}


async def test_a_history_of_a_newer_version_is_not_forked(tmp_path: Path):
    path = tmp_path / "runs.db"
    with closing(SqliteJournal(path, host="here")) as journal:
        async with swarm_of(plays("one", "two"), journal=journal) as swarm:
            run = await swarm.spawn(TWO, task="x")
            await run.result()
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("UPDATE events SET kind = 9999 WHERE seq = 5")
            with pytest.raises(SpawnRefused, match="newer version"):
                await run.fork()


@given(st.data())
def test_rests_come_in_order_and_lie_in_the_history(data: st.DataObject):
    drawn = data.draw(
        st.lists(
            st.sampled_from(
                [
                    MessageReceived(Text.of("m")),
                    Nudged("gate", Text.of("n")),
                    RunPaused("p"),
                    ToolCallStarted(1, 0),
                    ToolCallCompleted(1, 0, Text.of("r")),
                    RunEnded("complete", "e"),
                ]
            ),
            min_size=1,
            max_size=12,
        )
    )
    events = [Event("r", seq, float(seq), payload) for seq, payload in enumerate(drawn, 1)]
    for ended in (False, True):
        places = list(rests(events, ended=ended))
        assert places == sorted(places)
        assert all(1 <= place <= len(events) for place in places)
