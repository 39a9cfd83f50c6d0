"""The run as a whole: how it was spawned, its limits, its pauses and its end, and what it is made of by now."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import msgspec

from shoal.blueprints import Budget
from shoal.runtime.events import (
    BlueprintChanged,
    BudgetGiven,
    BudgetReached,
    Event,
    RunEnded,
    RunPaused,
    RunRestarted,
    RunResumed,
    RunSpawned,
    RunTitled,
)
from shoal.runtime.program import Program, recorded
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._repetition import Repeats
from shoal.runtime.state._staging import restage


def on_spawn(state: RunRecord, event: Event, payload: RunSpawned) -> None:
    seeds = tuple([(name, state.program.share(text)) for name, text in payload.seeds])
    state.spawned = msgspec.structs.replace(payload, seeds=seeds)
    _limit(state, payload.budget)
    if payload.forked_from is not None:
        state.copied = payload.forked_from[1]


def _limit(state: RunRecord, given: BudgetGiven | None) -> None:
    if given is not None:
        state.limited += (given,)
        state.budget = _limited(state.budget, given)


def on_budget_reached(state: RunRecord, event: Event, payload: BudgetReached) -> None:
    state.raise_flag("budget_reached")


def on_titled(state: RunRecord, event: Event, payload: RunTitled) -> None:
    state.title = payload.title


def on_pause(state: RunRecord, event: Event, payload: RunPaused) -> None:
    state.phase, state.paused = "paused", payload


def on_resume(state: RunRecord, event: Event, payload: RunResumed) -> None:
    state.phase, state.paused, state.failure = "running", None, None
    _limit(state, payload.budget)


def on_restart(state: RunRecord, event: Event, payload: RunRestarted) -> None:
    state.restarts.append((event.seq, payload.error))
    state.crashes.append(event.at)


def on_end(state: RunRecord, event: Event, payload: RunEnded) -> None:
    state.phase, state.ended = "ended", payload
    state.questions.clear()
    state.timers.clear()


def on_change_blueprint(state: RunRecord, event: Event, payload: BlueprintChanged) -> None:
    state.program = _made(state, payload.definition)
    state.spawned = payload.onto(state.made_by)
    state.budget = reduce(_limited, state.limited, state.program.blueprint.budget)
    state.repeats = Repeats(state.program.blueprint.repetition)
    state.steady, state.shown_steady = {}, {}  # what stands in the prompt changed by somebody's will
    state.epoch = None  # what was sent was made of another blueprint; what is sent next begins anew
    visit = state.visit
    assert visit is not None  # a run is in a stage from its birth on
    before = state.stage
    restage(state, visit.stage)
    visit.refreshed |= {*state.stage.refreshing} - {*before.refreshing}  # from the next entry on
    layout = state.stage.layout
    since = visit.entered_seq if layout.fresh else 0
    state.view.enter(layout, state.view.window_tokens, state.view.intake, since=since)
    state.view.redraw()
    if visit.iterations:
        now = {name: state.view.states[name].digest() for name in state.stage.watched}
        visit.digests = {**now, **visit.digests}  # a gate that is new counts what is done from here on


def _made(state: RunRecord, digest: str) -> Program:
    return recorded(state.kept(digest)) if state.program_of is None else state.program_of(digest)


def _limited(budget: Budget, given: BudgetGiven) -> Budget:
    """Return *budget* with the limits of *given* in place of its own."""
    limits = {name: value for name in given.__struct_fields__ if (value := getattr(given, name)) is not None}
    return replace(budget, **limits)
