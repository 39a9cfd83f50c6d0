"""How many requests and tokens a minute a vendor takes."""

from __future__ import annotations

import anyio
import pytest

from shoal.errors import ConfigInvalid
from shoal.providers import RateLimit, RateStatistics, Usage
from shoal.providers._refusals import duration_s

pytestmark = pytest.mark.anyio


async def waited(limit: RateLimit, tokens: int = 0) -> float:
    began = anyio.current_time()
    await limit.admit(tokens)
    return round(anyio.current_time() - began, 3)


async def test_without_a_limit_nobody_waits():
    limit = RateLimit()
    assert [await waited(limit, 10_000) for _ in range(100)] == [0] * 100


async def test_a_minutes_worth_goes_at_once_and_then_one_at_a_time():
    limit = RateLimit(requests_per_minute=30)
    assert [await waited(limit) for _ in range(31)] == [0] * 30 + [2]


async def test_tokens_are_paced_too():
    limit = RateLimit(tokens_per_minute=600)
    assert [await waited(limit, 300) for _ in range(3)] == [0, 0, 30]


async def test_a_request_larger_than_the_limit_waits_for_all_of_it():
    limit = RateLimit(tokens_per_minute=600)
    assert await waited(limit, 900) == 0
    assert await waited(limit, 300) == 60


async def test_what_was_counted_too_high_is_given_back():
    limit = RateLimit(tokens_per_minute=600)
    await limit.admit(600)
    limit.settle(600, Usage(uncached=40, cache_write=20, cache_write_long=10, output=30))
    assert await waited(limit, 500) == 0
    assert await waited(limit, 1) > 0


async def test_a_request_counts_for_the_share_that_no_cache_held_of_those_before_it():
    limit = RateLimit(tokens_per_minute=1000)
    charged = [await limit.admit(1000)]
    for _ in range(4):
        limit.settle(charged[-1], Usage(uncached=100, cache_read=900))
        charged.append(await limit.admit(1000))
    assert charged == [1000, 550, 325, 213, 157]


async def test_however_much_a_cache_held_a_request_counts_for_something():
    limit = RateLimit()
    for _ in range(50):
        limit.settle(0, Usage(cache_read=1000))
    assert await limit.admit(1000) in (20, 21)


async def test_what_came_to_nothing_counts_nothing():
    limit = RateLimit(tokens_per_minute=600)
    await limit.admit(600)
    limit.settle(600, None)
    assert await waited(limit, 600) == 0


async def test_where_the_vendor_limits_input_output_does_not_count():
    limit = RateLimit()
    limit.observe({"anthropic-ratelimit-input-tokens-limit": "600"})
    await limit.admit(600)
    limit.settle(600, Usage(uncached=600, output=600))
    assert await waited(limit, 10) == 1


async def test_a_large_request_is_not_passed_by_small_ones_behind_it():
    limit = RateLimit(tokens_per_minute=600)
    await limit.admit(600)
    order: list[int] = []

    async def wait(tokens: int) -> None:
        await limit.admit(tokens)
        order.append(tokens)

    async with anyio.create_task_group() as tasks:
        for tokens in (500, 1, 2):
            tasks.start_soon(wait, tokens)
            await anyio.wait_all_tasks_blocked()
        assert limit.statistics().queued == 3
    assert order == [500, 1, 2]


async def test_the_statistics_say_what_was_waited():
    limit = RateLimit(requests_per_minute=60)
    for _ in range(61):
        await limit.admit(0)
    assert limit.statistics() == RateStatistics(60, None, queued=0, waited_s=pytest.approx(1))


async def test_an_idle_minute_saves_up_no_more_than_a_minute():
    limit = RateLimit(requests_per_minute=2)
    await limit.admit(0)
    await anyio.sleep(600)
    assert [await waited(limit) for _ in range(3)] == [0, 0, 30]


