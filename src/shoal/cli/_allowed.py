"""What the user allows for one command line, and whether somebody is there to ask."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from shoal._granted import permissions_from
from shoal.blueprints import Blueprint, stage_tools, tool_name
from shoal.errors import ConfigInvalid
from shoal.runtime import BUILT_IN, Permissions

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
    """Return what the settings allow, what *allow* gives to the tools of *blueprint*, and *yes* to all others.

    Raises:
        ConfigInvalid: One of them is no tool that it could have, or the settings are of no use.
    """
    known = {*BUILT_IN, *(name for stage in blueprint.stages for name in stage_tools(stage))}
    for name in allow:
        if tool_name(name) not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(sorted(known))}"
            raise ConfigInvalid(f"`--allow {name}` names no tool of {blueprint.name!r}; {hint}")
    said = permissions_from()
    seeding = said.grants.allow_seed_commands and not no_seed_commands
    return dataclasses.replace(
        said,
        launch={tool_name(name): "allow" for name in allow},
        grants=dataclasses.replace(said.grants, allow_seed_commands=seeding),
        launch_rest="allow" if yes else None,
    )
