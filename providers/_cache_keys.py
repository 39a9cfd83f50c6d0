"""Which requests a vendor should send to one machine, where each has a cache of its own."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import final

import anyio
import msgspec

from shoal.providers._loops import LoopWatch
from shoal.providers._values import Request, digest

MINUTE_S = 60.0
PER_KEY = 15
MAX_KEYS = 1024
MAX_RUNS = 65_536


@final
class _Prefix(msgspec.Struct):
    """One prefix: when requests went out under each of its keys in the last minute."""

    keys: list[deque[float]]


@final
class CacheKeys:
    """Gives runs with one prefix a key in common, and the next ones a second key once the first is busy.

    A vendor sends requests of one key to one machine until there are too many a minute; those above spill over to
    machines that have never seen the prefix. A run keeps the key that its first request got: with another one it would
    lose its own conversation.

    Args:
        per_key: The most requests a minute under one key at which another run may still join it, 1 or more.
        max_keys: How many prefixes are counted; the least recently used go.
        max_runs: How many runs are remembered; the least recently seen go.
        clock: Monotonic seconds.

    Source: OpenAI's page on prompt caching (November 2026); the rate is second-hand.
    """

    def __init__(
        self,
        *,
        per_key: int = PER_KEY,
        max_keys: int = MAX_KEYS,
        max_runs: int = MAX_RUNS,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._per_key = per_key
        self._max_keys = max_keys
        self._max_runs = max_runs
        self._clock = clock
        self._seen: OrderedDict[bytes, _Prefix] = OrderedDict()
        self._runs: OrderedDict[tuple[bytes, str], int] = OrderedDict()
        self._loop = LoopWatch()

    def __repr__(self) -> str:
        return f"<CacheKeys for {len(self._seen)} prefixes>"

    def key(self, request: Request) -> str:
        """Return the key of *request* and count it."""
        if self._loop.moved():  # times are those of a loop's clock
            self._seen.clear()
            self._runs.clear()
        shared = shared_prefix(request)
        prefix = self._seen.setdefault(shared, _Prefix([]))
        self._seen.move_to_end(shared)
        if len(self._seen) > self._max_keys:
            self._seen.popitem(last=False)
        number = self._number(prefix, shared, request.run_id)
        while len(prefix.keys) <= number:
            prefix.keys.append(deque())
        prefix.keys[number].append(self._clock())
        return f"{shared.hex()}-{number}" if number else shared.hex()

    def _number(self, prefix: _Prefix, shared: bytes, run_id: str) -> int:
        """Return the number of the key under which a request of *run_id* goes."""
        known = self._runs.get((shared, run_id))
        if known is None:
            since_s = self._clock() - MINUTE_S
            known = next((n for n, times in enumerate(prefix.keys) if self._has_room(times, since_s)), len(prefix.keys))
        if run_id:
            self._runs[shared, run_id] = known
            self._runs.move_to_end((shared, run_id))
            if len(self._runs) > self._max_runs:
                self._runs.popitem(last=False)
        return known

    def _has_room(self, times: deque[float], since_s: float) -> bool:
        while times and times[0] <= since_s:
            times.popleft()
        return len(times) < self._per_key


def shared_prefix(request: Request) -> bytes:
    """Return 16 bytes that stand for what runs of one kind have in common: model, tools and the stable blocks."""
    key = digest(request.model.encode("utf-8", "surrogatepass"), request.tools.digest)
    for block in request.system:
        if block.volatility != "stable" or block.reach != "any":
            break
        key = digest(key, block.digest)
    return key
