"""What comes back to a run that was cancelled meanwhile changes nothing, and is no crash."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from runkit import blueprint, events_of, kinds, stage, swarm_of

from shoal.blueprints import FanOut, Stage
from shoal.providers import Request
from shoal.runtime import Run, Swarm, tool
from shoal.runtime._live import Late
from shoal.runtime._run import _is_late
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

TITLE: dict[Any, str] = {"titling": "T"}


def crashes(swarm: Swarm) -> list[Any]:
    """Return how children of the swarm ended that did not end well."""
    return [event for event in swarm.hall.runs.history() if event.error]


async def check_cancelled_at(swarm: Swarm, run: Run, is_there: Callable[[], bool], then: Callable[[], None]) -> None:
    """Cancel *run* once *is_there*, let what it waits for come back meanwhile, and check that nothing comes of that."""
    while not is_there():
        await checkpoint()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.cancel)
        while "RunEnded" not in kinds(events_of(swarm, run)):
            await checkpoint()
        then()
    await anyio.sleep(60)  # whatever is late has come back
    assert (await run.result()).status == "cancelled"
    assert kinds(events_of(swarm, run))[-1] == "RunEnded"
    assert crashes(swarm) == []
    assert swarm.hall.home.crash_of(run.run_id) is None


async def test_a_file_that_is_still_looked_at_when_its_run_is_cancelled_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a").touch()
    at_work, go = threading.Event(), threading.Event()
    opens = os.open

    def slow(path: Any, *args: Any, **more: Any) -> int:
        if Path(str(path)).name == "a":
            at_work.set()
            go.wait(10)
        return opens(path, *args, **more)

    monkeypatch.setattr(os, "open", slow)
    made = blueprint(stage(mode="output", available_tools=()))
    provider = ScriptedProvider(call("submit_output", content="x", artifacts=["a"]), purposes=TITLE)
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="t", workdir=tmp_path)
        await check_cancelled_at(swarm, run, at_work.is_set, go.set)


@pytest.mark.parametrize("shielded", [True, False])
async def test_a_tool_that_comes_back_to_a_cancelled_run_is_no_crash(shielded: bool):
    at_work, go = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        """Take a while."""
        at_work.set()
        with anyio.CancelScope(shield=shielded):
            await go.wait()
        return "late"

    made = blueprint(stage(available_tools=("slow",)))
    async with swarm_of(ScriptedProvider(call("slow"), purposes=TITLE)) as swarm:
        run = await swarm.spawn(made, task="t", tools=(slow,))
        await check_cancelled_at(swarm, run, at_work.is_set, go.set)


async def test_a_reply_that_comes_back_to_a_cancelled_run_is_no_crash():
    at_work, go = anyio.Event(), anyio.Event()

    class Stubborn:
        """Answers whatever happens to whoever asked."""

        name = "stubborn"
        default_model = "m"
        _inner = ScriptedProvider("late", purposes=TITLE)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def stream(self, request: Request) -> Any:
            if request.purpose == "stage":
                at_work.set()
                with anyio.CancelScope(shield=True):
                    await go.wait()
            async for event in self._inner.stream(request):
                yield event

    async with swarm_of(Stubborn()) as swarm:  # type: ignore[arg-type]
        run = await swarm.spawn(blueprint(stage()), task="t")
        await check_cancelled_at(swarm, run, at_work.is_set, go.set)


async def test_a_worker_that_ends_when_its_parent_is_cancelled_is_no_crash():
    at_work = anyio.Event()

    @tool
    async def slow() -> str:
        """Take a while, and do not be stopped."""
        at_work.set()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3)
        return "late"

    def script(request: Request) -> Any:
        offered = {spec.name for spec in request.tools.specs}
        if "fan_out" in offered:
            return Say(calls=(call("fan_out", items=[{"id": "one", "task": "x"}, {"id": "two", "task": "x"}]),))
        return call("slow")

    worker = Stage("worker", available_tools=("slow",), allow_as_worker=True, transitions=())
    split = stage("split", mode="fan_out", available_tools=(), fan_out=FanOut(worker_stage="worker"), transitions=())
    made = blueprint(split, worker)
    async with swarm_of(ScriptedProvider(script=script, purposes=TITLE)) as swarm:
        run = await swarm.spawn(made, task="t", tools=(slow,))
        await check_cancelled_at(swarm, run, at_work.is_set, lambda: None)


@pytest.mark.parametrize(
    ("error", "late"),
    [
        (Late("x"), True),
        (ExceptionGroup("", [Late("x"), ExceptionGroup("", [Late("y")])]), True),
        (ExceptionGroup("", [Late("x"), ZeroDivisionError()]), False),
        (ZeroDivisionError(), False),
    ],
)
def test_what_failed_besides_is_not_taken_for_late(error: Exception, late: bool):
    assert _is_late(error) is late
