"""Deadlines, limits and the life of connections, on virtual time and without a network."""

from __future__ import annotations

import gc
import gzip
import json
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
from providers_loopback import events, text
from providers_parts import request, user

from shoal.errors import ConfigInvalid, ProviderRefused, ProviderSetup, ProviderUnavailable
from shoal.providers import Completed, ModelProfile, RetryPolicy, Timeouts, Wire, compatible, exchange
from shoal.providers._refusals import Asked
from shoal.providers._transport import Transport

pytestmark = pytest.mark.anyio

ASKED = Asked("acme", "m")
SSE = {"content-type": "text/event-stream"}


class Slow(httpx.AsyncByteStream):
    """A body of which each piece takes some seconds."""

    def __init__(self, *pieces: tuple[float, bytes]) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for delay_s, piece in self.pieces:
            await anyio.sleep(delay_s)
            yield piece


class Fake(httpx.AsyncBaseTransport):
    """Answers every request after *delay_s* seconds with a body of *pieces*."""

    def __init__(self, *pieces: tuple[float, bytes], delay_s: float = 0.0) -> None:
        self.pieces = pieces
        self.delay_s = delay_s
        self.closed = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        await anyio.sleep(self.delay_s)
        return httpx.Response(200, headers=SSE, stream=Slow(*self.pieces))

    async def aclose(self) -> None:
        self.closed += 1


WHOLE = events(*text("a"))
PING = b": ping\n\n"


async def replied(
    http: httpx.AsyncBaseTransport, *, timeout_s: float = 900.0, timeouts: Timeouts | None = None
) -> Completed:
    provider = compatible("http://there/v1", http=http, timeouts=timeouts)
    sent = request(user("x"), timeout_s=timeout_s)
    return await exchange(provider, sent, policy=RetryPolicy(attempts=1))


async def test_an_answer_may_take_its_time_to_begin():
    assert await replied(Fake((0.0, WHOLE), delay_s=299.0))


async def test_an_answer_that_does_not_begin_is_unavailable():
    with pytest.raises(ProviderUnavailable, match="in time"):
        await replied(Fake((0.0, WHOLE), delay_s=301.0))
    assert anyio.current_time() == pytest.approx(300.0, abs=1.0)


async def test_the_first_byte_of_the_body_may_take_longer_than_a_later_one():
    assert await replied(Fake((299.0, WHOLE)))


async def test_a_body_that_does_not_begin_is_unavailable():
    with pytest.raises(ProviderUnavailable, match="in time"):
        await replied(Fake((200.0, WHOLE), delay_s=150.0))
    assert anyio.current_time() == pytest.approx(300.0, abs=1.0)


def test_timeouts_leave_time_to_wait():
    with pytest.raises(ConfigInvalid, match="more than 0"):
        Timeouts(idle_s=0)


async def test_pings_keep_a_silent_stream_alive():
    assert await replied(Fake(*[(119.0, PING)] * 5, (119.0, WHOLE)))


async def test_a_silent_stream_is_unavailable():
    with pytest.raises(ProviderUnavailable, match="in time"):
        await replied(Fake((0.0, PING), (121.0, WHOLE)))
    assert anyio.current_time() == pytest.approx(120.0, abs=1.0)


async def test_pings_do_not_keep_a_request_alive_past_its_own_time():
    with pytest.raises(ProviderUnavailable):
        await replied(Fake(*[(10.0, PING)] * 100), timeout_s=95.0)
    assert anyio.current_time() == pytest.approx(95.0, abs=1.0)


async def test_a_stream_that_nobody_else_limits_ends_at_the_requests_own_time_too():
    provider = compatible("http://there/v1", http=Fake(*[(10.0, PING)] * 100))
    with pytest.raises(ProviderUnavailable, match="in time"):
        _ = [event async for event in provider.stream(request(user("x"), timeout_s=95.0))]
    assert anyio.current_time() == pytest.approx(95.0, abs=1.0)


