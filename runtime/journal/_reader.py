"""Reads a journal file, also while another process writes it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import DefinitionMissing, JournalDamaged, JournalFailed, PartMissing
from shoal.runtime.events import NUMBERS, Event, Payload, decode
from shoal.runtime.journal._base import RunRow
from shoal.runtime.journal._file import open_for_reading
from shoal.runtime.journal._leases import SELECT_HOSTED, SELECT_HOSTS, SELECT_SAID, lives, owners
from shoal.runtime.journal._register import pick

_FIRST_ROWS, _READ_ROWS = 8, 512
"""Rows of the first query of a read, since many want no more than how a run began, and of the others."""
_LAST = "\U0010ffff"
"""Sorts behind every id."""

COLUMNS = "run_id, name, status, parent, root, title, spawned_at, ended_at, stage, host, key, detached, questions"
_SELECT_RUNS = "SELECT {columns}, (SELECT max(seq) FROM events WHERE events.run = runs.run) FROM runs"
_NEWEST = "SELECT seq, kind, at, payload FROM events WHERE run = ? AND kind = ? ORDER BY seq DESC LIMIT 1"
_COLUMNS_THERE = "SELECT name FROM pragma_table_info('runs')"


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
        self.path = Path(path).absolute()
        self._reading = open_for_reading(self.path)
        there = {name for (name,) in self._reading.execute(_COLUMNS_THERE)}
        # A file of an earlier format has not all of them, and reading must not change it.
        columns = (name if name in there else "0" for name in COLUMNS.split(", "))
        self._select_runs = _SELECT_RUNS.format(columns=", ".join(columns))

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
        most = _FIRST_ROWS
        while True:
            rows = self._rows(number, run_id, after, most)
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
            if len(rows) < most:
                return
            most = _READ_ROWS

    def newest(self, run_id: str, kind: type[Payload]) -> Event | None:
        """Return the newest event of *run_id* that is of *kind*; `None` where it has none.

        Raises:
            JournalDamaged: It is torn or corrupted.
        """
        rows = self._query(_NEWEST, (self._number(run_id), NUMBERS[kind]))
        return self._event(run_id, *rows[0]) if rows else None

    def _rows(self, number: int, run_id: str, after: int, most: int) -> list[tuple[int, int, int, bytes]]:
        try:
            return self._query(
                "SELECT seq, kind, at, payload FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
                (number, after, most),
            )
        except JournalDamaged as exc:
            raise JournalDamaged(
                f"{str(self.path)!r} is damaged behind event {after} of run {run_id}: {exc.__cause__}",
                run_id=run_id,
                seq=after + 1,
            ) from exc

    def _event(self, run_id: str, seq: int, kind: int, at: int, payload: bytes) -> Event | None:
        try:
            known = decode(kind, payload)
            return None if known is None else Event(run_id, seq, at / 1e6, known)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as exc:
            raise JournalDamaged(
                f"{str(self.path)!r}: event {seq} of run {run_id} cannot be read ({exc}); those before it are good",
                run_id=run_id,
                seq=seq,
            ) from exc

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        try:
            return self._reading.execute(sql, values).fetchall()
        except sqlite3.ProgrammingError as exc:
            raise JournalFailed(f"{str(self.path)!r} is closed; read it while it is open, or open it again") from exc
        except sqlite3.DatabaseError as exc:
            raise JournalDamaged(f"{str(self.path)!r} cannot be read: {exc}") from exc

    def _number(self, run_id: str) -> int | None:
        rows = self._query("SELECT run FROM runs WHERE run_id = ?", (run_id,))
        return int(rows[0][0]) if rows else None

    def runs(self, *, root: str | None = None) -> Sequence[RunRow]:
        """Return all runs, or those of one tree."""
        where, values = ("", ()) if root is None else (" WHERE root = ?", (root,))
        return [_row(row) for row in self._query(f"{self._select_runs}{where} ORDER BY run", values)]

    def find(self, run_id: str) -> RunRow:
        """Return the run whose id is, or begins with, *run_id*."""
        rows = self._query(f"{self._select_runs} WHERE run_id = ?", (run_id,))
        if not rows:
            rows = self._query(f"{self._select_runs} WHERE run_id > ? AND run_id < ?", (run_id, run_id + _LAST))
        return pick(run_id, [_row(row) for row in rows])

    def with_key(self, key: str) -> RunRow | None:
        """Return the run that was spawned under *key*; `None` for none."""
        rows = self._query(f"{self._select_runs} WHERE key = ?", (key,))
        return _row(rows[0]) if rows else None

    def keyed(self, prefix: str) -> Sequence[RunRow]:
        """Return the runs whose key begins with *prefix* (not empty), the greatest key first."""
        sql = f"{self._select_runs} WHERE key >= ? AND key < ? ORDER BY key DESC"
        return [_row(row) for row in self._query(sql, (prefix, prefix + _LAST))]

    def definition(self, digest: str) -> bytes:
        """Return the bytes that *digest* stands for."""
        rows = self._query("SELECT data FROM definitions WHERE digest = ?", (digest,))
        if not rows:
            raise DefinitionMissing(f"{str(self.path)!r} holds no definition {digest!r}")
        return bytes(rows[0][0])

    def part(self, digest: str) -> bytes:
        """Return the bytes of the stored part *digest*, on a connection of its own: encoders ask in threads.

        Raises:
            PartMissing: The journal does not hold them.
        """
        try:
            with contextlib.closing(open_for_reading(self.path)) as db:
                row = db.execute("SELECT data FROM parts WHERE digest = ?", (digest,)).fetchone()
        except sqlite3.Error as exc:
            raise PartMissing(f"{str(self.path)!r} cannot give the part {digest!r}: {exc}") from exc
        if row is None:
            raise PartMissing(f"{str(self.path)!r} holds no part {digest!r}")
        return bytes(row[0])

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

    def others(self, *, now: float | None = None) -> frozenset[str]:
        """Return the names of the other processes that live; *now* is unix seconds, the wall clock's unless given."""
        at = time.time() if now is None else now
        hosts = self.hosts().items()
        return frozenset(host for host, (pid, beat) in hosts if host != self.host and lives(host, pid, beat, at))

    def said(self, *, now: float | None = None) -> dict[str, bytes]:
        """Return what each process that lives last said of itself with its sign of life, by host.

        Args:
            now: Unix seconds; `None` takes the wall clock.
        """
        at = time.time() if now is None else now
        return {host: data for host, pid, beat, data in self._query(SELECT_SAID) if lives(host, pid, beat, at)}


def _row(row: tuple[object, ...]) -> RunRow:
    *fields, host, key, detached, questions, events = row
    values = (*fields, events or 0, host, key, bool(detached), questions)
    named = zip(RunRow.__struct_fields__, values, strict=True)
    try:
        return msgspec.convert(dict(named), RunRow)
    except msgspec.ValidationError as exc:
        raise JournalDamaged(f"the register has a row that cannot be read: {exc}") from exc
