"""Time and randomness, passed in: so that a simulated swarm repeats to the byte."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import anyio


@final
@dataclass(frozen=True, slots=True)
class Clock:
    """Where a swarm takes the time and its random numbers from.

    Args:
        unix: Returns the wall clock in unix seconds; stamps events.
        monotonic: Returns seconds that never go back; measures durations. The event loop's own clock unless given.
        random: Source of run ids and of jitter.
    """

    unix: Callable[[], float] = time.time
    monotonic: Callable[[], float] = anyio.current_time
    random: random.Random = field(default_factory=random.SystemRandom)

    def stamp(self) -> float:
        """Return the wall clock as events hold it, in unix seconds: as exact as a journal keeps it, and no more."""
        return round(self.unix() * 1e6) / 1e6

    def new_id(self) -> str:
        """Return a new run id: a UUIDv7, so that ids sort by the time of their making.

        Source: RFC 9562, section 5.7.
        """
        millis = int(self.unix() * 1000) & ((1 << 48) - 1)
        rand_a = self.random.getrandbits(12)
        rand_b = self.random.getrandbits(62)
        value = (millis << 80) | (7 << 76) | (rand_a << 64) | (2 << 62) | rand_b
        digits = f"{value:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def virtual(*, began_at: float = 1_767_225_600.0, seed: int = 0) -> Clock:
    """Return a clock whose wall follows the event loop's time, for tests on virtual time.

    Args:
        began_at: Unix seconds at which the loop's time 0 lies (start of 2026).
        seed: Seed of its random numbers.
    """
    return Clock(unix=lambda: began_at + anyio.current_time(), random=random.Random(seed))  # noqa: S311 - not secret
