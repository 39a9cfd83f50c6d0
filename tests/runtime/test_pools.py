"""Pools: a limit that holds, places that go round, and none that gets lost."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ConfigInvalid
from shoal.runtime import Pool, Pools, PoolStatistics

pytestmark = pytest.mark.anyio


def counts(pool: Pool) -> tuple[int, int]:
    """Return what is in flight, and what waits."""
    return pool.statistics().busy, pool.statistics().queued


async def hold(pool: Pool, run_id: str, log: list[str], seconds: float = 1) -> None:
    async with pool.slot(run_id):
        log.append(run_id)
        await anyio.sleep(seconds)


async def test_no_more_than_the_limit_is_in_flight():
    pool = Pool("p", 3)
    log: list[str] = []
    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(hold, pool, f"run-{number}", log)
        await wait_all_tasks_blocked()
        assert (len(log), counts(pool)) == (3, (3, 7))
    assert (len(log), counts(pool)) == (10, (0, 0))


async def test_a_free_place_is_taken_at_once():
    pool = Pool("p", 1)
    async with pool.slot("a"):
        pass
    assert pool.statistics() == PoolStatistics(busy=0, queued=0, limit=1, waited_s=0.0)


async def test_a_run_with_many_requests_does_not_keep_the_others_out():
    pool = Pool("p", 1)
    log: list[str] = []
    async with anyio.create_task_group() as tasks:
        for run_id in ["greedy"] * 6 + ["b", "c"]:
            tasks.start_soon(hold, pool, run_id, log)
            await wait_all_tasks_blocked()
    assert log == ["greedy", "greedy", "b", "c", "greedy", "greedy", "greedy", "greedy"]


async def test_a_model_with_a_limit_of_its_own_holds_a_place_of_both():
    pools = Pools({"acme": 2, "acme:big": 1}, 8)
    async with pools.way("acme", "big", "a"), pools.way("acme", "small", "b"):
        assert {name: pool.busy for name, pool in pools.statistics().items()} == {"acme": 2, "acme:big": 1}
    assert {pool.busy for pool in pools.statistics().values()} == {0}


async def test_what_waits_for_a_model_keeps_no_place_of_its_provider():
    pools = Pools({"acme": 2, "acme:big": 1}, 8)
    async with anyio.create_task_group() as tasks, pools.way("acme", "big", "a"):
        tasks.start_soon(_pass, pools)
        await wait_all_tasks_blocked()
        assert counts(pools.get("acme")) == (1, 0)
        assert counts(pools.get("acme:big")) == (1, 1)


async def _pass(pools: Pools) -> None:
    async with pools.way("acme", "big", "b"):
        pass


async def test_requests_of_one_run_are_served_in_their_order():
    pool = Pool("p", 1)
    served: list[int] = []

    async def ask(number: int) -> None:
        async with pool.slot("a"):
            served.append(number)
            await anyio.sleep(1)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(ask, number)
            await wait_all_tasks_blocked()
    assert served == [0, 1, 2, 3, 4]


async def test_whoever_gives_a_place_back_does_not_overtake_those_who_wait():
    pool = Pool("p", 1)
    log: list[str] = []
    async with anyio.create_task_group() as tasks:
        async with pool.slot("a"):
            tasks.start_soon(hold, pool, "b", log)
            await wait_all_tasks_blocked()
        await hold(pool, "a", log)
    assert log == ["b", "a"]


async def test_a_place_is_given_back_where_the_block_fails():
    pool = Pool("p", 1)
    with pytest.raises(ZeroDivisionError):
        async with pool.slot("a"):
            raise ZeroDivisionError
    assert counts(pool) == (0, 0)


async def test_whoever_leaves_the_queue_leaves_nothing_behind():
    pool = Pool("p", 1)
    log: list[str] = []
    async with pool.slot("a"), anyio.create_task_group() as tasks:
        tasks.start_soon(hold, pool, "b", log)
        tasks.start_soon(hold, pool, "b", log)
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert (log, counts(pool), repr(pool)) == ([], (0, 0), "<Pool p 0/1 busy, 0 queued>")


async def test_one_of_a_runs_requests_may_leave_the_queue():
    pool = Pool("p", 1)
    log: list[str] = []
    async with anyio.create_task_group() as tasks, pool.slot("a"):
        with anyio.move_on_after(1):
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(hold, pool, "b", log)
                await wait_all_tasks_blocked()
                tasks.start_soon(hold, pool, "b", log)
        assert counts(pool) == (1, 1)
    assert log == ["b"]


async def test_a_place_that_comes_together_with_a_cancel_goes_to_the_next():
    pool = Pool("p", 1)
    log: list[str] = []
    async with anyio.create_task_group() as tasks, anyio.create_task_group() as cancelled, pool.slot("a"):
        cancelled.start_soon(hold, pool, "b", log)
        await wait_all_tasks_blocked()
        tasks.start_soon(hold, pool, "c", log)
        await wait_all_tasks_blocked()
        cancelled.cancel_scope.cancel()
        # The place is given to `b`, which has been told to leave and did not run since.
    assert (log, counts(pool)) == (["c"], (0, 0))


async def test_waiting_is_counted_in_seconds():
    pool = Pool("p", 1)
    log: list[str] = []
    async with anyio.create_task_group() as tasks:
        for run_id in "abc":
            tasks.start_soon(hold, pool, run_id, log, 10)
    assert pool.statistics().waited_s == pytest.approx(30, abs=1)


@given(
    limit=st.integers(1, 3),
    asks=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 4), st.integers(0, 9)), max_size=12
    ),
)
async def test_places_are_neither_lost_nor_doubled_whoever_is_cancelled_when(
    limit: int, asks: Sequence[tuple[str, int, int, int]]
):
    pool = Pool("p", limit)
    holding = 0
    most = 0

    async def ask(run_id: str, begins: int, holds: int, gives_up: int) -> None:
        nonlocal holding, most
        await anyio.sleep(begins)
        with anyio.move_on_after(gives_up):
            async with pool.slot(run_id):
                holding += 1
                most = max(most, holding)
                try:
                    await anyio.sleep(holds)
                    await checkpoint()
                finally:
                    holding -= 1

    async with anyio.create_task_group() as tasks:
        for each in asks:
            tasks.start_soon(ask, *each)
    assert most <= limit
    assert (counts(pool), pool._waiting) == ((0, 0), {})
    async with anyio.create_task_group() as tasks:
        log: list[str] = []
        for number in range(limit):
            tasks.start_soon(hold, pool, f"{number}", log)
        await wait_all_tasks_blocked()
        assert len(log) == limit


async def test_a_pool_is_made_when_first_asked_for_and_then_is_the_same():
    pools = Pools({"tools": 2}, 7)
    assert pools.get("other") is pools.get("other")
    limits = {name: statistics.limit for name, statistics in pools.statistics().items()}
    assert limits == {"tools": 2, "other": 7}


@pytest.mark.parametrize("limit", [0, -1])
def test_a_pool_that_lets_nothing_through_is_refused(limit: int):
    with pytest.raises(ConfigInvalid, match=rf"'tools' would let {limit} through"):
        Pools({"tools": limit}, 1)
    with pytest.raises(ConfigInvalid, match="set its limit to 1 or more"):
        Pools({}, limit)
