"""Pause, resume and cancel at every point of a turn, from the process that hosts a run and from another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from runkit import NOTES, TALK, TASK, blueprint, edge, events_of, folded, kinds, payloads, stage, swarm_of

from shoal.blueprints import Blueprint, FanOut, Nudge, Region, Stage, ToolSeedCall, ToolsSeed
from shoal.providers import Request
from shoal.runtime import Limits, Run, SqliteJournal, Swarm, tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)
WORK_S = 20.0
MIDDLE_S = 5.0
LONG_S = 60.0
IDLE = Limits(idle_s=20.0)


@dataclass
class Point:
    """A run that is in the middle of something at `MIDDLE_S`, for `WORK_S`, and what it does by itself."""

    made: Blueprint
    replies: Callable[[Request], Any]
    answers: str | None = None
    asked: list[Request] = field(default_factory=list)
    at_work: list[str] = field(default_factory=list)
    """What its tools are in the middle of."""

    @property
    def provider(self) -> ScriptedProvider:
        def answer(request: Request) -> Any:
            if request.purpose != "stage":
                return "A title"
            self.asked.append(request)
            return self.replies(request)

        return ScriptedProvider(script=answer)

    @property
    def tools(self) -> list[Any]:
        @tool(reads=True)
        async def look() -> str:
            """Look around for a while, from the second time on."""
            return await self._work("look", 0.0 if not self.looked else WORK_S)

        @tool(writes=True)
        async def act() -> str:
            """Act for a while."""
            return await self._work("act", WORK_S)

        @tool(writes=True, permission="ask")
        async def dare() -> str:
            """Do what needs approval."""
            return "dared"

        return [look, act, dare]

    looked: bool = False

    async def _work(self, name: str, seconds: float) -> str:
        self.looked = True
        self.at_work.append(name)
        try:
            await anyio.sleep(seconds)
        finally:
            self.at_work.remove(name)
        return f"{name} done"


def said(request: Request) -> list[str]:
    """Return the results that the conversation of *request* shows."""
    return [m.text for segment in request.messages for m in segment.messages if m.role == "tool"]


def calling(name: str, **arguments: object) -> Callable[[Request], Any]:
    return lambda request: "the end" if said(request) else call(name, **arguments)


def in_a_call() -> Point:
    return Point(blueprint(stage(available_tools=(), nudge=QUIET)), lambda _request: Say("the end", delay_s=WORK_S))


def in_a_tool() -> Point:
    return Point(blueprint(stage(available_tools=("act",), nudge=QUIET)), calling("act"))


def in_a_lane() -> Point:
    seen = Region("seen", max_tokens=200, seed=ToolsSeed((ToolSeedCall("look"),), refresh="each_stage"))
    stages = (stage("a", available_tools=(), nudge=QUIET, transitions=(edge("b"),)), stage("b", nudge=QUIET))
    return Point(blueprint(*stages, regions=(TASK, NOTES, TALK, seen)), lambda _request: "the end")


def in_a_gate() -> Point:
    return Point(blueprint(stage(available_tools=("dare",), nudge=QUIET)), calling("dare"), answers="once")


def with_children() -> Point:
    lead = Stage("lead", mode="fan_out", nudge=QUIET, fan_out=FanOut(worker_stage="crew", merge_stage="merge"))
    merge = Stage("merge", nudge=QUIET, transitions=())
    crew = Stage("crew", nudge=QUIET, allow_as_worker=True)

    def replies(request: Request) -> Any:
        assert request.situation is not None
        stage_name = request.situation().stage
        if stage_name == "crew":
            return Say("did it", delay_s=WORK_S)
        items = [{"id": item, "seeds": {"task": "work"}} for item in ("a", "b")]
        return call("fan_out", items=items) if stage_name == "lead" else "the end"

    return Point(blueprint(lead, merge, crew), replies)


def with_a_person() -> Point:
    return Point(
        blueprint(stage(available_tools=("ask_user_text",), nudge=QUIET)),
        calling("ask_user_text", prompt="What now?"),
        answers="go on",
    )


POINTS = [in_a_call, in_a_tool, in_a_lane, in_a_gate, with_children, with_a_person]
points = pytest.mark.parametrize("make", POINTS, ids=lambda make: make.__name__)
from_where = pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])


@asynccontextmanager
async def process(path: Path, name: str, provider: ScriptedProvider) -> AsyncIterator[Swarm]:
    """Open a swarm as a process of its own would, with signs of life on virtual time."""
    journal = SqliteJournal(path, host=name)

    async def beat() -> None:
        while True:
            journal.beat(swarm.hall.clock.unix())
            await anyio.sleep(8)

    async with swarm_of(provider, journal=journal, beside={"lease": beat}, limits=IDLE) as swarm:
        yield swarm
    journal.leave()
    journal.close()


@asynccontextmanager
async def hosted(point: Point, path: Path, *, elsewhere: bool) -> AsyncIterator[tuple[Swarm, Run, Run]]:
    """Host a run until it is in the middle; yield the swarm, the run, and the run as whoever steers it holds it."""
    async with process(path, "host", point.provider) as swarm:
        run = await swarm.spawn(point.made, task="x", tools=point.tools, unattended=False)
        await anyio.sleep(MIDDLE_S)
        if elsewhere:
            async with process(path, "other", ScriptedProvider()) as other:
                yield swarm, run, other.get(run.run_id)
        else:
            yield swarm, run, run


async def answer(swarm: Swarm, point: Point) -> None:
    """Say what a person is asked for, where one is."""
    if point.answers is not None:
        [question] = swarm.questions()
        await swarm.answer(question.run_id, point.answers, question=question.seq)


async def undisturbed(make: Callable[[], Point], path: Path) -> tuple[int, str | None]:
    """Return how often a run asks by itself, and what comes of it."""
    point = make()
    async with hosted(point, path, elsewhere=False) as (swarm, run, _):
        await answer(swarm, point)
        outcome = await run.result()
        return len(point.asked), outcome.output


@from_where
@points
async def test_a_run_that_is_paused_in_the_middle_goes_on_as_if_it_had_not_been(
    make: Callable[[], Point], elsewhere: bool, tmp_path: Path
):
    point = make()
    async with hosted(point, tmp_path / "runs.db", elsewhere=elsewhere) as (swarm, run, held):
        await held.pause("for a while")
        await anyio.sleep(LONG_S)
        assert {row.status for row in swarm.journal.runs()} == {"paused"}
        paused_at = len(point.asked)
        await held.resume()
        await answer(swarm, point)
        assert (await run.result()).output == "the end"
        asked = len(point.asked)
        check_whole(swarm)
    expected = await undisturbed(make, tmp_path / "calm.db")
    assert (asked, "the end") == expected
    assert paused_at <= asked


@from_where
@points
async def test_what_is_under_way_when_a_run_is_paused_ends_and_nothing_else_begins(
    make: Callable[[], Point], elsewhere: bool, tmp_path: Path
):
    point = make()
    async with hosted(point, tmp_path / "runs.db", elsewhere=elsewhere) as (swarm, _, held):
        before = len(point.asked)
        await held.pause()
        await anyio.sleep(LONG_S)
        assert (len(point.asked), point.at_work) == (before, [])
        for row in swarm.journal.runs():
            behind = [event.kind for event in swarm.journal.read(row.run_id)]
            behind = behind[behind.index("RunPaused") + 1 :]
            assert not {"InferenceStarted", "ToolCallStarted", "StageEntered", "ChildSpawned"} & set(behind)


@from_where
@points
async def test_a_run_that_is_cancelled_in_the_middle_leaves_nothing_under_way(
    make: Callable[[], Point], elsewhere: bool, tmp_path: Path
):
    point = make()
    async with hosted(point, tmp_path / "runs.db", elsewhere=elsewhere) as (swarm, run, held):
        await held.cancel("enough")
        assert (await run.result()).status == "cancelled"
        assert {row.status for row in swarm.journal.runs()} == {"cancelled"}
        assert (point.at_work, dict(swarm.hall.home.live), swarm.questions()) == ([], {}, [])
        check_whole(swarm)
        asked = len(point.asked)
        await anyio.sleep(LONG_S)
        assert len(point.asked) == asked
        for row in swarm.journal.runs():
            assert [event.kind for event in swarm.journal.read(row.run_id)][-1] == "RunEnded"


@from_where
@points
async def test_a_run_that_is_cancelled_while_it_is_paused_is_over(
    make: Callable[[], Point], elsewhere: bool, tmp_path: Path
):
    point = make()
    async with hosted(point, tmp_path / "runs.db", elsewhere=elsewhere) as (swarm, run, held):
        await held.pause()
        await held.cancel()
        assert (await run.result(wait_paused=True)).status == "cancelled"
        assert {row.status for row in swarm.journal.runs()} == {"cancelled"}
        assert (point.at_work, dict(swarm.hall.home.live)) == ([], {})


def check_whole(swarm: Swarm) -> None:
    """Each run's events are the whole truth, and what was begun has ended once."""
    for run in swarm.runs():
        events = events_of(swarm, run)
        live = swarm.hall.home.live.get(run.run_id)
        assert live is None or folded(swarm, run).dump() == live.state.dump()
        ended = [(p.source, p.index) for p in payloads(events, "ToolCallCompleted")]
        assert len(ended) == len(set(ended))
        jobs = [p.job for p in (*payloads(events, "LaneCompleted"), *payloads(events, "LaneDegraded"))]
        assert len(jobs) == len(set(jobs))


