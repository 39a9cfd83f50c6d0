"""One run, from its spawn to its outcome, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from shoal._swarm import Swarm
from shoal.blueprints import Blueprint
from shoal.observability import Telemetry
from shoal.providers import Provider
from shoal.runtime import AgenticCall, BudgetGiven, GivenTool, Journal, Outcome, SeedValue, SpawnRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


T = TypeVar("T")


@overload
async def run(
    blueprint: str | Path | Blueprint,
    *,
    task: str | None = None,
    seeds: Mapping[str, SeedValue] | None = None,
    tools: Sequence[GivenTool] = (),
    workdir: str | Path = ".",
    model: str | None = None,
    budget: BudgetGiven | None = None,
    providers: Sequence[Provider] | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    telemetry: Literal["otlp"] | Telemetry | TracerProvider | None = None,
    check: bool = True,
    returns: None = None,
) -> Outcome: ...


@overload
async def run(
    blueprint: str | Path | Blueprint,
    *,
    task: str | None = None,
    seeds: Mapping[str, SeedValue] | None = None,
    tools: Sequence[GivenTool] = (),
    workdir: str | Path = ".",
    model: str | None = None,
    budget: BudgetGiven | None = None,
    providers: Sequence[Provider] | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    telemetry: Literal["otlp"] | Telemetry | TracerProvider | None = None,
    check: bool = True,
    returns: type[T],
) -> Outcome[T]: ...


@overload
async def run(
    blueprint: AgenticCall[T],
    *,
    workdir: str | Path = ".",
    model: str | None = None,
    budget: BudgetGiven | None = None,
    providers: Sequence[Provider] | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    telemetry: Literal["otlp"] | Telemetry | TracerProvider | None = None,
    check: bool = True,
) -> Outcome[T]: ...


async def run(
    blueprint: str | Path | Blueprint | AgenticCall[Any],
    *,
    task: str | None = None,
    seeds: Mapping[str, SeedValue] | None = None,
    tools: Sequence[GivenTool] = (),
    workdir: str | Path = ".",
    model: str | None = None,
    budget: BudgetGiven | None = None,
    providers: Sequence[Provider] | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    telemetry: Literal["otlp"] | Telemetry | TracerProvider | None = None,
    check: bool = True,
    returns: type[Any] | None = None,
) -> Outcome[Any]:
    """Run *blueprint* in a swarm of its own and return how it ended.

    Args:
        blueprint: A name of the library, a path, a `Blueprint`, or an agentic function with its arguments (`bound`).
        task: Its task; `None` for none.
        seeds: Values by name for the regions that take a caller's value.
        tools: Functions that it may call.
        workdir: Its working directory: what its tools and seeds may read.
        model: `provider:model` that replaces every stage's.
        budget: Limits for it and everything below it, in place of its blueprint's; `None` leaves those.
        providers: See `Swarm`.
        journal: See `Swarm`.
        telemetry: See `Swarm`.
        check: Raise where the run did not end as it should; without, the outcome says so.
        returns: The type that the answer is to have; see `Swarm.spawn`.

    Raises:
        BlueprintInvalid: The blueprint cannot be loaded.
        SpawnRefused, NotBuiltYet: The run cannot start.
        RunFailed, RunCancelled: It ended so; not with *check* off.
        RunIsPaused: It waits for somebody.
        OutputInvalid: It is complete, and its answer is not of that type.
        ConfigInvalid: A limit of the budget is none.
        JournalFailed: The journal cannot be written.
    """
    wanted = SpawnRequest[Any](
        blueprint,
        task=task,
        seeds=seeds or {},
        tools=tools,
        workdir=workdir,
        model=model,
        budget=budget,
        returns=returns,
    )
    async with Swarm(providers, journal=journal, telemetry=telemetry) as swarm:
        [started] = await swarm.spawn_many([wanted])
        return await started.result(check=check)


run.__module__ = "shoal"
