"""What a run does next: a pure decision over its state.

A live run asks after each step, a resumed one asks first thing; the same state gives the same answer, so a killed run
goes on where it was.

The order of the checks at a stage's exit: a reply without a tool call, required regions, the output or the items that
the stage owes, then its edges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal, TypeAlias, final

import msgspec

from shoal.blueprints import Edge, Gate, InteractionPoint, Nudge, Stage, tool_name
from shoal.runtime._limits import Limits
from shoal.runtime.context import Item
from shoal.runtime.state import MODIFYING, TALK, PointState, RunState
from shoal.runtime.tools import FAN_OUT, SUBMIT_OUTPUT

WRITING_TOOLS = frozenset({"context_write", "context_append", "context_attach", "todo_add"})
_ROUTING_WORDS = 3
_LISTED_ITEMS = 20
_DASHES = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")


@final
class Wait(msgspec.Struct, frozen=True):
    """Nothing: the run is paused, or over."""


@final
class Refresh(msgspec.Struct, frozen=True):
    """Resolve the seeds of these regions again."""

    regions: tuple[str, ...]


@final
class Infer(msgspec.Struct, frozen=True):
    """Ask the model for the stage's next turn."""


@final
class RunFunction(msgspec.Struct, frozen=True):
    """Run the agentic function that the run is."""


@final
class RunCalls(msgspec.Struct, frozen=True):
    """Run the open calls of the newest reply."""


@final
class RunFanOut(msgspec.Struct, frozen=True):
    """Hand the items of this call to workers."""

    index: int


@final
class WriteResults(msgspec.Struct, frozen=True):
    """Put the results of the newest reply's calls where they belong."""


@final
class Ask(msgspec.Struct, frozen=True):
    """Ask the stage again. *counted* is the reason under which it is counted."""

    counted: str
    text: str


@final
class Route(msgspec.Struct, frozen=True):
    """Ask the model which of these edges to take."""

    edges: tuple[Edge, ...]


@final
class Hold(msgspec.Struct, frozen=True):
    """A gate holds the edge to *target* for the *attempt*-th time: say *text* and let the stage go on."""

    target: str
    requirement: str
    attempt: int
    text: str


@final
class Leave(msgspec.Struct, frozen=True):
    """Leave the stage.

    Args:
        reason: Why, as `StageLeft` says it.
        target: The next stage; `None` ends the run.
        condition: The edge's condition, or `linear`, `merge`, `terminal`.
        edge: The edge; `None` where none is taken.
        by: Who chose.
        flags: What was let through.
        error: What went wrong; empty for nothing.
        forced: What the edge's gate still asks for; empty where it holds nothing back.
    """

    reason: Literal["done", "error", "max_iterations", "stuck"]
    target: str | None
    condition: str
    edge: Edge | None = None
    by: Literal["edge", "model", "default"] = "edge"
    flags: tuple[str, ...] = ()
    error: str = ""
    forced: str = ""


@final
class EnterNext(msgspec.Struct, frozen=True):
    """The edge is taken and its summaries are through: enter the next stage."""

    target: str


@final
class WaitForJobs(msgspec.Struct, frozen=True):
    """Wait for the summaries that the edge ordered."""


@final
class AskPoint(msgspec.Struct, frozen=True):
    """Ask a person at this interaction point; *edit* hands them the stage's text to change."""

    point: str
    edit: bool = False


@final
class Direct(msgspec.Struct, frozen=True):
    """Send the stage back with what a person's answer stands for. *answer* is the seq of that answer."""

    answer: int
    text: str


@final
class Hear(msgspec.Struct, frozen=True):
    """Put what a person said at this interaction point into the conversation."""

    point: str


@final
class RunHook(msgspec.Struct, frozen=True):
    """Ask this hook of the stage. *status* and *reason* are those of the end that the run comes to."""

    hook: str
    status: str = ""
    reason: str = ""


@final
class Pause(msgspec.Struct, frozen=True):
    """Wait for a person."""

    reason: str
    remedy: str
    numbers: tuple[tuple[str, int | float | str], ...] = ()


@final
class Finish(msgspec.Struct, frozen=True):
    """End the run."""

    status: Literal["complete", "complete_interactive", "error", "cancelled"]
    reason: str


