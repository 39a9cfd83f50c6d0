"""The scripts that a blueprint ships: found in its folder, read and looked at once, before a run of it begins.

A run keeps what was read: an edit of a file counts from the next run on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import final

import anyio
import anyio.to_thread
import msgspec

from shoal.blueprints import Blueprint, OutputSpec, Region
from shoal.errors import ConfigInvalid, SpawnRefused
from shoal.runtime._paths import PathRefused, open_inside
from shoal.runtime._seed_files import OWN_FOLDER
from shoal.runtime.scripts import Sandbox, Script, ScriptError

SUFFIX = ".py"
VALIDATE = "validate"
"""The function of a script that looks at an answer."""
RUN = "run"
"""The function of a script that is a tool."""
MOST_BYTES = 1024 * 1024
"""A longer script is refused unread."""


@final
class Use(msgspec.Struct, frozen=True):
    """What a blueprint uses a script for.

    Args:
        key: Where the blueprint names it, such as `context.regions.brain.script`.
        path: The path, as the blueprint writes it.
        needs: The function that has to be there.
    """

    key: str
    path: str
    needs: str


def uses_of(blueprint: Blueprint) -> Iterator[Use]:
    """Yield what *blueprint* uses scripts of its own folder for."""
    yield from _regions("context.regions", blueprint.regions)
    yield from _validator("agent.output", blueprint.output)
    for stage in blueprint.stages:
        key = f"stages.{stage.name}"
        yield from _regions(f"{key}.context.regions", stage.context.regions or ())
        yield from _validator(f"{key}.output", stage.output)
        yield from (Use(f"{key}.hooks.{hook}", path, hook) for hook, path in stage.hooks.items())


def _regions(key: str, regions: Sequence[Region]) -> Iterator[Use]:
    for region in regions:
        if region.kind == "custom" and region.script is not None:
            yield Use(f"{key}.{region.name}.script", region.script, "render")


def _validator(key: str, output: OutputSpec | None) -> Iterator[Use]:
    if output is not None and output.validator is not None:
        yield Use(f"{key}.validator", output.validator, VALIDATE)


def own_path(path: str) -> str:
    """Return the name under which a run keeps the script at *path* of its blueprint's folder."""
    return path if path.startswith(OWN_FOLDER) else f"{OWN_FOLDER}{path}"


async def own_scripts(blueprint: Blueprint, sandbox: Sandbox, threads: anyio.CapacityLimiter) -> Mapping[str, Script]:
    """Return the scripts of *blueprint*, read and looked at, by the name under which a run keeps them.

    Raises:
        SpawnRefused: One is missing, lies outside the folder, cannot be read, or lacks the function that is called.
    """
    uses = tuple(uses_of(blueprint))
    if not uses:
        return {}

    def read() -> dict[str, Script]:
        return {own_path(use.path): sandbox.trusted(use.path) or read_script(blueprint, use) for use in uses}

    scripts = await anyio.to_thread.run_sync(read, limiter=threads)
    for use in uses:
        await look(scripts[own_path(use.path)], use, sandbox)
    return scripts


def read_script(blueprint: Blueprint, use: Use) -> Script:
    """Return the script that *use* names; call it in a thread.

    Raises:
        SpawnRefused: It is missing, lies outside the folder, or is no text.
    """
    folder = blueprint.folder
    if folder is None:
        raise SpawnRefused(
            f"`{use.key}` names the script {use.path!r} and the blueprint has no folder to look in; "
            "build it with `folder=`"
        )
    if not use.path.endswith(SUFFIX):
        raise SpawnRefused(
            f"`{use.key}` names {use.path!r}, which is no Python; port the script and name a file that ends in `.py`"
        )
    try:
        return Script(own_path(use.path), _text(folder.resolve(), use.path))
    except PathRefused as refused:
        raise SpawnRefused(f"the script of `{use.key}` cannot be read: {refused}") from refused


def _text(folder: Path, path: str) -> str:
    with os.fdopen(open_inside(folder, path), "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise PathRefused("special", f"{path!r} is larger than {MOST_BYTES:,} bytes; make it shorter")
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise PathRefused("special", f"{path!r} is not UTF-8 text") from exc


_GIVEN = {VALIDATE: "content", RUN: "args"}


async def look(script: Script, use: Use, sandbox: Sandbox) -> None:
    """Refuse *script* where it cannot be used as *use* says.

    Raises:
        SpawnRefused: It cannot be read, fails before anything is called, or lacks the function.
    """
    try:
        known = await sandbox.defines(script, (use.needs,))
    except (ScriptError, ConfigInvalid) as exc:
        raise SpawnRefused(f"the script of `{use.key}` cannot be used: {exc}") from exc
    if not known:
        raise SpawnRefused(
            f"the script of `{use.key}`, {use.path!r}, defines no function `{use.needs}`; "
            f"write `def {use.needs}({_GIVEN.get(use.needs, 'ctx')}):` into it"
        )


async def check_tools(scripts: Iterable[Script], sandbox: Sandbox) -> None:
    """Look at *scripts*, which are tools that a blueprint ships.

    Raises:
        SpawnRefused: One cannot be used.
    """
    for script in scripts:
        await look(script, Use(script.path, script.path, RUN), sandbox)
