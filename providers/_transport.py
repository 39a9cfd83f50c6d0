"""HTTP behind one door: everything that knows of httpx is here, so another client could take its place.

A read has a deadline of its own. A cancel scope around a `yield` would cancel whatever the consumer happens to wait
for, so none stands in a generator here.
"""

from __future__ import annotations

import base64
import re
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar, final

import anyio
import httpx

from shoal.errors import ConfigInvalid, ProviderRefused, ProviderSetup, ProviderUnavailable
from shoal.providers._loops import LoopWatch
from shoal.providers._refusals import HTML, Asked
from shoal.providers._sse import Event, EventTooLong, SseDecoder
from shoal.providers._tls import TlsContexts
from shoal.providers._values import Trace
from shoal.providers._wire import Deferred, Wire

T = TypeVar("T")

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BYTES = 256 * 1024
_DRAIN_S = 0.25
_ANY_HEADER = zlib.MAX_WBITS | 32  # of gzip and of zlib
_BLANK = b" \t\r\n\xef\xbb\xbf"  # white space and byte order marks
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ -~\t]*[!-~])?)?")


@final
@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a provider waits, in seconds, each above 0; the total of one attempt is the request's own.

    Args:
        connect_s: For a connection, TLS included.
        first_byte_s: For the first byte of the answer's body, from the start of sending.
        idle_s: For each further byte; pings count.
    """

    connect_s: float = 10.0
    first_byte_s: float = 300.0
    idle_s: float = 120.0

    def __post_init__(self) -> None:
        if min(self.connect_s, self.first_byte_s, self.idle_s) <= 0:
            raise ConfigInvalid(f"{self!r} leaves no time to wait; set each to more than 0 seconds")


@final
@dataclass(slots=True)
class _Waits:
    """Until when the steps of one exchange may take, by the loop's clock.

    Args:
        first_by: When the first byte has to be there; `None` once it is.
        idle_s: Seconds for each step after it.
        ends_at: When everything has to be there.
    """

    first_by: float | None
    idle_s: float
    ends_at: float

    async def within(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return what *step* gives in time."""
        now = anyio.current_time()
        wait_s = self.idle_s if self.first_by is None else self.first_by - now
        with anyio.fail_after(min(wait_s, self.ends_at - now)):
            return await step()


def apart(url: httpx.URL) -> tuple[httpx.URL, dict[str, str]]:
    """Return *url* without user and password, and the header that carries them; no header where there are none."""
    if not url.userinfo:
        return url, {}
    user = f"{url.username}:{url.password}".encode()
    return url.copy_with(userinfo=b""), {"Authorization": f"Basic {base64.b64encode(user).decode()}"}


def sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Return *headers* by lower-case name, if they can be sent; of two of one name the later one.

    Raises:
        ConfigInvalid: One cannot. Its value is not repeated, nor found out from the client, which repeats it.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ConfigInvalid(
                f"the header {name!r} cannot be sent: a line end, a space at an edge or a character outside of ASCII "
                "stands in it; check the key that it is made of, which a file may end with a line"
            )
    return {name.lower(): value for name, value in headers.items()}


def _tls_context() -> ssl.SSLContext:
    """Return a new TLS context; what the first client of a process has to import is there then as well."""
    made = httpx.create_ssl_context()
    httpx.AsyncHTTPTransport(verify=made)
    return made


_contexts = TlsContexts(_tls_context)


@contextmanager
def _set_up(asked: Asked) -> Generator[None]:
    """Turn what comes of a client that cannot be made into an error of ours."""
    try:
        yield
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as exc:
        # The URL of a proxy may hold a password, and this one may be repeated in pieces.
        said = type(exc).__name__ if isinstance(exc, httpx.InvalidURL) else asked.clean(str(exc))
        raise ProviderSetup(
            f"{asked.provider}: no connection can be made with what the environment says of the network ({said})",
            remedy="Mend the variables `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `SSL_CERT_FILE`, `SSL_CERT_DIR`.",
            **asked.context(),
        ) from None


