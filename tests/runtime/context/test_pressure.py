"""Window pressure and smaller layouts: who gives way, in which order, and how far."""

from __future__ import annotations

import pytest
from windowkit import Held, kinds, stage, text_of

from shoal.blueprints import Region
from shoal.runtime.context import BudgetChange, EntriesEvicted, LayoutChanged, Order

EVERY = (
    Region("hash", kind="hashmap"),
    Region("talk", kind="sliding_window"),
    Region("code", kind="compacting"),
    Region("temp"),
    Region("scratch", kind="clearable"),
    Region("rules", kind="pinned"),
    Region("todos", kind="checklist"),
    Region("history", kind="compact_history", source_region="x"),
    Region("sources", admission="reject"),
)


def filled() -> Held:
    held = Held(*EVERY)
    for name in ("hash", "talk", "code", "temp", "scratch", "rules", "history", "sources"):
        for n in range(4):
            held.write(name, 10, key=f"k{n}")
    held.call("todo_add", region="todos", item="work")
    return held


def regions(changes: object) -> list[str]:
    return [change.region for change in changes]  # type: ignore[attr-defined]


def test_a_clearable_region_goes_first_and_whole():
    held = filled()
    changes, orders = held.press(1)
    assert (regions(changes), orders) == (["scratch"], ())
    assert held.state("scratch").empty


def test_the_cascade_goes_on_until_there_is_room():
    held = filled()
    changes, orders = held.press(41)
    assert (regions(changes), orders) == (["scratch", "temp"], ())
    assert held.tokens("temp") == 20


def test_the_cascade_stops_at_what_has_to_be_summarised_first():
    held = filled()
    changes, orders = held.press(500)
    assert regions(changes) == ["scratch", "temp"]
    assert orders == (Order("code", (1, 2, 3)),)


def test_after_its_summary_came_a_region_is_passed_over_and_the_next_kinds_give_way():
    held = filled()
    _, orders = held.press(500)
    held.summarise("code", (1, 2, 3), "short")
    changes, orders = held.press(500, waited=orders)
    assert (regions(changes), orders) == (["talk", "hash"], ())


def test_after_its_summary_failed_a_region_drops_its_oldest_groups_instead():
    held = filled()
    _, orders = held.press(500)
    changes, orders = held.press(500, waited=orders)
    assert orders == ()
    assert [(c.region, c.reason) for c in changes] == [  # type: ignore[union-attr]
        ("code", "compaction_failed"),
        ("talk", "pressure"),
        ("hash", "pressure"),
    ]
    assert held.ids("code") == [4]


def test_what_may_not_go_never_goes():
    held = filled()
    kept = {name: held.tokens(name) for name in ("rules", "todos", "history", "sources")}
    _, orders = held.press(10_000)
    held.press(10_000, waited=orders)
    assert {name: held.tokens(name) for name in kept} == kept


@pytest.mark.parametrize("name", ["temp", "talk", "code"])
def test_the_newest_group_stays(name: str):
    held = filled()
    _, orders = held.press(10_000)
    held.press(10_000, waited=orders)
    assert held.ids(name) == [4]


def test_a_rolling_region_goes_to_its_share_of_what_it_holds():
    held = Held(Region("temp", max_tokens=1_000, shed_to=0.5))
    for _ in range(10):
        held.write("temp", 10)
    held.press(1)
    assert held.tokens("temp") == 50


def test_a_rolling_region_that_is_full_goes_to_its_share_of_its_budget():
    held = Held(Region("temp", max_tokens=100, shed_to=0.3))
    for _ in range(10):
        held.write("temp", 10)
    held.press(1)
    assert held.tokens("temp") == 30


def test_a_region_that_sheds_just_enough_frees_what_is_wanted():
    held = Held(Region("temp", max_tokens=100, shed_to=1.0))
    for _ in range(10):
        held.write("temp", 10)
    held.press(15)
    assert held.tokens("temp") == 80


def test_hidden_regions_are_not_shed():
    held = Held(Region("temp"), stages=(stage("one"), stage("two", hide=("temp",))))
    held.write("temp", 40)
    held.write("temp", 40)
    held.enter("two")
    assert held.press(500) == ((), ())


def test_regions_of_one_kind_give_way_in_declared_order():
    held = Held(Region("b"), Region("a"))
    for name in ("a", "b"):
        held.write(name, 20)
        held.write(name, 20)
    changes, _ = held.press(30)
    assert regions(changes) == ["b", "a"]


