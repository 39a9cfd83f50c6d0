"""Stages that fail, run into their cap, or get nowhere."""

from __future__ import annotations

from shoal.blueprints import Edge
from shoal.runtime.events import InferenceFailed
from shoal.runtime.state import RunState
from shoal.runtime.walk._actions import Action, Leave, Pause
from shoal.runtime.walk._exits import output_owed
from shoal.runtime.walk._ways import may_enter, rescue, resolved, special, to_the_rescue


def after_failure(state: RunState, failure: InferenceFailed) -> Action:
    """Return what follows on a request that failed for good."""
    if failure.error == "ProviderSetup":
        return Pause("needs setup", f"{failure.message.rstrip('.')}. {failure.remedy}".strip())
    if failure.error in ("ContextOverflow", "HardCapExceeded") and rescue(state) is None:
        return Pause(
            "context overflow", "resume it on a model with a larger window, or with less in it: " + failure.message
        )
    return to_the_rescue(state, (), failure.message)


def capped(state: RunState, cap: int) -> Action:
    """Return where a stage goes that has made all *cap* requests that it may."""
    edge = special(state, "max_iterations")
    error = f"stage {state.stage.name!r} was cut off after {cap} requests; it is not finished"
    flags = ("max_iterations_hit", *(("output_forced",) if output_owed(state) else ()))
    if edge is not None:
        return Leave("max_iterations", edge.target, "max_iterations", edge, flags=flags, error=error)
    return resolved(state, "max_iterations", flags, error)


def stuck(state: RunState) -> Leave | None:
    """Return the way out of a stage that gets nowhere; `None` where it is not stuck, or nothing leads out."""
    for edge in state.stage.stage.transitions or ():
        if edge.condition == "stuck" and may_enter(state, edge.target):
            why = _why_stuck(state, edge)
            if why:
                error = f"stage {state.stage.name!r} got stuck: {why}"
                return Leave("stuck", edge.target, "stuck", edge, flags=("stuck",), error=error)
    return None


def _why_stuck(state: RunState, edge: Edge) -> str:
    """Return which threshold of *edge* this visit has reached, with what was measured; empty for none."""
    visit = state.visiting
    path, edits = max(visit.edits.items(), key=lambda each: each[1], default=("", 0))
    minutes = (state.ran_s - visit.began_s) / 60
    measured: tuple[tuple[str, float | None, float, str], ...] = (
        ("iterations", edge.stuck_after_iterations, visit.iterations, f"{visit.iterations} requests"),
        ("minutes", edge.stuck_after_minutes, minutes, f"{minutes:.1f} minutes"),
        ("same_file_edits", edge.stuck_after_same_file_edits, edits, f"{edits} edits of {path!r}"),
        ("tool_calls", edge.stuck_after_tool_calls, visit.tool_calls, f"{visit.tool_calls} tool calls"),
    )
    reached = ((name, most, said) for name, most, value, said in measured if most is not None and value >= most)
    return next((f"{said}, and `stuck_after_{name}` is {most:g}" for name, most, said in reached), "")
