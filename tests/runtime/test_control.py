"""Steering runs from anywhere: from the process that hosts them, from another one, and with no process at all."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from runkit import TALK, TASK, blueprint, bodies, events_of, kinds, payloads, sent, stage, swarm_of

from shoal.blueprints import Blueprint, FanOut, Nudge, Stage, dumps
from shoal.errors import ConfigInvalid, RunEnded, RunInterrupted, RunIsPaused, RunNotFound
from shoal.providers import Provider, Request, Text, ToolCall
from shoal.runtime import Attachment, Run, SqliteJournal, Swarm, tool
from shoal.runtime.journal import prune
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

PLAIN = blueprint(stage(available_tools=()))
TWO = blueprint(stage("a", available_tools=()), stage("b", available_tools=()))
QUIET = Nudge(enabled=False)


def scripted(*replies: object) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})  # type: ignore[arg-type]


@asynccontextmanager
async def process(path: Path, name: str, *providers: Provider, seed: int = 0) -> AsyncIterator[Swarm]:
    """Open a swarm as another process would: with a host name of its own, and signs of life on virtual time."""
    journal = SqliteJournal(path, host=name)
    async with swarm_of(*(providers or (scripted(),)), journal=journal, seed=seed) as swarm:
        journal.beat(swarm.hall.clock.unix())
        async with anyio.create_task_group() as tasks:

            async def beat() -> None:
                while True:
                    await anyio.sleep(2)
                    journal.beat(swarm.hall.clock.unix())

            tasks.start_soon(beat)
            yield swarm
            tasks.cancel_scope.cancel()
    journal.leave()
    journal.close()


@asynccontextmanager
async def two(path: Path, provider: Provider, made: Blueprint = PLAIN) -> AsyncIterator[tuple[Swarm, Run, Swarm]]:
    """Open a process that hosts a run and one that only looks on."""
    async with process(path, "host", provider) as host:
        run = await host.spawn(made, task="x")
        await anyio.sleep(1)
        async with process(path, "other") as other:
            yield host, run, other


# --- from another process


async def test_a_command_that_its_host_cannot_read_keeps_it_from_no_other(tmp_path: Path):
    async with two(tmp_path / "runs.db", scripted(Say("one", delay_s=60))) as (_, run, other):
        shared = other.journal.shared
        assert shared is not None
        number = shared.post(run.run_id, b'{"type":"dance"}', 0.0)
        await other.pause(run.run_id)
        answer = shared.answer(number)
        assert answer is not None
        assert answer.startswith(f"RunOwned: run {run.run_id} is hosted by a process of another version")


async def test_a_run_is_paused_and_resumed_from_another_process(tmp_path: Path):
    async with two(tmp_path / "runs.db", scripted(Say("one", delay_s=5), "two"), TWO) as (host, run, other):
        await other.pause(run.run_id, "wait for me")
        with pytest.raises(RunIsPaused, match="wait for me"):
            await run.result()
        await other.resume(run.run_id)
        assert (await run.result()).output == "two"
        assert kinds(events_of(host, run), "RunPaused", "RunResumed") == ["RunPaused", "RunResumed"]


async def test_the_end_of_a_run_is_waited_for_from_another_process(tmp_path: Path):
    async with two(tmp_path / "runs.db", scripted(Say("one", delay_s=5), "two"), TWO) as (_, run, other):
        outcome = await other.get(run.run_id).result()
        assert (outcome.status, outcome.output) == ("complete", "two")


async def test_the_events_of_a_run_are_followed_from_another_process(tmp_path: Path):
    async with two(tmp_path / "runs.db", scripted(Say("one", delay_s=5), "two"), TWO) as (host, run, other):
        seen = [event.kind async for event in other.get(run.run_id).events()]
        assert seen == kinds(events_of(host, run))


async def test_a_run_is_waited_for_over_a_pause_in_another_process(tmp_path: Path):
    async with two(tmp_path / "runs.db", scripted(Say("one", delay_s=5), "two"), TWO) as (host, run, other):
        await host.pause(run.run_id, "lunch")
        with pytest.raises(RunIsPaused, match="lunch"):
            await other.get(run.run_id).result()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host_goes_on, host, run)
            assert (await other.get(run.run_id).result(wait_paused=True)).output == "two"


async def host_goes_on(host: Swarm, run: Run) -> None:
    await anyio.sleep(10)
    await host.resume(run.run_id)


async def test_a_run_that_no_process_hosts_is_interrupted(tmp_path: Path):
    async with process(tmp_path / "runs.db", "host", scripted(Say("late", delay_s=60))) as host:
        run = await host.spawn(PLAIN, task="x")
        assert run.status == "running"
    async with process(tmp_path / "runs.db", "other", scripted("done")) as other:
        [left] = other.runs(status="interrupted")
        assert (left.run_id, left.status, other.runs(status="running")) == (run.run_id, "interrupted", [])
        with pytest.raises(RunInterrupted, match=r"no process hosts it; take it up with `await swarm\.resume_tree"):
            await left.result()
        await other.resume_tree(run.run_id)
        assert ((await left.result()).output, left.status) == ("done", "complete")


async def test_a_run_that_ends_while_it_is_looked_at_was_not_interrupted(tmp_path: Path):
    async with process(tmp_path / "runs.db", "other") as other:
        async with process(tmp_path / "runs.db", "host", scripted(Say("done", delay_s=5))) as host:
            run = await host.spawn(PLAIN, task="x")
            before, hosts = other.row(run.run_id), other.hall.home.others()
            await run.result()
        assert (before.status, before.host in hosts) == ("running", True)
        assert not other.hall.home.adrift(before)


async def test_runs_of_one_tree_may_be_taken_up_at_once(tmp_path: Path):
    async with process(tmp_path / "runs.db", "host", scripted(*[Say("late", delay_s=60)] * 2)) as host:
        run = await host.spawn(PLAIN, task="x")
        child = await run.spawn(PLAIN, task="y")
    async with process(tmp_path / "runs.db", "other", scripted(*[Say("done", delay_s=5)] * 2)) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.resume_tree, run.run_id)
            tasks.start_soon(other.resume_tree, child.run_id)
        assert (await other.get(run.run_id).result()).ok
        assert len(payloads(events_of(other, run), "RunResumed")) == 1


async def test_what_is_taken_up_while_it_is_written_to_stays_with_its_host(tmp_path: Path):
    async with process(tmp_path / "runs.db", "first", scripted(Say("late", delay_s=60))) as first:
        run = await first.spawn(PLAIN, task="x")
    async with process(tmp_path / "runs.db", "second", scripted(Say("done", delay_s=5))) as second:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.send, run.run_id, "look left")
            tasks.start_soon(second.resume_tree, run.run_id)
        assert (second.row(run.run_id).host, repr(second.hall.home.claims)) == ("second", "<Claims on 0 runs>")


async def test_a_run_whose_taking_up_is_cancelled_goes_on_all_the_same(tmp_path: Path):
    async with process(tmp_path / "runs.db", "first", scripted(Say("late", delay_s=60))) as first:
        run = await first.spawn(PLAIN, task="x")
    async with process(tmp_path / "runs.db", "second", scripted("done")) as second:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await second.resume_tree(run.run_id)
        assert (await second.get(run.run_id).result()).output == "done"
        assert len(payloads(events_of(second, run), "RunResumed")) == 1


async def test_code_may_wait_for_somebody_to_take_a_run_up(tmp_path: Path):
    async with process(tmp_path / "runs.db", "first", scripted(Say("late", delay_s=60))) as first:
        run = await first.spawn(PLAIN, task="x")
    async with (
        process(tmp_path / "runs.db", "second", scripted("done")) as second,
        process(tmp_path / "runs.db", "other") as other,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(takes_up, second, run)
        assert (await other.get(run.run_id).result(wait_paused=True)).output == "done"


async def takes_up(swarm: Swarm, run: Run) -> None:
    await anyio.sleep(5)
    await swarm.resume_tree(run.run_id)


async def test_a_message_from_another_process_is_in_the_next_request(tmp_path: Path):
    provider = scripted(Say("one", delay_s=5), "two")
    async with two(tmp_path / "runs.db", provider, TWO) as (host, run, other):
        await other.send(run.run_id, "look left")
        assert [str(p.text) for p in payloads(events_of(host, run), "MessageReceived")] == ["look left"]
        await run.result()
    assert "look left" in sent(provider.requests[-1])


async def test_a_message_for_a_region_that_a_run_does_not_have_is_refused(tmp_path: Path):
    async with two(tmp_path / "runs.db", scripted(Say("one", delay_s=5), "two"), TWO) as (host, run, other):
        for swarm in (host, other):
            with pytest.raises(ConfigInvalid, match="has no region 'nots'; it has `task`, `notes`, `conversation`"):
                await swarm.send(run.run_id, "look", region="nots")
        with pytest.raises(ConfigInvalid, match="has no region 'nots'"):
            await run.wake_at(0, "look", region="nots")
        assert payloads(events_of(host, run), "MessageReceived") == []


async def test_a_message_from_another_process_brings_its_parts(tmp_path: Path):
    async with two(tmp_path / "runs.db", scripted(Say("one", delay_s=5), "two"), TWO) as (host, run, other):
        await other.send(run.run_id, "look", parts=[Attachment(b"GIF89a\x01\x00\x02\x00", "dot.gif")])
        assert [(part.name, part.width_px, part.height_px) for part in run.parts()] == [("dot.gif", 1, 2)]
        assert await host.part(run.run_id, "dot.gif") == b"GIF89a\x01\x00\x02\x00"
        await run.result()


async def test_a_part_waits_for_a_run_that_nobody_hosts(tmp_path: Path):
    run_id = await interrupted(tmp_path / "runs.db")
    async with process(tmp_path / "runs.db", "second") as swarm:
        await swarm.send(run_id, "", parts=[b"GIF89a\x01\x00\x02\x00"])
    prune(tmp_path / "runs.db", before=1e12, now=1e12)
    provider = scripted("thanks", "more")
    async with process(tmp_path / "runs.db", "third", provider) as swarm:
        run = await swarm.resume_tree(run_id)
        await run.result()
        assert await run.part("image-1.gif") == b"GIF89a\x01\x00\x02\x00"


async def test_another_process_cancels_a_run(tmp_path: Path):
    async with two(tmp_path / "runs.db", scripted(Say("late", delay_s=1000))) as (host, run, other):
        await other.cancel(run.run_id, "changed my mind")
        outcome = await run.result()
        assert (outcome.status, outcome.reason) == ("cancelled", "changed my mind")
        assert host.hall.home.live == {}


async def test_a_command_to_a_run_that_is_over_says_so_in_the_other_process(tmp_path: Path):
    async with two(tmp_path / "runs.db", scripted("done")) as (_, run, other):
        await run.result()
        with pytest.raises(RunEnded, match="is over"):
            await other.send(run.run_id, "too late")


async def test_what_the_host_finds_wrong_is_raised_where_it_was_asked(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with two(path, scripted(Say("late", delay_s=0.1))) as (host, run, other):
        shared = other.journal.shared
        assert shared is not None
        await run.result()  # the command below was written a moment before the end
        number = shared.post(run.run_id, b'{"type":"send","text":"too late"}', host.hall.clock.unix())
        await anyio.sleep(1)
        assert (shared.answer(number) or "").startswith("RunEnded: ")


async def test_a_command_takes_effect_once_where_its_host_dies_right_after(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with two(path, scripted(Say("late", delay_s=1000))) as (_, run, other):
        await other.send(run.run_id, "once")
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM commands WHERE why_not IS NULL").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM events WHERE kind = 52").fetchone() == (1,)
    db.close()


async def test_a_command_whose_host_dies_before_it_obeys_is_carried_out_by_the_sender(tmp_path: Path):
    path = tmp_path / "runs.db"
    dead = SqliteJournal(path, host="host")
    async with swarm_of(scripted(Say("late", delay_s=1000)), journal=dead) as host:
        dead.beat(host.hall.clock.unix())
        run = await host.spawn(PLAIN, task="x")
        await anyio.sleep(1)
        await host.side.terminate_child("commands")  # it hangs, and will be taken for dead
        async with process(path, "other") as other:
            await other.send(run.run_id, "are you there?")
            assert kinds(list(other.journal.read(run.run_id)))[-1] == "MessageReceived"
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM commands").fetchone() == (0,)
    db.close()
    dead.close()


# --- with no process


async def interrupted(path: Path, made: Blueprint = PLAIN, *replies: object) -> str:
    """Return the id of a run whose process is gone."""
    async with process(path, "first", scripted(*replies, Say("late", delay_s=1000))) as swarm:
        run = await swarm.spawn(made, task="x")
        await anyio.sleep(1)
        return run.run_id


async def test_a_message_to_a_run_that_nobody_hosts_waits_for_it(tmp_path: Path):
    run_id = await interrupted(tmp_path / "runs.db")
    async with process(tmp_path / "runs.db", "second") as swarm:
        await swarm.send(run_id, "good morning")
    provider = scripted("thanks", "more")
    async with process(tmp_path / "runs.db", "third", provider) as swarm:
        await (await swarm.resume_tree(run_id)).result()
    assert "good morning" in sent(next(r for r in provider.requests if r.purpose == "stage"))


async def test_a_run_that_nobody_hosts_can_be_cancelled(tmp_path: Path):
    run_id = await interrupted(tmp_path / "runs.db")
    async with process(tmp_path / "runs.db", "second") as swarm:
        await swarm.cancel(run_id)
        assert (await swarm.get(run_id).result()).status == "cancelled"


async def test_a_run_that_nobody_hosts_can_be_paused_and_is_free_for_others_after(tmp_path: Path):
    run_id = await interrupted(tmp_path / "runs.db")
    async with process(tmp_path / "runs.db", "second") as second:
        await second.pause(run_id)
        assert second.row(run_id).host is None
        async with process(tmp_path / "runs.db", "third", scripted("done")) as third:
            assert (await (await third.resume_tree(run_id)).result()).output == "done"


async def test_resuming_a_run_that_nobody_hosts_names_what_takes_it_up(tmp_path: Path):
    run_id = await interrupted(tmp_path / "runs.db")
    async with process(tmp_path / "runs.db", "second") as swarm:
        with pytest.raises(RunNotFound, match=f"shoal resume {run_id}"):
            await swarm.resume(run_id)


# --- at every point of a turn


def fan(tmp_path: Path) -> Blueprint:
    """Return a blueprint whose first stage hands items to workers, and whose second says something."""
    folder = tmp_path / "worker"
    folder.mkdir()
    worker = Blueprint("worker", (Stage("only", nudge=QUIET),), regions=(TASK, TALK))
    (folder / "blueprint.toml").write_text(dumps(worker))
    lead = Stage("lead", mode="fan_out", fan_out=FanOut(worker_agent=str(folder)), nudge=QUIET)
    return blueprint(lead, stage("merge", available_tools=()))


def hand_out(*ids: str) -> Say:
    items = ",".join(f'{{"id":"{each}","task":"t"}}' for each in ids)
    return Say(calls=(ToolCall("f", "fan_out", Text.of(f'{{"items":[{items}]}}')),))


async def test_a_subtree_is_paused_while_its_parent_waits_for_children(tmp_path: Path):
    provider = scripted(hand_out("1", "2"), Say("a", delay_s=50), Say("b", delay_s=50), "merged")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(fan(tmp_path), task="x")
        await anyio.sleep(10)
        await run.pause()
        await anyio.sleep(500)
        assert {row.status for row in swarm.journal.runs()} == {"paused"}
        await run.resume()
        assert (await run.result()).output == "merged"
    assert len(bodies(provider)) == 4  # what landed while paused was kept


async def test_children_that_are_born_while_their_parent_is_paused_are_paused(tmp_path: Path):
    gate = anyio.Event()
    lead = fan(tmp_path)
    provider = scripted(hand_out("1"), Say("a", delay_s=5), "merged")
    async with swarm_of(provider) as swarm:

        def pause_at_once(event: object) -> None:
            if getattr(event, "kind", "") == "ChildSpawned":
                gate.set()

        swarm.journal.observers.append(pause_at_once)
        run = await swarm.spawn(lead, task="x")
        await gate.wait()
        await run.pause()
        await anyio.sleep(100)
        assert {row.status for row in swarm.journal.runs()} == {"paused"}
        await run.resume()
        assert (await run.result()).output == "merged"


async def test_a_pause_in_the_middle_of_a_tool_lets_it_finish_and_asks_nothing_more():
    @tool(reads=True)
    async def slow() -> str:
        """Take a while."""
        await anyio.sleep(20)
        return "found it"

    provider = scripted(ToolCall("c", "slow", Text.of("{}")), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=("slow",), nudge=QUIET)), task="x", tools=[slow])
        await anyio.sleep(5)
        await run.pause()
        await anyio.sleep(100)
        assert len(bodies(provider)) == 1
        await run.resume()
        await run.result()
        assert kinds(events_of(swarm, run), "ToolCallStarted") == ["ToolCallStarted"]


async def test_a_cancel_in_the_middle_of_a_tool_stops_the_tool():
    stopped: list[bool] = []

    @tool(reads=True)
    async def slow() -> str:
        """Take a while."""
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)
        return ""

    async with swarm_of(scripted(ToolCall("c", "slow", Text.of("{}")))) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=("slow",), nudge=QUIET)), task="x", tools=[slow])
        await anyio.sleep(5)
        await run.cancel()
        assert stopped == [True]
        assert kinds(events_of(swarm, run))[-1] == "RunEnded"


async def test_pausing_twice_and_resuming_twice_says_so_once():
    async with swarm_of(scripted(Say("one", delay_s=5), "two")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.pause()
        await run.pause()
        await run.resume()
        await run.resume()
        await run.result()
        assert kinds(events_of(swarm, run), "RunPaused", "RunResumed") == ["RunPaused", "RunResumed"]


# --- a run that has crashed and is not there again yet


async def test_what_reaches_a_run_between_two_lives_is_written_once_it_lives_again(tmp_path: Path):
    crashes = random.Random(0)

    def play(request: Request) -> str:
        if request.purpose == "stage" and crashes.random() < 0.5:
            raise ValueError("a bug")
        return "done"

    journal = SqliteJournal(tmp_path / "runs.db")
    async with swarm_of(ScriptedProvider(script=play), journal=journal) as swarm:

        async def one(turns: int) -> None:
            run = await swarm.spawn(PLAIN, task="x")
            for _ in range(turns):
                await checkpoint()
            with suppress(RunEnded):
                await run.pause()
                await run.resume()
            assert (await run.result()).status in ("complete", "error")

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number % 30)
        for row in journal.runs():
            assert [event.seq for event in journal.read(row.run_id)] == list(range(1, row.events + 1))
    journal.close()
