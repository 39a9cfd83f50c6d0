"""Where the seeds of a run come from: its folder, its caller, and its own tools behind their gates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shoal.blueprints import Permission
from shoal.providers import Text
from shoal.runtime._host import Host
from shoal.runtime._live import Live
from shoal.runtime._program import Program
from shoal.runtime._seeds import CallTool, Sources
from shoal.runtime.tools import BUILT_IN, ToolContext, ToolResult, judge


def sources(host: Host, program: Program, context: ToolContext, caller: Mapping[str, Text]) -> Sources:
    """Return where the seeds of a run of *program* come from."""
    return Sources(
        program.blueprint,
        context.workdir,
        caller,
        _caller_of_tools(host, program, context),
        host.threads,
        host.limits.seed_bytes,
        host.limits.list_entries,
    )


def sources_of(live: Live) -> Sources:
    """Return where the seeds of a live run come from, to resolve them again."""
    # Without what the caller gave: no seed that is resolved again takes a value of the caller.
    return replace(sources(live.host, live.state.program, live.context, {}), at_spawn=False)


def _caller_of_tools(host: Host, program: Program, context: ToolContext) -> CallTool:
    """Return what calls a tool for a seed: any tool that reaches outside; one that needs asking counts as forbidden."""
    known = {**BUILT_IN, **{tool.name: tool for tool in program.given}}
    tools = {name: tool for name, tool in known.items() if tool.call is not None}
    entry = program.stages[program.blueprint.entry].stage
    permissions: dict[str, Permission] = {
        name: host.permissions.of(tool, entry, program.blueprint) for name, tool in tools.items()
    }

    async def call(name: str, args: Mapping[str, Any]) -> ToolResult:
        verdict = judge(tools, name, json.dumps(dict(args)), permissions)
        if verdict.asks:
            return ToolResult.error(
                f"`{name}` needs somebody's approval, and nobody is there to ask before a run begins"
            )
        if verdict.tool is None or verdict.tool.call is None or verdict.gate is not None:
            return ToolResult.error(verdict.said.removeprefix("[error] "))
        try:
            return await verdict.tool.call(context, verdict.args)
        except Exception as exc:  # noqa: BLE001 - a seed whose tool fails is left out, whatever the tool raises
            return ToolResult.error(f"{type(exc).__name__}: {exc}")

    return call
