"""What the hooks of stages decided."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shoal.runtime.events import Event, HookRan, InferenceCompleted
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._visit import Turn

_STOPS: Mapping[str, str] = {"cancel": "stopped the run", "failed": "failed"}


def on_hook(state: RunRecord, event: Event, payload: HookRan) -> None:
    state.recent[event.seq] = payload
    if payload.hook in ("on_completion", "on_error"):
        state.hooks_at_end[payload.hook] = payload
        if payload.hook == "on_completion" and payload.text is not None:
            if state.output is not None:
                state.output, state.output_seq = payload.text, event.seq
            state.last_text, state.last_text_seq = payload.text, event.seq
    elif state.visit is not None:
        state.visit.hooks |= {payload.hook}
    if payload.hook == "on_tool_call" and payload.action == "cancel":
        assert state.turn is not None  # its calls are of the newest reply
        state.turn.vetoed = payload.reason or "no reason was given"
    elif payload.action in ("cancel", "failed"):
        why = f": {payload.reason}" if payload.reason else ""
        state.stopped = f"the hook `{payload.hook}` of stage {payload.stage!r} {_STOPS[payload.action]}{why}"
    if payload.source and payload.action == "modify":
        _revise(state, event, payload)


def _revise(state: RunRecord, event: Event, payload: HookRan) -> None:
    """Take the newest reply as a hook left it."""
    reply = state.recent.get(payload.source)
    assert isinstance(reply, InferenceCompleted)  # it was journaled right before
    text = reply.text if payload.text is None else payload.text
    calls = reply.calls if payload.calls is None else payload.calls
    revised = msgspec.structs.replace(reply, text=text, calls=calls, state=None)
    state.recent[payload.source] = revised
    state.turn = Turn(payload.source, revised)
    if payload.text is not None:
        state.last_text, state.last_text_seq = payload.text, event.seq
