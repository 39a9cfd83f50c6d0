"""The journal on disk: one SQLite file in WAL mode, no server.

A group is committed on the event loop's thread where a commit takes less than a few milliseconds, since a thread behind
a busy loop waits longer for the interpreter than the commit takes. It moves to a worker thread for good at durability
`full`, and once commits were seen to be slow.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import takewhile
from pathlib import Path
from typing import final

import anyio
import anyio.to_thread
import msgspec

from shoal.errors import JournalDamaged, JournalFailed
from shoal.runtime import _threads
from shoal.runtime.context import PartStored
from shoal.runtime.events import NUMBERS, Event, RunEnded, RunSpawned, encode
from shoal.runtime.journal._base import Observer, Shared
from shoal.runtime.journal._commit import Batch, Tails, besides, tell
from shoal.runtime.journal._file import PAGE_BYTES, Durability, checkpoint, open_for_writing
from shoal.runtime.journal._leases import Leases
from shoal.runtime.journal._reader import COLUMNS, SqliteReader
from shoal.runtime.journal._register import NOTED, asked_by, change_of, register_of, row_of

_SLOW_COMMIT_S = 0.005
_SLOW_COMMITS = 3
"""So many slow ones in a row mean a slow disk; a single one may be a process that had to wait for the processor."""
_CHECKPOINT_PAGES = 2_000
_PAGES_A_COMMIT = 2
"""Pages that every commit writes, however small: one of the table, one of its index."""

_WAITING = (
    "SELECT command, commands.run_id, data FROM commands JOIN runs USING (run_id) "
    "WHERE why_not IS NULL AND host = ? ORDER BY command"
)
_INSERT_EVENT = "INSERT INTO events (run, seq, kind, at, payload) VALUES (?, ?, ?, ?, ?)"
_INSERT_REF = "INSERT OR IGNORE INTO part_refs (run, digest) VALUES (?, ?)"
_INSERT_RUN = f"INSERT INTO runs ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own columns


@final
class SqliteJournal(SqliteReader):
    """Keeps events in one SQLite file.

    Args:
        path: The file; it and its folder are made, for the user alone.
        durability: `normal` survives the death of the process (a power cut may take the newest commits, never their
            order), `full` syncs every commit, `off` is for tests.
        observers: Each gets every event once it is durable.
        host: Name of this process, under which it hosts runs, such as `host_name()` gives; `None` hosts nothing.

    Raises:
        JournalFailed: The file cannot be made or opened, or is something else.
        JournalNewer: It was written by a newer version.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "normal",
        observers: Sequence[Observer] = (),
        host: str | None = None,
    ) -> None:
        target = Path(path).absolute()
        self.durability: Durability = durability
        self.observers = list(observers)
        self.on_commit: Callable[[float, int], None] | None = None
        """Told of each commit: its seconds and its events, maybe in another thread; it must not raise."""
        self.host = host
        self._writing = open_for_writing(target, durability)
        super().__init__(target)
        self._leases = Leases(target, host)
        self._numbers: dict[str, int] = {}
        """The row in `runs` of each run that was written to and is not over."""
        self._defined: set[str] = set()
        self._unsaved: dict[str, bytes] = {}
        """Bytes of parts that are on their way into the file, by digest."""
        self._tails = Tails()
        self._batch = Batch()
        self._flying: Batch | None = None
        self._wake: anyio.Event | None = None
        """Tells `serve` that there is something to commit; `None` while nobody serves."""
        self._lock = threading.Lock()
        self._broken: JournalFailed | None = None
        self._in_thread = durability == "full"
        self._slow_commits = 0
        self._since_checkpoint = 0

    @property
    def healthy(self) -> bool:
        """It can write."""
        return self._broken is None

    # --- writing

    def append(self, event: Event) -> None:
        """Put *event* behind everything appended so far.

        Raises:
            JournalFailed: An earlier commit failed, or the journal is closed.
        """
        self._check()
        # Encoded here: what cannot be written fails where it was made, and takes nothing else along.
        self._batch.add(event, encode(event.payload))
        if self._wake is not None:
            self._wake.set()

    def graft(self, event: Event) -> None:
        """Append *event*, a copy of what happened to another run, and show it to no observer.

        Raises:
            JournalFailed: An earlier commit failed, or the journal is closed.
        """
        self._batch.quiet.add(len(self._batch.events))
        self.append(event)

    def define(self, digest: str, data: bytes) -> None:
        """Keep *data* under *digest*."""
        if digest not in self._defined:
            self._defined.add(digest)
            self._batch.definitions.append((digest, data))
            if self._wake is not None:
                self._wake.set()

    def store(self, digest: str, data: bytes) -> None:
        """Keep the bytes of a part under *digest*, once, whoever brings them."""
        if digest not in self._unsaved:
            self._unsaved[digest] = data
            self._batch.parts.append((digest, data))
            if self._wake is not None:
                self._wake.set()

    def part(self, digest: str) -> bytes:
        """Return the bytes of the stored part *digest*.

        Raises:
            PartMissing: The journal does not hold them.
        """
        data = self._unsaved.get(digest)
        return super().part(digest) if data is None else data

    def set_aside(self, run_id: str, seq: int) -> None:
        """Take the events of *run_id* from *seq* on out of its history; they stay in the file, under a number below 0.

        Raises:
            JournalFailed: It could not be written.
        """
        self._check()
        good = list(takewhile(lambda event: event.seq < seq, self._good(run_id)))
        with self._lock:
            number = self._numbers.pop(run_id, None) or self._known(run_id)
            db = self._writing
            try:
                db.execute("BEGIN IMMEDIATE")
                db.execute("DELETE FROM events WHERE run = -?", (number,))
                db.execute("UPDATE events SET run = -run WHERE run = ? AND seq >= ?", (number, seq))
                row = register_of(good)
                values = (row.title, row.status, row.ended_at, row.stage, row.questions, number)
                db.execute(
                    "UPDATE runs SET title = ?, status = ?, ended_at = ?, stage = ?, questions = ? WHERE run = ?",
                    values,
                )
                db.execute("COMMIT")
            except sqlite3.Error as exc:
                raise JournalFailed(f"{str(self.path)!r} cannot be mended: {exc}; copy it, and mend the copy") from exc
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _good(self, run_id: str) -> Iterator[Event]:
        """Yield the events of *run_id* up to the first that cannot be read."""
        with suppress(JournalDamaged):
            yield from self.read(run_id)

    async def barrier(self) -> None:
        """Return once everything appended so far is durable.

        Raises:
            JournalFailed: It could not be written.
        """
        self._check()
        batch = self._flying if self._batch.empty else self._batch
        if batch is None:
            return
        if self._wake is None:
            self._commit_here()
        await batch.wait()

    def _check(self) -> None:
        if self._broken is not None:
            raise JournalFailed(str(self._broken)) from self._broken

    async def serve(self) -> None:
        """Commit what is appended, until cancelled; what is then left is committed too."""
        commits, checkpoints = _threads.limiter(1), _threads.limiter(1)
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    self._wake = anyio.Event()
                    if self._batch.empty:
                        await self._wake.wait()
                    if self._in_thread or self._batch.heavy:
                        # Shielded: a commit that was begun is finished, so that no waiter is left without an answer.
                        with anyio.CancelScope(shield=True):
                            await self._commit_in_thread(commits)
                    else:
                        self._commit_here()
                    if self._since_checkpoint >= _CHECKPOINT_PAGES:
                        self._since_checkpoint = 0
                        tasks.start_soon(_checkpoint, self.path, checkpoints)
        finally:
            self._wake = None
            self._commit_here()

    @property
    def shared(self) -> Shared | None:
        """How it is shared with other processes; `None` for a process that hosts nothing."""
        return None if self.host is None else self

    def close(self) -> None:
        """Commit what is left and close. Closing twice is fine.

        Raises:
            JournalFailed: What was left could not be written.
        """
        before = self._broken
        if self._flying is not None:
            self._write(self._flying)
        self._commit_here()
        failed = self._broken
        self._broken = JournalFailed(f"{str(self.path)!r} is closed; open it again to write to it")
        with self._lock:
            super().close()
            self._writing.close()  # the last one: it brings the log into the file
        if failed is not None and failed is not before:
            raise failed

    def _commit_here(self) -> None:
        if self._batch.empty or self._broken is not None:
            return
        batch, self._batch = self._batch, Batch()
        began = time.perf_counter()
        error: JournalFailed | None = _interrupted(self.path)
        try:
            error = self._write(batch)
        finally:
            self._finish(batch, error)
        self._slow_commits = self._slow_commits + 1 if time.perf_counter() - began > _SLOW_COMMIT_S else 0
        self._in_thread = self._in_thread or self._slow_commits >= _SLOW_COMMITS

    async def _commit_in_thread(self, threads: anyio.CapacityLimiter) -> None:
        batch, self._batch = self._batch, Batch()
        self._flying = batch
        error: JournalFailed | None = _interrupted(self.path)
        try:
            error = await anyio.to_thread.run_sync(self._write, batch, limiter=threads)
        finally:
            self._flying = None
            self._finish(batch, error)

    def _write(self, batch: Batch) -> JournalFailed | None:
        """Write *batch*, unless that was done; return what went wrong, and then nothing of it is kept."""
        with self._lock:
            if not batch.written:
                batch.written = True
                batch.error = self._transaction(batch)
            return batch.error

    def _transaction(self, batch: Batch) -> JournalFailed | None:
        db = self._writing
        began = time.perf_counter()
        try:
            db.execute("BEGIN IMMEDIATE")
            if batch.definitions:
                db.executemany("INSERT OR IGNORE INTO definitions (digest, data) VALUES (?, ?)", batch.definitions)
            if batch.parts:
                db.executemany("INSERT OR IGNORE INTO parts (digest, data) VALUES (?, ?)", batch.parts)
            rows = list(map(self._event_row, batch.events, batch.payloads))
            db.executemany(_INSERT_EVENT, rows)
            if batch.marks:
                db.executemany("UPDATE commands SET why_not = ? WHERE command = ?", batch.marks)
            db.execute("COMMIT")
        except Exception as exc:  # noqa: BLE001 - whatever it was, all who wait are told
            return JournalFailed(f"{str(self.path)!r} cannot be written: {_why(exc)}, then resume the runs")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
        written = sum(map(len, batch.payloads)) + sum(len(data) for _, data in batch.parts)
        self._since_checkpoint += written // PAGE_BYTES + _PAGES_A_COMMIT
        if self.on_commit is not None:
            self.on_commit(time.perf_counter() - began, len(batch.events))
        return None

    def _event_row(self, event: Event, payload: bytes) -> tuple[int, int, int, int, bytes]:
        kind = type(event.payload)
        number = self._numbers.get(event.run_id)
        if number is None or kind in NOTED:
            number = self._note(event)
        if isinstance(event.payload, PartStored):
            self._writing.execute(_INSERT_REF, (number, event.payload.digest))
        return number, event.seq, NUMBERS[kind], round(event.at * 1e6), payload

    def _note(self, event: Event) -> int:
        """Bring the run's row up to date and return its number."""
        db, run_id = self._writing, event.run_id
        if isinstance(event.payload, RunSpawned):
            row = row_of(event, event.payload)
            values = (*msgspec.structs.astuple(row)[:9], self.host, row.key, row.detached, 0)
            number = db.execute(_INSERT_RUN, values).lastrowid
        else:
            number = self._numbers.get(run_id) or self._known(run_id)
        if number is None:
            raise LookupError(f"event {event.seq} of run {run_id} comes before its first")
        for column, value in change_of(event).items():
            db.execute(f"UPDATE runs SET {column} = ? WHERE run = ?", (value, number))  # noqa: S608 - our own columns
        asked = asked_by(event)
        if asked:
            db.execute("UPDATE runs SET questions = questions + ? WHERE run = ?", (asked, number))
        if isinstance(event.payload, RunEnded):
            self._numbers.pop(run_id, None)
        else:
            self._numbers[run_id] = number
        return number

    def _known(self, run_id: str) -> int | None:
        # On the writing connection: the run may have begun, and ended, in this very transaction.
        row = self._writing.execute("SELECT run FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return None if row is None else int(row[0])

    def _finish(self, batch: Batch, error: JournalFailed | None) -> None:
        if error is None:
            for digest, _ in batch.parts:
                self._unsaved.pop(digest, None)
            batch.settle()
            self._tails.notify(batch.events)
            tell(self.observers, besides(batch.events, batch.quiet))
            return
        self._broken = error
        batch.settle(error)
        # What was appended while the commit ran stands behind a gap: it cannot be kept either.
        later, self._batch = self._batch, Batch()
        later.settle(error)

    # --- reading

    def tail(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """Yield the events of *run_id* behind *after*, and then new ones; never ends."""
        return self._tails.follow(run_id, after, lambda run, seen: self.read(run, after=seen))

    def listening(self, run_id: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call *wake* whenever events of *run_id* became durable, while the block runs."""
        return self._tails.listening(run_id, wake)

    # --- hosting

    def beat(self, now: float, said: bytes = b"") -> None:
        """Show other processes that this one lives. Safe to call in a thread.

        Args:
            now: Unix seconds.
            said: What it has to say of itself, for `said` of a reader; empty adds nothing to what it said before.

        Raises:
            JournalFailed: It could not be written.
        """
        self._leases.beat(now, said)

    def claim(self, run_ids: Iterable[str], *, now: float | None = None) -> None:
        """Make this process the host of those runs, all or none; *now* is unix seconds, the wall clock's unless given.

        Raises:
            RunOwned: A process that lives hosts one of them.
            JournalFailed: It could not be written.
        """
        self._leases.claim(run_ids, time.time() if now is None else now)

    def reserve(self, key: str, run_id: str, *, now: float | None = None) -> str | None:
        """Keep *key* for the run that this process is about to spawn under it; see `Shared.reserve`.

        Raises:
            JournalFailed: It could not be written.
        """
        return self._leases.reserve(key, run_id, time.time() if now is None else now)

    def give_back(self, key: str) -> None:
        """Give up a *key* that was reserved, where no run came of it.

        Raises:
            JournalFailed: It could not be written.
        """
        self._leases.give_back(key)

    def release(self, run_ids: Iterable[str]) -> None:
        """Give up those runs where this process hosts them.

        Raises:
            JournalFailed: It could not be written.
        """
        self._leases.release(run_ids)

    def post(self, run_id: str, command: bytes, now: float) -> int:
        """Leave *command* for the host of *run_id*, and return its number.

        Raises:
            JournalFailed: It could not be written.
        """
        return self._leases.post(run_id, command, now)

    def withdraw(self, number: int) -> bool:
        """Take command *number* back; false where its host was faster.

        Raises:
            JournalFailed: It could not be written.
        """
        return self._leases.withdraw(number)

    def answer(self, number: int) -> str | None:
        """Return what became of command *number*: empty where it was obeyed, else why not; `None` while neither is."""
        rows = self._query("SELECT why_not FROM commands WHERE command = ?", (number,))
        return rows[0][0] if rows else None

    def waiting(self) -> Sequence[tuple[int, str, bytes]]:
        """Return the commands that wait for this process: number, run and command, oldest first."""
        return self._query(_WAITING, (self.host,))

    def obeyed(self, number: int, why_not: str) -> None:
        """Say what became of command *number*; it is durable together with the events appended around it."""
        self._check()
        self._batch.marks.append((why_not, number))
        if self._wake is not None:
            self._wake.set()

    def look(self, besides: Container[str]) -> None:
        """Have whoever waits for events of a run outside *besides* look whether another process wrote any."""
        self._tails.look(besides)

    def leave(self) -> None:
        """Give up every run that this process hosts.

        Raises:
            JournalFailed: It could not be written.
        """
        self._leases.leave()


async def _checkpoint(path: Path, threads: anyio.CapacityLimiter) -> None:
    await anyio.to_thread.run_sync(checkpoint, path, limiter=threads)


def _interrupted(path: Path) -> JournalFailed:
    return JournalFailed(f"a commit to {str(path)!r} was interrupted; open the journal again, then resume the runs")


def _why(error: Exception) -> str:
    if isinstance(error, sqlite3.IntegrityError):
        # The only rows that clash are those of a run that somebody else went on with.
        return "another process went on with a run of this one; let that one finish"
    return f"{error}; make room or mend the file"
