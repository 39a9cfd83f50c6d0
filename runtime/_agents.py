"""Sub-agents of a run: started by a call of its model, looked at, waited for, written to and ended by others.

A child is found again under the call that asked for it, so that a resumed run never starts it twice. A run that waits
for its child waits in no task and holds no place in any pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.errors import RunNotFound, ShoalError
from shoal.providers import Text
from shoal.runtime._control import Cancel, Send, steer
from shoal.runtime._failures import failure_text, first_paragraph, without_answer
from shoal.runtime._host import ChildRequest
from shoal.runtime._live import Live
from shoal.runtime.events import ENDED_WELL, ChildEnded, ToolCallCompleted, ToolCallStarted
from shoal.runtime.journal import RunRow
from shoal.runtime.state import Child, Turn
from shoal.runtime.tools import AGENT_CHECK, AGENT_SEND, AGENT_SPAWN, AGENT_WAIT, ToolResult


async def agent_call(live: Live, turn: Turn, index: int, args: Mapping[str, Any]) -> ToolResult | None:
    """Do what call *index* asks of a sub-agent; `None` where the run waits for that agent's end, or has its result."""
    tool = turn.calls[index].name
    try:
        if tool == AGENT_SPAWN:
            return await _spawn(live, turn, index, args)
        if tool == AGENT_WAIT:
            return await _wait(live, turn, index, str(args["agent_id"]))
        row = _descendant(live, str(args["agent_id"]))
        if tool == AGENT_SEND:
            await _send(live, turn, index, row, args)
            return None
        if tool == AGENT_CHECK:
            ended = live.host.home.ended(row.run_id) if row.ended else None
            return ToolResult.of(_standing(row)) if ended is None else _answer(row.name, ended)
        return await _kill(live, row)
    except ShoalError as exc:
        return ToolResult.error(failure_text(exc))


def handed_over(live: Live) -> dict[str, str]:
    """Return the regions that the stage hands to the runs it starts, as text by caller name."""
    states = live.state.view.states
    return {
        name: "\n\n".join(entry.text for entry in states[region].all_entries())
        for name, region in live.state.stage.stage.seeds.items()
        if not states[region].empty
    }


# --- starting


async def _spawn(live: Live, turn: Turn, index: int, args: Mapping[str, Any]) -> ToolResult | None:
    child = _child_of(live, turn, index)
    if child is None:
        if index not in turn.started:
            live.emit(ToolCallStarted(turn.seq, index))
        run_id = await live.host.spawn_child(live.run_id, _wanted(live, turn, index, args))
        child = live.state.children[run_id]
    if not args.get("wait", False):
        known = child.spawned
        return ToolResult.of(f"Started {known.name!r} as agent {known.child}; `{AGENT_WAIT}` gets its answer.")
    return None if child.ended is None else _answer(child.spawned.name, child.ended)


def _wanted(live: Live, turn: Turn, index: int, args: Mapping[str, Any]) -> ChildRequest:
    return ChildRequest(
        str(args["blueprint"]),
        str(args["task"]),
        dict(args.get("seeds", {})),
        source=turn.seq,
        index=index,
        by_model=True,
        waited=bool(args.get("wait", False)),
        offered=handed_over(live),
        most_depth=args.get("max_child_depth"),
        output_format=args.get("output_format"),
        output_instructions=args.get("output_instructions"),
    )


def _child_of(live: Live, turn: Turn, index: int) -> Child | None:
    children = live.state.children.values()
    return next((c for c in children if (c.spawned.source, c.spawned.index) == (turn.seq, index)), None)


# --- waiting


async def _wait(live: Live, turn: Turn, index: int, agent_id: str) -> ToolResult | None:
    child = live.state.children.get(agent_id)
    if child is not None:
        if child.ended is not None:
            return _answer(child.spawned.name, child.ended)
        if index not in turn.started:
            live.emit(ToolCallStarted(turn.seq, index))
        return None
    row = _descendant(live, agent_id)
    # Its end is told to its own parent only, so this run stays awake for it.
    if index not in turn.started:
        live.emit(ToolCallStarted(turn.seq, index))
    return _answer(row.name, await live.host.home.over(row.run_id))


def _answer(name: str, ended: ChildEnded) -> ToolResult:
    """Return how an agent ended as the result of a call."""
    said = f"[{name} {ended.status}]"
    if ended.reason and ended.status not in ENDED_WELL:
        said += f" {first_paragraph(ended.reason)}"
    if ended.output:
        said += f"\n{ended.output}"
    elif ended.status in ENDED_WELL:
        said += f" {without_answer(ended)}"
    return ToolResult.of(said)


# --- the tree below


def _descendant(live: Live, agent_id: str) -> RunRow:
    """Return the run *agent_id*, which stands below this one.

    Raises:
        RunNotFound: It does not.
    """
    below = {live.run_id}
    found: dict[str, RunRow] = {}
    for row in live.host.journal.runs(root=live.state.made_by.root):  # parents first
        if row.parent in below:
            below.add(row.run_id)
            found[row.run_id] = row
    if agent_id in found:
        return found[agent_id]
    listed = ", ".join(f"{row.run_id} ({row.name}, {row.status})" for row in found.values()) or "none"
    raise RunNotFound(f"you have no sub-agent {agent_id!r}; you have: {listed}", run_id=agent_id)


def _standing(row: RunRow) -> str:
    where = f" in stage {row.stage}" if row.stage is not None and not row.ended else ""
    asks = f", asks a person {row.questions} questions" if row.questions else ""
    return f"[{row.name} {row.status}]{where}{asks}"


async def _send(live: Live, turn: Turn, index: int, row: RunRow, args: Mapping[str, Any]) -> None:
    """Send a message, and complete the call in the transaction that gives it to the agent: it arrives once."""
    live.emit(ToolCallStarted(turn.seq, index))
    await live.durable()  # another process may host the agent, and then the message is there before this one knows

    def sent() -> None:
        if not live.over:
            live.emit(ToolCallCompleted(turn.seq, index, Text.of("Sent.")))

    region = args.get("target_region")
    await steer(live.host.home, row.run_id, Send(str(args["message"]), live.run_id, region), sent)


async def _kill(live: Live, row: RunRow) -> ToolResult:
    if row.ended:
        return ToolResult.of(f"It was over already ({row.status}).")
    await steer(live.host.home, row.run_id, Cancel(f"ended by {live.state.program.blueprint.name}, which started it"))
    return ToolResult.of("It is ended, with everything below it.")
