"""The tools that a reply in a call asks for: through the gates, and run; functions among them run as frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio

from shoal.blueprints import Permission, tool_name
from shoal.providers import Text
from shoal.runtime._calls import end_leftovers, interrupted, line_rules, run_one, stopped
from shoal.runtime._failures import failure_text
from shoal.runtime._faults import fault_of
from shoal.runtime._people import approved
from shoal.runtime.asking._asking import Asking
from shoal.runtime.events import ToolCallCompleted, ToolCallStarted
from shoal.runtime.state import Round, Turn
from shoal.runtime.tools import SHELL, Tool, ToolResult, as_result, judge, with_line


async def run_calls(asking: Asking, made: Round) -> None:
    """Run the open calls of a reply; each is journaled as it ends."""
    await asking.running.ready()
    live = asking.live
    to_run = await _through_the_gates(asking, made)
    if not to_run:
        return
    for index, _, _ in to_run:
        if index not in made.started:
            live.emit(ToolCallStarted(made.seq, index))
    await live.durable()
    await asking.running.ready()
    async with anyio.create_task_group() as tasks:
        for index, tool, args in to_run:
            tasks.start_soon(_run_one, asking, made, index, tool, args)


async def _through_the_gates(asking: Asking, made: Round) -> list[tuple[int, Tool, Mapping[str, Any]]]:
    """Return the calls that are to run, with their tools and arguments; the others are answered, or wait for people."""
    live, tools = asking.live, asking.asked.tools.tools
    state = live.state
    permitted: dict[str, Permission] = {
        name: live.host.permissions.of(tool, state.stage.stage, state.program.blueprint) for name, tool in tools.items()
    }
    to_run: list[tuple[int, Tool, Mapping[str, Any]]] = []
    for index in made.open_calls:
        call = made.calls[index]
        before = _cut_short(asking, made, index)
        if before is not None:
            await end_leftovers(live, call, before)
            live.emit(before)
            continue
        verdict = judge(tools, call.name, str(call.arguments), permitted)
        if verdict.tool is not None and verdict.tool.name == SHELL:
            verdict = await with_line(verdict, line_rules(live), live.host.threads)
        if verdict.asks and approved(live, Turn(made.seq, made.reply), index, verdict) is not True:
            continue
        gated = stopped(verdict, made.seq, index)
        if gated is not None or verdict.tool is None:
            live.emit(gated or ToolCallCompleted(made.seq, index, Text.of(verdict.said), is_error=True))
        else:
            to_run.append((index, verdict.tool, verdict.args))
    return to_run


def _cut_short(asking: Asking, made: Round, index: int) -> ToolCallCompleted | None:
    """Return the result of a call that is not to run: one too many, or one that a dead process was in the middle of."""
    most = asking.live.host.limits.max_calls_per_turn
    if index >= most:
        said = f"[error] a turn runs at most {most} calls, and this was number {index + 1}; make it again"
        return ToolCallCompleted(made.seq, index, Text.of(said), is_error=True)
    tool = asking.asked.tools.tools.get(tool_name(made.calls[index].name))
    return interrupted(tool, made.seq, index) if index in made.started else None


async def _run_one(asking: Asking, made: Round, index: int, tool: Tool, args: Mapping[str, Any]) -> None:
    function = asking.asked.tools.functions.get(tool.name)
    if function is None:
        await run_one(asking.live, made.seq, index, tool, args)
        return
    try:
        value = await asking.running.by_tool(
            asking.frame, made.seq, index, function, json.dumps(dict(args), ensure_ascii=False)
        )
        result = as_result(value)
    except Exception as exc:  # noqa: BLE001 - whatever a function raises is for the model to read
        fault_of(exc)  # but for what ends the life, which this raises
        result = ToolResult.error(failure_text(exc))
    asking.running.emit(ToolCallCompleted(made.seq, index, result.text, result.is_error, result.note))
