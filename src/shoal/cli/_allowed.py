"""What the user allows for one command line: `--allow TOOL`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from shoal.blueprints import Blueprint, stage_tools, tool_name
from shoal.errors import ConfigInvalid
from shoal.runtime import BUILT_IN, Permissions

AllowOption: TypeAlias = Annotated[
    tuple[str, ...], Parameter(name="--allow", negative="", help="A tool that may be called without asking.")
]


def permissions_of(blueprint: Blueprint, allow: Sequence[str]) -> Permissions:
    """Return the permissions that *allow* gives to the tools of *blueprint*.

    Raises:
        ConfigInvalid: One of them is no tool that it could have.
    """
    known = {*BUILT_IN, *(name for stage in blueprint.stages for name in stage_tools(stage))}
    for name in allow:
        if tool_name(name) not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(sorted(known))}"
            raise ConfigInvalid(f"`--allow {name}` names no tool of {blueprint.name!r}; {hint}")
    return Permissions(launch={tool_name(name): "allow" for name in allow})
