"""Time, passed in: so that deadlines, delays and restarts can be tested without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, final

import anyio
from anyio.lowlevel import current_token


class Clock(Protocol):
    """Where a tree takes its time from; seconds from any start that never go back."""

    def now(self) -> float:
        """Return the time in seconds."""
        ...

    async def sleep(self, delay_s: float, /) -> None:
        """Return *delay_s* seconds later, or as soon as the caller is cancelled."""
        ...


@final
class LoopClock:
    """The clock of the event loop that runs when it is made. Its way to the time is looked up once, not per call."""

    def __init__(self) -> None:
        token = current_token()
        # asyncio's token is its loop; trio's has no `time`.
        now: Callable[[], float] | None = getattr(token.native_token, "time", None)
        self.now: Callable[[], float] = now or token.backend_class.current_time

    async def sleep(self, delay_s: float, /) -> None:
        """Return *delay_s* seconds later, or as soon as the caller is cancelled."""
        await anyio.sleep(delay_s)
