"""Which regions a stage sees, and in which order they stand in its prompt."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import final

import msgspec

from shoal.blueprints import ALWAYS_REGIONS, Blueprint, CallerSeed, Region, Stage, resolve_observations
from shoal.errors import BlueprintInvalid
from shoal.providers import Text
from shoal.runtime.context._budget import Limits, resolve
from shoal.runtime.context._entry import estimate_text
from shoal.runtime.context._observe import Knobs
from shoal.runtime.context._render import Theme
from shoal.runtime.context._store import Cut

CONVERSATION = "conversation"
INSTRUCTIONS = "stage_instructions"
BATCH_HINT = (
    "You can call several tools in one turn, and they run at the same time: send calls that do not need each other's "
    "results together."
)
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

_UNLIMITED = Region(CONVERSATION, kind="sliding_window", budget=1.0, max_items=None)

_VOLATILITY = {"stable": 0, "grows": 1, "rewritten": 2}
_PLACES = {"stable": 22, "grows": 100, "rewritten": 200}
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
CHUNKED = ("pinned", "compact_history", "compacting", "temporary", "clearable")
"""Kinds that show their entries one behind the other, and are cut into chunks where they grow."""
_KINDS_OF_OWN: Mapping[str, Collection[str]] = {
    CONVERSATION: ("sliding_window", "custom"),
    FINAL_OUTPUT: (*CHUNKED, "sliding_window"),
    INSTRUCTIONS: CHUNKED,
}
"""What a region that every run has may be declared as: turns are messages, an answer comes without a key."""


@final
class Layout(msgspec.Struct, frozen=True, eq=False):
    """What one stage sees of the window. It is made once a blueprint and shared by all its runs.

    Args:
        stage: The stage.
        regions: Every region's definition in this stage, by name, hidden ones excluded.
        system: Names of the regions of the system section, in prompt order.
        messages: Names of the regions that render as messages, in prompt order: custom ones, which may render blocks
            as well, then windows; the conversation is last.
        tail: Names of the regions that stand behind the conversation, in declared order.
        instructions_in: Where the stage's instructions stand.
        instructions: The instructions; `None` for a stage without any.
        theme: How headings are made and protected.
        reset: Regions that are emptied on each entry.
        everything: Every region's definition, also of those that only other stages declare.
        results_in: Where results go that the stage routes and no rule names: `tool_results` where that is declared.
        knobs: The knobs on the conversation's tool results; `None` leaves them alone.
        fresh: The stage sees the conversation from its own entry on.
        nudged: Its prompt is a message of the conversation; the instructions of the stage before stay where they are.
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
    results_in: str = CONVERSATION
    knobs: Knobs | None = None
    fresh: bool = False
    nudged: bool = False
    _limits: dict[int, Mapping[str, Limits]] = msgspec.field(default_factory=dict[int, Mapping[str, Limits]])

    def limits(self, window_tokens: int) -> Mapping[str, Limits]:
        """Return the limits of each region of *everything* on a model whose window holds *window_tokens*."""
        known = self._limits.get(window_tokens)
        if known is None:
            known = {name: resolve(region, window_tokens) for name, region in self.everything.items()}
            self._limits[window_tokens] = known
        return known

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
    return "grows" if region.volatility == "grows" and region.kind in CHUNKED else "never"


def names_of(blueprint: Blueprint) -> tuple[str, ...]:
    """Return every region that any layout of *blueprint* declares, and those that every run has; sorted."""
    return tuple(sorted(_everything(blueprint)))


def declared(blueprint: Blueprint) -> tuple[Region, ...]:
    """Return the layout that *blueprint* declares, or the default one."""
    return blueprint.regions or DEFAULT_REGIONS


def prompt_of(blueprint: Blueprint, stage: Stage) -> str:
    """Return the prompt of *stage*, with what it is told of calling tools and splitting its work; empty for none."""
    wanted = blueprint.batch_tool_hint if stage.batch_tool_hint is None else stage.batch_tool_hint
    hint = BATCH_HINT if wanted and stage.available_tools else ""
    split = stage.fan_out.split_prompt if stage.fan_out is not None else ""
    return "\n".join(filter(None, (hint, stage.system_prompt, split)))


