"""Where a tool's result goes, and what the conversation says in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, final

import msgspec

from shoal.blueprints import Route, ToolRouting, tool_name
from shoal.runtime.context._layout import CONVERSATION, Layout
from shoal.runtime.context._window import Plan

T = TypeVar("T")


@final
class Destination(msgspec.Struct, frozen=True, gc=False):
    """Where a result goes. *most_tokens* `None` does not cut it."""

    region: str
    most_tokens: int | None


def destination(routing: ToolRouting | None, tool: str) -> Destination:
    """Return where the result of *tool* goes under *routing*; without a rule it stays in the conversation."""
    if routing is None:
        return Destination(CONVERSATION, None)
    rule = _rule(routing.overrides, tool) or Route()
    region = rule.region or routing.default_region
    if region is None:
        region = CONVERSATION if routing.persist else "scratch"
    most = rule.max_result_tokens
    if most is None:
        most = _rule(routing.max_result_tokens_per_tool, tool)
    return Destination(region, routing.max_result_tokens if most is None else most)


def _rule(rules: Mapping[str, T], tool: str) -> T | None:
    named = tool_name(tool)
    for name, rule in rules.items():
        if tool_name(name) == named:
            return rule
    return None


def pointer(layout: Layout, region: str, plan: Plan, *, reads_regions: bool, note: str = "") -> str:
    """Return what stands in the conversation in place of a routed result: where the text is and what happened to it.

    Args:
        layout: What the stage sees.
        region: Where the result went.
        plan: What writing it came to.
        reads_regions: The stage has `context_read`.
        note: What the tool has to say beside its result; empty for nothing.
    """
    more = f" `context_read` shows it: region `{region}`." if reads_regions else ""
    where = _where(layout, region, more)
    if plan.outcome == "refused":
        said = f"[The result of {plan.of_tokens} tokens was not kept: {plan.why}]"
    elif plan.cut:
        said = f"[The result was cut: {plan.tokens} of {plan.of_tokens} tokens are kept. {where}]"
    else:
        said = f"[The whole result, {plan.tokens} tokens, is kept. {where}]"
    return f"{said}\n{note}" if note else said


def _where(layout: Layout, region: str, more: str) -> str:
    definition = layout.regions.get(region)
    if definition is None:
        return f"It is in the region `{region}`, which this stage does not show.{more}"
    if definition.kind == "sliding_window":
        return f"It is a message of the region `{region}` in this prompt.{more}"
    if definition.placement == "tail":
        return f'It is at the end of this prompt, under "## {region}".{more}'
    if definition.kind == "custom":
        return f"It is in the region `{region}`, which a script shows in its own way.{more}"
    return f'It is already in this prompt, under "## {region}".'
