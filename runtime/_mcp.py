"""MCP servers as sources of tools: started or reached when a run needs one, and let go when nobody does.

A server's tools stand in a run's definition as the server described them at the spawn, so that a resumed run shows its
model the same ones. A call that finds its server gone is an error that the model reads.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar, cast, final

import anyio

from shoal.errors import ConfigInvalid, ConnectorFailed
from shoal.runtime._failures import failure_text
from shoal.runtime._mcp_said import called, effects_of, legal, legal_names, listed
from shoal.runtime.tools import Effects, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    import mcp
    from mcp import types

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server whose tools runs may use: a program that is started, or an address.

    Args:
        name: What blueprints call it, in `available_connectors` and in front of its tools' names.
        command: Program and arguments, for one that speaks over its standard streams; empty where *url* is given.
        url: Address of one that speaks over HTTP; empty where *command* is given.
        env: Variables for the program, beside a few harmless ones of ours; or what returns them when it is started.
            They stand in no journal.
        headers: Headers of each HTTP request, such as `Authorization`; or what returns them when it is reached. They
            stand in no journal.
        folder: Working directory of the program; `None` for ours.
        connect_timeout_s: Seconds until it has to be ready.
        timeout_s: Seconds that one call may take.
        idle_s: Seconds without a call after which it is let go; it is started again when it is needed.
        deferred: Its tools stand by name only until a model loads them.

    Raises:
        ConfigInvalid: The name is none, or it has both a command and an address, or neither.
    """

    name: str
    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] | Callable[[], Mapping[str, str]] = field(default_factory=dict[str, str], repr=False)
    headers: Mapping[str, str] | Callable[[], Mapping[str, str]] = field(default_factory=dict[str, str], repr=False)
    folder: str | Path | None = None
    connect_timeout_s: float = 30.0
    timeout_s: float = 60.0
    idle_s: float = 60.0
    deferred: bool = False

    def __post_init__(self) -> None:
        """Check it."""
        if not _SERVER_NAME.fullmatch(self.name):
            raise ConfigInvalid(f"{self.name!r} cannot name an MCP server; use letters, digits, `.`, `_` and `-`")
        if bool(self.command) == bool(self.url):
            raise ConfigInvalid(f"the MCP server {self.name!r} needs either a `command` or a `url`")


@final
class _Asked(Generic[T]):
    """Something that is asked of a server: done by whoever holds the connection, for whoever waits."""

    def __init__(self, ask: Callable[[mcp.Client], Awaitable[T]]) -> None:
        self._ask = ask
        self.answer: list[T] = []
        self.error: Exception | None = None
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()

    async def carry_out(self, client: mcp.Client) -> None:
        with self.scope:
            try:
                self.answer.append(await self._ask(client))
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is for who asked
                self.error = exc
            self.done.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()


