"""Interaction points: what a stage wants of people before it goes on."""

from __future__ import annotations

import re

from shoal.blueprints import InteractionPoint, Stage
from shoal.runtime._limits import Limits
from shoal.runtime.state import TALK, PointState, RunState
from shoal.runtime.walk._actions import Action, AskPoint, Direct, Finish, Hear, Wait

_DASHES = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")


def interactive(state: RunState, stage: Stage) -> bool:
    """Say whether *stage* talks with a person until they have had enough."""
    return stage.mode == "interactive" and not state.made_by.unattended


def asks_people(state: RunState, stage: Stage) -> bool:
    """Say whether people are asked at the end of *stage*."""
    return bool(stage.interaction_points) or interactive(state, stage)


def points(state: RunState, limits: Limits) -> Action | None:
    """Return what the interaction points of the stage still want; `None` where they let it go."""
    stage = state.stage.stage
    for point in stage.interaction_points:
        if not (state.made_by.unattended and point.unattended == "auto_approve"):
            action = _point(state, point, limits)
            if action is not None:
                return action
    return _talk(state) if interactive(state, stage) else None


def _point(state: RunState, point: InteractionPoint, limits: Limits) -> Action | None:
    known = state.visiting.points.get(point.name, PointState())
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
    return _chosen(state, point, known.answered, str(known.answer.text))


def _chosen(state: RunState, point: InteractionPoint, answered: int, answer: str) -> Action | None:
    """Return what a person's *answer*, given in event *answered*, stands for; `None` where it lets the stage go."""
    said = folded(answer)
    if any(folded(option) == said for option in point.abort_options):
        return Finish("cancelled", f"a person chose {answer!r} at the end of stage {state.stage.name!r}")
    if any(folded(option) == said for option in point.edit_options):
        return AskPoint(point.name, edit=True)
    directive = next((text for option, text in point.directives.items() if folded(option) == said), None)
    if directive is not None:
        return Direct(answered, directive)
    return Hear(point.name) if said and point.style == "free_text" else None


def _talk(state: RunState) -> Action | None:
    known = state.visiting.points.get(TALK, PointState())
    if known.question:
        return Wait()
    if known.answer is None:
        return AskPoint(TALK)
    return Hear(TALK) if known.answer.text or known.answer.parts else None


def folded(answer: str) -> str:
    """Return *answer* as answers are compared: every dash alike, and white space as single blanks."""
    return " ".join(_DASHES.sub("-", answer).split())
