"""What the compatible provider makes of answers, without a socket: on virtual time, on both loops."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from providers_loopback import events, text
from providers_parts import request, user

from shoal.errors import ProviderBusy, ProviderRefused, ProviderUnavailable
from shoal.providers import Capabilities, Completed, RetryPolicy, TokenCount, compatible, exchange

pytestmark = pytest.mark.anyio

HI = request(user("hi"))
SSE = {"content-type": "text/event-stream"}
Handler = Callable[[httpx.Request], httpx.Response]


def stream(body: bytes, **headers: str) -> Handler:
    return lambda _: httpx.Response(200, headers={**SSE, **headers}, content=body)


async def replied(handler: Handler, **settings: Any) -> Completed:
    provider = compatible("http://there/v1", http=httpx.MockTransport(handler), **settings)
    return await exchange(provider, HI, policy=RetryPolicy(attempts=1))


async def counted(handler: Handler, server: str) -> TokenCount:
    return await compatible("http://there/v1", http=httpx.MockTransport(handler), capabilities=server).count_tokens(HI)


async def test_a_stream_is_read_to_its_end_mark():
    assert str((await replied(stream(events(*text("a", "b"))))).reply.text) == "ab"


@pytest.mark.parametrize(("server", "header"), [("generic", "authorization"), ("azure", "api-key")])
async def test_the_key_travels_in_the_servers_header(server: str, header: str):
    seen: list[str] = []

    def handler(asked: httpx.Request) -> httpx.Response:
        seen.append(asked.headers[header])
        return httpx.Response(200, headers=SSE, content=events(*text("a")))

    await replied(handler, api_key="sk-very-secret-key", capabilities=server)
    assert seen[0].endswith("sk-very-secret-key")


async def test_a_whole_completion_is_a_reply():
    whole = {"choices": [{"message": {"content": "whole"}}]}
    assert str((await replied(lambda _: httpx.Response(200, json=whole))).reply.text) == "whole"


async def test_an_error_status_is_its_error():
    with pytest.raises(ProviderBusy) as caught:
        await replied(lambda _: httpx.Response(429, headers={"Retry-After": "2"}, json={"error": {"message": "slow"}}))
    assert caught.value.retry_after_s == 2.0


async def test_an_error_body_is_read_only_so_far():
    with pytest.raises(ProviderUnavailable) as caught:
        await replied(lambda _: httpx.Response(500, content=b"x" * 1_000_000))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.ReadError(""), httpx.ConnectTimeout("slow")])
async def test_a_network_that_fails_is_unavailable(failure: httpx.TransportError):
    def handler(_: httpx.Request) -> httpx.Response:
        raise failure

    with pytest.raises(ProviderUnavailable, match="check the network"):
        await replied(handler)


async def test_a_stream_without_its_end_mark_is_no_reply():
    with pytest.raises(ProviderUnavailable, match="end mark"):
        await replied(stream(b": nothing\n\n"))


async def test_a_finish_ends_the_stream_of_a_server_without_an_end_mark():
    record = Capabilities("other", ends_with="finish")
    assert str((await replied(stream(events(*text("a"), done=False)), capabilities=record)).reply.text) == "a"


async def test_a_stream_that_is_compressed_is_refused():
    with pytest.raises(ProviderRefused, match="compression"):
        await replied(
            lambda _: httpx.Response(200, headers={**SSE, "content-encoding": "br"}, stream=httpx.ByteStream(b""))
        )


async def test_a_template_is_rendered_and_tokenized():
    def handler(asked: httpx.Request) -> httpx.Response:
        sent = json.loads(asked.content)
        if asked.url.path == "/apply-template":
            return httpx.Response(200, json={"prompt": sent["messages"][0]["content"] + "!"})
        return httpx.Response(200, json={"tokens": list(sent["content"])})

    assert await counted(handler, "llama.cpp") == TokenCount(3, "server", exact=True)


@pytest.mark.parametrize("path", ["/apply-template", "/tokenize"])
async def test_a_server_that_lacks_a_path_is_estimated(path: str):
    def handler(asked: httpx.Request) -> httpx.Response:
        return httpx.Response(404 if asked.url.path == path else 200, json={"prompt": "x"})

    assert (await counted(handler, "llama.cpp")).how == "estimate"


async def test_messages_are_tokenized():
    assert (await counted(lambda _: httpx.Response(200, json={"count": 7}), "vllm")).tokens == 7
    assert (await counted(lambda _: httpx.Response(405), "vllm")).how == "estimate"


async def test_a_tokenizer_that_fails_says_so():
    with pytest.raises(ProviderUnavailable):
        await counted(lambda _: httpx.Response(500), "vllm")


async def test_a_server_without_a_tokenizer_is_estimated_at_four_bytes_a_token():
    count = await compatible("http://there/v1").count_tokens(HI)
    assert (count.how, count.exact, 10 < count.tokens < 40) == ("estimate", False, True)
