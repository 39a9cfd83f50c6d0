"""HTTP/1.1 on one connection: requests are read properly, replies are sent as badly as they are meant to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import h11

from shoal.testing.wire._delivery import Data, Finish, Head, Leave, Pause, Step
from shoal.testing.wire._net import Peer, PeerGone

MAX_BODY_BYTES = 256 * 1024 * 1024
"""Above what any vendor takes; a request that is longer ends its connection."""


@final
@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came.

    Args:
        method: `GET`, `POST`, …
        path: Decoded, without the query.
        query: The first value of each key.
        headers: Names in lower case; values of a repeated name are joined by a comma.
        body: The bytes.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@final
@dataclass(frozen=True, slots=True)
class Sent:
    """How delivery went: whether it reached its end, and whether the client left before that."""

    whole: bool
    client_left: bool


@final
class Connection:
    """One connection of a client.

    Args:
        peer: Its socket.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=1_048_576)
        self._without_body = False

    def __repr__(self) -> str:
        return f"<Connection {self._http.our_state}>"

    async def request(self) -> Incoming | None:
        """Return the next request; `None` when the client is done, or does not speak HTTP."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                return None
            match event:
                case h11.NEED_DATA:
                    await self._feed()
                case h11.Request():
                    head = event
                case h11.Data():
                    body += event.data
                    if len(body) > MAX_BODY_BYTES:
                        return None
                case h11.EndOfMessage() if head is not None:
                    self._without_body = head.method == b"HEAD"
                    return _incoming(head, bytes(body))
                case _:
                    return None

    async def _feed(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        self._http.receive_data(await self._peer.receive())

    async def perform(self, steps: Sequence[Step], started: Callable[[], None]) -> Sent:
        """Perform *steps*, which end the reply or the connection; call *started* at the first byte."""
        left = False

        async def watch(scope: anyio.CancelScope) -> None:
            nonlocal left
            await self._peer.wait_gone()
            left = True
            scope.cancel()

        performed = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, tasks.cancel_scope)
            try:
                for step in steps:
                    await self._do(step, started)
                performed = True
            except PeerGone:
                left = True
            tasks.cancel_scope.cancel()
        end = steps[-1]
        if performed and isinstance(end, Leave) and end.reset:
            self._peer.reset()
        elif not performed or isinstance(end, Leave):
            self._peer.close()
        return Sent(whole=performed and isinstance(end, Finish), client_left=left and not performed)

    async def _do(self, step: Step, started: Callable[[], None]) -> None:
        match step:
            case Head(status, headers, length):
                framing = ("transfer-encoding", "chunked") if length is None else ("content-length", str(length))
                started()
                await self._send(h11.Response(status_code=status, headers=[*headers, framing]))
            case Data(data):
                if not self._without_body:
                    await self._send(h11.Data(data=data))
            case Pause(seconds):
                await anyio.sleep(seconds)
            case Finish():
                await self._send(h11.EndOfMessage())
            case _:
                pass  # leaving is done once nobody watches the socket any more

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            await self._peer.send(data)

    def next_cycle(self) -> bool:
        """Make ready for another request; say whether the connection can carry one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


def _incoming(head: h11.Request, body: bytes) -> Incoming | None:
    try:
        target = urlsplit(head.target.decode("ascii"))
    except ValueError:
        return None
    headers: dict[str, str] = {}
    for name, value in head.headers:
        key, text = name.decode("ascii"), value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    query = {key: values[0] for key, values in parse_qs(target.query, keep_blank_values=True).items()}
    return Incoming(head.method.decode("ascii"), unquote(target.path), query, headers, body)
