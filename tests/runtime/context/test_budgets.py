"""What a budget is in tokens, and what an estimate is worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windowkit import Held, budgets, stage

from shoal.blueprints import Region
from shoal.providers import Message, Text, ToolCall
from shoal.runtime.context import Calibration, LayoutChanged, Limits, estimate, estimate_text, resolve


@pytest.mark.parametrize(
    ("region", "tokens"),
    [
        pytest.param(Region("r"), 5_000, id="neither budget nor max_tokens is 5,000 tokens"),
        pytest.param(Region("r", max_tokens=300), 300, id="max_tokens alone is the budget"),
        pytest.param(Region("r", budget=0.2), 2_000, id="a budget is a share of the window"),
        pytest.param(Region("r", budget=0.2, max_tokens=300), 300, id="beside a budget max_tokens caps it"),
        pytest.param(Region("r", budget=0.2, max_tokens=3_000), 2_000, id="a cap above the share does nothing"),
        pytest.param(Region("r", budget=0.01, min_tokens=400), 400, id="min_tokens is a floor"),
        pytest.param(Region("r", budget=0.01, max_tokens=50, min_tokens=400), 400, id="the floor is applied last"),
        pytest.param(Region("r", max_tokens=300, min_tokens=400), 400, id="the floor lifts an absolute budget"),
        pytest.param(Region("r", min_tokens=400), 5_000, id="a floor below the default does nothing"),
        pytest.param(Region("r", budget=0.00019), 1, id="a share is rounded down"),
        pytest.param(Region("r", budget=0.57), 5_700, id="a float that is a hair too small is not"),
        pytest.param(Region("r", budget=1.0), 10_000, id="all of the window"),
    ],
)
def test_a_budget_is_resolved_in_this_order(region: Region, tokens: int):
    assert resolve(region, 10_000).budget == tokens


@pytest.mark.parametrize(
    ("keys", "tokens"),
    [
        pytest.param({}, 800, id="80 % of the resolved budget by default"),
        pytest.param({"compact_at": 0.5}, 500, id="compact_at is a share of it"),
        pytest.param({"threshold_tokens": 300}, 300, id="threshold_tokens is absolute"),
        pytest.param({"threshold_tokens": 900}, 800, id="the lower of both counts: the share"),
        pytest.param({"compact_at": 0.5, "threshold_tokens": 400}, 400, id="the lower of both counts: the threshold"),
    ],
)
def test_a_summary_is_ordered_at(keys: dict[str, float], tokens: int):
    region = Region("r", kind="compacting", budget=0.1, **keys)  # type: ignore[arg-type]
    assert resolve(region, 10_000).compact_at == tokens


def test_shed_to_is_a_share_of_the_resolved_budget():
    assert resolve(Region("r", budget=0.1, shed_to=0.75), 10_000).shed_to == 750


def test_shares_may_add_up_past_the_window():
    held = Held(Region("a", budget=0.9), Region("b", budget=0.9), window_tokens=1_000)
    assert budgets(held.window)["a"] + budgets(held.window)["b"] == 1_800


def test_a_change_of_model_resolves_every_budget_anew():
    held = Held(Region("a", budget=0.5), Region("b", max_tokens=70), window_tokens=1_000)
    changes = held.enter("work", 400)
    assert budgets(held.window)["a"] == 200
    assert budgets(held.window)["b"] == 70
    [change] = changes
    assert isinstance(change, LayoutChanged)
    assert (change.model, change.window_tokens) == ("model", 400)
    assert ("a", 500, 200) in [(c.region, c.before, c.after) for c in change.changes]
    assert "b" not in [c.region for c in change.changes]


def test_entering_a_stage_with_the_same_budgets_reports_nothing():
    held = Held(Region("a", budget=0.5), stages=(stage("one"), stage("two")))
    assert held.enter("two") == ()


def test_a_hidden_region_keeps_its_budget_on_another_model():
    held = Held(Region("a", budget=0.5), window_tokens=1_000, stages=(stage("one"), stage("two", hide=("a",))))
    held.write("a", 400)
    held.enter("two", 600)
    assert held.state("a").limits.budget == 300
    assert held.tokens("a") == 0, "its budget still holds"


# --- estimates


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("é", 1), ("ééé", 2), ("日本語", 3), ('"\\\n', 1)],
)
def test_a_text_costs_its_bytes_over_four_rounded_up(text: str, tokens: int):
    assert estimate_text(Text.of(text)) == tokens


@given(st.text())
def test_an_estimate_counts_plain_bytes_whatever_has_to_be_escaped(text: str):
    plain = str(Text.of(text))
    assert estimate_text(Text.of(text)) == -(-len(plain.encode()) // 4)


def test_a_turn_costs_its_text_and_what_its_calls_say():
    message = Message("assistant", (Text.of("abcd"),), (ToolCall("c", "look", Text.of('{"a": 1}')),))
    assert estimate(message) == (4 + 8 + 4) / 4


# --- correction


def test_the_first_measurement_counts_in_full():
    assert Calibration().observed(1_000, 200, 1_700) == Calibration(1.5, 1)


def test_later_measurements_count_a_third():
    once = Calibration().observed(1_000, 0, 2_000)
    assert once.observed(1_000, 0, 1_000).ratio == pytest.approx(1.7)


def test_a_request_of_nearly_nothing_teaches_nothing():
    known = Calibration(1.3, 4)
    assert known.observed(99, 10, 5_000) is known


@pytest.mark.parametrize(("measured", "ratio"), [(100, 0.25), (9_000, 4.0)])
def test_a_measurement_that_cannot_be_true_moves_the_ratio_only_so_far(measured: int, ratio: float):
    assert Calibration().observed(1_000, 200, measured).ratio == ratio


def test_a_correction_multiplies_the_regions_and_adds_what_is_in_none():
    assert Calibration(1.5, 1).corrected(1_000, 200) == 1_700


def test_limits_are_compared_in_estimated_tokens():
    assert Limits(100, 50, 80).estimated(1.25) == Limits(80, 40, 64)
    limits = Limits(100, 50, 80)
    assert limits.estimated(1.0) is limits


def test_a_correction_evicts_nothing_by_itself_and_the_next_write_does():
    held = Held(Region("notes", max_tokens=100))
    for _ in range(4):
        held.write("notes", 24)
    held.calibrate(1.5)
    assert len(held.entries("notes")) == 4
    held.write("notes", 10)
    assert held.tokens("notes") * 1.5 <= 50


def test_what_is_shown_is_corrected_by_the_same_number():
    held = Held(Region("notes", max_tokens=100))
    held.write("notes", 40)
    held.calibrate(1.5)
    assert held.window.fill()["notes"] == (60, 100)
