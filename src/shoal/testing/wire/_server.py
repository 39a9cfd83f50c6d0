"""The server: connections on loopback, each request through the engine, each reply delivered with its faults."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from typing import final

import anyio
import anyio.abc
import anyio.from_thread

from shoal.testing.wire import _net
from shoal.testing.wire._delivery import Data, Pause, Reply, steps
from shoal.testing.wire._engine import Engine, World
from shoal.testing.wire._faults import breaks
from shoal.testing.wire._http import Connection, Incoming
from shoal.testing.wire._journal import Journal
from shoal.testing.wire._ledger import Ledger
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._settings import Settings
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._values import Brain
from shoal.testing.wire._vendors import engine


@final
class Server:
    """A server that runs. Made by `serve` and `serve_in_thread`."""

    def __init__(self, world: World, port: int) -> None:
        self._world = world
        self._port = port

    def __repr__(self) -> str:
        return f"<Server {self.base_url} {self.journal!r}>"

    @property
    def base_url(self) -> str:
        """Where it listens, without a path: what clients of Anthropic and Gemini take."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        """The same with `/v1`: what clients of OpenAI and of compatible servers take."""
        return f"{self.base_url}/v1"

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


@contextlib.asynccontextmanager
async def serve(brain: Brain, settings: Settings | None = None) -> AsyncGenerator[Server]:
    """Serve on a free port of 127.0.0.1, on the event loop of the caller.

    Args:
        brain: What stands in for the model; a `Script`, or a function of yours.
        settings: What it enforces, limits and breaks; `None` for the defaults.

    Yields:
        The server. Leaving ends its connections.

    Raises:
        Exception: What the brain raised, if it did and nothing else went wrong.
    """
    chosen = settings or Settings()
    world = World(chosen, chosen.clock or anyio.current_time)
    serving = engine(world, brain)
    failed: Exception | None = None
    listening = _net.listener()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_accept, tasks, listening, world, serving)
            try:
                yield Server(world, listening.getsockname()[1])
            except Exception as exc:  # noqa: BLE001 - raised again below, outside the group that would wrap it
                failed = exc
            tasks.cancel_scope.cancel()
    finally:
        listening.close()
    if failed is not None:
        raise failed
    if serving.brain_error is not None:
        raise serving.brain_error


@contextlib.contextmanager
def serve_in_thread(brain: Brain, settings: Settings | None = None) -> Generator[Server]:
    """Serve as `serve` does, on an event loop of its own in a thread: for clients that block, and for subprocesses.

    Yields:
        The server. Its journal and ledger may be read from any thread.
    """
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve(brain, settings)) as server,
    ):
        yield server


async def _accept(tasks: anyio.abc.TaskGroup, listening: socket.socket, world: World, serving: Engine) -> None:
    while True:
        peer = await _net.accept(listening)
        tasks.start_soon(_converse, Connection(peer), world, serving)


async def _converse(connection: Connection, world: World, serving: Engine) -> None:
    """Serve one connection until its client leaves."""
    try:
        while (incoming := await connection.request()) is not None:
            if shown := _shown(incoming, world):
                await connection.perform(steps(shown), lambda: None)
            else:
                await _exchange(connection, incoming, world, serving)
            if not connection.next_cycle():
                return
    finally:
        connection.close()


def _shown(incoming: Incoming, world: World) -> Reply | None:
    """Return the ledger or the journal, if that is what *incoming* asks for."""
    match incoming.path:
        case "/__ledger":
            value: object = world.ledger.as_json()
        case "/__journal":
            value = [exchange.summary() for exchange in world.journal]
        case _:
            return None
    return Reply(200, (("content-type", "application/json"),), compact(value).encode())


async def _exchange(connection: Connection, incoming: Incoming, world: World, serving: Engine) -> None:
    exchange = world.journal.open(incoming, world.clock())
    world.under_way += 1
    try:
        answer = serving.serve(exchange)
        planned = steps(answer.reply, answer.faults)
        exchange.reply = b"".join(step.data for step in planned if isinstance(step, Data))

        def started() -> None:
            exchange.status = answer.reply.status
            exchange.first_byte_s = world.clock()
            answer.started(exchange.first_byte_s)

        late = (Pause(answer.delay_s),) if answer.delay_s else ()
        sent = await connection.perform((*late, *planned), started)
        exchange.whole = sent.whole and not breaks(answer.faults)
        exchange.client_left = sent.client_left
        serving.settle(exchange)
    finally:
        world.under_way -= 1
        exchange.ended_s = world.clock()
        exchange.ended.set()
