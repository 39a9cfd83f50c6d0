"""The whole file: which tables it has, and what they make together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any, cast, final

from shoal.blueprints._choices import Models, OneModel, choice_of
from shoal.blueprints._codec import BAD, Choice, Flag, ListOf, Money, Number, Soft, Text, Whole, is_table
from shoal.blueprints._model import (
    Blueprint,
    BlueprintTransform,
    Budget,
    Lanes,
    LaneSettings,
    Region,
    Repetition,
    Stage,
    TransformMapping,
)
from shoal.blueprints._record import Group, Key, Named, Record
from shoal.blueprints._region_keys import CONVERSATION, FILE_TRACKING, OBSERVATIONS, REGIONS
from shoal.blueprints._report import Report
from shoal.blueprints._stage_keys import NUDGE, OUTPUT, PERMISSIONS, STAGE
from shoal.blueprints._toml import Path

_BUDGET = Record(
    Budget,
    Key("max_cost_usd", Money()),
    Key("max_tokens", Whole(1)),
    Key("max_wall_s", Number()),
    Key("unknown_price", Choice("refuse", "ignore")),
    Key("on_budget", Choice("pause", "finish")),
)
_REPETITION = Record(
    Repetition,
    Key("enabled", Flag()),
    Key("max_repeat_calls", Whole(1)),
    Key("max_readonly_streak", Whole(1)),
    lenient=True,
)
_MAPPING = Record(
    TransformMapping,
    Key("from_region", Text(), required=True),
    Key("to_region", Text(), required=True),
    Key("transform", Soft(Choice("direct", "summarize", "extract"))),
    Key("fields", ListOf(Text(), least=1)),
    lenient=True,
)
_TRANSFORM = Record(
    BlueprintTransform,
    Key("from_blueprint", Text(), required=True),
    Key("to_blueprint", Text(), required=True),
    Key("mappings", ListOf(_MAPPING)),
    lenient=True,
)

# --- lanes

_TIMEOUT, _RETRIES = Key("timeout_s", Number()), Key("retries", Whole(0))
_MODEL_LANE = Record(
    LaneSettings,
    Key("model", OneModel()),
    Key("max_tokens", Whole(1)),
    _TIMEOUT,
    _RETRIES,
    Key("temperature", Number(zero=True)),
    Key("prompt", Text()),
)
_LANES = Record(
    Lanes,
    Key("compaction", _MODEL_LANE),
    Key("titling", _MODEL_LANE),
    Key("refresh", Record(LaneSettings, _TIMEOUT, _RETRIES)),
)


@final
class _CompactionRecord(Record):
    """`[compaction]`, the other runtime's table for the compaction lane."""

    def complete(self, found: dict[str, object], table: Mapping[str, object], path: Path, report: Report) -> None:
        provider, model = found.pop("choice.provider", None), found.pop("choice.model", None)
        if provider is not None or model is not None:
            found["model"] = choice_of(provider, model, path, report)


_COMPACTION = _CompactionRecord(
    LaneSettings,
    Key("provider", Text(), "choice.provider"),
    Key("model", Text(), "choice.model"),
    Key("system_prompt", Text(), "prompt"),
    Key("max_summary_tokens", Whole(1), "max_tokens"),
    Key("temperature", Number(zero=True)),
    lenient=True,
)

# --- the file


@final
class _BlueprintRecord(Record):
    """A whole file."""

    def complete(self, found: dict[str, object], table: Mapping[str, object], path: Path, report: Report) -> None:
        if "agent" not in table:
            report.error("missing-key", path, "the table `[agent]` is missing; write it, with a `name`", at="key")
        if found.get("name", BAD) is BAD:
            found["name"] = "unnamed"
        if not found.get("stages") or found["stages"] is BAD:
            found["stages"] = (Stage("main"),)
        self._compaction(found, table, report)
        self._conversation(found, table)

    @staticmethod
    def _compaction(found: dict[str, object], table: Mapping[str, object], report: Report) -> None:
        """Put `[compaction]` where its lane is."""
        compaction = found.pop("compaction", BAD)
        lanes = found.get("lanes", Lanes())
        written = table.get("lanes")
        if is_table(written) and "compaction" in written and "compaction" in table:
            message = "`[compaction]` and `[lanes.compaction]` are the same table; keep the second"
            report.error("conflicting-keys", ("compaction",), message, at="key")
        elif isinstance(compaction, LaneSettings) and isinstance(lanes, Lanes):
            found["lanes"] = replace(lanes, compaction=compaction)

    @staticmethod
    def _conversation(found: dict[str, object], table: Mapping[str, object]) -> None:
        """Take the entry limit from a conversation that is under observation knobs and has none written."""
        everywhere = found.get("observations") is not None
        stages = cast("tuple[Stage, ...]", found["stages"])
        knobs = everywhere or any(stage.context.observations is not None for stage in stages)
        regions = found.get("regions", BAD)
        if knobs and regions is not BAD:
            found["regions"] = _unlimited(regions, _inside(table, "context", "regions"))
        found["stages"] = tuple(
            _unlimited_stage(stage, _inside(table, "stages", stage.name, "context", "regions"))
            if everywhere or stage.context.observations is not None
            else stage
            for stage in stages
        )


