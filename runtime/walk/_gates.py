"""Gates: what holds a stage back that would take an edge."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.blueprints import Gate, tool_name
from shoal.runtime.context import Item
from shoal.runtime.state import MODIFYING, RunState
from shoal.runtime.walk._actions import Action, Hold, Leave

_LISTED_ITEMS = 20


def through_the_gate(state: RunState, action: Action) -> Action:
    """Return *action*, or what its edge's gate makes of it. Only edges that are taken normally have one."""
    if not isinstance(action, Leave) or action.edge is None or action.edge.condition not in ("always", "llm_choice"):
        return action
    gate = action.edge.gate
    failed = None if gate is None else gate_failure(state, gate)
    if gate is None or failed is None:
        return action
    requirement, said = failed
    attempt = state.visiting.gates.get(action.edge.target, 0) + 1
    if attempt > gate.max_attempts:
        return msgspec.structs.replace(action, forced=requirement)
    return Hold(action.edge.target, requirement, attempt, said)


def gate_failure(state: RunState, gate: Gate) -> tuple[str, str] | None:
    """Return what *gate* still asks for and what the model is told; `None` where it lets the edge pass."""
    states = state.view.states
    updated = gate.require_region_updated
    if updated is not None and states[updated].digest() == state.visiting.digests.get(updated):
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
    modifying = MODIFYING.union(tool_name(name) for name in gate.tools)
    if not modifying.intersection(state.stage.tools) or modifying.intersection(state.visiting.worked):
        return True
    return gate.region is not None and not state.view.states[gate.region].empty
