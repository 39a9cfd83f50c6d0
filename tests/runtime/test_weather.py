"""Whatever the weather, every run ends, once, and its events are the whole truth.

Seeded storms: providers that fail, tools that crash, actors with defects, lanes and journals that are lost, and people
who pause, resume, cancel, fork, write and answer at any time. Then the sky clears, and everything has to end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from runkit import NOTES, TALK, TASK, blueprint, edge, events_of, payloads, stage, swarm_of

from shoal.actors import Supervisor
from shoal.blueprints import FanOut, Lanes, LaneSettings, Nudge, Region, ToolSeedCall, ToolsSeed
from shoal.errors import ProviderUnavailable, ShoalError
from shoal.providers import Request, RetryPolicy
from shoal.runtime import Journal, Limits, MemoryJournal, Run, SqliteJournal, Swarm, agent, tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = [pytest.mark.anyio, pytest.mark.wall_limit(900)]

QUICK, NIGHTLY = 12, 300
"""Storms."""
DEEDS = 25
DAY_S = 86_400.0
QUIET = Nudge(enabled=False)

LOG = Region("log", kind="compacting", max_tokens=400, compact_at=0.5)
SEEN = Region("seen", max_tokens=200, seed=ToolsSeed((ToolSeedCall("look"),), refresh="each_stage"))
SHORT = LaneSettings(timeout_s=5.0)
MADE = blueprint(
    stage(
        "a", available_tools=("look", "act", "context_append", "ask_user_text"), nudge=QUIET, transitions=(edge("b"),)
    ),
    stage("b", mode="fan_out", nudge=QUIET, fan_out=FanOut(worker_stage="crew", merge_stage="c", max_workers=2)),
    stage("c", available_tools=("act",), nudge=QUIET, transitions=()),
    stage("crew", available_tools=("act",), nudge=QUIET, allow_as_worker=True),
    regions=(TASK, NOTES, TALK, LOG, SEEN),
    lanes=Lanes(compaction=SHORT, titling=SHORT, refresh=SHORT),
)


class Storm:
    """One storm.

    Args:
        seed: Decides everything but the order in which a loop runs its tasks.
        journal: Where the runs are kept.
    """

    def __init__(self, seed: int, journal: Journal) -> None:
        self.random = Random(seed)
        self.journal = journal
        self.raging = True
        self.acted: Counter[str] = Counter()
        self._lost = anyio.Event()
        self._serve = journal.serve
        journal.serve = self._serve_until_lost  # type: ignore[method-assign]

    async def play(self) -> None:
        provider = ScriptedProvider(script=self._answer)
        retry = RetryPolicy(attempts=2, blip_s=0.5)
        async with swarm_of(provider, journal=self.journal, limits=Limits(idle_s=3.0), retry=retry) as swarm:
            for _ in range(3):
                await swarm.spawn(MADE, task="x", tools=self._tools(), unattended=False)
            spec = agent("one", blueprint=MADE, task="x", tools=self._tools(), max_restarts=9, within_s=5.0)
            await swarm.start(Supervisor("team", max_restarts=None, children=[spec]))
            for _ in range(DEEDS):
                await anyio.sleep(self.random.expovariate(0.7))
                with suppress(ShoalError):
                    await self.random.choice(self._deeds())(swarm, self.random.choice(swarm.runs()))
            self.raging = False
            with anyio.fail_after(DAY_S / 2):
                await self._clear_up(swarm)
            for run in swarm.runs():
                check(swarm, run)
            assert dict(swarm.hall.home.live) == {}
            assert swarm.healthy

    # --- what goes wrong

    def _answer(self, request: Request) -> Any:
        random = self.random
        if self.raging:
            chance = random.random()
            if chance < 0.08:
                return ProviderUnavailable("a storm", provider="scripted", model="m")
            if chance < 0.1:
                raise ZeroDivisionError("a defect")
            if chance < 0.13:
                return Say("late", delay_s=60.0)
        if request.purpose != "stage":
            return "words"
        return self._turn(request)

    def _turn(self, request: Request) -> Any:
        assert request.situation is not None
        name = request.situation().stage
        delay_s = self.random.uniform(0.0, 4.0)
        results = sum(message.role == "tool" for segment in request.messages for message in segment.messages)
        if name == "b":
            items = [{"id": item, "seeds": {"task": item}} for item in "abc"]
            return Say(calls=(call("fan_out", items=items),), delay_s=delay_s)
        if results < (6 if name == "a" else 2):
            turns = [
                (call("act"), call("look")),
                (call("context_append", region="log", content="w " * 200), call("act")),
                (call("ask_user_text", prompt="?"), call("act")),
            ]
            return Say(calls=turns[results // 2 % 3 if name == "a" else 0][: 2 if name == "a" else 1], delay_s=delay_s)
        return Say("done", delay_s=delay_s)

    def _tools(self) -> list[Any]:
        @tool(reads=True)
        async def look() -> str:
            """Look around."""
            return await self._work("look")

        @tool(writes=True)
        async def act() -> str:
            """Act."""
            return await self._work("act")

        return [look, act]

    async def _work(self, name: str) -> str:
        await anyio.sleep(self.random.uniform(0.0, 3.0))
        if self.raging and self.random.random() < 0.1:
            raise RuntimeError("a tool that fails")
        self.acted[name] += 1
        return name

    async def _serve_until_lost(self) -> None:
        self._lost = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve)
            await self._lost.wait()
            raise RuntimeError("the journal is lost")

    # --- what people do

    def _deeds(self) -> list[Callable[[Swarm, Run], Any]]:
        often = [self._pause, self._resume, self._resume, self._send, self._reply, self._reply]
        return [*often, self._cancel, self._fork, self._lose_lane, self._lose_journal, self._spawn, self._wait]

    async def _pause(self, swarm: Swarm, run: Run) -> None:
        await run.pause()

    async def _resume(self, swarm: Swarm, run: Run) -> None:
        await run.resume()

    async def _send(self, swarm: Swarm, run: Run) -> None:
        await run.send("hello")

    async def _cancel(self, swarm: Swarm, run: Run) -> None:
        await run.cancel()

    async def _fork(self, swarm: Swarm, run: Run) -> None:
        at = self.random.randint(1, max(1, swarm.row(run.run_id).events))
        await run.fork(at=at, tools=self._tools())

    async def _reply(self, swarm: Swarm, run: Run) -> None:
        for question in swarm.questions():
            await swarm.answer(question.run_id, "go on", question=question.seq)

    async def _lose_lane(self, swarm: Swarm, run: Run) -> None:
        lane = self.random.choice(["compaction", "titling", "refresh"])
        await swarm.side.terminate_child(lane)
        await swarm.side.restart_child(lane)

    async def _lose_journal(self, swarm: Swarm, run: Run) -> None:
        await anyio.sleep(6)  # further apart than the window of the swarm's root
        self._lost.set()
        await anyio.sleep(6)

    async def _spawn(self, swarm: Swarm, run: Run) -> None:
        await swarm.spawn(MADE, task="x", tools=self._tools(), unattended=False)

    async def _wait(self, swarm: Swarm, run: Run) -> None:
        await anyio.sleep(20)  # long enough for those that wait to leave memory

    # --- afterwards

    async def _clear_up(self, swarm: Swarm) -> None:
        """Let everything that waits for somebody go on, until all is over."""
        while any(not row.ended for row in swarm.journal.runs()):
            for row in swarm.journal.runs():
                with suppress(ShoalError):
                    if row.status == "paused":
                        await swarm.resume(row.run_id)
            with suppress(ShoalError):
                await self._reply(swarm, swarm.runs()[0])
            await anyio.sleep(30)


def check(swarm: Swarm, run: Run) -> None:
    """Check a run that is over: its events are whole, and whatever was begun has ended once."""
    events = events_of(swarm, run)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].kind == "RunEnded"
    assert [event.kind for event in events].count("RunEnded") == 1
    for kind, fields in {
        "ToolCallCompleted": ("source", "index"),
        "InferenceCompleted": ("started",),
        "QuestionAnswered": ("question",),
        "ChildEnded": ("child",),
    }.items():
        keys = [tuple(getattr(payload, field) for field in fields) for payload in payloads(events, kind)]
        assert len(keys) == len(set(keys)), kind
    jobs = [p.job for p in (*payloads(events, "LaneCompleted"), *payloads(events, "LaneDegraded"))]
    assert sorted(jobs) == [event.seq for event in events if event.kind == "LaneStarted"]
    assert swarm.hall.home.load(run.run_id).seq == len(events)


@pytest.mark.parametrize("kept", ["memory", "file"])
async def test_whatever_the_weather_every_run_ends_once(kept: str, nightly: bool, tmp_path: Path):
    for seed in range(NIGHTLY if nightly else QUICK):
        path = tmp_path / f"{seed}.db"
        journal = MemoryJournal() if kept == "memory" else SqliteJournal(path, durability="off", host="here")
        try:
            await Storm(seed, journal).play()
            assert len(journal.runs()) >= 4
            assert all(row.ended for row in journal.runs())
        except BaseException as exc:
            exc.add_note(f"storm {seed}")
            raise
        finally:
            journal.close()
