"""Cutting a text to what fits, with a marker; sharing room among results; fitting what a seed gave."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windowkit import Held, block, text_of

from shoal.blueprints import Region
from shoal.providers import Message, Text
from shoal.runtime.context import SeedBlock, Shelf, cut_to, estimate, estimate_text, fit_blocks, materialise
from shoal.runtime.context._cut import SMALLEST_SHARE, fair_shares


def said(text: str) -> Message:
    return Message("user", (Text.of(text),))


@given(st.text(min_size=200), st.integers(12, 60))
def test_what_is_cut_costs_at_most_the_limit_marker_included(text: str, most: int):
    whole = said(text)
    if estimate(whole) > most:
        assert cut_to(whole, estimate(whole), most).tokens <= most


@given(st.text(min_size=1), st.integers(-5, 60))
def test_what_is_cut_is_the_front_of_the_text_and_a_marker(text: str, most: int):
    whole = said(text)
    cut = cut_to(whole, estimate(whole), most)
    plain = str(whole.texts[0])
    assert cut.message.text == plain[: cut.chars] + str(cut.marker)
    assert str(cut.marker) == f"\n[cut: about {max(0, most)} of {estimate(whole)} tokens]"


@given(st.text(alphabet="aé日😀", min_size=40, max_size=200), st.integers(12, 40))
def test_a_cut_never_splits_a_character_and_wastes_less_than_one(text: str, most: int):
    whole = said(text)
    cut = cut_to(whole, estimate(whole), most)
    room = (most - estimate_text(cut.marker)) * 4
    assert room - 4 < len(text[: cut.chars].encode()) <= room or cut.chars == len(text)


@given(st.text(), st.one_of(st.none(), st.integers(0, 30)), st.one_of(st.none(), st.text()))
def test_a_cut_entry_is_made_again_from_its_source(text: str, cut: int | None, behind: str | None):
    made = materialise(said(text), cut, None if behind is None else Text.of(behind))
    plain = str(Text.of(text))
    kept = plain if cut is None else plain[:cut]
    assert made.text == kept + ("" if behind is None else str(Text.of(behind)))


def test_a_whole_entry_is_its_source_itself():
    whole = said("hello")
    assert materialise(whole, None, None) is whole


# --- shares


def test_room_is_shared_equally_among_results_that_need_it():
    assert fair_shares([1_000, 1_000, 1_000], 1_200) == (400, 400, 400)


def test_what_one_result_does_not_need_goes_to_the_others():
    assert fair_shares([1_000, 100, 1_000], 1_100) == (500, 100, 500)


def test_each_result_keeps_a_smallest_share_whatever_is_left():
    assert fair_shares([5_000, 5_000], 0) == (SMALLEST_SHARE, SMALLEST_SHARE)


def test_a_result_below_the_smallest_share_stays_whole():
    assert fair_shares([5_000, 20], 0) == (SMALLEST_SHARE, 20)


@given(st.lists(st.integers(0, 5_000), max_size=8), st.integers(0, 9_000))
def test_shares_fill_the_room_and_pass_it_only_for_the_smallest_share(costs: list[int], room: int):
    shares = fair_shares(costs, room)
    assert all(share <= cost for share, cost in zip(shares, costs, strict=True))
    assert all(share >= min(cost, SMALLEST_SHARE) for share, cost in zip(shares, costs, strict=True))
    assert sum(shares) <= max(room, len(costs) * SMALLEST_SHARE)
    assert shares == tuple(costs) or sum(shares) > room - len(costs)


def test_results_that_fit_beside_their_turn_stay_whole():
    held = Held(Region("conversation", kind="sliding_window", max_tokens=1_000))
    held.turn(100, calls=["a", "b"])
    assert held.window.shares("conversation", [400, 480]) == (400, 480)


def test_results_that_would_fit_alone_are_shared_where_their_turn_takes_the_room():
    held = Held(Region("conversation", kind="sliding_window", max_tokens=1_000))
    held.turn(100, calls=["a", "b"])
    shares = held.window.shares("conversation", [400, 590])
    assert shares[0] == 400
    assert held.tokens("conversation") + sum(shares) == 1_000


def test_results_of_a_turn_that_is_too_big_get_equal_shares_of_what_is_left():
    held = Held(Region("conversation", kind="sliding_window", max_tokens=1_000))
    held.turn(100, calls=["a", "b"])
    turn = held.tokens("conversation")
    assert held.window.shares("conversation", [2_000, 2_000]) == ((1_000 - turn) // 2, (1_000 - turn + 1) // 2)


def test_results_for_an_empty_conversation_share_its_budget():
    held = Held(Region("conversation", kind="sliding_window", max_tokens=1_000))
    assert held.window.shares("conversation", [2_000, 2_000]) == (500, 500)


# --- blocks of seeds


ANY = Region("r")


def fitted(
    blocks: Sequence[SeedBlock], room_tokens: int, region: Region = ANY
) -> tuple[tuple[SeedBlock, ...], tuple[str, ...]]:
    return fit_blocks(blocks, room_tokens, region, Shelf())


def test_blocks_that_fit_stay_as_they_are():
    blocks = (block("a", text_of(10)), block("b", text_of(10)))
    assert fitted(blocks, 100) == (blocks, ())


def test_a_block_past_the_room_is_cut_with_a_marker_and_noted():
    fitting, notes = fitted([block("a", text_of(10)), block("b", text_of(100))], 60)
    assert [one.name for one in fitting] == ["a", "b"]
    assert str(fitting[1].text).endswith("tokens]")
    assert sum(one.tokens for one in fitting) <= 60
    assert notes == (f"b: {fitting[1].tokens} of 103 tokens fit",)


def test_a_block_for_which_nothing_is_left_is_dropped_and_noted():
    fitting, notes = fitted([block("a", text_of(10)), block("b", text_of(100))], 14)
    assert [one.name for one in fitting] == ["a"]
    assert notes == ("b: 0 of 103 tokens fit",)


def test_a_seed_without_a_name_is_noted_as_the_seed():
    _, notes = fitted([block("", text_of(100))], 5)
    assert notes[0].startswith("seed: 0 of ")


def test_a_block_that_failed_is_left_out():
    assert fitted([block("a", "no", ok=False)], 100) == ((), ())


@pytest.mark.parametrize("names", [("a", "a", "a"), ("a", "a (2)", "a"), ("", "", "")])
def test_each_block_gets_a_name_of_its_own(names: tuple[str, ...]):
    fitting, _ = fitted([block(name, "x") for name in names], 100)
    assert len({one.name for one in fitting}) == 3
    assert fitting[0].name == names[0]
