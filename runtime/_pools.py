"""Pools: how much may be in flight towards one resource, fair across runs."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import final

import anyio

from shoal.errors import ConfigInvalid


@final
@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """How busy a pool is: what is in flight, what waits, the limit, and the seconds that were waited so far."""

    busy: int
    queued: int
    limit: int
    waited_s: float


@final
class Pool:
    """A fair limit of what may be in flight towards one resource.

    Runs that wait are served in turn, each with its oldest request, so that a run with a hundred calls does not keep
    the others out.

    Args:
        name: What it leads to.
        limit: Most in flight at once, 1 or more.

    Raises:
        ConfigInvalid: The limit lets nothing through.
    """

    def __init__(self, name: str, limit: int) -> None:
        if limit < 1:
            raise ConfigInvalid(f"the pool {name!r} would let {limit!r} through at once; set its limit to 1 or more")
        self.name = name
        self.limit = limit
        self._busy = 0
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()
        self._queued = 0
        self._waited_s = 0.0

    def __repr__(self) -> str:
        return f"<Pool {self.name} {self._busy}/{self.limit} busy, {self._queued} queued>"

    def statistics(self) -> PoolStatistics:
        """Return how busy it is."""
        return PoolStatistics(self._busy, self._queued, self.limit, self._waited_s)

    def slot(self, run_id: str) -> AbstractAsyncContextManager[None]:
        """Return what holds a place for *run_id* while its block runs; entering it waits for one."""
        return _Place(self, run_id)

    async def take(self, run_id: str) -> None:
        """Take a place for *run_id*, after waiting for one; give it back with `release`."""
        if self._busy < self.limit:
            self._busy += 1
        else:
            await self._wait(run_id)

    async def _wait(self, run_id: str) -> None:
        turn = anyio.Event()
        self._waiting.setdefault(run_id, deque()).append(turn)
        self._queued += 1
        began = anyio.current_time()
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.release()  # the place came together with the cancel: it goes to the next in line
            else:
                self._forget(run_id, turn)
            raise
        finally:
            self._waited_s += anyio.current_time() - began

    def release(self) -> None:
        """Give a place back, to the next in line."""
        if not self._waiting:
            self._busy -= 1
            return
        run_id, turns = self._waiting.popitem(last=False)
        turn = turns.popleft()
        if turns:
            self._waiting[run_id] = turns
        self._queued -= 1
        turn.set()

    def _forget(self, run_id: str, turn: anyio.Event) -> None:
        turns = self._waiting[run_id]
        turns.remove(turn)
        if not turns:
            del self._waiting[run_id]
        self._queued -= 1


@final
class _Place:
    """Holds a place in *pool*; a class, since a generator for each request and call would cost more than the place."""

    __slots__ = ("_pool", "_run_id")

    def __init__(self, pool: Pool, run_id: str) -> None:
        self._pool = pool
        self._run_id = run_id

    async def __aenter__(self) -> None:
        await self._pool.take(self._run_id)

    async def __aexit__(self, *exc_info: object) -> None:
        self._pool.release()


@final
class Pools:
    """The pools of a swarm; one that has no limit of its own is made when first asked for.

    Args:
        limits: Limit by name.
        default: Limit of a pool that has none of its own.

    Raises:
        ConfigInvalid: A limit lets nothing through.
    """

    def __init__(self, limits: Mapping[str, int], default: int) -> None:
        self._default = Pool("default", default).limit
        self._pools = {name: Pool(name, limit) for name, limit in limits.items()}

    def get(self, name: str) -> Pool:
        """Return the pool called *name*."""
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = Pool(name, self._default)
        return pool

    def statistics(self) -> Mapping[str, PoolStatistics]:
        """Return how busy each pool is, by name."""
        return {name: pool.statistics() for name, pool in tuple(self._pools.items())}

    def way(self, provider: str, model: str, run_id: str) -> AbstractAsyncContextManager[None]:
        """Return what holds a place towards *provider*, and one towards *model* where that has a limit."""
        own = self._pools.get(f"{provider}:{model}")
        towards = self.get(provider)
        return towards.slot(run_id) if own is None else _both(own, towards, run_id)


@asynccontextmanager
async def _both(first: Pool, second: Pool, run_id: str) -> AsyncGenerator[None]:
    async with first.slot(run_id), second.slot(run_id):
        yield
