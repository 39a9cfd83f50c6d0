"""Answers of every shape, whatever a server calls them: what is read is what they are."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import anyio
import httpx
import pytest
from providers_parts import request, user

from shoal.errors import PartialReply, ProviderBusy, ProviderError, ProviderRefused, ProviderUnavailable
from shoal.providers import (
    Completed,
    Reply,
    RetryPolicy,
    VendorProvider,
    anthropic,
    compatible,
    exchange,
    google,
    openai,
)

pytestmark = pytest.mark.anyio

Make = Callable[[httpx.AsyncBaseTransport], VendorProvider]
APIS: Mapping[str, Make] = {
    "anthropic": lambda http: anthropic(http=http),
    "openai": lambda http: openai(http=http),
    "openai-chat": lambda http: compatible("http://there/v1", http=http),
    "google": lambda http: google(http=http),
}
MESSAGE: dict[str, Any] = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}
WHOLE: Mapping[str, dict[str, Any]] = {
    "anthropic": {"type": "message", "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn"},
    "openai": {"object": "response", "status": "completed", "output": [MESSAGE]},
    "openai-chat": {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]},
    "google": {"candidates": [{"content": {"parts": [{"text": "hello"}]}, "finishReason": "STOP"}]},
}
STREAMED: Mapping[str, list[dict[str, Any]]] = {
    "anthropic": [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hello"}},
        {"type": "message_stop"},
    ],
    "openai": [{"type": "response.completed", "response": {"output": [MESSAGE]}}],
    "openai-chat": [{"choices": [{"delta": {"content": "hello"}, "finish_reason": "stop"}]}],
    "google": [WHOLE["google"]],
}
apis = pytest.mark.parametrize("api", APIS)
kinds = pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "Text/Plain; charset=x", None])


class Network(httpx.AsyncByteStream):
    """A body that arrives in two pieces."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.body[:7]
        yield self.body[7:]


def events(api: str) -> bytes:
    said = b"".join([b"data: %b\n\n" % json.dumps(one).encode() for one in STREAMED[api]])
    return said + b"data: [DONE]\n\n"


async def replied(
    api: str, body: bytes, status: int = 200, *, policy: RetryPolicy | None = None, **headers: str | None
) -> Completed:
    named = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}

    def answered(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=named, stream=Network(body))

    provider = APIS[api](httpx.MockTransport(answered))
    return await exchange(provider, request(user("x")), policy=policy or RetryPolicy(attempts=1))


@apis
@kinds
async def test_a_stream_is_read_whatever_its_server_calls_it(api: str, kind: str | None):
    assert str((await replied(api, events(api), content_type=kind)).reply.text) == "hello"


@apis
@kinds
async def test_a_reply_in_one_piece_is_read_whatever_its_server_calls_it(api: str, kind: str | None):
    for body in (json.dumps(WHOLE[api]), json.dumps(WHOLE[api], indent=1), "\n\n" + json.dumps(WHOLE[api])):
        assert str((await replied(api, body.encode(), content_type=kind)).reply.text) == "hello"
    marked = json.dumps(WHOLE[api]).encode("utf-8-sig")
    assert str((await replied(api, marked, content_type=kind)).reply.text) == "hello"


@apis
@pytest.mark.parametrize("cut", [1, 2])
async def test_a_stream_without_the_empty_line_at_its_end_is_whole(api: str, cut: int):
    assert str((await replied(api, events(api)[:-cut])).reply.text) == "hello"


async def test_a_list_in_one_piece_is_read_like_a_stream():
    assert str((await replied("google", json.dumps([WHOLE["google"]]).encode())).reply.text) == "hello"


async def test_an_encoding_that_is_none_is_none_in_any_case():
    assert await replied("openai-chat", events("openai-chat"), content_encoding="Identity")


async def reply_of(api: str, body: bytes) -> Reply | None:
    """Return what *body* says; `None` where it says nothing whole."""
    try:
        return (await replied(api, body)).reply
    except (PartialReply, ProviderUnavailable):
        return None


@apis
async def test_a_stream_that_ends_at_any_byte_is_whole_or_nothing(api: str):
    whole = await reply_of(api, events(api))
    read = [await reply_of(api, events(api)[:end]) for end in range(len(events(api)))]
    assert whole is not None
    assert [reply for reply in read if reply not in (whole, None)] == []
    assert read.count(None) > len(read) / 2


@apis
async def test_events_without_data_keep_a_stream_alive_and_say_nothing(api: str):
    silent = b"data:\n\nevent: ping\ndata: \n\n\ndata:   \n\n"
    assert str((await replied(api, silent + events(api))).reply.text) == "hello"


