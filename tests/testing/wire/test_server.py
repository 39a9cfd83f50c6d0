"""The server over its sockets: what clients really see."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import anyio
import httpx
import pytest
from wirekit import ANTHROPIC, message, user

from shoal.testing import wire

pytestmark = [pytest.mark.anyio, pytest.mark.sockets, pytest.mark.wall_limit(300)]

ASK = message(stream=True)


def client(server: wire.Server) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.base_url, headers=ANTHROPIC, timeout=100.0)


async def streamed(server: wire.Server, body: Any = ASK) -> bytes:
    async with client(server) as http:
        return (await http.post("/v1/messages", json=body)).content


def broken(*faults: wire.Fault) -> wire.Settings:
    return wire.Settings(faults=faults)


async def test_a_reply_arrives():
    async with wire.serve(wire.Script("hello")) as server:
        assert b"hello" in await streamed(server)
        await server.journal.wait_ended()
    [exchange] = server.journal
    assert (exchange.status, exchange.whole, exchange.client_left, server.violations) == (200, True, False, ())
    assert "1 exchanges" in repr(server)
    assert server.openai_url == server.base_url + "/v1"


async def test_one_connection_carries_many_requests():
    async with wire.serve(wire.Script("a", "b")) as server, client(server) as http:
        replies = [(await http.post("/v1/messages", json=message())).json()["content"] for _ in range(2)]
    assert [content[0]["text"] for content in replies] == ["a", "b"]


async def test_many_connections_are_served_at_once():
    async with wire.serve(lambda _: wire.turn("x", delay_s=0.05)) as server:
        async with anyio.create_task_group() as tasks, client(server):
            for _ in range(50):
                tasks.start_soon(streamed, server)
        await server.journal.wait_ended()
    assert [exchange.whole for exchange in server.journal] == [True] * 50


@pytest.mark.parametrize("at", ["request", "headers", 2])
async def test_a_reset_is_seen(at: Any):
    async with wire.serve(wire.Script("hello"), broken(wire.Reset(at))) as server:
        with pytest.raises(httpx.ReadError):
            await streamed(server)


@pytest.mark.parametrize("at", ["request", "headers", 2])
async def test_an_end_in_the_middle_is_seen(at: Any):
    async with wire.serve(wire.Script("hello"), broken(wire.HangUp(at))) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            await streamed(server)
    assert not server.journal[0].whole


async def test_an_end_without_a_terminator_is_proper_http():
    async with wire.serve(wire.Script("hello"), broken(wire.Cut())) as server:
        assert b"message_stop" not in await streamed(server)


async def test_a_reply_that_was_cut_is_given_again():
    script = wire.Script("first", "second")
    async with wire.serve(script, wire.Settings(faults=wire.first(1, wire.Cut(3)))) as server:
        said = [await streamed(server) for _ in range(3)]
    assert [b"first" in said[1], b"second" in said[2]] == [True, True]
    assert [exchange.repeats for exchange in server.journal] == [None, 1, 1]
    assert [exchange.number for exchange in server.journal.repeated] == [2, 3]


async def test_a_failure_uses_up_no_turn():
    async with wire.serve(wire.Script("only"), wire.Settings(faults=wire.on({1: [wire.Failure(529)]}))) as server:
        busy, said = await streamed(server), await streamed(server)
    assert (b"overloaded_error" in busy, b"only" in said) == (True, True)


async def test_a_turn_can_bring_its_own_faults():
    turn = wire.Turn((wire.Text("hello"),), faults=(wire.Newlines("\r\n"),))
    async with wire.serve(wire.Script(turn)) as server:
        assert b"\r\n\r\n" in await streamed(server)


async def test_a_page_of_a_proxy_is_no_json():
    async with wire.serve(wire.Script(), broken(wire.Html(413))) as server, client(server) as http:
        reply = await http.post("/v1/messages", json=ASK)
    assert (reply.status_code, reply.headers["content-type"], reply.text[:6]) == (413, "text/html", "<html>")


async def test_a_client_that_leaves_is_noticed():
    body = json.dumps(ASK).encode()
    async with wire.serve(wire.Script("hello"), broken(wire.Stall(60.0, at=2))) as server:
        await raw(server, HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        await server.journal.wait_ended()
    [exchange] = server.journal.cancelled
    assert (exchange.whole, exchange.status) == (False, 200)


async def test_a_client_that_leaves_before_the_first_byte_is_noticed():
    asked = anyio.Event()

    def think(_ask: wire.Ask) -> wire.Turn:
        asked.set()
        return wire.turn("hello", delay_s=600.0)

    async with wire.serve(think) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streamed, server)
            await asked.wait()
            tasks.cancel_scope.cancel()
        await server.journal.wait_ended()
    assert [(exchange.client_left, exchange.first_byte_s) for exchange in server.journal] == [(True, None)]


async def test_what_was_not_begun_is_not_cached():
    marked = message(user({"type": "text", "text": "x" * 8000, "cache_control": {"type": "ephemeral"}}))
    async with wire.serve(wire.Script("a", "b"), wire.Settings(faults=wire.first(1, wire.HangUp("request")))) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            await streamed(server, marked)
        await streamed(server, marked)
    assert [row.read for row in server.ledger] == [0, 0]


async def test_a_stall_lasts():
    async with wire.serve(wire.Script("hello"), broken(wire.Stall(0.2, "headers"))) as server:
        await streamed(server)
        await server.journal.wait_ended()
    [exchange] = server.journal
    assert exchange.ended_s is not None
    assert exchange.first_byte_s is not None
    assert exchange.ended_s - exchange.first_byte_s >= 0.2


async def test_the_ledger_and_the_journal_can_be_fetched():
    async with wire.serve(wire.Script("hello")) as server, client(server) as http:
        await streamed(server)
        ledger, journal = (await http.get("/__ledger")).json(), (await http.get("/__journal")).json()
    assert (ledger["rows"][0]["output"], ledger["cost_usd"]) == (2, str(server.ledger[0].cost_usd))
    assert (journal[0]["endpoint"], journal[0]["status"]) == ("anthropic.messages", 200)
    assert len(server.journal) == 1


async def test_a_path_that_no_vendor_has_is_not_found():
    async with wire.serve(wire.Script()) as server, client(server) as http:
        assert (await http.get("/v9/nothing")).status_code == 404
    assert server.journal[0].endpoint == "unknown"


async def test_a_brain_that_fails_fails_the_test():
    with pytest.raises(wire.ScriptEnded, match="found a script of 0 turns"):
        async with wire.serve(wire.Script()) as server:
            assert b"the brain of this server failed" in await streamed(server)


async def test_what_goes_wrong_inside_is_raised_as_it_is():
    with pytest.raises(LookupError, match="mine"):
        async with wire.serve(wire.Script()):
            raise LookupError("mine")


async def raw(server: wire.Server, *pieces: bytes) -> bytes:
    """Send each piece but the first once something came back for the one before; return all that came."""
    stream = await anyio.connect_tcp("127.0.0.1", int(server.base_url.rpartition(":")[2]))
    got = b""
    async with stream:
        with anyio.fail_after(5.0):
            for piece in pieces:
                await stream.send(piece)
                got += await stream.receive()
    return got


HEAD = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\nx-a: 1\r\nx-a: 2\r\n"


async def test_a_client_may_ask_whether_to_go_on():
    async with wire.serve(wire.Script()) as server:
        got = await raw(server, HEAD + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n", b"{}")
    assert got.startswith(b"HTTP/1.1 100")
    assert server.journal[0].headers["x-a"] == "1,2"


async def test_a_body_may_come_in_chunks():
    async with wire.serve(wire.Script()) as server:
        await raw(server, HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n")
    assert server.journal[0].raw == b"{}"


@pytest.mark.parametrize(
    "pieces",
    [(b"nonsense\r\n\r\n",), (HEAD + b"content-length: 9\r\n\r\n{",), ()],
)
async def test_what_is_no_request_ends_the_connection(pieces: Sequence[bytes]):
    async with wire.serve(wire.Script()) as server:
        stream = await anyio.connect_tcp("127.0.0.1", int(server.base_url.rpartition(":")[2]))
        async with stream:
            for piece in pieces:
                await stream.send(piece)
            await stream.send_eof()
            with pytest.raises(anyio.EndOfStream), anyio.fail_after(5.0):
                await stream.receive()
    assert len(server.journal) == 0


async def test_a_request_behind_a_request_is_served_after_it():
    two = (HEAD + b"content-length: 2\r\n\r\n{}") * 2
    async with wire.serve(wire.Script()) as server:
        stream = await anyio.connect_tcp("127.0.0.1", int(server.base_url.rpartition(":")[2]))
        async with stream:
            await stream.send(two)
            got = b""
            with anyio.fail_after(5.0):
                while got.count(b'"request_id"') < 2:
                    got += await stream.receive()
    assert [exchange.status for exchange in server.journal] == [400, 400]


async def test_a_reader_that_does_not_read_holds_up_nobody_else():
    wide = {"claude-opus-4-8": {"like": "claude-opus-4-8", "max_output": 10_000_000, "window": 20_000_000}}
    body = json.dumps(message(max_tokens=10_000_000)).encode()
    async with wire.serve(wire.Script(last="x" * 30_000_000), wire.Settings(models=wide)) as server:
        stream = await anyio.connect_tcp("127.0.0.1", int(server.base_url.rpartition(":")[2]))
        async with stream:
            await stream.send(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
            await stream.receive(1)
            assert b"max_tokens" in await streamed(server, message(max_tokens=1))
        await server.journal.wait_ended()
    assert server.journal[0].client_left


# --- in a thread


def test_a_server_in_a_thread_serves_clients_that_block():
    with wire.serve_in_thread(wire.Script("hello")) as server:
        reply = httpx.post(f"{server.base_url}/v1/messages", json=message(), headers=ANTHROPIC)
    assert reply.json()["content"][0]["text"] == "hello"


def test_a_server_in_a_thread_serves_other_processes():
    program = (
        "import urllib.request, sys, json\n"
        "ask = urllib.request.Request(sys.argv[1] + '/v1/models', headers=json.loads(sys.argv[2]))\n"
        "print(len(json.load(urllib.request.urlopen(ask))['data']))\n"
    )
    with wire.serve_in_thread(wire.Script()) as server:
        headers = '{"x-api-key": "k", "anthropic-version": "2023-06-01"}'
        got = subprocess.run(
            [sys.executable, "-c", program, server.base_url, headers], capture_output=True, text=True, check=True
        )
    assert int(got.stdout) > 10


def test_the_port_is_free_afterwards():
    with wire.serve_in_thread(wire.Script()) as server:
        port = int(server.base_url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)) as ours:
        assert ours.getsockname() == ("127.0.0.1", port)


async def test_a_question_for_the_head_alone_gets_it_and_the_server_serves_on():
    async with wire.serve(wire.Script("hello")) as server, client(server) as http:
        head = await http.head("/v1/messages")
        assert (head.status_code, head.content) == (404, b"")
        assert b"hello" in await streamed(server)


@pytest.mark.parametrize("target", [b"//[", b"/\xff", b"http://[/"])
async def test_a_target_that_is_none_ends_its_connection_and_no_other(target: bytes):
    async with wire.serve(wire.Script("hello")) as server:
        port = int(server.base_url.rpartition(":")[2])
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()
        assert b"hello" in await streamed(server)
