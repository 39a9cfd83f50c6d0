"""What a run's tools work with: its folder, its limits, what its user granted, and where its regions stand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from shoal.runtime._host import Host
from shoal.runtime._paths import Also
from shoal.runtime.context import where_stands
from shoal.runtime.events import RunSpawned
from shoal.runtime.program import Program
from shoal.runtime.state import RunState
from shoal.runtime.tools import ReadPaths, RunFacts, ToolContext


def tool_context(
    host: Host, program: Program, made: RunSpawned, run_id: str, region: Callable[[str], str | None]
) -> ToolContext:
    """Return what the tools of a run work with.

    Args:
        host: The services it lives with.
        program: What it is made of.
        made: How it was spawned.
        run_id: Its id.
        region: Says where the text of a region of that name stands; `None` where there is no such region.
    """
    limits, blueprint = host.limits, program.blueprint
    workdir = Path(made.workdir)
    return ToolContext(
        run_id,
        workdir,
        None if made.output_dir is None else Path(made.output_dir),
        host.threads,
        limits.read_bytes,
        limits.list_entries,
        limits.edit_bytes,
        limits.part_bytes,
        region,
        _read_elsewhere(host, program, workdir),
        host.shell,
        host.clock.unix,
        RunFacts(blueprint.name, blueprint.version, made.parent, made.depth, made.children_deeper, made.unattended),
        host.sandbox,
        host.memory,
    )


def _read_elsewhere(host: Host, program: Program, workdir: Path) -> Also | None:
    declared, granted = program.blueprint.read_paths, host.permissions.grants.read_paths
    return ReadPaths(declared, granted, workdir).allow if declared and granted else None


def context_of(host: Host, state: RunState) -> ToolContext:
    """Return what the tools of a run that has entered its first stage work with."""
    return tool_context(host, state.program, state.made_by, state.run_id, partial(_stands, state))


def _stands(state: RunState, name: str) -> str | None:
    held = state.view.states.get(name)
    if held is None or held.empty:
        return None if held is None else "It is empty."
    return where_stands(state.stage.layout, name, reads_regions="context_read" in state.stage.tools)
