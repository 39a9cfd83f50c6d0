"""Properties of one shrink, over every kind that gives way: idempotent, monotone, and it gets somewhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windowkit import Held, text_of

from shoal.blueprints import Region
from shoal.runtime.context import EntriesEvicted, Limits
from shoal.runtime.context._room import to_fit

GIVES_WAY = ("temporary", "sliding_window", "compacting", "clearable", "hashmap")
shares = st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0])
small = st.lists(st.integers(1, 12), min_size=1, max_size=10)
budgets = st.integers(1, 40)
of_each_kind = pytest.mark.parametrize("kind", GIVES_WAY)
cut_or_not = pytest.mark.parametrize("volatility", ["rewritten", "grows"])


def holding(kind: str, sizes: Sequence[int], volatility: str = "rewritten") -> Held:
    held = Held(Region("r", kind=kind, max_tokens=90_000, max_items=None, volatility=volatility))  # type: ignore[arg-type]
    for n, tokens in enumerate(sizes):
        held.write("r", text_of(tokens), key=f"k{n}")
    return held


def shrink(held: Held, budget: int, share: float) -> tuple[int, ...]:
    """Shrink the region to a budget, and return the ids that are left."""
    state = held.state("r")
    limits = Limits(budget, int(budget * share), budget)
    held.change((change, None) for change in to_fit(state, state.region, limits))
    return tuple(held.ids("r"))


@of_each_kind
@given(sizes=small, budget=budgets, share=shares)
def test_shrinking_twice_equals_once(kind: str, sizes: list[int], budget: int, share: float):
    held = holding(kind, sizes)
    once = shrink(held, budget, share)
    assert shrink(held, budget, share) == once


@of_each_kind
@given(sizes=small, budget=budgets, more=st.integers(0, 20), share=shares)
def test_more_budget_never_keeps_less(kind: str, sizes: list[int], budget: int, more: int, share: float):
    less, greater = (shrink(holding(kind, sizes), budget + extra, share) for extra in (0, more))
    assert set(less) <= set(greater)


@of_each_kind
@given(sizes=small, budget=budgets, share=shares)
def test_shrinking_gets_below_the_budget_but_for_a_turn_and_keeps_what_fits(
    kind: str, sizes: list[int], budget: int, share: float
):
    left = shrink(held := holding(kind, sizes), budget, share)
    assert held.tokens("r") <= budget or (kind == "sliding_window" and len(left) == 1)
    if sum(sizes) <= budget:
        assert len(left) == len(sizes)
    elif kind not in ("clearable", "hashmap") and sizes[-1] <= budget:
        assert left[-1] == len(sizes)


@of_each_kind
@given(sizes=small, budget=budgets, share=shares)
def test_what_is_left_are_the_newest_in_order(kind: str, sizes: list[int], budget: int, share: float):
    left = shrink(holding(kind, sizes), budget, share)
    assert left == tuple(range(len(sizes) - len(left) + 1, len(sizes) + 1))


@cut_or_not
@given(
    sizes=st.lists(st.sampled_from([300, 1_000, 2_047, 2_048, 3_000]), min_size=1, max_size=8),
    budget=st.integers(200, 6_000),
    share=shares,
)
def test_chunks_change_nothing_of_this(volatility: str, sizes: list[int], budget: int, share: float):
    held = holding("temporary", sizes, volatility)
    left = shrink(held, budget, share)
    assert held.tokens("r") <= budget
    assert left == tuple(range(len(sizes) - len(left) + 1, len(sizes) + 1))
    assert bool(left) >= (sizes[-1] <= budget)
    assert shrink(held, budget, share) == left


@of_each_kind
@given(sizes=st.lists(st.integers(1, 12), min_size=2, max_size=10), need=st.integers(1, 90), share=shares)
def test_pressure_frees_what_is_wanted_or_all_but_the_newest(kind: str, sizes: list[int], need: int, share: float):
    region = Region("r", kind=kind, max_tokens=90, shed_to=share, max_items=None)  # type: ignore[arg-type]
    held = Held(region)
    for n, tokens in enumerate(sizes):
        held.write("r", text_of(tokens), key=f"k{n}", in_flight=True)
    before, alone = held.tokens("r"), len(held.entries("r")) == 1
    changes, orders = held.press(need)
    if orders:
        held.press(need, waited=orders)
    freed = before - held.tokens("r")
    assert freed >= need or len(held.entries("r")) <= 1
    assert freed > 0 or alone
    assert all(isinstance(change, EntriesEvicted) for change in changes)


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=30), share=shares)
def test_a_rolling_region_rewrites_its_front_once_a_step(sizes: list[int], share: float):
    held = Held(Region("r", max_tokens=40, shed_to=share))
    for tokens in sizes:
        before = held.tokens("r")
        plan = held.write("r", tokens)
        if len(plan.changes) > 1:
            assert before + tokens > 40
            assert held.tokens("r") <= max(int(40 * share + 1e-9), tokens)
        else:
            assert held.tokens("r") == before + tokens
