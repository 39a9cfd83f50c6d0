"""The providers for OpenAI's APIs, over a real socket: on loopback, with the real clock."""

from __future__ import annotations

import json
from typing import Any

import pytest
from providers_loopback import END, HEAD, Step, answer, chunk, serving, streamed, text
from providers_parts import block, request, user
from test_responses_reply import WHOLE, created, end, message

from shoal.errors import ConfigInvalid, ProviderError, ProviderRefused, ProviderSetup
from shoal.providers import (
    Completed,
    Request,
    RetryPolicy,
    TokenCount,
    VendorProvider,
    codex,
    exchange,
    openai,
    openai_chat,
)
from shoal.providers._refusals import Asked
from shoal.providers._responses import ResponsesServer
from shoal.providers._vendor import Line

pytestmark = [pytest.mark.anyio, pytest.mark.sockets]

MODEL = "gpt-6.1-sol"
KEY = "sk-very-secret-key"
HI = request(user("hi"), model=MODEL, run_id="run-1", timeout_s=10.0)


def events(*said: dict[str, Any]) -> tuple[Step, ...]:
    data = b"".join([b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in said])
    return (HEAD, chunk(data), END)


async def replied(provider: VendorProvider, sent: Request = HI) -> Completed:
    try:
        return await exchange(provider, sent, policy=RetryPolicy(attempts=1))
    finally:
        await provider.aclose()


async def test_a_reply_streams_over_the_wire():
    async with serving(events(*WHOLE)) as server:
        made = openai(KEY, base_url=server.url, organization="o", project="p")
        completed = await replied(made)
    assert (str(completed.reply.text), completed.request_id) == ("Hello\N{LINE SEPARATOR}", "r-1")
    [received] = server.received
    assert received.path == "/v1/responses"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert (received.headers["openai-organization"], received.headers["openai-project"]) == ("o", "p")
    assert received.json["prompt_cache_key"]


async def test_runs_of_one_kind_share_a_cache_key():
    shared = (block("s", volatility="stable"),)
    sent = [request(user("x"), model=MODEL, run_id=run, system=shared, timeout_s=10.0) for run in ("a", "b")]
    async with serving(*[events(*WHOLE)] * 2) as server:
        for one in sent:
            await replied(openai(KEY, base_url=server.url), one)
    first, second = [one.json["prompt_cache_key"] for one in server.received]
    assert first == second


async def test_chat_completions_speak_to_a_developer():
    async with serving(streamed(*text("a"))) as server:
        made = openai_chat(KEY, base_url=server.url)
        assert str((await replied(made, request(user("x"), system=(block("A"),), model=MODEL))).reply.text) == "a"
    [received] = server.received
    assert (received.path, made.name) == ("/v1/chat/completions", "openai-chat")
    assert received.json["messages"][0]["role"] == "developer"
    assert received.json["max_completion_tokens"] == 4096
    assert received.json["prompt_cache_key"]


async def test_codex_sends_its_runs_to_one_machine():
    async with serving(
        events(created(), *message(0, "a"), end()), events(created(), *message(0, "a"), end())
    ) as server:
        await replied(codex(KEY, account_id="account-1", base_url=server.url))
        await replied(codex(KEY, base_url=server.url), request(user("x"), timeout_s=10.0))
    first, second = server.received
    assert first.path == "/v1/responses"
    assert first.headers["chatgpt-account-id"] == "account-1"
    assert first.headers["session_id"] == first.json["prompt_cache_key"]
    assert "run-1" not in first.headers["session_id"]
    assert first.json["instructions"]
    assert second.json["prompt_cache_key"] != first.json["prompt_cache_key"]


@pytest.mark.parametrize(
    ("steps", "leaf"),
    [
        (answer(429, {"error": {"code": "insufficient_quota", "message": f"key {KEY}"}}), ProviderSetup),
        (answer(400, {"error": {"code": "invalid_function_parameters", "message": "no"}}), ProviderRefused),
        ((HEAD, "reset"), ProviderError),
        (events(*WHOLE[:8]), ProviderError),
    ],
)
async def test_an_error_is_the_leaf_that_it_means_and_holds_no_key(steps: tuple[Step, ...], leaf: type[ProviderError]):
    async with serving(steps) as server:
        with pytest.raises(leaf) as caught:
            await replied(openai(KEY, base_url=server.url))
    assert KEY not in f"{caught.value!r}{vars(caught.value)!r}{caught.value.__cause__!r}"


ASKED = request(user("one two three"), model=MODEL, options={"reasoning": {"effort": "low"}, "service_tier": "auto"})


@pytest.mark.parametrize("make", [openai_chat, codex])
async def test_where_the_vendor_does_not_count_the_models_vocabulary_does(make: Any):
    count = await make(KEY).count_tokens(ASKED)
    assert (count.how, count.exact) == ("tiktoken:o200k_base", False)
    assert 3 <= count.tokens <= 15


async def counted(url: str) -> TokenCount:
    provider = openai(KEY, base_url=url)
    try:
        return await provider.count_tokens(ASKED)
    finally:
        await provider.aclose()


async def test_the_vendor_counts():
    async with serving(answer(200, {"object": "response.input_tokens", "input_tokens": 12})) as server:
        count = await counted(server.url)
    assert count == TokenCount(12, "vendor", exact=True)
    assert server.received[0].path == "/v1/responses/input_tokens"
    assert set(server.received[0].json) == {"input", "model", "reasoning"}


async def test_a_server_that_does_not_count_leaves_it_to_the_vocabulary():
    async with serving(answer(404, {})) as server:
        count = await counted(server.url)
    assert count.how == "tiktoken:o200k_base"


async def test_the_api_knows_nothing_of_its_models():
    made = openai(KEY)
    assert await made.discover(MODEL) is made.profile(MODEL)


def test_the_reprs_show_no_key():
    assert KEY not in repr(openai(KEY)) + repr(codex(KEY, account_id=KEY)) + repr(openai_chat(KEY))
    assert "<ResponsesDialect codex>" in repr(codex(KEY))
    assert repr(Line(openai(KEY)._transport, Asked("p", "m"))) == "<Line to p>"


def test_a_server_of_ones_own_is_said_what_it_takes():
    assert "<ResponsesDialect mine>" in repr(openai(server=ResponsesServer("mine")))


def test_an_unknown_server_is_refused_with_those_that_are_known():
    with pytest.raises(ConfigInvalid, match=r"'lama.cpp'; name one of `openai`, `llama\.cpp`"):
        openai(server="lama.cpp")  # type: ignore[arg-type]
