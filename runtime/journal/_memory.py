"""A journal that lives as long as its process: the default of `Swarm()`, and what most tests use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import final

import anyio
import msgspec

from shoal.errors import DefinitionMissing, PartMissing
from shoal.runtime.events import Event, Payload
from shoal.runtime.journal._base import Observer, RunRow, Shared
from shoal.runtime.journal._commit import Tails, besides, tell
from shoal.runtime.journal._register import Register, pick


@final
class MemoryJournal:
    """Keeps events in memory.

    Args:
        observers: Each gets every event once it is kept.
    """

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self.observers = list(observers)
        self._events: dict[str, list[Event]] = {}
        self._definitions: dict[str, bytes] = {}
        self._parts: dict[str, bytes] = {}
        self._register = Register()
        self._tails = Tails()
        self._pending: list[Event] = []
        self._quiet: set[int] = set()
        """Places in it of events that no observer is shown."""
        self._wake: anyio.Event | None = None

    def __repr__(self) -> str:
        return f"<MemoryJournal {len(self._events)} runs>"

    @property
    def shared(self) -> Shared | None:
        """No other process can reach it."""
        return None

    @property
    def healthy(self) -> bool:
        """It can always write."""
        return True

    def append(self, event: Event) -> None:
        """Put *event* behind everything appended so far."""
        self._pending.append(event)
        if self._wake is not None:
            self._wake.set()

    def graft(self, event: Event) -> None:
        """Append *event*, a copy of what happened to another run, and show it to no observer."""
        self._quiet.add(len(self._pending))
        self.append(event)

    def define(self, digest: str, data: bytes) -> None:
        """Keep *data* under *digest*."""
        self._definitions[digest] = data

    def store(self, digest: str, data: bytes) -> None:
        """Keep the bytes of a part under *digest*."""
        self._parts.setdefault(digest, data)

    def set_aside(self, run_id: str, seq: int) -> None:
        """Forget the events of *run_id* from *seq* on."""
        del self._events[run_id][seq - 1 :]
        for event in self._events[run_id]:
            self._register.note(event)

    async def barrier(self) -> None:
        """Keep everything appended so far, and show it to the observers."""
        self._settle()

    async def serve(self) -> None:
        """Keep what is appended, until cancelled."""
        while True:
            self._wake = anyio.Event()
            self._settle()
            await self._wake.wait()

    def close(self) -> None:
        """Keep what is left."""
        self._settle()

    def _settle(self) -> None:
        events, self._pending, quiet, self._quiet = self._pending, [], self._quiet, set()
        for event in events:
            self._events.setdefault(event.run_id, []).append(event)
            self._register.note(event)
        self._tails.notify(events)
        tell(self.observers, besides(events, quiet))

    # --- reading

    def read(self, run_id: str, *, after: int = 0) -> Iterator[Event]:
        """Yield the events of *run_id* behind *after*."""
        # Seqs count up from 1 without a gap, so the place of an event in its list is known.
        yield from self._events.get(run_id, [])[after:]

    def newest(self, run_id: str, kind: type[Payload]) -> Event | None:
        """Return the newest event of *run_id* that is of *kind*; `None` where it has none."""
        return next(
            (event for event in reversed(self._events.get(run_id, ())) if isinstance(event.payload, kind)), None
        )

    def tail(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """Yield the events of *run_id* behind *after*, and then new ones; never ends."""
        return self._tails.follow(run_id, after, lambda run, seen: self.read(run, after=seen))

    def listening(self, run_id: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call *wake* whenever events of *run_id* became durable, while the block runs."""
        return self._tails.listening(run_id, wake)

    def runs(self, *, root: str | None = None) -> Sequence[RunRow]:
        """Return all runs, or those of one tree."""
        return [self._counted(row) for row in self._register.rows(root)]

    def find(self, run_id: str) -> RunRow:
        """Return the run whose id is, or begins with, *run_id*."""
        row = self._register.row(run_id)
        if row is not None:
            return self._counted(row)
        return pick(run_id, [self._counted(row) for row in self._register.rows() if row.run_id.startswith(run_id)])

    def with_key(self, key: str) -> RunRow | None:
        """Return the run that was spawned under *key*; `None` for none."""
        return next((self._counted(row) for row in self._register.rows() if row.key == key), None)

    def keyed(self, prefix: str) -> Sequence[RunRow]:
        """Return the runs whose key begins with *prefix* (not empty), the greatest key first."""
        found = [row for row in self._register.rows() if row.key is not None and row.key.startswith(prefix)]
        return [self._counted(row) for row in sorted(found, key=lambda row: str(row.key), reverse=True)]

    def _counted(self, row: RunRow) -> RunRow:
        return msgspec.structs.replace(row, events=len(self._events[row.run_id]))

    def definition(self, digest: str) -> bytes:
        """Return the bytes that *digest* stands for."""
        try:
            return self._definitions[digest]
        except KeyError:
            raise DefinitionMissing(f"this journal holds no definition {digest!r}") from None

    def part(self, digest: str) -> bytes:
        """Return the bytes of the stored part *digest*."""
        try:
            return self._parts[digest]
        except KeyError:
            raise PartMissing(f"this journal holds no part {digest!r}") from None
