"""Anthropic's Messages API, and servers that speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, final
from urllib.parse import quote

import httpx

from shoal.providers._breakpoints import MarkerRules
from shoal.providers._json import as_count, as_object
from shoal.providers._leaders import PrefixLeaders
from shoal.providers._messages import API, MessagesEncoder
from shoal.providers._messages_reply import MessagesReply
from shoal.providers._messages_settings import LEVELS
from shoal.providers._rates import NO_RATES, Rates
from shoal.providers._refusals import Asked
from shoal.providers._sent import Sent
from shoal.providers._states import Reader
from shoal.providers._transport import Timeouts, Transport, sendable
from shoal.providers._values import ModelProfile, Request, TokenCount
from shoal.providers._vendor import Line, VendorProvider, checked_url, counted, secrets_in

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"

Lifetime: TypeAlias = Literal["5m", "1h"]
_NO_SUCH_PATH = frozenset({404, 405, 501})
_BETAS = "anthropic-beta"
_THINKING = ("adaptive", "between_tools", "disabled", "enabled")


def anthropic(
    api_key: str | None = None,
    *,
    model: str | None = None,
    name: str = "anthropic",
    base_url: str | None = None,
    auth: Literal["x-api-key", "bearer"] = "x-api-key",
    version: str = VERSION,
    betas: Sequence[str] = (),
    stable_lifetime: Lifetime = "5m",
    prefix_leader: bool = True,
    profiles: Mapping[str, ModelProfile] | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    rates: Rates | None = None,
    http: httpx.AsyncBaseTransport | None = None,
) -> VendorProvider:
    """Return a provider for Anthropic's Messages API.

    Args:
        api_key: The key; `None` sends none.
        model: The model where a blueprint names none.
        name: Name under which blueprints and spans know it.
        base_url: Where `/v1/messages` is appended, there or at another server; `None` for the vendor's.
        auth: The header that carries the key.
        version: The API version that is asked for. From `2026-10-21` on no sampling parameter is sent.
        betas: Betas that are asked for with each request.
        stable_lifetime: How long the stable prefix stays in the vendor's cache; the longer one costs more to write.
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
    key: dict[str, str] = {}
    if api_key is not None:
        key = {"x-api-key": api_key} if auth == "x-api-key" else {"Authorization": f"Bearer {api_key}"}
    own = sendable({**key, "anthropic-version": version, **(headers or {})})
    # A request may need betas of its own, and its headers win.
    asked = [beta for name in own.pop(_BETAS, "").split(",") if (beta := name.strip())]
    return VendorProvider(
        name,
        Transport(address, headers=own, timeouts=timeouts, http=http),
        MessagesDialect(
            name, version=version, betas=(*asked, *betas), rules=MarkerRules(long_stable=stable_lifetime == "1h")
        ),
        default_model=model,
        profiles=profiles or {},
        secrets=secrets_in(url, api_key, *(headers or {}).values()),
        rates=rates or NO_RATES,
        leaders=PrefixLeaders() if prefix_leader else None,
    )


@final
class MessagesDialect:
    """The Messages API.

    Args:
        provider: Name of the provider.
        version: The API version.
        betas: Betas that are asked for with each request.
        rules: What the cache makes of markers.
    """

    def __init__(self, provider: str, *, version: str, betas: tuple[str, ...], rules: MarkerRules) -> None:
        self._provider = provider
        self._version = version
        self._betas = betas
        self._rules = rules
        self._encoders: dict[ModelProfile, MessagesEncoder] = {}
        self.greeting: str | None = "/v1/models?limit=1"

    def __repr__(self) -> str:
        return f"<MessagesDialect {self._version}>"

    def encoder(self, profile: ModelProfile) -> MessagesEncoder:
        """Return the encoder for the model of *profile*; one object for equal profiles, since it keys what it made."""
        made = self._encoders.get(profile)
        if made is None:
            made = MessagesEncoder(self._provider, profile, rules=self._rules, version=self._version)
            self._encoders[profile] = made
        return made

    def encode(self, request: Request, profile: ModelProfile) -> tuple[str, Sent]:
        """Return where *request* goes, and what goes there."""
        return "/v1/messages", self._with_betas(self.encoder(profile).encode(request))

    def _with_betas(self, sent: Sent) -> Sent:
        betas = [*self._betas, *sent.headers.values()]
        headers = {_BETAS: ",".join(dict.fromkeys(betas))} if betas else {}
        return Sent(sent.body, sent.names, sent.prefixes, headers)

    def decoder(self, request: Request, sent: Sent, asked: Asked, headers: Mapping[str, str]) -> MessagesReply:
        """Return what reads the answer to *request*."""
        reader = Reader(self._provider, request.model, API)
        return MessagesReply(asked, headers=headers, names=sent.names, reader=reader)

    async def count(self, request: Request, profile: ModelProfile, line: Line) -> TokenCount:
        """Return what *request* costs: the vendor counts, and calls it an estimate; bytes / 4 where nobody does."""
        sent = self._with_betas(self.encoder(profile).encode(request, counting=True))
        answer = await line.ask("/v1/messages/count_tokens", sent.body, headers=sent.headers, absent=_NO_SUCH_PATH)
        if answer is None:
            return TokenCount(-(-sent.body.size // 4), "estimate")
        return counted(answer.get("input_tokens"), line)

    async def describe(self, profile: ModelProfile, line: Line) -> ModelProfile | None:
        """Return *profile* with what the API itself says of the model; `None` where it says nothing."""
        answer = await line.ask(f"/v1/models/{quote(profile.model, safe='')}", None, absent=_NO_SUCH_PATH)
        if answer is None:
            return None
        window = as_count(answer.get("max_input_tokens"))
        capabilities = as_object(answer.get("capabilities"))
        known = replace(
            profile,
            window_tokens=window or profile.window_tokens,
            max_output_tokens=as_count(answer.get("max_tokens")) or profile.max_output_tokens,
            window_source="the vendor's own list of models" if window else profile.window_source,
        )
        return known if not capabilities else _capable(known, capabilities)


def _capable(profile: ModelProfile, said: Mapping[str, Any]) -> ModelProfile:
    effort = as_object(said.get("effort"))
    types = as_object(as_object(said.get("thinking")).get("types"))
    parts = [("image_input", "image/*"), ("pdf_input", "application/pdf")]
    return replace(
        profile,
        input_types=("text/*", *[mime for key, mime in parts if _supported(said.get(key))]),
        structured_output=_supported(said["structured_outputs"])
        if "structured_outputs" in said
        else profile.structured_output,
        efforts=tuple([level for level in LEVELS if _supported(effort.get(level))]) if effort else profile.efforts,
        thinking=tuple([kind for kind in _THINKING if _supported(types.get(kind))]) if types else profile.thinking,
    )


def _supported(value: object) -> bool:
    return bool(as_object(value).get("supported"))
