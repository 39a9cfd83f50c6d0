"""How busy a swarm is, for those who watch it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import msgspec

from shoal.runtime._pools import PoolStatistics

if TYPE_CHECKING:
    from shoal.runtime._hall import Hall


@final
@dataclass(frozen=True, slots=True)
class LaneStatistics:
    """How busy a lane is: jobs that wait, jobs under way, and how many may be under way at once."""

    queued: int
    running: int
    width: int


@final
@dataclass(frozen=True, slots=True)
class SwarmStatistics:
    """How busy a swarm is.

    Args:
        runs: How many runs it hosts, by agent and state: `running`, `paused`, or `asleep` for those out of memory.
        pools: How busy each pool is, by name.
        lanes: How busy each lane is, by name.
        restarts: How often supervisors restarted something so far, by the supervisor's path in the tree.
    """

    runs: Mapping[tuple[str, str], int]
    pools: Mapping[str, PoolStatistics]
    lanes: Mapping[str, LaneStatistics]
    restarts: Mapping[str, int]


class _Said(msgspec.Struct, frozen=True, gc=False):
    """`SwarmStatistics` as JSON: what a later version adds is passed over, what an earlier one has not is empty."""

    runs: tuple[tuple[str, str, int], ...] = ()
    pools: dict[str, PoolStatistics] = {}
    lanes: dict[str, LaneStatistics] = {}
    restarts: dict[str, int] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Said).decode


def said_of(now: SwarmStatistics) -> bytes:
    """Return *now* as bytes that other processes read with `statistics_from`."""
    runs = tuple((agent, state, count) for (agent, state), count in now.runs.items())
    return _encode(_Said(runs, dict(now.pools), dict(now.lanes), dict(now.restarts)))


def statistics_from(said: bytes) -> SwarmStatistics:
    """Return what a process of this version or of a later one has *said* of its swarm.

    Raises:
        msgspec.DecodeError: It is something else.
    """
    heard = _decode(said)
    runs = {(agent, state): count for agent, state, count in heard.runs}
    return SwarmStatistics(runs, heard.pools, heard.lanes, heard.restarts)


def statistics_of(hall: Hall) -> SwarmStatistics:
    """Return how busy *hall* is now. Safe to call in a thread: exporters of metrics ask in one of their own."""
    runs: Counter[tuple[str, str]] = Counter()
    # Copied first, in one step: runs come and go meanwhile.
    for run_id, program in tuple(hall.home.keeper.made_of.items()):
        live = hall.home.live.get(run_id)
        runs[program.blueprint.name, "asleep" if live is None else live.state.phase] += 1
    lanes: dict[str, LaneStatistics] = {
        name: LaneStatistics(desk.queued, desk.running, desk.width) for name, desk in hall.lanes.items()
    }
    return SwarmStatistics(runs, hall.pools.statistics(), lanes, dict(hall.restarts))
