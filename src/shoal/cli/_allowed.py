"""What the user allows for one command line, and whether somebody is there to ask."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from shoal._beyond import memory_from
from shoal._granted import permissions_from
from shoal.blueprints import Blueprint, stage_tools, tool_name
from shoal.errors import ConfigInvalid
from shoal.runtime import BUILT_IN, BudgetGiven, Permissions

AllowOption: TypeAlias = Annotated[
    tuple[str, ...], Parameter(name="--allow", negative="", help="A tool that may be called without asking.")
]
SeedOption: TypeAlias = Annotated[
    tuple[str, ...], Parameter(name="--seed", negative="", help="NAME=TEXT or NAME=@FILE, a region's value.")
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

MemoryOption: TypeAlias = Annotated[
    Path | None, Parameter(name="--memory", help="The folder of notes that agents keep from run to run.")
]
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


def memory_folder(given: Path | None) -> Path | None:
    """Return the folder in which agents remember: the one that is given, else that of the settings, else none.

    Raises:
        ConfigInvalid: The settings are of no use.
    """
    return memory_from() if given is None else given


def permissions_of(
    blueprint: Blueprint, allow: Sequence[str], *, yes: bool = False, no_seed_commands: bool = False
) -> Permissions:
    """Return what the settings allow, what *allow* gives to the tools of *blueprint*, and *yes* to all others.

    Raises:
        ConfigInvalid: One of them is no tool that it could have, or the settings are of no use.
    """
    servers = {_ILLEGAL.sub("_", f"{name}__") for stage in blueprint.stages for name in stage.available_connectors}
    known = {*BUILT_IN, *(name for stage in blueprint.stages for name in stage_tools(stage))}
    for name in allow:
        if tool_name(name) not in known and not name.startswith(tuple(servers)):
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


CostOption: TypeAlias = Annotated[
    Decimal | None, Parameter(name="--max-cost-usd", help="USD that the run and all below it may cost.")
]
TokensOption: TypeAlias = Annotated[
    int | None, Parameter(name="--max-tokens", help="Tokens that the run and all below it may use.")
]
WallOption: TypeAlias = Annotated[
    float | None, Parameter(name="--max-wall-s", help="Seconds that the run may be running, pauses excluded.")
]


def budget_of(max_cost_usd: Decimal | None, max_tokens: int | None, max_wall_s: float | None) -> BudgetGiven | None:
    """Return the limits that a command line gives; `None` where it gives none.

    Raises:
        ConfigInvalid: One of them is not above 0.
    """
    given = {"--max-cost-usd": max_cost_usd, "--max-tokens": max_tokens, "--max-wall-s": max_wall_s}
    for name, value in given.items():
        if value is not None and not value > 0:
            raise ConfigInvalid(f"`{name} {value}` lets nothing through; give a number above 0")
    limits = BudgetGiven(max_cost_usd, max_tokens, max_wall_s)
    return None if limits == BudgetGiven() else limits
