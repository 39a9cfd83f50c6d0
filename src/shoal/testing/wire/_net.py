"""Sockets that do what they are told: they close with an end of data or with a reset, and see a peer leave."""

from __future__ import annotations

import errno
import socket
import struct
from typing import final

import anyio
import anyio.lowlevel

_READ_BYTES = 65_536
_GONE = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ENOTCONN, errno.ETIMEDOUT})


class PeerGone(Exception):
    """The other side closed the connection."""


def listener() -> socket.socket:
    """Return a non-blocking socket that listens on a free port of 127.0.0.1."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=512)
    sock.settimeout(0)
    return sock


async def accept(listening: socket.socket) -> Peer:
    """Wait for the next connection to *listening*."""
    while True:
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # nobody is there, or left before we came
            await anyio.wait_readable(listening)
        else:
            return Peer(sock)


@final
class Peer:
    """One accepted connection. Raw, because anyio's streams always close gracefully."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        # Each piece of a body travels at once: a test that cuts a body wants the cuts to arrive.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock

    def __repr__(self) -> str:
        return f"<Peer {'closed' if self._sock.fileno() < 0 else self._sock.fileno()}>"

    async def receive(self) -> bytes:
        """Return the next bytes; empty when the peer has sent all, or left."""
        while True:
            try:
                return self._sock.recv(_READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
            except OSError as exc:
                self._must_be_gone(exc)
                return b""

    async def send(self, data: bytes) -> None:
        """Send all of *data*.

        Raises:
            PeerGone: The peer does not listen any more.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._sock)
            except OSError as exc:
                self._must_be_gone(exc)
                raise PeerGone from exc
        await anyio.lowlevel.checkpoint()

    async def wait_gone(self) -> None:
        """Return once the peer has closed its side; never if it sends more, since then nobody can tell."""
        while True:
            try:
                data = self._sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
            except OSError as exc:
                self._must_be_gone(exc)
                return
            else:
                if not data:
                    return
                await anyio.sleep_forever()

    def close(self) -> None:
        """Close with an end of data."""
        self._sock.close()

    def reset(self) -> None:
        """Close with a reset: the peer's next read fails."""
        if self._sock.fileno() >= 0:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def _must_be_gone(self, exc: OSError) -> None:
        """Let pass only errors that mean that the peer left, or that our own side was closed meanwhile."""
        if exc.errno not in _GONE and self._sock.fileno() >= 0:
            raise exc
