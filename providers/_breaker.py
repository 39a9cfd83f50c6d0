"""A circuit breaker: a provider that keeps failing for good is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, final

import anyio

from shoal.errors import PartialReply, ProviderError, ProviderSetup, ProviderUnavailable

BreakerState: TypeAlias = Literal["closed", "open", "probing"]

_FATAL = (ProviderSetup, ProviderUnavailable, PartialReply)


@final
class Breaker:
    """Opens after some fatal failures in a row, and then lets one request through at a time to see.

    Fatal is what retrying did not mend and what no other request would fare better with: no key, no credits, no
    permission, nobody there. A refusal, an overflow or a busy vendor says nothing about the next request.

    Args:
        failures: Fatal failures in a row that open it, 1 or more; 0 never opens it.
        wait_s: Seconds from the last failure to the next probe.
        clock: Monotonic seconds.
    """

    def __init__(
        self, *, failures: int = 3, wait_s: float = 300.0, clock: Callable[[], float] = anyio.current_time
    ) -> None:
        self._limit = failures
        self._wait_s = wait_s
        self._clock = clock
        self._failed = 0
        self._probe_at = 0.0
        self._state: BreakerState = "closed"
        self._why: ProviderError | None = None

    def __repr__(self) -> str:
        return f"<Breaker {self._state}, {self._failed} failures>"

    @property
    def state(self) -> BreakerState:
        """`closed` lets everything through, `open` nothing yet, `probing` nothing while one request is on its way."""
        return self._state

    @property
    def why(self) -> ProviderError | None:
        """The last fatal failure; `None` where the last request fared otherwise."""
        return self._why

    def allow(self) -> bool:
        """Say whether a request may go out now. A yes while open makes it the probe: `record` how it ended."""
        if self._state == "closed":
            return True
        if self._state == "probing" or self._clock() < self._probe_at:
            return False
        self._state = "probing"
        return True

    def record(self, error: ProviderError | None) -> None:
        """Take how a request ended, after its retries: *error*, or `None` for a reply."""
        if not isinstance(error, _FATAL):
            self.reset()
            return
        self._failed += 1
        self._why = error
        if self._state == "probing" or self._failed == self._limit:
            self._state = "open"
            self._probe_at = self._clock() + self._wait_s

    def give_back(self) -> None:
        """Take that an allowed request was cancelled: it proved nothing, and the next one may be the probe."""
        if self._state == "probing":
            self._state = "open"

    def retry_now(self) -> None:
        """Let the next request be the probe: somebody says that what was wrong is mended."""
        self._probe_at = self._clock()

    def reset(self) -> None:
        """Close it, whatever happened before."""
        self._state = "closed"
        self._failed = 0
        self._why = None
