"""A spawn's request as the birth that it stands for: what the run is made of, and how it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.runtime._function import AgenticCall
from shoal.runtime._host import ChildRequest
from shoal.runtime._limits import Limits
from shoal.runtime._orders import SpawnRequest, check_call, check_child, schema_of
from shoal.runtime._programs import Programs
from shoal.runtime._running import entered
from shoal.runtime._spawn import Birth
from shoal.runtime.program import Program
from shoal.runtime.tools import as_tool


async def program_of(programs: Programs, wanted: SpawnRequest[Any]) -> Program:
    """Return what a run is made of that *wanted* asks for.

    Raises:
        BlueprintError: It cannot be found or loaded.
        SpawnRefused: It lists tools that nobody has, or *wanted* says what its agentic function says itself.
    """
    _check(wanted)
    return await programs.of(programs.bundle(wanted.blueprint), [as_tool(tool) for tool in wanted.tools])


def birth_of(
    wanted: SpawnRequest[Any], program: Program, run_id: str, *, limits: Limits, default_model: str | None
) -> Birth:
    """Return how a run begins that *wanted* asks for, the root of a tree of its own.

    Args:
        wanted: What is asked for.
        program: What the run is made of.
        run_id: Its id.
        limits: What runs may do at most.
        default_model: What its user prefers, as `provider` or `provider:model`; `None` for nothing.
    """
    called = wanted.blueprint if isinstance(wanted.blueprint, AgenticCall) else None
    depth = program.blueprint.max_child_depth
    return Birth(
        run_id,
        program,
        wanted.task,
        dict(wanted.seeds),
        Path(wanted.workdir),
        deeper=limits.max_child_depth if depth is None else depth,
        unattended=wanted.unattended or called is not None,
        key=wanted.key,
        model=wanted.model,
        default_model=default_model,
        output_dir=None if wanted.output_dir is None else Path(wanted.output_dir).absolute(),
        trace=wanted.trace,
        output_format="json" if wanted.returns is not None else wanted.output_format,
        output_instructions=wanted.output_instructions,
        budget=wanted.budget,
        output_schema=None if wanted.returns is None else schema_of(wanted.returns),
        entered=None if called is None else entered(called.function, called.arguments),
    )


def child_of(wanted: SpawnRequest[Any], *, detached: bool, most_depth: int | None) -> ChildRequest:
    """Return how a run is to begin that *wanted* asks for, as a child.

    Args:
        wanted: What is asked for.
        detached: It outlives its parent.
        most_depth: How many levels of children it may have of its own; `None` for as many as its parent leaves it.

    Raises:
        SpawnRefused: *wanted* says what the parent decides, or what its agentic function says itself.
    """
    _check(wanted)
    check_child(wanted)
    return ChildRequest(
        wanted.blueprint,
        wanted.task,
        dict(wanted.seeds),
        detached=detached,
        most_depth=most_depth,
        output_format="json" if wanted.returns is not None else wanted.output_format,
        output_instructions=wanted.output_instructions,
        output_schema=None if wanted.returns is None else schema_of(wanted.returns),
        tools=[as_tool(tool) for tool in wanted.tools],
        model=wanted.model,
        key=wanted.key,
        budget=wanted.budget,
    )


def _check(wanted: SpawnRequest[Any]) -> None:
    if isinstance(wanted.blueprint, AgenticCall):
        check_call(wanted, wanted.blueprint.function.name)