Action: TypeAlias = (
    Wait
    | Refresh
    | Infer
    | RunFunction
    | RunCalls
    | RunFanOut
    | WriteResults
    | Ask
    | Route
    | Hold
    | Leave
    | EnterNext
    | AskPoint
    | Direct
    | Hear
    | WaitForJobs
    | RunHook
    | Pause
    | Finish
)


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
    assert state.visit is not None  # see `decide`
    return _hooked(state, hook) and hook not in state.visit.hooks


def _decided(state: RunState, limits: Limits) -> Action:
    if state.leaving is None and _due(state, "on_stage_enter"):
        return RunHook("on_stage_enter")
    if state.leaving is not None:
        return _on_the_edge(state)
    due = refreshing(state)
    if due:
        return Refresh(due)
    if state.failure is not None:
        return _after_failure(state)
    turn = state.turn
    if turn is not None:
        if turn.open_calls:
            if all(state.parked(index) for index in turn.open_calls):
                return Wait()
            fan_out = _fan_out_call(state)
            return RunCalls() if fan_out is None else RunFanOut(fan_out)
        if len(turn.answered) < len(turn.calls):
            return WriteResults()
        if _workers_failed(state):
            return _to_the_rescue(state, (), "a worker failed, and this stage wants all of them")
        if not turn.calls or _fanned_out(state):
            return _exit(state, limits) or _points(state, limits) or _onward(state)
    if state.repeats.note:
        return Ask("repetition", state.repeats.note)
    assert state.visit is not None  # a run is entered with its first event
    cap = state.stage.stage.max_iterations or limits.max_iterations
    if state.visit.iterations >= cap and state.stage.stage.mode != "fan_out":
        return _points(state, limits) or _through_the_gate(state, _capped(state, cap))
    stuck = _stuck(state)
    if stuck is not None:
        return _through_the_gate(state, stuck)
    return Infer()


def refreshing(state: RunState) -> tuple[str, ...]:
    """Return the regions whose seed is to be resolved again in this visit and was not yet; in declared order."""
    visit = state.visit
    assert visit is not None  # see `decide`
    if sum(state.visits.values()) == 1:
        return ()  # the run's first entry has just resolved its seeds
    return tuple(name for name in state.stage.refreshing if name not in visit.refreshed)


def _on_the_edge(state: RunState) -> Action:
    leaving = state.leaving
    assert leaving is not None  # the caller looked
    if any(job.started.lane == "compaction" for job in state.jobs.values()) and leaving.transform in (
        "compact",
        "custom",
    ):
        return WaitForJobs()
    if leaving.target is not None:
        return EnterNext(leaving.target)
    if leaving.condition == "error":
        return Finish("error", state.left_error or f"stage {leaving.source!r} failed and no edge takes it")
    owed = owes_output(state)
    if owed:
        return Finish("error", f"stage {leaving.source!r} owes an output and none was submitted")
    talked = interactive(state, state.program.stages[leaving.source].stage)
    return Finish(
        "complete_interactive" if talked else "complete", f"stage {leaving.source!r} ended and nothing follows it"
    )


def owes_output(state: RunState) -> bool:
    """Say whether some stage that the run entered owes an output and the run has none."""
    stages = state.program.stages
    return state.output is None and any(stages[name].stage.require_output for name in state.visits)


# --- failures


def _after_failure(state: RunState) -> Action:
    failure = state.failure
    assert failure is not None  # the caller looked
    if failure.error == "ProviderSetup":
        return Pause("needs setup", f"{failure.message.rstrip('.')}. {failure.remedy}".strip())
    edge = special(state, "error") or special(state, "dead_end")
    if edge is not None:
        return Leave("error", edge.target, edge.condition, edge, error=failure.message)
    if failure.error in ("ContextOverflow", "HardCapExceeded"):
        return Pause(
            "context overflow", "resume it on a model with a larger window, or with less in it: " + failure.message
        )
    return Leave("error", None, "error", error=failure.message)


def special(state: RunState, condition: str) -> Edge | None:
    """Return the stage's edge of *condition*, where its target may still be entered."""
    edges = state.stage.stage.transitions or ()
    return next((e for e in edges if e.condition == condition and may_enter(state, e.target)), None)


def may_enter(state: RunState, stage: str) -> bool:
    """Say whether *stage* may be entered once more."""
    most = state.program.stages[stage].stage.max_revisits
    return most is None or state.visits.get(stage, 0) <= most


