"""Leases: which process hosts a run, so that two never do.

A process that hosts runs shows every few seconds that it lives. One that is gone, or silent for too long, has lost its
runs; should it wake up and write to one that another took up meanwhile, the unique (run, seq) refuses its events.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import final

from shoal.errors import JournalFailed, RunOwned

STALE_S = 10.0
"""Seconds of silence after which a process is taken for dead."""
BEAT_S = 2.0
"""Seconds from one sign of life to the next."""
_BUSY_MS = 5_000
_HERE = secrets.token_hex(4)
"""Tells this process from one that had its id before: in a container that starts again, processes get the same ids."""
_FORGET_SAID = (
    "DELETE FROM meta WHERE key > 'said ' AND key < 'said!' "
    "AND substr(key, 6) NOT IN (SELECT host FROM hosts WHERE beat > ?)"
)

SELECT_HOSTS = "SELECT host, pid, beat FROM hosts"
SELECT_SAID = (
    "SELECT hosts.host, pid, beat, value FROM hosts JOIN meta ON key = 'said ' || hosts.host ORDER BY hosts.host"
)
SELECT_HOSTED = "SELECT run_id, host FROM runs WHERE ended_at IS NULL AND host IS NOT NULL"


def host_name() -> str:
    """Return a name for this process that no other has: machine, process id, and a few random digits."""
    return f"{_machine()}:{os.getpid()}:{_HERE}{secrets.token_hex(4)}"


def lives(host: str, pid: int, beat: float, now: float) -> bool:
    """Say whether the process that was last heard of at *beat* (unix seconds) still hosts its runs at *now*.

    Process ids tell something on their own machine only: two containers that share a folder have other names.
    """
    if now - beat > STALE_S:
        return False
    machine, _, rest = host.partition(":")
    if machine != _machine():
        return True
    number, _, digits = rest.partition(":")
    if number == str(pid) == str(os.getpid()) and not digits.startswith(_HERE):
        return False  # this process has the id now
    return _runs_here(pid)


def _machine() -> str:
    return socket.gethostname().replace(":", "-")


def _runs_here(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's process, and alive
    return True


def owners(
    hosted: Iterable[tuple[str, str]], hosts: Mapping[str, tuple[int, float]], now: float, *, besides: str | None
) -> dict[str, str]:
    """Return which process that lives hosts each run, by run id.

    Args:
        hosted: Run and host of each run that is not over.
        hosts: Process id and last sign of life (unix seconds) by host.
        now: Unix seconds.
        besides: A host to leave out; `None` for none.
    """
    alive = {
        host: f"process {pid} on {host.partition(':')[0]}"
        for host, (pid, beat) in hosts.items()
        if host != besides and lives(host, pid, beat, now)
    }
    return {run_id: alive[host] for run_id, host in hosted if host in alive}


@final
class Leases:
    """The leases of one process. Each call has a connection of its own: the journal's may be at work in a thread.

    Args:
        path: The journal's file.
        host: Name of this process.
    """

    def __init__(self, path: Path, host: str | None) -> None:
        self._path = path
        self._host = host

    def beat(self, now: float, said: bytes = b"") -> None:
        """Show that this process lives at *now* (unix seconds); one without a name hosts nothing and says nothing.

        What it has *said* of itself stands until it says something else; empty adds nothing. What was said by those
        who fell silent is dropped.
        """
        if self._host is None:
            return
        with self._transaction() as db:
            db.execute(
                "INSERT INTO hosts (host, pid, beat) VALUES (?, ?, ?) "
                "ON CONFLICT (host) DO UPDATE SET beat = excluded.beat",
                (self._host, os.getpid(), now),
            )
            db.execute(_FORGET_SAID, (now - STALE_S,))
            if said:
                db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (f"said {self._host}", said))

    def claim(self, run_ids: Iterable[str], now: float) -> None:
        """Make this process the host of those runs, all or none.

        Raises:
            RunOwned: A process that lives hosts one of them.
        """
        with self._transaction() as db:
            hosted = db.execute(SELECT_HOSTED).fetchall()
            hosts = {host: (pid, beat) for host, pid, beat in db.execute(SELECT_HOSTS)}
            owned = owners(hosted, hosts, now, besides=self._host)
            for run_id in run_ids:
                if run_id in owned:
                    raise RunOwned(
                        f"run {run_id} is hosted by {owned[run_id]}; wait for its end, or stop that process first",
                        run_id=run_id,
                    )
                db.execute("UPDATE runs SET host = ? WHERE run_id = ?", (self._host, run_id))

    def reserve(self, key: str, run_id: str, now: float) -> str | None:
        """Keep *key* for the run that this process is about to spawn; see `Shared.reserve`."""
        name = f"key {key}"
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM runs WHERE key = ?", (key,)).fetchone():
                return None
            row = db.execute("SELECT value FROM meta WHERE key = ?", (name,)).fetchone()
            if row is not None:
                run_id, _, host = str(row[0]).partition(" ")
                seen = db.execute("SELECT pid, beat FROM hosts WHERE host = ?", (host,)).fetchone()
                if host != self._host and seen is not None and lives(host, seen[0], seen[1], now):
                    return None
            mark = f"{run_id} {self._host or ''}"
            db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (name, mark))
        return run_id

    def give_back(self, key: str) -> None:
        """Give up *key*, which this process reserved."""
        with self._transaction() as db:
            mine = f" {self._host or ''}"
            db.execute("DELETE FROM meta WHERE key = ? AND substr(value, -length(?)) = ?", (f"key {key}", mine, mine))

    def release(self, run_ids: Iterable[str]) -> None:
        """Give up those runs where this process hosts them."""
        with self._transaction() as db:
            rows = [(run_id, self._host) for run_id in run_ids]
            db.executemany("UPDATE runs SET host = NULL WHERE run_id = ? AND host = ?", rows)

    def post(self, run_id: str, command: bytes, now: float) -> int:
        """Leave *command* for the host of *run_id*, and return its number."""
        with self._transaction() as db:
            values = (run_id, command, now)
            number = db.execute("INSERT INTO commands (run_id, data, posted_at) VALUES (?, ?, ?)", values).lastrowid
        assert number is not None  # SQLite numbers what it inserts
        return number

    def withdraw(self, number: int) -> bool:
        """Take command *number* back; false where its host was faster."""
        with self._transaction() as db:
            return db.execute("DELETE FROM commands WHERE command = ? AND why_not IS NULL", (number,)).rowcount > 0

    def leave(self) -> None:
        """Give up every run that this process hosts."""
        with self._transaction() as db:
            db.execute("UPDATE runs SET host = NULL WHERE host = ?", (self._host,))
            db.execute("DELETE FROM hosts WHERE host = ?", (self._host,))
            db.execute("DELETE FROM meta WHERE key = ?", (f"said {self._host}",))

    @contextlib.contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as db:
                db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
                db.execute("BEGIN IMMEDIATE")
                yield db  # where the block raises, closing rolls back
                db.execute("COMMIT")
        except sqlite3.Error as exc:
            raise JournalFailed(f"{str(self._path)!r} cannot be written: {exc}; make room or mend the file") from exc
