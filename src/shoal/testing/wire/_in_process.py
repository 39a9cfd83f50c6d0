"""The emulator without a socket: an httpx transport whose requests go straight to the engine.

It needs no network and goes by the clock of the event loop, so a conversation of hours is tested on virtual time. What
only a connection can show (resets in the middle of a frame, a client that leaves) wants `serve`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import final

import anyio
import httpx

from shoal.testing.wire._delivery import Data, Head, Leave, Pause, Step, steps
from shoal.testing.wire._engine import World
from shoal.testing.wire._faults import breaks
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._journal import Exchange, Journal
from shoal.testing.wire._ledger import Ledger
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._settings import Settings
from shoal.testing.wire._values import Brain
from shoal.testing.wire._vendors import engine


@final
class InProcess(httpx.AsyncBaseTransport):
    """An httpx transport that a server answers which is no more than an object.

    Pass it as `http` to a provider, or as `transport` to an httpx client; hosts and ports do not matter.

    Args:
        brain: What stands in for the model; a `Script`, or a function of yours.
        settings: What it enforces, limits and breaks; `None` for the defaults.
    """

    def __init__(self, brain: Brain, settings: Settings | None = None) -> None:
        chosen = settings or Settings()
        self._world = World(chosen, chosen.clock or anyio.current_time)
        self._engine = engine(self._world, brain)

    def __repr__(self) -> str:
        return f"<InProcess {self.journal!r}>"

    @property
    def journal(self) -> Journal:
        """Every request, with what was wrong with it and how it went."""
        return self._world.journal

    @property
    def ledger(self) -> Ledger:
        """What was counted and billed."""
        return self._world.ledger

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Everything that was wrong with any request, in order; empty after a run that no vendor would object to."""
        return self.journal.violations

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer *request*.

        Raises:
            httpx.ReadError: A fault ended the connection in front of the reply.
            Exception: What the brain raised.
        """
        world = self._world
        exchange = world.journal.open(await _incoming(request), world.clock())
        world.under_way += 1
        answer = self._engine.serve(exchange)
        if self._engine.brain_error is not None:
            self._end(exchange)
            raise self._engine.brain_error
        planned = steps(answer.reply, answer.faults)
        exchange.reply = b"".join([step.data for step in planned if isinstance(step, Data)])
        try:
            await anyio.sleep(answer.delay_s)
            place = await _head_of(planned)
        except BaseException:
            self._end(exchange)
            raise
        head = planned[place]
        assert isinstance(head, Head)  # found so
        exchange.status = answer.reply.status
        exchange.first_byte_s = world.clock()
        answer.started(exchange.first_byte_s)

        def end(left: Sequence[Step]) -> None:
            exchange.whole = not left and not breaks(answer.faults)
            exchange.client_left = bool(left)
            self._engine.settle(exchange)
            self._end(exchange)

        body = _Body(planned[place + 1 :], end)
        return httpx.Response(head.status, headers=list(head.headers), stream=body, request=request)

    def _end(self, exchange: Exchange) -> None:
        self._world.under_way -= 1
        exchange.ended_s = self._world.clock()
        exchange.ended.set()


@final
class _Body(httpx.AsyncByteStream):
    """The body of a reply; *end* is called once, with the steps that were left when its reader left."""

    def __init__(self, planned: Sequence[Step], end: Callable[[Sequence[Step]], None]) -> None:
        self._left = deque(planned)
        self._end: Callable[[Sequence[Step]], None] | None = end

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        while self._left:
            match self._left[0]:
                case Data(data):
                    yield data
                case Pause(seconds):
                    await anyio.sleep(seconds)
                case Leave():
                    raise httpx.ReadError("the server closed the connection")
                case _:
                    pass
            self._left.popleft()

    async def aclose(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end(self._left)


async def _head_of(planned: Sequence[Step]) -> int:
    """Return the index of the head in *planned*, after the pauses in front of it.

    Raises:
        httpx.ReadError: The connection ends before.
    """
    pauses = list(itertools.takewhile(lambda step: isinstance(step, Pause), planned))
    await anyio.sleep(sum(step.seconds for step in pauses if isinstance(step, Pause)))
    if not isinstance(planned[len(pauses)], Head):
        raise httpx.ReadError("the server closed the connection")
    return len(pauses)


async def _incoming(request: httpx.Request) -> Incoming:
    headers: dict[str, str] = {}
    for name, value in request.headers.multi_items():
        headers[name.lower()] = f"{headers[name.lower()]},{value}" if name.lower() in headers else value
    query = dict(request.url.params)
    return Incoming(request.method, request.url.path, query, headers, await request.aread())
