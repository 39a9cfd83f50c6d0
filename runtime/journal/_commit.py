"""Group commit: what is appended in one pass of the event loop becomes durable together.

A batch has one event that all its waiters share. Observers and readers learn of a batch when it is durable.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Callable, Collection, Container, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

import anyio

from shoal.errors import JournalFailed
from shoal.runtime.events import Event
from shoal.runtime.journal._base import Observer

HEAVY_BYTES = 256 * 1024


class Batch:
    """Events that become durable together. `done` is made when somebody waits for it."""

    __slots__ = (
        "_done",
        "definitions",
        "error",
        "events",
        "marks",
        "parts",
        "payloads",
        "quiet",
        "settled",
        "written",
    )

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.payloads: list[bytes] = []
        """The payload of each event as the journal keeps it; empty where nothing is encoded."""
        self.quiet: set[int] = set()
        """Places in *events* of those that no observer is shown."""
        self.definitions: list[tuple[str, bytes]] = []
        self.parts: list[tuple[str, bytes]] = []
        """Bytes of stored parts, by digest."""
        self.marks: list[tuple[str, int]] = []
        """Commands that were seen to: why not (empty where it was obeyed), and its number."""
        self.written = False
        """Somebody has tried to write it; *error* says with what success."""
        self.settled = False
        self.error: JournalFailed | None = None
        self._done: anyio.Event | None = None

    def __repr__(self) -> str:
        return f"<Batch of {len(self.events)} events{', settled' if self.settled else ''}>"

    @property
    def empty(self) -> bool:
        """There is nothing in it."""
        return not (self.events or self.definitions or self.parts or self.marks)

    @property
    def heavy(self) -> bool:
        """It holds so many bytes of parts that writing them keeps others waiting."""
        return sum(len(data) for _, data in self.parts) > HEAVY_BYTES

    def add(self, event: Event, payload: bytes) -> None:
        """Put *event* behind those that are here; *payload* is its payload as the journal keeps it."""
        self.events.append(event)
        self.payloads.append(payload)

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

    def __repr__(self) -> str:
        return f"<Tails of {len({*self._waiting, *self._listeners})} runs>"

    def notify(self, events: Iterable[Event]) -> None:
        """Wake everybody who waits for one of the runs of *events*."""
        if self._waiting or self._listeners:
            self._wake({event.run_id for event in events})

    def look(self, besides: Container[str]) -> None:
        """Wake everybody who waits for a run that is not in *besides*: there may be something that nobody told of."""
        self._wake([run_id for run_id in {*self._waiting, *self._listeners} if run_id not in besides])

    def _wake(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
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
                del self._listeners[run_id]

    async def follow(
        self, run_id: str, after: int, read: Callable[[str, int], Iterator[Event]]
    ) -> AsyncGenerator[Event]:
        """Yield what *read* gives behind *after*, again and again as new events become durable."""
        while True:
            seen = after
            for event in read(run_id, after):
                after = event.seq
                yield event
            # Nothing can become known between a reading that gave nothing and the wait: there is no await between.
            if after == seen:
                await self._next(run_id)

    async def _next(self, run_id: str) -> None:
        waiting = self._waiting.setdefault(run_id, anyio.Event())
        try:
            await waiting.wait()
        finally:
            if not waiting.is_set() and not waiting.statistics().tasks_waiting:
                del self._waiting[run_id]  # the last reader left


def besides(events: Sequence[Event], places: Collection[int]) -> Sequence[Event]:
    """Return *events* without those at *places*."""
    return [event for place, event in enumerate(events) if place not in places] if places else events


def tell(observers: Iterable[Observer], events: Iterable[Event]) -> None:
    """Show each event to each observer, in order; one that raises hurts neither the journal nor the others."""
    watching = tuple(observers)
    if not watching:
        return
    for event in events:
        for observer in watching:
            try:
                observer(event)
            except Exception as exc:  # noqa: BLE001 - whoever watches must not take down what is watched
                said = f"the observer {observer!r} raised {type(exc).__name__}: {exc}; it misses an event"
                warnings.warn(said, RuntimeWarning, stacklevel=2)
