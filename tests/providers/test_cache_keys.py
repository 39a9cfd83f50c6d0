"""Which requests go to one machine of a vendor."""

from __future__ import annotations

from providers_parts import block, request, tool, tools, user

from shoal.providers import Request
from shoal.providers._cache_keys import CacheKeys, shared_prefix


def asked(run_id: str = "", text: str = "s", **settings: object) -> Request:
    return request(user("x"), run_id=run_id, system=(block(text, volatility="stable"), block(run_id)), **settings)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_runs_of_one_kind_share_a_key():
    keys = CacheKeys(clock=Clock())
    assert keys.key(asked("a")) == keys.key(asked("b")) == shared_prefix(asked("c")).hex()


def test_another_prefix_is_another_key():
    keys = CacheKeys(clock=Clock())
    others = [asked(), asked(text="t"), asked(tools=tools(tool())), asked(model="n")]
    assert len({keys.key(one) for one in others}) == 4


def test_above_the_rate_the_next_runs_share_a_second_key():
    keys = CacheKeys(per_key=2, clock=Clock())
    made = [keys.key(asked(run)) for run in ("a", "b", "c", "d", "e")]
    assert made[0] == made[1] != made[2] == made[3] != made[4]
    assert all(len(key) <= 64 for key in made)


def test_a_run_keeps_its_key_however_much_it_asks():
    keys = CacheKeys(per_key=1, clock=Clock())
    assert len({keys.key(asked("a")) for _ in range(5)}) == 1


def test_a_minute_later_the_first_key_takes_runs_again():
    clock = Clock()
    keys = CacheKeys(per_key=1, clock=clock)
    first = keys.key(asked("a"))
    assert keys.key(asked("b")) != first
    clock.now = 61.0
    assert keys.key(asked("c")) == first


def test_requests_of_no_run_go_where_there_is_room():
    keys = CacheKeys(per_key=1, clock=Clock())
    assert keys.key(asked()) != keys.key(asked())


def test_what_a_caller_gives_a_run_is_no_part_of_the_shared_prefix():
    own = [block(text, volatility="stable", reach="run") for text in ("1", "2")]
    one, other = (request(user("x"), system=(block("s", volatility="stable"), mine)) for mine in own)
    assert shared_prefix(one) == shared_prefix(other)


def test_the_run_that_was_seen_least_recently_is_forgotten():
    keys = CacheKeys(per_key=1, max_runs=1, clock=Clock())
    first = keys.key(asked("a"))
    keys.key(asked("b"))
    assert keys.key(asked("a")) != first


def test_the_prefix_that_was_seen_least_recently_is_forgotten():
    keys = CacheKeys(per_key=1, max_keys=1, clock=Clock())
    first = keys.key(asked("a"))
    keys.key(asked("a", "other"))
    assert keys.key(asked("b")) == first
    assert repr(keys) == "<CacheKeys for 1 prefixes>"
