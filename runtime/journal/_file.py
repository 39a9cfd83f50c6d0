"""The journal's file: its tables, its format, and how it is opened to write and to read.

Events are rows of a rowid table with a unique (run, seq): without a rowid each row above a kilobyte would take an
overflow page of its own. Kinds and times are integers, a run is the number of its row in `runs`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from shoal.errors import ConfigInvalid, JournalFailed, JournalNewer

Durability: TypeAlias = Literal["off", "normal", "full"]

FORMAT = 3
"""Version of the file; a reader takes versions from 1 up to its own."""

PAGE_BYTES = 8192
BUSY_MS = 5_000
"""How long a statement waits for another process that writes."""
_AGAIN_S = 0.01

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    run INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, status TEXT NOT NULL, parent TEXT,
    root TEXT NOT NULL, title TEXT, spawned_at REAL NOT NULL, ended_at REAL, stage TEXT, host TEXT, key TEXT UNIQUE,
    detached INTEGER NOT NULL DEFAULT 0, questions INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS runs_by_root ON runs (root);
CREATE TABLE IF NOT EXISTS events (
    run INTEGER NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL, at INTEGER NOT NULL, payload BLOB NOT NULL,
    UNIQUE (run, seq));
CREATE TABLE IF NOT EXISTS definitions (digest TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS parts (digest TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS part_refs (
    run INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run, digest)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS part_refs_by_digest ON part_refs (digest);
CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, pid INTEGER NOT NULL, beat REAL NOT NULL);
CREATE TABLE IF NOT EXISTS commands (
    command INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, data BLOB NOT NULL, posted_at REAL NOT NULL,
    why_not TEXT);
CREATE INDEX IF NOT EXISTS commands_waiting ON commands (run_id) WHERE why_not IS NULL;
"""
_UPGRADES = {
    1: "ALTER TABLE runs ADD COLUMN detached INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE runs ADD COLUMN questions INTEGER NOT NULL DEFAULT 0;",
    2: "",
}
"""What has to change in a file of each earlier format, beside the tables that it has not."""
_MARK = "INSERT OR IGNORE INTO meta (key, value) VALUES ('format', ?)"


def open_for_writing(path: Path, durability: Durability) -> sqlite3.Connection:
    """Open the journal at *path*; it and its folder are made, for the user alone.

    Raises:
        JournalFailed: The file cannot be made or opened, or is something else.
        JournalNewer: It was written by a newer version.
    """
    if durability not in get_args(Durability):
        raise ConfigInvalid(f"a journal has no durability {durability!r}; it is one of {get_args(Durability)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            path.touch(mode=0o600)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=16)
        try:
            _prepare(db, path, durability)
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError) as exc:
        raise JournalFailed(f"{str(path)!r} cannot be opened as a journal: {exc}; name another file") from exc
    return db


def _prepare(db: sqlite3.Connection, path: Path, durability: Durability) -> None:
    db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    db.execute(f"PRAGMA synchronous = {durability.upper()}")
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        _upgrade(db, path)  # first, so that nothing is changed in a file that is not ours
    else:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        write_ahead(db)
        db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA}")  # in one transaction: whoever opens it finds all or nothing
        db.execute(_MARK, (FORMAT,))
        db.execute("COMMIT")
    db.execute("PRAGMA wal_autocheckpoint = 0")


def write_ahead(db: sqlite3.Connection) -> None:
    """Switch *db* to a write-ahead log, after waiting for others who do so.

    Of two processes that make one new file, SQLite refuses one at once: here alone it does not wait by itself.
    """
    give_up_at = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_AGAIN_S)
        else:
            return


def _upgrade(db: sqlite3.Connection, path: Path) -> None:
    """Bring the file at *path* from an earlier format to the current one."""
    if _check_format(db, path) == FORMAT:
        return
    db.execute("BEGIN IMMEDIATE")
    written_as = _check_format(db, path)  # another process may have done it while this one waited
    changes = "".join(_UPGRADES[number] for number in range(written_as, FORMAT))
    for statement in f"{changes}{_SCHEMA}".split(";"):  # a script would commit what it finds begun
        db.execute(statement)
    db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (FORMAT,))
    db.execute("COMMIT")


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the journal at *path* (absolute), which another process may be writing.

    Raises:
        JournalFailed: There is no such file, or it is no journal.
        JournalNewer: It was written by a newer version.
    """
    if not path.is_file():
        raise JournalFailed(f"there is no journal at {str(path)!r}; `shoal run` makes one")
    mode = "mode=ro"
    if not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists():
        # Nobody has it open, and SQLite could not make the files through which it reads one that is open.
        mode = "mode=ro&immutable=1"
    try:
        db = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, isolation_level=None, check_same_thread=False)
        try:
            db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            _check_format(db, path)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as exc:
        raise JournalFailed(f"{str(path)!r} cannot be read as a journal: {exc}") from exc
    return db


def _check_format(db: sqlite3.Connection, path: Path) -> int:
    """Return the format of the file at *path*.

    Raises:
        JournalFailed: It is no journal.
        JournalNewer: It was written by a newer version.
    """
    row = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    if row is None or not isinstance(row[0], int):
        raise JournalFailed(f"{str(path)!r} is just being made, or is no journal; try again, or name another file")
    if row[0] > FORMAT:
        raise JournalNewer(
            f"{str(path)!r} has format {row[0]} and this version reads formats 1 to {FORMAT}; install a newer one"
        )
    return row[0]


def checkpoint(path: Path) -> None:
    """Bring what stands in the write-ahead log into the file, on a connection of its own; nobody waits for it.

    What cannot be brought over stays in the log, which is as durable; the next checkpoint takes it along.
    """
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
