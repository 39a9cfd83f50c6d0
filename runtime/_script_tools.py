"""Tools that a blueprint ships as scripts: `tools/NAME.py` in its folder, each a function `run(args)` with a header.

    # @tool count_words
    # @description Count the words of a text.
    # @param text string required "The text."
    def run(args):
        return len(args["text"].split())

A file `tools/NAME.toml` beside it may say the same as `name`, `description` and `parameters`, a JSON schema, where the
header is not enough. A script reaches nothing outside the sandbox, so that calling it again does no harm.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, final

import msgspec
import tomli

from shoal.errors import ConfigInvalid, ToolInvalid
from shoal.runtime._own_scripts import MOST_BYTES, RUN, SUFFIX
from shoal.runtime._paths import PathRefused, open_inside
from shoal.runtime.scripts import Script, ScriptError
from shoal.runtime.tools import Effects, Tool, ToolContext, ToolResult, as_result

FOLDER = "tools"
_MOST_FILES = 256
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_DIRECTIVE = re.compile(r"#\s*@(\w+)\s*(.*?)\s*$")
_PARAM = re.compile(r'(?P<name>\w+)\s+(?P<type>\w+)\s+(?P<need>required|optional)(?:\s+"(?P<doc>[^"]*)")?')


@final
class ToolFile(msgspec.Struct, frozen=True):
    """A script of the folder `tools`: its path below the blueprint's folder, its text, and what stands beside it.

    Args:
        path: The path.
        source: Its text; why it cannot be read where *broken*.
        beside: The text of the TOML file beside it; `None` for none.
        broken: It cannot be read.
    """

    path: str
    source: str
    beside: str | None = None
    broken: bool = False

    @property
    def stem(self) -> str:
        """The name of its file, without the ending."""
        return Path(self.path).stem


@final
class _Declared(msgspec.Struct):
    """What a tool says of itself."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


# --- files


def tool_files(folder: Path | None) -> tuple[ToolFile, ...]:
    """Return the scripts of the folder `tools` in *folder*, sorted by name; none where there is no such folder."""
    names = [name for name, _, _ in signature(folder) if name.endswith(SUFFIX)]
    return () if folder is None else tuple(_read(folder.resolve(), name) for name in names)


def signature(folder: Path | None) -> tuple[tuple[str, int, int], ...]:
    """Return name, time of change and size of what the folder `tools` in *folder* holds: it tells an edit."""
    if folder is None:
        return ()
    try:
        with os.scandir(folder / FOLDER) as entries:
            found = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith((SUFFIX, ".toml"))]
    except OSError:
        return ()
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in found))[:_MOST_FILES]


def _read(root: Path, name: str) -> ToolFile:
    path = f"{FOLDER}/{name}"
    beside = Path(path).with_suffix(".toml")
    try:
        source = _text(root, path)
        return ToolFile(path, source, _text(root, str(beside)) if (root / beside).exists() else None)
    except PathRefused as refused:
        return ToolFile(path, str(refused), broken=True)


def _text(root: Path, path: str) -> str:
    with os.fdopen(open_inside(root, path), "rb") as file:
        data = file.read(MOST_BYTES + 1)
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise PathRefused("special", f"{path!r} is not UTF-8 text") from exc
    if len(data) > MOST_BYTES:
        raise PathRefused("special", f"{path!r} is larger than {MOST_BYTES:,} bytes; make it shorter")
    return text


# --- tools


def script_tool(file: ToolFile) -> Tool:
    """Return the tool that *file* is; it asks before each call, unless somebody allows it.

    Raises:
        ToolInvalid: What it says of itself is not understood; the message names the file.
    """
    if file.broken:
        raise ToolInvalid(f"the tool of {file.path!r} cannot be read: {file.source}")
    declared = _declared(file)
    script = Script(file.path, file.source)

    async def call(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
        if context.sandbox is None:
            return ToolResult.error(f"there is no sandbox here to run {file.path!r} in")
        given = {name: args[name] for name in args}
        seed = zlib.crc32(f"{context.run_id} {declared.name} {json.dumps(given, sort_keys=True)}".encode())
        try:
            return as_result(await context.sandbox.call(script, RUN, given, at=context.now(), seed=seed))
        except (ScriptError, ConfigInvalid) as exc:
            return ToolResult.error(str(exc))

    return Tool(declared.name, declared.description, declared.parameters, call, "ask", Effects(reads=True))


def _declared(file: ToolFile) -> _Declared:
    made = _Declared(file.stem)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for number, directive, rest in _header(file.source):
        where = f"{file.path}:{number}"
        match directive:
            case "tool":
                made.name = rest
            case "description":
                made.description = f"{made.description} {rest}".strip()
            case "param":
                _add_param(where, rest, properties, required)
            case "requires":
                raise ToolInvalid(
                    f"{where}: a script has no {rest or 'such thing'}: it reaches nothing outside the sandbox; "
                    "give the tool in code instead"
                )
            case _:
                raise ToolInvalid(f"{where}: `@{directive}` is no directive; write `@tool`, `@description` or `@param`")
    made.parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        made.parameters["required"] = required
    return made if file.beside is None else _overridden(file, made)


def _header(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the directives of the comments at the head of *source*: line, name, the rest."""
    for number, line in enumerate(source.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            return
        found = _DIRECTIVE.match(line.strip())
        if found is not None:
            yield number, found[1], found[2]


def _add_param(where: str, rest: str, properties: dict[str, Any], required: list[str]) -> None:
    found = _PARAM.fullmatch(rest)
    if found is None or found["type"] not in _TYPES:
        types = ", ".join(f"`{kind}`" for kind in _TYPES)
        raise ToolInvalid(
            f'{where}: {rest!r} is no parameter; write `@param NAME TYPE required "what it is"` (or `optional`), '
            f"with one of {types}"
        )
    doc = {"description": found["doc"]} if found["doc"] else {}
    properties[found["name"]] = {"type": found["type"], **doc}
    if found["need"] == "required":
        required.append(found["name"])


def _overridden(file: ToolFile, made: _Declared) -> _Declared:
    """Return *made* with what the TOML file beside the script says instead."""
    beside = Path(file.path).with_suffix(".toml")
    try:
        table = tomli.loads(file.beside or "")
    except tomli.TOMLDecodeError as exc:
        raise ToolInvalid(f"{str(beside)!r} is no TOML: {exc}") from exc
    unknown = sorted(set(table) - {"name", "description", "parameters"})
    if unknown:
        raise ToolInvalid(
            f"{str(beside)!r} has the unknown key {unknown[0]!r}; write `name`, `description`, `parameters`"
        )
    texts = {key: table[key] for key in ("name", "description") if key in table}
    parameters = table.get("parameters", made.parameters)
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(parameters, dict):
        raise ToolInvalid(f"{str(beside)!r}: `name` and `description` are texts, and `parameters` is a table")
    schema = {"type": "object", **cast("dict[str, Any]", parameters)}
    return _Declared(texts.get("name", made.name), texts.get("description", made.description), schema)
