"""Edges: the allowed moves between stages, and what holds them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

Condition: TypeAlias = Literal["always", "llm_choice", "error", "max_iterations", "stuck", "dead_end"]


@final
@dataclass(frozen=True, slots=True)
class Gate:
    """What must hold before an edge is taken. All that is set must hold.

    Args:
        require_modifications: A modifying tool succeeded in this visit.
        region: With *require_modifications*: a region that, when not empty, also satisfies it.
        tools: With *require_modifications*: further tools that count as modifying.
        require_regions: Regions that must not be empty.
        require_region_updated: A region whose content must differ from the stage's entry.
        require_no_open_items: A checklist that must have no open item.
        message: What the model is told; `None` generates it.
        max_attempts: How often the edge is held before it is forced.
    """

    require_modifications: bool = False
    region: str | None = None
    tools: tuple[str, ...] = ()
    require_regions: tuple[str, ...] = ()
    require_region_updated: str | None = None
    require_no_open_items: str | None = None
    message: str | None = None
    max_attempts: int = 3


@final
@dataclass(frozen=True, slots=True)
class TransformConfig:
    """What a `custom` transform does to which regions. *compact_prompt* replaces the lane's for this edge."""

    carry: tuple[str, ...] = ()
    compact: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    compact_prompt: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Edge:
    """An allowed move to *target*. Taking it is a transition.

    Args:
        target: The stage it leads to.
        condition: When it may be taken. A hint without a condition is `llm_choice`.
        hint: Shown where the model chooses.
        transform: What happens to the regions that are not protected.
        transform_config: For `custom`.
        gate: What must hold before.
        stuck_after_iterations: With `stuck`: inferences in this visit.
        stuck_after_minutes: With `stuck`: minutes in this visit.
        stuck_after_same_file_edits: With `stuck`: edits of one file in this visit.
        stuck_after_tool_calls: With `stuck`: tool calls in this visit.
    """

    target: str
    condition: Condition = "always"
    hint: str | None = None
    transform: Literal["direct", "clear", "compact", "custom"] = "direct"
    transform_config: TransformConfig | None = None
    gate: Gate | None = None
    stuck_after_iterations: int | None = None
    stuck_after_minutes: float | None = None
    stuck_after_same_file_edits: int | None = None
    stuck_after_tool_calls: int | None = None
