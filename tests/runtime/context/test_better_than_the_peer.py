"""Faults of the runtime that this file format comes from, each with the test that fails where it comes back.

They are numbered for good; those that are not about the window are tested where they belong.
"""

from __future__ import annotations

import pytest
from windowkit import Held, kinds, stage, text_of

from shoal.blueprints import Region
from shoal.runtime.context import Calibration, Order, pointer

CODE = Region("code", kind="compacting", max_tokens=100)
HISTORY = Region("history", kind="compact_history", max_tokens=60, source_region="code")


def test_1_no_summary_is_lost_without_a_paired_history():
    held = Held(CODE)
    held.write("code", 40)
    held.write("code", 40)
    held.summarise("code", (1,), "what it was")
    assert held.texts("code") == ["what it was", text_of(40)]


def test_1_no_summary_is_lost_to_a_history_that_is_full():
    held = Held(CODE, HISTORY)
    held.write("history", 55)
    held.write("code", 80)
    held.summarise("code", (1,), text_of(10, "s"))
    assert text_of(10, "s") in held.texts("code") + held.texts("history")


@pytest.mark.parametrize("reply", ["", "   \n"])
def test_1_a_blank_summary_takes_nothing_away(reply: str):
    held = Held(CODE, HISTORY)
    held.write("code", 80)
    held.summarise("code", (1,), reply)
    assert held.texts("code") == [text_of(80)]


def test_1_a_lane_that_fails_keeps_the_entries_until_their_room_is_needed():
    held = Held(CODE)
    for _ in range(3):
        held.write("code", 30)
    assert len(held.entries("code")) == 3
    held.write("code", 20)
    assert held.ids("code") == [3, 4]


@pytest.mark.parametrize("kind", ["temporary", "clearable", "compacting", "sliding_window", "hashmap"])
def test_2_a_write_that_is_refused_never_empties_its_region_first(kind: str):
    held = Held(Region("r", kind=kind, max_tokens=100))  # type: ignore[arg-type]
    held.write("r", 40, key="k")
    for tool in ("context_write", "context_append"):
        assert held.call(tool, region="r", content=text_of(101), key="k").is_error
    assert held.texts("r") == [text_of(40)]


def test_3_a_key_of_a_hashmap_cannot_grow_past_the_budget():
    held = Held(Region("facts", kind="hashmap", max_tokens=100))
    for key in "ab":
        held.write("facts", 40, key=key)
    held.call("context_append", region="facts", content=text_of(50), key="b")
    assert held.tokens("facts") <= 100
    assert [entry.key for entry in held.entries("facts")] == ["b"]


def test_3_a_hashmap_that_rejects_refuses_growth_instead():
    held = Held(Region("facts", kind="hashmap", max_tokens=100, admission="reject"))
    for key in "ab":
        held.write("facts", 40, key=key)
    assert held.call("context_append", region="facts", content=text_of(50), key="b").is_error
    assert held.tokens("facts") == 80


def test_4_the_strategy_compact_folds_the_oldest_groups_into_a_summary():
    held = Held(Region("conversation", kind="sliding_window", max_items=4, strategy="compact", compact_count=2))
    orders = [order for n in range(7) for order in held.say(f"message {n}").orders]
    assert orders == [Order("conversation", (1, 2))]
    held.summarise("conversation", orders[0].entry_ids, "0, 1")
    assert [text for _, text in held.talk()] == ["0, 1", *(f"message {n}" for n in range(2, 7))]


def test_5_a_window_of_conversation_alone_can_be_relieved():
    held = Held(Region("conversation", kind="sliding_window", max_items=None))
    for _ in range(10):
        held.say(100)
    changes, orders = held.press(200)
    assert (kinds(changes), orders) == (["EntriesEvicted"], ())
    assert held.tokens("conversation") <= 800


def test_5_a_compacting_region_below_its_trigger_gives_way_too():
    held = Held(CODE)
    held.write("code", 20)
    held.write("code", 20)
    _, orders = held.press(10)
    assert orders == (Order("code", (1,)),)
    changes, _ = held.press(10, waited=orders)
    assert kinds(changes) == ["EntriesEvicted"]


def test_5_what_cannot_be_relieved_is_seen_from_what_comes_back():
    held = Held(Region("rules", kind="pinned"))
    held.write("rules", 100)
    assert held.press(10) == ((), ())


