"""Waiting for a cache that another request is about to write.

A vendor's cache is readable from the first byte of the answer to the request that writes it. Thirty requests with one
prefix that go out together would all miss, and all pay for writing it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import final

import anyio

from shoal.providers._loops import LoopWatch

WAIT_S = 5.0
LIFETIME_S = 300.0
MAX_PREFIXES = 4096


@final
class PrefixLeaders:
    """Lets the first request with a prefix go ahead, and others with it once its answer has begun.

    Args:
        wait_s: The most seconds that a request waits, all its prefixes together, 0 or more.
        lifetime_s: Seconds that a written prefix is taken to be readable, from its last use.
        max_prefixes: The most written prefixes that are remembered; the least recently used go.
    """

    def __init__(
        self, *, wait_s: float = WAIT_S, lifetime_s: float = LIFETIME_S, max_prefixes: int = MAX_PREFIXES
    ) -> None:
        self._wait_s = wait_s
        self._lifetime_s = lifetime_s
        self._max_prefixes = max_prefixes
        self._written: OrderedDict[bytes, float] = OrderedDict()
        self._writing: dict[bytes, anyio.Event] = {}
        self._loop = LoopWatch()

    def __repr__(self) -> str:
        return f"<PrefixLeaders, {len(self._written)} prefixes written, {len(self._writing)} being written>"

    @asynccontextmanager
    async def turn(self, prefixes: Sequence[bytes]) -> AsyncGenerator[Callable[[], None]]:
        """Wait while another request writes the longest of *prefixes* that is not written yet; then let this one go.

        Args:
            prefixes: What stands for each marked prefix, shortest first.

        Yields:
            What is to be called when the answer begins; calling it again does nothing.
        """
        if self._loop.moved():  # times are those of a loop's clock, and who waited in another is gone
            self._written.clear()
            self._writing = {}
        gives_up_at = anyio.current_time() + self._wait_s
        unknown, other = self._look(prefixes)
        while other is not None and anyio.current_time() < gives_up_at:
            with anyio.move_on_at(gives_up_at):
                await other.wait()
            unknown, other = self._look(prefixes)
        led = {key: anyio.Event() for key in unknown if key not in self._writing}
        self._writing.update(led)

        def written() -> None:
            ends_at = anyio.current_time() + self._lifetime_s
            for key in prefixes:
                self._written[key] = ends_at
                self._written.move_to_end(key)
            while len(self._written) > self._max_prefixes:
                self._written.popitem(last=False)
            self._let_go(led)

        try:
            yield written
        finally:
            self._let_go(led)

    def _look(self, prefixes: Sequence[bytes]) -> tuple[list[bytes], anyio.Event | None]:
        """Return those of *prefixes* that nobody writes or has written, and the event of the one to wait for."""
        unknown: list[bytes] = []
        now = anyio.current_time()
        for key in reversed(prefixes):
            if self._written.get(key, 0.0) > now:
                break
            if key in self._writing:
                return unknown, self._writing[key]
            unknown.append(key)
        return unknown, None

    def _let_go(self, led: dict[bytes, anyio.Event]) -> None:
        for key, event in led.items():
            if self._writing.get(key) is event:
                del self._writing[key]
            event.set()