@final
class Connection:
    """The connection to one server. One task holds it, whoever asks.

    Args:
        server: The server.
    """

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._asked: list[_Asked[Any]] = []
        self._bell = anyio.Event()
        self._tools: tuple[Tool, ...] | None = None
        self._open = 0
        self._lost = False

    def __repr__(self) -> str:
        return f"<Connection {self.server.name}>"

    def may_have(self, name: str) -> bool:
        """Say whether a tool of that name could be one of its own: it begins with the server's name, or with none."""
        return "__" not in name or name.startswith(legal(f"{self.server.name}__"))

    async def tools(self) -> Sequence[Tool]:
        """Return its tools; the same objects as long as the connection stands.

        Raises:
            ConnectorFailed: It cannot be reached, or does not say.
        """
        if self._tools is None:
            described = await self._do(listed)
            names = legal_names(self.server.name, [each.name for each in described])
            self._tools = tuple(self._tool(name, each) for name, each in zip(names, described, strict=True))
        return self._tools

    def _tool(self, name: str, described: types.Tool) -> Tool:
        said = described.description or described.title or described.name
        return self.bound(name, described.name, said, described.input_schema, effects_of(described.annotations))

    def bound(
        self,
        name: str,
        original: str,
        description: str,
        schema: Mapping[str, Any],
        effects: Effects,
        *,
        deferred: bool | None = None,
    ) -> Tool:
        """Return a tool of the server as runs call it; *deferred* is what the server says unless it is given."""

        async def call(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
            return await self._call(original, args)

        held = (self.server.name, original)
        later = self.server.deferred if deferred is None else deferred
        return Tool(name, description, schema, call, "ask", effects, connector=held, deferred=later)

    async def _call(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        try:
            return await self._do(partial(called, name, dict(args), self.server.timeout_s))
        except ConnectorFailed as exc:
            return ToolResult.error(failure_text(exc))

    async def _do(self, ask: Callable[[mcp.Client], Awaitable[T]]) -> T:
        asked = _Asked(ask)
        self._asked.append(asked)
        self._bell.set()
        try:
            await asked.done.wait()
        except BaseException:
            asked.scope.cancel()  # nobody waits for it any more
            raise
        if asked.error is not None:
            what = str(asked.error) or type(asked.error).__name__
            raise ConnectorFailed(f"the MCP server {self.server.name!r} did not answer: {what}") from asked.error
        return asked.answer[0]

    # --- holding it

    async def serve(self) -> None:
        """Connect when something is asked, answer, and let go after an idle time, until cancelled."""
        while True:
            while not self._asked:
                self._bell = anyio.Event()
                await self._bell.wait()
            try:
                async with self._connected() as client:
                    await self._work(client)
            except Exception as exc:  # noqa: BLE001 - a server that cannot be held is an answer to all who ask
                self._give_up(exc)
            finally:
                self._tools = None

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[mcp.Client]:
        with anyio.fail_after(self.server.connect_timeout_s) as patience:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._client(stack))
                patience.deadline = float("inf")
                yield client

    async def _client(self, stack: AsyncExitStack) -> mcp.Client:
        try:
            import httpx2  # noqa: PLC0415 - what the extra brings
            import mcp  # noqa: PLC0415 - an extra
            from mcp.client.stdio import stdio_client  # noqa: PLC0415
            from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415
        except ImportError as exc:
            raise ConnectorFailed("MCP servers need the package `mcp`; install `shoal[mcp]`") from exc
        server = self.server
        if not server.url:
            program, *arguments = server.command
            started = mcp.StdioServerParameters(
                command=program, args=arguments, env=_now(server.env), cwd=server.folder
            )
            # A terminal of ours may be none to others, as in a notebook; what they say of trouble goes nowhere then.
            return mcp.Client(stdio_client(started, errlog=_stderr(stack)))
        # Reads have no limit here, since a server may keep a stream open without a word; each call has its own.
        patience = httpx2.Timeout(server.timeout_s, read=None)
        http = httpx2.AsyncClient(headers=_now(server.headers), timeout=patience)
        return mcp.Client(streamable_http_client(server.url, http_client=await stack.enter_async_context(http)))

    async def _work(self, client: mcp.Client) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                while self._asked:
                    self._open += 1
                    tasks.start_soon(self._carry_out, self._asked.pop(0), client)
                self._bell = anyio.Event()
                with anyio.move_on_after(self.server.idle_s):
                    await self._bell.wait()
                if self._lost:
                    self._lost = False
                    tasks.cancel_scope.cancel()
                    return
                if not self._asked and not self._open:
                    return

    async def _carry_out(self, asked: _Asked[Any], client: mcp.Client) -> None:
        try:
            await asked.carry_out(client)
        finally:
            self._open -= 1
        if asked.error is not None and _is_gone(asked.error):
            self._lost = True  # whoever asks next finds it started again
            self._bell.set()

    def _give_up(self, error: Exception) -> None:
        asked, self._asked = self._asked, []
        cause = error
        while isinstance(cause, ExceptionGroup):
            cause = cast("ExceptionGroup[Exception]", cause).exceptions[0]
        if isinstance(cause, TimeoutError):
            cause = TimeoutError(f"it was not ready within {self.server.connect_timeout_s:g} s")
        for each in asked:
            each.fail(cause)


def _stderr(stack: AsyncExitStack) -> TextIO:
    """Return where a program may write what is wrong: our standard error if it is a file, else nowhere."""
    try:
        sys.stderr.fileno()
    except (OSError, AttributeError, ValueError):
        return stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123 - a device
    return sys.stderr


def _now(values: Mapping[str, str] | Callable[[], Mapping[str, str]]) -> dict[str, str]:
    return dict(values() if callable(values) else values)


def _is_gone(error: Exception) -> bool:
    """Say whether *error* means that the connection is lost, and not that the server refused something."""
    from mcp import MCPError  # noqa: PLC0415 - an extra
    from mcp.types import CONNECTION_CLOSED  # noqa: PLC0415

    return not isinstance(error, MCPError) or error.error.code == CONNECTION_CLOSED