def test_6_one_corrected_count_decides_trigger_and_target():
    held = Held(Region("notes", max_tokens=100, shed_to=0.5))
    held.calibrate(2.0)
    for _ in range(5):
        held.write("notes", 10)
    assert len(held.entries("notes")) == 5
    held.write("notes", 10)
    assert held.tokens("notes") * 2 <= 50
    assert held.window.fill()["notes"] == (held.tokens("notes") * 2, 100)


def test_7_chunks_keep_their_identity_when_the_head_is_evicted():
    held = Held(Region("files", volatility="grows", max_tokens=9_000))
    for n in range(6):
        held.write("files", text_of(1_100, str(n)))
    before = [chunk.number for chunk in held.state("files").chunks], held.blocks("files")
    held.press(1)
    assert [chunk.number for chunk in held.state("files").chunks] == before[0][2:]
    assert held.blocks("files") == before[1][2:]


def test_8_a_shrinking_layout_keeps_the_newest_entries():
    held = Held(
        Region("notes", max_tokens=100), stages=(stage("one"), stage("two", regions=[Region("notes", max_tokens=30)]))
    )
    for n in range(5):
        held.write("notes", text_of(10, str(n)))
    held.enter("two")
    assert held.texts("notes") == [text_of(10, "4")]


def test_10_everything_that_a_window_knows_survives_a_restart():
    regions = [CODE, HISTORY, Region("todos", kind="checklist"), Region("notes", volatility="grows", max_tokens=9_000)]
    held = Held(*regions, stages=(stage("one", system_prompt="First."), stage("two", hide=("notes",))))
    held.write("code", 40)
    held.write("code", 40)
    held.summarise("code", (1,), "short")
    held.call("todo_add", region="todos", item="work")
    for _ in range(3):
        held.write("notes", 2_100, key="k")
    held.call("context_delete", region="notes", id=2)
    held.call("context_list", region="notes")
    held.calibrate(1.25)
    held.enter("two", 5_000)
    assert held.replayed().dump() == held.window.dump()
    assert held.entries("code")[0].created > 0


def test_10_a_calibration_goes_on_where_it_was():
    once = Calibration().observed(1_000, 0, 1_500)
    assert Calibration(once.ratio, once.seen).observed(1_000, 0, 1_000) == once.observed(1_000, 0, 1_000)


def test_13_a_routed_result_leaves_one_short_entry_in_the_conversation():
    held = Held(Region("notes", max_tokens=4_000))
    held.turn(calls=["c"])
    plan = held.write("notes", 3_000, writer="routing")
    held.answer("c", pointer(held.window.layout, "notes", plan, reads_regions=True))
    assert [role for role, _ in held.talk()] == ["assistant", "tool"]
    assert held.entries("conversation")[1].tokens < 30


def test_14_deleting_by_index_never_splits_a_turn():
    held = Held(Region("notes"))
    held.turn(5, calls=["a", "b"])
    held.answer("a", 5)
    held.answer("b", 5)
    held.say(5)
    held.call("context_delete", region="conversation", index=2)
    assert [role for role, _ in held.talk()] == ["user"]


@pytest.mark.parametrize("strategy", ["per_item", "bulk", "compact"])
def test_15_making_room_for_a_result_never_evicts_the_call_that_it_answers(strategy: str):
    keys = {"max_items": 1, "overflow": 1, "compact_count": 1, "strategy": strategy}
    held = Held(Region("conversation", kind="sliding_window", max_tokens=100, **keys))  # type: ignore[arg-type]
    held.turn(60, calls=["a", "b", "c"])
    for call_id in "abc":
        held.answer(call_id, 40)
    assert [role for role, _ in held.talk()] == ["assistant", "tool", "tool", "tool"]


def test_17_a_lane_that_is_down_never_holds_a_write_for_ever():
    held = Held(CODE)
    held.write("code", 90)
    assert held.write("code", 30, may_wait=True).outcome == "wait"
    assert held.write("code", 30, may_wait=False, in_flight=True).outcome == "written"


def test_18_a_region_over_its_budget_sheds_in_steps():
    held = Held(Region("notes", max_tokens=100))
    sheds = [len(held.write("notes", 10).changes) > 1 for _ in range(40)]
    assert sum(sheds) == 5


def test_18_the_conversation_that_every_run_has_anyway_waits_and_drops_in_bulk():
    held = Held(Region("notes"))
    sheds = [len(held.say(5).changes) > 1 for _ in range(100)]
    assert (sheds.index(True), sum(sheds)) == (60, 4)