def _inside(table: Mapping[str, object], *names: str) -> Mapping[str, object]:
    """Return the table that stands at *names*; an empty one where there is none."""
    for name in names:
        inner = table.get(name)
        table = inner if is_table(inner) else {}
    return table


def _is_conversation(region: Region) -> bool:
    return region.name == CONVERSATION and region.kind == "sliding_window"


def _unlimited(regions: object, written: Mapping[str, object]) -> tuple[Region, ...]:
    return tuple(
        replace(region, max_items=None)
        if _is_conversation(region) and "max_items" not in _inside(written, CONVERSATION)
        else region
        for region in cast("tuple[Region, ...]", regions)
    )


def _unlimited_stage(stage: Stage, written: Mapping[str, object]) -> Stage:
    if stage.context.regions is None:
        return stage
    return replace(stage, context=replace(stage.context, regions=_unlimited(stage.context.regions, written)))


_UNSUPPORTED = ("key-not-supported", "has no effect here; the user's configuration decides that")

BLUEPRINT = _BlueprintRecord(
    Blueprint,
    Key(
        "agent",
        Group(
            Key("name", Text()),
            Key("version", Text()),
            Key("description", Text(full=False)),
            Key("entry_stage", Text()),
            Key("max_child_depth", Whole(0)),
            Key("tool_list", Choice("stage", "run")),
            Key("dynamic_tools", Flag()),
            Key("batch_tool_hint", Flag()),
            Key("shell_hint", Flag()),
            Key("nudge", NUDGE),
            Key("output", OUTPUT),
            lenient=True,
        ),
    ),
    Key("defaults", Group(Key("model", Models()))),
    Key("budget", _BUDGET),
    Key("lanes", _LANES),
    Key("compaction", _COMPACTION, writes=False),
    Key("tool_permissions", PERMISSIONS),
    Key(
        "safe_commands",
        Group(Key("tools", ListOf(Text()), "safe_tools"), Key("shell", ListOf(Text()), "safe_shell"), lenient=True),
    ),
    Key("read_paths", Group(Key("allow", ListOf(Text()), "read_paths"), lenient=True)),
    Key("repetition_detection", _REPETITION, "repetition"),
    Key("components", Group(Key("use", ListOf(Text()), "components"))),
    Key(
        "context",
        Group(
            Key("observations", OBSERVATIONS),
            Key("file_tracking", FILE_TRACKING),
            Key("regions", REGIONS),
            lenient=True,
        ),
    ),
    Key("transforms", ListOf(_TRANSFORM)),
    Key("stages", Named(STAGE)),
    lenient=True,
    elsewhere={
        "model": ("agent-model-block-ignored", "is read by nothing; write `[defaults] model`, or a stage's `model`"),
        "security": _UNSUPPORTED,
        "sandbox": _UNSUPPORTED,
        "tool_script_permissions": _UNSUPPORTED,
        "mcp_servers": _UNSUPPORTED,
    },
)


def read(data: Mapping[str, object], report: Report, folder: Folder | None) -> Blueprint:
    """Return the blueprint that the document *data* stands for.

    It is whole, whatever *data* holds: what could not be read is a problem in *report*, and its default is here.
    """
    return cast("Blueprint", BLUEPRINT.read_with({"folder": folder}, data, (), report))


def written(blueprint: Blueprint) -> dict[str, Any]:
    """Return *blueprint* as the document of a file."""
    return cast("dict[str, Any]", BLUEPRINT.write(blueprint))
