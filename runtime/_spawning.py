"""Spawns as their user asks for them: runs that there are under their keys are found and go on, the others begin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar, cast

from shoal.errors import RunOwned, SpawnRefused
from shoal.runtime._function import AgenticCall, AgenticFunction
from shoal.runtime._hall import Hall
from shoal.runtime._orders import GivenTool, SpawnRequest
from shoal.runtime._resuming import resume_tree
from shoal.runtime.journal import RunRow
from shoal.runtime.tools import Tool, as_tool

T = TypeVar("T")


async def spawned(
    hall: Hall,
    requests: Sequence[SpawnRequest[T]],
    begin: Callable[[Mapping[str, SpawnRequest[T]]], Awaitable[Sequence[str]]],
) -> Sequence[tuple[str, str]]:
    """Return the runs that *requests* ask for, in their order: the id of each, and the name of its blueprint.

    Args:
        hall: The hall.
        requests: The runs. Those that there are under their keys are returned, and go on here if nobody hosts them.
        begin: Starts the others, by the ids that they get, and returns the names of their blueprints.

    Raises:
        SpawnRefused: Two have the same key.
        ShoalError: What *begin* raises; see `resume_tree` for runs that go on.
    """
    keys = [each.key for each in requests if each.key is not None]
    if len(set(keys)) < len(keys):
        raise SpawnRefused("two of the runs to spawn have the same key; give each a key of its own")
    runs: dict[str, str] = {}
    fresh: dict[str, SpawnRequest[T]] = {}
    ids = [hall.clock.new_id() for _ in requests]
    async with AsyncExitStack() as held:
        under: dict[str | None, RunRow | str] = {}
        # In one order, whoever asks: two that hold a key each would wait for each other's for ever.
        for key, fresh_id in sorted(
            (each.key, i) for each, i in zip(requests, ids, strict=True) if each.key is not None
        ):
            under[key] = await held.enter_async_context(hall.keys.held(key, fresh_id))
        for each, fresh_id in zip(requests, ids, strict=True):
            found = under.get(each.key, fresh_id)
            if isinstance(found, RunRow):
                await _taken_up(hall, found, each)
                runs[found.run_id] = found.name
            else:
                fresh[found] = each
                runs[found] = ""
        if fresh:
            runs.update(zip(fresh, await begin(fresh), strict=True))
    return tuple(runs.items())


async def _taken_up(hall: Hall, row: RunRow, wanted: SpawnRequest[Any]) -> None:
    """Have a run go on here that there is under a key, and that no process hosts."""
    if hall.home.adrift(row):
        if isinstance(wanted.blueprint, AgenticCall):
            hall.programs.enlist(wanted.blueprint.function)
        given = given_again(hall, wanted.tools)
        with suppress(RunOwned):  # another process was faster
            await resume_tree(hall, row, given, budget=None, blueprint=None)


def given_again(hall: Hall, tools: Sequence[GivenTool | AgenticFunction[..., Any]]) -> list[Tool]:
    """Return what is given again for a run that is taken up; agentic functions are taken note of."""
    for each in tools:
        if isinstance(each, AgenticFunction):
            hall.programs.enlist(cast("AgenticFunction[..., Any]", each))
    return [as_tool(each) for each in tools if not isinstance(each, AgenticFunction)]
