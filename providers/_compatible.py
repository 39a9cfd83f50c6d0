"""Any server that speaks Chat Completions: a model of your own, a gateway, or a vendor that follows the format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import final

import httpx

from shoal.providers._cache_keys import CacheKeys
from shoal.providers._chat import ChatEncoder, chat_encoder
from shoal.providers._chat_reply import ChatReply
from shoal.providers._json import as_count, as_list, as_object, as_text
from shoal.providers._leaders import PrefixLeaders
from shoal.providers._profiles import shipped_profile
from shoal.providers._rates import NO_RATES, Rates
from shoal.providers._refusals import Asked
from shoal.providers._sent import Sent
from shoal.providers._servers import Capabilities, capabilities_of
from shoal.providers._text import Text
from shoal.providers._token_counts import count_locally
from shoal.providers._transport import Timeouts, Transport
from shoal.providers._values import ModelProfile, Request, TokenCount
from shoal.providers._vendor import Line, VendorProvider, checked_url, secrets_in
from shoal.providers._wire import Wire

_NO_SUCH_PATH = frozenset({404, 405, 501})


def compatible(
    base_url: str,
    *,
    api_key: str | None = None,
    model: str | None = None,
    name: str | None = None,
    capabilities: Capabilities | str = "generic",
    prefix_leader: bool = True,
    profiles: Mapping[str, ModelProfile] | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    rates: Rates | None = None,
    http: httpx.AsyncBaseTransport | None = None,
) -> VendorProvider:
    """Return a provider for the OpenAI-compatible server at *base_url*.

    Args:
        base_url: Where `/chat/completions` is appended; most servers want a `/v1` at its end.
        api_key: The key; `None` sends none.
        model: The model where a blueprint names none.
        name: Name under which blueprints and spans know it; `None` takes that of the capabilities' server.
        capabilities: What the server takes and gives: the name of a shipped record, or a record.
        prefix_leader: Requests to a hosted server wait up to 5 s for another one that writes their prefix to the cache.
        profiles: What is known of its models, by model; the shipped table answers for others where a vendor hosts them.
        headers: Further headers of each request.
        timeouts: How long to wait.
        rates: What one of its models takes a minute, until its answers say; `None` for no limit.
        http: What sends the requests, for proxies and tests; `None` uses the network.

    Raises:
        ConfigInvalid: The URL is no http URL, a header cannot be sent, or no shipped record has that name.
    """
    url = checked_url(base_url, "http://127.0.0.1:8080/v1")
    record = capabilities_of(capabilities)
    keys = {} if api_key is None else _key_header(record, api_key)
    named = name or record.server
    return VendorProvider(
        named,
        Transport(base_url, headers={**keys, **(headers or {})}, timeouts=timeouts, http=http),
        ChatDialect(named, record, keys=CacheKeys() if record.cache_key else None),
        default_model=model,
        profiles=profiles or {},
        secrets=secrets_in(url, api_key, *(headers or {}).values()),
        rates=rates or NO_RATES,
        shipped=shipped_profile if record.hosted else _unknown,
        leaders=PrefixLeaders() if prefix_leader and record.hosted else None,
    )


def _key_header(record: Capabilities, api_key: str) -> dict[str, str]:
    return {"api-key": api_key} if record.auth == "api-key" else {"Authorization": f"Bearer {api_key}"}


@final
class ChatDialect:
    """Chat Completions, as one server speaks it.

    Args:
        provider: Name of the provider.
        capabilities: What the server takes and gives.
        keys: Gives the key under which the vendor keeps a prefix; `None` sends none.
    """

    def __init__(self, provider: str, capabilities: Capabilities, *, keys: CacheKeys | None = None) -> None:
        self.capabilities = capabilities
        self._provider = provider
        self._keys = keys
        self.greeting: str | None = "/models"

    def __repr__(self) -> str:
        return f"<ChatDialect {self.capabilities.server}>"

    def _encoder(self, profile: ModelProfile) -> ChatEncoder:
        return chat_encoder(self.capabilities, self._provider, profile.model, profile)

    def encode(self, request: Request, profile: ModelProfile) -> tuple[str, Sent]:
        """Return where *request* goes, and what goes there."""
        sent = self._encoder(profile).sent(
            request,
            provider=self._provider,
            temperature=profile.temperature,
            cache_key=None if self._keys is None else self._keys.key(request),
        )
        return "/chat/completions", sent

    def decoder(self, request: Request, sent: Sent, asked: Asked, headers: Mapping[str, str]) -> ChatReply:
        """Return what reads the answer to *request*."""
        return ChatReply(
            asked,
            headers=headers,
            names=sent.names,
            reasoning_field=self.capabilities.reasoning_field,
            ends_with=self.capabilities.ends_with,
        )

    async def count(self, request: Request, profile: ModelProfile, line: Line) -> TokenCount:
        """Return what *request* costs: by the server's own tokenizer where it has one, else about bytes / 4."""
        encoder = self._encoder(profile)
        body = encoder.encode(request, provider=self._provider, temperature=False, stream=False)
        counted: int | None = None
        match self.capabilities.counts:
            case "template":
                counted = await _count_rendered(body, line)
            case "messages":
                counted = await _count_messages(body, line)
            case "vocabulary":
                return await count_locally(request, profile)
            case _:
                pass
        if counted is None:
            return TokenCount(math.ceil(body.size / 4), "estimate")
        return TokenCount(counted, "server", exact=True)

    async def describe(self, profile: ModelProfile, line: Line) -> ModelProfile | None:
        """Return *profile* with what the server itself says of the model; `None` where it says nothing."""
        if self.capabilities.counts == "template":
            answer = await line.ask(beside(line, "/props"), None, absent=_NO_SUCH_PATH)
            settings = as_object(as_object(answer).get("default_generation_settings"))
            window = as_count(settings.get("n_ctx") or as_object(settings.get("params")).get("n_ctx"))
        elif self.capabilities.counts == "messages":
            answer = await line.ask("/models", None, absent=_NO_SUCH_PATH)
            models = [as_object(one) for one in as_list(as_object(answer).get("data"))]
            window = next((as_count(one.get("max_model_len")) for one in models if one.get("id") == profile.model), 0)
        else:
            return None
        if not window:
            return None
        return replace(
            profile,
            window_tokens=window,
            max_output_tokens=min(profile.max_output_tokens, window),
            window_source="the server itself",
        )


async def _count_rendered(body: Wire, line: Line) -> int | None:
    """Count as llama.cpp does: render the chat template, then tokenize the prompt that it gives."""
    rendered = await line.ask(beside(line, "/apply-template"), body, absent=_NO_SUCH_PATH)
    text = as_text(as_object(rendered).get("prompt"))
    if not text:
        return None
    prompt = b'{"add_special":true,"content":%b,"parse_special":true}' % Text.of(text).quoted
    tokenized = await line.ask(beside(line, "/tokenize"), Wire.of(prompt), absent=_NO_SUCH_PATH)
    return len(as_list(as_object(tokenized).get("tokens"))) or None


async def _count_messages(body: Wire, line: Line) -> int | None:
    """Count as vLLM does: it takes the messages themselves."""
    tokenized = await line.ask(beside(line, "/tokenize"), body, absent=_NO_SUCH_PATH)
    return as_count(as_object(tokenized).get("count")) or None


def beside(line: Line, path: str) -> str:
    """Return where *path* is, which stands beside `/v1`."""
    return line.base_url.removesuffix("/v1") + path


def _unknown(model: str) -> ModelProfile:
    return ModelProfile(model, window_key=f'[models."{model}"] context')
