"""What a run does next: a pure decision over its state.

A live run asks after each step, a resumed one asks first thing; the same state gives the same answer, so a killed run
goes on where it was.
"""

from __future__ import annotations

from typing import Literal

from shoal.runtime._limits import Limits
from shoal.runtime.events import TransitionChosen
from shoal.runtime.state import RunState, Turn
from shoal.runtime.walk._actions import (
    Action,
    Ask,
    EnterNext,
    Finish,
    Infer,
    Leave,
    Refresh,
    Route,
    RunCalls,
    RunFanOut,
    RunFunction,
    RunHook,
    Wait,
    WaitForJobs,
    WriteResults,
)
from shoal.runtime.walk._exits import onward, owed_at_exit, owes_output
from shoal.runtime.walk._fan_outs import fan_out_call, fanned_out, workers_failed
from shoal.runtime.walk._gates import through_the_gate
from shoal.runtime.walk._points import interactive, points
from shoal.runtime.walk._trouble import after_failure, capped, stuck
from shoal.runtime.walk._ways import to_the_rescue


def decide(state: RunState, limits: Limits) -> Action:
    """Return what the run does next."""
    if state.phase != "running":
        return Wait()
    if state.program.function is not None:
        return _function(state)
    action = Finish("error", state.stopped) if state.stopped is not None else _decided(state, limits)
    match action:
        case Finish("error", reason):
            ran = state.hooks_at_end.get("on_error")
            if ran is not None and ran.text is not None:
                return Finish("error", str(ran.text))
            return action if ran is not None or not _hooked(state, "on_error") else RunHook("on_error", "error", reason)
        case Finish("complete" | "complete_interactive", reason) if _hooked(state, "on_completion"):
            known = "on_completion" in state.hooks_at_end
            return action if known else RunHook("on_completion", action.status, reason)
        case Leave() | Route() if state.leaving is None and _due(state, "on_stage_exit"):
            return RunHook("on_stage_exit")
        case _:
            return action


def _function(state: RunState) -> Action:
    root = state.frames.frames.get(state.frames.root)
    if root is None:
        return Finish("error", "its record ends before its function was called; spawn it again")
    if root.left is None:
        return RunFunction()
    left = root.left[1]
    if left.status == "done":
        return Finish("complete", f"the function `{root.entered.function}` returned")
    return Finish("error", f"{left.error}: {left.reason}" if left.reason else left.error)


def _hooked(state: RunState, hook: str) -> bool:
    return hook in state.stage.stage.hooks


def _due(state: RunState, hook: str) -> bool:
    return _hooked(state, hook) and hook not in state.visiting.hooks


def _decided(state: RunState, limits: Limits) -> Action:
    if state.leaving is not None:
        return _on_the_edge(state, state.leaving)
    if _due(state, "on_stage_enter"):
        return RunHook("on_stage_enter")
    due = refreshing(state)
    if due:
        return Refresh(due)
    if state.failure is not None:
        return after_failure(state, state.failure)
    action = None if state.turn is None else _after(state, state.turn, limits)
    return action or _before_next(state, limits)


def _after(state: RunState, turn: Turn, limits: Limits) -> Action | None:
    """Return what follows on the newest reply; `None` where the stage asks its model again."""
    if turn.open_calls:
        if all(state.parked(index) for index in turn.open_calls):
            return Wait()
        fan_out = fan_out_call(state)
        return RunCalls() if fan_out is None else RunFanOut(fan_out)
    if len(turn.answered) < len(turn.calls):
        return WriteResults()
    if workers_failed(state):
        return to_the_rescue(state, (), "a worker failed, and this stage wants all of them")
    if not turn.calls or fanned_out(state):
        return owed_at_exit(state, limits) or points(state, limits) or onward(state)
    return None


def _before_next(state: RunState, limits: Limits) -> Action:
    """Return what comes in front of the stage's next request, or the request."""
    if state.repeats.note:
        return Ask("repetition", state.repeats.note)
    cap = state.stage.stage.max_iterations or limits.max_iterations
    if state.visiting.iterations >= cap and state.stage.stage.mode != "fan_out":
        return points(state, limits) or through_the_gate(state, capped(state, cap))
    out = stuck(state)
    return Infer() if out is None else through_the_gate(state, out)


def refreshing(state: RunState) -> tuple[str, ...]:
    """Return the regions whose seed is to be resolved again in this visit and was not yet; in declared order."""
    if sum(state.visits.values()) == 1:
        return ()  # the run's first entry has just resolved its seeds
    return tuple(name for name in state.stage.refreshing if name not in state.visiting.refreshed)


def _on_the_edge(state: RunState, leaving: TransitionChosen) -> Action:
    summarising = any(job.started.lane == "compaction" for job in state.jobs.values())
    if summarising and leaving.transform in ("compact", "custom"):
        return WaitForJobs()
    if leaving.target is not None:
        return EnterNext(leaving.target)
    if leaving.condition == "error":
        return Finish("error", state.left_error or f"stage {leaving.source!r} failed and no edge takes it")
    if owes_output(state):
        return Finish("error", f"stage {leaving.source!r} owes an output and none was submitted")
    talked = interactive(state, state.program.stages[leaving.source].stage)
    status: Literal["complete", "complete_interactive"] = "complete_interactive" if talked else "complete"
    return Finish(status, f"stage {leaving.source!r} ended and nothing follows it")