async def test_a_late_end_behind_the_end_mark_is_not_awaited():
    assert await replied(Fake((0.0, WHOLE), (60.0, b"")))
    assert anyio.current_time() == pytest.approx(0.25, abs=0.2)


async def read(*pieces: bytes, limit: int) -> bytes:
    transport = Transport("http://there", http=Fake(*[(0.0, piece) for piece in pieces]), max_response_bytes=limit)
    async with transport.post("/x", Wire.of(b"{}"), ASKED, timeout_s=10.0) as answer:
        return await answer.read()


async def test_an_answer_is_read_up_to_the_limit():
    assert await read(b"abc", b"de", limit=5) == b"abcde"


async def test_an_answer_past_the_limit_is_refused():
    with pytest.raises(ProviderRefused, match="passed 5 bytes"):
        await read(b"abc", b"def", limit=5)


async def test_one_event_past_the_limit_is_refused_before_it_ends():
    http = Fake((0.0, b"data: "), *[(0.0, b"x" * 2**20)] * 17, (0.0, b"\n\n"))
    async with Transport("http://there", http=http).post("/x", Wire.of(b"{}"), ASKED, timeout_s=10.0) as answer:
        with pytest.raises(ProviderRefused):
            _ = [event async for event in answer.events()]


async def test_a_request_may_have_another_whole_url():
    seen: list[str] = []

    async def note(asked: httpx.Request) -> httpx.Response:
        seen.append(str(asked.url))
        return httpx.Response(200)

    transport = Transport("http://there/v1/", http=httpx.MockTransport(note))
    for path in ("/a", "http://else/b"):
        async with transport.post(path, Wire.of(b"{}"), ASKED, timeout_s=10.0) as answer:
            await answer.read()
    assert seen == ["http://there/v1/a", "http://else/b"]


async def test_the_reprs_show_state_and_no_secret():
    transport = Transport("http://user:secret@there:1/v1", headers={"k": "secret"}, http=Fake((0.0, b"abc")))
    assert repr(transport) == "<Transport to http://there:1/v1, closed>"
    async with transport.post("/x", Wire.of(b"{}"), ASKED, timeout_s=10.0) as answer:
        await answer.read()
        assert repr(answer) == "<Answer 200 to m, 3 bytes read>"
    assert repr(transport).endswith("open>")


def test_the_repr_of_a_provider_shows_its_server_and_no_secret():
    provider = compatible("http://me:secret-password@there/v1", api_key="sk-very-secret-key", capabilities="vllm")
    assert repr(provider) == "<VendorProvider vllm, <ChatDialect vllm>, <Transport to http://there/v1, closed>>"


