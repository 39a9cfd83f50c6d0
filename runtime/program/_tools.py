"""Tools of a blueprint: those that it ships, those that come in code, and those of servers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shoal.errors import SpawnRefused, ToolInvalid
from shoal.runtime._script_tools import ToolFile, script_tool
from shoal.runtime.tools import BUILT_IN, Effects, Tool, compiled


def by_any_name(connected: Sequence[Tool]) -> Mapping[str, Tool]:
    """Return tools of MCP servers by the names that stages may use: the whole one, and the bare one if unique."""
    bare = Counter(tool.connector[1] for tool in connected if tool.connector)
    short = {tool.connector[1]: tool for tool in connected if tool.connector and bare[tool.connector[1]] == 1}
    return {**short, **{tool.name: tool for tool in connected}}


def shown_only(recorded: Mapping[str, Any]) -> Tool:
    """Return a tool as the journal holds it, which nothing can call."""
    source, connector = recorded["source"], recorded.get("connector")
    effects = Effects(**recorded.get("effects", {}))
    return Tool(
        recorded["name"],
        recorded["description"],
        recorded["schema"],
        None,
        "ask" if connector else "allow",
        effects,
        source and tuple(source),
        connector and tuple(connector),
        recorded.get("deferred", False),
    )


def shipped_names(files: Sequence[ToolFile]) -> frozenset[str]:
    """Return the names of the tools that *files* are."""
    return frozenset([tool.name for tool, _ in shipped(files)[0]]) if files else frozenset()


def shipped(files: Sequence[ToolFile]) -> tuple[tuple[tuple[Tool, ToolFile], ...], Mapping[str, str]]:
    """Return the tools that *files* are, and why others are none, by the name of their file."""
    made: list[tuple[Tool, ToolFile]] = []
    broken: dict[str, str] = {}
    for file in files:
        known = {tool.name: repr(other.path) for tool, other in made}
        try:
            tool = script_tool(file)
        except ToolInvalid as why:
            broken[file.stem] = str(why)
            continue
        if tool.name in BUILT_IN or tool.name in known:
            whose = known.get(tool.name, "a built-in one")
            broken[file.stem] = f"{file.path!r} calls its tool `{tool.name}`, as {whose} is called; rename it"
        else:
            made.append((tool, file))
    return tuple(made), broken


def check_given(given: Sequence[Tool]) -> None:
    names = Counter(tool.name for tool in given)
    for tool in given:
        built_in = BUILT_IN.get(tool.name)
        if names[tool.name] > 1:
            raise SpawnRefused(f"two tools are given under the name `{tool.name}`; rename one of them")
        if built_in is not None and built_in.call is None:
            raise SpawnRefused(f"`{tool.name}` is a tool that the run itself answers; give yours another name")


def warn_of_schemas(tools: Iterable[Tool]) -> None:
    """Say which of *tools* have a schema that cannot be compiled; what can only be looked at calls nothing."""
    for tool in tools:
        _, why = compiled(tool.spec.schema)
        if why and tool.call is not None:
            said = f"the schema of the tool `{tool.name}` cannot be compiled, so its arguments are not checked: {why}"
            warnings.warn(said, RuntimeWarning, stacklevel=4)
