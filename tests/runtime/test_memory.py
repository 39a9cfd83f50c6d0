"""What many runs took at once is given back to the system."""

from __future__ import annotations

import ctypes
import platform

import anyio
import pytest
from runkit import blueprint, stage, swarm_of

from shoal.blueprints import Nudge
from shoal.runtime import Limits, SpawnRequest
from shoal.runtime._memory import MANY, _trim, give_back
from shoal.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

QUIET = blueprint(stage(available_tools=(), nudge=Nudge(enabled=False)))


def talkative() -> ScriptedProvider:
    return ScriptedProvider(script=lambda _: "done")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what was freed until it is asked")
def test_what_was_freed_behind_something_that_stays_is_given_back():
    held = [bytes(100_000) for _ in range(500)]
    kept = held.pop()
    held.clear()
    assert give_back()
    assert len(kept) == 100_000


def test_a_c_library_that_has_no_such_function_gives_nothing_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    _trim.cache_clear()
    try:
        assert not give_back()
    finally:
        _trim.cache_clear()


@pytest.mark.parametrize(("runs", "times"), [(MANY, 1), (MANY - 1, 0), (3 * MANY, 1)])
@pytest.mark.parametrize("idle_s", [60.0, None])
async def test_memory_is_given_back_once_many_runs_have_left(runs: int, times: int, idle_s: float | None):
    async with swarm_of(talkative(), limits=Limits(idle_s=idle_s)) as swarm:
        for run in await swarm.spawn_many([SpawnRequest(QUIET, task="x") for _ in range(runs)]):
            await run.result()
        await anyio.sleep(100)
        assert swarm.hall.home.keeper.given_back == times


async def test_a_swarm_that_closes_gives_back_what_its_runs_took():
    async with swarm_of(talkative()) as swarm:
        keeper = swarm.hall.home.keeper
        for run in await swarm.spawn_many([SpawnRequest(QUIET, task="x") for _ in range(MANY)]):
            await run.result()
    assert keeper.given_back == 1
