"""TLS contexts: each reads a file of some hundred authorities, for which an event loop must not be held up."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from typing import TypeAlias, final

import anyio.to_thread

_READ = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")

_Settings: TypeAlias = tuple[str | None, ...]


@final
class TlsContexts:
    """Makes a context for what the environment says, once, in a worker thread; all who ask for it share it.

    Args:
        make: Makes one by the environment.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext]) -> None:
        self._make = make
        self._made: dict[_Settings, ssl.SSLContext] = {}
        # Of threads, since a lock of one event loop is none in the next.
        self._making = threading.Lock()

    def __repr__(self) -> str:
        return f"<TlsContexts, {len(self._made)} made>"

    async def get(self) -> ssl.SSLContext:
        """Return the context for what the environment says now.

        Raises:
            OSError: A file that it names cannot be read.
            ValueError: It names something that cannot be a file.
        """
        wanted = tuple([os.environ.get(name) for name in _READ])
        made = self._made.get(wanted)
        return await anyio.to_thread.run_sync(self._get, wanted) if made is None else made

    def _get(self, wanted: _Settings) -> ssl.SSLContext:
        with self._making:
            made = self._made.get(wanted)
            if made is None:
                made = self._made[wanted] = self._make()
            return made
