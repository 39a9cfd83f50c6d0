"""Timers: a message at a time, whatever becomes of the process until then."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from runkit import TALK, TASK, blueprint, bodies, edge, events_of, kinds, payloads, stage, swarm_of

from shoal.errors import ConfigInvalid, RunEnded
from shoal.runtime import Limits, SqliteJournal
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

TALKS = blueprint(stage(available_tools=(), mode="interactive"), regions=(TASK, TALK))
TWO = blueprint(stage("a", available_tools=(), transitions=(edge("b"),)), stage("b", available_tools=()))
ATTENDED: dict[str, Any] = {"unattended": False, "task": "x"}


def scripted(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


async def test_a_timer_gives_a_run_at_work_a_message_for_its_next_request():
    provider = scripted(Say("one", delay_s=100), "two")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.wake_at(swarm.hall.clock.unix() + 50, "look at the clock")
        await run.result()
        assert kinds(events_of(swarm, run), "TimerSet", "TimerFired", "MessageReceived") == [
            "TimerSet",
            "TimerFired",
            "MessageReceived",
        ]
        assert [p.sender for p in payloads(events_of(swarm, run), "MessageReceived")] == ["timer"]
    assert "look at the clock" in str(bodies(provider)[-1])


async def test_a_timer_wakes_a_run_that_sleeps():
    provider = scripted("hello", "good morning")
    async with swarm_of(provider, limits=Limits(idle_s=60, question_s=None)) as swarm:
        run = await swarm.spawn(TALKS, **ATTENDED)
        await run.wake_at(swarm.hall.clock.unix() + 5000, "rise")
        await anyio.sleep(1000)
        assert run.run_id not in swarm.hall.home.live
        await anyio.sleep(4100)
        assert [question.body for question in run.questions()] == ["good morning"]
        await run.answer("")
        await run.result()


async def test_timers_fire_in_the_order_of_their_times():
    provider = scripted(Say("one", delay_s=100), "two")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(TWO, task="x")
        now = swarm.hall.clock.unix()
        await run.wake_at(now + 30, "second")
        await run.wake_at(now + 20, "first")
        await run.result()
        assert [str(p.text) for p in payloads(events_of(swarm, run), "MessageReceived")] == ["first", "second"]


async def test_a_timer_of_a_region_writes_there():
    async with swarm_of(scripted(Say("one", delay_s=10), "two")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.wake_at(0, "noted", region="notes")
        await run.result()
        assert run.region("notes") == "noted"


async def test_a_paused_run_gets_its_message_when_it_goes_on():
    async with swarm_of(scripted(Say("one", delay_s=10), "two")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.wake_at(swarm.hall.clock.unix() + 50)
        await run.pause()
        await anyio.sleep(200)
        assert "TimerFired" not in kinds(events_of(swarm, run))
        await run.resume()
        await run.result()
        assert "TimerFired" in kinds(events_of(swarm, run))


async def test_a_timer_survives_a_restart(tmp_path: Path):
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path)
    async with swarm_of(scripted("hello"), journal=journal, limits=Limits(question_s=None)) as swarm:
        run = await swarm.spawn(TALKS, **ATTENDED)
        await anyio.sleep(5)
        await run.wake_at(swarm.hall.clock.unix() + 50, "rise")
    journal.close()
    journal = SqliteJournal(path)
    async with swarm_of(scripted("good morning"), journal=journal, limits=Limits(question_s=None)) as swarm:
        again = await swarm.resume_tree(run.run_id)
        await anyio.sleep(100)
        assert [question.body for question in again.questions()] == ["good morning"]
        await again.cancel()
    journal.close()


async def test_a_timer_never_fires_twice():
    async with swarm_of(scripted("hello", "again")) as swarm:
        run = await swarm.spawn(TALKS, **ATTENDED)
        await run.wake_at(swarm.hall.clock.unix() + 10, "rise")
        await anyio.sleep(500)
        assert kinds(events_of(swarm, run), "TimerFired") == ["TimerFired"]
        await run.cancel()


async def test_a_run_that_is_over_has_no_timers():
    async with swarm_of(scripted("one", "two")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.result()
        with pytest.raises(RunEnded):
            await run.wake_at(0)


async def test_a_time_may_be_a_datetime_with_a_zone():
    async with swarm_of(scripted(Say("one", delay_s=100), "two")) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.wake_at(datetime.fromtimestamp(swarm.hall.clock.unix() + 5, UTC))
        with pytest.raises(ConfigInvalid, match="has no time zone; give it one"):
            await run.wake_at(datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused
        await run.result()
        (timer,) = payloads(events_of(swarm, run), "TimerSet")
        assert (str(timer.text), timer.region) == ("It is time.", None)
