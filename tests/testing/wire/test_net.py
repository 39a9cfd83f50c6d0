"""Sockets, where the server does not show it."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from shoal.testing.wire import _net
from shoal.testing.wire._http import MAX_BODY_BYTES, Connection

pytestmark = [pytest.mark.anyio, pytest.mark.sockets, pytest.mark.wall_limit(300)]


@asynccontextmanager
async def pair() -> AsyncGenerator[tuple[_net.Peer, socket.socket]]:
    with _net.listener() as listening, socket.create_connection(listening.getsockname()) as client:
        peer = await _net.accept(listening)
        try:
            yield peer, client
        finally:
            peer.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


async def test_a_client_that_resets_has_sent_all():
    async with pair() as (peer, client):
        reset(client)
        assert await peer.receive() == b""


async def test_a_client_that_resets_is_gone():
    async with pair() as (peer, client):
        reset(client)
        with anyio.fail_after(5.0):
            await peer.wait_gone()


async def test_nothing_can_be_sent_to_who_is_gone():
    async with pair() as (peer, client):
        reset(client)
        with pytest.raises(_net.PeerGone):
            await peer.send(b"x")


async def test_who_sends_more_is_not_gone():
    async with pair() as (peer, client):
        client.send(b"x")
        with anyio.move_on_after(0.1) as scope:
            await peer.wait_gone()
        assert scope.cancelled_caught
        assert await peer.receive() == b"x"


async def test_who_is_read_while_our_side_closes_has_ended():
    async with pair() as (peer, _):
        peer.close()
        assert await peer.receive() == b""


class Broken(socket.socket):
    """A socket whose system call fails for a reason that is no departure."""

    def recv(self, *_: object) -> bytes:
        raise OSError(errno.ENOMEM, "out of memory")


async def test_a_failure_of_the_system_is_no_departure():
    with Broken() as sock:
        peer = _net.Peer(sock)
        with pytest.raises(OSError, match="out of memory"):
            await peer.receive()


async def test_a_body_without_end_ends_the_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.testing.wire._http.MAX_BODY_BYTES", 10)
    async with pair() as (peer, client):
        client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 11\r\n\r\n" + b"x" * 11)
        assert await Connection(peer).request() is None
    assert MAX_BODY_BYTES > 100_000_000
