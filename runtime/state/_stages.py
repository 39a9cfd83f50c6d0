"""Stages: which one the run is in, how it left the last, and what held it there."""

from __future__ import annotations

from shoal.runtime.context import Window
from shoal.runtime.events import (
    Event,
    GateBlocked,
    GateForced,
    ModelChanged,
    Nudged,
    StageEntered,
    StageLeft,
    TransitionChosen,
)
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._staging import compose, restage, serve
from shoal.runtime.state._visit import Visit


def on_enter(state: RunRecord, event: Event, payload: StageEntered) -> None:
    layout = state.program.stages[payload.stage].layout
    if state.window is None:
        state.window = Window(layout, payload.window_tokens, payload.intake, state.shelf)
    else:
        since = event.seq if layout.fresh else 0
        if state.epoch is not None and (since, layout.knobs) != (state.window.since, state.window.layout.knobs):
            state.epoch.moved("masking")
        state.window.enter(layout, payload.window_tokens, payload.intake, since=since)
    serve(state, payload.provider, payload.model, payload.window_tokens)
    state.window.ratio = state.now_calibration.ratio
    state.visits[payload.stage] = payload.visit
    state.visit = Visit(payload.stage, payload.visit, event.seq, state.ran_s)
    restage(state, payload.stage)
    state.turn = state.routing = state.failure = state.leaving = None


def on_change_model(state: RunRecord, event: Event, payload: ModelChanged) -> None:
    serve(state, payload.provider, payload.model, payload.window_tokens)
    state.view.enter(state.stage.layout, payload.window_tokens, payload.intake)
    state.view.ratio = state.now_calibration.ratio
    state.failure = None
    compose(state)


def on_leave(state: RunRecord, event: Event, payload: StageLeft) -> None:
    state.turn = state.routing = state.failure = None
    state.left_error = payload.error
    for flag in payload.flags:
        state.raise_flag(flag)
    known = state.flags.get("required_regions_abandoned", ())
    still = {*(known if isinstance(known, tuple) else ()), *payload.abandoned}
    left = tuple(sorted(name for name in still if state.view.states[name].empty))
    state.flags.pop("required_regions_abandoned", None)
    if left:
        state.flags["required_regions_abandoned"] = left


def on_choose(state: RunRecord, event: Event, payload: TransitionChosen) -> None:
    state.leaving = payload


def on_gate_blocked(state: RunRecord, event: Event, payload: GateBlocked) -> None:
    if state.visit is not None:
        state.visit.gates[payload.target] = payload.attempt


def on_gate_forced(state: RunRecord, event: Event, payload: GateForced) -> None:
    state.raise_flag("gates_forced")


def on_nudge(state: RunRecord, event: Event, payload: Nudged) -> None:
    state.recent[event.seq] = payload
    state.turn = state.routing = state.failure = None
    if payload.reason == "repetition":
        state.repeats.said()
    if state.visit is not None:
        state.visit.asked[payload.reason] = state.visit.asked.get(payload.reason, 0) + 1
        if payload.reason == "directive":
            for point in state.visit.points.values():
                if point.answer is not None and point.answered == payload.answer:
                    point.begin_again()
