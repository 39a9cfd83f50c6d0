"""`shoal run`: runs a blueprint from its begin to its end."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter

import shoal
from shoal._environment import providers_from
from shoal.blueprints import Blueprint, CallerSeed, load, resolve
from shoal.cli._allowed import (
    AllowOption,
    AttendedOption,
    CostOption,
    MemoryOption,
    NoSeedCommandsOption,
    SeedOption,
    TokensOption,
    WallOption,
    YesOption,
    budget_of,
    memory_folder,
    permissions_of,
)
from shoal.cli._hosted import Hosting, host, person_at
from shoal.cli._places import JournalOption, JsonOption, journal_file, output_folder
from shoal.cli._print import complain
from shoal.cli._progress import Progress
from shoal.cli._summary import conclude
from shoal.cli._texts import value_of
from shoal.errors import ConfigInvalid
from shoal.providers import Provider
from shoal.runtime import Run, SeedValue


def command(
    blueprint: Annotated[str, Parameter(help="A name of the library, or a path.")],
    /,
    *,
    task: Annotated[str | None, Parameter(help="What it is to do.")] = None,
    workdir: Annotated[Path, Parameter(help="The folder that its tools and seeds may read.")] = Path(),
    seed: SeedOption = (),
    model: Annotated[str | None, Parameter(help="PROVIDER:MODEL, in place of every stage's.")] = None,
    allow: AllowOption = (),
    yes: YesOption = False,
    no_seed_commands: NoSeedCommandsOption = False,
    attended: AttendedOption = None,
    max_cost_usd: CostOption = None,
    max_tokens: TokensOption = None,
    max_wall_s: WallOption = None,
    memory: MemoryOption = None,
    journal: JournalOption = None,
    as_json: JsonOption = False,
    **regions: Annotated[str, Parameter(help="TEXT or @FILE, for the region of that name.")],
) -> int:
    """Run a blueprint and write its report."""
    made = load(resolve(blueprint))
    given = seeds_of(made, seed, regions, OPTIONS)
    _warn_of_nothing(workdir)
    person = person_at(attended=attended, as_json=as_json)
    budget = budget_of(max_cost_usd, max_tokens, max_wall_s)
    permissions = permissions_of(made, allow, yes=yes, no_seed_commands=no_seed_commands)
    hosting = Hosting(
        journal_file(journal),
        providers_from(),
        permissions,
        memory=memory_folder(memory),
        as_json=as_json,
        person=person,
    )
    refuse_strangers(model, hosting.providers)

    async def begin(swarm: shoal.Swarm, _progress: Progress) -> Run:
        return await swarm.spawn(
            made,
            task=task,
            seeds=given,
            workdir=workdir,
            model=model,
            unattended=person == "nobody",
            output_dir=output_folder(),
            budget=budget,
        )

    return conclude(hosting, anyio.run(host, hosting, begin))


def refuse_strangers(model: str | None, providers: Sequence[Provider]) -> None:
    """Refuse a model of a provider that is not here: nobody stands in for what a user asked for by name.

    Raises:
        ConfigInvalid: There is no such provider.
    """
    names = [provider.name for provider in providers]
    if model is not None and model.partition(":")[0] not in names:
        known = ", ".join(f"`{name}:MODEL`" for name in names)
        raise ConfigInvalid(f"`--model {model}` names no provider that is here; write {known}, or set `SHOAL_PROVIDER`")


def _warn_of_nothing(workdir: Path) -> None:
    """Say so where the working directory is empty; a run may have other things to do than to read it."""
    try:
        empty = not any(workdir.iterdir())
    except OSError:
        return  # the spawn says what is wrong with it
    if empty:
        complain(f"the working directory {str(workdir)!r} holds nothing to read; name another with `--workdir`")


OPTIONS = tuple(
    name.removeprefix("as_").replace("_", "-")
    for name, parameter in inspect.signature(command).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
)
"""What `shoal run` takes besides regions."""


def seeds_of(
    blueprint: Blueprint, pairs: Sequence[str], regions: Mapping[str, str], options: Sequence[str]
) -> dict[str, SeedValue]:
    """Return the caller's values by name: from `--seed NAME=TEXT` and from `--NAME TEXT`.

    A file that is no text, such as an image, is a part.

    Args:
        blueprint: The blueprint.
        pairs: The pairs.
        regions: Text by name.
        options: What the command takes besides regions, for somebody who mistyped one.

    Raises:
        ConfigInvalid: A pair has no `=`, a name is given twice or looks like a mistyped option, or a file cannot be
            read.
    """
    takes = [region.seed.name for region in blueprint.regions if isinstance(region.seed, CallerSeed)]
    seeds: dict[str, SeedValue] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigInvalid(f"`--seed {pair}` names no region; write `--seed NAME=TEXT` or `--seed NAME=@FILE`")
        _add(seeds, name, value)
    for option, value in regions.items():
        name = option if option in takes else option.replace("-", "_")
        near = difflib.get_close_matches(option, options, n=1) if name not in takes else []
        if near:
            raise ConfigInvalid(
                f"`--{option}` is no option, and {blueprint.name!r} takes no seed of that name; did you mean "
                f"`--{near[0]}`?"
            )
        _add(seeds, name, value)
    return seeds


def _add(seeds: dict[str, SeedValue], name: str, value: str) -> None:
    if name in seeds:
        raise ConfigInvalid(f"the seed {name!r} is given twice; give it once")
    seeds[name] = value_of(value)
