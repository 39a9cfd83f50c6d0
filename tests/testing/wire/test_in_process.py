"""The emulator without a socket."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest

from shoal.testing import wire

pytestmark = pytest.mark.anyio

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}


def body(**more: Any) -> dict[str, Any]:
    return {
        "model": "claude-opus-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        **more,
    }


async def post(http: wire.InProcess, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=http, headers=HEADERS, base_url="http://nowhere") as client:
        return await client.post("/v1/messages", json=body(**more))


async def test_a_request_is_answered_without_a_network():
    http = wire.InProcess(wire.Script("hello"))
    got = await post(http)
    assert (got.status_code, got.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert "hello" in got.text
    [exchange] = http.journal
    assert (exchange.whole, exchange.client_left, exchange.ended.is_set()) == (True, False, True)
    assert repr(http) == "<InProcess <Journal of 1 exchanges>>"


async def test_what_breaks_a_rule_is_refused_and_recorded():
    http = wire.InProcess(wire.Script("hello"))
    assert (await post(http, messages=[])).status_code == 400
    assert [violation.rule for violation in http.violations]


async def test_it_goes_by_the_clock_of_the_loop():
    http = wire.InProcess(wire.Script(wire.turn("late", delay_s=100.0)))
    began = anyio.current_time()
    await post(http)
    [exchange] = http.journal
    assert exchange.received_s == pytest.approx(began, abs=0.5)
    assert exchange.first_byte_s == pytest.approx(began + 100, abs=0.5)


async def test_what_is_written_to_the_cache_is_read_by_the_next_request():
    http = wire.InProcess(wire.Script(last="ok"))
    for _ in range(2):
        await post(http, cache_control={"type": "ephemeral"}, system="long " * 1000)
    assert http.ledger[1].read == http.ledger[0].written > 1000
    [_, second] = http.journal
    assert second.prompt is not None
    assert second.prompt.tokens == second.row.input  # type: ignore[union-attr] # it was answered


@pytest.mark.parametrize("at", ["request", "headers", 2])
async def test_a_connection_that_ends_early_is_a_read_error(at: Any):
    http = wire.InProcess(wire.Script("hello"), wire.Settings(faults=[wire.Reset(at)]))
    with pytest.raises(httpx.ReadError):
        await post(http)
    [exchange] = http.journal
    assert (exchange.whole, exchange.ended.is_set()) == (False, True)


async def test_a_slow_reply_takes_its_time():
    stalls = [wire.Stall(50.0, "request"), wire.Stall(50.0, "headers"), wire.Stall(50.0, 1)]
    http = wire.InProcess(wire.Script("hello"), wire.Settings(faults=stalls))
    began = anyio.current_time()
    await post(http)
    assert anyio.current_time() - began == pytest.approx(150, abs=1)


async def test_a_reply_ends_once_however_often_it_is_closed():
    http = wire.InProcess(wire.Script("hello"))
    got = await http.handle_async_request(
        httpx.Request("POST", "http://nowhere/v1/messages", headers=HEADERS, json=body())
    )
    stream = got.stream
    assert isinstance(stream, httpx.AsyncByteStream)
    assert b"hello" in b"".join([piece async for piece in stream])
    for _ in range(2):
        await stream.aclose()
    assert [exchange.whole for exchange in http.journal] == [True]


async def test_a_client_that_leaves_is_seen_and_its_reply_given_again():
    http = wire.InProcess(wire.Script("hello", "other"))
    async with httpx.AsyncClient(transport=http, headers=HEADERS, base_url="http://nowhere") as client:
        async with client.stream("POST", "/v1/messages", json=body()) as left:
            assert left.status_code == 200
        [exchange] = http.journal
        assert (exchange.whole, exchange.client_left) == (False, True)
        assert "hello" in (await client.post("/v1/messages", json=body())).text


async def test_what_the_brain_raises_is_raised():
    http = wire.InProcess(wire.Script())
    with pytest.raises(wire.ScriptEnded):
        await post(http)
    [exchange] = http.journal
    assert exchange.ended.is_set()


async def test_the_query_and_repeated_headers_arrive():
    http = wire.InProcess(wire.Script(last="ok"))
    async with httpx.AsyncClient(transport=http, base_url="http://nowhere") as client:
        await client.get("/v1/models?limit=2", headers=[("x-a", "1"), ("x-a", "2"), ("x-api-key", "k")])
    [exchange] = http.journal
    assert (exchange.incoming.query, exchange.headers["x-a"]) == ({"limit": "2"}, "1,2")
