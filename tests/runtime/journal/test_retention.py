"""Pruning: old trees go as a whole, what is kept is left alone, and the file shrinks."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import anyio
import msgspec
import pytest
from anyvalue import of
from hypothesis import given, settings
from hypothesis import strategies as st
from journalkit import NOW, append, changed, held_by_another, said, spawned

from shoal.errors import DefinitionMissing, JournalFailed, JournalNewer
from shoal.runtime import Event, SqliteJournal, SqliteReader
from shoal.runtime.events import CallOpened, FactsRecorded, MemoryLoaded, Payload, RunEnded, RunPaused, ToolsFound
from shoal.runtime.journal import _retention, prune
from shoal.runtime.journal._references import RENDERING

DAY = 86_400.0


def begun(run_id: str, *, day: int = 0, parent: str | None = None, digest: str = "", root: str | None = None) -> Event:
    event = spawned(run_id, parent=parent, root=root or parent)
    payload = msgspec.structs.replace(
        event.payload, definition=digest or f"made of {run_id}", scripts=(("s", "script"),)
    )
    return Event(run_id, 1, NOW + day * DAY, payload)


def ended(run_id: str, day: int, status: str = "complete", seq: int = 2) -> Event:
    return Event(run_id, seq, NOW + day * DAY, RunEnded(status, "over"))  # type: ignore[arg-type]


def journal_of(path: Path, *events: Event) -> Path:
    with closing(SqliteJournal(path, host="here")) as journal:
        for event in events:
            if event.seq == 1:
                journal.define(event.payload.definition, b"definition")  # type: ignore[union-attr]
        journal.define("script", b"script")
        append(journal, *events)
        anyio.run(journal.barrier)
    return path


def left(path: Path) -> list[str]:
    with closing(SqliteReader(path)) as reader:
        return [row.run_id for row in reader.runs()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def test_runs_that_were_over_by_then_are_deleted_with_their_events(path: Path):
    journal_of(path, begun("old"), ended("old", 1), begun("new"), ended("new", 9))
    pruned = prune(path, before=NOW + 5 * DAY)
    assert (left(path), pruned.trees, pruned.runs) == (["new"], 1, 1)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM events").fetchone() == (2,)


@pytest.mark.parametrize("last", [said(2, "old"), Event("old", 2, NOW, RunPaused("waits"))])
def test_a_run_that_is_not_over_is_never_deleted(path: Path, last: Event):
    journal_of(path, begun("old"), last)
    assert prune(path, before=NOW + 1000 * DAY).trees == 0
    assert left(path) == ["old"]


def test_a_tree_goes_with_the_last_of_its_runs(path: Path):
    tree = [begun("root"), ended("root", 1), begun("child", parent="root"), ended("child", 7)]
    journal_of(path, *tree)
    assert prune(path, before=NOW + 5 * DAY).trees == 0
    assert prune(path, before=NOW + 8 * DAY).runs == 2
    assert left(path) == []


def test_a_tree_with_an_error_stays_where_that_is_wanted(path: Path):
    failed = [begun("root"), ended("root", 1), begun("child", parent="root"), ended("child", 1, "error")]
    journal_of(path, *failed, begun("fine"), ended("fine", 1))
    assert prune(path, before=NOW + 5 * DAY, keep_failed=True).trees == 1
    assert left(path) == ["root", "child"]
    assert prune(path, before=NOW + 5 * DAY).trees == 1


def test_definitions_go_that_no_kept_run_refers_to(path: Path):
    journal_of(path, begun("old"), ended("old", 1), begun("also", digest="made of new"), ended("also", 1), begun("new"))
    assert prune(path, before=NOW + 5 * DAY).definitions == 1
    with closing(SqliteReader(path)) as reader:
        assert reader.definition("made of new") == b"definition"
        assert reader.definition("script") == b"script"
        with pytest.raises(DefinitionMissing):
            reader.definition("made of old")


def test_definitions_stay_while_a_process_that_hosts_runs_may_count_on_them(path: Path):
    journal_of(path, begun("old"), ended("old", 1))
    with closing(SqliteJournal(path, host=f"there:{os.getpid()}:1")) as journal:
        journal.beat(NOW)
        assert prune(path, before=NOW + 5 * DAY, now=NOW + 1).definitions == 0
    assert prune(path, before=NOW + 5 * DAY, now=NOW + 1000).definitions == 2


def test_definitions_stay_while_a_run_may_refer_to_any_of_them(path: Path):
    journal_of(path, begun("old"), ended("old", 1), begun("new"))
    changed(path, "UPDATE events SET payload = x'00' WHERE seq = 1 AND run = 2")
    pruned = prune(path, before=NOW + 5 * DAY)
    assert (pruned.runs, pruned.definitions) == (1, 0)


@pytest.mark.parametrize("kind", RENDERING, ids=lambda kind: kind.__name__)
@settings(max_examples=5)
@given(data=st.data())
def test_what_scripts_rendered_stays_as_long_as_a_run_shows_it(kind: type, data: st.DataObject):
    payload = msgspec.structs.replace(data.draw(of(kind)), renders=(("a", "shown"),))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        with closing(SqliteJournal(path)) as journal:
            journal.define("shown", b"shown")
            journal.define("gone", b"gone")
        journal_of(path, begun("new"), Event("new", 2, NOW, payload))
        prune(path, before=NOW + 5 * DAY)
        with closing(SqliteReader(path)) as reader:
            assert reader.definition("shown") == b"shown"
            with pytest.raises(DefinitionMissing):
                reader.definition("gone")


@pytest.mark.parametrize(
    "payload",
    [
        CallOpened(1, 1, (), NOW, tools="shown"),
        FactsRecorded("environment", "shown"),
        MemoryLoaded("empty", "shown"),
        ToolsFound((("tools/a.py", "shown"),)),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_what_a_run_was_given_or_offered_stays_as_long_as_it_does(path: Path, payload: Payload):
    with closing(SqliteJournal(path)) as journal:
        journal.define("shown", b"shown")
        journal.define("gone", b"gone")
    journal_of(path, begun("new"), Event("new", 2, NOW, payload))
    prune(path, before=NOW + 5 * DAY)
    with closing(SqliteReader(path)) as reader:
        assert reader.definition("shown") == b"shown"
        with pytest.raises(DefinitionMissing):
            reader.definition("gone")


def test_what_was_set_aside_of_a_run_goes_with_it(path: Path):
    journal_of(path, begun("old"), said(2, "old"), said(3, "old"))
    with closing(SqliteJournal(path)) as journal:
        journal.set_aside("old", 3)
        append(journal, ended("old", 1, seq=3))
        anyio.run(journal.barrier)
    prune(path, before=NOW + 5 * DAY)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM events").fetchone() == (0,)


def test_the_file_shrinks_to_what_is_left(path: Path):
    many = [said(seq, "old", "words " * 2000) for seq in range(2, 200)]
    journal_of(path, begun("old"), *many, ended("old", 1, seq=200), begun("new"))
    pruned = prune(path, before=NOW + 5 * DAY)
    assert pruned.shrunk
    assert pruned.bytes_before > 2_000_000
    assert pruned.bytes_after == path.stat().st_size < 200_000


def test_what_is_left_can_be_read_and_gone_on_with(path: Path):
    journal_of(path, begun("old"), ended("old", 1), begun("new"), said(2, "new"))
    prune(path, before=NOW + 5 * DAY)
    with closing(SqliteJournal(path)) as journal:
        append(journal, said(3, "new"))
        anyio.run(journal.barrier)
        assert [event.seq for event in journal.read("new")] == [1, 2, 3]


def test_a_process_that_has_the_journal_open_goes_on(path: Path):
    with closing(SqliteJournal(journal_of(path, begun("old"), ended("old", 1), begun("new")))) as journal:
        assert prune(path, before=NOW + 5 * DAY).runs == 1
        append(journal, said(2, "new"))
        anyio.run(journal.barrier)
        assert [event.seq for event in journal.read("new")] == [1, 2]


def test_the_file_shrinks_another_time_where_somebody_is_in_the_way(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.runtime.journal._file.BUSY_MS", 10)
    journal_of(path, begun("old"), ended("old", 1))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        assert not prune(path, before=NOW + 5 * DAY).shrunk
    assert left(path) == []


def test_a_journal_that_is_locked_for_long_is_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.runtime.journal._file.BUSY_MS", 10)
    journal_of(path, begun("old"), ended("old", 1))
    with held_by_another(path), pytest.raises(JournalFailed, match="cannot be pruned"):
        prune(path, before=NOW + 5 * DAY)
    assert left(path) == ["old"]


def test_nothing_is_made_where_there_is_no_journal(path: Path):
    with pytest.raises(JournalFailed, match="there is no journal"):
        prune(path, before=NOW)
    assert not path.exists()


def test_a_journal_of_a_newer_version_is_left_alone(path: Path):
    changed(journal_of(path, begun("old"), ended("old", 1)), "UPDATE meta SET value = 99")
    with pytest.raises(JournalNewer):
        prune(path, before=NOW + 5 * DAY)


def test_a_tree_that_cannot_be_deleted_whole_is_not_deleted_at_all(path: Path):
    journal_of(path, begun("old"), ended("old", 1))
    changed(path, "CREATE TRIGGER keep BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'kept'); END")
    with pytest.raises(JournalFailed, match="cannot be pruned: kept"):
        prune(path, before=NOW + 5 * DAY)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM events").fetchone() == (2,)


def test_the_file_does_not_shrink_while_somebody_writes(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.runtime.journal._file.BUSY_MS", 10)
    journal_of(path, begun("old"), ended("old", 1))
    forget = _retention._forget_definitions
    with closing(sqlite3.connect(path, isolation_level=None)) as other:

        def forget_and_begin(db: sqlite3.Connection) -> int:
            count = forget(db)
            other.execute("BEGIN IMMEDIATE")
            return count

        monkeypatch.setattr(_retention, "_forget_definitions", forget_and_begin)
        monkeypatch.setattr(_retention, "_forget_parts", lambda _db: 0)
        assert not prune(path, before=NOW + 5 * DAY).shrunk
