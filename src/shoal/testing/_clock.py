"""One virtual clock for two event loops: an idle loop jumps to its next timer, so no test waits.

Worker threads are the exception that the clock has to know of: while one is at work the time stands still. Threads of
anyio's default limiter and of a swarm are seen by themselves; add a limiter of your own to `LIMITERS`, and a thread
without a limiter to `BUSY` as a function that is true from its hand-over until the loop has acknowledged it.

Sockets race the clock: a test that uses them needs the real one.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable

import anyio.to_thread
import trio
import trio.testing

from shoal.runtime import _threads

LIMITERS: list[anyio.CapacityLimiter] = []
BUSY: list[Callable[[], bool]] = []

_POLL_S = 0.005


def threads_busy() -> bool:
    """Say whether a worker thread is at work that the clock has to wait for."""
    default = anyio.to_thread.current_default_thread_limiter()
    if _threads.busy() or any(limiter.borrowed_tokens for limiter in (default, *LIMITERS)):
        return True
    return any(busy() for busy in BUSY)


class _Jump(selectors.DefaultSelector):
    """Select without waiting: an idle loop jumps to its next timer."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            return super().select(None)
        if threads_busy():
            return super().select(_POLL_S)
        self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock moves only when every task is waiting. `now` is its time in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Jump()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now


class HoldForThreads(trio.abc.Instrument):
    """Keeps trio's clock from jumping while a worker thread is busy.

    Args:
        clock: The clock to hold.
    """

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock

    # Not `before_io_wait`: trio reads the threshold before it calls that hook, which is one pass late.
    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Set the threshold anew after each step of a task."""
        self._clock.autojump_threshold = math.inf if threads_busy() else 0


def virtual_backend(name: str) -> tuple[str, dict[str, object]]:
    """Return what anyio's pytest plugin takes as `anyio_backend` for the loop *name* on virtual time."""
    if name == "asyncio":
        return "asyncio", {"loop_factory": VirtualLoop}
    clock = trio.testing.MockClock(autojump_threshold=0)
    return "trio", {"clock": clock, "instruments": [HoldForThreads(clock)]}
