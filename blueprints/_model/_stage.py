"""Stages: the steps of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from shoal.blueprints._model._edge import Edge
from shoal.blueprints._model._fields import Permission, empty, without_zero
from shoal.blueprints._model._region import Region
from shoal.blueprints._model._settings import ModelSettings, Nudge, Observations, OutputSpec

Mode: TypeAlias = Literal["autonomous", "interactive", "interactive_points", "fan_out", "output"]


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
    overrides: Mapping[str, Route] = field(default_factory=empty)
    max_result_tokens_per_tool: Mapping[str, int] = field(default_factory=empty)


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
        without_zero(self, "max_items")


@final
@dataclass(frozen=True, slots=True)
class InteractionPoint:
    """A question to a person at the end of a stage."""

    name: str
    prompt: str
    required: bool = True
    style: Literal["free_text", "multiple_choice", "confirm"] = "free_text"
    options: tuple[str, ...] = ()
    directives: Mapping[str, str] = field(default_factory=empty)
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
    args: Mapping[str, Any] = field(default_factory=empty)
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
    tool_permissions: Mapping[str, Permission] = field(default_factory=empty)
    tool_routing: ToolRouting | None = None
    output_routing: Mapping[str, str] = field(default_factory=empty)
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
    hooks: Mapping[str, str] = field(default_factory=empty)
    seeds: Mapping[str, str] = field(default_factory=empty)
    supervision: ChildSupervision = ChildSupervision()
    offline: tuple[OfflineStep, ...] | None = None
    batch_tool_hint: bool | None = None
    shell_hint: bool | None = None

    def __post_init__(self) -> None:
        without_zero(self, "max_iterations")