def _capped(state: RunState, cap: int) -> Action:
    edge = special(state, "max_iterations")
    error = f"stage {state.stage.name!r} was cut off after {cap} requests; it is not finished"
    flags = ("max_iterations_hit", *(("output_forced",) if _output_owed(state) else ()))
    if edge is not None:
        return Leave("max_iterations", edge.target, "max_iterations", edge, flags=flags, error=error)
    return _resolved(state, "max_iterations", flags, error)


def _stuck(state: RunState) -> Leave | None:
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
    visit = state.visit
    assert visit is not None  # see `decide`
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


# --- exits


def _exit(state: RunState, limits: Limits) -> Action | None:
    """Return what the stage still owes at its end; `None` where it may go."""
    stage = state.stage.stage
    visit = state.visit
    assert visit is not None  # see `decide`
    if _fanned_out(state):
        return None
    nudge = _nudge(state, limits)
    if nudge is not None:
        return nudge
    if state.stage.stage.requires_children and any(child.open for child in state.children.values()):
        return Wait()
    required = _required(state, limits)
    if required is not None:
        return required
    if _output_owed(state) and visit.asked.get("output_owed", 0) < limits.asks:
        return Ask("output_owed", f"This stage has to submit its answer: call `{SUBMIT_OUTPUT}` with it.")
    if stage.fan_out is not None and visit.asked.get("fan_out_owed", 0) < stage.fan_out.max_attempts:
        return Ask("fan_out_owed", f"This stage has to hand out its items: call `{FAN_OUT}` with them, or with none.")
    return None


def _onward(state: RunState) -> Action:
    """Return where a stage goes that may go."""
    if _fanned_out(state):
        return _through_the_gate(state, _after_fan_out(state, ("items_left_out",) if _left_out(state) else ()))
    flags = ("output_forced",) if _output_owed(state) else ()
    if state.stage.stage.fan_out is not None:
        return _through_the_gate(state, _after_fan_out(state, (*flags, "splits_degraded")))
    return _through_the_gate(state, _resolved(state, "done", flags, ""))


def _nudge(state: RunState, limits: Limits) -> Ask | None:
    stage, visit = state.stage.stage, state.visit
    assert visit is not None  # see `decide`
    settings = (stage.nudge or Nudge(), state.program.blueprint.nudge or Nudge())
    enabled = next((n.enabled for n in settings if n.enabled is not None), not _asks_people(state, stage))
    most = next((n.max for n in settings if n.max is not None), limits.nudges)
    if not enabled or visit.called_tool or not state.stage.tools or visit.asked.get("no_tool_call", 0) >= most:
        return None
    text = next((n.text for n in settings if n.text is not None), None)
    empty = ", ".join(state.view.required_and_empty())
    if text is not None:
        return Ask("no_tool_call", text.replace("{stage}", stage.name).replace("{regions}", empty))
    return Ask("no_tool_call", f"You are in the stage `{stage.name}` and have called no tool. Act through your tools.")


def _asks_people(state: RunState, stage: Stage) -> bool:
    return bool(stage.interaction_points) or interactive(state, stage)


def _required(state: RunState, limits: Limits) -> Ask | None:
    visit = state.visit
    assert visit is not None  # see `decide`
    if not WRITING_TOOLS.intersection(state.stage.tools):
        return None
    empty = state.view.required_and_empty()
    most = state.stage.stage.max_revisits or limits.asks
    if not empty or visit.asked.get("required_region", 0) >= most:
        return None
    regions = state.stage.layout.regions
    said = [
        (regions[name].required_message or "The region `{region}` is required and empty; fill it.").replace(
            "{region}", name
        )
        for name in empty
    ]
    return Ask("required_region", "\n".join(said))


def _output_owed(state: RunState) -> bool:
    visit = state.visit
    return state.stage.stage.require_output and visit is not None and not visit.output_submitted


def abandoned(state: RunState) -> tuple[str, ...]:
    """Return the required regions that the stage leaves empty although it could have written them."""
    if not WRITING_TOOLS.intersection(state.stage.tools):
        return ()
    return state.view.required_and_empty()


# --- people


def interactive(state: RunState, stage: Stage) -> bool:
    """Say whether *stage* talks with a person until they have had enough."""
    return stage.mode == "interactive" and not state.made_by.unattended


def _points(state: RunState, limits: Limits) -> Action | None:
    """Return what the interaction points of the stage still want; `None` where they let it go."""
    stage = state.stage.stage
    for point in stage.interaction_points:
        if not (state.made_by.unattended and point.unattended == "auto_approve"):
            action = _point(state, point, limits)
            if action is not None:
                return action
    return _talk(state) if interactive(state, stage) else None


