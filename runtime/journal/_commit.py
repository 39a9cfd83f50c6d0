"""Group commit: what is appended in one pass of the event loop becomes durable together.

A batch has one event that all its waiters share. Observers and readers learn of a batch when it is durable.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager

import anyio

from shoal.errors import JournalFailed
from shoal.runtime.events import Event
from shoal.runtime.journal._base import Observer


class Batch:
    """Events that become durable together. `done` is made when somebody waits for it."""

    __slots__ = ("_done", "definitions", "error", "events", "settled")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.definitions: list[tuple[str, bytes]] = []
        self.settled = False
        self.error: JournalFailed | None = None
        self._done: anyio.Event | None = None

    def settle(self, error: JournalFailed | None = None) -> None:
        """Tell whoever waits that the batch is durable, or why it is not."""
        self.settled, self.error = True, error
        if self._done is not None:
            self._done.set()

    async def wait(self) -> None:
        """Return once the batch is durable; raise what kept it from being."""
        if not self.settled:
            if self._done is None:
                self._done = anyio.Event()
            await self._done.wait()
        if self.error is not None:
            raise JournalFailed(str(self.error)) from self.error


class Tails:
    """Who waits for new events of which run."""

    __slots__ = ("_listeners", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, anyio.Event] = {}
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    def notify(self, events: Iterable[Event]) -> None:
        """Wake everybody who waits for one of the runs of *events*."""
        if not self._waiting and not self._listeners:
            return
        for run_id in {event.run_id for event in events}:
            for listener in tuple(self._listeners.get(run_id, ())):
                listener()
            waiting = self._waiting.pop(run_id, None)
            if waiting is not None:
                waiting.set()

    @contextmanager
    def listening(self, run_id: str, wake: Callable[[], None]) -> Generator[None]:
        """Call *wake* whenever events of *run_id* became durable, while the block runs."""
        listeners = self._listeners.setdefault(run_id, [])
        listeners.append(wake)
        try:
            yield
        finally:
            listeners.remove(wake)
            if not listeners:
                self._listeners.pop(run_id, None)

    async def follow(
        self, run_id: str, after: int, read: Callable[[str, int], Iterator[Event]]
    ) -> AsyncGenerator[Event]:
        """Yield what *read* gives behind *after*, again and again as new events become durable."""
        while True:
            # Taken before reading: an event that lands between the two is not missed.
            waiting = self._waiting.setdefault(run_id, anyio.Event())
            seen = after
            for event in read(run_id, after):
                after = event.seq
                yield event
            if after == seen:
                await waiting.wait()


def tell(observers: Iterable[Observer], events: Iterable[Event]) -> None:
    """Show each event to each observer, in order."""
    watching = tuple(observers)
    if watching:
        for event in events:
            for observer in watching:
                observer(event)
