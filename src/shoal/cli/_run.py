"""`shoal run`: runs a blueprint from its begin to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter

import shoal
from shoal._environment import providers_from
from shoal.blueprints import Blueprint, CallerSeed, load, resolve
from shoal.cli._allowed import AllowOption, permissions_of
from shoal.cli._hosted import Hosting, host
from shoal.cli._places import JournalOption, JsonOption, journal_file, output_folder
from shoal.cli._print import complain
from shoal.cli._progress import Progress
from shoal.cli._summary import conclude
from shoal.errors import ConfigInvalid
from shoal.runtime import Run

_MOST_SEED_BYTES = 8 * 1024 * 1024


def command(
    blueprint: Annotated[str, Parameter(help="A name of the library, or a path.")],
    /,
    *,
    task: Annotated[str | None, Parameter(help="What it is to do.")] = None,
    workdir: Annotated[Path, Parameter(help="The folder that its tools and seeds may read.")] = Path(),
    seed: Annotated[
        tuple[str, ...],
        Parameter(name="--seed", negative="", help="NAME=TEXT or NAME=@FILE, a region's value."),
    ] = (),
    model: Annotated[str | None, Parameter(help="PROVIDER:MODEL, in place of every stage's.")] = None,
    allow: AllowOption = (),
    journal: JournalOption = None,
    as_json: JsonOption = False,
    **regions: Annotated[str, Parameter(help="TEXT or @FILE, for the region of that name.")],
) -> int:
    """Run a blueprint and write its report."""
    made = load(resolve(blueprint))
    given = seeds_of(made, seed, regions)
    _warn_of_nothing(workdir)
    hosting = Hosting(journal_file(journal), providers_from(), permissions_of(made, allow), as_json=as_json)

    async def begin(swarm: shoal.Swarm, _progress: Progress) -> Run:
        return await swarm.spawn(made, task=task, seeds=given, workdir=workdir, model=model, output_dir=output_folder())

    return conclude(hosting, anyio.run(host, hosting, begin))


def _warn_of_nothing(workdir: Path) -> None:
    """Say so where the working directory is empty; a run may have other things to do than to read it."""
    try:
        empty = not any(workdir.iterdir())
    except OSError:
        return  # the spawn says what is wrong with it
    if empty:
        complain(f"the working directory {str(workdir)!r} holds nothing to read; name another with `--workdir`")


def seeds_of(blueprint: Blueprint, pairs: Sequence[str], regions: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's values by name: from `--seed NAME=TEXT` and from `--NAME TEXT`.

    Raises:
        ConfigInvalid: A pair has no `=`, a name is given twice, or a file cannot be read.
    """
    takes = [region.seed.name for region in blueprint.regions if isinstance(region.seed, CallerSeed)]
    seeds: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigInvalid(f"`--seed {pair}` names no region; write `--seed NAME=TEXT` or `--seed NAME=@FILE`")
        _add(seeds, name, value)
    for option, value in regions.items():
        name = option if option in takes else option.replace("-", "_")
        _add(seeds, name, value)
    return seeds


def _add(seeds: dict[str, str], name: str, value: str) -> None:
    if name in seeds:
        raise ConfigInvalid(f"the seed {name!r} is given twice; give it once")
    seeds[name] = text_of(value)


def text_of(value: str) -> str:
    """Return the text that *value* stands for: `@FILE` is the file's, `@@…` is text that begins with one `@`.

    Raises:
        ConfigInvalid: The file cannot be read, or is no text.
    """
    if not value.startswith("@"):
        return value
    if value.startswith("@@"):
        return value[1:]
    path = Path(value[1:]).expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_SEED_BYTES + 1)
    except OSError as exc:
        raise ConfigInvalid(f"{str(path)!r} cannot be read: {exc.strerror or exc}; check the path behind `@`") from exc
    if len(data) > _MOST_SEED_BYTES:
        raise ConfigInvalid(f"{str(path)!r} is longer than {_MOST_SEED_BYTES:,} bytes; give a part of it")
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise ConfigInvalid(f"{str(path)!r} is no UTF-8 text (byte {exc.start}); convert it first") from exc
