"""TLS contexts are made once for what the environment says, and never on the event loop."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import anyio
import certifi
import httpx
import pytest

from shoal.providers._refusals import Asked
from shoal.providers._tls import TlsContexts
from shoal.providers._transport import Transport
from shoal.testing import virtual_backend

pytestmark = pytest.mark.anyio


class Maker:
    """Makes contexts, and notes in which thread; fails while there is a *failure*."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.failure: OSError | None = None

    def __call__(self) -> ssl.SSLContext:
        self.threads.append(threading.get_ident())
        if self.failure is not None:
            raise self.failure
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def test_a_context_is_made_in_a_thread_of_its_own():
    maker = Maker()
    await TlsContexts(maker).get()
    assert maker.threads
    assert threading.get_ident() not in maker.threads


async def test_all_who_ask_at_once_and_later_share_one_context():
    maker = Maker()
    contexts = TlsContexts(maker)
    got: list[ssl.SSLContext] = []

    async def get() -> None:
        got.append(await contexts.get())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(get)
    await get()
    assert (len(got), len(set(got)), len(maker.threads)) == (6, 1, 1)
    assert repr(contexts) == "<TlsContexts, 1 made>"


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"])
async def test_another_word_of_the_environment_is_another_context(variable: str, monkeypatch: pytest.MonkeyPatch):
    contexts = TlsContexts(Maker())
    before = await contexts.get()
    with monkeypatch.context() as changed:
        changed.setenv(variable, "/some/where")
        assert await contexts.get() is not before
    assert await contexts.get() is before


async def test_a_failure_is_told_and_not_kept():
    maker = Maker()
    contexts = TlsContexts(maker)
    maker.failure = FileNotFoundError("no such file")
    with pytest.raises(FileNotFoundError):
        await contexts.get()
    maker.failure = None
    assert await contexts.get() is await contexts.get()


def test_no_thread_is_left_behind():
    before = threading.enumerate()
    name, options = virtual_backend("asyncio")
    anyio.run(TlsContexts(Maker()).get, backend=name, backend_options=options)
    made = [thread for thread in threading.enumerate() if thread not in before]
    for thread in made:
        thread.join(10)  # it was told to end with its loop
    assert not any(thread.is_alive() for thread in made)


@pytest.fixture
def unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the environment name a file of which no context was made yet."""
    (tmp_path / "authorities.pem").symlink_to(certifi.where())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities.pem"))


@pytest.mark.usefixtures("unknown")
async def test_requests_that_open_a_transport_together_share_one_client():
    transport = Transport("http://there")
    opened: list[httpx.AsyncClient] = []

    async def open_it() -> None:
        opened.append(await transport._opened(Asked("p", "m")))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(open_it)
    await transport.aclose()
    assert (len(opened), len(set(map(id, opened)))) == (3, 1)
