"""Which regions a stage sees, and in which order they stand in its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import msgspec

from shoal.blueprints import ALWAYS_REGIONS, Blueprint, CallerSeed, Region, Stage
from shoal.providers import Text
from shoal.runtime.context._entry import estimate_text
from shoal.runtime.context._render import Theme
from shoal.runtime.context._store import Cut

CONVERSATION = "conversation"
INSTRUCTIONS = "stage_instructions"
FINAL_OUTPUT = "final_output"
TOOL_RESULTS = "tool_results"

DEFAULT_REGIONS = (
    Region("task", kind="pinned", budget=0.25, seed=CallerSeed("task"), volatility="stable"),
    Region(INSTRUCTIONS, kind="pinned", budget=0.25),
    Region(CONVERSATION, kind="sliding_window", budget=1.0, max_items=None),
)
"""The layout of a blueprint that declares no region."""

OWN_REGIONS: Mapping[str, Region] = {
    CONVERSATION: Region(CONVERSATION, kind="sliding_window", max_tokens=10_000, max_items=50, strategy="bulk"),
    TOOL_RESULTS: Region(TOOL_RESULTS, kind="temporary", max_tokens=5_000),
    FINAL_OUTPUT: Region(FINAL_OUTPUT, kind="pinned", max_tokens=2_000),
    INSTRUCTIONS: Region(INSTRUCTIONS, kind="pinned", budget=0.25),
}
"""Regions that every run has, as they are where no layout declares them."""

_VOLATILITY = {"stable": 0, "grows": 1, "rewritten": 2}
_STEADINESS = {
    "pinned": 0,
    "compact_history": 0,
    "checklist": 1,
    "hashmap": 1,
    "compacting": 1,
    "custom": 1,
    "temporary": 2,
    "clearable": 2,
}
_CHUNKED = frozenset({"pinned", "compact_history", "compacting", "temporary", "clearable"})


@final
class Layout(msgspec.Struct, frozen=True, eq=False):
    """What one stage sees of the window. It is made once a blueprint and shared by all its runs.

    Args:
        stage: The stage.
        regions: Every region's definition in this stage, by name, hidden ones excluded.
        system: Names of the regions of the system section, in prompt order.
        messages: Names of the regions that render as messages, in prompt order; the conversation is last.
        tail: Names of the regions that stand behind the conversation, in declared order.
        instructions_in: Where the stage's instructions stand.
        instructions: The instructions; `None` for a stage without any.
        theme: How headings are made and protected.
        reset: Regions that are emptied on each entry.
        everything: Every region's definition, also of those that only other stages declare.
    """

    stage: str
    regions: Mapping[str, Region]
    system: tuple[str, ...]
    messages: tuple[str, ...]
    tail: tuple[str, ...]
    instructions_in: str
    instructions: Text | None
    theme: Theme
    reset: tuple[str, ...] = ()
    everything: Mapping[str, Region] = {}

    @property
    def instruction_tokens(self) -> int:
        """What the stage's instructions cost, estimated."""
        return 0 if self.instructions is None else estimate_text(self.instructions)

    def sees(self, region: str) -> bool:
        """Say whether the stage sees *region*."""
        return region in self.regions


def cut_of(region: Region) -> Cut:
    """Return how the content of *region* is cut into chunks."""
    if region.kind == "sliding_window":
        return "messages"
    return "grows" if region.volatility == "grows" and region.kind in _CHUNKED else "never"


def names_of(blueprint: Blueprint) -> tuple[str, ...]:
    """Return every region that any layout of *blueprint* declares, and those that every run has; sorted."""
    names = {region.name for region in declared(blueprint)}
    for stage in blueprint.stages:
        names.update(region.name for region in stage.context.regions or ())
    return tuple(sorted(names.union(ALWAYS_REGIONS)))


def declared(blueprint: Blueprint) -> tuple[Region, ...]:
    """Return the layout that *blueprint* declares, or the default one."""
    return blueprint.regions or DEFAULT_REGIONS


def layout_of(blueprint: Blueprint, stage: Stage, theme: Theme) -> Layout:
    """Return what *stage* sees."""
    base = {region.name: region for region in declared(blueprint)}
    own = base if stage.context.regions is None else {region.name: region for region in stage.context.regions}
    # The four that every run has are never hidden: a layout that omits one keeps the definition it has elsewhere.
    always = {name: base.get(name, OWN_REGIONS[name]) for name in ALWAYS_REGIONS if name not in own}
    visible = {name: region for name, region in own.items() if name not in stage.context.hide} | always
    text = None if stage.prompt_as == "nudge" or not stage.system_prompt else Text.of(stage.system_prompt)
    prompt_order = sorted(
        (region for region in visible.values() if region.kind != "sliding_window" and region.placement != "tail"),
        key=lambda region: _place(region, list(visible)),
    )
    messages = [n for n, region in visible.items() if region.kind == "sliding_window" and n != CONVERSATION]
    return Layout(
        stage.name,
        visible,
        tuple(region.name for region in prompt_order),
        (*messages, CONVERSATION),
        tuple(name for name, region in visible.items() if region.placement == "tail"),
        _instructions_in(visible, declares=INSTRUCTIONS in base or INSTRUCTIONS in own),
        text,
        theme,
        stage.context.reset,
        _everything(blueprint) | visible,
    )


def _everything(blueprint: Blueprint) -> dict[str, Region]:
    """Return the first definition of every region, the blueprint's layout before the stages' own."""
    layouts = (declared(blueprint), *(stage.context.regions or () for stage in blueprint.stages))
    own = [OWN_REGIONS[name] for name in ALWAYS_REGIONS]
    return {region.name: region for region in reversed([region for layout in (*layouts, own) for region in layout])}


def _place(region: Region, declared_order: list[str]) -> tuple[int, int, bool, int]:
    instructions = region.name == INSTRUCTIONS
    steadiness = 0 if region.kind == "custom" and region.pinned else _STEADINESS[region.kind]
    volatility = _VOLATILITY["rewritten" if instructions else region.volatility]
    return volatility, steadiness, instructions, declared_order.index(region.name)


def _instructions_in(visible: Mapping[str, Region], *, declares: bool) -> str:
    if declares:
        return INSTRUCTIONS
    own = frozenset(ALWAYS_REGIONS)
    pinned = (name for name, region in visible.items() if region.kind == "pinned" and name not in own)
    return next(pinned, INSTRUCTIONS)
