"""What a journal is: the one place where a run's events are kept, in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias, final

import msgspec

from shoal.runtime.events import Event, Payload

Observer: TypeAlias = Callable[[Event], None]
"""Gets each event once it is durable; it must not block and must not raise."""

RunStatus: TypeAlias = Literal["running", "paused", "complete", "complete_interactive", "error", "cancelled"]


@final
class RunRow(msgspec.Struct, frozen=True, gc=False):
    """One run as the journal's register knows it.

    Args:
        run_id: The run.
        name: Name of its blueprint.
        status: Where it stands by its newest event.
        parent: The run that spawned it; `None` for a root.
        root: The root of its tree.
        title: Its title; `None` while it has none.
        spawned_at: Unix seconds.
        ended_at: Unix seconds; `None` while it has not ended.
        stage: The stage it is in; `None` before the first.
        events: How many events it has.
        host: The process that hosts it; `None` where none does.
        key: Idempotency key of its spawn; `None` for none.
        detached: It outlives its parent.
        questions: How many questions it asks that nobody has answered.
    """

    run_id: str
    name: str
    status: RunStatus
    parent: str | None
    root: str
    title: str | None
    spawned_at: float
    ended_at: float | None
    stage: str | None
    events: int
    host: str | None
    key: str | None = None
    detached: bool = False
    questions: int = 0

    @property
    def ended(self) -> bool:
        """The run is over."""
        return self.status not in ("running", "paused")


class Reader(Protocol):
    """Reads a journal; needs no running event loop."""

    def read(self, run_id: str, *, after: int = 0) -> Iterator[Event]:
        """Yield the events of *run_id* behind seq *after*, oldest first; kinds of a later version are left out.

        Raises:
            JournalDamaged: A row is torn or corrupted; every event before it was yielded.
        """
        ...

    def newest(self, run_id: str, kind: type[Payload]) -> Event | None:
        """Return the newest event of *run_id* that is of *kind*; `None` where it has none.

        Raises:
            JournalDamaged: It is torn or corrupted.
        """
        ...

    def runs(self, *, root: str | None = None) -> Sequence[RunRow]:
        """Return all runs, or those of one tree, in the order in which they were spawned."""
        ...

    def find(self, run_id: str) -> RunRow:
        """Return the run whose id is, or begins with, *run_id*.

        Raises:
            RunNotFound: There is none, or more than one.
        """
        ...

    def with_key(self, key: str) -> RunRow | None:
        """Return the run that was spawned under *key*; `None` for none."""
        ...

    def keyed(self, prefix: str) -> Sequence[RunRow]:
        """Return the runs whose key begins with *prefix* (not empty), the greatest key first."""
        ...

    def definition(self, digest: str) -> bytes:
        """Return the bytes that *digest* stands for.

        Raises:
            DefinitionMissing: The journal does not hold them.
        """
        ...

    def part(self, digest: str) -> bytes:
        """Return the bytes of the stored part *digest* (SHA-256, hex). Safe to call in any thread.

        Raises:
            PartMissing: The journal does not hold them.
        """
        ...


class Shared(Protocol):
    """How processes share a journal: each hosts runs of its own, and asks the others for what concerns theirs.

    Times are unix seconds. Each call may raise `JournalFailed`.
    """

    def others(self, *, now: float | None = None) -> frozenset[str]:
        """Return the names of the other processes that live, as `RunRow.host` names them."""
        ...

    def claim(self, run_ids: Iterable[str], *, now: float | None = None) -> None:
        """Make this process the host of those runs, all or none.

        Raises:
            RunOwned: A process that lives hosts one of them.
        """
        ...

    def reserve(self, key: str, run_id: str, *, now: float | None = None) -> str | None:
        """Keep *key* for the run that this process is about to spawn under it.

        Returns:
            The run's id: *run_id*, or the one under which an earlier process reserved the key and died. `None` where
            another process that lives is spawning it, or the run is there.
        """
        ...

    def give_back(self, key: str) -> None:
        """Give up a *key* that was reserved, where no run came of it."""
        ...

    def release(self, run_ids: Iterable[str]) -> None:
        """Give up those runs where this process hosts them."""
        ...

    def post(self, run_id: str, command: bytes, now: float) -> int:
        """Leave *command* for the host of *run_id*, and return its number."""
        ...

    def answer(self, number: int) -> str | None:
        """Return what became of command *number*: empty where it was obeyed, else why not; `None` while neither is."""
        ...

    def withdraw(self, number: int) -> bool:
        """Take command *number* back; false where its host was faster."""
        ...

    def waiting(self) -> Sequence[tuple[int, str, bytes]]:
        """Return the commands that wait for this process: number, run and command, oldest first."""
        ...

    def obeyed(self, number: int, why_not: str) -> None:
        """Say what became of command *number*; it is durable together with the events appended around it."""
        ...

    def look(self, besides: Container[str]) -> None:
        """Have whoever waits for events of a run outside *besides* look whether another process wrote any."""
        ...


class Journal(Reader, Protocol):
    """Keeps events. Appends are ordered at once and awaited at barriers only."""

    observers: list[Observer]
    """Each gets every event once it is durable."""

    def append(self, event: Event) -> None:
        """Put *event* behind everything appended so far; it is durable after the next `barrier`.

        Raises:
            JournalFailed: The journal cannot write; nothing was kept.
        """
        ...

    def graft(self, event: Event) -> None:
        """Append *event*, which is a copy of what happened to another run: observers are not shown it.

        Raises:
            JournalFailed: The journal cannot write; nothing was kept.
        """
        ...

    async def barrier(self) -> None:
        """Return once everything appended so far is durable.

        Raises:
            JournalFailed: It could not be written.
        """
        ...

    def define(self, digest: str, data: bytes) -> None:
        """Keep *data* under *digest*; it is durable no later than the events appended behind it."""
        ...

    def store(self, digest: str, data: bytes) -> None:
        """Keep the bytes of a part under their *digest*, once; durable no later than the events appended behind it."""
        ...

    def set_aside(self, run_id: str, seq: int) -> None:
        """Take the events of *run_id* from *seq* (2 or more) on out of its history, so that it goes on before them.

        Nothing of the run may be on its way to the journal.

        Raises:
            JournalFailed: It could not be written.
        """
        ...

    def tail(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """Yield the events of *run_id* behind *after*, and go on with new ones as they become durable; never ends."""
        ...

    def listening(self, run_id: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call *wake* whenever events of *run_id* became durable, while the block runs."""
        ...

    async def serve(self) -> None:
        """Commit what is appended, until cancelled."""
        ...

    def close(self) -> None:
        """Commit what is left and close. Closing twice is fine."""
        ...

    @property
    def shared(self) -> Shared | None:
        """How it is shared with other processes; `None` where it is not."""
        ...

    @property
    def healthy(self) -> bool:
        """It can write."""
        ...
