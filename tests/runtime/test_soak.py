"""An hour of runs that begin, work and end leaves as much behind as a minute of them: nothing."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from runkit import NOTES, TALK, TASK, blueprint, edge, stage, swarm_of

from shoal.actors import Supervisor, Worker
from shoal.blueprints import FanOut, Nudge, Region, ToolSeedCall, ToolsSeed
from shoal.errors import RunEnded
from shoal.providers import Request
from shoal.runtime import Limits, Permissions, SqliteJournal, Swarm, agent, tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = [pytest.mark.anyio, pytest.mark.wall_limit(300)]

ROUND_S = 120.0
WARM = 4
QUICK, NIGHTLY = 10, 30
"""Rounds: a third of an hour, and an hour."""
POOLED = ("AnyIO worker thread", "Trio thread")
"""Names of the threads that the loops keep at hand for a while, by the real clock."""
SLACK = 60
"""Objects that may come and go: a cache of Python's own, a name that is interned."""

BOUNDED = {
    "shoal.actors._events.SupervisionEvent",  # each supervisor keeps the newest 200
    "shoal.actors._reason.Reason",
    "weakref.ReferenceType",  # SQLite's module drops those of its cursors that are gone, once every 200
}

QUIET = Nudge(enabled=False)
LOG = Region("log", kind="compacting", max_tokens=300, compact_at=0.5)
SEEN = Region("seen", max_tokens=200, seed=ToolsSeed((ToolSeedCall("look"),), refresh="each_stage"))
MANY = blueprint(
    stage("a", available_tools=("shell", "look", "context_append"), nudge=QUIET, transitions=(edge("b"),)),
    stage("b", mode="fan_out", nudge=QUIET, fan_out=FanOut(worker_stage="crew", merge_stage="c")),
    stage("c", available_tools=(), nudge=QUIET, transitions=()),
    stage("crew", available_tools=(), nudge=QUIET, allow_as_worker=True),
    regions=(TASK, NOTES, TALK, LOG, SEEN),
)
ASKING = blueprint(stage(available_tools=("ask_user_text",), nudge=QUIET))
SLOW = blueprint(stage(available_tools=(), nudge=QUIET))


@tool(reads=True)
async def look() -> str:
    """Look around."""
    return "a look"


def answer(request: Request) -> Any:
    assert request.situation is not None
    seen = request.situation()
    if request.purpose != "stage":
        return "words"
    results = sum(message.role == "tool" for segment in request.messages for message in segment.messages)
    offered = {spec.name for spec in request.tools.specs}
    if seen.stage == "a" and results < 6:
        lines = [call("shell", command="true"), call("look"), call("context_append", region="log", content="w " * 200)]
        return Say(calls=(lines[results // 2 % 3], lines[2]), delay_s=1.0)
    if seen.stage == "b":
        return call("fan_out", items=[{"id": item, "seeds": {"task": item}} for item in "abc"])
    if "ask_user_text" in offered and not results:
        return call("ask_user_text", prompt="What now?")
    return Say("done", delay_s=2.0)


async def one_round(swarm: Swarm, folder: Path) -> None:
    """Let runs of every kind begin, work and end, in two minutes."""
    many = await swarm.spawn(MANY, task="x", tools=(look,), workdir=folder)
    asking = await swarm.spawn(ASKING, task="x", unattended=False)
    cancelled = await swarm.spawn(SLOW, task="x")
    paused = await swarm.spawn(SLOW, task="x")
    tree = Supervisor("team", children=[agent("one", blueprint=SLOW, task="x"), Worker("w", anyio.sleep_forever)])
    team = await swarm.start(tree)
    await anyio.sleep(1)
    await cancelled.cancel()
    await paused.pause()
    await paused.send("hello")
    await anyio.sleep(ROUND_S / 2)  # long enough for those that wait to leave memory
    await paused.resume()
    [question] = asking.questions()
    await swarm.answer(asking.run_id, "go on", question=question.seq)
    for run in (many, asking, paused):
        assert (await run.result()).status == "complete"
    fork = await paused.fork()
    assert (await fork.result()).status == "complete"
    with suppress(RunEnded):
        await swarm.send(paused.run_id, "too late")
    await team.stop()
    await anyio.sleep(ROUND_S / 2)


def held(tasks: Callable[[], int]) -> tuple[Counter[str], tuple[int, int, int]]:
    """Return the living objects by type, and how many tasks, descriptors and threads there are."""
    for _ in range(3):
        gc.collect()
    names = (f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())
    kinds = Counter(name for name in names if name not in BOUNDED)
    descriptors = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    return kinds, (tasks(), descriptors, threading.active_count() - pooled())


def pooled() -> int:
    """Return how many threads the loop keeps at hand."""
    return sum(thread.name.startswith(POOLED) for thread in threading.enumerate())


async def test_an_hour_of_runs_leaves_nothing_behind(tmp_path: Path, nightly: bool):
    folder = tmp_path / "work"
    folder.mkdir()
    limits = Limits(idle_s=10.0)
    permissions = Permissions(launch={"shell": "allow"})
    with closing(SqliteJournal(tmp_path / "runs.db", durability="off")) as journal:
        provider = ScriptedProvider(script=answer)
        async with swarm_of(provider, journal=journal, limits=limits, permissions=permissions) as swarm:
            for _ in range(WARM):
                await one_round(swarm, folder)
            provider._played.requests.clear()
            before, counts = held(lambda: len(anyio.get_running_tasks()))
            most_pooled: list[int] = []
            for _ in range(NIGHTLY if nightly else QUICK):
                await one_round(swarm, folder)
                most_pooled.append(pooled())
            provider._played.requests.clear()
            after, counts_after = held(lambda: len(anyio.get_running_tasks()))
    grown = {kind: count - before[kind] for kind, count in after.items() if count - before[kind] > 3}
    assert counts_after == counts
    assert most_pooled[-1] <= max(most_pooled[: len(most_pooled) // 2])
    assert sum(after.values()) - sum(before.values()) <= SLACK, grown
