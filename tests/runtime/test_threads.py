"""The threads of a swarm are seen by whoever has to wait for them."""

from __future__ import annotations

import threading
import time

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from shoal.runtime._threads import busy, limiter
from shoal.testing import threads_busy

pytestmark = pytest.mark.anyio


async def test_a_thread_at_work_is_seen_until_the_loop_knows_its_end():
    threads = limiter(2)
    go = threading.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: anyio.to_thread.run_sync(go.wait, limiter=threads))
        while not threads.borrowed_tokens:
            await checkpoint()
        assert (busy(), threads_busy()) == (True, True)
        go.set()
    assert (busy(), threads_busy()) == (False, False)


async def test_no_more_threads_run_at_once_than_the_limit():
    threads = limiter(2)
    together: list[int] = []
    running = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal running
        with lock:
            running += 1
            together.append(running)
        time.sleep(0.005)
        with lock:
            running -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(lambda: anyio.to_thread.run_sync(work, limiter=threads))
    assert max(together) <= 2


async def test_virtual_time_stands_still_while_one_of_them_works():
    threads = limiter(1)
    with anyio.move_on_after(5) as scope:
        await anyio.to_thread.run_sync(time.sleep, 0.05, limiter=threads)
    assert not scope.cancelled_caught


async def test_virtual_time_goes_on_when_it_is_done():
    threads = limiter(1)
    await anyio.to_thread.run_sync(time.sleep, 0.001, limiter=threads)
    before = anyio.current_time()
    await anyio.sleep(3600)
    assert anyio.current_time() - before == pytest.approx(3600)