@final
class Transport:
    """Sends requests to one vendor over one pool of connections, opened at the first request.

    Args:
        base_url: Where paths are appended.
        headers: Sent with every request; may hold a key.
        timeouts: How long to wait.
        max_response_bytes: The most that one answer may hold.
        http: What sends the requests, for proxies and tests; `None` uses the network.

    Raises:
        ConfigInvalid: A header cannot be sent.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        http: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        # Not in the URL, which clients write into their logs.
        url, login = apart(httpx.URL(base_url))
        self.base_url = str(url).rstrip("/")
        self.timeouts = timeouts or Timeouts()
        self.max_response_bytes = max_response_bytes
        self._headers = sendable({**login, **(headers or {})})
        self._http = http
        self._client: httpx.AsyncClient | None = None
        self._loop = LoopWatch()

    def __repr__(self) -> str:
        # No headers, and no user of the URL: any of them may hold a key.
        return f"<Transport to {self.base_url}, {'closed' if self._client is None else 'open'}>"

    @asynccontextmanager
    async def post(
        self,
        path: str,
        body: Wire | None,
        asked: Asked,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        trace: Trace | None = None,
    ) -> AsyncGenerator[Answer]:
        """Send *body* to *path* and yield the answer once its first bytes are there; leaving closes what is left of it.

        Args:
            path: Appended to the base URL; a whole URL stands for itself.
            body: The JSON body; `None` sends a GET without one.
            asked: Named in errors.
            timeout_s: Seconds for the whole exchange.
            headers: Further headers of this request.
            trace: The span that it belongs to, said where the host may know.

        Raises:
            ProviderUnavailable: No connection, or no answer in time.
            ProviderSetup: What the environment says of proxies or certificates is of no use.
        """
        client = await self._opened(asked)
        began_at = anyio.current_time()
        waits = _Waits(began_at + self.timeouts.first_byte_s, self.timeouts.idle_s, began_at + timeout_s)
        url = path if "://" in path else self.base_url + path
        if trace is not None and httpx.URL(url).host in trace.hosts:
            headers = {**(headers or {}), "traceparent": trace.traceparent}
        if body is None:
            request = client.build_request("GET", url, headers=headers)
        else:
            kind = {"Content-Length": str(body.size), "Content-Type": "application/json"}
            made = client.build_request("POST", url, headers={**kind, **(headers or {})})
            # As `content` it would be wrapped in a generator, which stays open where a request is cancelled.
            request = httpx.Request(
                "POST", made.url, headers=made.headers, extensions=made.extensions, stream=_Pieces(body)
            )
        with _translated(asked):
            response = await waits.within(lambda: client.send(request, stream=True))
        answer = Answer(response, asked, waits, self.max_response_bytes)
        try:
            yield answer
        finally:
            try:
                await answer.aclose()
            finally:
                await response.aclose()

    async def _opened(self, asked: Asked) -> httpx.AsyncClient:
        """Return the open client; a new one where the last one's event loop is gone, and its connections with it."""
        if self._loop.moved():
            self._client = None
        return self._client or await self._connected(asked)

    async def _connected(self, asked: Asked) -> httpx.AsyncClient:
        with _set_up(asked):
            tls = None if self._http is not None else await _contexts.get()
            if self._client is None:  # others may have waited for the same, and gone first
                self._client = httpx.AsyncClient(
                    verify=True if tls is None else tls,
                    transport=self._http,
                    headers={"accept-encoding": "identity", "user-agent": "shoal", **self._headers},
                    # Reads are timed one by one; how many run at once is for the runtime's pools to say.
                    timeout=httpx.Timeout(None, connect=self.timeouts.connect_s),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=60.0),
                )
        return self._client

    async def aclose(self) -> None:
        """Close all connections. Closing twice is fine; a later request opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop.here:  # those of another event loop went with it
            await client.aclose()


@final
class Answer:
    """The answer to one request, of which nothing but the head is read yet.

    Args:
        response: What arrived.
        asked: Named in errors.
        waits: How long each read may take.
        max_bytes: The most that the body may hold.
    """

    def __init__(self, response: httpx.Response, asked: Asked, waits: _Waits, max_bytes: int) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        # As it came: what is compressed may be small, and without end once it is not. A client that is no network may
        # have read it already.
        self._chunks = response.aiter_bytes() if response.is_stream_consumed else response.aiter_raw()
        named = self.headers.get("content-encoding", "").strip().lower()
        self._encoding = "identity" if response.is_stream_consumed else named or "identity"
        self._asked = asked
        self._waits = waits
        self._left_bytes = max_bytes
        self._max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"<Answer {self.status} to {self._asked.model}, {self._max_bytes - self._left_bytes} bytes read>"

    async def read(self) -> bytes:
        """Return the whole body.

        Raises:
            ProviderUnavailable: It was cut, or did not arrive in time.
            ProviderRefused: It is larger than the limit, or compressed.
        """
        async with aclosing(self._read()) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def read_error(self) -> bytes:
        """Return the start of an error's body, as much as arrives and can be read: the status alone says enough."""
        held = bytearray()
        with suppress(ProviderUnavailable):
            async with aclosing(self._read(as_it_came=True)) as chunks:
                async for chunk in chunks:
                    held += chunk
                    if len(held) > _MAX_ERROR_BYTES:
                        break
        if self._encoding == "identity":
            return bytes(held[:_MAX_ERROR_BYTES])
        try:
            return zlib.decompressobj(_ANY_HEADER).decompress(held, _MAX_ERROR_BYTES)
        except zlib.error:
            return b""

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events of the body as they arrive; a body that is JSON, of a server that does not stream, is one.

        What it is shows in its first byte, which is more to be trusted than what a server calls it.

        Raises:
            ProviderUnavailable: The body was cut, or nothing arrived for too long, or it is a page for people.
            ProviderRefused: The body, or one event in it, is larger than the limit; or it is compressed.
        """
        decoder = SseDecoder()
        async with aclosing(self._read()) as chunks:
            head = await _until_it_begins(chunks)
            match head[:1]:
                case b"{" | b"[":
                    yield Event(b"".join([head, *[chunk async for chunk in chunks]]))
                    return
                case b"<":
                    why = f"{self._asked.provider}: the answer is {HTML} and no reply; check that the base URL is right"
                    raise ProviderUnavailable(why, **self._asked.context(status=self.status))
                case _:
                    pass
            for event in self._decoded(decoder, head):
                yield event
            async for chunk in chunks:
                for event in self._decoded(decoder, chunk):
                    yield event
        for event in decoder.end():
            yield event

    async def drain(self) -> None:
        """Read what stands behind the last event, so that the connection can be used again; never waits long for it."""
        with anyio.move_on_after(_DRAIN_S):
            await self.read_error()

    async def aclose(self) -> None:
        """Forget what was not read, and with it the connection."""
        # httpx reads through a chain of generators that do not close each other, of which trio warns. In a scope that
        # is over, the innermost one is cancelled where it waits, and they all unwind.
        with anyio.move_on_after(0), suppress(httpx.HTTPError):
            async for _ in self._chunks:
                pass

    def _decoded(self, decoder: SseDecoder, chunk: bytes) -> list[Event]:
        try:
            return decoder.feed(chunk)
        except EventTooLong as exc:
            raise self._too_long() from exc

    async def _read(self, *, as_it_came: bool = False) -> AsyncGenerator[bytes]:
        if self._encoding != "identity" and not as_it_came:
            raise ProviderRefused(
                f"{self._asked.provider}: the answer is encoded as {self._encoding!r}, which nobody asked for; "
                "turn compression off in the proxy in front of the server",
                **self._asked.context(status=self.status),
            )
        while True:
            with _translated(self._asked):
                chunk = await self._waits.within(lambda: anext(self._chunks, b""))
            self._waits.first_by = None
            if not chunk:
                return
            self._left_bytes -= len(chunk)
            if self._left_bytes < 0:
                raise self._too_long()
            yield chunk

    def _too_long(self) -> ProviderRefused:
        return ProviderRefused(
            f"{self._asked.provider}: the answer passed {self._max_bytes!r} bytes; ask for less",
            **self._asked.context(status=self.status),
        )


async def _until_it_begins(chunks: AsyncGenerator[bytes]) -> bytes:
    """Return the first of *chunks* that says something, without the blanks in front; nothing where none does."""
    async for chunk in chunks:
        head = chunk.lstrip(_BLANK)
        if head:
            return head
    return b""


@final
class _Pieces(httpx.AsyncByteStream):
    """A body that is joined to pieces when it is written, as often as it is written."""

    def __init__(self, body: Wire) -> None:
        self._body = body

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _Writing(self._body.pieces())


@final
class _Writing:
    """One writing of a body. No generator: whoever is cancelled in its middle leaves nothing that has to be closed."""

    def __init__(self, pieces: Iterator[bytes | Deferred]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece if isinstance(piece, bytes) else await anyio.to_thread.run_sync(piece.load)
        raise StopAsyncIteration


@contextmanager
def _translated(asked: Asked) -> Generator[None]:
    """Turn what the network does into an error of the tree."""
    try:
        yield
    except TimeoutError as exc:
        raise ProviderUnavailable(
            f"{asked.provider}: nothing arrived in time; raise `timeouts`, or try again", **asked.context()
        ) from exc
    except httpx.RequestError as exc:
        said = asked.clean(str(exc)) or type(exc).__name__
        raise ProviderUnavailable(
            f"{asked.provider}: no complete reply ({said}); check the network and that the server runs",
            **asked.context(),
        ) from (None if asked.holds_secret(str(exc)) else exc)
