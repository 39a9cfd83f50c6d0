"""The keys of a stage, of its edges, and of all that a stage holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from shoal.blueprints._choices import Models
from shoal.blueprints._codec import BAD, Choice, Flag, Json, ListOf, MapOf, Number, Soft, Text, Whole, is_table
from shoal.blueprints._model import (
    ChildSupervision,
    Edge,
    FanOut,
    Gate,
    InteractionPoint,
    Nudge,
    OfflineStep,
    OutputSpec,
    Route,
    Stage,
    StageContext,
    ToolRouting,
    TransformConfig,
)
from shoal.blueprints._record import Group, Key, Named, Record
from shoal.blueprints._region_keys import MIME, OBSERVATIONS, REGIONS
from shoal.blueprints._report import Report, listed
from shoal.blueprints._toml import Path

PERMISSIONS = MapOf(Choice("allow", "ask", "deny"))
HOOKS = (
    "on_stage_enter",
    "before_inference",
    "after_inference",
    "on_tool_call",
    "on_stage_exit",
    "on_completion",
    "on_error",
)
PEER_DEFAULT_REGION = "tool_results"
"""Where the other runtime routes what no rule names."""

_FAN_OUT = "fan_out."
_FLAGS_OF_OUTPUT = ("require_output", "allow_complete")

NUDGE = Record(Nudge, Key("enabled", Flag()), Key("max", Whole(0)), Key("text", Text()), lenient=True)

OUTPUT = Record(
    OutputSpec,
    Key("format", Text()),
    Key("instructions", Text()),
    Key("schema", Json()),
    Key("example", Text()),
    Key("validator", Text()),
    lenient=True,
)

# --- edges

_GATE = Record(
    Gate,
    Key("require_modifications", Flag()),
    Key("region", Text()),
    Key("tools", ListOf(Text())),
    Key("require_regions", ListOf(Text())),
    Key("require_region_updated", Text()),
    Key("require_no_open_items", Text()),
    Key("message", Text()),
    Key("max_attempts", Soft(Whole(0))),
)
_TRANSFORM_CONFIG = Record(
    TransformConfig,
    Key("carry", ListOf(Text())),
    Key("compact", ListOf(Text())),
    Key("clear", ListOf(Text())),
    Key("compact_prompt", Text()),
    lenient=True,
)


@final
class _EdgeRecord(Record):
    """An edge. A hint says that the model chooses."""

    def complete(self, found: dict[str, object], table: Mapping[str, object], path: Path, report: Report) -> None:
        if "condition" not in found and found.get("hint", BAD) is not BAD:
            found["condition"] = "llm_choice"

    def explode(self, value: Any) -> dict[str, object]:
        fields = super().explode(value)
        if value.hint is not None:
            fields["condition"] = value.condition
            if value.condition == "llm_choice":
                del fields["condition"]
        return fields


_EDGE = _EdgeRecord(
    Edge,
    Key("condition", Choice("always", "llm_choice", "error", "max_iterations", "stuck", "dead_end")),
    Key("hint", Text()),
    Key("transform", Choice("direct", "clear", "compact", "custom", summarize="compact")),
    Key("transform_config", _TRANSFORM_CONFIG),
    Key("gate", _GATE),
    Key("stuck_after_iterations", Soft(Whole(1))),
    Key("stuck_after_minutes", Soft(Number())),
    Key("stuck_after_s", Number(factor=1 / 60), "stuck_after_minutes", writes=False),
    Key("stuck_after_same_file_edits", Soft(Whole(1))),
    Key("stuck_after_tool_calls", Soft(Whole(1))),
)

# --- tools

_ROUTE = Record(Route, Key("region", Text()), Key("max_result_tokens", Whole(1)))


@final
class _Routes:
    """One rule: a region's name alone, or a table with `region` and `max_result_tokens`."""

    __slots__ = ()

    def read(self, value: object, path: Path, report: Report) -> object:
        """Return the rule."""
        if is_table(value):
            return _ROUTE.read(value, path, report)
        region = Text().read(value, path, report)
        return Route(region) if isinstance(region, str) else BAD

    def write(self, value: object) -> object:
        """Return the rule, short where it names a region and nothing else."""
        if isinstance(value, Route) and value.region is not None and value.max_result_tokens is None:
            return value.region
        return _ROUTE.write(value)


@final
class _RoutingRecord(Record):
    """The routing of a stage. The other runtime routes what no rule names even where no layout declares a place."""

    def complete(self, found: dict[str, object], table: Mapping[str, object], path: Path, report: Report) -> None:
        if report.peer:
            found.setdefault("default_region", PEER_DEFAULT_REGION)


_ROUTING = _RoutingRecord(
    ToolRouting,
    Key("default_region", Text()),
    Key("persist", Flag()),
    Key("max_result_tokens", Whole(1)),
    Key("overrides", MapOf(_Routes())),
    Key("max_result_tokens_per_tool", MapOf(Whole(1))),
)


def _check_mime(name: str, path: Path, report: Report) -> None:
    MIME.read(name, path, report)


def _check_hook(name: str, path: Path, report: Report) -> None:
    if name not in HOOKS:
        message = f"`{name}` is no hook{report.near(name, HOOKS)}; there are {listed(HOOKS)}"
        report.error("unknown-key", path, message, at="key")


