"""A server on loopback that answers as it is told, badly where that is wanted. It knows nothing of our client."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anyio
import anyio.abc

Step: TypeAlias = "bytes | Literal['reset', 'wait', 'close']"

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: r-1\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Return *data* as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def events(*said: dict[str, Any], done: bool = True) -> bytes:
    """Return *said* as events of a stream, with its end mark."""
    data = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in said)
    return data + b"data: [DONE]\n\n" if done else data


def text(*pieces: str, finish: str = "stop") -> tuple[dict[str, Any], ...]:
    """Return the chunks of a reply that says *pieces*."""
    deltas = [{"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]} for piece in pieces]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": len(pieces)}}
    return (*deltas, end, usage)


def streamed(*said: dict[str, Any]) -> tuple[Step, ...]:
    """Return a whole good answer."""
    return (HEAD, chunk(events(*said)), END)


def answer(status: int, body: object, **headers: str) -> tuple[Step, ...]:
    """Return an answer that is no stream."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return (f"HTTP/1.1 {status} X\r\n{lines}content-length: {len(content)}\r\n\r\n".encode() + content,)


@dataclass
class Received:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded


@dataclass
class Server:
    """What a server was told to do and what it saw."""

    plays: list[tuple[Step, ...]]
    port: int = 0
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    gone: anyio.Event = field(default_factory=anyio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        async with stream:
            try:
                await self._talk(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                self.gone.set()

    async def _talk(self, stream: anyio.abc.SocketStream) -> None:
        while True:
            self.received.append(await _read(stream))
            for step in self.plays.pop(0):
                if step == "close":
                    return
                if step == "reset":
                    raw: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if step == "wait":
                    await stream.receive()  # ends when the client goes away
                else:
                    assert isinstance(step, bytes)
                    await stream.send(step)


async def _read(stream: anyio.abc.SocketStream) -> Received:
    held = b""
    while b"\r\n\r\n" not in held:
        held += await stream.receive()
    head, _, body = held.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive()
    return Received(first.split()[1], headers, body)


@asynccontextmanager
async def serving(*plays: tuple[Step, ...]) -> AsyncGenerator[Server]:
    """Serve one of *plays* for each request, in order."""
    server = Server(list(plays))
    failure: Exception | None = None
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, server.serve)
            try:
                yield server
            except Exception as exc:  # noqa: BLE001 # raised below, since a task group would wrap it
                failure = exc
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
