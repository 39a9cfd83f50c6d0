"""OpenAI: the Responses API, and Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, final

import httpx

from shoal.errors import ConfigInvalid
from shoal.providers._cache_keys import CacheKeys
from shoal.providers._compatible import compatible
from shoal.providers._leaders import PrefixLeaders
from shoal.providers._rates import NO_RATES, Rates
from shoal.providers._refusals import Asked
from shoal.providers._responses import LLAMA_SERVER, OPENAI_SERVER, ResponsesEncoder, ResponsesServer
from shoal.providers._responses_items import API
from shoal.providers._responses_reply import ResponsesReply
from shoal.providers._sent import Sent
from shoal.providers._states import Reader
from shoal.providers._token_counts import count_locally
from shoal.providers._transport import Timeouts, Transport
from shoal.providers._values import ModelProfile, Request, TokenCount, digest
from shoal.providers._vendor import Line, VendorProvider, checked_url, counted, secrets_in

BASE_URL = "https://api.openai.com/v1"
_SERVERS = {known.server: known for known in (OPENAI_SERVER, LLAMA_SERVER)}
_NO_SUCH_PATH = frozenset({404, 405, 501})


def openai(
    api_key: str | None = None,
    *,
    model: str | None = None,
    name: str = "openai",
    base_url: str | None = None,
    server: Literal["openai", "llama.cpp"] | ResponsesServer = "openai",
    organization: str | None = None,
    project: str | None = None,
    prefix_leader: bool = True,
    profiles: Mapping[str, ModelProfile] | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    rates: Rates | None = None,
    http: httpx.AsyncBaseTransport | None = None,
) -> VendorProvider:
    """Return a provider for OpenAI's Responses API. Nothing is stored there; reasoning comes and goes encrypted.

    Args:
        api_key: The key; `None` sends none.
        model: The model where a blueprint names none.
        name: Name under which blueprints and spans know it.
        base_url: Where `/responses` is appended; `None` for the vendor's own address.
        server: Whose Responses API it is, or what that server takes.
        organization: The organization that is billed; `None` for the key's own.
        project: The project that is billed; `None` for the key's own.
        prefix_leader: Requests wait up to 5 s for another one that writes their prefix to the cache.
        profiles: What is known of its models, by model; wins over what ships.
        headers: Further headers of each request.
        timeouts: How long to wait.
        rates: What one of its models takes a minute, until its answers say; `None` for no limit.
        http: What sends the requests, for proxies and tests; `None` uses the network.

    Raises:
        ConfigInvalid: The URL is no http URL, a header cannot be sent, or no server is known by that name.
    """
    address = BASE_URL if base_url is None else base_url
    url = checked_url(address, BASE_URL)
    return VendorProvider(
        name,
        Transport(address, headers=_headers(api_key, organization, project, headers), timeouts=timeouts, http=http),
        ResponsesDialect(name, _server_of(server)),
        default_model=model,
        profiles=profiles or {},
        secrets=secrets_in(url, api_key, *(headers or {}).values()),
        rates=rates or NO_RATES,
        leaders=PrefixLeaders() if prefix_leader else None,
    )


def openai_chat(
    api_key: str | None = None,
    *,
    model: str | None = None,
    name: str = "openai-chat",
    base_url: str | None = None,
    organization: str | None = None,
    project: str | None = None,
    prefix_leader: bool = True,
    profiles: Mapping[str, ModelProfile] | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    rates: Rates | None = None,
    http: httpx.AsyncBaseTransport | None = None,
) -> VendorProvider:
    """Return a provider for OpenAI's Chat Completions; see `openai`, which also keeps what a model thought.

    Raises:
        ConfigInvalid: The URL is no http URL.
    """
    return compatible(
        BASE_URL if base_url is None else base_url,
        api_key=api_key,
        model=model,
        name=name,
        capabilities="openai",
        prefix_leader=prefix_leader,
        profiles=profiles,
        headers=_headers(None, organization, project, headers),
        timeouts=timeouts,
        rates=rates,
        http=http,
    )


def _server_of(server: ResponsesServer | str) -> ResponsesServer:
    if isinstance(server, ResponsesServer):
        return server
    if server not in _SERVERS:
        names = ", ".join(f"`{name}`" for name in _SERVERS)
        raise ConfigInvalid(f"no server of the Responses API is known as {server!r}; name one of {names}")
    return _SERVERS[server]


def _headers(
    api_key: str | None, organization: str | None, project: str | None, more: Mapping[str, str] | None
) -> dict[str, str]:
    key = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    billed = {"OpenAI-Organization": organization, "OpenAI-Project": project}
    return {**key, **{name: value for name, value in billed.items() if value is not None}, **(more or {})}


@final
class ResponsesDialect:
    """The Responses API, as one server speaks it.

    Args:
        provider: Name of the provider.
        server: What the server takes.
        path: Where requests go.
        session_header: A header that carries the cache key too; `None` for none.
        greeting: See `Dialect`.
    """

    def __init__(
        self,
        provider: str,
        server: ResponsesServer,
        *,
        path: str = "/responses",
        session_header: str | None = None,
        greeting: str | None = "/models",
    ) -> None:
        self.server = server
        self._provider = provider
        self._path = path
        self._session_header = session_header
        self._keys = CacheKeys()
        self._encoders: dict[ModelProfile, ResponsesEncoder] = {}
        self.greeting = greeting

    def __repr__(self) -> str:
        return f"<ResponsesDialect {self.server.server}>"

    def encoder(self, profile: ModelProfile) -> ResponsesEncoder:
        """Return the encoder for the model of *profile*; one object for equal profiles, since it keys what it made."""
        made = self._encoders.get(profile)
        if made is None:
            made = self._encoders[profile] = ResponsesEncoder(self._provider, profile, self.server)
        return made

    def encode(self, request: Request, profile: ModelProfile) -> tuple[str, Sent]:
        """Return where *request* goes, and what goes there."""
        key = None
        if self.server.cache_key == "run" and request.run_id:
            key = digest(request.run_id.encode("utf-8", "surrogatepass")).hex()
        elif self.server.cache_key is not None:
            key = self._keys.key(request)
        sent = self.encoder(profile).encode(request, cache_key=key)
        if key is not None and self._session_header is not None:
            sent = Sent(sent.body, sent.names, sent.prefixes, {self._session_header: key})
        return self._path, sent

    def decoder(self, request: Request, sent: Sent, asked: Asked, headers: Mapping[str, str]) -> ResponsesReply:
        """Return what reads the answer to *request*."""
        return ResponsesReply(
            asked,
            headers=headers,
            names=sent.names,
            reader=Reader(self._provider, request.model, API),
            limit_tokens=request.max_tokens if self.server.hides_limit else None,
        )

    async def count(self, request: Request, profile: ModelProfile, line: Line) -> TokenCount:
        """Return what *request* costs: the vendor counts; where nobody does, the model's vocabulary, or bytes / 4."""
        if self.server.counts:
            sent = self.encoder(profile).encode(request, counting=True)
            answer = await line.ask(f"{self._path}/input_tokens", sent.body, absent=_NO_SUCH_PATH)
            if answer is not None:
                return counted(answer.get("input_tokens"), line)
        return await count_locally(request, profile)

    async def describe(self, profile: ModelProfile, line: Line) -> ModelProfile | None:
        """Return `None`: this API says nothing of its models but their names."""
        return None
