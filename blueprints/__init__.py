"""What an agent is: the file format, its loader, its structural checks and its writer.

The values are here at once; the loader comes with its first use, so that code that only handles values does not wait
for a parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.blueprints._model import (
    ALWAYS_REGIONS,
    DEFAULT_REGION_TOKENS,
    Blueprint,
    BlueprintTransform,
    Budget,
    CallerSeed,
    ChildSupervision,
    CommandSeed,
    Condition,
    Edge,
    FanOut,
    FilesSeed,
    FileTracking,
    Finding,
    Gate,
    GlobSeed,
    InteractionPoint,
    KindName,
    Lanes,
    LaneSettings,
    LiteralSeed,
    Mode,
    ModelChoice,
    ModelSettings,
    Nudge,
    Observations,
    OfflineStep,
    OutputSpec,
    Permission,
    Refresh,
    Region,
    Repetition,
    Route,
    ScriptSeed,
    Seed,
    Stage,
    StageContext,
    ToolRouting,
    ToolSeedCall,
    ToolsSeed,
    TransformConfig,
    TransformMapping,
)
from shoal.blueprints._profiles import OBSERVATION_PROFILES, resolve_observations
from shoal.blueprints._tools import COMPONENTS, TOOL_ALIASES, can_write, stage_tools, tool_name

if TYPE_CHECKING:
    from shoal.blueprints._canonical import canonical, from_canonical
    from shoal.blueprints._library import library, resolve
    from shoal.blueprints._load import check, dumps, load, loads, locate, refuse_unusable, validate
    from shoal.blueprints._paths import read_path_problem

_LATER = {
    "canonical": "_canonical",
    "check": "_load",
    "dumps": "_load",
    "from_canonical": "_canonical",
    "library": "_library",
    "load": "_load",
    "loads": "_load",
    "locate": "_load",
    "read_path_problem": "_paths",
    "refuse_unusable": "_load",
    "resolve": "_library",
    "validate": "_load",
}

__all__ = [
    "ALWAYS_REGIONS",
    "COMPONENTS",
    "DEFAULT_REGION_TOKENS",
    "OBSERVATION_PROFILES",
    "TOOL_ALIASES",
    "Blueprint",
    "BlueprintTransform",
    "Budget",
    "CallerSeed",
    "ChildSupervision",
    "CommandSeed",
    "Condition",
    "Edge",
    "FanOut",
    "FileTracking",
    "FilesSeed",
    "Finding",
    "Gate",
    "GlobSeed",
    "InteractionPoint",
    "KindName",
    "LaneSettings",
    "Lanes",
    "LiteralSeed",
    "Mode",
    "ModelChoice",
    "ModelSettings",
    "Nudge",
    "Observations",
    "OfflineStep",
    "OutputSpec",
    "Permission",
    "Refresh",
    "Region",
    "Repetition",
    "Route",
    "ScriptSeed",
    "Seed",
    "Stage",
    "StageContext",
    "ToolRouting",
    "ToolSeedCall",
    "ToolsSeed",
    "TransformConfig",
    "TransformMapping",
    "can_write",
    "canonical",
    "check",
    "dumps",
    "from_canonical",
    "library",
    "load",
    "loads",
    "locate",
    "read_path_problem",
    "refuse_unusable",
    "resolve",
    "resolve_observations",
    "stage_tools",
    "tool_name",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
