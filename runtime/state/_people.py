"""What comes from outside: mail, timers, and what people answer and grant."""

from __future__ import annotations

from shoal.runtime.events import (
    Event,
    GrantGiven,
    MessageReceived,
    QuestionAnswered,
    QuestionAsked,
    TimerFired,
    TimerSet,
)
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._visit import PointState


def on_receive(state: RunRecord, event: Event, payload: MessageReceived) -> None:
    state.recent[event.seq] = payload
    state.inbox.append((event.seq, payload))


def on_ask(state: RunRecord, event: Event, payload: QuestionAsked) -> None:
    state.questions[event.seq] = payload
    if payload.point and state.visit is not None:
        point = state.visit.points.setdefault(payload.point, PointState())
        point.question, point.answered, point.answer = event.seq, 0, None
        point.edited = payload.about == "edit"
    elif state.turn is not None and payload.source == state.turn.seq:
        state.turn.asked[payload.index] = event.seq
        state.turn.answers.pop(payload.index, None)


def on_answer(state: RunRecord, event: Event, payload: QuestionAnswered) -> None:
    asked = state.questions.pop(payload.question)
    state.recent[event.seq] = payload
    if asked.point and state.visit is not None:
        point = state.visit.points[asked.point]
        point.question, point.answered, point.answer = 0, event.seq, payload
    elif state.turn is not None and asked.source == state.turn.seq:
        state.turn.answers[asked.index] = payload


def on_timer(state: RunRecord, event: Event, payload: TimerSet) -> None:
    state.timers[event.seq] = payload


def on_fire(state: RunRecord, event: Event, payload: TimerFired) -> None:
    state.timers.pop(payload.timer, None)


def on_grant(state: RunRecord, event: Event, payload: GrantGiven) -> None:
    scope = payload.stage if payload.scope == "stage" else ""
    state.grants.setdefault(scope, set()).update(payload.keys)
