"""`compacting` and `compact_history`: what is ordered, what a summary replaces, and what a failed one costs."""

from __future__ import annotations

import pytest
from windowkit import Held, kinds, stage, text_of

from shoal.blueprints import Region
from shoal.runtime.context import ContextCompacted, EntriesEvicted, Order

CODE = Region("code", kind="compacting", max_tokens=100)
HISTORY = Region("history", kind="compact_history", max_tokens=60, source_region="code")


# --- ordering


def test_reaching_compact_at_orders_a_summary_of_what_was_there_and_the_run_goes_on():
    held = Held(CODE)
    assert held.write("code", 40).orders == ()
    plan = held.write("code", 40)
    assert (plan.outcome, plan.orders) == ("written", (Order("code", (1,)),))


def test_one_token_below_compact_at_orders_nothing():
    held = Held(CODE)
    held.write("code", 40)
    assert held.write("code", 39).orders == ()


def test_threshold_tokens_orders_before_the_share():
    held = Held(Region("code", kind="compacting", max_tokens=100, threshold_tokens=50))
    held.write("code", 20)
    assert held.write("code", 30).orders == (Order("code", (1,)),)


def test_a_first_entry_that_reaches_the_trigger_orders_nothing_for_there_is_nothing_else():
    assert Held(CODE).write("code", 90).orders == ()


def test_a_summary_in_flight_orders_no_second():
    held = Held(CODE)
    held.write("code", 40)
    assert held.write("code", 45, in_flight=True).orders == ()


def test_what_is_replaced_in_the_same_step_is_not_summarised():
    held = Held(CODE)
    held.write("code", 40, key="a")
    held.write("code", 20, key="b")
    assert held.write("code", 70, replaces=(1,)).orders == (Order("code", (2,)),)


def test_a_region_that_rejects_still_orders_at_its_trigger():
    held = Held(Region("code", kind="compacting", max_tokens=100, admission="reject"))
    held.write("code", 40)
    assert held.write("code", 45).orders == (Order("code", (1,)),)


# --- waiting


def test_a_write_that_does_not_fit_waits_for_the_summary_in_flight():
    held = Held(CODE)
    held.write("code", 90)
    plan = held.write("code", 20, in_flight=True, may_wait=True)
    assert (plan.outcome, plan.changes, plan.orders) == ("wait", (), ())


def test_a_write_that_does_not_fit_orders_the_summary_that_it_waits_for():
    held = Held(CODE)
    held.write("code", 90)
    plan = held.write("code", 20, may_wait=True)
    assert (plan.outcome, plan.orders) == ("wait", (Order("code", (1,)),))


def test_a_write_whose_summary_failed_drops_the_oldest_groups_and_names_the_cause():
    held = Held(CODE)
    for _ in range(3):
        held.write("code", 30)
    plan = held.write("code", 20)
    [evicted] = [change for change, _ in plan.changes if isinstance(change, EntriesEvicted)]
    assert (evicted.entry_ids, evicted.reason) == ((1, 2), "compaction_failed")
    assert held.tokens("code") == 50


def test_a_write_whose_summary_came_in_time_finds_room():
    held = Held(CODE)
    held.write("code", 90)
    held.write("code", 20, may_wait=True)
    held.summarise("code", (1,), text_of(10, "s"))
    assert held.write("code", 20).outcome == "written"
    assert held.ids("code") == [2, 3]


def test_a_write_with_nothing_to_wait_for_does_not_wait():
    held = Held(CODE)
    held.write("code", 90)
    assert held.write("code", 95, may_wait=True, replaces=(1,)).outcome == "written"


# --- where a summary lands


def test_a_summary_lands_in_the_paired_history():
    held = Held(CODE, HISTORY)
    held.write("code", 40)
    held.write("code", 40)
    change, orders = held.summarise("code", (1,), "what it was")
    assert isinstance(change, ContextCompacted)
    assert (change.into, change.entry_ids, change.replaces_seq_range, orders) == ("history", (1,), (2, 2), ())
    assert change.bytes_saved == 160 - len("what it was")
    assert held.texts("history") == ["what it was"]
    assert held.ids("code") == [2]
    assert held.entries("history")[0].kind == "summary"


def test_without_a_paired_history_a_summary_stands_at_the_head_of_the_region_itself():
    held = Held(CODE, Region("other", kind="compact_history", source_region="elsewhere"))
    held.write("code", 40)
    held.write("code", 40)
    held.summarise("code", (1,), "what it was")
    assert [entry.kind for entry in held.entries("code")] == ["summary", "text"]
    assert held.texts("other") == []