def test_a_compacting_region_of_one_group_has_nothing_to_give():
    held = Held(Region("code", kind="compacting"))
    held.write("code", 40)
    assert held.press(500) == ((), ())


def test_a_summary_that_came_and_the_newest_entry_are_not_summarised_again():
    held = Held(Region("code", kind="compacting"))
    held.write("code", 40)
    held.write("code", 40)
    _, orders = held.press(500)
    held.summarise("code", (1,), "short")
    assert held.press(500, waited=orders) == ((), ())
    assert [entry.kind for entry in held.entries("code")] == ["summary", "text"]


def test_a_failed_summary_of_a_region_over_its_budget_leaves_nothing_that_is_bigger_than_it():
    held = Held(Region("code", kind="compacting", max_tokens=100))
    held.write("code", 30)
    held.write("code", 60)
    held.calibrate(2.0)
    _, orders = held.press(500)
    changes, _ = held.press(500, waited=orders)
    assert kinds(changes) == ["EntriesEvicted"]
    assert held.state("code").empty


# --- a smaller layout


def two_stages(kind: str, before: int, after: int, **keys: object) -> Held:
    small = Region("r", kind=kind, max_tokens=after, source_region="x", **keys)  # type: ignore[arg-type]
    large = Region("r", kind=kind, max_tokens=before, source_region="x", **keys)  # type: ignore[arg-type]
    return Held(large, stages=(stage("one"), stage("two", regions=[small])))


@pytest.mark.parametrize("kind", ["temporary", "compacting", "sliding_window"])
def test_a_shrinking_layout_keeps_the_newest_and_reports_what_it_shed(kind: str):
    held = two_stages(kind, 100, 60)
    for _ in range(9):
        held.write("r", 10)
    changes = held.enter("two")
    assert isinstance(changes[0], EntriesEvicted)
    assert (changes[0].entry_ids, changes[0].reason) == ((1, 2, 3, 4, 5, 6), "layout")
    assert isinstance(changes[1], LayoutChanged)
    assert changes[1].changes == (BudgetChange("r", 100, 60, 60),)
    assert held.ids("r") == [7, 8, 9]


@pytest.mark.parametrize("kind", ["temporary", "compacting", "sliding_window"])
def test_a_layout_that_still_holds_everything_sheds_nothing(kind: str):
    held = two_stages(kind, 100, 60)
    held.write("r", 60)
    assert kinds(held.enter("two")) == ["LayoutChanged"]


@pytest.mark.parametrize("kind", ["pinned", "compact_history", "checklist"])
def test_what_may_not_go_outlives_a_shrinking_layout(kind: str):
    held = two_stages(kind, 100, 20)
    held.write("r", "one\ntwo" + text_of(60), writer="framework")
    assert kinds(held.enter("two")) == ["LayoutChanged"]
    assert not held.state("r").empty


def test_a_region_that_rejects_outlives_a_shrinking_layout():
    held = two_stages("temporary", 100, 20, admission="reject")
    held.write("r", 90)
    assert kinds(held.enter("two")) == ["LayoutChanged"]
    assert held.tokens("r") == 90


def test_a_clearable_region_is_wiped_by_a_layout_too_small_for_it():
    held = two_stages("clearable", 100, 50)
    held.write("r", 30)
    held.write("r", 30)
    held.enter("two")
    assert held.state("r").empty


def test_a_hashmap_gives_its_oldest_keys_to_a_smaller_layout():
    held = two_stages("hashmap", 100, 50)
    for key in "abc":
        held.write("r", 30, key=key)
    held.enter("two")
    assert [entry.key for entry in held.entries("r")] == ["c"]


def test_a_newest_group_that_no_longer_fits_goes_but_a_turn_stays():
    held = two_stages("temporary", 100, 50)
    held.write("r", 80)
    held.enter("two")
    assert held.state("r").empty
    talk = two_stages("sliding_window", 100, 50)
    talk.write("r", 80)
    talk.enter("two")
    assert talk.tokens("r") == 80


def test_a_frozen_chunk_that_holds_the_newest_group_gives_way_group_by_group():
    held = two_stages("temporary", 9_000, 2_000, volatility="grows")
    for _ in range(4):
        held.write("r", 600)
    assert held.state("r").chunks[0].frozen
    held.enter("two")
    assert held.ids("r") == [4]