async def test_a_limit_is_learned_from_the_vendors_headers():
    limit = RateLimit()
    limit.observe({"anthropic-ratelimit-requests-limit": "4", "anthropic-ratelimit-input-tokens-limit": "1000"})
    assert (limit.requests_per_minute, limit.tokens_per_minute) == (4, 1000)
    assert [await waited(limit) for _ in range(5)] == [0, 0, 0, 0, 15]


async def test_what_others_spent_from_the_account_counts():
    limit = RateLimit(requests_per_minute=60)
    limit.observe({"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "1"})
    assert [await waited(limit) for _ in range(2)] == [0, 1]


async def test_a_lower_limit_takes_effect_and_a_higher_one_too():
    limit = RateLimit(tokens_per_minute=60_000)
    limit.observe({"x-ratelimit-limit-tokens": "600"})
    await limit.admit(600)
    assert await waited(limit, 300) == 30
    limit.observe({"x-ratelimit-limit-tokens": "6000"})
    assert await waited(limit, 300) == 3


async def test_an_exhausted_account_waits_for_its_reset():
    limit = RateLimit(requests_per_minute=6000)
    limit.observe(
        {
            "x-ratelimit-limit-requests": "6000",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "34s",
        }
    )
    assert await waited(limit) == 34


async def test_a_reset_may_be_a_date():
    limit = RateLimit(wall_clock=lambda: 1_800_000_000.0)
    limit.observe(
        {
            "anthropic-ratelimit-tokens-limit": "6000",
            "anthropic-ratelimit-tokens-remaining": "0",
            "anthropic-ratelimit-tokens-reset": "2027-01-15T08:00:20Z",
        }
    )
    assert await waited(limit, 1) == 20
    limit.observe({"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "soon"})


async def test_a_busy_vendor_is_left_alone_for_as_long_as_it_asks():
    limit = RateLimit()
    limit.hold(12)
    assert await waited(limit) == 12


async def test_headers_of_something_else_teach_nothing():
    limit = RateLimit()
    limit.observe({"x-ratelimit-limit-requests": "many", "x-ratelimit-remaining-tokens": "3", "date": "today"})
    assert (limit.requests_per_minute, limit.tokens_per_minute) == (None, None)
    assert await waited(limit, 100) == 0


async def test_waiting_can_be_cancelled_and_spends_nothing():
    limit = RateLimit(requests_per_minute=1)
    await limit.admit(0)
    with anyio.move_on_after(5):
        await limit.admit(0)
    assert await waited(limit) == 55


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_limit_that_lets_nothing_through_is_refused(wrong: float):
    with pytest.raises(ConfigInvalid, match="nothing through"):
        RateLimit(requests_per_minute=wrong)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("6m0s", 360),
        ("1h2m3.5s", 3723.5),
        ("120ms", 0.12),
        ("1m30s", 90),
        (" 34s ", 34),
        ("", None),
        ("soon", None),
        ("12", None),
    ],
)
def test_durations_as_vendors_write_them(text: str, seconds: float | None):
    assert duration_s(text) == seconds


async def test_the_repr_shows_what_is_left():
    limit = RateLimit(requests_per_minute=2)
    await limit.admit(0)
    assert (
        repr(limit) == "<RateLimit <Budget of 2 a minute, 1 left> requests, <Budget of None a minute, 0 left> tokens>"
    )


@pytest.mark.parametrize("said", ["\xb2", "nan", "inf", "-1", "1e400", "9" * 400, "", "soon"])
async def test_what_is_no_number_is_no_limit(said: str):
    limit = RateLimit()
    limit.observe({"x-ratelimit-limit-requests": said, "anthropic-ratelimit-tokens-limit": said})
    assert (limit.requests_per_minute, limit.tokens_per_minute) == (None, None)


async def test_a_limit_that_cannot_be_meant_costs_two_minutes_at_most():
    limit = RateLimit()
    charged = await limit.admit(9_000)
    limit.observe({"x-ratelimit-limit-tokens": "9"})
    limit.settle(charged, Usage(uncached=9_000_000))
    assert await waited(limit, 9_000) == 120
