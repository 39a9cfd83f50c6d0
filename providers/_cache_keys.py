"""Which requests a vendor should send to one machine, where each has a cache of its own."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import final

import anyio

from shoal.providers._values import Request, digest

MINUTE_S = 60.0
PER_KEY = 15
MAX_KEYS = 1024


@final
class CacheKeys:
    """Gives a request the key of its shared prefix, or of its run where too many share one.

    A vendor sends requests of one key to one machine until there are too many a minute; those above spill over to
    machines that have never seen the prefix.

    Args:
        per_key: The most requests a minute under one key, 1 or more.
        max_keys: How many prefixes are counted; the least recently used go.
        clock: Monotonic seconds.

    Source: OpenAI's page on prompt caching (November 2026); the rate is second-hand.
    """

    def __init__(
        self, *, per_key: int = PER_KEY, max_keys: int = MAX_KEYS, clock: Callable[[], float] = anyio.current_time
    ) -> None:
        self._per_key = per_key
        self._max_keys = max_keys
        self._clock = clock
        self._seen: OrderedDict[bytes, deque[float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<CacheKeys for {len(self._seen)} prefixes>"

    def key(self, request: Request) -> str:
        """Return the key of *request* and count it."""
        shared = shared_prefix(request)
        now = self._clock()
        times = self._seen.setdefault(shared, deque())
        self._seen.move_to_end(shared)
        if len(self._seen) > self._max_keys:
            self._seen.popitem(last=False)
        while times and times[0] <= now - MINUTE_S:
            times.popleft()
        if len(times) >= self._per_key and request.run_id:
            return f"run-{digest(shared, request.run_id.encode('utf-8', 'surrogatepass')).hex()}"
        times.append(now)
        return shared.hex()


def shared_prefix(request: Request) -> bytes:
    """Return 16 bytes that stand for what runs of one kind have in common: model, tools and the stable blocks."""
    key = digest(request.model.encode("utf-8", "surrogatepass"), request.tools.digest)
    for block in request.system:
        if block.volatility != "stable":
            break
        key = digest(key, block.digest)
    return key
