"""The provider for Anthropic's API, over a real socket: on loopback, with the real clock."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx
import pytest
from providers_loopback import END, HEAD, Step, answer, chunk, serving
from providers_parts import block, request, user
from test_messages_reply import WHOLE, end, start, text

from shoal.errors import ConfigInvalid, ProviderBusy, ProviderError, ProviderSetup, ProviderUnavailable
from shoal.providers import (
    Completed,
    Message,
    ModelProfile,
    Request,
    RetryPolicy,
    Text,
    TokenCount,
    VendorProvider,
    anthropic,
    exchange,
)

pytestmark = [pytest.mark.anyio, pytest.mark.sockets]

MODEL = "claude-opus-5-5"
KEY = "sk-ant-very-secret"
HI = request(user("hi"), model=MODEL, timeout_s=10.0)


def stream(*events: dict[str, Any]) -> bytes:
    return b"".join([b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events])


def streamed(*events: dict[str, Any]) -> tuple[Step, ...]:
    return (HEAD, chunk(stream(*events)), END)


def provider(url: str, **settings: Any) -> VendorProvider:
    return anthropic(KEY, base_url=url.removesuffix("/v1"), **settings)


async def replied(url: str, sent: Request = HI, **settings: Any) -> Completed:
    made = provider(url, **settings)
    try:
        return await exchange(made, sent, policy=RetryPolicy(attempts=1))
    finally:
        await made.aclose()


async def test_a_reply_streams_over_the_wire():
    async with serving(streamed(*WHOLE)) as server:
        completed = await replied(server.url, betas=("b-1", "b-2"))
    assert (str(completed.reply.text), completed.request_id) == ("Hello\N{LINE SEPARATOR}", "r-1")
    [received] = server.received
    assert received.path == "/v1/messages"
    assert received.headers["x-api-key"] == KEY
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert received.headers["anthropic-beta"] == "b-1,b-2"
    assert received.json["messages"][0]["content"][0]["text"] == "hi"


async def test_a_beta_that_a_request_needs_is_asked_for_with_it():
    scoped = Message("system", (Text.of("now"),), turn_scoped=True)
    tailed = request(user("hi"), scoped, model=MODEL, timeout_s=10.0)
    async with serving(streamed(*WHOLE), streamed(*WHOLE)) as server:
        await replied(server.url, tailed, betas=("b-1",), auth="bearer", version="2026-10-21")
        await replied(server.url)
    assert server.received[0].headers["anthropic-beta"] == "b-1,mid-conversation-system-clear-at-2026-08-21"
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.received[0].headers["anthropic-version"] == "2026-10-21"
    assert "anthropic-beta" not in server.received[1].headers


async def test_betas_among_the_further_headers_stay_beside_those_that_a_request_needs():
    scoped = Message("system", (Text.of("now"),), turn_scoped=True)
    tailed = request(user("hi"), scoped, model=MODEL, timeout_s=10.0)
    async with serving(streamed(*WHOLE)) as server:
        await replied(server.url, tailed, betas=("b-2",), headers={"Anthropic-Beta": "b-1, b-2"})
    assert server.received[0].headers["anthropic-beta"] == "b-1,b-2,mid-conversation-system-clear-at-2026-08-21"


async def test_a_model_of_any_name_is_asked_about_at_the_vendor():
    async with serving(answer(200, {})) as server:
        made = provider(server.url)
        await made.discover("http://elsewhere/?a=b#c")
        await made.aclose()
    assert server.received[0].path == "/v1/models/http%3A%2F%2Felsewhere%2F%3Fa%3Db%23c"


async def test_without_a_key_none_is_sent():
    async with serving(streamed(*WHOLE)) as server:
        made = anthropic(base_url=server.url.removesuffix("/v1"))
        await exchange(made, HI)
        await made.aclose()
    assert "x-api-key" not in server.received[0].headers


async def test_a_stream_that_ends_early_is_asked_again_and_its_calls_never_run():
    cut = (HEAD, chunk(stream(*WHOLE[:-3])), END)
    async with serving(cut, streamed(start(), *text(0, "b"), *end())) as server:
        made = provider(server.url)
        completed = await exchange(made, HI, policy=RetryPolicy(blip_s=0.01))
        await made.aclose()
    assert (str(completed.reply.text), completed.reply.calls) == ("b", ())


@pytest.mark.parametrize(
    ("steps", "leaf"),
    [
        (answer(529, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}), ProviderBusy),
        (answer(401, {"type": "error", "error": {"type": "authentication_error", "message": KEY}}), ProviderSetup),
        (answer(413, b"<html>cloudflare</html>", content_type="text/html"), ProviderError),
        ((HEAD, chunk(stream(*WHOLE[:9])), "reset"), ProviderError),
    ],
)
async def test_an_error_is_the_leaf_that_it_means_and_holds_no_key(steps: tuple[Step, ...], leaf: type[ProviderError]):
    async with serving(steps) as server:
        with pytest.raises(leaf) as caught:
            await replied(server.url)
    assert KEY not in f"{caught.value!r}{vars(caught.value)!r}{caught.value.__cause__!r}"


async def test_limits_are_learned_from_answers():
    limited = HEAD.replace(b"\r\n\r\n", b"\r\nanthropic-ratelimit-requests-limit: 50\r\n\r\n")
    async with serving((limited, chunk(stream(*WHOLE)), END)) as server:
        made = provider(server.url)
        await exchange(made, HI)
        await made.aclose()
    assert made.rate_limit(MODEL).requests_per_minute == 50
    assert made.rate_limit("another").requests_per_minute is None


async def test_cancelling_closes_the_connection():
    async with serving((HEAD, chunk(stream(*WHOLE[:9])), "wait")) as server:
        made = provider(server.url)
        seen, asking = anyio.Event(), anyio.CancelScope()
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with asking:
                    await exchange(made, HI, on_delta=lambda _: seen.set())

            tasks.start_soon(ask)
            await seen.wait()
            assert not server.gone.is_set()
            asking.cancel()
            with anyio.move_on_after(5):
                await server.gone.wait()
            assert server.gone.is_set()
        await made.aclose()


class Gated(httpx.AsyncBaseTransport):
    """Answers each request once its gate is open, and remembers how many came."""

    def __init__(self) -> None:
        self.came = 0
        self.gate = anyio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.came += 1
        await self.gate.wait()
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream(*WHOLE))


@pytest.mark.parametrize(("prefix_leader", "came"), [(True, 1), (False, 3)])
async def test_requests_with_one_prefix_wait_for_the_first_that_writes_it(prefix_leader: bool, came: int):
    shared = (block("s" * 4000, volatility="stable"),)
    gated = Gated()
    made = anthropic(KEY, http=gated, prefix_leader=prefix_leader)
    async with anyio.create_task_group() as tasks:
        for name in ("a", "b", "c"):
            tasks.start_soon(exchange, made, request(user(name), model=MODEL, system=shared))
        await anyio.wait_all_tasks_blocked()
        assert gated.came == came
        gated.gate.set()
    assert gated.came == 3
    await made.aclose()


# --- counting and profiles


async def test_the_vendor_counts():
    async with serving(answer(200, {"input_tokens": 17})) as server:
        made = provider(server.url)
        assert await made.count_tokens(HI) == TokenCount(17, "vendor", exact=True)
        await made.aclose()
    [received] = server.received
    assert received.path == "/v1/messages/count_tokens"
    assert "max_tokens" not in received.json


async def test_a_server_that_does_not_count_is_estimated():
    async with serving(answer(404, {})) as server:
        made = provider(server.url)
        count = await made.count_tokens(HI)
        await made.aclose()
    assert (count.how, count.exact, count.tokens > 10) == ("estimate", False, True)


async def test_a_count_of_nothing_is_an_error():
    async with serving(answer(200, {"tokens": 1})) as server:
        made = provider(server.url)
        with pytest.raises(ProviderUnavailable, match="count"):
            await made.count_tokens(HI)
        await made.aclose()


LISTED = {
    "id": MODEL,
    "max_input_tokens": 500_000,
    "max_tokens": 9_000,
    "capabilities": {
        "image_input": {"supported": True},
        "pdf_input": {"supported": False},
        "structured_outputs": {"supported": False},
        "thinking": {"supported": True, "types": {"adaptive": {"supported": True}, "enabled": {"supported": False}}},
        "effort": {"supported": True, "low": {"supported": True}, "max": {"supported": True}},
    },
}


async def discovered(body: object, status: int = 200, **settings: Any) -> ModelProfile:
    async with serving(answer(status, body)) as server:
        made = provider(server.url, **settings)
        profile = await made.discover(MODEL)
        assert made.profile(MODEL) is profile or settings or status != 200
        await made.aclose()
    assert server.received[0].path == f"/v1/models/{MODEL}"
    return profile


async def test_what_the_api_reports_wins_over_what_ships():
    profile = await discovered(LISTED)
    assert (profile.window_tokens, profile.max_output_tokens) == (500_000, 9_000)
    assert profile.input_types == ("text/*", "image/*")
    assert (profile.thinking, profile.efforts) == (("adaptive",), ("low", "max"))
    assert (profile.structured_output, profile.append_only) == (False, True)
    assert "vendor" in profile.window_source


async def test_a_list_without_capabilities_changes_limits_only():
    profile = await discovered({"max_tokens": 5, "capabilities": {}})
    assert (profile.max_output_tokens, profile.window_tokens, profile.thinking) == (5, 1_000_000, ("adaptive",))
    bare = await discovered({"capabilities": {"image_input": {"supported": True}}})
    assert (bare.efforts is not None, bare.structured_output) == (True, True)


async def test_a_server_without_a_list_leaves_what_ships():
    assert (await discovered({}, 404)).window_tokens == 1_000_000


async def test_the_users_own_profile_wins_over_all():
    own = ModelProfile(MODEL, window_tokens=7)
    assert (await discovered(LISTED, profiles={MODEL: own})) is own


def test_a_url_that_is_none_is_refused():
    with pytest.raises(ConfigInvalid, match="whole URL"):
        anthropic(KEY, base_url="api.anthropic.com")


def test_the_repr_shows_no_key():
    made = anthropic(KEY, headers={"X-Other": KEY})
    assert (
        repr(made)
        == "<VendorProvider anthropic, <MessagesDialect 2023-06-01>, <Transport to https://api.anthropic.com, closed>>"
    )
