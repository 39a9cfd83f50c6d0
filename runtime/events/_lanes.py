"""Events of lanes: side work that was ordered, done, or given up."""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

Lane: TypeAlias = Literal["refresh", "compaction", "titling"]


@final
class LaneStarted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A lane has a job for the run. *region* and *entry_ids* say what it works on; empty for titling.

    *aside* is a summary of all that the region holds, which is for a child and leaves the region as it is.
    """

    lane: Lane
    region: str = ""
    entry_ids: tuple[int, ...] = ()
    aside: bool = False


@final
class LaneCompleted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A job is done. *job* is the seq of its `LaneStarted`."""

    lane: Lane
    job: int
    region: str = ""


@final
class LaneDegraded(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A job came to nothing and the run goes on without it.

    Args:
        lane: The lane.
        job: Seq of its `LaneStarted`.
        region: The region it was for; empty for titling.
        reason: `crashed`, `timeout`, `lane_down`, `nonsense`, `blank`, `not_smaller`, `overflow`, `provider`,
            `dropped`; of a seed also `failed`, `refused` (it may not be resolved), `interrupted` (its process died).
        error: The last error; empty for none.
        bytes_saved: Of `not_smaller`: what the summary would have saved, 0 or less.
    """

    lane: Lane
    job: int
    region: str
    reason: str
    error: str = ""
    bytes_saved: int = 0
