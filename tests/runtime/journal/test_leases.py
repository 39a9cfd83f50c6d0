"""Which process hosts a run: two never do, and one that is gone loses its runs."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from shoal.errors import JournalDamaged, JournalFailed, RunOwned
from shoal.providers import Text
from shoal.runtime import Event, SqliteJournal, SqliteReader
from shoal.runtime.events import RunEnded, RunSpawned, StageEntered
from shoal.runtime.journal import STALE_S, host_name

NOW = 1_767_225_600.0
RUN = "0190-a"


def spawned(run_id: str = RUN) -> Event:
    return Event(run_id, 1, NOW, RunSpawned("digest", "d", Text.of("t"), (), "/", None, run_id, 0))


def entered(seq: int, run_id: str = RUN) -> Event:
    return Event(run_id, seq, NOW, StageEntered("survey", 1, "offline", "offline", 8000))


OPEN: list[SqliteReader] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close what a test opened."""
    yield
    while OPEN:
        OPEN.pop().close()


def reading(path: Path) -> SqliteReader:
    OPEN.append(SqliteReader(path))
    return OPEN[-1]


def opened(path: Path, host: str | None, *events: Event) -> SqliteJournal:
    journal = SqliteJournal(path, host=host)
    OPEN.append(journal)
    for event in events:
        journal.append(event)
    if events:
        anyio.run(committed, journal)
    return journal


async def committed(journal: SqliteJournal) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.serve)
        await journal.barrier()
        tasks.cancel_scope.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@contextlib.contextmanager