# --- people, children, the offline provider

_POINT = Record(
    InteractionPoint,
    Key("name", Text(), required=True),
    Key("prompt", Text(), required=True),
    Key("required", Flag()),
    Key("style", Choice("free_text", "multiple_choice", "confirm")),
    Key("options", ListOf(Text()), also=("choices",)),
    Key("directives", MapOf(Text()), also=("followups",)),
    Key("abort_options", ListOf(Text())),
    Key("edit_options", ListOf(Text())),
    Key("unattended", Choice("auto_approve", "ask")),
    Key("document_region", Text()),
    lenient=True,
)
_SUPERVISION = Record(
    ChildSupervision,
    Key("restart", Choice("permanent", "transient", "temporary")),
    Key("max_restarts", Whole(0)),
    Key("within_s", Number()),
)
_STEP = Record(
    OfflineStep,
    Key("call", Text()),
    Key("args", Json()),
    Key("for_each", Text()),
    Key("pages", Whole(1)),
    Key("extract", Text()),
    Key("sentences", Whole(1)),
    Key("into", Text()),
    Key("say", Text(full=False)),
    Key("route", Text()),
)
_CONTEXT = Record(
    StageContext,
    Key("reset", ListOf(Text())),
    Key("hide", ListOf(Text())),
    Key("mode", Choice("inherit", "fresh")),
    Key("observations", OBSERVATIONS),
    Key("regions", REGIONS),
)
_FAN_OUT_KEYS = Record(
    FanOut,
    Key("worker_agent", Text()),
    Key("worker_stage", Text()),
    Key("worker_query", Text()),
    Key("merge_stage", Text()),
    Key("results_region", Text()),
    Key("max_workers", Whole(0)),
    Key("max_items", Whole(1, zero_is_none=True)),
    Key("max_attempts", Whole(0)),
    Key("on_worker_failure", Choice("continue", "fail_all")),
    Key("split_prompt", Text(full=False)),
)

# --- stages


@final
class _StageRecord(Record):
    """A stage. Its mode implies fields, and in a file the keys of its fan-out stand among its own."""

    def complete(self, found: dict[str, object], table: Mapping[str, object], path: Path, report: Report) -> None:
        mode = found.get("mode", "autonomous")
        written = [name for name in found if name.startswith(_FAN_OUT)]
        fan_out = {name.removeprefix(_FAN_OUT): found.pop(name) for name in written}
        if mode == "fan_out":
            found["fan_out"] = _FAN_OUT_KEYS.make(fan_out)
        elif fan_out and mode is not BAD:
            names = listed(fan_out)
            message = f'{names} belong to a stage with `mode = "fan_out"`; write that mode, or leave them out'
            report.soft("key-without-effect", (*path, next(iter(fan_out))), message, at="key")
        if mode == "output":
            for name in _FLAGS_OF_OUTPUT:
                found.setdefault(name, True)

    def explode(self, value: Any) -> dict[str, object]:
        fields = super().explode(value)
        if value.mode == "output":
            for name in _FLAGS_OF_OUTPUT:
                fields[name] = getattr(value, name)
                if fields[name] is True:
                    del fields[name]
        if isinstance(value.fan_out, FanOut):
            fields |= {f"{_FAN_OUT}{name}": field for name, field in _FAN_OUT_KEYS.explode(value.fan_out).items()}
        return fields


_UNSUPPORTED = ("key-not-supported", "has no effect here; permissions and limits are set in the user's configuration")

STAGE = _StageRecord(
    Stage,
    Key("mode", Choice("autonomous", "interactive", "interactive_points", "fan_out", "output")),
    Key("model", Models()),
    Key("description", Text(full=False)),
    Key("system_prompt", Text(full=False)),
    Key("prompt_as", Choice("instructions", "nudge")),
    Key("available_tools", ListOf(Text())),
    Key("available_connectors", ListOf(Text())),
    Key("deferred_tools", ListOf(Text())),
    Key("required_tools", ListOf(Text())),
    Key("max_iterations", Whole(1, zero_is_none=True)),
    Key("max_revisits", Whole(0)),
    Key("transition_prompt", Text()),
    Key("allow_complete", Flag()),
    Key("require_output", Flag()),
    Key("requires_children", Flag()),
    Key("accepts_messages", Flag()),
    Key("allow_blocking_tools", Flag()),
    Key("allow_as_worker", Flag()),
    Key("batch_tool_hint", Flag()),
    Key("shell_hint", Flag()),
    *(Key(key.name, key.codec, f"{_FAN_OUT}{key.attr}") for key in _FAN_OUT_KEYS.keys),
    Key("nudge", NUDGE),
    Key("tool_permissions", PERMISSIONS),
    Key("tool_routing", _ROUTING),
    Key("output_routing", MapOf(Text(), check=_check_mime)),
    Key("context", _CONTEXT),
    Key("output", OUTPUT),
    Key("hooks", MapOf(Text(), check=_check_hook)),
    Key("seeds", MapOf(Text())),
    Key("supervision", _SUPERVISION),
    Key("offline", Group(Key("policy", ListOf(_STEP), "offline"))),
    Key("interaction_points", ListOf(_POINT)),
    Key("transitions", Named(_EDGE, attr="target")),
    elsewhere={"sandbox": _UNSUPPORTED, "security": _UNSUPPORTED},
)
