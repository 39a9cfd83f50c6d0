"""What an agent is: the frozen values that a blueprint consists of. They hold no behaviour and nothing live.

`None` means "not written" throughout; what then happens is said beside each field. Names are those of the file format.
Shares are numbers above 0 and at most 1 (the file writes `"35%"`). Collections are tuples, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, final

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
Permission: TypeAlias = Literal["allow", "ask", "deny"]
Refresh: TypeAlias = Literal["once", "each_stage"]
Condition: TypeAlias = Literal["always", "llm_choice", "error", "max_iterations", "stuck", "dead_end"]
Mode: TypeAlias = Literal["autonomous", "interactive", "interactive_points", "fan_out", "output"]

DEFAULT_REGION_TOKENS = 5_000
ALWAYS_REGIONS = ("conversation", "tool_results", "final_output", "stage_instructions")
"""Regions that every run has, declared or not; they may always be routed into and are never hidden."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _empty() -> Mapping[str, Any]:
    return _EMPTY


def _without_zero(value: object, name: str) -> None:
    """Take 0 in a limit for no limit, as a file does, so that a file and Python give the same value."""
    if getattr(value, name) == 0:
        object.__setattr__(value, name, None)


# --- seeds


@final
@dataclass(frozen=True, slots=True)
class CallerSeed:
    """The caller's value of *name*; `task` is what `--task` gives."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class LiteralSeed:
    """This text."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class FilesSeed:
    """These files, in order. A path that starts with `blueprint:` lies in the blueprint's own folder."""

    paths: tuple[str, ...]
    refresh: Refresh = "once"


@final
@dataclass(frozen=True, slots=True)
class GlobSeed:
    """Every file that matches, in sorted order."""

    pattern: str
    refresh: Refresh = "once"


@final
@dataclass(frozen=True, slots=True)
class CommandSeed:
    """The standard output of a shell command."""

    command: str
    refresh: Refresh = "once"


@final
@dataclass(frozen=True, slots=True)
class ScriptSeed:
    """What a sandboxed script returns."""

    path: str
    refresh: Refresh = "once"


@final
@dataclass(frozen=True, slots=True)
class ToolSeedCall:
    """One tool call of a seed: *name* as the agent would spell it."""

    name: str
    args: Mapping[str, Any] = field(default_factory=_empty)


@final
@dataclass(frozen=True, slots=True)
class ToolsSeed:
    """The results of these calls, in order, each an entry of its own."""

    calls: tuple[ToolSeedCall, ...]
    refresh: Refresh = "once"


Seed: TypeAlias = CallerSeed | LiteralSeed | FilesSeed | GlobSeed | CommandSeed | ScriptSeed | ToolsSeed


# --- regions


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
        _without_zero(self, "max_items")


# --- stages


@final
@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One candidate: *provider* by its name, *model* by the vendor's; `None` is that provider's default model."""

    provider: str
    model: str | None = None

    @classmethod
    def of(cls, said: str) -> ModelChoice:
        """Return the candidate that `provider` or `provider:model` names."""
        provider, _, model = said.partition(":")
        return cls(provider, model or None)


@final
@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which models serve a stage, in fallback order, and how they are called.

    Args:
        models: Candidates, best first.
        allow_user_default: The user's default may lead *models*, or serve where there are none.
        timeout_s: Seconds for one call; `None` is the host's.
        max_tokens: Reply budget; `None` is the model's maximum.
        temperature: `None` leaves it to the model.
        parameters: Further fields of the vendor's request body.
    """

    models: tuple[ModelChoice, ...] = ()
    allow_user_default: bool = True
    timeout_s: float | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=_empty)

    def led_by(self, preferred: ModelChoice, usual: str | None) -> tuple[ModelChoice, ...]:
        """Return the candidates as they stand for a user who prefers a provider, where they may be moved.

        Those of that provider come first, and of them the preferred model. Nothing is added: whoever wrote the list
        knows which models do.

        Args:
            preferred: What the user prefers; without a model, that provider's candidates keep their order.
            usual: The model that a candidate of that provider means if it names none; `None` for none.
        """

        def place(choice: ModelChoice) -> int:
            if choice.provider != preferred.provider:
                return 2
            return 0 if preferred.model is not None and (choice.model or usual) == preferred.model else 1

        return tuple(sorted(self.models, key=place)) if self.allow_user_default else self.models


@final
@dataclass(frozen=True, slots=True)
class Route:
    """Where a tool's result goes. *region* `None` keeps the default; *max_result_tokens* `None` does not cut."""

    region: str | None = None
    max_result_tokens: int | None = None


