"""How many requests and tokens a minute a vendor takes, learned from what its answers say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import final

import anyio

from shoal.errors import ConfigInvalid
from shoal.providers._loops import LoopWatch
from shoal.providers._refusals import duration_s
from shoal.providers._values import Usage

MINUTE_S = 60.0
_LEARNING = 0.5  # how much the newest answer says of the next
_LEAST_SHARE = 0.02
_MOST = 1e15  # more says nothing
_MOMENT_S = 1e-6  # sums of floats miss by less; a wait that short might not move a clock on


@final
class Budget:
    """What may be spent a minute; refills evenly, and holds one minute's worth at most.

    Args:
        per_minute: The limit; `None` while none is known.
        clock: Monotonic seconds.
    """

    def __init__(self, per_minute: float | None, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._per_minute = per_minute
        self._left = per_minute or 0.0
        self._at = -1.0  # the clock is not read before a loop runs
        self._closed_until = 0.0

    def __repr__(self) -> str:
        return f"<Budget of {self._per_minute} a minute, {self._left:.0f} left>"

    @property
    def per_minute(self) -> float | None:
        """The limit; `None` while none is known."""
        return self._per_minute

    def wait_s(self, amount: float) -> float:
        """Return in how many seconds *amount* may be spent; 0 for now. More than the limit waits for all of it."""
        now = self._refill()
        if self._per_minute is None:
            return max(self._closed_until - now, 0.0)
        missing = min(amount, self._per_minute) - self._left
        return max(missing * MINUTE_S / self._per_minute, self._closed_until - now, 0.0)

    def spend(self, amount: float) -> None:
        """Take *amount*, which may leave less than nothing; a negative one gives back.

        What is owed is one minute's worth at most: a limit that a gateway counts in another unit, or that is no limit
        at all, must not hold a run for days.
        """
        self._refill()
        self._left -= amount
        if self._per_minute is not None:
            self._left = max(self._left, -self._per_minute)

    def learn(self, limit: float | None, left: float | None, reset_s: float | None) -> None:
        """Take what a vendor said: its limit, what is left of it, and in how many seconds that is whole again."""
        now = self._refill()
        if limit is not None and limit > 0:
            if self._per_minute is None:
                self._left = limit
            self._per_minute = limit
            self._left = min(self._left, limit)
        if left is not None and self._per_minute is not None:
            # Others may spend from the same account: the vendor's word wins where it is less.
            self._left = min(self._left, left)
            if left <= 0 and reset_s is not None:
                self._closed_until = max(self._closed_until, now + min(reset_s, MINUTE_S))

    def restart(self) -> None:
        """Go on with what is left on another clock, by which nothing has passed yet and nobody was asked to wait."""
        self._at, self._closed_until = -1.0, 0.0

    def close_for(self, seconds: float) -> None:
        """Let nothing through for *seconds*: the vendor asked for that."""
        self._closed_until = max(self._closed_until, self._clock() + seconds)

    def _refill(self) -> float:
        now = self._clock()
        if self._per_minute is not None and self._at >= 0:
            self._left = min(self._per_minute, self._left + (now - self._at) * self._per_minute / MINUTE_S)
        self._at = now
        return now


@final
@dataclass(frozen=True, slots=True)
class Rates:
    """What a vendor takes a minute for one model, until its answers say more.

    Args:
        requests_per_minute: Above 0; `None` for no limit.
        tokens_per_minute: Of input that no cache holds, and of output; above 0, or `None` for no limit.
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


NO_RATES = Rates()


@final
@dataclass(frozen=True, slots=True)
class RateStatistics:
    """How a rate limit is doing.

    Args:
        requests_per_minute: The limit that holds now; `None` while none is known.
        tokens_per_minute: The same, in tokens.
        queued: Requests that wait for it.
        waited_s: Seconds that were waited so far, all requests together.
    """

    requests_per_minute: float | None
    tokens_per_minute: float | None
    queued: int
    waited_s: float


