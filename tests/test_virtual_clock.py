"""The clock that the other tests stand on."""

from __future__ import annotations

import time

import anyio
import anyio.to_thread
import pytest

pytestmark = pytest.mark.anyio


async def test_an_hour_of_sleep_takes_no_real_time():
    began = time.monotonic()
    before = anyio.current_time()
    await anyio.sleep(3600)
    assert anyio.current_time() - before == pytest.approx(3600)
    assert time.monotonic() - began < 5


async def test_a_deadline_does_not_fire_while_a_thread_is_at_work():
    with anyio.move_on_after(5) as scope:
        await anyio.to_thread.run_sync(lambda: time.sleep(0.02))
    assert not scope.cancelled_caught


async def test_deadlines_fire_in_order():
    fired: list[int] = []

    async def wait(seconds: int) -> None:
        await anyio.sleep(seconds)
        fired.append(seconds)

    async with anyio.create_task_group() as tasks:
        for seconds in (30, 10, 20):
            tasks.start_soon(wait, seconds)
    assert fired == [10, 20, 30]