def edited(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        yield db


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_host_that_beats_owns_its_runs(path: Path):
    first = opened(path, host_name(), spawned())
    first.beat(NOW)
    second = opened(path, host_name())
    assert list(second.owners(now=NOW + 1)) == [RUN]
    assert str(os.getpid()) in second.owners(now=NOW + 1)[RUN]


def test_a_process_is_no_other_to_itself(path: Path):
    first = opened(path, host_name(), spawned())
    first.beat(NOW)
    assert first.owners(now=NOW) == {}


def test_the_other_processes_are_those_that_live_but_for_oneself(path: Path):
    first, second = opened(path, host_name(), spawned()), opened(path, host_name())
    first.beat(NOW)
    second.beat(NOW + 5)
    assert (first.others(now=NOW + 5), second.others(now=NOW + 5)) == ({second.host}, {first.host})
    assert (first.others(), second.others(now=NOW + STALE_S + 1)) == (set(), set())


def test_a_key_that_is_given_back_is_free_for_others(path: Path):
    first, second = opened(path, host_name()), opened(path, host_name())
    first.beat(NOW)
    assert first.reserve("k", "a", now=NOW) == "a"
    second.give_back("k")  # it is not the one who reserved it
    assert second.reserve("k", "b", now=NOW) is None
    first.give_back("k")
    assert second.reserve("k", "b", now=NOW) == "b"


def test_a_run_that_is_over_has_no_owner(path: Path):
    first = opened(path, host_name(), spawned(), Event(RUN, 2, NOW, RunEnded("complete", "")))
    first.beat(NOW)
    assert reading(path).owners(now=NOW) == {}


def test_a_host_that_is_silent_for_too_long_has_lost_its_runs(path: Path):
    first = opened(path, host_name(), spawned())
    first.beat(NOW)
    reader = reading(path)
    assert list(reader.owners(now=NOW + STALE_S)) == [RUN]
    assert reader.owners(now=NOW + STALE_S + 0.1) == {}


def test_a_host_whose_process_is_gone_has_lost_its_runs_at_once(path: Path):
    first = opened(path, host_name(), spawned())
    first.beat(NOW)
    with edited(path) as db:
        db.execute("UPDATE hosts SET pid = ?", (dead_pid(),))
    assert reading(path).owners(now=NOW) == {}


def test_a_process_that_had_the_id_of_this_one_before_is_gone(path: Path):
    machine, number, _ = host_name().split(":")
    first = opened(path, f"{machine}:{number}:0badc0de", spawned())
    first.beat(NOW)
    second = opened(path, host_name())
    assert (second.owners(now=NOW), second.others(now=NOW)) == ({}, set())
    second.claim([RUN], now=NOW)


def test_a_process_id_of_another_machine_says_nothing(path: Path):
    first = opened(path, f"elsewhere:{dead_pid()}:00", spawned())
    first.beat(NOW)
    with edited(path) as db:
        db.execute("UPDATE hosts SET pid = ?", (dead_pid(),))
    assert list(reading(path).owners(now=NOW)) == [RUN]


def test_a_run_that_a_live_process_hosts_cannot_be_claimed(path: Path):
    first = opened(path, host_name(), spawned(), spawned("0190-b"))
    first.beat(NOW)
    first.claim(["0190-b"], now=NOW)
    second = opened(path, "free:1:00")
    with pytest.raises(RunOwned, match=str(os.getpid())) as caught:
        second.claim([RUN], now=NOW)
    assert caught.value.run_id == RUN


def test_a_refused_claim_takes_none_of_the_runs(path: Path):
    first = opened(path, host_name(), spawned())
    first.beat(NOW)
    second = opened(path, "free:1:00", spawned("0190-b"))
    third = opened(path, "third:1:00")
    with pytest.raises(RunOwned):
        third.claim(["0190-b", RUN], now=NOW)
    assert second.find("0190-b").host == "free:1:00"


def test_what_was_left_can_be_claimed(path: Path):
    first = opened(path, host_name(), spawned())
    first.beat(NOW)
    first.leave()
    second = opened(path, host_name())
    second.beat(NOW)
    second.claim([RUN], now=NOW)
    assert (first.hosts().keys(), second.find(RUN).host) == ({second.host}, second.host)


def test_a_nameless_process_hosts_nothing(path: Path):
    first = opened(path, None, spawned())
    first.beat(NOW)
    assert (first.hosts(), first.owners(now=NOW)) == ({}, {})


def test_the_wall_clock_serves_where_no_time_is_given(path: Path):
    first = opened(path, host_name(), spawned())
    first.beat(NOW)
    second = opened(path, host_name())
    assert second.owners() == {}
    second.claim([RUN])
    assert second.find(RUN).host == second.host


def test_another_users_process_counts_as_alive(path: Path, monkeypatch: pytest.MonkeyPatch):
    first = opened(path, host_name(), spawned())
    first.beat(NOW)

    def refuse(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert list(reading(path).owners(now=NOW)) == [RUN]


def test_a_lease_that_cannot_be_written_says_so(path: Path):
    journal = opened(path, host_name())
    with edited(path) as db:
        db.execute("DROP TABLE hosts")
    with pytest.raises(JournalFailed, match="cannot be written"):
        journal.beat(NOW)


def test_a_host_that_slept_through_its_lease_cannot_write_over_the_new_one(path: Path):
    asleep = opened(path, host_name(), spawned())
    awake = opened(path, host_name())
    awake.claim([RUN], now=NOW)
    awake.append(entered(2))
    anyio.run(committed, awake)
    asleep.append(entered(2))
    with pytest.RaisesGroup(pytest.RaisesExc(JournalFailed, match="another process went on")):
        anyio.run(committed, asleep)
    assert [event.seq for event in reading(path).read(RUN)] == [1, 2]


@pytest.mark.parametrize("name", ["with ?.db", "with #.db", "100%25.db", "two words.db"])
def test_a_journal_may_have_any_name(tmp_path: Path, name: str):
    opened(tmp_path / name, host_name(), spawned())
    assert reading(tmp_path / name).find(RUN).name == "digest"


def test_a_closed_journal_says_that_it_is_closed(path: Path):
    journal = opened(path, host_name(), spawned())
    journal.close()
    with pytest.raises(JournalFailed, match="is closed"):
        journal.runs()


def test_a_damaged_file_is_reported_and_not_a_bug(path: Path):
    opened(path, host_name(), spawned()).close()
    reader = reading(path)
    with edited(path) as db:
        db.execute("DROP TABLE runs")
    with pytest.raises(JournalDamaged, match="cannot be read"):
        reader.find(RUN)


def test_a_register_row_that_makes_no_sense_is_reported(path: Path):
    opened(path, host_name(), spawned()).close()
    with edited(path) as db:
        db.execute("UPDATE runs SET status = 'dancing'")
    with pytest.raises(JournalDamaged, match="dancing"):
        reading(path).runs()


def test_a_file_without_a_format_is_no_journal_yet(path: Path):
    opened(path, host_name()).close()
    with edited(path) as db:
        db.execute("DELETE FROM meta")
    with pytest.raises(JournalFailed, match="just being made"):
        reading(path)


def test_what_a_process_says_of_itself_is_heard_while_it_lives(path: Path):
    first, second = opened(path, host_name()), opened(path, host_name())
    first.beat(NOW, b"one")
    second.beat(NOW, b"two")
    assert sorted(first.said(now=NOW).values()) == [b"one", b"two"]
    first.beat(NOW + 1)
    first.beat(NOW + 2, b"more")
    assert sorted(second.said(now=NOW + 2).values()) == [b"more", b"two"]
    first.leave()
    assert list(second.said(now=NOW + 2).values()) == [b"two"]


def test_what_was_said_by_one_who_fell_silent_is_dropped(path: Path):
    first, second = opened(path, host_name()), opened(path, host_name())
    first.beat(NOW, b"one")
    second.beat(NOW + STALE_S + 1, b"two")
    assert list(second.said(now=NOW + STALE_S + 1).values()) == [b"two"]
    assert second._query("SELECT value FROM meta WHERE key LIKE 'said %'") == [(b"two",)]
