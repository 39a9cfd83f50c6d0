"""The state of a run: what its events add up to.

`RunState` is what is known of a run and how its events change that; `RunRecord` is the known part alone, which the
handlers of events change, each subject in a module of its own.
"""

from shoal.runtime.state._frames import Again, Call, Frame, Frames, Round, Said
from shoal.runtime.state._staging import BUILD
from shoal.runtime.state._state import RunState, fold
from shoal.runtime.state._visit import (
    MODIFYING,
    TALK,
    Child,
    PointState,
    Turn,
    argument,
    calls_of,
    heading_of,
)

__all__ = [
    "BUILD",
    "MODIFYING",
    "TALK",
    "Again",
    "Call",
    "Child",
    "Frame",
    "Frames",
    "PointState",
    "Round",
    "RunState",
    "Said",
    "Turn",
    "argument",
    "calls_of",
    "fold",
    "heading_of",
]