@final
@dataclass(frozen=True, slots=True)
class ToolRouting:
    """Which region takes which tool's results.

    Args:
        default_region: For tools without a rule; `None` is `tool_results` where a layout declares that, and leaves
            results in the conversation otherwise.
        persist: False sends what *default_region* and no rule claims to `scratch`, where the stage has that.
        max_result_tokens: Ceiling for tools without one of their own.
        overrides: Rules by tool name; aliases match.
        max_result_tokens_per_tool: Ceilings by tool name.
    """

    default_region: str | None = None
    persist: bool = True
    max_result_tokens: int | None = None
    overrides: Mapping[str, Route] = field(default_factory=_empty)
    max_result_tokens_per_tool: Mapping[str, int] = field(default_factory=_empty)


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


@final
@dataclass(frozen=True, slots=True)
class Nudge:
    """How a stage is asked again after a reply that called no tool. `None` inherits: stage, agent, host."""

    enabled: bool | None = None
    max: int | None = None
    text: str | None = None


@final
@dataclass(frozen=True, slots=True)
class OutputSpec:
    """What an answer has to look like.

    Args:
        format: Such as `markdown` or `json`.
        instructions: For the model.
        schema: JSON schema.
        example: For the model.
        validator: Path of a script, relative to the blueprint's folder.
    """

    format: str | None = None
    instructions: str | None = None
    schema: Mapping[str, Any] | None = None
    example: str | None = None
    validator: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Observations:
    """Knobs for long tool histories; `None` takes the profile's value, `forget_after_turns=0` turns that one off."""

    profile: Literal["coding", "chat", "eval"] | None = None
    observation_window: int | None = None
    soft_cap_chars: int | None = None
    hard_cap_chars: int | None = None
    min_tail_turns: int | None = None
    forget_after_turns: int | None = None
    mask_step: int | None = None


@final
@dataclass(frozen=True, slots=True)
class StageContext:
    """How a stage sees the window.

    Args:
        regions: The stage's own layout; `None` inherits the blueprint's.
        reset: Regions that are emptied for good on each entry.
        hide: Regions that this stage does not see.
        mode: `fresh` shows the conversation from the stage's entry on.
        observations: Merged over the blueprint's, key by key; `None` inherits.
    """

    regions: tuple[Region, ...] | None = None
    reset: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    mode: Literal["inherit", "fresh"] = "inherit"
    observations: Observations | None = None


@final
@dataclass(frozen=True, slots=True)
class FanOut:
    """How a stage hands its items to workers. Exactly one of the first three is set.

    Args:
        worker_agent: A blueprint: a name of the library, a path, or `blueprint:PATH` inside this one's folder.
        worker_stage: A stage of this blueprint with `allow_as_worker`.
        worker_query: Words that choose among the installed blueprints.
        merge_stage: The stage that follows; `None` resolves the stage's own edges.
        results_region: Where the report goes.
        max_workers: Most workers at once; 0 is no limit.
        max_items: Most items at all; `None` or 0 is no limit.
        max_attempts: How often the stage is asked again when it hands out nothing.
        on_worker_failure: `fail_all` turns one worker's failure into the stage's.
        split_prompt: Added to the stage's prompt.
    """

    worker_agent: str | None = None
    worker_stage: str | None = None
    worker_query: str | None = None
    merge_stage: str | None = None
    results_region: str = "conversation"
    max_workers: int = 30
    max_items: int | None = None
    max_attempts: int = 3
    on_worker_failure: Literal["continue", "fail_all"] = "continue"
    split_prompt: str = ""

    def __post_init__(self) -> None:
        _without_zero(self, "max_items")


@final
@dataclass(frozen=True, slots=True)
class InteractionPoint:
    """A question to a person at the end of a stage."""

    name: str
    prompt: str
    required: bool = True
    style: Literal["free_text", "multiple_choice", "confirm"] = "free_text"
    options: tuple[str, ...] = ()
    directives: Mapping[str, str] = field(default_factory=_empty)
    abort_options: tuple[str, ...] = ()
    edit_options: tuple[str, ...] = ()
    unattended: Literal["auto_approve", "ask"] = "auto_approve"
    document_region: str | None = None


@final
@dataclass(frozen=True, slots=True)
class ChildSupervision:
    """How the children of a stage are restarted; `None` keeps the runtime's default."""

    restart: Literal["permanent", "transient", "temporary"] | None = None
    max_restarts: int | None = None
    within_s: float | None = None


