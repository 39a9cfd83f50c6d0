"""Regions: the named, budgeted parts of a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from shoal.blueprints._model._fields import without_zero
from shoal.blueprints._model._seeds import CallerSeed, Seed

KindName: TypeAlias = Literal[
    "temporary",
    "pinned",
    "sliding_window",
    "compacting",
    "compact_history",
    "clearable",
    "hashmap",
    "checklist",
    "custom",
]
DEFAULT_REGION_TOKENS = 5_000
ALWAYS_REGIONS = ("conversation", "tool_results", "final_output", "stage_instructions")
"""Regions that every run has, declared or not; they may always be routed into and are never hidden."""


@final
@dataclass(frozen=True, slots=True)
class Region:
    """A named, budgeted part of the prompt.

    Args:
        name: Its name, unique in its layout.
        kind: How it keeps what it holds and what goes first.
        budget: Share of the model's window.
        max_tokens: Alone the budget in tokens; beside *budget* a cap on it.
        min_tokens: A floor, applied last. Without *budget* and *max_tokens* a region has 5,000 tokens.
        seed: What it holds before the first inference; a region named `task` takes the caller's `task` by itself.
        required: While it is empty its stage is asked again instead of ending.
        required_message: What the model is then told; `{region}` is replaced.
        summarizable: False keeps edge transforms from paraphrasing it.
        description: A sentence for people.
        describe_in_prompt: Shows *description* to the model too.
        volatility: How its content moves; decides its place in the prompt.
        placement: `tail` puts it behind the conversation.
        admission: `reject` refuses what does not fit instead of dropping something.
        accepts: Mime patterns; `None` takes anything.
        max_stored: Most stored parts held at once; `None` is no limit.
        shed_to: Share of the budget that a rolling kind goes down to (0.5).
        max_items: `sliding_window`: most entries (10); `None` or 0 is no limit, as in the default conversation.
        strategy: `sliding_window`: what happens past *max_items* (`per_item`).
        overflow: `bulk`: how many entries past *max_items* it waits for (10).
        compact_count: `compact`: how many groups are folded into a summary (10).
        compact_at: `compacting`: share of the budget at which a summary is ordered (0.8).
        threshold_tokens: `compacting`: an absolute trigger; the lower of both counts.
        source_region: `compact_history`: the region whose summaries it carries on.
        max_entries: `hashmap`: most keys; `None` is no limit.
        script: `custom`: path of its script, relative to the blueprint's folder.
        pinned: `custom`: it is never evicted.
    """

    name: str
    kind: KindName = "temporary"
    budget: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    seed: Seed | None = None
    required: bool = False
    required_message: str | None = None
    summarizable: bool = True
    description: str | None = None
    describe_in_prompt: bool = False
    volatility: Literal["stable", "grows", "rewritten"] = "rewritten"
    placement: Literal["tail"] | None = None
    admission: Literal["evict", "reject"] = "evict"
    accepts: tuple[str, ...] | None = None
    max_stored: int | None = None
    shed_to: float = 0.5
    max_items: int | None = 10
    strategy: Literal["per_item", "bulk", "compact"] = "per_item"
    overflow: int = 10
    compact_count: int = 10
    compact_at: float = 0.8
    threshold_tokens: int | None = None
    source_region: str | None = None
    max_entries: int | None = None
    script: str | None = None
    pinned: bool = False

    def __post_init__(self) -> None:
        # The one name with a meaning of its own; set here so that a file and Python give the same value.
        if self.name == "task" and self.seed is None:
            object.__setattr__(self, "seed", CallerSeed("task"))
        without_zero(self, "max_items")
