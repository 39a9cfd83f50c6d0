"""What agentic functions do, and the answer that the outermost returns."""

from __future__ import annotations

import json

from shoal.providers import Text
from shoal.runtime.events import CallOpened, Event, FrameEntered, FrameLeft, StepRecorded
from shoal.runtime.state._record import RunRecord


def on_enter_frame(state: RunRecord, event: Event, payload: FrameEntered) -> None:
    state.frames.enter(event, payload)


def on_leave_frame(state: RunRecord, event: Event, payload: FrameLeft) -> None:
    state.frames.leave(event, payload)
    if payload.frame == state.frames.root and payload.output is not None:
        value: object = json.loads(str(payload.output))
        text = value if isinstance(value, str) else str(payload.output)
        state.output, state.output_seq = None if value is None else Text.of(text), event.seq


def on_record(state: RunRecord, event: Event, payload: StepRecorded) -> None:
    state.restarts = []
    state.frames.record(event, payload)


def on_open_call(state: RunRecord, event: Event, payload: CallOpened) -> None:
    state.frames.open(event, payload)
