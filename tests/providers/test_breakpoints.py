"""Where cache markers stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.providers import shipped_profile
from shoal.providers._breakpoints import (
    ANTHROPIC,
    NO_MARKERS,
    OPENAI,
    SHED_ODDS,
    Front,
    Marker,
    MarkerRules,
    Markers,
    Spot,
    front_of,
    plan_breakpoints,
)

PROFILE = replace(shipped_profile("claude-opus-5-5"), min_cacheable_tokens=0)
TOOLS = Spot("tools", 100, odds=0.02, steady=True)
STABLE = Spot("system", 100, odds=0.01, steady=True)
FROZEN = Spot("system", 100, odds=0.02)
OPEN = Spot("system", 100, odds=0.3)
REST = Spot("system", 100, odds=0.05)
SAID = Spot("messages", 100)
ENDED = Spot("messages", 100)
"""Where the request before ended."""


def but(spot: Spot, **changes: object) -> Spot:
    return msgspec.structs.replace(spot, **changes)


def planned(
    *spots: Spot, rules: MarkerRules = ANTHROPIC, least: int = 0, known: Sequence[int] = (), moved: bool = False
) -> Markers:
    front = front_of([spot for spot in spots if spot.section != "messages"])
    said = [spot for spot in spots if spot.section == "messages"]
    front = msgspec.structs.replace(front, known=frozenset(known), moved=moved)
    ended = next((at for at, spot in enumerate(said) if spot is ENDED), -1)
    return plan_breakpoints(front, said, replace(PROFILE, min_cacheable_tokens=least), rules, ended=ended)


def places(*spots: Spot, **settings: object) -> list[int]:
    made = planned(*spots, **settings)  # type: ignore[arg-type] # passed on
    front = sum(spot.section != "messages" for spot in spots)
    return [*[marker.index for marker in made.ahead], *[front + spot for spot in made.behind]]


def test_the_end_is_marked_and_what_stands_in_front_of_each_likely_change():
    assert places(TOOLS, STABLE, OPEN, REST, SAID, SAID) == [1, 2, 3, 5]


def test_where_markers_are_few_the_likeliest_and_longest_prefixes_get_them():
    likely, unlikely = but(REST, odds=0.4), but(REST, odds=0.04)
    assert {0, 3} < set(places(STABLE, likely, unlikely, unlikely, likely, unlikely, SAID))


def test_a_place_in_front_of_what_hardly_changes_gets_none():
    assert places(STABLE, FROZEN, but(FROZEN, odds=0.0), REST, SAID) == [0, 2, 3, 4]
    assert places(STABLE, but(STABLE, odds=0.0), SAID) == [1, 2]


def test_a_place_is_marked_at_the_end_of_what_grows():
    front = front_of([STABLE, but(FROZEN, odds=0.0)], grows=0.3)
    assert plan_breakpoints(front, [SAID], PROFILE) == Markers((Marker(1),), (0,))
    assert front.odds == pytest.approx(0.99 * 0.7)


def test_a_model_without_markers_gets_none():
    assert plan_breakpoints(front_of([STABLE]), [SAID], replace(PROFILE, cache="prefix")) == NO_MARKERS


def test_the_end_of_the_request_before_is_marked_where_the_end_cannot_see_it():
    far = [STABLE, REST, ENDED, *[SAID] * 17]
    assert 2 not in places(*far)
    assert 2 in places(*far, SAID)


def test_stretches_count_for_as_many_positions_as_they_are():
    assert 1 in places(STABLE, ENDED, Spot("messages", 100, positions=18))


def test_without_look_back_the_request_before_is_marked_too():
    rules = msgspec.structs.replace(OPENAI, own_reach=None)
    assert places(STABLE, REST, ENDED, SAID, rules=rules) == [0, 1, 2, 3]


def test_nothing_is_marked_behind_what_no_cache_holds():
    assert places(STABLE, but(REST, cacheable=False), SAID) == [0]
    assert places(STABLE, SAID, but(SAID, cacheable=False)) == [0, 1]


def test_a_place_that_takes_no_marker_steps_back_to_the_next_that_does():
    assert places(STABLE, SAID, but(SAID, markable=False)) == [0, 1]
    assert places(but(TOOLS, markable=False), SAID) == [1]
    assert places(but(TOOLS, markable=False), REST, but(SAID, markable=False)) == [1]


def test_a_prefix_under_the_minimum_is_not_marked():
    assert places(STABLE, REST, SAID, SAID, least=250) == [3]
    assert places(STABLE, REST, least=250) == []


def test_what_is_asked_once_is_not_marked():
    assert plan_breakpoints(front_of([STABLE]), [SAID], PROFILE, once=True) == NO_MARKERS
    assert plan_breakpoints(front_of([STABLE]), [SAID], PROFILE, OPENAI, once=True) == Markers(explicit=True)


def test_the_longer_lifetime_is_for_what_is_stable_alone():
    made = planned(STABLE, REST, SAID, rules=MarkerRules(long_stable=True))
    assert made == Markers((Marker(0, long=True), Marker(1)), (0,))


# --- a vendor that marks the end by itself


def test_such_a_vendor_is_left_to_mark_the_end():
    made = planned(STABLE, REST, ENDED, SAID, rules=OPENAI)
    assert made == Markers((Marker(0), Marker(1)))


def test_it_is_kept_from_it_where_the_end_is_a_tail():
    made = planned(STABLE, REST, ENDED, SAID, but(SAID, cacheable=False), rules=OPENAI)
    assert made == Markers((Marker(0), Marker(1)), (0, 1), explicit=True)


def test_it_is_kept_from_it_where_a_long_talk_hides_what_stands_in_front():
    big = but(FROZEN, tokens=30_000)
    talk = [ENDED, *[but(SAID, markable=False, tokens=1)] * 90]
    assert planned(big, OPEN, *talk[:70], rules=OPENAI).explicit is False
    assert planned(big, OPEN, *talk, rules=OPENAI).explicit is False
    assert planned(big, OPEN, *talk, rules=OPENAI, moved=True).explicit is True


MANY = (*[but(FROZEN, odds=0.04)] * 8, ENDED, SAID, but(SAID, cacheable=False))


def test_places_marked_before_are_marked_again_to_be_read():
    new = places(*MANY, rules=OPENAI)
    made = places(*MANY, rules=OPENAI, known=[0, 1])
    assert min(new) > 1
    assert made == [0, 1, *new]


def test_places_marked_before_take_no_room_from_new_ones():
    new = places(*MANY, rules=OPENAI)
    assert places(*MANY, rules=OPENAI, known=[0, min(new) + 1]) == [0, *new]
    in_front = [index for index in new if MANY[index].section == "system"]
    assert places(*MANY, rules=OPENAI, known=[*in_front, 5]) == sorted({*new, 5})


def test_too_short_a_request_is_left_as_it_is():
    made = planned(STABLE, SAID, but(SAID, cacheable=False), rules=OPENAI, least=1000)
    assert made == NO_MARKERS


# --- any request

SPOTS = st.builds(
    Spot,
    st.just("system"),
    st.integers(0, 30),
    st.integers(1, 30),
    st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.9]),
    st.booleans(),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([True, True, False]),
)
FRONTS = st.lists(SPOTS, max_size=8)


@given(front=FRONTS, said=FRONTS, least=st.integers(0, 60), long=st.booleans(), ended=st.integers(0, 9))
def test_any_plan_keeps_the_vendors_rules(front: list[Spot], said: list[Spot], least: int, long: bool, ended: int):
    spots = [*front, *[ENDED if at == ended else but(spot, section="messages") for at, spot in enumerate(said)]]
    made = planned(*spots, rules=MarkerRules(long_stable=long), least=least)
    plan = [*made.ahead, *[Marker(len(front) + spot) for spot in made.behind]]
    assert len(plan) <= 4
    assert [marker.index for marker in plan] == sorted({marker.index for marker in plan})
    for marker in plan:
        assert spots[marker.index].markable
        assert all(spot.cacheable for spot in spots[: marker.index + 1])
        assert sum(spot.tokens for spot in spots[: marker.index + 1]) >= least
    assert [marker.long for marker in plan] == sorted([marker.long for marker in plan], reverse=True)


def expected(front: Front, marked: Sequence[int]) -> float:
    """What a later request reads on average, if each spot fails by its odds and the end is marked as well."""
    prefix, stays, total = [0.0], 1.0, 0.0
    for index, spot in enumerate(front.spots):
        total += spot.odds * stays * prefix[-1]
        stays *= 1.0 - spot.odds
        upto = sum(one.tokens for one in front.spots[: index + 1])
        prefix.append(upto if index in marked else prefix[-1])
    return total + stays * SHED_ODDS * prefix[-1]


@given(front=st.lists(SPOTS.map(lambda spot: but(spot, cacheable=True, markable=True)), min_size=1, max_size=7))
def test_no_other_places_in_front_are_expected_to_be_read_more(front: list[Spot]):
    made = front_of(front)
    chosen = [index for index in places(*front, SAID) if index < len(front)]
    best = max(expected(made, tried) for tried in combinations(range(len(front)), min(3, len(front))))
    noticed = sum(spot.tokens for spot in front) * 0.015 * len(front)
    assert expected(made, chosen) >= best - noticed
