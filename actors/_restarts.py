"""How often and how soon a child is started again: pure arithmetic on times that are passed in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from shoal.errors import ChildSpecInvalid


@final
@dataclass(frozen=True, slots=True)
class Backoff:
    """A growing delay between the restarts of one child, so that a crash loop costs no CPU.

    The n-th restart in a row waits `initial * factor ** (n - 1)` seconds, at most `cap`; it is then shortened by a
    random part of itself, up to `jitter`. A child that stayed up for `cap` seconds begins at `initial` again.

    Args:
        initial: The first delay in seconds, above 0.
        factor: What each delay is multiplied with for the next, 1 or more.
        cap: The longest delay in seconds, `initial` or more.
        jitter: The part of a delay that chance may take off, 0 to 1.

    Raises:
        ChildSpecInvalid: A number is out of its range.
    """

    initial: float = 0.1
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not (0 < self.initial <= self.cap < math.inf and 1 <= self.factor < math.inf and 0 <= self.jitter <= 1):
            raise ChildSpecInvalid(
                f"{self!r} has a number out of range; keep `initial` above 0, `cap` finite and not below `initial`, "
                "`factor` at 1 or more and `jitter` between 0 and 1"
            )

    def delay_s(self, attempt: int, draw: Callable[[], float]) -> float:
        """Return the seconds to wait before restart *attempt* (1 or more) in a row.

        Args:
            attempt: Which restart this is since the child was last up for long.
            draw: Returns a random number from 0 up to 1.
        """
        try:
            delay = min(self.cap, self.initial * self.factor ** (attempt - 1))
        except OverflowError:
            delay = self.cap
        return delay * (1 - self.jitter * draw())


@final
class RestartWindow:
    """A sliding window of restarts.

    Args:
        max_restarts: How many the window may hold, 0 or more; `None` for any number.
        within_s: Its length in seconds.

    Source: OTP's `supervisor`, intensity and period; float seconds instead of whole ones.
    """

    __slots__ = ("_times", "max_restarts", "within_s")

    def __init__(self, max_restarts: int | None, within_s: float) -> None:
        self.max_restarts = max_restarts
        self.within_s = within_s
        self._times: deque[float] = deque()

    def __repr__(self) -> str:
        return f"<RestartWindow {len(self._times)} of {self.max_restarts} in {self.within_s:g} s>"

    def admit(self, now: float) -> bool:
        """Count a restart at *now*, and say whether the window still holds no more than it may."""
        if self.max_restarts is None:
            return True
        # An entry exactly `within_s` old still counts.
        while self._times and self._times[0] < now - self.within_s:
            self._times.popleft()
        self._times.append(now)
        return len(self._times) <= self.max_restarts
