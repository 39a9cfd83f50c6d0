"""What tests of journals share: events by the line, journals that are served, and ways to make a commit fail."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import anyio

from shoal.providers import Text
from shoal.runtime import Event, Journal, MemoryJournal, SqliteJournal
from shoal.runtime.events import Nudged, RunSpawned

NOW = 1_767_225_600.0
Make: TypeAlias = Callable[[Path], Journal]

JOURNALS: dict[str, Make] = {
    "memory": lambda path: MemoryJournal(),
    "normal": lambda path: SqliteJournal(path, durability="normal"),
    "full": lambda path: SqliteJournal(path, durability="full"),
    "off": lambda path: SqliteJournal(path, durability="off"),
}


def spawned(run_id: str = "r", *, root: str | None = None, parent: str | None = None) -> Event:
    """Return the first event of a run."""
    return Event(run_id, 1, NOW, RunSpawned("name", "digest", None, (), "/", parent, root or run_id, 0))


def said(seq: int, run_id: str = "r", text: str = "text") -> Event:
    """Return the event *seq* of a run, of a kind that changes no register."""
    return Event(run_id, seq, NOW + seq, Nudged("gate", Text.of(text)))


def line(count: int, run_id: str = "r") -> list[Event]:
    """Return the first *count* events of a run."""
    return [spawned(run_id), *(said(seq, run_id) for seq in range(2, count + 1))]


def append(journal: Journal, *events: Event) -> None:
    """Append *events* in one pass of the loop."""
    for event in events:
        journal.append(event)


@asynccontextmanager
async def served(journal: Journal) -> AsyncIterator[Journal]:
    """Serve *journal* while the block runs, and close it after."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(journal.serve)
            await anyio.wait_all_tasks_blocked()
            yield journal
            tasks.cancel_scope.cancel()
    finally:
        journal.close()


def seqs(journal: Journal, run_id: str = "r") -> list[int]:
    """Return the seqs of the events that can be read."""
    return [event.seq for event in journal.read(run_id)]


def fill_disk(journal: SqliteJournal) -> None:
    """Let the file grow no more, as on a full disk."""
    pages = journal._writing.execute("PRAGMA page_count").fetchone()[0]
    journal._writing.execute(f"PRAGMA max_page_count = {pages}")


@contextmanager
def held_by_another(path: Path) -> Iterator[None]:
    """Hold the write lock of the journal at *path*, as another process does that is in the middle of a commit."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def changed(path: Path, *statements: str) -> None:
    """Change the closed journal at *path* behind its back."""
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)
