"""The journal's file: who may read it, what it refuses to be, and what becomes of it when it is damaged."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from journalkit import append, changed, held_by_another, line, said, seqs, spawned

from shoal.errors import ConfigInvalid, JournalDamaged, JournalFailed, JournalNewer
from shoal.runtime import Event, SqliteJournal, SqliteReader
from shoal.runtime.journal import FORMAT
from shoal.runtime.journal import _file as file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "runs.db"


def written(path: Path, *events: Event) -> Path:
    """Make a journal of *events* at *path* and close it."""
    journal = SqliteJournal(path)
    append(journal, *(events or line(3)))
    journal.close()
    return path


def read(path: Path, run_id: str = "r") -> list[Event]:
    with closing(SqliteReader(path)) as reader:
        return list(reader.read(run_id))


def read_until_damage(path: Path) -> tuple[list[int], JournalDamaged]:
    good: list[int] = []
    with closing(SqliteReader(path)) as reader, pytest.raises(JournalDamaged) as caught:
        good.extend(event.seq for event in reader.read("r"))
    return good, caught.value


# --- making it


def test_the_file_and_its_folder_are_the_users_alone(path: Path):
    journal = SqliteJournal(path)
    append(journal, *line(2))
    anyio.run(journal.barrier)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (path.parent, *path.parent.iterdir())}
    assert modes == {"folder": 0o700, "runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}
    journal.close()


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path):
    tmp_path.chmod(0o755)
    written(tmp_path / "runs.db")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_closing_leaves_one_file(path: Path):
    written(path)
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


def test_its_pages_are_big_enough_for_most_events(path: Path):
    written(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA page_size").fetchone() == (8192,)


@pytest.mark.parametrize(("durability", "synchronous"), [("off", 0), ("normal", 1), ("full", 2)])
def test_durability_decides_what_is_synced(path: Path, durability: str, synchronous: int):
    with closing(SqliteJournal(path, durability=durability)) as journal:  # type: ignore[arg-type]
        assert journal._writing.execute("PRAGMA synchronous").fetchone() == (synchronous,)


def test_durability_stays_as_asked_when_a_file_is_opened_again(path: Path):
    written(path)
    with closing(SqliteJournal(path, durability="full")) as journal:
        assert journal._writing.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_durability_that_does_not_exist_is_refused(path: Path):
    with pytest.raises(ConfigInvalid, match="'nromal'"):
        SqliteJournal(path, durability="nromal")  # type: ignore[arg-type]
    assert not path.exists()


def test_a_journal_goes_on_where_it_was(path: Path):
    written(path, *line(2))
    written(path, said(3))
    assert read(path) == line(3)


def test_a_journal_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    journal = SqliteJournal("runs.db", host="here")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    append(journal, spawned())
    journal.beat(1.0)
    journal.close()
    assert not any((tmp_path / "elsewhere").iterdir())


def test_many_processes_may_make_one_journal_at_the_same_time(path: Path):
    together = threading.Barrier(6)
    failed: list[Exception] = []

    def make() -> None:
        together.wait()
        try:
            SqliteJournal(path).close()
        except JournalFailed as exc:
            failed.append(exc)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


# --- what it refuses


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_there_is_nothing_to_read_where_there_is_no_file(path: Path):
    with pytest.raises(JournalFailed, match="there is no journal at"):
        SqliteReader(path)
    assert not path.parent.exists()


def test_a_folder_is_no_journal(tmp_path: Path):
    with pytest.raises(JournalFailed, match="no journal"):
        SqliteReader(tmp_path)
    with pytest.raises(JournalFailed, match="cannot be opened as a journal"):
        SqliteJournal(tmp_path)


@pytest.mark.parametrize("opener", [SqliteJournal, SqliteReader])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, opener: type[SqliteReader]):
    other = tmp_path / "notes.txt"
    other.write_text("These are my notes. " * 1000)
    with pytest.raises(JournalFailed, match="as a journal"):
        opener(other)
    assert other.read_text() == "These are my notes. " * 1000


@pytest.mark.parametrize("opener", [SqliteJournal, SqliteReader])
@pytest.mark.parametrize("table", ["accounts (name)", "meta (name)", "meta (key, value)"])
def test_the_database_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, opener: type[SqliteReader], table: str
):
    other = tmp_path / "other.db"
    changed(
        other,
        f"CREATE TABLE {table}",
        f"INSERT INTO {table.partition(' ')[0]} VALUES ({'1, 2' if ',' in table else '1'})",
    )
    before = other.read_bytes()
    with pytest.raises(JournalFailed, match="journal"):
        opener(other)
    assert other.read_bytes() == before


@pytest.mark.parametrize("opener", [SqliteJournal, SqliteReader])
def test_a_newer_format_is_refused_by_its_number_and_left_alone(path: Path, opener: type[SqliteReader]):
    changed(written(path), f"UPDATE meta SET value = {FORMAT + 1}", "DROP TABLE hosts")
    before = path.read_bytes()
    with pytest.raises(JournalNewer, match=f"has format {FORMAT + 1} and this version reads formats 1 to {FORMAT}"):
        opener(path)
    assert path.read_bytes() == before


def test_of_two_processes_that_open_a_file_of_an_earlier_format_one_brings_it_up_to_date(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    older = ("detached", "questions")
    changed(written(path), *[f"ALTER TABLE runs DROP COLUMN {name}" for name in older], "UPDATE meta SET value = 1")
    look = file._check_format

    def and_then_another_does(db: sqlite3.Connection, where: Path) -> int:
        found = look(db, where)
        monkeypatch.setattr(file, "_check_format", look)
        SqliteJournal(path).close()
        return found

    monkeypatch.setattr(file, "_check_format", and_then_another_does)
    with closing(SqliteJournal(path)) as journal:
        assert [(run.detached, run.questions) for run in journal.runs()] == [(False, 0)]
    assert len(read(path)) == 3


@pytest.mark.parametrize("opener", [SqliteJournal, SqliteReader])
def test_a_format_that_is_no_number_is_no_journal(path: Path, opener: type[SqliteReader]):
    changed(written(path), "UPDATE meta SET value = 'nine'")
    with pytest.raises(JournalFailed, match="is no journal"):
        opener(path)


def test_a_file_that_was_cut_is_refused(path: Path):
    os.truncate(written(path, *line(50)), 5000)
    with pytest.raises(JournalFailed, match="cannot be"):
        SqliteReader(path)


def test_what_was_refused_is_not_kept_open(path: Path):
    changed(written(path), "UPDATE meta SET value = 99")
    before = open_files()
    for opener in (SqliteJournal, SqliteReader):
        with pytest.raises(JournalNewer):
            opener(path)
    assert open_files() == before


def as_nobody(code: str, *args: str) -> str:
    """Run *code* as a user who may read everything and write nothing of ours, and return what it printed."""
    drop = "import os, sys\nif os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
    # Imported before: the modules may lie where only we can read them.
    loaded = "import shoal.runtime\nfrom shoal.runtime import *\nfrom shoal.errors import *\n"
    done = subprocess.run(
        [sys.executable, "-c", loaded + drop + code, *args], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def locked() -> Iterator[Path]:
    """A journal of three events in a folder that everybody may read and nobody write."""
    # Not below `tmp_path`, which others may not enter.
    folder = Path(tempfile.mkdtemp())
    path = written(folder / "runs.db")
    path.chmod(0o444)
    folder.chmod(0o555)
    yield path
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_journal_in_a_folder_that_is_read_only_can_be_read(locked: Path):
    code = "print([event.seq for event in SqliteReader(sys.argv[1]).read('r')])"
    assert as_nobody(code, str(locked)) == "[1, 2, 3]"


def test_a_journal_that_nobody_has_open_is_read_without_making_files(path: Path, monkeypatch: pytest.MonkeyPatch):
    written(path)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with closing(SqliteReader(path)) as reader:
        assert [file.name for file in path.parent.iterdir()] == ["runs.db"]
        assert [event.seq for event in reader.read("r")] == [1, 2, 3]


def test_a_journal_in_a_folder_that_is_read_only_cannot_be_written(locked: Path):
    code = "try: SqliteJournal(sys.argv[1])\nexcept JournalFailed as exc: print(exc)"
    assert "cannot be opened as a journal" in as_nobody(code, str(locked))
    assert "cannot be opened as a journal" in as_nobody(code, str(locked.with_name("new.db")))


# --- damage


def test_a_torn_event_is_reported_with_its_place_and_those_before_it_are_good(path: Path):
    changed(written(path, *line(5)), "UPDATE events SET payload = substr(payload, 1, 9) WHERE seq = 4")
    good, damage = read_until_damage(path)
    assert good == [1, 2, 3]
    assert (damage.run_id, damage.seq) == ("r", 4)
    assert "event 4 of run r cannot be read" in str(damage)


@pytest.mark.parametrize(
    "column", ["payload = x'ff'", "payload = 7", "payload = ''", "payload = '[1, 2]'", "at = 'noon'"]
)
def test_an_event_that_makes_no_sense_is_reported(path: Path, column: str):
    changed(written(path, *line(3)), f"UPDATE events SET {column} WHERE seq = 2")
    good, damage = read_until_damage(path)
    assert (good, damage.seq) == ([1], 2)


def test_a_missing_event_is_reported_with_the_event_to_go_on_from(path: Path):
    changed(written(path, *line(5)), "DELETE FROM events WHERE seq = 3")
    good, damage = read_until_damage(path)
    assert (good, damage.seq) == ([1, 2], 3)
    assert "has no event 3; resume it from event 2" in str(damage)


def test_a_page_that_was_overwritten_is_reported_with_the_event_it_stands_behind(path: Path):
    written(path, *line(2_000))
    data = bytearray(path.read_bytes())
    for page in range(12, len(data) // 8192):
        data[page * 8192 : page * 8192 + 64] = b"\xff" * 64
    path.write_bytes(data)
    good, damage = read_until_damage(path)
    assert good == list(range(1, len(good) + 1))
    assert damage.seq == len(good) + 1
    assert f"is damaged behind event {len(good)} of run r" in str(damage)


def test_an_event_of_a_later_version_is_passed_over_and_kept(path: Path):
    changed(written(path, *line(3)), "UPDATE events SET kind = 9999, payload = x'00' WHERE seq = 2")
    assert [event.seq for event in read(path)] == [1, 3]


def test_damage_to_one_run_leaves_the_others_alone(path: Path):
    written(path, *line(3), *line(3, "other"))
    changed(path, "DELETE FROM events WHERE run = 1 AND seq = 2")
    assert len(read(path, "other")) == 3


# --- other processes


def test_a_reader_sees_what_another_connection_commits_meanwhile(path: Path):
    journal = SqliteJournal(path)
    append(journal, spawned())
    anyio.run(journal.barrier)
    with closing(SqliteReader(path)) as reader:
        events = reader.read("r")
        assert next(events).seq == 1
        append(journal, said(2))
        anyio.run(journal.barrier)
        assert seqs(reader) == [1, 2]  # type: ignore[arg-type]
    journal.close()


WRITER = """
import sys, anyio
sys.path.insert(0, sys.argv[2])
from journalkit import line
from shoal.runtime import SqliteJournal

