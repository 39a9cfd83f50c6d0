"""Names of built-in tools that rules of the format speak of. What the tools do is the runtime's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shoal.blueprints._model import Region, Stage

TOOL_ALIASES: Mapping[str, str] = MappingProxyType({"bash": "shell"})
"""Other names of built-in tools; a rule for either covers both."""

MODIFYING = frozenset({"write_file", "edit_file"})
FILE_READING = frozenset({"read_file", "read_files"})
ASKING = frozenset({"ask_user_text", "ask_user_confirm", "ask_user_choice", "present_for_review", "edit_document"})
CONTEXT_WRITING = frozenset({"context_write", "context_append", "context_attach"})
ITEM_WRITING = frozenset({"todo_add"})
OWED = frozenset({"submit_output", "fan_out", "load_tools"})
"""Tools that a stage cannot do its work without: they are never loaded later."""
COMPONENTS = (
    "identity",
    "tool_enforcement",
    "model_guidance",
    "memory",
    "environment",
    "injection_shield",
    "project_files",
    "git_flag",
    "working_directory",
    "bindings",
    "deferred_tools",
    "date",
)
"""Components that ship, in the order of the prompt. What each says is the runtime's."""


def tool_name(name: str) -> str:
    """Return the tool's own name for *name*, which may be an alias."""
    return TOOL_ALIASES.get(name, name)


def stage_tools(stage: Stage) -> tuple[str, ...]:
    """Return the tools of *stage* by their own names, in its order, without repeats.

    The tool that its mode implies comes last: `submit_output` for `output`, `fan_out` for `fan_out`. Tools of
    `available_connectors` are not in it: which those are is known at spawn.
    """
    implied = {"output": ("submit_output",), "fan_out": ("fan_out",)}.get(stage.mode, ())
    return tuple(dict.fromkeys(tool_name(name) for name in (*stage.available_tools, *implied)))


def can_write(stage: Stage, region: Region) -> bool:
    """Say whether *stage* can fill *region*: by a tool that takes its kind, or because it routes there."""
    tools = ITEM_WRITING if region.kind == "checklist" else CONTEXT_WRITING
    return not tools.isdisjoint(stage_tools(stage)) or region.name in routed_regions(stage)


def routed_regions(stage: Stage) -> frozenset[str]:
    """Return the regions that *stage* routes results and parts of replies into."""
    into = {*stage.output_routing.values(), *result_regions(stage)}
    return frozenset(into | {stage.fan_out.results_region} if stage.fan_out is not None else into)


def result_regions(stage: Stage) -> frozenset[str]:
    """Return the regions that *stage* routes results of tools into."""
    routing = stage.tool_routing
    if routing is None:
        return frozenset()
    into = (routing.default_region, *(rule.region for rule in routing.overrides.values()))
    return frozenset(name for name in into if name is not None)