# --- a reply that lands while the run is paused


async def test_a_reply_that_lands_while_its_run_is_paused_is_kept_and_never_paid_for_again(tmp_path: Path):
    point = in_a_call()
    async with hosted(point, tmp_path / "runs.db", elsewhere=False) as (swarm, run, _):
        await run.pause()
        await anyio.sleep(LONG_S)
        landed = kinds(events_of(swarm, run), "RunPaused", "InferenceCompleted")
        assert landed[-2:] == ["RunPaused", "InferenceCompleted"]
        paid = swarm.ledger(run.run_id).total.usage
        await run.resume()
        await run.result()
        assert (len(point.asked), swarm.ledger(run.run_id).total.usage) == (1, paid)


async def test_a_reply_that_landed_while_paused_is_kept_over_a_restart_of_the_process(tmp_path: Path):
    point = in_a_call()
    async with hosted(point, tmp_path / "runs.db", elsewhere=False) as (_, run, _):
        await run.pause()
        await anyio.sleep(LONG_S)
    async with process(tmp_path / "runs.db", "again", point.provider) as swarm:
        again = await swarm.resume_tree(run.run_id, tools=point.tools)
        assert (await again.result()).output == "the end"
    assert len(point.asked) == 1


async def test_a_reply_that_lands_while_its_run_sleeps_paused_wakes_nobody(tmp_path: Path):
    # A run at work never sleeps, paused or not: its reply finds it at home.
    point = in_a_call()
    async with hosted(point, tmp_path / "runs.db", elsewhere=False) as (swarm, run, _):
        await run.pause()
        await anyio.sleep(WORK_S / 2)
        assert run.run_id in swarm.hall.home.live
        await anyio.sleep(LONG_S)
        assert run.run_id not in swarm.hall.home.live
        assert "RunPassivated" in kinds(events_of(swarm, run))