def test_a_history_that_cannot_take_a_summary_leaves_it_at_the_head_and_has_itself_folded():
    held = Held(CODE, HISTORY)
    for n in range(3):
        held.write("history", 18, key=f"old{n}")
    held.write("code", 60)
    held.write("code", 20)
    change, orders = held.summarise("code", (1,), text_of(10, "s"))
    assert isinstance(change, ContextCompacted)
    assert change.into == "code"
    assert held.entries("code")[0].kind == "summary"
    assert orders == (Order("history", (1, 2)),)


def test_a_history_takes_a_summary_that_fills_it_exactly():
    held = Held(CODE, HISTORY)
    held.write("history", 50)
    held.write("code", 60)
    held.summarise("code", (1,), text_of(10, "s"))
    assert held.tokens("history") == 60


def test_a_history_of_one_summary_is_not_folded():
    held = Held(CODE, HISTORY)
    held.write("history", 55)
    held.write("code", 60)
    assert held.summarise("code", (1,), text_of(10, "s"))[1] == ()


def test_a_hidden_history_still_takes_summaries():
    held = Held(CODE, HISTORY, stages=(stage("one"), stage("two", hide=("history",))))
    held.enter("two")
    held.write("code", 60)
    held.summarise("code", (1,), "short")
    held.enter("one")
    assert held.block("history") == "## history\nshort"


def test_the_summary_of_a_history_stands_at_its_own_head():
    held = Held(CODE, HISTORY)
    for _ in range(3):
        held.write("history", 18)
    held.summarise("history", (1, 2), text_of(5, "s"))
    assert held.ids("history") == [4, 3]


# --- what changes nothing


@pytest.mark.parametrize("summary", ["", " \n\t ", text_of(40), text_of(41)])
def test_a_summary_that_is_blank_or_no_smaller_changes_nothing(summary: str):
    held = Held(CODE, HISTORY)
    held.write("code", 40)
    before = held.window.dump()
    assert held.summarise("code", (1,), summary) == (None, ())
    assert held.window.dump() == before


def test_a_summary_of_entries_that_are_gone_changes_nothing():
    held = Held(CODE)
    held.write("code", 40)
    held.call("context_delete", region="code", oldest=1)
    assert held.summarise("code", (1,), "late") == (None, ())


def test_a_late_summary_stands_for_the_entries_that_are_left():
    held = Held(CODE)
    for _ in range(3):
        held.write("code", 30)
    held.call("context_delete", region="code", id=1)
    change, _ = held.summarise("code", (1, 2), "late")
    assert isinstance(change, ContextCompacted)
    assert change.entry_ids == (2,)


def test_a_summary_takes_whole_turns_only():
    held = Held(Region("conversation", kind="sliding_window"))
    held.say(40)
    held.turn(40, calls=["a"])
    ids = tuple(held.ids("conversation"))
    held.answer("a", 40)
    held.summarise("conversation", ids, "short")
    assert [role for role, _ in held.talk()] == ["user", "assistant", "tool"]


def test_a_summary_never_takes_a_turn_that_is_being_answered():
    held = Held(Region("conversation", kind="sliding_window"))
    held.say(40)
    held.turn(40, calls=["a"])
    held.summarise("conversation", held.ids("conversation"), "short")
    held.answer("a", 40)
    assert [role for role, _ in held.talk()] == ["user", "assistant", "tool"]


# --- compact_history, written by hand


def test_a_history_that_is_full_has_its_oldest_half_folded_and_the_write_waits():
    held = Held(HISTORY)
    for _ in range(4):
        held.write("history", 15)
    plan = held.write("history", 15, may_wait=True)
    assert (plan.outcome, plan.orders) == ("wait", (Order("history", (1, 2)),))


def test_a_write_into_a_full_history_that_cannot_wait_is_refused_and_orders_all_the_same():
    held = Held(HISTORY)
    for _ in range(4):
        held.write("history", 15)
    plan = held.write("history", 15)
    assert (plan.outcome, plan.orders) == ("refused", (Order("history", (1, 2)),))


def test_a_write_waits_for_a_fold_in_flight_without_ordering_another():
    held = Held(HISTORY)
    held.write("history", 50)
    plan = held.write("history", 15, may_wait=True, in_flight=True)
    assert (plan.outcome, plan.orders) == ("wait", ())


def test_a_history_that_cannot_be_folded_refuses_at_once():
    held = Held(HISTORY)
    held.write("history", 50)
    assert held.write("history", 15, may_wait=True).outcome == "refused"


def test_a_history_that_rejects_is_never_folded_to_admit_a_write():
    held = Held(Region("history", kind="compact_history", max_tokens=60, source_region="code", admission="reject"))
    for _ in range(4):
        held.write("history", 15)
    plan = held.write("history", 15, may_wait=True)
    assert (plan.outcome, plan.orders) == ("refused", ())


def test_a_history_takes_what_fits():
    held = Held(HISTORY)
    assert kinds(change for change, _ in held.write("history", 60).changes) == ["EntryWritten"]
