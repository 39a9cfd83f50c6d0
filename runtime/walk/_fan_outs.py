"""Stages that hand out items: their call, and where they go once their workers are through."""

from __future__ import annotations

import json

from shoal.runtime.state import RunState
from shoal.runtime.tools import FAN_OUT
from shoal.runtime.walk._actions import Action, Leave
from shoal.runtime.walk._ways import rescue, resolved, to_the_rescue


def fan_out_call(state: RunState) -> int | None:
    """Return the number of the newest reply's fan-out call; `None` where it is not the only call, or there is none."""
    turn = state.turn
    if (
        turn is None
        or turn.vetoed is not None
        or len(turn.calls) != 1
        or turn.calls[0].name != FAN_OUT
        or FAN_OUT not in state.stage.tools
    ):
        return None
    return 0


def fanned_out(state: RunState) -> bool:
    """Say whether the newest turn of a stage that hands out items has done so."""
    turn = state.turn
    if turn is None or state.stage.stage.mode != "fan_out":
        return False
    return any(turn.calls[i].name == FAN_OUT and not result.is_error for i, result in turn.results.items())


def left_out(state: RunState) -> bool:
    """Say whether the newest turn's fan-out had more items than one call takes."""
    turn, fan_out = state.turn, state.stage.stage.fan_out
    assert turn is not None  # see `fanned_out`
    most = None if fan_out is None else fan_out.max_items
    if not most:
        return False
    calls = [call for call in turn.calls if call.name == FAN_OUT]
    return any(len(json.loads(str(call.arguments))["items"]) > most for call in calls)


def workers_failed(state: RunState) -> bool:
    """Say whether the newest turn's fan-out failed as a whole because one worker did."""
    turn, fan_out = state.turn, state.stage.stage.fan_out
    if turn is None or fan_out is None or fan_out.on_worker_failure != "fail_all":
        return False
    return any(turn.calls[i].name == FAN_OUT and r.is_error and r.gate == "workers" for i, r in turn.results.items())


def after_fan_out(state: RunState, flags: tuple[str, ...]) -> Action:
    """Return where a stage goes that has handed out its items, or could not (`splits_degraded`)."""
    fan_out = state.stage.stage.fan_out
    assert fan_out is not None  # a stage of that mode has it
    if "splits_degraded" in flags and rescue(state) is not None:
        return to_the_rescue(state, flags, "the stage handed out no items")
    if fan_out.merge_stage is not None:
        return Leave("done", fan_out.merge_stage, "merge", flags=flags)
    return resolved(state, "done", flags, "")
