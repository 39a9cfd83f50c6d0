"""The blueprint: stages, regions, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal, final

from shoal.blueprints._model._fields import Permission, empty
from shoal.blueprints._model._region import Region
from shoal.blueprints._model._settings import ModelChoice, ModelSettings, Nudge, Observations, OutputSpec
from shoal.blueprints._model._stage import Stage


@final
@dataclass(frozen=True, slots=True)
class LaneSettings:
    """How one lane serves the runs of a blueprint; `None` keeps the lane's default."""

    model: ModelChoice | None = None
    max_tokens: int | None = None
    timeout_s: float | None = None
    retries: int | None = None
    temperature: float | None = None
    prompt: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Lanes:
    """The three lanes' settings."""

    compaction: LaneSettings = LaneSettings()
    titling: LaneSettings = LaneSettings()
    refresh: LaneSettings = LaneSettings()


@final
@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for a run and its subtree; `None` is no limit. *max_wall_s* counts running time, pauses excluded."""

    max_cost_usd: Decimal | None = None
    max_tokens: int | None = None
    max_wall_s: float | None = None
    unknown_price: Literal["refuse", "ignore"] = "refuse"
    on_budget: Literal["pause", "finish"] = "pause"


@final
@dataclass(frozen=True, slots=True)
class Repetition:
    """When a note says that calls repeat."""

    enabled: bool = True
    max_repeat_calls: int = 3
    max_readonly_streak: int = 10


@final
@dataclass(frozen=True, slots=True)
class FileTracking:
    """Keeps the text of files that were read or written in a hashmap region, under their paths."""

    region: str = "files"
    track_reads: bool = True
    track_writes: bool = True
    max_file_tokens: int | None = None


@final
@dataclass(frozen=True, slots=True)
class TransformMapping:
    """Which region of a parent goes where in its child, and how."""

    from_region: str
    to_region: str
    transform: Literal["direct", "summarize", "extract"] = "direct"
    fields: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class BlueprintTransform:
    """What a child of *to_blueprint* is given from a parent of *from_blueprint*."""

    from_blueprint: str
    to_blueprint: str
    mappings: tuple[TransformMapping, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Blueprint:
    """What an agent is: a frozen, checked definition. It holds nothing live.

    Args:
        name: Its name.
        version: Its version.
        description: For people, and for models that look for a worker.
        stages: Its stages, 1 or more, in the order of the file.
        regions: The layout; `()` gives the default one (task, stage_instructions, conversation).
        entry_stage: The first stage; `None` is the first declared.
        model: Default for stages without one.
        max_child_depth: Depth of the tree below a run of it; `None` is the runtime's 3.
        tool_list: `run` sends the schemas of all stages in every request.
        nudge: Default for its stages.
        output: Default for its stages.
        tool_permissions: Narrower than the host's.
        safe_tools: What it asks to run without a question; counts only where the user lets it.
        safe_shell: Shell lines of the same kind.
        read_paths: What it asks to read outside the working directory.
        lanes: Settings of the lanes.
        budget: Limits for a run and its subtree.
        repetition: When a note says that calls repeat.
        file_tracking: `None` is off.
        observations: `None` leaves the regions' own rules alone.
        components: Names of the components that its prompts get.
        transforms: What children are given.
        dynamic_tools: Scan the run's own `tools/` between turns.
        batch_tool_hint: `None` inherits.
        shell_hint: `None` inherits.
        folder: Where it was read from; `None` for one built in Python without a folder.
    """

    name: str
    stages: tuple[Stage, ...]
    version: str = "0.1.0"
    description: str = ""
    regions: tuple[Region, ...] = ()
    entry_stage: str | None = None
    model: ModelSettings | None = None
    max_child_depth: int | None = None
    tool_list: Literal["stage", "run"] = "stage"
    nudge: Nudge | None = None
    output: OutputSpec | None = None
    tool_permissions: Mapping[str, Permission] = field(default_factory=empty)
    safe_tools: tuple[str, ...] = ()
    safe_shell: tuple[str, ...] = ()
    read_paths: tuple[str, ...] = ()
    lanes: Lanes = Lanes()
    budget: Budget = Budget()
    repetition: Repetition = Repetition()
    file_tracking: FileTracking | None = None
    observations: Observations | None = None
    components: tuple[str, ...] = ()
    transforms: tuple[BlueprintTransform, ...] = ()
    dynamic_tools: bool = False
    batch_tool_hint: bool | None = None
    shell_hint: bool | None = None
    folder: Path | None = None

    @property
    def entry(self) -> str:
        """Name of the stage that a run starts in."""
        return self.entry_stage or self.stages[0].name

    def stage(self, name: str) -> Stage:
        """Return the stage called *name*.

        Raises:
            KeyError: There is none.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)
