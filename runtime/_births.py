"""A spawn's request as the birth that it stands for: what the run is made of, and how it begins."""

from __future__ import annotations

from pathlib import Path

from shoal.runtime._function import AgenticCall
from shoal.runtime._limits import Limits
from shoal.runtime._orders import SpawnRequest, check_call, schema_of
from shoal.runtime._program import Program
from shoal.runtime._programs import Programs
from shoal.runtime._running import entered
from shoal.runtime._spawn import Birth
from shoal.runtime.tools import as_tool


async def program_of(programs: Programs, wanted: SpawnRequest) -> Program:
    """Return what a run is made of that *wanted* asks for.

    Raises:
        BlueprintError: It cannot be found or loaded.
        SpawnRefused: It lists tools that nobody has, or *wanted* says what its agentic function says itself.
    """
    if isinstance(wanted.blueprint, AgenticCall):
        check_call(wanted, wanted.blueprint.function.name)
    return await programs.of(programs.bundle(wanted.blueprint), [as_tool(tool) for tool in wanted.tools])


def birth_of(
    wanted: SpawnRequest, program: Program, run_id: str, *, limits: Limits, default_model: str | None
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
