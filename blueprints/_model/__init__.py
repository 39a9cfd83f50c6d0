"""What an agent is: the frozen values that a blueprint consists of. They hold no behaviour and nothing live.

`None` means "not written" throughout; what then happens is said beside each field. Names are those of the file format.
Shares are numbers above 0 and at most 1 (the file writes `"35%"`). Collections are tuples, in the order of the file.
"""

from shoal.blueprints._model._blueprint import (
    Blueprint,
    BlueprintTransform,
    Budget,
    FileTracking,
    Lanes,
    LaneSettings,
    Repetition,
    TransformMapping,
)
from shoal.blueprints._model._edge import Condition, Edge, Gate, TransformConfig
from shoal.blueprints._model._fields import Permission
from shoal.blueprints._model._finding import Finding
from shoal.blueprints._model._region import ALWAYS_REGIONS, DEFAULT_REGION_TOKENS, KindName, Region
from shoal.blueprints._model._seeds import (
    CallerSeed,
    CommandSeed,
    FilesSeed,
    GlobSeed,
    LiteralSeed,
    Refresh,
    ScriptSeed,
    Seed,
    ToolSeedCall,
    ToolsSeed,
)
from shoal.blueprints._model._settings import ModelChoice, ModelSettings, Nudge, Observations, OutputSpec
from shoal.blueprints._model._stage import (
    ChildSupervision,
    FanOut,
    InteractionPoint,
    Mode,
    OfflineStep,
    Route,
    Stage,
    StageContext,
    ToolRouting,
)

__all__ = [
    "ALWAYS_REGIONS",
    "DEFAULT_REGION_TOKENS",
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
]
