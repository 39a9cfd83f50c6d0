"""Calls of tools in the newest reply, and the answer that one of them submits."""

from __future__ import annotations

from shoal.blueprints import tool_name
from shoal.providers import Text, ToolCall
from shoal.runtime.events import Event, InferenceCompleted, OutputSubmitted, ToolCallCompleted, ToolCallStarted
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._staging import load
from shoal.runtime.state._visit import MODIFYING, argument
from shoal.runtime.tools import AGENT_WAIT, LOAD_TOOLS


def on_call_started(state: RunRecord, event: Event, payload: ToolCallStarted) -> None:
    turn = state.turn
    if not state.frames.start(payload) and turn is not None and payload.source == turn.seq:
        turn.started |= {payload.index}
        call = turn.calls[payload.index]
        if call.name == AGENT_WAIT:
            turn.waiting[payload.index] = str(argument(call.arguments, "agent_id"))


def on_call_completed(state: RunRecord, event: Event, payload: ToolCallCompleted) -> None:
    state.restarts = []
    if state.frames.complete(event, payload):
        return
    state.recent[event.seq] = payload
    turn = state.turn
    if turn is None or payload.source != turn.seq:
        return
    turn.results[payload.index] = payload
    turn.written[payload.index] = event.seq
    call = turn.calls[payload.index]
    name = tool_name(call.name)
    if state.visit is not None and (not payload.is_error or payload.gate == "permission"):
        state.visit.worked |= {name}
    tool = state.stage.tools.get(name)
    only_reads = tool is not None and tool.effects.reads and tool.effects.repeatable
    state.repeats.ended(call, is_error=payload.is_error, only_reads=only_reads)
    if not payload.is_error:
        _succeeded(state, call, name)


def _succeeded(state: RunRecord, call: ToolCall, name: str) -> None:
    """Take note of what a call of the tool *name* changes for the run itself."""
    visit = state.visit
    if visit is not None and name in MODIFYING:
        path = str(argument(call.arguments, "path"))
        visit.edits[path] = visit.edits.get(path, 0) + 1
    if visit is not None and call.name == LOAD_TOOLS:
        load(state, visit.stage, call.arguments)
    if call.name == "context_list":
        state.view.note_listed(str(argument(call.arguments, "region")))


def on_submit(state: RunRecord, event: Event, payload: OutputSubmitted) -> None:
    made = state.recent.get(payload.source)
    if isinstance(made, InferenceCompleted):
        text = argument(made.calls[payload.index].arguments, "content")
        state.output = text if payload.truncated is None else Text.of(str(text)[: payload.truncated])
    state.output_seq = event.seq
    state.output_format, state.artifacts = payload.format, payload.artifacts
    if state.visit is not None:
        state.visit.output_submitted = True