def layout_of(blueprint: Blueprint, stage: Stage, theme: Theme) -> Layout:
    """Return what *stage* sees.

    Raises:
        BlueprintInvalid: A region that every run has is declared as something that cannot do its work, or a checklist
            is something else in another layout.
    """
    everything = _everything(blueprint)
    knobs = _knobs(blueprint, stage)
    if knobs is not None and not any(region.name == CONVERSATION for region in _declared(blueprint)):
        everything[CONVERSATION] = _UNLIMITED
    _check_kinds(blueprint, everything)
    own = declared(blueprint) if stage.context.regions is None else stage.context.regions
    visible = {region.name: region for region in own if region.name not in stage.context.hide}
    # The four that every run has are never hidden: a layout that omits one keeps the definition it has elsewhere.
    visible |= {name: everything[name] for name in ALWAYS_REGIONS if name not in visible}
    if knobs is not None:
        visible[CONVERSATION] = _unbounded(visible[CONVERSATION])
    told = prompt_of(blueprint, stage)
    text = None if stage.prompt_as == "nudge" or not told else Text.of(told)
    order = {name: position for position, name in enumerate(visible)}
    system = [r for r in visible.values() if r.kind != "sliding_window" and r.placement != "tail"]
    system.sort(key=lambda region: _place(region, order))
    said = [name for name in visible if name != CONVERSATION]
    messages = [name for name in said if visible[name].kind == "custom"]
    messages += [name for name in said if visible[name].kind == "sliding_window"]
    return Layout(
        stage.name,
        visible,
        tuple(region.name for region in system),
        (*messages, CONVERSATION),
        tuple(name for name, region in visible.items() if region.placement == "tail"),
        _instructions_in(blueprint, visible),
        None if text is None else theme.escaped(text),
        theme,
        stage.context.reset,
        everything | visible,
        TOOL_RESULTS if any(region.name == TOOL_RESULTS for region in _declared(blueprint)) else CONVERSATION,
        knobs,
        stage.context.mode == "fresh",
        stage.prompt_as == "nudge",
    )


def _knobs(blueprint: Blueprint, stage: Stage) -> Knobs | None:
    """Return the knobs of *stage*: those that are written, or the profile's where nobody declares a layout at all."""
    written = (blueprint.observations, stage.context.observations)
    bare = not blueprint.regions and stage.context.regions is None
    return Knobs.of(resolve_observations(*written)) if bare or any(layer is not None for layer in written) else None


def _unbounded(region: Region) -> Region:
    """Return a conversation under knobs: they say what of it is seen, and it has a budget only where one is written."""
    unwritten = region.budget is None and region.max_tokens is None and region.kind == "sliding_window"
    return replace(region, budget=1.0) if unwritten else region


def _everything(blueprint: Blueprint) -> dict[str, Region]:
    """Return the first definition of every region: the blueprint's layout, then the stages' own, then the runtime's."""
    everything: dict[str, Region] = {}
    for region in (*_declared(blueprint), *OWN_REGIONS.values()):
        everything.setdefault(region.name, region)
    return everything


def _declared(blueprint: Blueprint) -> Iterator[Region]:
    yield from declared(blueprint)
    for stage in blueprint.stages:
        yield from stage.context.regions or ()


def _check_kinds(blueprint: Blueprint, everything: Mapping[str, Region]) -> None:
    for region in _declared(blueprint):
        fitting = _KINDS_OF_OWN.get(region.name)
        if fitting is not None and region.kind not in fitting:
            listed = " or ".join(f"`{kind}`" for kind in fitting)
            raise BlueprintInvalid(f"`{region.name}` is {region.kind!r}, which cannot do its work; make it {listed}")
        first = everything[region.name].kind
        if region.kind != first and "checklist" in (region.kind, first):
            raise BlueprintInvalid(
                f"`{region.name}` is {first!r} in one layout and {region.kind!r} in another: items are no entries; "
                "give one of them another name"
            )


def place_of(region: Region) -> tuple[int, int]:
    """Return where *region* stands among components: its layer, and its place in that."""
    return 1, _PLACES["rewritten" if region.name == INSTRUCTIONS else region.volatility]


def _place(region: Region, declared_order: Mapping[str, int]) -> tuple[int, int, bool, int]:
    instructions = region.name == INSTRUCTIONS
    pinned = instructions or (region.kind == "custom" and region.pinned)
    steadiness = 0 if pinned else _STEADINESS[region.kind]
    volatility = _VOLATILITY["rewritten" if instructions else region.volatility]
    return volatility, steadiness, instructions, declared_order[region.name]


def _instructions_in(blueprint: Blueprint, visible: Mapping[str, Region]) -> str:
    """Return where instructions stand: where they are declared to, else in the first pinned region in the system."""
    if any(region.name == INSTRUCTIONS for region in _declared(blueprint)):
        return INSTRUCTIONS
    pinned = (n for n, r in visible.items() if r.kind == "pinned" and n not in OWN_REGIONS and r.placement != "tail")
    return next(pinned, INSTRUCTIONS)
