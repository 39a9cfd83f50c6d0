"""The stage as its run sees it: the tools that it has there, who serves it, and what components show in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import msgspec

from shoal.providers import Text
from shoal.runtime._output_spec import OutputAsked
from shoal.runtime._script_tools import ToolFile, script_tool
from shoal.runtime.context import CONVERSATION, DATE, MEMORY, stand
from shoal.runtime.events import Event, FactsRecorded, MemoryLoaded, ScriptFailed, ToolsFound
from shoal.runtime.program import StageProgram, loadable, loaded, with_own
from shoal.runtime.state._record import NOTHING, RunRecord
from shoal.runtime.state._visit import texts

DAY_S = 86_400
BUILD = "build"
"""The function that fails, in an event on a component."""


def restage(state: RunRecord, stage: str) -> None:
    """Take *stage* as the run sees it: with the tools that it has loaded there."""
    state.staged = loaded(with_own(_seen(state, stage), state.own_tools), state.loaded.get(stage, ()))
    compose(state)


def _seen(state: RunRecord, stage: str) -> StageProgram:
    """Return *stage* as this run sees it."""
    made = state.made_by
    asked = OutputAsked(made.output_format, made.output_instructions, made.output_schema)
    remembers = MEMORY in state.facts
    return state.program.seen(stage, unattended=made.unattended, asked=asked, remembers=remembers)


def compose(state: RunRecord) -> None:
    """Make anew what components show."""
    components = state.stage.components
    state.day = int(state.last_at // DAY_S) if any(each.name == DATE for each in components) else -1
    if components or state.view.standing:
        state.view.standing, failed = stand(components, state.surroundings(state.last_at))
        state.left_out = {each.name: each.error for each in failed}


def serve(state: RunRecord, provider: str, model: str, window_tokens: int) -> None:
    """Take note of who serves the stage from now on."""
    if state.serving[:2] != (provider, model):
        state.epoch = None  # nothing was sent to that one yet, and another one's thinking is not sent to it
    if state.view.layout.regions[CONVERSATION].kind == "custom":
        state.epoch = None  # what a script shows of the conversation brings no thinking back
    state.serving = (provider, model, window_tokens)


def on_facts(state: RunRecord, event: Event, payload: FactsRecorded) -> None:
    state.facts = {**state.facts, payload.component: _looked_up(state, payload.digest)}


def on_memory(state: RunRecord, event: Event, payload: MemoryLoaded) -> None:
    state.facts = {**state.facts, MEMORY: {"state": payload.state, **_looked_up(state, payload.digest)}}


def _looked_up(state: RunRecord, digest: str) -> Mapping[str, str]:
    return NOTHING if state.facts_under is None else _parsed(state.facts_under(digest))


def on_script_failed(state: RunRecord, event: Event, payload: ScriptFailed) -> None:
    if payload.function == BUILD:
        state.complained |= {payload.script}


def on_tools(state: RunRecord, event: Event, payload: ToolsFound) -> None:
    state.own_files = payload.files
    if state.facts_under is not None:
        files = [msgspec.json.decode(state.facts_under(digest), type=ToolFile) for _, digest in payload.files]
        state.own_tools = tuple([script_tool(file) for file in files])
    restage(state, state.stage.name)


def load(state: RunRecord, stage: str, arguments: Text) -> None:
    """Put the tools that a call names on offer in *stage*."""
    before = state.loaded.get(stage, ())
    known, _ = loadable(state.stage, texts(arguments, "names"))
    new = tuple(name for name in known if name not in before)
    if new:
        state.loaded = {**state.loaded, stage: (*before, *new)}
        state.staged = loaded(state.stage, new)


@lru_cache(maxsize=256)
def _parsed(facts: bytes) -> Mapping[str, str]:
    """Return *facts* as they are kept; runs that were told the same share them."""
    parsed: dict[str, str] = json.loads(facts)
    return MappingProxyType(parsed)
