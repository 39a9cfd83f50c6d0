"""Ways out of a stage: which edges are open, and which of them is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from shoal.blueprints import Edge, Stage
from shoal.runtime.state import RunState
from shoal.runtime.walk._actions import Action, Leave, Route

_ROUTING_WORDS = 3


def may_enter(state: RunState, stage: str) -> bool:
    """Say whether *stage* may be entered once more."""
    most = state.program.stages[stage].stage.max_revisits
    return most is None or state.visits.get(stage, 0) <= most


def special(state: RunState, condition: str) -> Edge | None:
    """Return the stage's edge of *condition*, where its target may still be entered."""
    edges = state.stage.stage.transitions or ()
    return next((e for e in edges if e.condition == condition and may_enter(state, e.target)), None)


def rescue(state: RunState) -> Edge | None:
    """Return the stage's edge for what went wrong; `None` where it has none that is open."""
    return special(state, "error") or special(state, "dead_end")


def to_the_rescue(state: RunState, flags: tuple[str, ...], error: str) -> Leave:
    """Return where a stage goes that failed, with what went wrong in *error*."""
    edge = rescue(state)
    if edge is None:
        return Leave("error", None, "error", flags=flags, error=error)
    return Leave("error", edge.target, edge.condition, edge, flags=flags, error=error)


def resolved(state: RunState, reason: Literal["done", "max_iterations"], flags: tuple[str, ...], error: str) -> Action:
    """Return where a stage goes along its edges: to the one that is open, or to what the model chooses."""
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
