"""Requests and replies: what was shown, what came of it, what it cost, and how well its tokens were estimated."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.providers import Finish
from shoal.runtime.context import Epoch, PromptAmended, PromptEpoch, declared_stable, load_rendering
from shoal.runtime.events import Event, InferenceCompleted, InferenceFailed, InferenceStarted, TokensMeasured
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._visit import Turn

_FLAGS: Mapping[Finish, str] = {"refusal": "replies_refused", "length": "replies_cut"}
"""What a run is flagged with whose model stopped so: it goes on, and may end with no answer, or with half of one."""


def on_epoch(state: RunRecord, event: Event, payload: PromptEpoch) -> None:
    if state.definition is not None:
        for region, digest in payload.renders:
            state.view.show(region, load_rendering(state.definition(digest)))
    state.epoch = Epoch(state.view, state.stage.offered, payload, state.epoch)
    state.epochs += 1


def on_amend(state: RunRecord, event: Event, payload: PromptAmended) -> None:
    assert state.epoch is not None  # only an epoch is amended
    state.epoch.amend(state.view, payload)


def on_started(state: RunRecord, event: Event, payload: InferenceStarted) -> None:
    if payload.call:
        state.frames.ask(event, payload)
        return
    of_stage = payload.purpose == "stage"
    if of_stage or payload.purpose == "routing":
        if state.epoch is not None:
            if of_stage and state.epoch.prompt(state.view).digest_on(payload.model) != payload.prompt_digest:
                state.epoch.differs()
            state.epoch.sent(state.view)
        state.renders = dict(payload.renders)
    if of_stage:
        _note_request(state, payload)


def _note_request(state: RunRecord, payload: InferenceStarted) -> None:
    """Take note of what a request of the stage shows."""
    # What the request shows is in the window; entries to come refer to events to come, and to held mail.
    state.recent = dict(state.inbox)
    state.failure = None
    steady = declared_stable(state.view)
    if steady is not state.shown_steady:
        state.shown_steady = steady
        for name, digest in steady.items():
            held, changes = state.steady.get(name, (digest, 0))
            state.steady[name] = (digest, changes + (held != digest))
    state.asked = (payload.estimated, payload.base)
    visit = state.visit
    if visit is not None and not visit.iterations and not visit.digests:
        visit.digests = {name: state.view.states[name].digest() for name in state.stage.watched}


def on_completed(state: RunRecord, event: Event, payload: InferenceCompleted) -> None:
    if event.seq > state.copied:
        _bill(state, payload)
    if payload.finish in _FLAGS and payload.purpose in ("stage", "routing"):
        state.raise_flag(_FLAGS[payload.finish])
    call = state.frames.hear(event, payload)
    if call is not None:
        state.restarts = []
        if payload.billed.input and not payload.estimated:
            _learn(state, state.frames.replies[event.seq].model, *call.asked, payload.billed.input)
    elif payload.purpose == "stage":
        assert state.visit is not None  # a stage's reply comes inside a visit
        state.recent[event.seq] = payload
        state.turn = Turn(event.seq, payload)
        state.visit.iterations += 1
        state.visit.hooks -= {"on_stage_exit"}
        state.visit.tool_calls += len(payload.calls)
        state.visit.called_tool = state.visit.called_tool or bool(payload.calls)
        state.restarts = []
        if payload.text:
            state.last_text, state.last_text_seq = payload.text, event.seq
        if payload.billed.input and not payload.estimated:
            _learn(state, state.serving[1], *state.asked, payload.billed.input)
    elif payload.purpose == "routing":
        state.routing = payload


def _bill(state: RunRecord, payload: InferenceCompleted) -> None:
    state.usage = state.usage + payload.billed
    state.cost = None if state.cost is None or payload.cost is None else state.cost + payload.cost


def on_failed(state: RunRecord, event: Event, payload: InferenceFailed) -> None:
    if not state.frames.miss(payload.started) and payload.purpose in ("stage", "routing"):
        state.failure = payload


def on_measured(state: RunRecord, event: Event, payload: TokensMeasured) -> None:
    # The vendor's own count is of what goes out next, and no average is as good.
    exact = not payload.how.startswith("tiktoken:")
    _learn(state, payload.model, payload.estimated, payload.base, payload.tokens, exact=exact)


def _learn(state: RunRecord, model: str, estimated: int, base: int, measured: int, *, exact: bool = False) -> None:
    state.calibration[model] = state.calibrated(model).observed(estimated, base, measured, exact=exact)
    if model == state.serving[1]:
        state.view.ratio = state.calibration[model].ratio
