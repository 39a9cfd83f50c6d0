"""Waiting for a cache that another request is about to write."""

from __future__ import annotations

import anyio
import pytest

from shoal.providers._leaders import PrefixLeaders

pytestmark = pytest.mark.anyio


class Swarm:
    """Requests that come to their turn, one task each."""

    def __init__(self, leaders: PrefixLeaders) -> None:
        self.leaders = leaders
        self.gone: list[str] = []
        self.begin: dict[str, anyio.Event] = {}
        self.end: dict[str, anyio.Event] = {}

    async def ask(self, name: str, *prefixes: bytes) -> None:
        self.begin[name], self.end[name] = anyio.Event(), anyio.Event()
        async with self.leaders.turn(prefixes) as begun:
            self.gone.append(name)
            await self.begin[name].wait()
            begun()
            begun()
            await self.end[name].wait()

    def answer(self, name: str) -> None:
        self.begin[name].set()


async def settled(swarm: Swarm) -> list[str]:
    await anyio.wait_all_tasks_blocked()
    return swarm.gone


async def test_requests_with_a_prefix_that_is_being_written_wait_for_its_first_byte():
    swarm = Swarm(PrefixLeaders(wait_s=1000))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(swarm.ask, "a", b"p")
        assert await settled(swarm) == ["a"]
        tasks.start_soon(swarm.ask, "b", b"p")
        tasks.start_soon(swarm.ask, "c", b"p")
        assert await settled(swarm) == ["a"]
        swarm.answer("a")
        assert sorted(await settled(swarm)) == ["a", "b", "c"]
        tasks.cancel_scope.cancel()


async def test_a_written_prefix_is_waited_for_no_more():
    swarm = Swarm(PrefixLeaders(wait_s=1000))
    async with anyio.create_task_group() as tasks:
        for name in ("a", "b"):
            tasks.start_soon(swarm.ask, name, b"p")
            await anyio.wait_all_tasks_blocked()
            swarm.answer(name)
        tasks.start_soon(swarm.ask, "c", b"p")
        assert await settled(swarm) == ["a", "b", "c"]
        tasks.cancel_scope.cancel()


async def test_other_prefixes_go_at_once():
    swarm = Swarm(PrefixLeaders(wait_s=1000))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(swarm.ask, "a", b"p")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(swarm.ask, "b", b"q")
        tasks.start_soon(swarm.ask, "c")
        assert sorted(await settled(swarm)) == ["a", "b", "c"]
        tasks.cancel_scope.cancel()


async def test_the_longest_prefix_that_is_being_written_is_waited_for():
    swarm = Swarm(PrefixLeaders(wait_s=1000))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(swarm.ask, "a", b"p", b"pq")
        await anyio.wait_all_tasks_blocked()
        swarm.answer("a")
        tasks.start_soon(swarm.ask, "b", b"p", b"pr")
        assert await settled(swarm) == ["a", "b"]
        tasks.start_soon(swarm.ask, "c", b"p", b"pr", b"prs")
        assert await settled(swarm) == ["a", "b"]
        swarm.answer("b")
        assert await settled(swarm) == ["a", "b", "c"]
        tasks.cancel_scope.cancel()


async def test_nobody_waits_longer_than_the_limit():
    swarm = Swarm(PrefixLeaders(wait_s=5))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(swarm.ask, "a", b"p")
        await anyio.wait_all_tasks_blocked()
        began = anyio.current_time()
        tasks.start_soon(swarm.ask, "b", b"p")
        while len(swarm.gone) < 2:  # noqa: ASYNC110 - it is the time that is measured
            await anyio.sleep(0.5)
        assert 4.5 <= anyio.current_time() - began <= 6
        tasks.cancel_scope.cancel()


async def test_when_the_first_fails_the_next_one_leads():
    swarm = Swarm(PrefixLeaders(wait_s=1000))
    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as first:
            first.start_soon(swarm.ask, "a", b"p")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(swarm.ask, "b", b"p")
            tasks.start_soon(swarm.ask, "c", b"p")
            await anyio.wait_all_tasks_blocked()
            first.cancel_scope.cancel()
        assert len(await settled(swarm)) == 2
        swarm.answer(swarm.gone[1])
        assert len(await settled(swarm)) == 3
        tasks.cancel_scope.cancel()


async def test_one_that_gives_up_waiting_leaves_the_leader_alone():
    leaders = PrefixLeaders(wait_s=1000)
    swarm = Swarm(leaders)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(swarm.ask, "a", b"p")
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(1):
            await swarm.ask("b", b"p")
        assert repr(leaders) == "<PrefixLeaders, 0 prefixes written, 1 being written>"
        tasks.cancel_scope.cancel()


async def test_a_prefix_that_nobody_used_for_its_lifetime_is_written_anew():
    swarm = Swarm(PrefixLeaders(wait_s=1000, lifetime_s=300))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(swarm.ask, "a", b"p")
        await anyio.wait_all_tasks_blocked()
        swarm.answer("a")
        await anyio.sleep(301)
        tasks.start_soon(swarm.ask, "b", b"p")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(swarm.ask, "c", b"p")
        assert await settled(swarm) == ["a", "b"]
        tasks.cancel_scope.cancel()


async def test_the_prefix_that_was_used_least_recently_is_forgotten():
    leaders = PrefixLeaders(max_prefixes=1)
    for prefix in (b"p", b"q"):
        async with leaders.turn([prefix]) as begun:
            begun()
    assert repr(leaders) == "<PrefixLeaders, 1 prefixes written, 0 being written>"
