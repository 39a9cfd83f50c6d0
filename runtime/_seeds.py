"""What a region holds before the first inference: seeds, resolved at spawn and again where they refresh.

First every path of every region is checked, then everything else happens: an escape refuses the spawn before anything
is read or run. Regions are resolved at the same time; what comes of them stands in declared order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
    ScriptSeed,
    Seed,
    ToolsSeed,
)
from shoal.errors import PartRefused, SpawnRefused
from shoal.providers import Text
from shoal.runtime._attachment import Given, Prepared, prepared
from shoal.runtime._paths import Also, PathRefused
from shoal.runtime._seed_files import Found, look_up, read_seed
from shoal.runtime.context import SeedBlock, Shelf, estimate_text, fit_blocks
from shoal.runtime.scripts import Script
from shoal.runtime.tools import ToolResult, shown_name

CallTool: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
"""Calls a tool for a seed; a call that a gate stops is an error result."""
RunCommand: TypeAlias = Callable[[str], Awaitable[str]]
"""Runs a shell line and returns what it printed."""
RunScript: TypeAlias = Callable[[Script, str], Awaitable[str]]
"""Runs a script for the region of that name and returns what it gave."""


@final
class SeedFailed(Exception):
    """A seed, or a piece of one, gave nothing; the message says why."""


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
        run_command: Runs a shell line.
        run_script: Runs a script.
        also: Says what outside the working directory may be read; `None` for nothing.
        scripts: Scripts that were read before, by the path of their seeds; what is not in it is read.
        at_spawn: What a required region needs and cannot be had refuses the spawn; later it is a failure as any other.
        given: The caller's values with their parts, by name; a name that is not in it is one of text.
        part_bytes: Largest part.
    """

    blueprint: Blueprint
    workdir: Path
    caller: Mapping[str, Text]
    call_tool: CallTool
    threads: anyio.CapacityLimiter
    most_bytes: int
    most_files: int
    run_command: RunCommand
    run_script: RunScript
    also: Also | None = None
    scripts: Mapping[str, Script] = field(default_factory=dict[str, Script])
    at_spawn: bool = True
    given: Mapping[str, Given] = field(default_factory=dict[str, Given])
    part_bytes: int = 32 * 1024 * 1024


@final
class Resolved(msgspec.Struct, frozen=True):
    """What one seed gave. A block that is not ok failed, and *notes* say why; *script* is the one that was run.

    *parts* are what stands behind the texts of the blocks, by the number of the block; they are not kept yet.
    """

    region: str
    form: str
    blocks: tuple[SeedBlock, ...]
    notes: tuple[str, ...] = ()
    script: Script | None = None
    parts: Mapping[int, tuple[Prepared, ...]] = {}


def callers_of(regions: Mapping[str, Region]) -> frozenset[str]:
    """Return the names of the caller values that *regions* take."""
    return frozenset(region.seed.name for region in regions.values() if isinstance(region.seed, CallerSeed))


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
            how = f"the seed `{name}` (`seeds={{{name!r}: …}}`, or `--seed {name}=TEXT`)"
            how = "a task (`task=…`, or `--task TEXT`)" if name == "task" else how
            raise SpawnRefused(said or f"blueprint {blueprint!r} needs {how} for its region `{region.name}`")


async def resolve_seeds(regions: Sequence[Region], sources: Sources) -> tuple[Resolved, ...]:
    """Resolve the seeds of *regions*, all at the same time, and return what they gave in the order of *regions*.

    Raises:
        SpawnRefused: A path leads outside, a script fails, or what a required region needs cannot be had.
    """
    seeded = {region.name: region for region in regions if region.seed is not None}
    made = {name: _at_hand(region, sources) for name, region in seeded.items()}
    wanting = [seeded[name] for name, resolved in made.items() if resolved is None]
    found = await look_up_all([region for region in wanting if isinstance(region.seed, _ON_DISK)], sources)
    refused: dict[str, SpawnRefused] = {}

    async def fetch(region: Region) -> None:
        try:
            made[region.name] = await _fetch(region, found.get(region.name), sources)
        except SpawnRefused as exc:
            refused[region.name] = exc

    if wanting:
        async with anyio.create_task_group() as tasks:
            for region in wanting:
                tasks.start_soon(fetch, region)
    for region in wanting:  # one refusal is enough to say: the first in the layout's order, not in the scheduler's
        if region.name in refused:
            raise refused[region.name]
    return tuple(resolved for resolved in made.values() if resolved is not None)