@apis
@pytest.mark.parametrize("body", [b"<!doctype html><p>Log in", b"\n <html>"])
async def test_a_page_for_people_is_no_reply(api: str, body: bytes):
    with pytest.raises(ProviderUnavailable, match="an HTML page and no reply; check that the base URL"):
        await replied(api, body, content_type="text/html")


@apis
@pytest.mark.parametrize("body", [b"", b"\n", b"null", b"data: [DONE]\n\n", b": ping\n\n"])
async def test_nothing_is_no_reply(api: str, body: bytes):
    with pytest.raises(ProviderUnavailable):
        await replied(api, body)


@apis
@pytest.mark.parametrize(
    ("data", "leaf"),
    [
        ('{"error": {"type": "overloaded_error", "message": "later"}}', ProviderBusy),
        ('{"error": "overloaded"}', ProviderBusy),
        ('{"code": 429, "message": "too many"}', ProviderBusy),
        ("upstream timed out", ProviderUnavailable),
        ("", ProviderUnavailable),
    ],
)
async def test_an_event_that_is_an_error_by_its_name_is_one_whatever_its_shape(
    api: str, data: str, leaf: type[ProviderError]
):
    with pytest.raises(leaf):
        await replied(api, f"event: error\ndata: {data}\n\n".encode())


BUSY = b'{"error": {"type": "overloaded_error", "message": "come back"}}'


@apis
@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(BUSY)), ("deflate", zlib.compress(BUSY)), ("GZIP", gzip.compress(BUSY))],
    ids=["gzip", "deflate", "upper case"],
)
async def test_an_error_is_read_though_it_came_compressed(api: str, encoding: str, body: bytes):
    with pytest.raises(ProviderBusy, match="come back") as caught:
        await replied(api, body, 503, content_encoding=encoding, retry_after="3")
    assert caught.value.retry_after_s == 3.0


@apis
@pytest.mark.parametrize("encoding", ["br", "gzip"])
async def test_an_error_that_cannot_be_read_is_known_by_its_status(api: str, encoding: str):
    with pytest.raises(ProviderBusy, match="HTTP 529"):
        await replied(api, b"\x00no such thing", 529, content_encoding=encoding)


async def test_a_reply_that_came_compressed_is_refused_with_what_to_do():
    with pytest.raises(ProviderRefused, match="turn compression off"):
        await replied("openai-chat", gzip.compress(events("openai-chat")), content_encoding="gzip")


@pytest.mark.parametrize(
    ("encoding", "body"), [(None, b"x" * 600_000), ("gzip", gzip.compress(b"x" * 50_000_000))], ids=["large", "grows"]
)
async def test_an_error_without_end_is_cut_off(encoding: str | None, body: bytes):
    with pytest.raises(ProviderBusy, match=r"x{100}") as caught:
        await replied("openai-chat", body, 429, content_encoding=encoding)
    assert len(str(caught.value)) < 1000


@apis
@pytest.mark.parametrize(
    ("body", "said"), [(b"<html>", "an HTML page"), (b"ok", "no JSON"), (b"[" * 100_000, "no JSON")]
)
async def test_what_answers_for_nothing_has_to_be_of_the_vendors_api(api: str, body: bytes, said: str):
    provider = APIS[api](httpx.MockTransport(lambda _: httpx.Response(200, stream=Network(body))))
    with pytest.raises(ProviderUnavailable, match=f"is {said}; check that the base URL is right"):
        await provider.check()


@apis
async def test_names_that_a_vendor_gives_are_no_longer_than_names_are(api: str):
    named = {"id": "i" * 9000, "model": "m" * 9000, "responseId": "i" * 9000, "modelVersion": "m" * 9000}
    whole = json.dumps({**WHOLE[api], **named}).encode()
    completed = await replied(api, whole)
    assert completed.model == "m" * 256
    assert completed.request_id in ("i" * 256, None)
    assert (await replied(api, whole, x_request_id="r" * 9000)).request_id == "r" * 256
    with pytest.raises(ProviderRefused) as caught:
        await replied(api, b'{"request_id": "' + b"i" * 9000 + b'"}', 400)
    assert caught.value.request_id == "i" * 256


# --- a vendor that is busy


@apis
async def test_a_busy_vendor_holds_the_models_requests_back(api: str):
    busy = httpx.Response(429, headers={"retry-after": "30"}, json={"error": {"message": "too many"}})
    provider = APIS[api](httpx.MockTransport(lambda _: busy))
    asked = request(user("x"))
    with pytest.raises(ProviderBusy):
        await exchange(provider, asked, policy=RetryPolicy(attempts=1))
    began = anyio.current_time()
    await provider.rate_limit(asked.model).admit(1)
    assert anyio.current_time() - began == pytest.approx(30, abs=1)
