"""The store of parts: bytes once by their digest, durable with their events, gone with the last run that names them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint
from journalkit import JOURNALS, NOW, append, changed, fill_disk, held_by_another, said, served, spawned

from shoal.errors import JournalFailed, PartMissing
from shoal.runtime import Event, Journal, MemoryJournal, PartStored, SqliteJournal, SqliteReader
from shoal.runtime.events import RunEnded
from shoal.runtime.journal import prune
from shoal.runtime.journal._commit import HEAVY_BYTES

DATA = b"\xffbytes"
SAMPLES = Path(__file__).parents[1] / "data" / "journals"
LATER = NOW + 1e9


def stored(seq: int, run_id: str = "r", digest: str = "d") -> Event:
    return Event(run_id, seq, NOW, PartStored(digest, "hero.png", "image/png", len(DATA)))


def over(seq: int, run_id: str = "r") -> Event:
    return Event(run_id, seq, NOW, RunEnded("complete", "over"))


def held(path: Path) -> list[str]:
    """Return the digests of the parts in the file."""
    with closing(sqlite3.connect(path)) as db:
        return [digest for (digest,) in db.execute("SELECT digest FROM parts ORDER BY digest")]


def keep(journal: Journal, *events: Event) -> None:
    """Append *events*, with the bytes of the parts that they tell of."""
    for event in events:
        if isinstance(event.payload, PartStored):
            journal.store(event.payload.digest, DATA)
    append(journal, *events)
    anyio.run(journal.barrier)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture(params=JOURNALS)
async def journal(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Journal]:
    async with served(JOURNALS[request.param](path)) as journal:
        yield journal


# --- in and out


@pytest.mark.anyio
async def test_a_part_can_be_read_before_and_after_it_is_durable(journal: Journal):
    journal.store("d", DATA)
    append(journal, spawned(), stored(2))
    assert journal.part("d") == DATA
    await journal.barrier()
    assert journal.part("d") == DATA
    assert await anyio.to_thread.run_sync(journal.part, "d") == DATA


@pytest.mark.anyio
async def test_the_same_bytes_are_kept_once_whoever_brings_them(journal: Journal):
    for run_id in ("a", "b"):
        journal.store("d", DATA)
        journal.store("d", DATA)
        append(journal, spawned(run_id), stored(2, run_id))
        await journal.barrier()
    assert journal.part("d") == DATA
    if isinstance(journal, SqliteJournal):
        assert held(journal.path) == ["d"]


@pytest.mark.anyio
async def test_a_part_that_is_not_held_is_missing(journal: Journal):
    append(journal, spawned())
    await journal.barrier()
    with pytest.raises(PartMissing, match="holds no part 'd'"):
        journal.part("d")


def test_parts_are_there_when_the_journal_is_opened_again(path: Path):
    with closing(SqliteJournal(path)) as journal:
        keep(journal, spawned(), stored(2))
    with closing(SqliteReader(path)) as reader:
        assert reader.part("d") == DATA
    with closing(SqliteJournal(path)) as journal:
        assert journal.part("d") == DATA


def test_bytes_are_no_less_durable_than_what_tells_of_them(path: Path):
    journal = SqliteJournal(path)
    keep(journal, spawned())
    fill_disk(journal)
    journal.store("big", bytes(HEAVY_BYTES))
    append(journal, said(2), stored(3, digest="big"))
    with pytest.raises(JournalFailed):
        anyio.run(journal.barrier)
    journal.close()
    assert held(path) == []
    with closing(SqliteReader(path)) as reader:
        assert [event.seq for event in reader.read("r")] == [1]


@pytest.mark.anyio
@pytest.mark.parametrize(("size", "flies"), [(HEAVY_BYTES, False), (HEAVY_BYTES + 1, True)])
async def test_what_is_large_is_written_in_the_thread(path: Path, size: int, flies: bool):
    journal = SqliteJournal(path)
    async with served(journal):
        append(journal, spawned())
        await journal.barrier()
        if not flies:
            journal.store("d", bytes(size))
            await checkpoint()
            await checkpoint()
            assert held(path) == ["d"]
            return
        with held_by_another(path):
            journal.store("d", bytes(size))
            await checkpoint()
            await checkpoint()
            assert journal._flying is not None
            assert journal.part("d") == bytes(size)
        append(journal, stored(2))
        await journal.barrier()
        assert not journal._in_thread
        assert journal.part("d") == bytes(size)


# --- what another version, or somebody else, left


def test_a_journal_of_an_earlier_version_holds_no_parts(path: Path):
    shutil.copy(SAMPLES / "format-2.db", path)
    with closing(SqliteReader(path)) as reader, pytest.raises(PartMissing, match="part 'd': no such table"):
        reader.part("d")


def test_a_journal_of_an_earlier_version_takes_parts_once_it_is_written_to(path: Path):
    with closing(SqliteJournal(Path(shutil.copy(SAMPLES / "format-2.db", path)))) as journal:
        keep(journal, spawned(), stored(2))
        assert journal.part("d") == DATA


def test_a_part_whose_row_was_deleted_is_missing(path: Path):
    with closing(SqliteJournal(path)) as journal:
        keep(journal, spawned(), stored(2))
    changed(path, "DELETE FROM parts")
    with closing(SqliteReader(path)) as reader, pytest.raises(PartMissing, match="holds no part"):
        reader.part("d")


# --- retention


def test_parts_go_with_the_last_run_that_names_them(path: Path):
    with closing(SqliteJournal(path)) as journal:
        keep(journal, spawned("a"), stored(2, "a"), stored(3, "a", "both"), over(4, "a"))
        keep(journal, spawned("b"), stored(2, "b", "both"))
    assert prune(path, before=LATER).parts == 1
    assert held(path) == ["both"]
    with closing(SqliteJournal(path)) as journal:
        append(journal, over(3, "b"))
    assert prune(path, before=LATER).parts == 1
    assert held(path) == []


def test_parts_of_a_run_that_is_not_over_stay(path: Path):
    with closing(SqliteJournal(path)) as journal:
        keep(journal, spawned(), stored(2))
    assert prune(path, before=LATER).parts == 0
    assert held(path) == ["d"]


def test_parts_stay_while_a_process_that_hosts_runs_may_count_on_them(path: Path):
    with closing(SqliteJournal(path)) as journal:
        keep(journal, spawned(), stored(2), over(3))
    with closing(SqliteJournal(path, host=f"there:{os.getpid()}:1")) as journal:
        journal.beat(NOW)
        assert prune(path, before=LATER, now=NOW + 1).parts == 0
        assert held(path) == ["d"]
    assert prune(path, before=LATER, now=NOW + 1000).parts == 1


def test_bytes_that_no_event_tells_of_are_swept(path: Path):
    with closing(SqliteJournal(path)) as journal:
        journal.store("d", DATA)
        keep(journal, spawned())
    assert prune(path, before=LATER).parts == 1


def test_a_copy_of_a_run_keeps_its_parts(path: Path):
    with closing(SqliteJournal(path)) as journal:
        keep(journal, spawned("a"), stored(2, "a"), over(3, "a"), spawned("b"))
        journal.graft(stored(2, "b"))
        anyio.run(journal.barrier)
    pruned = prune(path, before=LATER)
    assert (pruned.runs, pruned.parts, held(path)) == (1, 0, ["d"])


def test_a_journal_in_memory_keeps_parts_as_long_as_it_lives():
    with closing(MemoryJournal()) as journal:
        keep(journal, spawned(), stored(2), over(3))
        assert journal.part("d") == DATA