@final
class RateLimit:
    """Paces requests to one model, by requests and by tokens a minute; both adapt to what the vendor's answers say.

    Those who wait are let through in the order in which they came: put it behind a pool's slot, which is fair to runs.
    What it learned holds in the next event loop as well; what is left of a minute refills from there on.

    Args:
        requests_per_minute: The limit until the vendor names one; `None` for none.
        tokens_per_minute: The same, of input that no cache holds and of output.
        clock: Monotonic seconds.
        wall_clock: Seconds since 1970, for dates in headers.

    Raises:
        ConfigInvalid: A limit lets nothing through.
    """

    def __init__(
        self,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Callable[[], float] = anyio.current_time,
        wall_clock: Callable[[], float] = lambda: datetime.now().timestamp(),  # noqa: DTZ005 - seconds have no zone
    ) -> None:
        if any(limit is not None and limit <= 0 for limit in (requests_per_minute, tokens_per_minute)):
            raise ConfigInvalid(
                f"{requests_per_minute!r} requests or {tokens_per_minute!r} tokens a minute let nothing through; "
                "set more than 0, or `None` for no limit"
            )
        self._clock = clock
        self._requests = Budget(requests_per_minute, clock=clock)
        self._tokens = Budget(tokens_per_minute, clock=clock)
        self._wall_clock = wall_clock
        self._loop = LoopWatch()
        self._turns = anyio.Lock()
        self._counts_output = True
        self._share = 1.0
        self._waited_s = 0.0

    def __repr__(self) -> str:
        return f"<RateLimit {self._requests!r} requests, {self._tokens!r} tokens>"

    @property
    def requests_per_minute(self) -> float | None:
        """The limit that holds now; `None` while none is known."""
        return self._requests.per_minute

    @property
    def tokens_per_minute(self) -> float | None:
        """The limit that holds now; `None` while none is known."""
        return self._tokens.per_minute

    def statistics(self) -> RateStatistics:
        """Return the limits, how many requests wait for them, and what was waited so far."""
        turns = self._turns.statistics()
        queued = turns.tasks_waiting + turns.locked
        return RateStatistics(self.requests_per_minute, self.tokens_per_minute, queued, self._waited_s)

    async def admit(self, tokens: int) -> int:
        """Wait until a request that shows *tokens* (estimated, 0 or more) may go out, and return what it counts for.

        What a cache holds does not count, and how much that is shows only in the answer. So a request counts for the
        share of its tokens that those before it came to; without that, runs over one cached prefix would wait for
        each other's answers.
        """
        self._settle_in()
        charged = math.ceil(tokens * self._share)
        began = self._clock()
        try:
            # One at a time: a large request is not passed for ever by small ones that find room sooner.
            async with self._turns:
                while (wait_s := self._wait_s(charged)) > _MOMENT_S:  # noqa: ASYNC110 - it is time that has to pass
                    await anyio.sleep(wait_s)
                self._requests.spend(1)
                self._tokens.spend(charged)
        finally:
            self._waited_s += self._clock() - began
        return charged

    def _settle_in(self) -> None:
        """Forget what belongs to an event loop that is gone: who waited there, and until when by its clock."""
        if self._loop.moved():
            self._turns = anyio.Lock()
            self._requests.restart()
            self._tokens.restart()

    def _wait_s(self, tokens: int) -> float:
        return max(self._requests.wait_s(1), self._tokens.wait_s(tokens))

    def settle(self, charged: int, usage: Usage | None) -> None:
        """Correct what `admit` counted for a request, once it is known what came of it.

        Args:
            charged: What `admit` returned.
            usage: What the vendor counted; `None` where it gave no reply, which nobody counts.
        """
        self._settle_in()
        counted = 0
        if usage is not None:
            counted = usage.input - usage.cache_read
            self._share += _LEARNING * (max(counted / max(usage.input, 1), _LEAST_SHARE) - self._share)
            counted += usage.output if self._counts_output else 0
        self._tokens.spend(counted - charged)

    def hold(self, seconds: float) -> None:
        """Let nothing through for *seconds*, which the vendor asked for: a minute at most."""
        self._settle_in()
        self._requests.close_for(min(seconds, MINUTE_S))

    def observe(self, headers: Mapping[str, str]) -> None:
        """Take what an answer's *headers*, by lower-case name, say of limits."""
        self._settle_in()
        for budget, names in ((self._requests, ("requests",)), (self._tokens, ("input-tokens", "tokens"))):
            for name in names:
                limit, left, reset_s = self._said(headers, name)
                if limit is not None or left is not None:
                    budget.learn(limit, left, reset_s)
                    if name == "input-tokens":
                        self._counts_output = False
                    break

    def _said(self, headers: Mapping[str, str], name: str) -> tuple[float | None, float | None, float | None]:
        anthropic = f"anthropic-ratelimit-{name}"
        limit = _number(headers.get(f"{anthropic}-limit") or headers.get(f"x-ratelimit-limit-{name}"))
        left = _number(headers.get(f"{anthropic}-remaining") or headers.get(f"x-ratelimit-remaining-{name}"))
        date = headers.get(f"{anthropic}-reset")
        reset_s = self._until(date) if date else duration_s(headers.get(f"x-ratelimit-reset-{name}", ""))
        return limit, left, reset_s

    def _until(self, date: str) -> float | None:
        try:
            return max(datetime.fromisoformat(date).timestamp() - self._wall_clock(), 0.0)
        except ValueError:
            return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < _MOST else None
