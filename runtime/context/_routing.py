"""Where a tool's result goes, and what the conversation says in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, final

import msgspec

from shoal.blueprints import Route, ToolRouting, tool_name
from shoal.runtime.context._layout import CONVERSATION, Layout
from shoal.runtime.context._operations import OPERATIONS
from shoal.runtime.context._plan import Plan

T = TypeVar("T")

_ANSWERED_HERE = frozenset(OPERATIONS)
SCRATCH = "scratch"
"""Where results go that are not to be kept."""


@final
class Destination(msgspec.Struct, frozen=True, gc=False):
    """Where a result goes. *most_tokens* `None` does not cut it."""

    region: str
    most_tokens: int | None


def destination(layout: Layout, routing: ToolRouting | None, tool: str) -> Destination:
    """Return where the result of *tool* goes under *routing* in a stage that sees *layout*.

    Without routing it stays in the conversation. What no rule names goes to `tool_results` where a layout declares it,
    and stays in the conversation otherwise; what is not to be kept goes to `scratch` where the stage has it. What the
    run's own operations answer is no material: it stays where the model called, unless a rule names the tool.
    """
    if routing is None:
        return Destination(CONVERSATION, None)
    rule = _rule(routing.overrides, tool) or Route()
    region = rule.region or (CONVERSATION if tool in _ANSWERED_HERE else routing.default_region)
    if region is None and not routing.persist and layout.sees(SCRATCH):
        region = SCRATCH
    if region is None:
        region = layout.results_in if routing.persist else CONVERSATION
    most = rule.max_result_tokens
    if most is None:
        most = _rule(routing.max_result_tokens_per_tool, tool)
    return Destination(region, routing.max_result_tokens if most is None else most)


def _rule(rules: Mapping[str, T], tool: str) -> T | None:
    named = tool_name(tool)
    return next((rule for name, rule in rules.items() if tool_name(name) == named), None)


def pointer(
    layout: Layout, region: str, plan: Plan, *, reads_regions: bool, releases: bool = False, note: str = ""
) -> str:
    """Return what stands in the conversation in place of a routed result: where the text is and what happened to it.

    Args:
        layout: What the stage sees.
        region: Where the result went.
        plan: What writing it came to.
        reads_regions: The stage has `context_read`.
        releases: The stage has `context_delete`.
        note: What the tool has to say beside its result; empty for nothing.
    """
    kept, whole = round(plan.tokens * plan.ratio), round(plan.of_tokens * plan.ratio)
    if plan.outcome == "refused":
        said = f"The result of {whole} tokens was not kept: {plan.refusal if releases else plan.why}"
    else:
        cut = f"The result was cut: {kept} of {whole} tokens are kept."
        said = cut if plan.cut else f"The whole result, {whole} tokens, is kept."
        said = f"{said} {where_stands(layout, region, reads_regions=reads_regions)}"
    return f"[{said}]\n{note}" if note else f"[{said}]"


def where_stands(layout: Layout, region: str, *, reads_regions: bool) -> str:
    """Return where the text of *region* stands in a prompt, a sentence.

    Args:
        layout: What the stage sees.
        region: The region.
        reads_regions: The stage has `context_read`.
    """
    definition = layout.regions.get(region)
    if definition is None:
        where = f"It is in the region `{region}`, which this stage does not show."
    elif definition.kind == "sliding_window":
        where = f"It is a message of the region `{region}` in this prompt."
    elif definition.kind == "custom":
        where = f"It is in the region `{region}`, which a script shows in its own way."
    elif definition.placement == "tail":
        where = f'It is at the end of this prompt, under "## {region}".'
    else:
        return f'It is already in this prompt, under "## {region}".'
    return f"{where} `context_read` shows it: region `{region}`." if reads_regions else where
