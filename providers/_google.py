"""Google's Gemini API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import final
from urllib.parse import quote

import httpx

from shoal.providers._gemini import MAX_INLINE_BYTES, GeminiEncoder
from shoal.providers._gemini_parts import API
from shoal.providers._gemini_reply import GeminiReply
from shoal.providers._json import as_count
from shoal.providers._leaders import PrefixLeaders
from shoal.providers._rates import NO_RATES, Rates
from shoal.providers._refusals import Asked
from shoal.providers._sent import Sent
from shoal.providers._states import Reader
from shoal.providers._transport import Timeouts, Transport
from shoal.providers._values import ModelProfile, Request, TokenCount
from shoal.providers._vendor import Line, VendorProvider, checked_url, counted, secrets_in

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
_NO_SUCH_PATH = frozenset({404, 405, 501})


def google(
    api_key: str | None = None,
    *,
    model: str | None = None,
    name: str = "google",
    base_url: str | None = None,
    max_inline_bytes: int = MAX_INLINE_BYTES,
    prefix_leader: bool = True,
    profiles: Mapping[str, ModelProfile] | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    rates: Rates | None = None,
    http: httpx.AsyncBaseTransport | None = None,
) -> VendorProvider:
    """Return a provider for Google's Gemini API.

    Args:
        api_key: The key; `None` sends none.
        model: The model where a blueprint names none.
        name: Name under which blueprints and spans know it.
        base_url: Where `/models/MODEL:streamGenerateContent` is appended; `None` for the vendor's own address.
        max_inline_bytes: The largest request that holds stored parts; larger ones are refused here.
        prefix_leader: Requests wait up to 5 s for another one that writes their prefix to the cache.
        profiles: What is known of its models, by model; wins over what ships and what the API reports.
        headers: Further headers of each request.
        timeouts: How long to wait.
        rates: What one of its models takes a minute, until its answers say; `None` for no limit.
        http: What sends the requests, for proxies and tests; `None` uses the network.

    Raises:
        ConfigInvalid: The URL is no http URL, or a header cannot be sent.
    """
    address = BASE_URL if base_url is None else base_url
    url = checked_url(address, BASE_URL)
    key = {"x-goog-api-key": api_key} if api_key is not None else {}
    return VendorProvider(
        name,
        Transport(address, headers={**key, **(headers or {})}, timeouts=timeouts, http=http),
        GeminiDialect(name, max_inline_bytes=max_inline_bytes),
        default_model=model,
        profiles=profiles or {},
        secrets=secrets_in(url, api_key, *(headers or {}).values()),
        rates=rates or NO_RATES,
        leaders=PrefixLeaders() if prefix_leader else None,
    )


@final
class GeminiDialect:
    """The Gemini API.

    Args:
        provider: Name of the provider.
        max_inline_bytes: The largest request that holds stored parts.
    """

    def __init__(self, provider: str, *, max_inline_bytes: int) -> None:
        self._provider = provider
        self._max_inline_bytes = max_inline_bytes
        self._encoders: dict[ModelProfile, GeminiEncoder] = {}
        self.greeting: str | None = "/models?pageSize=1"

    def __repr__(self) -> str:
        return "<GeminiDialect>"

    def encoder(self, profile: ModelProfile) -> GeminiEncoder:
        """Return the encoder for the model of *profile*; one object for equal profiles, since it keys what it made."""
        made = self._encoders.get(profile)
        if made is None:
            made = GeminiEncoder(self._provider, profile, max_inline_bytes=self._max_inline_bytes)
            self._encoders[profile] = made
        return made

    def encode(self, request: Request, profile: ModelProfile) -> tuple[str, Sent]:
        """Return where *request* goes, and what goes there."""
        return f"{_path(request.model)}:streamGenerateContent?alt=sse", self.encoder(profile).encode(request)

    def decoder(self, request: Request, sent: Sent, asked: Asked, headers: Mapping[str, str]) -> GeminiReply:
        """Return what reads the answer to *request*."""
        reader = Reader(self._provider, request.model, API)
        return GeminiReply(asked, headers=headers, names=sent.names, reader=reader)

    async def count(self, request: Request, profile: ModelProfile, line: Line) -> TokenCount:
        """Return what *request* costs: the vendor counts; bytes / 4 where nobody does."""
        sent = self.encoder(profile).encode(request, counting=True)
        answer = await line.ask(f"{_path(request.model)}:countTokens", sent.body, absent=_NO_SUCH_PATH)
        if answer is None:
            return TokenCount(-(-sent.body.size // 4), "estimate")
        return counted(answer.get("totalTokens"), line)

    async def describe(self, profile: ModelProfile, line: Line) -> ModelProfile | None:
        """Return *profile* with what the API itself says of the model; `None` where it says nothing."""
        answer = await line.ask(_path(profile.model), None, absent=_NO_SUCH_PATH)
        if answer is None:
            return None
        window = as_count(answer.get("inputTokenLimit"))
        return replace(
            profile,
            window_tokens=window or profile.window_tokens,
            max_output_tokens=as_count(answer.get("outputTokenLimit")) or profile.max_output_tokens,
            window_source="the vendor's own list of models" if window else profile.window_source,
        )


def _path(model: str) -> str:
    return f"/models/{quote(model.removeprefix('models/'), safe='')}"