@final
@dataclass(frozen=True, slots=True)
class OfflineStep:
    """One step of the offline provider's policy; exactly one of *call*, *extract*, *say*, *route* is set.

    *pages* is how often a *call* is made at most, where its result says that it goes on (`[continue with offset=N]`).
    """

    call: str | None = None
    args: Mapping[str, Any] = field(default_factory=_empty)
    for_each: str | None = None
    extract: str | None = None
    sentences: int = 3
    into: str | None = None
    say: str | None = None
    route: str | None = None
    pages: int = 1


@final
@dataclass(frozen=True, slots=True)
class Stage:
    """A step with its own model, tools and view of the window.

    Args:
        name: Its name.
        mode: What kind of step it is.
        model: `None` uses the blueprint's default, else the first provider's default model.
        system_prompt: Its instructions.
        prompt_as: `nudge` delivers them into the conversation and leaves `stage_instructions` alone.
        description: For people.
        available_tools: Exactly these; aliases are understood.
        available_connectors: Whole MCP servers.
        deferred_tools: Tools and MCP servers of these whose schemas are sent only once the model loads them.
        required_tools: Tools that wait for a person and stay in an unattended run.
        tool_permissions: Narrower than the blueprint's.
        tool_routing: `None` leaves results in the conversation.
        output_routing: Region by mime pattern, for parts of replies.
        max_iterations: Most inferences in one visit; `None` or 0 is the host's limit.
        max_revisits: Re-entries after the first visit; `None` is no limit.
        transitions: Its edges; `None` means the next stage in the file, `()` means it is terminal.
        transition_prompt: Replaces the routing question.
        allow_complete: Lets the model end the run when it is asked for a stage.
        requires_children: Holds the exit until all children ended.
        accepts_messages: False holds the inbox.
        allow_blocking_tools: Acknowledges a lint.
        allow_as_worker: It may be a `worker_stage`.
        nudge: `None` inherits.
        context: How it sees the window.
        output: Merged over the blueprint's, key by key.
        require_output: It must submit an output.
        fan_out: For the mode `fan_out`; `None` elsewhere.
        interaction_points: For the mode `interactive_points`.
        hooks: Script by hook name.
        seeds: Region whose content children get, by caller name.
        supervision: For children that this stage spawns.
        offline: The offline provider's steps; `None` gives it its default.
        batch_tool_hint: `None` inherits.
        shell_hint: `None` inherits.
    """

    name: str
    mode: Mode = "autonomous"
    model: ModelSettings | None = None
    system_prompt: str | None = None
    prompt_as: Literal["instructions", "nudge"] = "instructions"
    description: str | None = None
    available_tools: tuple[str, ...] = ()
    available_connectors: tuple[str, ...] = ()
    deferred_tools: tuple[str, ...] = ()
    required_tools: tuple[str, ...] = ()
    tool_permissions: Mapping[str, Permission] = field(default_factory=_empty)
    tool_routing: ToolRouting | None = None
    output_routing: Mapping[str, str] = field(default_factory=_empty)
    max_iterations: int | None = None
    max_revisits: int | None = None
    transitions: tuple[Edge, ...] | None = None
    transition_prompt: str | None = None
    allow_complete: bool = False
    requires_children: bool = False
    accepts_messages: bool = True
    allow_blocking_tools: bool = False
    allow_as_worker: bool = False
    nudge: Nudge | None = None
    context: StageContext = StageContext()
    output: OutputSpec | None = None
    require_output: bool = False
    fan_out: FanOut | None = None
    interaction_points: tuple[InteractionPoint, ...] = ()
    hooks: Mapping[str, str] = field(default_factory=_empty)
    seeds: Mapping[str, str] = field(default_factory=_empty)
    supervision: ChildSupervision = ChildSupervision()
    offline: tuple[OfflineStep, ...] | None = None
    batch_tool_hint: bool | None = None
    shell_hint: bool | None = None

    def __post_init__(self) -> None:
        _without_zero(self, "max_iterations")


# --- blueprints


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
    tool_permissions: Mapping[str, Permission] = field(default_factory=_empty)
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


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing, about a blueprint.

    Args:
        id: Stable name of the check.
        severity: `error` fails the load, `warning` fails only where warnings are denied, `note` never fails.
        message: What is wrong and what to write instead.
        file: The file; `None` for a blueprint built in Python.
        line: 1 or more; `None` where there is no place.
        column: 1 or more; `None` where there is no place.
        key: Path of the key, such as `stages.review.model`.
    """

    id: str
    severity: Literal["error", "warning", "note"]
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        where = f"{place}: " if place else ""
        what = f" ({self.key})" if self.key else ""
        return f"{where}{self.severity}: {self.message}{what} [{self.id}]"