async def main():
    journal = SqliteJournal(sys.argv[1])
    for event in line(int(sys.argv[4]), sys.argv[3]):
        journal.append(event)
        await journal.barrier()
    journal.close()

anyio.run(main)
"""


def writer(path: Path, run_id: str, events: int) -> subprocess.Popen[bytes]:
    kit = str(Path(__file__).parent.parent)
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), kit, run_id, str(events)])


def test_a_process_reads_in_order_what_another_writes(path: Path):
    written(path, spawned("other"))
    seen: list[int] = []
    with closing(SqliteReader(path)) as reader:
        process = writer(path, "r", 400)
        while process.poll() is None or len(seen) < 400:
            seen.extend(event.seq for event in reader.read("r", after=len(seen)))
    assert process.returncode == 0
    assert seen == list(range(1, 401))


def test_two_processes_write_to_one_journal(path: Path):
    written(path, spawned("other"))
    processes = [writer(path, run_id, 200) for run_id in ("a", "b")]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(read(path, "a")) == len(read(path, "b")) == 200


# --- checkpoints


def test_a_checkpoint_brings_the_log_into_the_file(path: Path):
    journal = SqliteJournal(path)
    append(journal, *line(500))
    anyio.run(journal.barrier)
    before = path.stat().st_size
    file.checkpoint(path)
    assert path.stat().st_size > before
    journal.close()


def test_a_checkpoint_does_not_wait_for_somebody_who_writes(path: Path, monkeypatch: pytest.MonkeyPatch):
    answers: list[tuple[int, int, int]] = []

    class Checkpointing(sqlite3.Connection):
        def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
            cursor = super().execute(sql, *more)
            answers.append(cursor.fetchone())
            return cursor

    journal = SqliteJournal(path)
    append(journal, *line(3))
    anyio.run(journal.barrier)
    with held_by_another(path), monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Checkpointing))
        file.checkpoint(path)
    [(had_to_wait, pages, brought_over)] = answers
    assert (had_to_wait, brought_over) == (0, pages)
    assert pages > 0
    journal.close()


def test_a_checkpoint_that_cannot_be_made_does_no_harm(tmp_path: Path):
    damaged = b"no database " * 1000
    (tmp_path / "runs.db").write_bytes(damaged)
    file.checkpoint(tmp_path / "runs.db")
    file.checkpoint(tmp_path / "gone" / "runs.db")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"runs.db": damaged}


class Contended(sqlite3.Connection):
    """A connection to a file of which another process makes a journal: SQLite refuses it two times, at once."""

    refusals = 2

    def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
        if self.refusals:
            self.refusals -= 1
            raise sqlite3.OperationalError("database is locked")
        return super().execute(sql, *more)


def test_whoever_makes_a_new_file_together_with_others_waits_for_them(tmp_path: Path):
    db = sqlite3.connect(tmp_path / "new.db", factory=Contended)
    file.write_ahead(db)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


def test_nobody_waits_for_ever_for_others_who_make_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file, "BUSY_MS", 0)
    db = sqlite3.connect(tmp_path / "new.db", factory=Contended)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        file.write_ahead(db)
    db.close()
