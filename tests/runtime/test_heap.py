"""Snapshots of the heap: a run that sleeps is a row of the register in memory, and one that is over is nothing."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import anyio
import msgspec
import pytest
from runkit import blueprint, edge, stage, swarm_of
from test_control import QUIET, fan, hand_out

from shoal.actors import SupervisionEvent
from shoal.blueprints import Blueprint, InteractionPoint
from shoal.providers import Request
from shoal.runtime import Limits, SqliteJournal, Swarm
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

ASKS = blueprint(
    stage(available_tools=(), nudge=QUIET, interaction_points=(InteractionPoint("go", "Go?", style="confirm"),))
)
TWO = blueprint(stage("a", available_tools=(), transitions=(edge("b"),)), stage("b", available_tools=()))


@pytest.fixture(autouse=True)
def fresh_heap() -> Iterator[None]:
    """Leave what other tests have left in memory out of `heap`: there is much of it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def heap() -> Iterator[object]:
    """Yield what came into memory in this test: what the collector tracks, and what that or our modules refer to, once.

    What it does not track is found through what refers to it.
    """
    gc.collect()
    seen: set[int] = set()
    left = gc.get_objects()
    left += kept_by_modules({id(each) for each in left})
    while left:
        each = left.pop()
        yield each
        for held in referred_by(each):
            if not gc.is_tracked(held) and id(held) not in seen:
                seen.add(id(held))
                left.append(held)


def kept_by_modules(seen: set[int]) -> list[object]:
    """Return what the library's own modules, classes and functions hold, but for what is in *seen*."""
    left: list[object] = [vars(module) for name, module in [*sys.modules.items()] if name.startswith("shoal")]
    found: list[object] = []
    while left:
        each = left.pop()
        foreign = isinstance(each, ModuleType) or not str(getattr(each, "__module__", "shoal")).startswith("shoal")
        if foreign or id(each) in seen:
            continue
        seen.add(id(each))
        found.append(each)
        left += [held for held in gc.get_referents(each) if gc.is_tracked(held)]
    return found


def referred_by(thing: object) -> list[object]:
    """Return what *thing* refers to; the collector cannot look into values that it does not track."""
    if isinstance(thing, str | bytes | int | float):
        return []
    if isinstance(thing, msgspec.Struct):
        return [getattr(thing, name, None) for name in thing.__struct_fields__]
    return gc.get_referents(thing)


def snapshot() -> Counter[str]:
    """Count what is in memory of this library, by type; what supervisors remember last is not of a run's making."""
    found = {id(each): type(each) for each in heap() if str(type(each).__module__).startswith("shoal")}
    return Counter(kind.__qualname__ for kind in found.values() if kind is not SupervisionEvent)


def naming(run_id: str) -> list[object]:
    """Return the texts in memory that name *run_id*, each once."""
    texts: dict[int, object] = {}
    for each in heap():
        named = run_id in each if isinstance(each, str) else isinstance(each, bytes) and run_id.encode() in each
        if named:
            texts[id(each)] = each
    return list(texts.values())


async def settled(swarm: Swarm) -> None:
    """Wait until nothing lives, and what was noted of it is forgotten."""
    while swarm.hall.home.live or len(swarm.hall.home.standings):  # noqa: ASYNC110 - virtual time
        await anyio.sleep(20)
    await anyio.sleep(1000)  # asyncio keeps a timer that was cancelled, with its context, until it would have been due


async def paused(swarm: Swarm, _made: Blueprint) -> str:
    run = await swarm.spawn(TWO, task="x")
    await anyio.sleep(5)
    await run.pause()
    return run.run_id


async def asking(swarm: Swarm, _made: Blueprint) -> str:
    return (await swarm.spawn(ASKS, task="x", unattended=False)).run_id


async def timed(swarm: Swarm, made: Blueprint) -> str:
    run_id = await asking(swarm, made)
    await swarm.wake_at(run_id, 4e9, "look again")
    return run_id


async def handing_out(swarm: Swarm, made: Blueprint) -> str:
    """Spawn a run with children, and pause all of them."""
    run = await swarm.spawn(made, task="x")
    await anyio.sleep(15)
    await run.pause()
    return run.run_id


async def over(swarm: Swarm, _made: Blueprint) -> str:
    run = await swarm.spawn(TWO, task="x")
    await run.result()
    return run.run_id


def serves() -> ScriptedProvider:
    def say(request: Request) -> object:
        leads = any(tool.name == "fan_out" for tool in request.tools.specs)
        return hand_out("1", "2") if leads else Say("said", delay_s=10 if request.purpose == "stage" else 0)

    return ScriptedProvider(script=say)  # type: ignore[arg-type]


@pytest.mark.parametrize("lives", [paused, asking, timed, handing_out, over])
async def test_no_object_of_a_run_that_sleeps_is_in_memory_but_its_row(
    tmp_path: Path, lives: Callable[[Swarm, Blueprint], Awaitable[str]]
):
    provider, made = serves(), fan(tmp_path)
    with closing(SqliteJournal(tmp_path / "runs.db", host="here")) as journal:
        async with swarm_of(provider, journal=journal, limits=Limits(idle_s=30.0)) as swarm:
            before: Counter[str] = Counter()
            for again in (False, True):  # what is made once for all runs is there after the first
                before = snapshot() if again else before
                run_id = await lives(swarm, made)
                await settled(swarm)
                provider._played.requests.clear()  # the last that hold on to what a run said
            assert snapshot() - before == Counter()
            assert naming(run_id) == [run_id]  # no path, no mail, no event: the key of its row
