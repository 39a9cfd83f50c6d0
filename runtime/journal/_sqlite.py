"""The journal on disk: one SQLite file in WAL mode, no server.

Events are rows of a rowid table with a unique (run, seq): without a rowid each row above a kilobyte would take an
overflow page of its own. Kinds and times are integers, a run is the number of its row in `runs`.

A group is committed on the event loop's thread where a commit takes less than a few milliseconds, since a thread behind
a busy loop waits longer for the interpreter than the commit takes. It moves to a worker thread for good at durability
`full`, and once a commit was seen to be slow.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import anyio
import anyio.to_thread
import msgspec

from shoal.errors import DefinitionMissing, JournalDamaged, JournalFailed, JournalNewer
from shoal.runtime import _threads
from shoal.runtime.events import NUMBERS, Event, decode, encode
from shoal.runtime.journal._base import Observer, RunRow
from shoal.runtime.journal._commit import Batch, Tails, tell
from shoal.runtime.journal._leases import SELECT_HOSTED, SELECT_HOSTS, Leases, owners
from shoal.runtime.journal._register import NOTED, pick, updated

Durability: TypeAlias = Literal["off", "normal", "full"]

FORMAT = 1
"""Version of the file; a reader takes versions from 1 up to its own."""

_SLOW_COMMIT_S = 0.005
_CHECKPOINT_PAGES = 2_000
_PAGE_BYTES = 8192
_READ_ROWS = 512
_BUSY_MS = 5_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    run INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, status TEXT NOT NULL, parent TEXT,
    root TEXT NOT NULL, title TEXT, spawned_at REAL NOT NULL, ended_at REAL, stage TEXT, host TEXT, key TEXT UNIQUE);
CREATE INDEX IF NOT EXISTS runs_by_root ON runs (root);
CREATE TABLE IF NOT EXISTS events (
    run INTEGER NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL, at INTEGER NOT NULL, payload BLOB NOT NULL,
    UNIQUE (run, seq));
CREATE TABLE IF NOT EXISTS definitions (digest TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, pid INTEGER NOT NULL, beat REAL NOT NULL);
"""
_COLUMNS = "run_id, name, status, parent, root, title, spawned_at, ended_at, stage, host, key"
_INSERT_EVENT = "INSERT INTO events (run, seq, kind, at, payload) VALUES (?, ?, ?, ?, ?)"
_INSERT_RUN = f"INSERT INTO runs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own columns
_UPDATE_RUN = "UPDATE runs SET status = ?, title = ?, ended_at = ?, stage = ? WHERE run = ?"
_SELECT_RUNS = f"SELECT {_COLUMNS}, (SELECT max(seq) FROM events WHERE events.run = runs.run) FROM runs"  # noqa: S608


