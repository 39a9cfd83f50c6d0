"""Group commit: what is durable together, what a barrier waits for, and what becomes of a commit that fails."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from journalkit import NOW, append, fill_disk, held_by_another, line, said, seqs, served, spawned

from shoal.errors import DefinitionMissing, JournalFailed
from shoal.runtime import Event, SqliteJournal, SqliteReader
from shoal.runtime.events import RunTitled
from shoal.runtime.journal import _sqlite

pytestmark = pytest.mark.anyio

BIG = "x" * 200_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture(params=["normal", "full"])
async def journal(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(path, durability=request.param)
    append(journal, spawned())
    async with served(journal):
        await journal.barrier()
        yield journal


@pytest.fixture
async def threaded(path: Path) -> AsyncIterator[SqliteJournal]:
    """A journal that commits in its thread, with one event."""
    journal = SqliteJournal(path, durability="full")
    append(journal, spawned())
    async with served(journal):
        await journal.barrier()
        yield journal


def commits(journal: SqliteJournal) -> list[str]:
    """Return a list that will name each statement that ends a transaction."""
    seen: list[str] = []
    ends = ("COMMIT", "ROLLBACK")
    journal._writing.set_trace_callback(lambda sql: seen.append(sql) if sql in ends else None)
    return seen


async def acknowledged(journal: SqliteJournal, into: list[object]) -> None:
    """Wait at a barrier, and note whether it let us pass."""
    try:
        await journal.barrier()
        into.append("durable")
    except JournalFailed as exc:
        into.append(exc)


def durable(path: Path, run_id: str = "r") -> list[int]:
    """Return what another process could read."""
    with closing(SqliteReader(path)) as reader:
        return [event.seq for event in reader.read(run_id)]


def size(path: Path) -> int:
    return path.stat().st_size


# --- groups


async def test_what_all_runs_append_in_one_pass_of_the_loop_is_one_commit(journal: SqliteJournal):
    ended = commits(journal)

    async def work(run_id: str) -> None:
        append(journal, *line(3, run_id))
        await journal.barrier()

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(work, f"run-{number}")
    assert ended == ["COMMIT"]


async def test_appends_of_different_passes_are_different_commits(journal: SqliteJournal):
    ended = commits(journal)
    for seq in (2, 3, 4):
        append(journal, said(seq))
        await journal.barrier()
    assert ended == ["COMMIT"] * 3


async def test_a_batch_shows_what_became_of_it(journal: SqliteJournal):
    append(journal, said(2), said(3))
    batch = journal._batch
    before = repr(batch)
    await journal.barrier()
    assert (before, repr(batch)) == ("<Batch of 2 events>", "<Batch of 2 events, settled>")


async def test_waiting_twice_for_the_same_costs_one_commit(journal: SqliteJournal):
    ended = commits(journal)
    append(journal, said(2))
    await journal.barrier()
    await journal.barrier()
    assert ended == ["COMMIT"]


# --- in the thread


async def test_at_full_durability_the_loop_goes_on_while_a_commit_runs(threaded: SqliteJournal, path: Path):
    passes = 0
    with held_by_another(path):
        append(threaded, said(2))
        for _ in range(20):
            await checkpoint()
            passes += 1
        assert (passes, durable(path)) == (20, [1])
    await threaded.barrier()
    assert durable(path) == [1, 2]


async def test_a_barrier_waits_for_the_commit_that_is_under_way(threaded: SqliteJournal, path: Path):
    said_so: list[object] = []
    async with anyio.create_task_group() as tasks:
        with held_by_another(path):
            append(threaded, said(2))
            await checkpoint()
            await checkpoint()
            assert threaded._flying is not None
            tasks.start_soon(acknowledged, threaded, said_so)
            for _ in range(10):
                await checkpoint()
            assert said_so == []
    assert said_so == ["durable"]


async def test_what_is_appended_during_a_commit_is_neither_lost_nor_acknowledged_early(
    threaded: SqliteJournal, path: Path
):
    said_so: list[object] = []
    async with anyio.create_task_group() as tasks:
        with held_by_another(path):
            append(threaded, said(2))
            while threaded._flying is None:
                await checkpoint()
            append(threaded, said(3))
            tasks.start_soon(acknowledged, threaded, said_so)
            for _ in range(10):
                await checkpoint()
            assert (said_so, durable(path)) == ([], [1])
    assert (said_so, durable(path)) == (["durable"], [1, 2, 3])


async def test_a_cancel_does_not_cut_a_commit_that_has_begun(path: Path):
    journal = SqliteJournal(path, durability="full")
    said_so: list[object] = []
    async with anyio.create_task_group() as waiting, anyio.create_task_group() as tasks:
        tasks.start_soon(journal.serve)
        await wait_all_tasks_blocked()
        with held_by_another(path):
            append(journal, *line(2))
            while journal._flying is None:
                await checkpoint()
            waiting.start_soon(acknowledged, journal, said_so)
            await checkpoint()
            tasks.cancel_scope.cancel()
    assert (said_so, durable(path)) == (["durable"], [1, 2])
    journal.close()


async def test_closing_waits_for_the_commit_that_is_under_way(path: Path):
    journal = SqliteJournal(path, durability="full")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.serve)
        await wait_all_tasks_blocked()
        append(journal, *line(50))
        while journal._flying is None:
            await checkpoint()
        journal.close()
        assert durable(path) == list(range(1, 51))
        tasks.cancel_scope.cancel()


async def test_one_slow_commit_does_not_move_to_the_thread(path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = SqliteJournal(path)
    async with served(journal):
        for seq, limit in enumerate([0, 0, 9, 0, 0, 9], 1):
            monkeypatch.setattr(_sqlite, "_SLOW_COMMIT_S", limit)
            append(journal, spawned() if seq == 1 else said(seq))
            await journal.barrier()
        assert not journal._in_thread


async def test_slow_commits_in_a_row_move_to_the_thread_for_good(path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = SqliteJournal(path)
    async with served(journal):
        for seq, limit in enumerate([0, 0, 0, 9, 9], 1):
            monkeypatch.setattr(_sqlite, "_SLOW_COMMIT_S", limit)
            append(journal, spawned() if seq == 1 else said(seq))
            await journal.barrier()
        with held_by_another(path):
            append(journal, said(6))
            while journal._flying is None:
                await checkpoint()
        await journal.barrier()
    assert durable(path) == [1, 2, 3, 4, 5, 6]


# --- failures


async def test_of_a_commit_that_fails_nothing_is_kept(journal: SqliteJournal, path: Path):
    fill_disk(journal)
    journal.define("digest", b"definition")
    append(journal, said(2), *line(2, "other"), said(3, text=BIG))
    with pytest.raises(JournalFailed, match="full; make room or mend the file, then resume the runs"):
        await journal.barrier()
    assert (durable(path), durable(path, "other"), [row.run_id for row in journal.runs()]) == ([1], [], ["r"])
    with pytest.raises(DefinitionMissing):
        journal.definition("digest")


async def test_everybody_who_waits_for_a_commit_is_told_that_it_failed(journal: SqliteJournal):
    fill_disk(journal)
    append(journal, said(2, text=BIG))
    told: list[object] = []
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(acknowledged, journal, told)
    assert [type(each) for each in told] == [JournalFailed] * 5


async def test_what_was_appended_during_a_commit_that_fails_is_refused_too(threaded: SqliteJournal, path: Path):
    fill_disk(threaded)
    told: list[object] = []
    async with anyio.create_task_group() as tasks:
        with held_by_another(path):
            append(threaded, said(2, text=BIG))
            while threaded._flying is None:
                await checkpoint()
            append(threaded, said(3))
            tasks.start_soon(acknowledged, threaded, told)
            await checkpoint()
    assert [type(each) for each in told] == [JournalFailed]
    assert durable(path) == [1]


async def test_a_journal_that_failed_says_so_and_takes_nothing_more(journal: SqliteJournal):
    fill_disk(journal)
    append(journal, said(2, text=BIG))
    with pytest.raises(JournalFailed):
        await journal.barrier()
    assert not journal.healthy
    with pytest.raises(JournalFailed, match="full"):
        journal.append(said(3))
    with pytest.raises(JournalFailed, match="full"):
        await journal.barrier()


async def test_observers_and_tails_see_nothing_of_a_commit_that_failed(journal: SqliteJournal):
    seen: list[Event] = []
    journal.observers.append(seen.append)
    fill_disk(journal)
    append(journal, said(2, text=BIG))
    with pytest.raises(JournalFailed):
        await journal.barrier()
    with anyio.move_on_after(5):
        seen.extend([event async for event in journal.tail("r", after=1)])
    assert seen == []


async def test_a_journal_that_failed_can_be_opened_again_where_it_was(journal: SqliteJournal, path: Path):
    fill_disk(journal)
    append(journal, said(2, text=BIG))
    with pytest.raises(JournalFailed):
        await journal.barrier()
    again = SqliteJournal(path)
    append(again, said(2))
    await again.barrier()
    assert seqs(again) == [1, 2]
    again.close()


async def test_a_run_that_another_went_on_with_cannot_be_written(journal: SqliteJournal, path: Path):
    other = SqliteJournal(path)
    append(other, said(2))
    await other.barrier()
    append(journal, said(2))
    with pytest.raises(JournalFailed, match="another process went on with a run of this one"):
        await journal.barrier()
    other.close()


async def test_a_second_event_without_a_first_is_refused_whole(journal: SqliteJournal, path: Path):
    append(journal, said(2), said(2, "nobody"))
    with pytest.raises(JournalFailed, match="event 2 of run nobody comes before its first"):
        await journal.barrier()
    assert durable(path) == [1]


async def test_what_cannot_be_written_fails_where_it_was_made(journal: SqliteJournal):
    append(journal, said(2))
    for title in ("\ud800", object()):
        with pytest.raises((UnicodeEncodeError, TypeError)):
            journal.append(Event("r", 3, NOW, RunTitled(title, "lane")))  # type: ignore[arg-type]
    append(journal, said(3))
    await journal.barrier()
    assert (seqs(journal), journal.healthy) == ([1, 2, 3], True)


class Interrupted(BaseException):
    """What a key press does to whoever happens to run."""


class Interrupts(float):
    """A time that interrupts whoever writes it down."""

    def __mul__(self, other: object) -> float:
        raise Interrupted


@pytest.mark.parametrize("durability", ["normal", "full"])
async def test_an_interrupted_commit_leaves_nobody_waiting(path: Path, durability: str):
    journal = SqliteJournal(path, durability=durability)  # type: ignore[arg-type]
    told: list[object] = []
    append(journal, spawned(), Event("r", 2, Interrupts(NOW), RunTitled("t", "lane")))
    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012 - the group raises
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(acknowledged_shielded, journal, told)
            tasks.start_soon(journal.serve)
    assert caught.group_contains(Interrupted)
    assert ([str(each) for each in told], durable(path)) == (
        [f"a commit to {str(path)!r} was interrupted; open the journal again, then resume the runs"],
        [],
    )
    journal.close()


async def acknowledged_shielded(journal: SqliteJournal, into: list[object]) -> None:
    with anyio.CancelScope(shield=True):
        await checkpoint()
        await acknowledged(journal, into)


# --- closing


async def test_what_is_pending_at_the_close_is_kept(path: Path):
    journal = SqliteJournal(path)
    journal.define("digest", b"definition")
    journal.close()
    journal = SqliteJournal(path)
    append(journal, *line(2))
    journal.close()
    with closing(SqliteReader(path)) as reader:
        assert (seqs(reader), reader.definition("digest")) == ([1, 2], b"definition")  # type: ignore[arg-type]


async def test_a_close_that_cannot_keep_what_is_pending_says_so(path: Path):
    journal = SqliteJournal(path)
    append(journal, spawned())
    await journal.barrier()
    fill_disk(journal)
    append(journal, said(2, text=BIG))
    with pytest.raises(JournalFailed, match="full"):
        journal.close()
    journal.close()


async def test_a_failure_that_was_told_is_not_told_again_at_the_close(journal: SqliteJournal):
    fill_disk(journal)
    append(journal, said(2, text=BIG))
    with pytest.raises(JournalFailed):
        await journal.barrier()
    journal.close()


async def test_a_closed_journal_takes_nothing(path: Path):
    journal = SqliteJournal(path)
    journal.close()
    journal.define("digest", b"")
    for act in (lambda: journal.append(spawned()), lambda: journal.find("r")):
        with pytest.raises(JournalFailed, match="is closed"):
            act()
    with pytest.raises(JournalFailed, match="is closed"):
        await journal.barrier()
    journal.close()
    assert not journal.healthy


# --- checkpoints


async def test_the_log_is_brought_into_the_file_while_the_journal_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_sqlite, "_CHECKPOINT_PAGES", 50)
    journal = SqliteJournal(path)
    async with served(journal):
        append(journal, spawned())
        for seq in range(2, 202):
            append(journal, said(seq, text="x" * 8_000))
            await journal.barrier()
            await anyio.sleep(0.1)
        sizes = size(path), size(path.with_name("runs.db-wal"))
    assert sizes[0] > 100 * 8_192
    assert sizes[1] < 200 * 8_192


async def test_commits_do_not_wait_for_a_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch):
    committed = threading.Event()
    ended_after_the_commit: list[bool] = []
    monkeypatch.setattr(_sqlite, "_CHECKPOINT_PAGES", 1)
    monkeypatch.setattr(_sqlite, "checkpoint", lambda path: ended_after_the_commit.append(committed.wait(5)))
    journal = SqliteJournal(path)
    async with served(journal):
        append(journal, *line(2))
        await journal.barrier()
        append(journal, said(3))
        await journal.barrier()
        committed.set()
    assert set(ended_after_the_commit) == {True}


async def test_a_reader_does_not_wait_for_a_commit(threaded: SqliteJournal, path: Path):
    with held_by_another(path):
        append(threaded, said(2))
        while threaded._flying is None:
            await checkpoint()
        assert seqs(threaded) == [1]
    await threaded.barrier()
