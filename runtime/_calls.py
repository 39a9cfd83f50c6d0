"""The calls of one reply: through the gates, and run.

A call is journaled before it runs. What a killed process had started and not finished is run again only where that
does no harm; otherwise the model is told that its effect is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread

from shoal.blueprints import tool_name
from shoal.providers import Text, ToolCall
from shoal.runtime._agents import agent_call
from shoal.runtime._failures import failure_text
from shoal.runtime._live import Live
from shoal.runtime._output import submit
from shoal.runtime._parts import bring_in, kept, looked_at
from shoal.runtime._people import approved, ask_person
from shoal.runtime._scripting import heard
from shoal.runtime._side import order_summaries, wait_for_summaries
from shoal.runtime.context import (
    OPERATIONS,
    Origin,
    Said,
    operate,
)
from shoal.runtime.events import ToolCallCompleted, ToolCallStarted
from shoal.runtime.program import loadable
from shoal.runtime.state import Turn
from shoal.runtime.tools import (
    AGENTS,
    CONTEXT_ATTACH,
    FAN_OUT,
    LOAD_TOOLS,
    QUESTIONS,
    SHELL,
    SUBMIT_OUTPUT,
    LineRules,
    Tool,
    ToolResult,
    Verdict,
    hunt,
    judge,
    mark_of,
    with_line,
)

_INTERRUPTED = (
    "[error] the process died while this call ran; whether it had an effect is unknown. Check before you call it again"
)


async def run_calls(live: Live) -> None:
    """Run the open calls of the newest reply; each is journaled as it ends."""
    turn = live.state.turn
    assert turn is not None  # decided so
    to_run: list[tuple[int, Tool, Mapping[str, Any]]] = []
    for index in turn.open_calls:
        call = turn.calls[index]
        before = _vetoed(turn, index) or _over_the_limit(live, index) or _interrupted(live, turn, index, call)
        if before is not None:
            await end_leftovers(live, call, before)
            live.emit(before)
            continue
        if live.state.parked(index):
            continue
        stage = live.state.stage
        verdict = judge(stage.tools, call.name, str(call.arguments), live.permitted, stage.deferred)
        if verdict.tool is not None and verdict.tool.name == SHELL:
            verdict = await with_line(verdict, line_rules(live), live.host.threads)
        if verdict.asks and approved(live, turn, index, verdict) is not True:
            continue
        gated = stopped(verdict, turn.seq, index)
        if gated is not None or verdict.tool is None:
            live.emit(gated or ToolCallCompleted(turn.seq, index, Text.of(verdict.said), is_error=True))
        elif verdict.tool.call is None:
            await _own_call(live, turn, index, verdict.tool, verdict.args)
        else:
            to_run.append((index, verdict.tool, verdict.args))
    if to_run:
        await _run_all(live, turn, to_run)


def line_rules(live: Live) -> LineRules:
    """Return what decides about shell lines of the stage."""
    return live.host.permissions.lines(live.state.stage.stage, live.state.program.blueprint, live.context.workdir)


def _vetoed(turn: Turn, index: int) -> ToolCallCompleted | None:
    """Return the result of a call that a hook of the stage stopped."""
    if turn.vetoed is None:
        return None
    said = f"[denied] a hook of this stage stopped the calls of this turn: {turn.vetoed}"
    return ToolCallCompleted(turn.seq, index, Text.of(said), is_error=True, gate="hook")


def _over_the_limit(live: Live, index: int) -> ToolCallCompleted | None:
    most = live.host.limits.max_calls_per_turn
    turn = live.state.turn
    assert turn is not None  # see `run_calls`
    if index < most:
        return None
    said = f"[error] a turn runs at most {most} calls, and this was number {index + 1}; make it again in your next turn"
    return ToolCallCompleted(turn.seq, index, Text.of(said), is_error=True)


def _interrupted(live: Live, turn: Turn, index: int, call: ToolCall) -> ToolCallCompleted | None:
    """Return the result of a call that an earlier process started and that must not simply run again."""
    tool = live.state.stage.tools.get(call.name)
    return interrupted(tool, turn.seq, index) if index in turn.started else None


def interrupted(tool: Tool | None, source: int, index: int) -> ToolCallCompleted | None:
    """Return the result of a call of *tool* that a dead process was in the middle of; `None` where it may run again."""
    if tool is not None and tool.effects.repeatable:
        return None
    return ToolCallCompleted(source, index, Text.of(_INTERRUPTED), is_error=True, interrupted=True)


async def end_leftovers(live: Live, call: ToolCall, result: ToolCallCompleted) -> None:
    """End what a shell line of an earlier process still does: the model is to look at what will not change any more."""
    if result.interrupted and tool_name(call.name) == SHELL:
        await anyio.to_thread.run_sync(hunt, mark_of(live.run_id), limiter=live.host.threads)


def stopped(verdict: Verdict, source: int, index: int) -> ToolCallCompleted | None:
    """Return the result of a call that a gate stopped; `None` for one that may run."""
    if verdict.gate is None:
        return None
    return ToolCallCompleted(source, index, Text.of(verdict.said), is_error=True, gate=verdict.gate)


# --- calls that the run answers itself


async def _own_call(live: Live, turn: Turn, index: int, tool: Tool, args: Mapping[str, Any]) -> None:
    if tool.name in QUESTIONS:
        answer = ask_person(live, turn, index, tool)
        if answer is not None:
            _complete(live, turn, index, answer)
    elif tool.name in AGENTS:
        result = await agent_call(live, turn, index, args)
        if result is not None:
            _complete(live, turn, index, result)
    elif tool.name in OPERATIONS:
        brought = await bring_in(live, args) if tool.name == CONTEXT_ATTACH else args
        if isinstance(brought, ToolResult):
            _complete(live, turn, index, brought)
        else:
            await _operate(live, turn, index, tool.name, brought)
    elif tool.name == SUBMIT_OUTPUT:
        result = await submit(live, turn.seq, index, args)
        _complete(live, turn, index, result)
    elif tool.name == LOAD_TOOLS:
        _complete(live, turn, index, _load(live, args))
    else:
        said = f"`{FAN_OUT}` must be the only call of its turn; call it alone"
        _complete(live, turn, index, ToolResult.error(said))


def _load(live: Live, args: Mapping[str, Any]) -> ToolResult:
    """Say which deferred tools are on offer now; that the call is journaled puts them there."""
    stage = live.state.stage
    known, unknown = loadable(stage, args["names"])
    missing = f"there is no deferred tool {', '.join(map(repr, unknown))}" if unknown else ""
    if not known:
        return ToolResult.error(f"{missing}; there is {', '.join(f'`{name}`' for name in stage.deferred)}")
    said = f"You can call {', '.join(f'`{name}`' for name in known)} from your next turn on."
    return ToolResult.of(f"{said} But {missing}." if missing else said)


async def _operate(live: Live, turn: Turn, index: int, name: str, args: Mapping[str, Any]) -> None:
    origin = Origin(turn.seq, index)
    may_wait = True
    said = Said(refusable=True)
    while True:
        busy = live.state.busy_regions()
        answer = operate(live.state.view, name, args, origin, in_flight=busy, may_wait=may_wait, said=said)
        order_summaries(live, answer.orders)
        if answer.call is not None:
            said = await heard(live, answer.call, said)
            continue
        if answer.wait is None:
            break
        await wait_for_summaries(live, [answer.wait])
        may_wait = False
    live.change(answer.changes)
    live.emit(ToolCallCompleted(turn.seq, index, Text.of(answer.text), answer.is_error))


def _complete(live: Live, turn: Turn, index: int, result: ToolResult) -> None:
    live.emit(ToolCallCompleted(turn.seq, index, result.text, result.is_error, result.note))


# --- calls that reach outside


async def _run_all(live: Live, turn: Turn, calls: Sequence[tuple[int, Tool, Mapping[str, Any]]]) -> None:
    for index, _, _ in calls:
        if index not in turn.started:
            live.emit(ToolCallStarted(turn.seq, index))
    await live.durable()
    if live.over:  # ended while its calls were written down: none of them runs
        return
    if len(calls) == 1:
        await run_one(live, turn.seq, *calls[0])
        return
    async with anyio.create_task_group() as tasks:
        for index, tool, args in calls:
            tasks.start_soon(run_one, live, turn.seq, index, tool, args)


async def run_one(live: Live, source: int, index: int, tool: Tool, args: Mapping[str, Any]) -> None:
    """Run call *index* of the reply *source*, and journal its result."""
    assert tool.call is not None  # the run's own tools are answered elsewhere
    async with live.host.pools.get("tools").slot(live.run_id):
        try:
            result = await tool.call(live.context, args)
        except Exception as exc:  # noqa: BLE001 - whatever a tool raises is for the model to read
            result = ToolResult.error(failure_text(exc))
    looked = await looked_at(live.host, tool.name, result)
    if not live.over:  # a tool that could not be stopped may come back after the run has ended
        text, parts = kept(live, looked)
        said = looked.result
        live.emit(ToolCallCompleted(source, index, text, said.is_error, said.note, parts=parts))
