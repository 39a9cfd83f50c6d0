"""What the user allows for one command line, and whether somebody is there to ask."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from shoal.blueprints import Blueprint, stage_tools, tool_name
from shoal.errors import ConfigInvalid
from shoal.runtime import BUILT_IN, Grants, Permissions

AllowOption: TypeAlias = Annotated[
    tuple[str, ...], Parameter(name="--allow", negative="", help="A tool that may be called without asking.")
]
YesOption: TypeAlias = Annotated[
    bool,
    Parameter(name="--yes", negative="", help="Allow every tool that would need approval; what is denied stays so."),
]
NoSeedCommandsOption: TypeAlias = Annotated[
    bool, Parameter(name="--no-seed-commands", negative="", help="Run no command that seeds a region.")
]
AttendedOption: TypeAlias = Annotated[
    bool | None,
    Parameter(
        name="--attended",
        negative="--unattended",
        help="Somebody answers, here or from elsewhere; or nobody does. Unless said: whoever is at the terminal.",
    ),
]


def permissions_of(
    blueprint: Blueprint, allow: Sequence[str], *, yes: bool = False, no_seed_commands: bool = False
) -> Permissions:
    """Return the permissions that *allow* gives to the tools of *blueprint*, and *yes* to all others.

    Raises:
        ConfigInvalid: One of them is no tool that it could have.
    """
    known = {*BUILT_IN, *(name for stage in blueprint.stages for name in stage_tools(stage))}
    for name in allow:
        if tool_name(name) not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(sorted(known))}"
            raise ConfigInvalid(f"`--allow {name}` names no tool of {blueprint.name!r}; {hint}")
    return Permissions(
        launch={tool_name(name): "allow" for name in allow},
        grants=Grants(allow_seed_commands=not no_seed_commands),
        launch_rest="allow" if yes else None,
    )