_ON_DISK = (FilesSeed, GlobSeed, ScriptSeed)


async def look_up_all(regions: Sequence[Region], sources: Sources) -> Mapping[str, Found]:
    """Check every path of the seeds of *regions* and return what they lead to, by region; scripts are read.

    Raises:
        SpawnRefused: One leads outside, or a script cannot be read.
    """
    if not regions:
        return {}

    def look() -> dict[str, Found]:
        return {region.name: look_up(region, sources) for region in regions}

    return await anyio.to_thread.run_sync(look, limiter=sources.threads)


def _at_hand(region: Region, sources: Sources) -> Resolved | None:
    """Return what a seed gives that has to be fetched from nowhere; `None` for one that has."""
    match region.seed:
        case CallerSeed(name):
            value, given = sources.caller.get(name), sources.given.get(name)
            if given is not None and given.parts:
                block = SeedBlock("", given.text, estimate_text(given.text))
                return Resolved(region.name, "caller", (block,), parts={0: given.parts})
            blocks = () if value is None else (SeedBlock("", value, estimate_text(value)),)
            return Resolved(region.name, "caller", blocks)
        case LiteralSeed(text):
            value = Text.of(text)
            return Resolved(region.name, "literal", (SeedBlock("", value, estimate_text(value)),))
        case _:
            return None


async def _fetch(region: Region, found: Found | None, sources: Sources) -> Resolved:
    match region.seed:
        case FilesSeed() | GlobSeed() if found is not None:
            return await _files(region, found.paths, sources)
        case ScriptSeed() if found is not None and found.script is not None:
            return await _script(region, found.script, sources)
        case CommandSeed(command):
            return await _command(region, command, sources)
        case ToolsSeed() as seed:
            return await _tools(region, seed, sources)
        case _:
            raise AssertionError(f"nothing fetches {region.seed!r}")


def form_of(seed: Seed | None) -> str:
    """Return the form of a seed, as its events say it."""
    return _FORMS[type(seed)]


_FORMS: Mapping[type, str] = {
    CallerSeed: "caller",
    LiteralSeed: "literal",
    FilesSeed: "files",
    GlobSeed: "glob",
    CommandSeed: "command",
    ScriptSeed: "script",
    ToolsSeed: "tools",
}


def block_of(name: str, text: str, *, ok: bool = True) -> SeedBlock:
    """Return *text* as a block under a line that names where it comes from."""
    shown = shown_name(name) or repr(name)
    whole = Text.of(f"--- {shown} ---\n{text}" if text else f"--- {shown} ---")
    return SeedBlock(shown, whole, estimate_text(whole), ok)


def _whole(region: Region, text: str) -> Resolved:
    """Return what a seed gave that is one text without a heading; empty text is nothing."""
    value = Text.of(text)
    blocks = (SeedBlock("", value, estimate_text(value)),) if text.strip() else ()
    return Resolved(region.name, form_of(region.seed), blocks)


def _needed(region: Region, sources: Sources, resolved: Resolved) -> Resolved:
    """Return *resolved*; a spawn is refused where a region needs what it does not give."""
    if sources.at_spawn and region.required and not any(block.ok for block in resolved.blocks):
        why = f": {'; '.join(resolved.notes)}" if resolved.notes else "; check it"
        raise SpawnRefused(f"region {region.name!r} is required and its seed {resolved.form} gives nothing{why}")
    return resolved


# --- the forms


async def _files(region: Region, paths: Sequence[str], sources: Sources) -> Resolved:
    blocks: list[SeedBlock] = []
    notes: list[str] = []
    parts: dict[int, tuple[Prepared, ...]] = {}
    for path in paths:
        try:
            held = await anyio.to_thread.run_sync(read_seed, path, sources, limiter=sources.threads)
        except PathRefused as refused:
            if refused.why == "outside" or (region.required and sources.at_spawn):
                raise SpawnRefused(f"the seed of region {region.name!r} cannot be read: {refused}") from refused
            notes.append(str(refused))
            blocks.append(block_of(path, str(refused), ok=False))
            continue
        if isinstance(held, Prepared):
            parts[len(blocks)] = (held,)
        blocks.append(block_of(path, held if isinstance(held, str) else ""))
    form = form_of(region.seed)
    return _needed(region, sources, Resolved(region.name, form, tuple(blocks), tuple(notes), parts=parts))