def _point(state: RunState, point: InteractionPoint, limits: Limits) -> Action | None:
    visit = state.visit
    assert visit is not None  # see `decide`
    known = visit.points.get(point.name, PointState())
    if known.question:
        return Wait()
    if known.answer is None:
        return AskPoint(point.name) if known.rounds < limits.point_rounds else None
    if known.answer.text is None:
        if not state.made_by.unattended:
            return None
        return Finish("error", f"nobody answered the question {point.name!r} of stage {state.stage.name!r}")
    if known.edited:
        return Hear(point.name)
    if known.heard:
        return None
    said = folded(str(known.answer.text))
    if any(folded(option) == said for option in point.abort_options):
        return Finish(
            "cancelled", f"a person chose {str(known.answer.text)!r} at the end of stage {state.stage.name!r}"
        )
    if any(folded(option) == said for option in point.edit_options):
        return AskPoint(point.name, edit=True)
    directive = next((text for option, text in point.directives.items() if folded(option) == said), None)
    if directive is not None:
        return Direct(known.answered, directive)
    return Hear(point.name) if said and point.style == "free_text" else None


def _talk(state: RunState) -> Action | None:
    visit = state.visit
    assert visit is not None  # see `decide`
    known = visit.points.get(TALK, PointState())
    if known.question:
        return Wait()
    if known.answer is None:
        return AskPoint(TALK)
    return Hear(TALK) if known.answer.text or known.answer.parts else None


def folded(answer: str) -> str:
    """Return *answer* as answers are compared: every dash alike, and white space as single blanks."""
    return " ".join(_DASHES.sub("-", answer).split())


# --- fan-out


def _fan_out_call(state: RunState) -> int | None:
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


def _fanned_out(state: RunState) -> bool:
    turn = state.turn
    if turn is None or state.stage.stage.mode != "fan_out":
        return False
    return any(turn.calls[i].name == FAN_OUT and not result.is_error for i, result in turn.results.items())


def _left_out(state: RunState) -> bool:
    """Say whether the newest turn's fan-out had more items than one call takes."""
    turn, fan_out = state.turn, state.stage.stage.fan_out
    assert turn is not None  # see `_fanned_out`
    most = None if fan_out is None else fan_out.max_items
    if not most:
        return False
    calls = [call for call in turn.calls if call.name == FAN_OUT]
    return any(len(json.loads(str(call.arguments))["items"]) > most for call in calls)


def _workers_failed(state: RunState) -> bool:
    """Say whether the newest turn's fan-out failed as a whole because one worker did."""
    turn, visit, fan_out = state.turn, state.visit, state.stage.stage.fan_out
    if turn is None or visit is None or fan_out is None or fan_out.on_worker_failure != "fail_all":
        return False
    return any(turn.calls[i].name == FAN_OUT and r.is_error and r.gate == "workers" for i, r in turn.results.items())


def _to_the_rescue(state: RunState, flags: tuple[str, ...], error: str) -> Leave:
    edge = special(state, "error") or special(state, "dead_end")
    if edge is None:
        return Leave("error", None, "error", flags=flags, error=error)
    return Leave("error", edge.target, edge.condition, edge, flags=flags, error=error)


def _after_fan_out(state: RunState, flags: tuple[str, ...]) -> Action:
    fan_out = state.stage.stage.fan_out
    assert fan_out is not None  # a stage of that mode has it
    if "splits_degraded" in flags and (special(state, "error") or special(state, "dead_end")):
        return _to_the_rescue(state, flags, "the stage handed out no items")
    if fan_out.merge_stage is not None:
        return Leave("done", fan_out.merge_stage, "merge", flags=flags)
    return _resolved(state, "done", flags, "")


# --- gates


def _through_the_gate(state: RunState, action: Action) -> Action:
    """Return *action*, or what its edge's gate makes of it. Only edges that are taken normally have one."""
    if not isinstance(action, Leave) or action.edge is None or action.edge.condition not in ("always", "llm_choice"):
        return action
    gate, visit = action.edge.gate, state.visit
    failed = None if gate is None else gate_failure(state, gate)
    if gate is None or failed is None or visit is None:
        return action
    requirement, said = failed
    attempt = visit.gates.get(action.edge.target, 0) + 1
    if attempt > gate.max_attempts:
        return msgspec.structs.replace(action, forced=requirement)
    return Hold(action.edge.target, requirement, attempt, said)


