"""What providers keep from one event loop to the next, on either library."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import httpx
import pytest
from providers_parts import request, user

from shoal.providers import RateLimit, exchange, offline
from shoal.providers._cache_keys import CacheKeys
from shoal.providers._leaders import PrefixLeaders
from shoal.providers._loops import LoopWatch
from shoal.providers._refusals import Asked
from shoal.providers._transport import Transport
from shoal.testing import virtual_backend

T = TypeVar("T")

in_turn = pytest.mark.parametrize("loops", [("asyncio", "trio"), ("trio", "asyncio"), ("asyncio", "asyncio")])


def run(loop: str, work: Callable[[], Awaitable[T]]) -> T:
    name, options = virtual_backend(loop)
    return anyio.run(work, backend=name, backend_options=options)


@in_turn
def test_a_rate_limit_that_was_waited_for_in_one_loop_paces_in_the_next(loops: tuple[str, str]):
    limit = RateLimit(requests_per_minute=2)

    async def crowd() -> float:
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(limit.admit, 0)
        return round(anyio.current_time() - began, 3)

    assert [run(loop, crowd) for loop in loops] == [60.0, 120.0]  # the first left nothing of its minute


@in_turn
def test_what_a_rate_limit_learned_holds_in_the_next_loop_and_a_hold_does_not(loops: tuple[str, str]):
    limit = RateLimit()

    async def learn() -> None:
        limit.observe({"x-ratelimit-limit-requests": "30", "x-ratelimit-remaining-requests": "29"})
        limit.hold(50)

    async def admitted() -> float:
        began = anyio.current_time()
        await limit.admit(0)
        return anyio.current_time() - began

    run(loops[0], learn)
    assert (run(loops[1], admitted), limit.requests_per_minute) == (0.0, 30)


def test_a_rate_limit_with_a_clock_of_its_own_is_told_things_outside_of_any_loop():
    limit = RateLimit(clock=lambda: 5.0)
    limit.observe({"x-ratelimit-limit-requests": "30"})
    assert limit.requests_per_minute == 30


@in_turn
def test_a_prefix_that_was_written_in_one_loop_is_written_anew_in_the_next(loops: tuple[str, str]):
    leaders = PrefixLeaders(wait_s=1000)

    async def crowd() -> list[float]:
        gone: list[float] = []
        began = anyio.current_time()

        async def ask() -> None:
            async with leaders.turn((b"p",)) as begun:
                gone.append(round(anyio.current_time() - began, 3))
                await anyio.sleep(10)
                begun()

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
        return gone

    assert [run(loop, crowd) for loop in loops] == [[0.0, 10.0, 10.0]] * 2


def test_who_wrote_a_prefix_in_a_loop_that_broke_off_is_not_waited_for():
    leaders = PrefixLeaders(wait_s=1000)
    broken_off, unfinished = asyncio.new_event_loop(), leaders.turn((b"p",))
    broken_off.run_until_complete(unfinished.__aenter__())
    broken_off.close()

    async def waited() -> float:
        began = anyio.current_time()
        async with leaders.turn((b"p",)):
            return anyio.current_time() - began

    assert run("trio", waited) == 0.0


@in_turn
def test_cache_keys_count_by_the_clock_of_the_loop_that_runs(loops: tuple[str, str]):
    keys = CacheKeys(per_key=1)

    async def numbers() -> list[str]:
        return [keys.key(request(user("x"), run_id=run_id))[-2:] for run_id in ("a", "b")]

    first, second = (run(loop, numbers) for loop in loops)
    assert first == second
    assert first[1] == "-1"


@in_turn
def test_the_offline_provider_s_cache_is_empty_in_the_next_loop(loops: tuple[str, str]):
    provider = offline()

    async def read() -> list[int]:
        asked = request(user("word " * 10_000))
        return [(await exchange(provider, asked)).usage.cache_read for _ in range(2)]

    assert [[count > 0 for count in run(loop, read)] for loop in loops] == [[False, True]] * 2


def test_a_watch_tells_one_loop_from_the_next():
    watch = LoopWatch()
    assert (repr(watch), watch.moved(), watch.here) == ("<LoopWatch, unused>", False, False)

    async def seen() -> list[bool]:
        return [watch.here, watch.moved(), watch.moved(), watch.here]

    assert [run(loop, seen) for loop in ("asyncio", "trio", "asyncio")] == [[False, True, False, True]] * 3
    assert (repr(watch), watch.here) == ("<LoopWatch, used>", False)


class Closable(httpx.MockTransport):
    """Notes that it was closed."""

    was_closed = False

    async def aclose(self) -> None:
        self.was_closed = True


@in_turn
def test_a_transport_whose_loop_is_gone_is_closed_in_the_next(loops: tuple[str, str]):
    http = Closable(lambda _asked: httpx.Response(200, json={}))
    transport = Transport("http://there", http=http)

    async def ask() -> int:
        async with transport.post("/x", None, Asked("p", "m"), timeout_s=1) as answer:
            return answer.status

    async def close() -> str:
        await transport.aclose()
        return repr(transport)

    assert (run(loops[0], ask), run(loops[1], close)) == (200, "<Transport to http://there, closed>")
    assert not http.was_closed  # its connections went with their loop
