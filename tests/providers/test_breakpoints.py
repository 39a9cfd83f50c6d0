"""Where cache markers stand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import block, request, user

from shoal.providers import Block, Text, shipped_profile
from shoal.providers._breakpoints import (
    ANTHROPIC,
    OPENAI,
    Marker,
    MarkerRules,
    Moves,
    Spot,
    plan_breakpoints,
)

PROFILE = replace(shipped_profile("claude-opus-5-5"), min_cacheable_tokens=0)
TOOLS = Spot("tools", 100, volatility="stable")
STABLE = Spot("system", 100, volatility="stable")
FROZEN = Spot("system", 100, volatility="grows", frozen=True)
OPEN = Spot("system", 100, volatility="grows")
REST = Spot("system", 100)
SAID = Spot("messages", 100)
ENDED = Spot("messages", 100, ended=True)


def places(*spots: Spot, rules: MarkerRules = ANTHROPIC) -> list[int]:
    return [marker.index for marker in plan_breakpoints(spots, PROFILE, rules)]


def test_the_stable_end_the_frozen_end_the_system_end_and_the_tip_are_marked():
    assert places(TOOLS, STABLE, FROZEN, OPEN, REST, SAID, SAID) == [1, 2, 4, 6]


def test_places_that_fall_together_take_one_marker():
    assert places(STABLE, SAID) == [0, 1]
    assert places(TOOLS, SAID) == [0, 1]
    assert places(SAID) == [0]


def test_a_model_without_markers_gets_none():
    assert plan_breakpoints([STABLE, SAID], replace(PROFILE, cache="prefix")) == ()


def test_the_end_of_the_request_before_is_marked_where_the_tip_cannot_see_it():
    far = [STABLE, REST, ENDED, *[SAID] * 17]
    assert places(*far) == [0, 1, 19]
    assert places(*far, SAID) == [0, 1, 2, 20]


def test_the_end_of_the_request_before_comes_before_the_stable_end():
    assert places(STABLE, FROZEN, REST, ENDED, *[SAID] * 30) == [1, 2, 3, 33]


def test_stretches_count_for_as_many_positions_as_they_are():
    assert 1 in places(STABLE, ENDED, Spot("messages", 100, positions=18))


def test_without_look_back_the_request_before_is_always_marked():
    assert places(STABLE, REST, ENDED, SAID, rules=OPENAI) == [0, 1, 2, 3]


def test_a_marker_stands_in_front_of_what_has_moved():
    assert places(STABLE, REST, replace_spot(REST, moved=True), SAID) == [0, 1, 2, 3]
    assert places(STABLE, FROZEN, REST, replace_spot(REST, moved=True), SAID) == [1, 2, 3, 4]


def replace_spot(spot: Spot, **changes: bool) -> Spot:
    import msgspec

    return msgspec.structs.replace(spot, **changes)


def test_nothing_is_marked_behind_what_no_cache_holds():
    assert places(STABLE, replace_spot(REST, cacheable=False), SAID) == [0]


def test_a_place_that_takes_no_marker_steps_back_to_the_next_that_does():
    assert places(STABLE, SAID, replace_spot(SAID, markable=False)) == [0, 1]
    assert places(replace_spot(TOOLS, markable=False), SAID) == [1]


def test_a_prefix_under_the_minimum_is_not_marked():
    profile = replace(PROFILE, min_cacheable_tokens=250)
    assert plan_breakpoints([STABLE, REST, SAID, SAID], profile) == (Marker(3),)
    assert plan_breakpoints([STABLE, REST], profile) == ()


def test_the_longer_lifetime_is_the_stable_ends_alone():
    rules = MarkerRules(long_stable=True)
    assert plan_breakpoints([STABLE, REST, SAID], PROFILE, rules) == (Marker(0, long=True), Marker(1), Marker(2))


SPOTS = st.builds(
    Spot,
    st.just("system"),
    st.integers(0, 3),
    st.integers(1, 30),
    st.sampled_from(["stable", "grows", "rewritten"]),
    st.booleans(),
    st.sampled_from([True, True, True, False]),
    st.booleans(),
    st.booleans(),
)


@given(front=st.lists(SPOTS, max_size=8), said=st.lists(SPOTS, max_size=8), least=st.integers(0, 6), long=st.booleans())
def test_any_plan_keeps_the_vendors_rules(front: list[Spot], said: list[Spot], least: int, long: bool):
    import msgspec

    spots = [*front, *[msgspec.structs.replace(spot, section="messages") for spot in said]]
    profile = replace(PROFILE, min_cacheable_tokens=least)
    plan = plan_breakpoints(spots, profile, MarkerRules(long_stable=long))
    assert len(plan) <= 4
    assert [marker.index for marker in plan] == sorted({marker.index for marker in plan})
    for marker in plan:
        assert spots[marker.index].markable
        assert all(spot.cacheable for spot in spots[: marker.index + 1])
        assert sum(spot.tokens for spot in spots[: marker.index + 1]) >= least
    assert [marker.long for marker in plan] == sorted([marker.long for marker in plan], reverse=True)


# --- what has moved


def seen(moves: Moves, *blocks: Block, run_id: str = "r", purpose: str = "stage") -> tuple[bool, ...]:
    return moves.see(request(user("x"), run_id=run_id, purpose=purpose), blocks)


def owned(owner: str, text: str, **settings: object) -> Block:
    return Block(owner, (Text.of(text),), 1, **settings)  # type: ignore[arg-type] # the fields of a block


def test_a_block_that_changed_once_counts_as_moving_from_then_on():
    moves = Moves()
    assert seen(moves, owned("a", "1"), owned("b", "1")) == (False, False)
    assert seen(moves, owned("a", "1"), owned("b", "2")) == (False, True)
    assert seen(moves, owned("a", "1"), owned("b", "2")) == (False, True)


def test_blocks_of_one_owner_are_told_apart():
    moves = Moves()
    seen(moves, owned("a", "1"), owned("a", "2"))
    assert seen(moves, owned("a", "1"), owned("a", "3")) == (False, True)


def test_what_grows_does_not_move():
    moves = Moves()
    seen(moves, owned("a", "1", volatility="grows"))
    assert seen(moves, owned("a", "12", volatility="grows")) == (False,)


def test_a_block_that_was_away_is_remembered():
    moves = Moves()
    seen(moves, owned("a", "1"))
    seen(moves)
    assert seen(moves, owned("a", "2")) == (True,)


@pytest.mark.parametrize(("run_id", "purpose"), [("", "stage"), ("r", "titling"), ("other", "stage")])
def test_only_the_runs_own_stages_are_remembered(run_id: str, purpose: str):
    moves = Moves()
    seen(moves, owned("a", "1"), run_id=run_id, purpose=purpose)
    assert seen(moves, owned("a", "2")) == (False,)


def test_the_run_that_was_seen_least_recently_is_forgotten():
    moves = Moves(max_runs=1)
    seen(moves, owned("a", "1"))
    seen(moves, owned("a", "1"), run_id="other")
    assert seen(moves, owned("a", "2")) == (False,)
    assert repr(moves) == "<Moves of 1 runs>"


def test_a_request_is_outlined_in_stretches_and_its_end_in_elements():
    from providers_parts import assistant, segment

    from shoal.providers import Request
    from shoal.providers._messages import MessagesEncoder

    encoder = MessagesEncoder("anthropic", PROFILE)
    old = [segment(user(f"{n}"), assistant("a"), closed=True) for n in range(5)]
    talk = Request("m", (block("s"),), (*old, segment(user("x"), assistant("y"), user("z"))))
    blocks = list(talk.system)
    plan = encoder._outline(
        talk, encoder.tools(talk.tools), blocks, encoder._conversation.whole(talk.messages, tailed=False)
    )
    assert [spot.positions for spot in plan.spots] == [1, 2, 2, 2, 2, 1, 1, 1, 1, 1]
    assert [index for index, spot in enumerate(plan.spots) if spot.ended] == [7]
