"""Rate limits, by the clock of the server."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest
from wirekit import ANTHROPIC, Desk, Got, message, text, user

from shoal.testing import wire
from shoal.testing.wire._limits import Buckets

MARK = {"type": "ephemeral"}


def limited(**limits: Any) -> Desk:
    return Desk(settings=wire.Settings(limits=wire.Limits(**limits)))


def headers(got: Got) -> dict[str, str]:
    return dict(got.reply.headers)


def test_requests_beyond_the_limit_are_told_to_wait():
    desk = limited(requests_per_minute=2)
    first, _, third = (desk.anthropic(message()) for _ in range(3))
    assert (first.reply.status, third.reply.status, third.json["error"]["type"]) == (200, 429, "rate_limit_error")
    assert headers(third)["retry-after"] == "30"
    assert "2 requests per minute" in third.json["error"]["message"]


def test_a_bucket_fills_with_time():
    desk = limited(requests_per_minute=2)
    for _ in range(2):
        desk.anthropic(message())
    desk.clock.advance(29.9)
    early = desk.anthropic(message())
    desk.clock.advance(0.1)
    assert (early.reply.status, desk.anthropic(message()).reply.status) == (429, 200)


def test_a_refused_request_takes_nothing():
    desk = limited(requests_per_minute=5, input_per_minute=10)
    big = message(user("x" * 44))
    assert [desk.anthropic(big).reply.status for _ in range(9)] == [429] * 9
    assert desk.anthropic(message()).reply.status == 200


def test_tokens_read_from_a_cache_do_not_count():
    desk = limited(input_per_minute=2100)
    body = message(user(text("x" * 8000, cache_control=MARK)))
    assert [desk.anthropic(body).reply.status for _ in range(5)] == [200] * 5


def test_a_reply_may_overdraw_and_the_next_has_to_wait():
    desk = Desk(wire.Script(last="x" * 400), wire.Settings(limits=wire.Limits(output_per_minute=60)))
    statuses = [desk.anthropic(message()).reply.status for _ in range(2)]
    desk.clock.advance(41.0)
    assert [*statuses, desk.anthropic(message()).reply.status] == [200, 429, 200]


def test_keys_have_limits_of_their_own():
    desk = limited(requests_per_minute=1)
    desk.anthropic(message())
    other = desk.send("/v1/messages", message(), {**ANTHROPIC, "x-api-key": "other"})
    assert other.reply.status == 200


def test_what_is_left_is_told():
    desk = limited(requests_per_minute=60, input_per_minute=1000, output_per_minute=500)
    told = headers(desk.anthropic(message(user("x" * 400))))
    assert {name: value for name, value in told.items() if "ratelimit" in name} == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "59",
        "anthropic-ratelimit-requests-reset": "2026-11-30T00:00:01Z",
        "anthropic-ratelimit-input-tokens-limit": "1000",
        "anthropic-ratelimit-input-tokens-remaining": "900",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-30T00:00:06Z",
        "anthropic-ratelimit-output-tokens-limit": "500",
        "anthropic-ratelimit-output-tokens-remaining": "499",
        "anthropic-ratelimit-output-tokens-reset": "2026-11-30T00:00:00Z",
    }


def test_what_is_left_is_told_with_a_refusal_too():
    desk = limited(requests_per_minute=1)
    desk.anthropic(message())
    assert headers(desk.anthropic(message(foo=1)))["anthropic-ratelimit-requests-remaining"] == "0"


def test_no_limits_tell_nothing():
    assert not [name for name in headers(Desk().anthropic(message())) if "ratelimit" in name]


def test_buckets_show_their_level():
    assert repr(Buckets(wire.Limits(requests_per_minute=3))) == "<Buckets requests 3>"


@pytest.mark.anyio
@pytest.mark.sockets
@pytest.mark.parametrize("overloaded", [429, 529])
async def test_too_many_at_once_are_turned_away(overloaded: Any):
    statuses: list[int] = []

    async def one(http: httpx.AsyncClient) -> None:
        statuses.append((await http.post("/v1/messages", json=message())).status_code)

    settings = wire.Settings(limits=wire.Limits(concurrency=2, overloaded=overloaded))
    async with (
        wire.serve(lambda _: wire.turn("x", delay_s=0.3), settings) as server,
        httpx.AsyncClient(base_url=server.base_url, headers=ANTHROPIC) as http,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(5):
            tasks.start_soon(one, http)
    assert sorted(statuses) == [200, 200, overloaded, overloaded, overloaded]