class Stuck(httpx.AsyncBaseTransport):
    """Takes one piece of a request, and then no more."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        async for _ in request.stream:  # type: ignore[union-attr] # of an asynchronous client
            await anyio.sleep_forever()
        raise AssertionError


async def test_a_request_that_is_cancelled_while_it_is_written_leaves_nothing_to_close():
    with anyio.move_on_after(5) as scope:
        await replied(Stuck())
    gc.collect()  # a generator that is still open is reported now, which fails the test
    assert scope.cancelled_caught


async def test_closing_closes_the_client_once():
    http = Fake((0.0, WHOLE))
    provider = compatible("http://there/v1", http=http)
    await exchange(provider, request(user("x")))
    await provider.aclose()
    await provider.aclose()
    assert http.closed == 1


# --- the factory


@pytest.mark.parametrize(
    "url",
    [
        "there/v1",
        "ftp://there",
        "http://",
        "http://there/v1?key=secret",
        "http://there/v1#secret",
        "http://there:99999/secret",
        "http://me:secret/word@there/v1",
        "http://[::1",
        "http://there/\0",
    ],
)
def test_a_url_that_leads_nowhere_is_refused(url: str):
    with pytest.raises(ConfigInvalid) as caught:
        compatible(url)
    assert "secret" not in str(caught.value)


def test_an_unknown_server_is_refused_with_those_that_are_known():
    with pytest.raises(ConfigInvalid, match=r"`llama\.cpp`"):
        compatible("http://there", capabilities="lama.cpp")


def test_a_provider_is_called_after_its_server_unless_it_is_named():
    assert compatible("http://there", capabilities="vllm").name == "vllm"
    assert compatible("http://there", capabilities="vllm", name="mine").name == "mine"


def test_a_server_of_ones_own_has_no_price_whatever_its_model_is_called():
    assert compatible("http://there", capabilities="vllm").profile("gpt-5.4").price is None
    assert compatible("http://there").profile("gpt-5.4").price is not None


def test_a_given_profile_wins():
    mine = ModelProfile("gpt-5.4", window_tokens=7)
    assert compatible("http://there", profiles={"gpt-5.4": mine}).profile("gpt-5.4") is mine


def test_the_default_model_is_kept():
    assert compatible("http://there", model="m").default_model == "m"


async def test_user_and_password_of_a_url_travel_in_a_header_and_are_in_no_url():
    seen: list[httpx.Request] = []

    def answered(asked: httpx.Request) -> httpx.Response:
        seen.append(asked)
        return httpx.Response(200, json={})

    transport = Transport("http://me:a%20secret@there/v1/", http=httpx.MockTransport(answered))
    async with transport.post("/x", None, ASKED, timeout_s=1):
        pass
    await transport.aclose()
    assert (str(seen[0].url), seen[0].headers["authorization"]) == ("http://there/v1/x", "Basic bWU6YSBzZWNyZXQ=")


async def test_an_error_of_the_network_that_holds_a_secret_is_not_kept_as_the_cause():
    def refuse(_asked: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no way to a-secret")

    transport = Transport("http://there", http=httpx.MockTransport(refuse))
    with pytest.raises(ProviderUnavailable, match=r"no way to \*\*\*") as caught:
        async with transport.post("/x", None, Asked("p", "m", ("a-secret",)), timeout_s=1):
            pass
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-secret\u00e9", "sk-\0secret", ""])
def test_a_key_that_no_header_takes_is_refused_at_once_and_not_repeated(key: str):
    with pytest.raises(ConfigInvalid, match="'Authorization' cannot be sent") as caught:
        compatible("http://there/v1", api_key=key)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ALL_PROXY", "socks9://me:a-secret@there"),
        ("ALL_PROXY", "http://me:a-secret/word@there"),
        ("ALL_PROXY", "socks5://me:a-secret@there"),
        ("SSL_CERT_FILE", "/no/such/file"),
    ],
)
async def test_an_environment_that_lets_nothing_through_is_for_a_person_to_mend(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "socksio", None)  # which a proxy of that kind needs
    monkeypatch.setenv(variable, value)
    with pytest.raises(ProviderSetup) as caught:
        await exchange(compatible("http://there/v1"), request(user("x")))
    assert variable in caught.value.remedy
    assert "secret" not in str(caught.value)


SECRET = 'sk-"very/secret+key'


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "http://there/v1", "api_key": SECRET},
        {"base_url": "http://there/v1", "headers": {"authorization": f"Bearer {SECRET}"}},
        {"base_url": f"http://{quote(SECRET, safe='')}@there/v1"},
        {"base_url": f"http://me:{quote(SECRET, safe='')}@there/v1"},
    ],
    ids=["a key", "a word of a header", "a user without a password", "a password"],
)
@pytest.mark.parametrize(
    "form", [SECRET, quote(SECRET, safe=""), json.dumps(SECRET)[1:-1]], ids=["plain", "quoted", "in JSON in JSON"]
)
async def test_a_secret_is_struck_out_wherever_it_was_given_and_however_it_comes_back(
    settings: dict[str, Any], form: str
):
    http = httpx.MockTransport(lambda _: httpx.Response(401, json={"error": {"message": f"what is {form}?"}}))
    provider = compatible(http=http, **settings)
    with pytest.raises(ProviderSetup, match=r"what is \*\*\*\?"):
        await exchange(provider, request(user("x")))


async def test_a_secret_that_begins_with_another_is_struck_out_whole():
    http = httpx.MockTransport(lambda _: httpx.Response(401, json={"error": {"message": "what is my-secret-key?"}}))
    provider = compatible("http://there/v1", http=http, api_key="my-secret", headers={"x-more": "my-secret-key"})
    with pytest.raises(ProviderSetup, match=r"what is \*\*\*\?"):
        await exchange(provider, request(user("x")))


async def test_a_secret_is_struck_out_before_what_is_quoted_is_cut():
    body = b"data: " + b"x" * 195 + b"my-secret\n\n"
    http = httpx.MockTransport(lambda _: httpx.Response(200, content=body))
    provider = compatible("http://there/v1", http=http, api_key="my-secret")
    with pytest.raises(ProviderUnavailable, match=r"xxx\*\*\*"):
        await exchange(provider, request(user("x")), policy=RetryPolicy(attempts=1))


async def test_of_two_headers_of_one_name_the_further_one_is_sent():
    seen: list[httpx.Request] = []

    def noted(asked: httpx.Request) -> httpx.Response:
        seen.append(asked)
        return httpx.Response(401)

    more = {"authorization": "Bearer mine", "user-agent": "my tool"}
    provider = compatible(
        "http://me:password@there/v1", api_key="theirs", headers=more, http=httpx.MockTransport(noted)
    )
    with pytest.raises(ProviderSetup):
        await exchange(provider, request(user("x")))
    assert seen[0].headers.get_list("authorization") == ["Bearer mine"]
    assert seen[0].headers.get_list("user-agent") == ["my tool"]
    assert seen[0].headers.get_list("accept-encoding") == ["identity"]


def test_a_header_whose_name_is_none_is_refused_at_once():
    with pytest.raises(ConfigInvalid, match="'x token' cannot be sent"):
        compatible("http://there/v1", headers={"x token": "a"})


async def test_of_an_error_no_more_is_kept_than_is_looked_at_however_small_it_came():
    bomb = gzip.compress(b"x" * 10_000_000)
    http = httpx.MockTransport(
        lambda _: httpx.Response(500, headers={"content-encoding": "gzip"}, stream=Slow((0.0, bomb)))
    )
    async with Transport("http://there", http=http).post("/x", None, ASKED, timeout_s=10.0) as answer:
        assert len(await answer.read_error()) == 256 * 1024


async def test_what_a_client_has_read_and_unpacked_itself_is_taken_as_it_is():
    packed = gzip.compress(b'{"error": {"message": "come back"}}')
    http = httpx.MockTransport(lambda _: httpx.Response(503, headers={"content-encoding": "gzip"}, content=packed))
    with pytest.raises(ProviderUnavailable, match="come back"):
        await exchange(compatible("http://there/v1", http=http), request(user("x")), policy=RetryPolicy(attempts=1))


async def test_an_ordinary_word_of_a_header_is_not_struck_out():
    http = httpx.MockTransport(lambda _: httpx.Response(401, json={"error": {"message": "unknown Application"}}))
    provider = compatible("http://there/v1", http=http, headers={"x-title": "My Application"})
    with pytest.raises(ProviderSetup, match="unknown Application"):
        await exchange(provider, request(user("x")))


async def test_a_redirect_is_not_followed_and_takes_no_key_elsewhere():
    seen: list[str] = []

    def moved(asked: httpx.Request) -> httpx.Response:
        seen.append(asked.url.host)
        return httpx.Response(307, headers={"location": "http://elsewhere/v1/chat/completions"})

    with pytest.raises(ProviderRefused, match="HTTP 307; check that the base URL is right"):
        await exchange(compatible("http://there/v1", http=httpx.MockTransport(moved)), request(user("x")))
    assert seen == ["there"]
