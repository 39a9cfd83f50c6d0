"""Pruning: old trees of runs leave the journal, with what nobody else refers to, and the file shrinks.

Nothing is pruned by itself. A tree goes as a whole, and only where all of it is over.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import final

import msgspec

from shoal.errors import JournalFailed
from shoal.runtime.events import NUMBERS, Payload, decode
from shoal.runtime.journal._file import open_for_writing
from shoal.runtime.journal._leases import SELECT_HOSTS, lives
from shoal.runtime.journal._references import REFERRING, definitions_of

_OLD = """
SELECT root FROM runs GROUP BY root
HAVING count(ended_at) = count(*) AND max(ended_at) < ? {kept} ORDER BY min(run)
"""
_NOT_FAILED = "AND sum(status = 'error') = 0"


@final
class Pruned(msgspec.Struct, frozen=True):
    """What was pruned.

    Args:
        trees: Trees of runs that are gone.
        runs: Runs in them.
        definitions: Definitions that went with them.
        bytes_before: Size of the file before.
        bytes_after: Size of the file after.
        shrunk: The file was written anew without the gaps; false where another process was in the way.
        parts: Stored parts that went with them.
    """

    trees: int
    runs: int
    definitions: int
    bytes_before: int
    bytes_after: int
    shrunk: bool
    parts: int = 0


def prune(
    path: str | os.PathLike[str], *, before: float, keep_failed: bool = False, now: float | None = None
) -> Pruned:
    """Delete the trees of runs that were all over by *before*, and let the file shrink.

    Other processes may have the journal open. While one of them hosts runs, definitions and stored parts stay: it may
    count on them.

    Args:
        path: The journal's file.
        before: Unix seconds.
        keep_failed: Trees in which a run ended `error` stay.
        now: Unix seconds; `None` takes the wall clock.

    Raises:
        JournalFailed: There is no such file, it is no journal, or it cannot be written.
        JournalNewer: It was written by a newer version.
    """
    target = Path(path).absolute()
    if not target.is_file():
        raise JournalFailed(f"there is no journal at {str(target)!r}; `shoal run` makes one")
    size = _size(target)
    try:
        with contextlib.closing(open_for_writing(target, "normal")) as db:
            roots = [root for (root,) in db.execute(_OLD.format(kept=_NOT_FAILED if keep_failed else ""), (before,))]
            runs = sum(_forget_tree(db, root) for root in roots)
            hosted = _hosted(db, time.time() if now is None else now)
            definitions = 0 if hosted else _forget_definitions(db)
            parts = 0 if hosted else _forget_parts(db)
            shrunk = bool(roots or definitions or parts) and _shrink(db)
    except sqlite3.Error as exc:
        raise JournalFailed(f"{str(target)!r} cannot be pruned: {exc}; make room or mend the file") from exc
    return Pruned(len(roots), runs, definitions, size, _size(target), shrunk, parts)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists())


@contextlib.contextmanager
def _whole(db: sqlite3.Connection) -> Generator[None]:
    """Have the block take effect as a whole, or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _forget_tree(db: sqlite3.Connection, root: str) -> int:
    """Delete a tree in a transaction of its own, so that nobody waits for long; return how many runs it had."""
    with _whole(db):
        runs = db.execute("SELECT run, run_id FROM runs WHERE root = ?", (root,)).fetchall()
        # What was set aside of a damaged run stands under the same number below 0.
        db.executemany("DELETE FROM events WHERE run IN (?, -?)", [(run, run) for run, _ in runs])
        db.executemany("DELETE FROM commands WHERE run_id = ?", [(run_id,) for _, run_id in runs])
        db.executemany("DELETE FROM part_refs WHERE run = ?", [(run,) for run, _ in runs])
        db.execute("DELETE FROM meta WHERE key IN (SELECT 'key ' || key FROM runs WHERE root = ?)", (root,))
        db.execute("DELETE FROM runs WHERE root = ?", (root,))
    return len(runs)


def _hosted(db: sqlite3.Connection, now: float) -> bool:
    return any(lives(host, pid, beat, now) for host, pid, beat in db.execute(SELECT_HOSTS))


def _forget_definitions(db: sqlite3.Connection) -> int:
    """Delete the definitions that no run refers to, and return how many those were."""
    with _whole(db):
        left = {digest for (digest,) in db.execute("SELECT digest FROM definitions")}
        for kind in REFERRING:
            if left:
                rows = db.execute("SELECT payload FROM events WHERE kind = ? AND run > 0", (NUMBERS[kind],))
                try:
                    left.difference_update(digest for (payload,) in rows for digest in _named(kind, payload))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    return 0  # what cannot be read may refer to any of them
        db.executemany("DELETE FROM definitions WHERE digest = ?", [(digest,) for digest in left])
    return len(left)


def _named(kind: type[Payload], payload: bytes) -> Iterator[str]:
    read = decode(NUMBERS[kind], payload)
    assert read is not None  # the caller looks for what this version knows
    return definitions_of(read)


def _forget_parts(db: sqlite3.Connection) -> int:
    """Delete the stored parts that no run refers to, and return how many those were."""
    with _whole(db):
        return db.execute("DELETE FROM parts WHERE digest NOT IN (SELECT digest FROM part_refs)").rowcount


def _shrink(db: sqlite3.Connection) -> bool:
    """Write the file anew without the gaps; say whether that worked."""
    try:
        db.execute("VACUUM")
        busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError:
        return False  # another process is in the middle of something; the room is used again in any case
    return not busy
