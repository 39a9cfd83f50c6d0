"""Tools, commands and paths: what a blueprint asks for, against what there is and what its user grants."""

from __future__ import annotations

import difflib
from pathlib import Path

from shoal.blueprints import Blueprint, tool_name
from shoal.runtime.tools import BUILT_IN, Permissions, command_problem, ungranted
from shoal.validate._finding import Findings, error, note, warning


def check_tool_names(blueprint: Blueprint, others: frozenset[str]) -> Findings:
    """Yield the tools that stages list and nobody has; those of servers are known at the spawn and passed over.

    Args:
        blueprint: The blueprint.
        others: Names of tools that are shipped or given in code.
    """
    known = frozenset(BUILT_IN) | others
    for stage in blueprint.stages:
        for position, name in enumerate(stage.available_tools):
            if tool_name(name) in known or "__" in name or stage.available_connectors:
                continue
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            said = (
                f"nobody has a tool `{name}`{hint}; ship it as `tools/{name}.py`, or give it in code and say so with "
                f"`--tool {name}`"
            )
            yield error("unknown-tool", f"stages.{stage.name}.available_tools[{position}]", said)


def check_commands(blueprint: Blueprint) -> Findings:
    """Yield the safe commands that no line can match."""
    for position, entry in enumerate(blueprint.safe_shell):
        problem = command_problem(entry)
        if problem is not None:
            yield error("unparseable-safe-command", f"safe_commands.shell[{position}]", problem)


def check_read_paths(blueprint: Blueprint, permissions: Permissions, workdir: Path) -> Findings:
    """Yield the paths that a blueprint asks to read and its user has not granted."""
    granted = permissions.grants.read_paths
    for entry in ungranted(blueprint.read_paths, granted, workdir):
        said = f"{entry!r} is not granted by `read_paths` in the user's configuration, so nothing of it will be read"
        yield warning("read-paths-not-granted", f"read_paths.allow[{blueprint.read_paths.index(entry)}]", said)


def check_people(blueprint: Blueprint) -> Findings:
    """Yield what waits for a person, or stays forbidden, however freely a run is launched."""
    for stage in blueprint.stages:
        if stage.required_tools:
            listed = ", ".join(f"`{name}`" for name in stage.required_tools)
            said = f"{listed} wait for a person in an unattended run too"
            yield note("holds-under-yolo", f"stages.{stage.name}.required_tools", said)
        for position, point in enumerate(stage.interaction_points):
            if point.unattended == "ask":
                said = f"the point `{point.name}` asks a person in an unattended run too"
                yield note("holds-under-yolo", f"stages.{stage.name}.interaction_points[{position}]", said)
    denied = [("tool_permissions", blueprint.tool_permissions)]
    denied += [(f"stages.{stage.name}.tool_permissions", stage.tool_permissions) for stage in blueprint.stages]
    for key, permissions in denied:
        for name, permission in permissions.items():
            if permission == "deny":
                yield note("holds-under-yolo", f"{key}.{name}", f"`{name}` is denied, and no launch flag lifts that")