async def _command(region: Region, command: str, sources: Sources) -> Resolved:
    try:
        resolved = _whole(region, await sources.run_command(command))
    except SeedFailed as failed:
        said = f"the command {command!r} {failed}"
        resolved = Resolved(region.name, "command", (SeedBlock("", Text.of(""), 0, ok=False),), (said,))
    return _needed(region, sources, resolved)


async def _script(region: Region, script: Script, sources: Sources) -> Resolved:
    try:
        resolved = _whole(region, await sources.run_script(script, region.name))
    except SeedFailed as failed:
        if sources.at_spawn:
            raise SpawnRefused(f"the seed of region {region.name!r} fails: {failed}") from failed
        resolved = Resolved(region.name, "script", (SeedBlock("", Text.of(""), 0, ok=False),), (str(failed),))
    return _needed(region, sources, msgspec.structs.replace(resolved, script=script))


async def _tools(region: Region, seed: ToolsSeed, sources: Sources) -> Resolved:
    blocks: list[SeedBlock] = []
    notes: list[str] = []
    parts: dict[int, tuple[Prepared, ...]] = {}
    for call in seed.calls:
        result = await sources.call_tool(call.name, call.args)
        try:
            brought = await prepared(result.parts, sources.part_bytes, sources.threads)
        except PartRefused as refused:
            result, brought = ToolResult.error(str(refused)), ()
        if result.is_error:
            if region.required and sources.at_spawn:
                raise SpawnRefused(
                    f"region {region.name!r} is required and its seed tool `{call.name}` failed: {result.text}"
                )
            notes.append(f"{call.name}: {result.text}")
        if brought:
            parts[len(blocks)] = brought
        blocks.append(block_of(call.name, str(result.text), ok=not result.is_error))
    return Resolved(region.name, "tools", tuple(blocks), tuple(notes), parts=parts)


# --- fitting


def in_text(resolved: Resolved, *, refuses: bool) -> Resolved:
    """Return *resolved* for a checklist, which takes text: what holds a part is left out.

    Raises:
        SpawnRefused: It is the caller's own word (*refuses*), which is not left out.
    """
    if not resolved.parts:
        return resolved
    said = f"region {resolved.region!r} is a checklist and takes items of text"
    if refuses:
        raise SpawnRefused(f"{said}; give it no parts")
    left = tuple([block for number, block in enumerate(resolved.blocks) if number not in resolved.parts])
    notes = [f"{resolved.blocks[number].name} is left out: {said}" for number in resolved.parts]
    return Resolved(resolved.region, resolved.form, left, (*resolved.notes, *notes))


def fitted(resolved: Resolved, room_tokens: int, region: Region, shelf: Shelf, *, refuses: bool) -> Resolved:
    """Cut what a seed gave to *room_tokens*, with a marker; blocks for which nothing is left are dropped and noted.

    Args:
        resolved: What the seed gave; blocks that failed are left out.
        room_tokens: What the region takes.
        region: The region.
        shelf: Where the parts of the blocks are.
        refuses: What does not fit refuses the spawn instead: it is the caller's own word.

    Raises:
        SpawnRefused: It does not fit and must not be cut, or nothing of it can stand where something has to.
    """
    if refuses:
        for block in resolved.blocks:
            if block.tokens > room_tokens:
                raise SpawnRefused(
                    f"what the caller gives to region {resolved.region!r} is {block.tokens} tokens, and it holds "
                    f"{room_tokens}; give less, or raise its `budget` or `max_tokens`"
                )
    blocks, notes = fit_blocks(resolved.blocks, room_tokens, region, shelf)
    if not blocks and resolved.blocks and notes and (refuses or region.required):
        raise SpawnRefused(f"the seed of region {resolved.region!r} cannot stand there: {'; '.join(notes)}")
    return Resolved(resolved.region, resolved.form, blocks, (*resolved.notes, *notes))
