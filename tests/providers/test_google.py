"""The provider for Google's API, over a real socket: on loopback, with the real clock."""

from __future__ import annotations

import json

import pytest
from providers_loopback import END, HEAD, Step, answer, chunk, serving
from providers_parts import request, user
from test_gemini_reply import WHOLE

from shoal.errors import ProviderBusy, ProviderError, ProviderSetup, ProviderUnavailable
from shoal.providers import Completed, Request, RetryPolicy, TokenCount, VendorProvider, exchange, google

pytestmark = [pytest.mark.anyio, pytest.mark.sockets]

MODEL = "gemini-4-argon"
KEY = "goog-very-secret-key"
HI = request(user("hi"), model=MODEL, timeout_s=10.0)


def streamed(*chunks: object) -> tuple[Step, ...]:
    return (HEAD, chunk(b"".join([b"data: %b\r\n\r\n" % json.dumps(one).encode() for one in chunks])), END)


async def replied(provider: VendorProvider, sent: Request = HI) -> Completed:
    try:
        return await exchange(provider, sent, policy=RetryPolicy(attempts=1))
    finally:
        await provider.aclose()


async def test_a_reply_streams_over_the_wire():
    async with serving(streamed(*WHOLE)) as server:
        completed = await replied(google(KEY, base_url=server.url))
    assert (str(completed.reply.text), completed.request_id) == ("Hello\N{LINE SEPARATOR}", "r-1")
    [received] = server.received
    assert received.path == f"/v1/models/{MODEL}:streamGenerateContent?alt=sse"
    assert received.headers["x-goog-api-key"] == KEY
    assert received.json["contents"][0]["parts"][0]["text"] == "hi"


@pytest.mark.parametrize(
    ("steps", "leaf"),
    [
        (answer(429, [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow"}}]), ProviderBusy),
        (answer(403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": KEY}}), ProviderSetup),
        (streamed(*WHOLE[:3]), ProviderError),
        ((HEAD, chunk(b"data: {}\r\n\r\n"), "reset"), ProviderError),
    ],
)
async def test_an_error_is_the_leaf_that_it_means_and_holds_no_key(steps: tuple[Step, ...], leaf: type[ProviderError]):
    async with serving(steps) as server:
        with pytest.raises(leaf) as caught:
            await replied(google(KEY, base_url=server.url))
    assert KEY not in f"{caught.value!r}{vars(caught.value)!r}{caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (answer(200, {"totalTokens": 7}), TokenCount(7, "vendor", exact=True)),
        (answer(404, {}), None),
    ],
)
async def test_the_vendor_counts(steps: tuple[Step, ...], expected: TokenCount | None):
    async with serving(steps) as server:
        provider = google(KEY, base_url=server.url)
        count = await provider.count_tokens(HI)
        await provider.aclose()
    assert count == (expected or TokenCount(count.tokens, "estimate"))
    assert server.received[0].path == f"/v1/models/{MODEL}:countTokens"


async def test_a_count_of_nothing_is_an_error():
    async with serving(answer(200, {})) as server:
        provider = google(KEY, base_url=server.url)
        with pytest.raises(ProviderUnavailable, match="count"):
            await provider.count_tokens(HI)
        await provider.aclose()


async def test_what_the_api_reports_wins_over_what_ships():
    listed = {"inputTokenLimit": 500, "outputTokenLimit": 50}
    async with serving(answer(200, listed), answer(404, {}), answer(200, {})) as server:
        provider = google(None, base_url=server.url)
        assert (await provider.discover(MODEL)).window_tokens == 500
        assert (await provider.discover(MODEL)).max_output_tokens == 50
        assert (await provider.discover("models/other")).window_tokens == 8192
        await provider.aclose()
    assert server.received[2].path == "/v1/models/other"
    assert "x-goog-api-key" not in server.received[0].headers


def test_the_repr_shows_no_key():
    assert repr(google(KEY)).startswith("<VendorProvider google, <GeminiDialect>, ")
    assert KEY not in repr(google(KEY))
