"""What a run does next: `decide` is a pure function of its state, and an `Action` is what it answers."""

from shoal.runtime.walk._actions import (
    Action,
    Ask,
    AskPoint,
    Direct,
    EnterNext,
    Finish,
    Hear,
    Hold,
    Infer,
    Leave,
    Pause,
    Refresh,
    Route,
    RunCalls,
    RunFanOut,
    RunFunction,
    RunHook,
    Wait,
    WaitForJobs,
    WriteResults,
)
from shoal.runtime.walk._decide import decide
from shoal.runtime.walk._exits import abandoned
from shoal.runtime.walk._points import folded

__all__ = [
    "Action",
    "Ask",
    "AskPoint",
    "Direct",
    "EnterNext",
    "Finish",
    "Hear",
    "Hold",
    "Infer",
    "Leave",
    "Pause",
    "Refresh",
    "Route",
    "RunCalls",
    "RunFanOut",
    "RunFunction",
    "RunHook",
    "Wait",
    "WaitForJobs",
    "WriteResults",
    "abandoned",
    "decide",
    "folded",
]