class SqliteReader:
    """Reads a journal file, also while another process writes it.

    Args:
        path: The file.

    Raises:
        JournalFailed: There is no such file, or it is no journal.
        JournalNewer: It was written by a newer version.
    """

    host: str | None = None
    """Name of this process, under which it hosts runs; `None` for one that hosts none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise JournalFailed(f"there is no journal at {str(self.path)!r}; `shoal run` makes one")
        try:
            uri = f"{self.path.absolute().as_uri()}?mode=ro"
            self._reading = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            self._reading.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            _check_format(self._reading, self.path)
        except sqlite3.Error as exc:
            raise JournalFailed(f"{str(self.path)!r} cannot be read as a journal: {exc}") from exc

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        self._reading.close()

    def read(self, run_id: str, *, after: int = 0) -> Iterator[Event]:
        """Yield the events of *run_id* behind *after*.

        Raises:
            JournalDamaged: A row is torn or corrupted, or one is missing; every event before it was yielded.
        """
        number = self._number(run_id)
        if number is None:
            return
        while True:
            rows = self._rows(number, run_id, after)
            for seq, kind, at, payload in rows:
                if seq != after + 1:
                    raise JournalDamaged(
                        f"{str(self.path)!r}: run {run_id} has no event {after + 1}; resume it from event {after}",
                        run_id=run_id,
                        seq=after + 1,
                    )
                event = self._event(run_id, seq, kind, at, payload)
                after = seq
                if event is not None:
                    yield event
            if len(rows) < _READ_ROWS:
                return

    def _rows(self, number: int, run_id: str, after: int) -> list[tuple[int, int, int, bytes]]:
        try:
            return self._query(
                "SELECT seq, kind, at, payload FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
                (number, after, _READ_ROWS),
            )
        except JournalDamaged as exc:
            raise JournalDamaged(
                f"{str(self.path)!r} is damaged behind event {after} of run {run_id}: {exc.__cause__}",
                run_id=run_id,
                seq=after + 1,
            ) from exc

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        try:
            return self._reading.execute(sql, values).fetchall()
        except sqlite3.ProgrammingError as exc:
            raise JournalFailed(f"{str(self.path)!r} is closed; read it while it is open, or open it again") from exc
        except sqlite3.DatabaseError as exc:
            raise JournalDamaged(f"{str(self.path)!r} cannot be read: {exc}") from exc

    def _event(self, run_id: str, seq: int, kind: int, at: int, payload: bytes) -> Event | None:
        try:
            known = decode(kind, payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise JournalDamaged(
                f"{str(self.path)!r}: event {seq} of run {run_id} cannot be read ({exc}); those before it are good",
                run_id=run_id,
                seq=seq,
            ) from exc
        return None if known is None else Event(run_id, seq, at / 1e6, known)

    def _number(self, run_id: str) -> int | None:
        rows = self._query("SELECT run FROM runs WHERE run_id = ?", (run_id,))
        return int(rows[0][0]) if rows else None

    def runs(self, *, root: str | None = None) -> Sequence[RunRow]:
        """Return all runs, or those of one tree."""
        where, values = ("", ()) if root is None else (" WHERE root = ?", (root,))
        return [_row(row) for row in self._query(f"{_SELECT_RUNS}{where} ORDER BY run", values)]

    def find(self, run_id: str) -> RunRow:
        """Return the run whose id is, or begins with, *run_id*."""
        like = run_id.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        rows = self._query(f"{_SELECT_RUNS} WHERE run_id LIKE ? ESCAPE '\\'", (f"{like}%",))
        return pick(run_id, [_row(row) for row in rows])

    def definition(self, digest: str) -> bytes:
        """Return the bytes that *digest* stands for."""
        rows = self._query("SELECT data FROM definitions WHERE digest = ?", (digest,))
        if not rows:
            raise DefinitionMissing(f"{str(self.path)!r} holds no definition {digest!r}")
        return bytes(rows[0][0])

    def hosts(self) -> dict[str, tuple[int, float]]:
        """Return the process id and the last sign of life (unix seconds) of each process that hosts runs."""
        return {host: (pid, beat) for host, pid, beat in self._query(SELECT_HOSTS)}

    def owners(self, *, now: float | None = None) -> dict[str, str]:
        """Return which other process hosts each run that is not over, by run id; a run that nobody hosts is left out.

        Args:
            now: Unix seconds; `None` takes the wall clock.
        """
        at = time.time() if now is None else now
        return owners(self._query(SELECT_HOSTED), self.hosts(), at, besides=self.host)


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
        JournalFailed: The file cannot be made or opened.
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
        target = Path(path)
        self.durability: Durability = durability
        self.observers = list(observers)
        self.host = host
        self._writing = _open_for_writing(target, durability)
        super().__init__(target)
        self._leases = Leases(target, host)
        self._numbers: dict[str, int] = {}
        self._rows_of: dict[str, RunRow] = {}
        self._tails = Tails()
        self._batch = Batch()
        self._wake: anyio.Event | None = None
        self._broken: JournalFailed | None = None
        self._in_thread = durability == "full"
        self._flying: Batch | None = None
        self._since_checkpoint = 0
        self._defined: set[str] = set()

    @property
    def healthy(self) -> bool:
        """It can write."""
        return self._broken is None

    # --- writing

    def append(self, event: Event) -> None:
        """Put *event* behind everything appended so far.

        Raises:
            JournalFailed: An earlier commit failed.
        """
        if self._broken is not None:
            raise JournalFailed(str(self._broken)) from self._broken
        self._batch.events.append(event)
        if self._wake is not None:
            self._wake.set()

    def define(self, digest: str, data: bytes) -> None:
        """Keep *data* under *digest*."""
        if digest not in self._defined:
            self._defined.add(digest)
            self._batch.definitions.append((digest, data))

    async def barrier(self) -> None:
        """Return once everything appended so far is durable.

        Raises:
            JournalFailed: It could not be written.
        """
        if self._batch.events or self._batch.definitions:
            await self._batch.wait()
        elif self._flying is not None:
            await self._flying.wait()
        elif self._broken is not None:
            raise JournalFailed(str(self._broken)) from self._broken

    async def serve(self) -> None:
        """Commit what is appended, until cancelled."""
        threads = _threads.limiter(1)
        while True:
            self._wake = anyio.Event()
            if not (self._batch.events or self._batch.definitions):
                await self._wake.wait()
            if self._in_thread:
                # Shielded: a commit that was begun is finished, so that no waiter is left without an answer.
                with anyio.CancelScope(shield=True):
                    await self._commit_in_thread(threads)
            else:
                self._commit_here()
            if self._since_checkpoint >= _CHECKPOINT_PAGES:
                self._since_checkpoint = 0
                await anyio.to_thread.run_sync(self._checkpoint, limiter=threads)

    def close(self) -> None:
        """Commit what is left and close."""
        if self._batch.events and self._broken is None:
            self._commit_here()
        # The writer last: whoever closes last folds the write-ahead log into the file, and a reader cannot.
        super().close()
        self._writing.close()

    def _commit_here(self) -> None:
        batch, self._batch = self._batch, Batch()
        began = time.perf_counter()
        error = self._write(batch)
        if time.perf_counter() - began > _SLOW_COMMIT_S:
            self._in_thread = True
        self._finish(batch, error)

    async def _commit_in_thread(self, threads: anyio.CapacityLimiter) -> None:
        batch, self._batch = self._batch, Batch()
        self._flying = batch
        error = await anyio.to_thread.run_sync(self._write, batch, limiter=threads)
        self._flying = None
        self._finish(batch, error)

    def _write(self, batch: Batch) -> JournalFailed | None:
        """Write *batch* in one transaction; return what went wrong, and then nothing of it is kept."""
        db = self._writing
        try:
            db.execute("BEGIN IMMEDIATE")
            if batch.definitions:
                db.executemany("INSERT OR IGNORE INTO definitions (digest, data) VALUES (?, ?)", batch.definitions)
            rows = [self._event_row(event) for event in batch.events]
            db.executemany(_INSERT_EVENT, rows)
            db.execute("COMMIT")
        except sqlite3.Error as exc:
            if db.in_transaction:
                db.execute("ROLLBACK")
            return JournalFailed(f"{str(self.path)!r} cannot be written: {_why(exc)}, then resume the runs")
        self._since_checkpoint += sum(len(row[4]) for row in rows) // _PAGE_BYTES + 1
        return None

    def _event_row(self, event: Event) -> tuple[int, int, int, int, bytes]:
        payload = event.payload
        number = self._numbers.get(event.run_id)
        if number is None or isinstance(payload, NOTED):
            number = self._note(event)
        return number, event.seq, NUMBERS[type(payload)], round(event.at * 1e6), encode(payload)

    def _note(self, event: Event) -> int:
        """Bring the run's row up to date and return its number."""
        known = self._rows_of.get(event.run_id)
        if known is None and event.seq > 1:
            known = self._load(event.run_id)
        row = updated(known, event) if isinstance(event.payload, NOTED) else known
        assert row is not None  # a run's first event makes its row
        if event.seq == 1:
            values = (*msgspec.structs.astuple(row)[:9], self.host, row.key)
            made = self._writing.execute(_INSERT_RUN, values).lastrowid
            assert made is not None
            self._numbers[event.run_id] = made
        elif row is not known:
            self._writing.execute(
                _UPDATE_RUN, (row.status, row.title, row.ended_at, row.stage, self._numbers[event.run_id])
            )
        if row.ended:
            self._rows_of.pop(event.run_id, None)
        else:
            self._rows_of[event.run_id] = row
        return self._numbers[event.run_id]

    def _load(self, run_id: str) -> RunRow:
        number, *row = self._writing.execute(
            f"SELECT run, {_COLUMNS}, 0 FROM runs WHERE run_id = ?",  # noqa: S608 - our own columns
            (run_id,),
        ).fetchone()
        self._numbers[run_id] = number
        return _row(tuple(row))

    def _finish(self, batch: Batch, error: JournalFailed | None) -> None:
        if error is not None:
            self._broken = error
        batch.settle(error)
        if error is None:
            tell(self.observers, batch.events)
            self._tails.notify(batch.events)
            return
        # What was appended while the commit ran stands behind a gap: it cannot be kept either.
        later, self._batch = self._batch, Batch()
        later.settle(error)

    def _checkpoint(self) -> None:
        # On a connection of its own: the writing one belongs to the loop's thread while it commits there.
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    # --- reading

    def tail(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """Yield the events of *run_id* behind *after*, and then new ones; never ends."""
        return self._tails.follow(run_id, after, lambda run, seen: self.read(run, after=seen))

    def listening(self, run_id: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call *wake* whenever events of *run_id* became durable, while the block runs."""
        return self._tails.listening(run_id, wake)

    # --- hosting

    def beat(self, now: float) -> None:
        """Show other processes that this one lives; *now* is unix seconds. Safe to call in a thread.

        Raises:
            JournalFailed: It could not be written.
        """
        self._leases.beat(now)

    def claim(self, run_ids: Iterable[str], *, now: float | None = None) -> None:
        """Make this process the host of those runs, all or none; *now* is unix seconds, the wall clock's unless given.

        Raises:
            RunOwned: A process that lives hosts one of them.
            JournalFailed: It could not be written.
        """
        self._leases.claim(run_ids, time.time() if now is None else now)

    def leave(self) -> None:
        """Give up every run that this process hosts.

        Raises:
            JournalFailed: It could not be written.
        """
        self._leases.leave()


def _open_for_writing(path: Path, durability: Durability) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            path.touch(mode=0o600)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=16)
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {durability.upper()}")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.executescript(_SCHEMA)
        db.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('format', ?)", (FORMAT,))
        _check_format(db, path)
    except (sqlite3.Error, OSError) as exc:
        raise JournalFailed(f"{str(path)!r} cannot be opened as a journal: {exc}; name another file") from exc
    return db


def _why(error: sqlite3.Error) -> str:
    if isinstance(error, sqlite3.IntegrityError):
        # The only rows that clash are those of a run that somebody else went on with.
        return "another process went on with a run of this one; let that one finish"
    return f"{error}; make room or mend the file"


def _check_format(db: sqlite3.Connection, path: Path) -> None:
    row = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    if row is None:
        raise JournalFailed(f"{str(path)!r} is just being made, or is no journal; try again, or name another file")
    version: int = row[0]
    if version > FORMAT:
        raise JournalNewer(
            f"{str(path)!r} has format {version} and this version reads formats 1 to {FORMAT}; install a newer one"
        )


def _row(row: tuple[object, ...]) -> RunRow:
    *fields, host, key, events = row
    named = zip(RunRow.__struct_fields__, (*fields, events or 0, host, key), strict=True)
    try:
        return msgspec.convert(dict(named), RunRow)
    except msgspec.ValidationError as exc:
        raise JournalDamaged(f"the register has a row that cannot be read: {exc}") from exc
