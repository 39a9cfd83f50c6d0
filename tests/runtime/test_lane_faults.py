"""Each fault in each lane leaves every run as it should be and an event behind; a lane that is down slows nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeAlias

import anyio
import pytest
from runkit import NOTES, TALK, TASK, blueprint, edge, events_of, payloads, stage, swarm_of

from shoal.blueprints import Blueprint, LaneSettings, Nudge, Region, ToolSeedCall, ToolsSeed
from shoal.blueprints import Lanes as LaneTable
from shoal.errors import ProviderUnavailable
from shoal.providers import Request, RetryPolicy, StreamEvent
from shoal.runtime import Event, Run, Swarm, tool
from shoal.runtime._lanes import WIDTHS
from shoal.runtime.events import Lane
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

Fault: TypeAlias = Literal["crash", "hang", "nonsense", "blank", "down"]

LINES = 6
TURN_S = 2.0
LINE = "what happened then " * 12

LOG = Region("log", kind="compacting", max_tokens=600, compact_at=0.5)
LOOKED = Region("looked", kind="pinned", max_tokens=500, seed=ToolsSeed((ToolSeedCall("look"),), refresh="each_stage"))


def made(*, log: Region = LOG, timeout_s: float = 1.0) -> Blueprint:
    short = LaneSettings(timeout_s=timeout_s)
    return blueprint(
        stage("work", transitions=(edge("end"),), nudge=Nudge(enabled=False)),
        stage("end", available_tools=(), nudge=Nudge(enabled=False)),
        regions=(TASK, NOTES, TALK, log, LOOKED),
        lanes=LaneTable(compaction=short, titling=short, refresh=short),
    )


class World:
    """A model, and a tool, that go wrong where they work for one lane."""

    def __init__(self, lane: Lane | None = None, fault: Fault = "crash", healed_after: int | None = None) -> None:
        self.lane, self.fault, self.healed_after = lane, fault, healed_after
        self.asked: Counter[str] = Counter()
        self.looks = 0
        self.provider = ScriptedProvider(script=self.answer)  # type: ignore[arg-type]

    def answer(self, request: Request) -> Any:
        self.asked[request.purpose] += 1
        if request.purpose == self.lane and (self.healed_after is None or self.asked[self.lane] <= self.healed_after):
            return self.wrong()
        if request.purpose != "stage":
            return {"titling": "A title", "compaction": "lines"}[request.purpose]
        said = [message for segment in request.messages for message in segment.messages]
        written = sum(message.role == "tool" for message in said)
        if written < LINES and "context_append" in {spec.name for spec in request.tools.specs}:
            return Say(calls=(call("context_append", region="log", content=f"{written} {LINE}"),), delay_s=TURN_S)
        return Say("done", delay_s=TURN_S)

    def wrong(self) -> Any:
        match self.fault:
            case "crash":
                raise ZeroDivisionError("a defect")
            case "hang":
                return Say("late", delay_s=1e6)
            case "nonsense":
                return "nonsense " * 2000
            case "blank":
                return " \n "
            case _:
                return ProviderUnavailable("down", provider="scripted", model="m")

    @property
    def tool(self) -> Any:
        @tool(reads=True)
        async def look() -> str:
            """Look around."""
            self.looks += 1
            if self.looks > 1 and self.lane == "refresh":
                if self.fault == "hang":
                    await anyio.sleep_forever()
                answered = self.wrong()
                if isinstance(answered, Exception):
                    raise answered
                return str(answered)
            return f"look {self.looks}"

        return look


async def played(world: World, runs: int = 1, **more: Any) -> tuple[Swarm, list[Run], float]:
    """Let runs go on until they are over, check them, and return the swarm, the runs and how many seconds it took."""
    async with swarm_of(world.provider, retry=RetryPolicy(attempts=1), **more) as swarm:
        began = anyio.current_time()
        started = [await swarm.spawn(made(), task="do it", tools=(world.tool,)) for _ in range(runs)]
        for run in started:
            assert (await run.result()).status == "complete"
            check(swarm, run)
        return swarm, started, anyio.current_time() - began


def check(swarm: Swarm, run: Run) -> None:
    """Check what holds for every run: its events are the whole truth, each job ended once, and nothing was lost."""
    events = events_of(swarm, run)
    started = [event.seq for event in events if event.kind == "LaneStarted"]
    ended = [p.job for p in (*payloads(events, "LaneCompleted"), *payloads(events, "LaneDegraded"))]
    assert sorted(ended) == started
    state = swarm.hall.home.load(run.run_id)
    assert state.jobs == {}
    log = state.view.states["log"]
    entries = "\n".join(entry.text for entry in log.all_entries())
    summaries = payloads(events, "ContextCompacted")
    assert all(summary.bytes_saved > 0 for summary in summaries)
    if not summaries and not payloads(events, "EntriesEvicted"):
        assert all(f"{number} {LINE.strip()}" in entries for number in range(LINES))
    assert state.title is not None


def reasons(events: Sequence[Event], lane: Lane) -> list[str]:
    return [p.reason for p in payloads(events, "LaneDegraded") if p.lane == lane]


@pytest.mark.parametrize(
    ("lane", "fault", "reason"),
    [
        ("compaction", "crash", "crashed"),
        ("compaction", "hang", "timeout"),
        ("compaction", "nonsense", "not_smaller"),
        ("compaction", "blank", "blank"),
        ("compaction", "down", "provider"),
        ("titling", "crash", "crashed"),
        ("titling", "hang", "timeout"),
        ("titling", "nonsense", "nonsense"),
        ("titling", "blank", "nonsense"),
        ("titling", "down", "provider"),
        ("refresh", "crash", "failed"),
        ("refresh", "hang", "timeout"),
        ("refresh", "down", "failed"),
    ],
)
async def test_each_fault_in_each_lane_leaves_the_run_as_it_should_be(lane: Lane, fault: Fault, reason: str):
    swarm, [run], _ = await played(world := World(lane, fault))
    found = set(reasons(events_of(swarm, run), lane)) - {"dropped"}
    assert found == {reason}
    assert world.asked["stage"] == LINES + 2


@pytest.mark.parametrize(("fault", "shown"), [("blank", ""), ("nonsense", "nonsense nonsense")])
async def test_what_a_tool_gives_is_what_a_refresh_shows(fault: Fault, shown: str):
    # Nobody but its caller can say what the tool should have given.
    swarm, [run], _ = await played(World("refresh", fault))
    assert reasons(events_of(swarm, run), "refresh") == []
    [refreshed] = payloads(events_of(swarm, run), "SeedRefreshed")
    assert str(refreshed.blocks[0].text).removeprefix("--- look ---").strip().startswith(shown)


RETRIES: dict[Lane, int] = {"compaction": 2, "titling": 1}


@pytest.mark.parametrize("lane", RETRIES)
async def test_a_job_is_tried_as_often_as_its_lane_says(lane: Lane):
    swarm, [run], _ = await played(world := World(lane, "crash"))
    jobs = sum(p.lane == lane for p in payloads(events_of(swarm, run), "LaneStarted"))
    tried = sum(p.purpose == lane for p in payloads(events_of(swarm, run), "InferenceStarted"))
    assert tried == world.asked[lane] == jobs * (RETRIES[lane] + 1)


@pytest.mark.parametrize("lane", RETRIES)
@pytest.mark.parametrize("fault", ["crash", "hang", "blank", "down"])
async def test_a_job_whose_last_try_works_is_done(lane: Lane, fault: Fault):
    swarm, [run], _ = await played(World(lane, fault, healed_after=RETRIES[lane]))
    assert set(reasons(events_of(swarm, run), lane)) <= {"dropped"}
    assert any(p.lane == lane for p in payloads(events_of(swarm, run), "LaneCompleted"))


@pytest.mark.parametrize("fault", ["crash", "hang", "nonsense", "blank", "down"])
async def test_a_title_that_does_not_come_slows_nothing(fault: Fault):
    _, _, undisturbed = await played(World())
    _, _, disturbed = await played(World("titling", fault))
    assert disturbed == pytest.approx(undisturbed)


@pytest.mark.parametrize("lane", ["compaction", "titling", "refresh"])
async def test_a_lane_that_is_down_for_good_slows_nothing(lane: Lane):
    _, _, undisturbed = await played(World(), runs=4)
    world = World()
    async with swarm_of(world.provider, retry=RetryPolicy(attempts=1)) as swarm:
        await swarm.side.terminate_child(lane)
        began = anyio.current_time()
        runs = [await swarm.spawn(made(), task="do it", tools=(world.tool,)) for _ in range(4)]
        for run in runs:
            assert (await run.result()).status == "complete"
            check(swarm, run)
            assert set(reasons(events_of(swarm, run), lane)) == {"lane_down"}
            others = {"compaction", "titling", "refresh"} - {lane}
            assert {p.lane for p in payloads(events_of(swarm, run), "LaneCompleted")} == others
    assert anyio.current_time() - began == pytest.approx(undisturbed)


async def test_jobs_that_hang_fill_their_own_lane_only():
    world = World("compaction", "hang")
    async with swarm_of(world.provider, retry=RetryPolicy(attempts=1)) as swarm:
        slow = made(timeout_s=20.0)
        runs = [await swarm.spawn(slow, task="do it", tools=(world.tool,)) for _ in range(12)]
        await anyio.sleep(4.5 * TURN_S)
        assert "4/4 running, 8 queued" in repr(swarm.hall.lanes["compaction"])
        assert [run.title for run in runs] == ["A title"] * 12
        for run in runs:
            assert (await run.result()).status == "complete"
            check(swarm, run)


@pytest.mark.parametrize("lane", ["compaction", "titling"])
async def test_no_more_of_a_lane_is_under_way_than_it_is_wide(lane: Lane):
    most = busy = 0

    async def stream(request: Request) -> AsyncIterator[StreamEvent]:
        nonlocal most, busy
        counts = request.purpose == lane
        busy += counts
        most = max(most, busy)
        try:
            await anyio.sleep(0.5 if counts else 0.0)
            async with aclosing(played_by(request)) as events:
                async for event in events:
                    yield event
        finally:
            busy -= counts

    world = World()
    played_by, world.provider.stream = world.provider.stream, stream  # type: ignore[method-assign]
    await played(world, runs=10)
    assert most == WIDTHS[lane]


async def test_a_run_is_not_held_up_by_the_many_jobs_of_others():
    hung = World("compaction", "hang")
    async with swarm_of(hung.provider, retry=RetryPolicy(attempts=1)) as swarm:
        slow = made(timeout_s=5.0)
        others = [await swarm.spawn(slow, task="do it", tools=(hung.tool,)) for _ in range(6)]
        await anyio.sleep(4 * TURN_S)
        hung.lane = None  # what is asked from now on is answered
        late = await swarm.spawn(made(), task="do it", tools=(hung.tool,))
        await late.result()
        # The six have two jobs each by now; the late one's waited for one round of them and not for all.
        ended = [p.lane for p in payloads(events_of(swarm, late), "LaneCompleted")]
        assert "compaction" in ended
        for run in others:
            await run.result()


async def test_what_waits_for_a_summary_goes_on_where_it_does_not_come():
    # Nothing may be evicted here, so a write that finds no room waits for the summary that makes some.
    tight = Region("log", kind="compacting", max_tokens=250, compact_at=0.5)
    world = World("compaction", "hang")
    async with swarm_of(world.provider, retry=RetryPolicy(attempts=1)) as swarm:
        run = await swarm.spawn(made(log=tight), task="do it", tools=(world.tool,))
        assert (await run.result()).status == "complete"
        events = events_of(swarm, run)
        assert "timeout" in reasons(events, "compaction")
        assert swarm.hall.home.load(run.run_id).jobs == {}
