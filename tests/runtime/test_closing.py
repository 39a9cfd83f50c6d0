"""Whoever waits for a run outside the swarm's block learns that the swarm was closed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path

import anyio
import pytest
from runkit import blueprint, stage, swarm_of

from shoal.errors import JournalFailed, RunInterrupted
from shoal.runtime import MemoryJournal, Run, SqliteJournal, Swarm
from shoal.runtime.events import Event
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

PLAIN = blueprint(stage(available_tools=()))
CLOSED = "the swarm was closed while run"


def slow() -> ScriptedProvider:
    return ScriptedProvider(Say("late", delay_s=600), "never", purposes={"titling": "A title"})


async def outlived(path: Path, wait: Callable[[Run], Coroutine[None, None, None]], *, paused: bool = False) -> None:
    """Open a swarm, start *wait* for its run in a task that outlives the block, leave the block, and await the task."""
    journal = SqliteJournal(path / "runs.db")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            async with swarm_of(slow(), journal=journal) as swarm:
                run = await swarm.spawn(PLAIN, task="x")
                if paused:
                    await run.pause("lunch")
                tasks.start_soon(wait, run)
                await anyio.wait_all_tasks_blocked()
            journal.close()


async def test_a_swarm_that_is_cancelled_while_it_opens_leaves_nothing_open():
    provider, journal, seen = slow(), MemoryJournal(), list[Event]()
    swarm = Swarm([provider], journal, [seen.append])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await swarm.__aenter__()
    assert (provider.closed, journal.observers) == (True, [])
    async with swarm:
        assert swarm.healthy


async def test_a_result_that_is_awaited_outside_the_block_raises_once_the_swarm_is_closed(tmp_path: Path):
    failed: list[tuple[str, str | None]] = []

    async def wait(run: Run) -> None:
        with pytest.raises(RunInterrupted, match=CLOSED) as caught:
            await run.result()
        failed.append((run.run_id, caught.value.run_id))

    await outlived(tmp_path, wait)
    [(waited, told)] = failed
    assert waited == told


async def test_who_waits_over_a_pause_outside_the_block_learns_that_the_swarm_was_closed(tmp_path: Path):
    failed: list[str] = []

    async def wait(run: Run) -> None:
        with pytest.raises(RunInterrupted, match=CLOSED):
            await run.result(wait_paused=True)
        failed.append(run.run_id)

    await outlived(tmp_path, wait, paused=True)
    assert failed


@pytest.mark.parametrize("deltas", [False, True])
async def test_events_that_are_read_outside_the_block_end_with_an_error_once_the_swarm_is_closed(
    tmp_path: Path, deltas: bool
):
    seen: list[object] = []

    async def follow(run: Run) -> None:
        with pytest.raises(RunInterrupted, match=CLOSED):
            seen.extend([each async for each in run.events(deltas=deltas)])
        seen.append("told")

    await outlived(tmp_path, follow)
    assert seen == ["told"]


async def test_the_events_of_an_open_run_end_with_an_error_in_a_swarm_that_was_closed_before():
    async with swarm_of(slow()) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
    with pytest.raises(RunInterrupted, match=CLOSED):
        _ = [each async for each in run.events()]


async def test_a_slow_reader_of_events_learns_that_the_journal_was_closed_with_the_swarm(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db")
    async with swarm_of(slow(), journal=journal) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        events = run.events()
        first = await anext(events)
    journal.close()
    with pytest.raises(RunInterrupted, match=CLOSED) as caught:
        _ = [each async for each in events]
    assert (first.kind, type(caught.value.__cause__)) == ("RunSpawned", JournalFailed)


async def test_a_journal_that_is_closed_under_an_open_swarm_is_not_taken_for_the_swarm_s_end(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db")
    async with swarm_of(ScriptedProvider("done"), journal=journal) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await run.result()
        journal.close()
        with pytest.raises(JournalFailed, match="is closed"):
            _ = [each async for each in run.events()]
