"""The Responses API as coding clients of ChatGPT reach it: no markers, no limits, nothing stored."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from shoal.providers._openai import ResponsesDialect
from shoal.providers._rates import NO_RATES, Rates
from shoal.providers._responses import ResponsesServer
from shoal.providers._transport import Timeouts, Transport
from shoal.providers._values import ModelProfile
from shoal.providers._vendor import VendorProvider, checked_url, secrets_in

BASE_URL = "https://chatgpt.com/backend-api/codex"
SERVER = ResponsesServer("codex", instructions=True, limits=False, markers=False, cache_key="run")


def codex(
    access_token: str | None = None,
    *,
    account_id: str | None = None,
    model: str | None = None,
    name: str = "codex",
    base_url: str | None = None,
    profiles: Mapping[str, ModelProfile] | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    rates: Rates | None = None,
    http: httpx.AsyncBaseTransport | None = None,
) -> VendorProvider:
    """Return a provider for the Codex-like transport: the first system block travels as its instructions.

    Requests of one run carry its id, so that the vendor sends them to the machine that has their prefix.

    Args:
        access_token: The bearer token of a login; getting and renewing it is yours. `None` sends none.
        account_id: The account of that login; `None` sends none.
        model: The model where a blueprint names none.
        name: Name under which blueprints and spans know it.
        base_url: Where `/responses` is appended; `None` for the vendor's own address.
        profiles: What is known of its models, by model; wins over what ships.
        headers: Further headers of each request.
        timeouts: How long to wait.
        rates: What one of its models takes a minute, until its answers say; `None` for no limit.
        http: What sends the requests, for proxies and tests; `None` uses the network.

    Raises:
        ConfigInvalid: The URL is no http URL, or a header cannot be sent.
    """
    address = BASE_URL if base_url is None else base_url
    url = checked_url(address, BASE_URL)
    login = {"Authorization": f"Bearer {access_token}"} if access_token is not None else {}
    account = {"chatgpt-account-id": account_id} if account_id is not None else {}
    return VendorProvider(
        name,
        Transport(address, headers={**login, **account, **(headers or {})}, timeouts=timeouts, http=http),
        ResponsesDialect(name, SERVER, session_header="session_id", greeting=None),
        default_model=model,
        profiles=profiles or {},
        secrets=secrets_in(url, access_token, account_id, *(headers or {}).values()),
        rates=rates or NO_RATES,
    )
