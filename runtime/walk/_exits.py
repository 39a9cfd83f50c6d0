"""What a stage owes at its end, and where it goes once it owes nothing.

The order of the checks: a reply without a tool call, required regions, the output or the items that the stage owes,
then its edges.
"""

from __future__ import annotations

from shoal.blueprints import Nudge
from shoal.runtime._limits import Limits
from shoal.runtime.state import RunState
from shoal.runtime.tools import FAN_OUT, SUBMIT_OUTPUT
from shoal.runtime.walk._actions import Action, Ask, Wait
from shoal.runtime.walk._fan_outs import after_fan_out, fanned_out, left_out
from shoal.runtime.walk._gates import through_the_gate
from shoal.runtime.walk._points import asks_people
from shoal.runtime.walk._ways import resolved

_REQUIRED = "The region `{region}` is required and empty; fill it."
WRITING_TOOLS = frozenset({"context_write", "context_append", "context_attach", "todo_add"})


def owed_at_exit(state: RunState, limits: Limits) -> Action | None:
    """Return what the stage still owes at its end; `None` where it may go."""
    stage = state.stage.stage
    visit = state.visiting
    if fanned_out(state):
        return None
    nudge = _nudge(state, limits)
    if nudge is not None:
        return nudge
    if stage.requires_children and any(child.open for child in state.children.values()):
        return Wait()
    required = _required(state, limits)
    if required is not None:
        return required
    if output_owed(state) and visit.asked.get("output_owed", 0) < limits.asks:
        return Ask("output_owed", f"This stage has to submit its answer: call `{SUBMIT_OUTPUT}` with it.")
    if stage.fan_out is not None and visit.asked.get("fan_out_owed", 0) < stage.fan_out.max_attempts:
        return Ask("fan_out_owed", f"This stage has to hand out its items: call `{FAN_OUT}` with them, or with none.")
    return None


def onward(state: RunState) -> Action:
    """Return where a stage goes that may go."""
    if fanned_out(state):
        return through_the_gate(state, after_fan_out(state, ("items_left_out",) if left_out(state) else ()))
    flags = ("output_forced",) if output_owed(state) else ()
    if state.stage.stage.fan_out is not None:
        return through_the_gate(state, after_fan_out(state, (*flags, "splits_degraded")))
    return through_the_gate(state, resolved(state, "done", flags, ""))


def _nudge(state: RunState, limits: Limits) -> Ask | None:
    stage, visit = state.stage.stage, state.visiting
    settings = (stage.nudge or Nudge(), state.program.blueprint.nudge or Nudge())
    enabled = next((n.enabled for n in settings if n.enabled is not None), not asks_people(state, stage))
    most = next((n.max for n in settings if n.max is not None), limits.nudges)
    if not enabled or visit.called_tool or not state.stage.tools or visit.asked.get("no_tool_call", 0) >= most:
        return None
    text = next((n.text for n in settings if n.text is not None), None)
    empty = ", ".join(state.view.required_and_empty())
    if text is not None:
        return Ask("no_tool_call", text.replace("{stage}", stage.name).replace("{regions}", empty))
    return Ask("no_tool_call", f"You are in the stage `{stage.name}` and have called no tool. Act through your tools.")


def _required(state: RunState, limits: Limits) -> Ask | None:
    visit = state.visiting
    if not WRITING_TOOLS.intersection(state.stage.tools):
        return None
    empty = state.view.required_and_empty()
    most = state.stage.stage.max_revisits or limits.asks
    if not empty or visit.asked.get("required_region", 0) >= most:
        return None
    regions = state.stage.layout.regions
    said = [(regions[name].required_message or _REQUIRED).replace("{region}", name) for name in empty]
    return Ask("required_region", "\n".join(said))


def output_owed(state: RunState) -> bool:
    """Say whether this visit of the stage owes an answer that was not submitted."""
    return state.stage.stage.require_output and not state.visiting.output_submitted


def owes_output(state: RunState) -> bool:
    """Say whether some stage that the run entered owes an output and the run has none."""
    stages = state.program.stages
    return state.output is None and any(stages[name].stage.require_output for name in state.visits)


def abandoned(state: RunState) -> tuple[str, ...]:
    """Return the required regions that the stage leaves empty although it could have written them."""
    if not WRITING_TOOLS.intersection(state.stage.tools):
        return ()
    return state.view.required_and_empty()