def gate_failure(state: RunState, gate: Gate) -> tuple[str, str] | None:
    """Return what *gate* still asks for and what the model is told; `None` where it lets the edge pass."""
    visit = state.visit
    assert visit is not None  # see `decide`
    states = state.view.states
    updated = gate.require_region_updated
    if updated is not None and states[updated].digest() == visit.digests.get(updated):
        return "require_region_updated", gate.message or f"Update the region `{updated}` first."
    checklist = gate.require_no_open_items
    if checklist is not None:
        still_open = [item for item in states[checklist].items.values() if item.state == "open"]
        if still_open:
            said = gate.message or f"Close or drop the open items of `{checklist}` first."
            return "require_no_open_items", "\n".join((said, *_open_items(still_open)))
    empty = [name for name in gate.require_regions if states[name].empty]
    if empty:
        listed = ", ".join(f"`{name}`" for name in empty)
        return "require_regions", gate.message or f"Fill these regions first: {listed}."
    if gate.require_modifications and not _modified(state, gate):
        return "require_modifications", gate.message or "This stage has to change something first: use its tools."
    return None


def _open_items(items: Sequence[Item]) -> list[str]:
    lines = [f"{item.item_id} {' '.join(str(item.text).split())}" for item in items[:_LISTED_ITEMS]]
    more = len(items) - len(lines)
    return [*lines, f"and {more} more"] if more > 0 else lines


def _modified(state: RunState, gate: Gate) -> bool:
    visit = state.visit
    assert visit is not None  # see `decide`
    modifying = MODIFYING.union(tool_name(name) for name in gate.tools)
    if not modifying.intersection(state.stage.tools) or modifying.intersection(visit.worked):
        return True
    return gate.region is not None and not state.view.states[gate.region].empty


# --- edges


def _resolved(state: RunState, reason: Literal["done", "max_iterations"], flags: tuple[str, ...], error: str) -> Action:
    stage = state.stage.stage
    if stage.transitions is None:
        # A worker is handed one stage of the file; what stands behind that is its parent's way, not its own.
        as_worker = state.made_by.stage == stage.name
        following = None if as_worker else state.program.following(stage.name)
        return Leave(reason, following, "linear" if following else "terminal", flags=flags, error=error)
    normal = [edge for edge in stage.transitions if edge.condition in ("always", "llm_choice")]
    if not normal:
        return Leave(reason, None, "terminal", flags=flags, error=error)
    open_edges = tuple(edge for edge in normal if may_enter(state, edge.target))
    if not open_edges:
        edge = special(state, "dead_end") or special(state, "error")
        if edge is not None:
            return Leave(reason, edge.target, edge.condition, edge, flags=flags, error=error)
        dead = f"every stage that follows {stage.name!r} was entered as often as it may be"
        return Leave("error", None, "error", flags=flags, error=dead)
    if len(open_edges) == 1 and not stage.allow_complete:
        return Leave(reason, open_edges[0].target, open_edges[0].condition, open_edges[0], flags=flags, error=error)
    if state.routing is None:
        return Route(open_edges)
    return _answered(stage, open_edges, str(state.routing.text), reason, flags, error)


def _answered(
    stage: Stage,
    edges: Sequence[Edge],
    answer: str,
    reason: Literal["done", "max_iterations"],
    flags: tuple[str, ...],
    error: str,
) -> Leave:
    chosen = match_answer(answer, [edge.target for edge in edges], done=stage.allow_complete)
    if chosen == "DONE" or (chosen is None and stage.allow_complete):
        by: Literal["model", "default"] = "model" if chosen else "default"
        return Leave(reason, None, "terminal", by=by, flags=flags, error=error)
    edge = next((edge for edge in edges if edge.target == chosen), edges[0])
    return Leave(reason, edge.target, edge.condition, edge, "model" if chosen else "default", flags, error)


def match_answer(answer: str, targets: Sequence[str], *, done: bool) -> str | None:
    """Return the stage that *answer* names, `DONE`, or `None` where it names none.

    The first line counts, then the last; a line counts only where it has at most three words.
    """
    lines = [line for line in answer.strip().splitlines() if line.strip()]
    for line in (*lines[:1], *lines[-1:]):
        words = [word.strip("`'\"*.:,!->") for word in line.split()]
        if len(words) > _ROUTING_WORDS:
            continue
        for target in targets:
            if target in words or target == " ".join(words):
                return target
        if done and "DONE" in words:
            return "DONE"
    return None
