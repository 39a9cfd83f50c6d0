"""One run, from its spawn to its outcome, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shoal._swarm import Swarm
from shoal.blueprints import Blueprint
from shoal.observability import Telemetry
from shoal.providers import Provider
from shoal.runtime import GivenTool, Journal, Outcome, SeedValue, checked

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


async def run(
    blueprint: str | Path | Blueprint,
    *,
    task: str | None = None,
    seeds: Mapping[str, SeedValue] | None = None,
    tools: Sequence[GivenTool] = (),
    workdir: str | Path = ".",
    model: str | None = None,
    providers: Sequence[Provider] | None = None,
    journal: str | os.PathLike[str] | Journal | None = None,
    telemetry: Literal["otlp"] | Telemetry | TracerProvider | None = None,
    check: bool = True,
) -> Outcome:
    """Run *blueprint* in a swarm of its own and return how it ended.

    Args:
        blueprint: A name of the library, a path, or a `Blueprint`.
        task: Its task; `None` for none.
        seeds: Values by name for the regions that take a caller's value.
        tools: Functions that it may call.
        workdir: Its working directory: what its tools and seeds may read.
        model: `provider:model` that replaces every stage's.
        providers: See `Swarm`.
        journal: See `Swarm`.
        telemetry: See `Swarm`.
        check: Raise where the run did not end as it should; without, the outcome says so.

    Raises:
        BlueprintInvalid: The blueprint cannot be loaded.
        SpawnRefused, NotBuiltYet: The run cannot start.
        RunFailed, RunCancelled: It ended so; not with *check* off.
        RunIsPaused: It waits for somebody.
        JournalFailed: The journal cannot be written.
    """
    async with Swarm(providers, journal=journal, telemetry=telemetry) as swarm:
        started = await swarm.spawn(blueprint, task=task, seeds=seeds, tools=tools, workdir=workdir, model=model)
        outcome = await started.result()
    return checked(outcome) if check else outcome


run.__module__ = "shoal"
