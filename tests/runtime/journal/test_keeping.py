"""What every journal promises: order, barriers, tails, observers, the register of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from journalkit import JOURNALS, NOW, append, line, said, seqs, served, spawned

from shoal.errors import DefinitionMissing, RunNotFound
from shoal.runtime import Event, Journal
from shoal.runtime.events import RunEnded, RunPaused, RunResumed, RunTitled, StageEntered

pytestmark = pytest.mark.anyio

DEADLOCK_S = 60
"""Virtual seconds after which a test counts as stuck."""


@pytest.fixture(params=JOURNALS)
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    with anyio.fail_after(DEADLOCK_S):
        async with served(JOURNALS[request.param](tmp_path / "runs.db")) as journal:
            yield journal


async def test_what_was_appended_can_be_read_after_a_barrier(journal: Journal):
    append(journal, *line(3))
    await journal.barrier()
    assert list(journal.read("r")) == line(3)


async def test_what_was_appended_becomes_durable_without_a_barrier(journal: Journal):
    append(journal, *line(3))
    async with aclosing(journal.tail("r", after=2)) as events:
        await anext(events)
    assert seqs(journal) == [1, 2, 3]


async def test_a_barrier_with_nothing_before_it_waits_for_nothing(journal: Journal):
    await journal.barrier()


async def test_runs_are_kept_apart(journal: Journal):
    append(journal, spawned("a"), spawned("b"), said(2, "b"), said(2, "a"), said(3, "a"))
    await journal.barrier()
    assert (seqs(journal, "a"), seqs(journal, "b")) == ([1, 2, 3], [1, 2])


async def test_reading_begins_behind_the_seq_that_is_known(journal: Journal):
    append(journal, *line(5))
    await journal.barrier()
    assert [event.seq for event in journal.read("r", after=3)] == [4, 5]
    assert list(journal.read("r", after=5)) == []


async def test_a_run_that_nobody_knows_has_no_events(journal: Journal):
    assert list(journal.read("r")) == []


async def test_a_long_run_is_read_whole(journal: Journal):
    append(journal, *line(1_300))
    await journal.barrier()
    assert seqs(journal) == list(range(1, 1_301))


async def test_time_is_kept_to_the_microsecond(journal: Journal):
    at = 1_767_225_600.123457
    append(journal, spawned(), Event("r", 2, at, RunTitled("t", "task")))
    await journal.barrier()
    assert [event.at for event in journal.read("r", after=1)] == [at]


# --- tails


async def test_a_tail_gives_what_is_there_and_then_what_comes(journal: Journal):
    append(journal, *line(2))
    await journal.barrier()
    seen: list[int] = []
    async with aclosing(journal.tail("r")) as events:
        async for event in events:
            seen.append(event.seq)
            if event.seq == 4:
                break
            if event.seq == 2:
                append(journal, said(3), said(4))
    assert seen == [1, 2, 3, 4]


async def test_a_slow_reader_misses_nothing(journal: Journal):
    seen: list[int] = []

    async def read() -> None:
        async with aclosing(journal.tail("r")) as events:
            async for event in events:
                seen.append(event.seq)
                await anyio.sleep(0.3)
                if event.seq == 40:
                    return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for event in line(40):
            journal.append(event)
            await anyio.sleep(0.1)
    assert seen == list(range(1, 41))


async def test_many_readers_of_one_run_each_get_every_event(journal: Journal):
    seen: list[list[int]] = [[] for _ in range(20)]

    async def read(mine: list[int]) -> None:
        async with aclosing(journal.tail("r", after=1)) as events:
            async for event in events:
                mine.append(event.seq)
                if event.seq == 10:
                    return

    async with anyio.create_task_group() as tasks:
        for mine in seen:
            tasks.start_soon(read, mine)
        for event in line(10):
            journal.append(event)
            await checkpoint()
    assert seen == [list(range(2, 11))] * 20


async def test_a_tail_may_begin_before_its_run(journal: Journal):
    seen: list[Event] = []

    async def read() -> None:
        async with aclosing(journal.tail("r")) as events:
            seen.append(await anext(events))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await wait_all_tasks_blocked()
        journal.append(spawned())
    assert seen == [spawned()]


async def test_a_reader_that_left_leaves_nothing_behind(journal: Journal):
    append(journal, spawned())
    await journal.barrier()
    with anyio.move_on_after(1):
        async with aclosing(journal.tail("r")) as events:
            async for _ in events:
                pass
    async with aclosing(journal.tail("r")) as events:
        await anext(events)
    assert "0 runs" in repr(journal._tails)  # type: ignore[attr-defined]


async def test_a_reader_is_not_woken_by_other_runs(journal: Journal):
    passes = 0

    def read(run_id: str, after: int) -> Iterator[Event]:
        nonlocal passes
        passes += 1
        return journal.read(run_id, after=after)

    async def follow() -> None:
        async with aclosing(journal._tails.follow("r", 0, read)) as events:  # type: ignore[attr-defined]
            await anext(events)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await wait_all_tasks_blocked()
        append(journal, spawned("other"))
        await journal.barrier()
        await wait_all_tasks_blocked()
        assert passes == 1
        tasks.cancel_scope.cancel()


async def test_one_reader_that_leaves_does_not_cut_the_others_off(journal: Journal):
    got = anyio.Event()

    async def read(cancelled_after_s: float) -> None:
        with anyio.move_on_after(cancelled_after_s):
            async with aclosing(journal.tail("r")) as events:
                await anext(events)
                got.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, 1)
        tasks.start_soon(read, 30)
        await anyio.sleep(2)
        journal.append(spawned())
    assert got.is_set()


async def test_a_listener_is_woken_by_its_run_while_it_listens(journal: Journal):
    woken: list[str] = []

    async def write(run_id: str, seq: int) -> None:
        journal.append(spawned(run_id) if seq == 1 else said(seq, run_id))
        await journal.barrier()
        await wait_all_tasks_blocked()

    with journal.listening("r", lambda: woken.append("first")):
        with journal.listening("r", lambda: woken.append("second")):
            await write("r", 1)
            await write("other", 1)
        await write("r", 2)
    await write("r", 3)
    assert (woken, "0 runs" in repr(journal._tails)) == (["first", "second", "first"], True)  # type: ignore[attr-defined]


# --- observers


async def test_observers_see_each_event_once_in_order_and_only_when_it_is_durable(journal: Journal):
    seen: list[tuple[int, list[int]]] = []
    journal.observers.append(lambda event: seen.append((event.seq, seqs(journal))))
    append(journal, *line(2))
    assert seen == []
    await journal.barrier()
    append(journal, said(3))
    await journal.barrier()
    await wait_all_tasks_blocked()
    assert seen == [(1, [1, 2]), (2, [1, 2]), (3, [1, 2, 3])]


async def test_an_observer_that_raises_hurts_nobody_else(journal: Journal):
    def broken(event: Event) -> None:
        raise ZeroDivisionError("one off")

    seen: list[int] = []
    journal.observers.extend([broken, lambda event: seen.append(event.seq)])
    with pytest.warns(RuntimeWarning, match=r"broken.*raised ZeroDivisionError: one off"):  # noqa: PT031 - from the loop
        append(journal, *line(2))
        await journal.barrier()
        await wait_all_tasks_blocked()
    assert (seen, seqs(journal), journal.healthy) == ([1, 2], [1, 2], True)


# --- the register


async def test_the_register_follows_a_run(journal: Journal):
    append(
        journal,
        spawned(),
        Event("r", 2, NOW, StageEntered("survey", 1, "p", "m", 8_000)),
        Event("r", 3, NOW, RunTitled("A title", "lane")),
    )
    await journal.barrier()
    row = journal.find("r")
    assert (row.name, row.status, row.stage, row.title, row.events) == ("name", "running", "survey", "A title", 3)
    assert (row.spawned_at, row.ended_at, row.ended) == (NOW, None, False)


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([RunPaused("budget")], "paused"),
        ([RunPaused("budget"), RunResumed("user")], "running"),
        ([RunEnded("error", "it broke")], "error"),
        ([RunPaused("budget"), RunEnded("cancelled", "by its user")], "cancelled"),
    ],
)
async def test_the_register_knows_where_a_run_stands(journal: Journal, events: list[object], status: str):
    append(journal, spawned(), *[Event("r", seq, NOW + seq, p) for seq, p in enumerate(events, 2)])  # type: ignore[arg-type]
    await journal.barrier()
    assert journal.find("r").status == status


async def test_an_ended_run_has_its_end_in_the_register(journal: Journal):
    append(journal, spawned(), Event("r", 2, NOW + 5, RunEnded("complete", "")))
    await journal.barrier()
    append(journal, said(3))  # such as a lane that answers late
    await journal.barrier()
    row = journal.find("r")
    assert (row.ended, row.ended_at, row.events) == (True, NOW + 5, 3)


async def test_a_run_may_begin_and_end_in_one_commit(journal: Journal):
    append(journal, spawned(), Event("r", 2, NOW, RunEnded("complete", "")), said(3))
    await journal.barrier()
    assert (journal.find("r").status, seqs(journal)) == ("complete", [1, 2, 3])


async def test_runs_stand_in_the_order_in_which_they_were_spawned(journal: Journal):
    append(journal, spawned("b"), spawned("a", parent="b", root="b"), spawned("c"))
    await journal.barrier()
    assert [row.run_id for row in journal.runs()] == ["b", "a", "c"]
    assert [(row.run_id, row.parent) for row in journal.runs(root="b")] == [("b", None), ("a", "b")]


async def test_a_run_is_found_by_the_beginning_of_its_id(journal: Journal):
    append(journal, spawned("0190-aa"), spawned("0190-ab"), spawned("0191-cc"))
    await journal.barrier()
    found = [journal.find(wanted).run_id for wanted in ("0190-ab", "0191", "0191-cc")]
    assert found == ["0190-ab", "0191-cc", "0191-cc"]


async def test_an_id_that_is_the_beginning_of_another_is_found(journal: Journal):
    append(journal, spawned("0190"), spawned("0190-a"))
    await journal.barrier()
    assert journal.find("0190").run_id == "0190"


@pytest.mark.parametrize("wanted", ["0190", "0"])
async def test_an_id_that_could_be_several_runs_is_refused_with_some_of_them(journal: Journal, wanted: str):
    append(journal, *[spawned(f"0190-{letter}") for letter in "abcd"])
    await journal.barrier()
    with pytest.raises(RunNotFound, match=r"could be 4 runs \(0190-a, 0190-b, 0190-c …\)") as caught:
        journal.find(wanted)
    assert caught.value.run_id == wanted


@pytest.mark.parametrize("wanted", ["1", "%", "_", "r%", "R", "r\\", "r*", "rr"])
async def test_an_id_that_no_run_has_is_refused(journal: Journal, wanted: str):
    append(journal, spawned("r"))
    await journal.barrier()
    with pytest.raises(RunNotFound, match="has no run"):
        journal.find(wanted)


async def test_an_empty_id_means_no_run(journal: Journal):
    append(journal, spawned("r"))
    await journal.barrier()
    with pytest.raises(RunNotFound, match="empty id"):
        journal.find("")


# --- definitions


async def test_a_definition_is_kept_under_its_digest(journal: Journal):
    journal.define("d1", b"one")
    journal.define("d1", b"one")
    append(journal, spawned())
    await journal.barrier()
    assert journal.definition("d1") == b"one"


async def test_a_definition_alone_becomes_durable_too(journal: Journal):
    journal.define("d1", b"\0\xff")
    await journal.barrier()
    assert journal.definition("d1") == b"\0\xff"


async def test_a_definition_that_was_not_kept_is_an_error_that_names_it(journal: Journal):
    with pytest.raises(DefinitionMissing, match="d2"):
        journal.definition("d2")


# --- life


async def test_closing_twice_is_fine(journal: Journal):
    append(journal, spawned())
    await journal.barrier()
    journal.close()
    journal.close()


@pytest.mark.parametrize("name", JOURNALS)
async def test_a_journal_can_be_served_again(name: str, tmp_path: Path):
    journal = JOURNALS[name](tmp_path / "runs.db")
    for event in line(3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(journal.serve)
            await wait_all_tasks_blocked()
            journal.append(event)
            await journal.barrier()
            tasks.cancel_scope.cancel()
    assert seqs(journal) == [1, 2, 3]
    journal.close()


@pytest.mark.parametrize("name", JOURNALS)
async def test_what_is_pending_when_serving_ends_is_kept(name: str, tmp_path: Path):
    journal = JOURNALS[name](tmp_path / "runs.db")
    waited = anyio.Event()

    async def wait() -> None:
        await journal.barrier()
        waited.set()

    async with anyio.create_task_group() as waiting:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(journal.serve)
            await wait_all_tasks_blocked()
            append(journal, *line(2))
            waiting.start_soon(wait)
            tasks.cancel_scope.cancel()
        with anyio.fail_after(DEADLOCK_S):
            await waited.wait()
    assert seqs(journal) == [1, 2]
    journal.close()


@pytest.mark.parametrize("name", JOURNALS)
async def test_a_barrier_needs_nobody_who_serves(name: str, tmp_path: Path):
    journal = JOURNALS[name](tmp_path / "runs.db")
    append(journal, *line(2))
    with anyio.fail_after(DEADLOCK_S):
        await journal.barrier()
    assert seqs(journal) == [1, 2]
    journal.close()


async def test_a_journal_shows_what_it_is(journal: Journal):
    assert repr(journal).startswith(("<MemoryJournal 0 runs>", "<SqliteJournal /"))


async def test_runs_are_found_by_how_their_keys_begin_the_greatest_first(journal: Journal):
    for run_id, key in {"a": "agent x 2", "b": "agent x 10", "c": "agent y 1", "d": None}.items():
        event = spawned(run_id)
        append(journal, Event(run_id, 1, event.at, msgspec.structs.replace(event.payload, key=key)))  # type: ignore[type-var]
    await journal.barrier()
    assert [row.run_id for row in journal.keyed("agent x ")] == ["a", "b"]


async def test_the_newest_event_of_a_kind_is_found(journal: Journal):
    append(journal, *line(3))
    await journal.barrier()
    assert journal.newest("r", type(line(3)[-1].payload)) == line(3)[-1]
    assert journal.newest("r", RunPaused) is None
    assert journal.newest("nobody", RunPaused) is None
