"""The bill of one inference, split over the owners of the prompt's parts: to the token, and to the last decimal."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shoal.providers import Price, Usage
from shoal.runtime.context import OVERHEAD, REPLY_REASONING, REPLY_TEXT, Part, Share, attribute, cost_of, rates_of
from shoal.runtime.context.attribution import scale

OWNERS = ["tools", "task", "files", "facts", "conversation"]
parts = st.lists(st.builds(Part, st.sampled_from(OWNERS), st.integers(0, 500)), max_size=12)
tokens = st.integers(0, 3_000)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    output = draw(tokens)
    buckets = [draw(tokens) for _ in range(4)]
    return Usage(*buckets, output, draw(st.integers(0, output)))


money = st.decimals(Decimal(0), Decimal(99), places=4)
prices = st.builds(
    Price,
    money,
    money,
    st.one_of(st.none(), money),
    st.one_of(st.none(), money),
    st.one_of(st.none(), money),
    long_from_tokens=st.one_of(st.none(), st.integers(0, 12_000)),
    long_factor=st.sampled_from([Decimal(1), Decimal(2), Decimal("1.5")]),
)
USD = Price(Decimal(3), Decimal(15), Decimal("0.3"), Decimal("3.75"), Decimal(6))
BUCKETS = ("uncached", "cache_read", "cache_write", "cache_write_long", "output")


def total(shares: Sequence[Share], bucket: str) -> int:
    return sum(getattr(share, bucket) for share in shares)


def by_owner(shares: Sequence[Share]) -> dict[str, Share]:
    assert len({share.owner for share in shares}) == len(shares)
    return {share.owner: share for share in shares}


@given(parts, usages(), st.integers(0, 50))
def test_the_owners_add_up_to_the_bill_in_each_bucket(made: list[Part], usage: Usage, overhead: int):
    shares = attribute(made, usage, None, overhead_tokens=overhead)
    assert [total(shares, bucket) for bucket in BUCKETS] == [getattr(usage, bucket) for bucket in BUCKETS]
    assert total(shares, "input") == usage.input


@given(parts, usages(), prices, st.integers(0, 50))
def test_the_owners_add_up_to_the_cost_to_the_last_decimal(made: list[Part], usage: Usage, price: Price, overhead: int):
    shares = attribute(made, usage, price, overhead_tokens=overhead)
    assert sum((share.cost for share in shares if share.cost is not None), Decimal(0)) == price.cost(usage)


@given(parts.filter(bool), usages(), st.data())
def test_cutting_a_part_in_two_changes_no_owners_share(made: list[Part], usage: Usage, data: st.DataObject):
    index = data.draw(st.integers(0, len(made) - 1))
    first = data.draw(st.integers(0, made[index].tokens))
    halves = [msgspec.structs.replace(made[index], tokens=n) for n in (first, made[index].tokens - first)]
    cut = [*made[:index], *halves, *made[index + 1 :]]
    assert by_owner(attribute(cut, usage, USD)) == by_owner(attribute(made, usage, USD))


@given(st.permutations(OWNERS), st.lists(st.integers(0, 500), min_size=5, max_size=5), usages())
def test_cached_tokens_lie_in_front_and_uncached_ones_behind(owners: list[str], sizes: list[int], usage: Usage):
    made = [Part(owner, size) for owner, size in zip(owners, sizes, strict=True)]
    shares = by_owner(attribute(made, usage, None))
    rows = [shares[owner] for owner in (*owners, OVERHEAD) if owner in shares]
    in_order = [
        bucket
        for row in rows
        for bucket in ("cache_read", "cache_write_long", "cache_write", "uncached")
        if getattr(row, bucket)
    ]
    rank = {"cache_read": 0, "cache_write_long": 1, "cache_write": 2, "uncached": 3}
    assert [rank[bucket] for bucket in in_order] == sorted(rank[bucket] for bucket in in_order)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=12).filter(any), tokens)
def test_scaling_adds_up_exactly_and_is_off_by_less_than_one(estimates: list[int], whole: int):
    scaled = scale(estimates, whole)
    assert sum(scaled) == whole
    exact = [estimate * whole / sum(estimates) for estimate in estimates]
    assert all(abs(a - b) < 1 for a, b in zip(scaled, exact, strict=True))


def test_scaling_gives_the_largest_remainder_first_and_ties_to_the_first():
    assert scale([1, 1, 1], 10) == (4, 3, 3)
    assert scale([10, 21, 69], 10) == (1, 2, 7)


def test_a_boundary_inside_a_part_splits_it():
    shares = by_owner(attribute([Part("a", 60), Part("b", 40)], Usage(uncached=30, cache_read=70), None))
    assert shares["a"] == Share("a", cache_read=60)
    assert shares["b"] == Share("b", uncached=30, cache_read=10)
    assert shares["b"].input == 40
    assert shares["b"].usage == Usage(uncached=30, cache_read=10)


def test_written_tokens_follow_the_read_ones_longer_lifetimes_first():
    usage = Usage(uncached=10, cache_read=20, cache_write=30, cache_write_long=40)
    shares = by_owner(attribute([Part("a", 60), Part("b", 40)], usage, None))
    assert shares["a"] == Share("a", cache_read=20, cache_write_long=40)
    assert shares["b"] == Share("b", cache_write=30, uncached=10)


def test_framing_is_an_owner_of_its_own_behind_everything():
    shares = by_owner(attribute([Part("a", 90)], Usage(uncached=50, cache_read=50), None, overhead_tokens=10))
    assert shares[OVERHEAD] == Share(OVERHEAD, uncached=10)


def test_a_bill_without_any_estimate_belongs_to_overhead():
    assert attribute([], Usage(uncached=7), None) == (Share(OVERHEAD, uncached=7),)
    assert attribute([Part("a", 0)], Usage(uncached=7), None) == (Share(OVERHEAD, uncached=7),)


def test_text_and_reasoning_of_the_reply_are_owners_of_their_own():
    shares = attribute([Part("a", 10)], Usage(uncached=10, output=30, reasoning=20), USD)
    assert shares[1:] == (
        Share(REPLY_TEXT, output=10, cost=Decimal("0.00015")),
        Share(REPLY_REASONING, output=20, cost=Decimal("0.0003")),
    )


def test_a_reply_that_says_nothing_has_no_share():
    assert [share.owner for share in attribute([Part("a", 10)], Usage(uncached=10), USD)] == ["a"]


def test_owners_stand_in_the_order_in_which_they_first_appear():
    made = [Part("b", 5), Part("a", 5), Part("b", 5)]
    assert [share.owner for share in attribute(made, Usage(uncached=15), None)] == ["b", "a"]


def test_an_unknown_price_is_none_and_not_zero():
    assert attribute([Part("a", 10)], Usage(uncached=10, output=5), None)[0].cost is None
    assert cost_of(None, (1, 2, 3, 4, 5)) is None


def test_a_long_prompt_is_billed_at_its_multiple():
    price = Price(Decimal(1), Decimal(2), long_from_tokens=100, long_factor=Decimal(2))
    assert rates_of(price, 100)[0] * 2 == rates_of(price, 101)[0]
