"""What a region holds before the first inference: seeds, resolved at spawn and again where they refresh.

Every path is checked before any file is read, and again on what was really opened. Regions are resolved at the same
time; what comes of them stands in declared order.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, final

import anyio
import anyio.to_thread
import msgspec

from shoal.blueprints import (
    Blueprint,
    CallerSeed,
    CommandSeed,
    FilesSeed,
    GlobSeed,
    LiteralSeed,
    Region,
    ToolsSeed,
)
from shoal.errors import NotBuiltYet, SpawnRefused
from shoal.providers import Text
from shoal.runtime._paths import PathRefused, open_inside
from shoal.runtime.context import SeedBlock, estimate_text, fit_blocks
from shoal.runtime.tools import ToolResult, shown_name

CallTool: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
"""Calls a tool for a seed; a call that a gate stops is an error result."""

_OWN_FOLDER = "blueprint:"


@final
@dataclass(frozen=True, slots=True)
class Sources:
    """Where the seeds of one run come from.

    Args:
        blueprint: The blueprint.
        workdir: The run's working directory, a real path.
        caller: The caller's values by name; `task` among them where there is one.
        call_tool: Calls a tool.
        threads: Limits the threads that read files.
        most_bytes: Largest file that is read.
        most_files: Most files that one glob may match.
        at_spawn: What a required region needs and cannot be had refuses the spawn; later it is a failure as any other.
    """

    blueprint: Blueprint
    workdir: Path
    caller: Mapping[str, Text]
    call_tool: CallTool
    threads: anyio.CapacityLimiter
    most_bytes: int
    most_files: int
    at_spawn: bool = True


@final
class Resolved(msgspec.Struct, frozen=True):
    """What one seed gave. A block that is not ok failed, and *notes* say why."""

    region: str
    form: str
    blocks: tuple[SeedBlock, ...]
    notes: tuple[str, ...] = ()


def check_callers(regions: Mapping[str, Region], blueprint: str, given: Mapping[str, Text]) -> None:
    """Refuse values that no region takes, and a missing one that a region needs.

    Raises:
        SpawnRefused: A name is unknown or missing; the message says which names are taken.
    """
    takes = [(region.seed.name, region) for region in regions.values() if isinstance(region.seed, CallerSeed)]
    known = dict(takes)
    unknown = [name for name in given if name not in known]
    if unknown:
        names = ", ".join(f"`{name}`" for name in known if name != "task") or "none"
        if unknown == ["task"]:
            raise SpawnRefused(f"blueprint {blueprint!r} takes no task; give it its seeds instead: {names}")
        listed = ", ".join(repr(name) for name in unknown)
        raise SpawnRefused(f"blueprint {blueprint!r} takes no seed {listed}; it takes {names}")
    for name, region in takes:
        if region.required and not str(given.get(name, "")).strip():
            said = (region.required_message or "").replace("{region}", region.name)
            how = "a task (`--task`)" if name == "task" else f"the seed `{name}` (`--seed {name}=TEXT`)"
            raise SpawnRefused(said or f"blueprint {blueprint!r} needs {how} for its region `{region.name}`")


async def resolve_seeds(regions: Sequence[Region], sources: Sources) -> tuple[Resolved, ...]:
    """Resolve the seeds of *regions*, all at the same time, and return what they gave in the order of *regions*.

    Raises:
        SpawnRefused: A path leads outside, or what a required region needs cannot be had.
    """
    seeded = [region for region in regions if region.seed is not None]
    for region in seeded:
        if isinstance(region.seed, FilesSeed):
            for path in region.seed.paths:
                _contained(region, path, sources)
        elif isinstance(region.seed, GlobSeed):
            _contained(region, region.seed.pattern, sources, wild=True)
    made = {region.name: _at_hand(region, sources) for region in seeded}
    wanting = [region for region in seeded if made[region.name] is None]
    refused: dict[str, SpawnRefused | NotBuiltYet] = {}

    async def fetch(region: Region) -> None:
        try:
            made[region.name] = await _fetch(region, sources)
        except (SpawnRefused, NotBuiltYet) as exc:
            refused[region.name] = exc

    if wanting:
        async with anyio.create_task_group() as tasks:
            for region in wanting:
                tasks.start_soon(fetch, region)
    for region in wanting:  # one refusal is enough to say: the first in the layout's order, not in the scheduler's
        if region.name in refused:
            raise refused[region.name]
    return tuple(resolved for resolved in made.values() if resolved is not None)


def _at_hand(region: Region, sources: Sources) -> Resolved | None:
    """Return what a seed gives that has to be fetched from nowhere; `None` for one that has."""
    match region.seed:
        case CallerSeed(name):
            value = sources.caller.get(name)
            blocks = () if value is None else (SeedBlock("", value, estimate_text(value)),)
            return Resolved(region.name, "caller", blocks)
        case LiteralSeed(text):
            value = Text.of(text)
            return Resolved(region.name, "literal", (SeedBlock("", value, estimate_text(value)),))
        case _:
            return None


async def _fetch(region: Region, sources: Sources) -> Resolved:
    seed = region.seed
    match seed:
        case FilesSeed(paths):
            return await _files(region, "files", paths, sources)
        case GlobSeed(pattern):
            matches = await anyio.to_thread.run_sync(_matches, region, pattern, sources, limiter=sources.threads)
            return await _files(region, "glob", matches, sources)
        case ToolsSeed():
            return await _tools(region, seed, sources)
        case _:
            form = "command" if isinstance(seed, CommandSeed) else "script"
            raise NotBuiltYet(
                f"region {region.name!r} is seeded by a {form}, which this version does not run; "
                "seed it with `files`, `glob`, `literal`, `tool` or a caller's value",
                keys=(f"context.regions.{region.name}.seed.{form}",),
            )


# --- files


def _root(path: str, sources: Sources) -> tuple[Path, str]:
    """Return the folder that *path* may not leave, and *path* below it."""
    if not path.startswith(_OWN_FOLDER):
        return sources.workdir, path
    folder = sources.blueprint.folder
    if folder is None:
        raise SpawnRefused(f"{path!r} means the blueprint's own folder and it has none; build it with `folder=`")
    return folder.resolve(), path.removeprefix(_OWN_FOLDER)


def _contained(region: Region, path: str, sources: Sources, *, wild: bool = False) -> None:
    """Refuse a path (a pattern, where *wild*) that leads outside, before anything is read."""
    root, below = _root(path, sources)
    pure = PurePosixPath(below)
    fixed = _fixed_parts(pure) if wild else pure.parts
    try:
        real = root.joinpath(*fixed).resolve()
    except (OSError, RuntimeError, ValueError) as exc:
        raise SpawnRefused(f"the seed of region {region.name!r} names {path!r}, which is no path: {exc}") from exc
    if ".." in pure.parts[len(fixed) :] or (real != root and root not in real.parents):
        where = "the blueprint's folder" if path.startswith(_OWN_FOLDER) else "the working directory"
        raise SpawnRefused(
            f"the seed of region {region.name!r} names {path!r}, which leads outside {where}; name a path inside it"
        )


def _fixed_parts(pattern: PurePosixPath) -> tuple[str, ...]:
    """Return the parts of *pattern* in front of its first wildcard."""
    parts = pattern.parts
    wild = next((i for i, part in enumerate(parts) if any(mark in part for mark in "*?[")), len(parts))
    return parts[:wild]


def _matches(region: Region, pattern: str, sources: Sources) -> tuple[str, ...]:
    """Return the files that *pattern* matches, sorted, as somebody would write them."""
    root, below = _root(pattern, sources)
    prefix = _OWN_FOLDER if pattern.startswith(_OWN_FOLDER) else ""
    if PurePosixPath(below).name == "**":
        below = f"{below}/*"  # all files below; Python means all folders before 3.13
    try:
        files = (path.relative_to(root).as_posix() for path in root.glob(below) if not path.is_dir())
        found = sorted(itertools.islice(files, sources.most_files + 1))
    except (ValueError, NotImplementedError) as exc:
        raise SpawnRefused(
            f"the seed of region {region.name!r} has the glob {pattern!r}, which is none: {exc}"
        ) from exc
    if len(found) > sources.most_files:
        raise SpawnRefused(
            f"the glob {pattern!r} of region {region.name!r} matches more than {sources.most_files} files; narrow it, "
            "or raise the limit `list_entries`"
        )
    for path in found:
        _contained(region, f"{prefix}{path}", sources)
    return tuple(f"{prefix}{path}" for path in found)


async def _files(region: Region, form: str, paths: Sequence[str], sources: Sources) -> Resolved:
    blocks: list[SeedBlock] = []
    notes: list[str] = []
    for path in paths:
        try:
            text = await anyio.to_thread.run_sync(_read, path, sources, limiter=sources.threads)
        except PathRefused as refused:
            if refused.why == "outside" or (region.required and sources.at_spawn):
                raise SpawnRefused(f"the seed of region {region.name!r} cannot be read: {refused}") from refused
            notes.append(str(refused))
            blocks.append(block_of(path, str(refused), ok=False))
        else:
            blocks.append(block_of(path, text))
    if region.required and not blocks:
        raise SpawnRefused(f"region {region.name!r} is required and its seed {form} gives nothing; check the path")
    return Resolved(region.name, form, tuple(blocks), tuple(notes))


def _read(path: str, sources: Sources) -> str:
    root, below = _root(path, sources)
    with os.fdopen(open_inside(root, below), "rb") as file:
        data = file.read(sources.most_bytes + 1)
    if len(data) > sources.most_bytes:
        raise PathRefused("special", f"{path!r} is larger than {sources.most_bytes:,} bytes; raise `seed_bytes`")
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise PathRefused("special", f"{path!r} is not UTF-8 text") from exc
    if "\0" in text:
        raise PathRefused("special", f"{path!r} is binary, not text")
    return text


def block_of(name: str, text: str, *, ok: bool = True) -> SeedBlock:
    """Return *text* as a block under a line that names where it comes from."""
    shown = shown_name(name) or repr(name)
    whole = Text.of(f"--- {shown} ---\n{text}")
    return SeedBlock(shown, whole, estimate_text(whole), ok)


# --- tools


async def _tools(region: Region, seed: ToolsSeed, sources: Sources) -> Resolved:
    blocks: list[SeedBlock] = []
    notes: list[str] = []
    for call in seed.calls:
        result = await sources.call_tool(call.name, call.args)
        if result.is_error:
            if region.required and sources.at_spawn:
                raise SpawnRefused(
                    f"region {region.name!r} is required and its seed tool `{call.name}` failed: {result.text}"
                )
            notes.append(f"{call.name}: {result.text}")
        blocks.append(block_of(call.name, str(result.text), ok=not result.is_error))
    return Resolved(region.name, "tools", tuple(blocks), tuple(notes))


# --- fitting


def fitted(resolved: Resolved, room_tokens: int, *, refuses: bool) -> Resolved:
    """Cut what a seed gave to *room_tokens*, with a marker; blocks for which nothing is left are dropped and noted.

    Args:
        resolved: What the seed gave; blocks that failed are left out.
        room_tokens: What the region takes.
        refuses: What does not fit refuses the spawn instead: it is the caller's own word.

    Raises:
        SpawnRefused: It does not fit and must not be cut.
    """
    if refuses:
        for block in resolved.blocks:
            if block.tokens > room_tokens:
                raise SpawnRefused(
                    f"what the caller gives to region {resolved.region!r} is {block.tokens} tokens, and it holds "
                    f"{room_tokens}; give less, or raise its `budget` or `max_tokens`"
                )
    blocks, notes = fit_blocks(resolved.blocks, room_tokens)
    return Resolved(resolved.region, resolved.form, blocks, (*resolved.notes, *notes))
