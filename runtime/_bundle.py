"""A blueprint together with the ones that its stages name as workers: everything a run may still need of files.

A run that is resumed, or goes on after the files were edited, uses what the journal holds, never today's files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast, final

import msgspec

from shoal.blueprints import Blueprint, FanOut, canonical, from_canonical, library
from shoal.blueprints import load as load_blueprint
from shoal.errors import BlueprintInvalid, DefinitionMissing, SpawnRefused
from shoal.runtime._script_tools import ToolFile, tool_files
from shoal.runtime.tools import Tool

FORMAT = 1


@final
@dataclass(frozen=True, slots=True)
class Source:
    """Where a function is, as `module:name`, and the digest of its source."""

    qualname: str
    digest: str


@final
@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """Everything that a run may still need of files.

    Args:
        blueprint: The blueprint.
        workers: The bundles of its workers, by the name under which its stages call them.
        tools: The tools it ships.
        function: The agentic function that a run of it is; `None` for one that walks its stages.
    """

    blueprint: Blueprint
    workers: Mapping[str, Bundle] = field(default_factory=dict["str", "Bundle"])
    tools: tuple[ToolFile, ...] = ()
    function: Source | None = None


def bundle_of(blueprint: Blueprint, load: Callable[[str, Path | None], Blueprint]) -> Bundle:
    """Return *blueprint* with its workers, and theirs.

    Args:
        blueprint: The blueprint.
        load: Loads a blueprint by what a stage calls it and the folder of the blueprint that does so.

    Raises:
        BlueprintError: A worker cannot be loaded.
    """
    return _bundle(blueprint, load, ())


def _bundle(blueprint: Blueprint, load: Callable[[str, Path | None], Blueprint], above: tuple[Path, ...]) -> Bundle:
    workers: dict[str, Bundle] = {}
    folders = above if blueprint.folder is None else (*above, blueprint.folder)
    for stage in blueprint.stages:
        fan_out = stage.fan_out or FanOut()
        name = fan_out.worker_agent or fan_out.worker_query
        if name is None or name in workers:
            continue
        worker = load(name, blueprint.folder) if fan_out.worker_agent else load(_found(name, stage.name), None)
        # A blueprint that hands work to itself is loaded when it does: its bundle would have no end.
        if worker.folder is None or worker.folder not in folders:
            workers[name] = _bundle(worker, load, folders)
    return Bundle(blueprint, workers, tool_files(blueprint.folder))


def _found(query: str, stage: str) -> str:
    """Return the installed blueprint whose name or description holds *query*, whatever the case.

    Raises:
        SpawnRefused: None does, or more than one.
    """
    wanted = query.casefold()
    names = [
        name
        for name, folder in library().items()
        if wanted in name.casefold() or wanted in load_blueprint(folder).description.casefold()
    ]
    if len(names) == 1:
        return names[0]
    what = f"fit {', '.join(names)}" if names else f"fit none of {', '.join(library())}"
    raise SpawnRefused(
        f"the words of `worker_query` of stage {stage!r}, {query!r}, {what}; name one with `worker_agent`"
    )


def definition_of(bundle: Bundle, given: Sequence[Tool]) -> bytes:
    """Return what the journal keeps of a run's definition."""
    tools = [_plain_tool(tool) for tool in given]
    whole = {"format": FORMAT, "tools": tools, **_plain(bundle)}
    return json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()


def _plain_tool(tool: Tool) -> dict[str, Any]:
    said = {
        "name": tool.name,
        "source": tool.source,
        "schema": tool.schema,
        "description": tool.description,
        "effects": asdict(tool.effects),  # what a call counts as depends on them, so they are part of the history
    }
    if tool.connector is not None:
        said["connector"] = tool.connector
    return {**said, "deferred": True} if tool.deferred else said


def _plain(bundle: Bundle) -> dict[str, Any]:
    workers = {name: _plain(worker) for name, worker in bundle.workers.items()}
    folder = bundle.blueprint.folder
    return {
        "blueprint": json.loads(canonical(bundle.blueprint)),
        # What it names in its own folder, such as seeds that are resolved again, it still finds after a restart.
        "folder": None if folder is None else str(folder),
        "workers": workers,
        **({"shipped": [msgspec.structs.asdict(file) for file in bundle.tools]} if bundle.tools else {}),
        **({} if bundle.function is None else {"function": asdict(bundle.function)}),
    }


def read_definition(data: bytes) -> tuple[Bundle, Sequence[Mapping[str, Any]]]:
    """Return the bundle of a definition, and the tools that were given in code: name, source, schema.

    Raises:
        DefinitionMissing: It was written by a newer version, or is damaged.
    """
    try:
        whole = cast("dict[str, Any]", json.loads(data))
        if whole["format"] > FORMAT:
            said = f"this run's definition has format {whole['format']}; this version reads 1 to {FORMAT}"
            raise DefinitionMissing(f"{said}; install a newer one")
        return _read(whole), whole["tools"]
    except (ValueError, KeyError, TypeError, AttributeError, BlueprintInvalid) as exc:
        raise DefinitionMissing(f"this run's definition is damaged ({exc!r}); take the run from a good copy") from exc


def _read(plain: Mapping[str, Any]) -> Bundle:
    folder = plain["folder"]
    blueprint = from_canonical(json.dumps(plain["blueprint"]).encode(), folder=None if folder is None else Path(folder))
    workers = {name: _read(worker) for name, worker in plain["workers"].items()}
    function = plain.get("function")
    files = tuple(ToolFile(**file) for file in plain.get("shipped", ()))
    return Bundle(blueprint, workers, files, None if function is None else Source(**function))
