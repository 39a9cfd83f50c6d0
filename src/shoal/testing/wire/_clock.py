"""Time as the server sees it: what its caches, limits and dates go by."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TypeAlias, final

Clock: TypeAlias = Callable[[], float]
"""Returns seconds since some moment of its own; it never goes back."""

EPOCH_S = int(dt.datetime(2026, 11, 30, tzinfo=dt.UTC).timestamp())
"""The date at which every clock stands at 0, in seconds since 1970: replies carry dates, and tests want them fixed."""


@final
class ManualClock:
    """A clock that a test moves by hand, so that five minutes of a cache take no time.

    Args:
        now_s: Where it starts, in seconds.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __repr__(self) -> str:
        return f"ManualClock({self.now_s})"

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Move it on by *seconds*, 0 or more."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back by {-seconds!r} s; pass 0 or more")
        self.now_s += seconds


def epoch_s(now_s: float) -> int:
    """Return *now_s* of a clock as whole seconds since 1970."""
    return EPOCH_S + int(now_s)


def rfc3339(now_s: float) -> str:
    """Return *now_s* of a clock as a date and time in UTC."""
    return dt.datetime.fromtimestamp(EPOCH_S + int(now_s), tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
