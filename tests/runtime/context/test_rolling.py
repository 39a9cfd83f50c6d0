"""`temporary`, `sliding_window`, `clearable`, `pinned`: what a write that does not fit costs."""

from __future__ import annotations

import pytest
from windowkit import Held, kinds, text_of

from shoal.blueprints import Region
from shoal.providers import Message, Text
from shoal.runtime.context import Draft, EntriesEvicted, EntryWritten, Plan, estimate


def evictions(plan: Plan) -> list[tuple[tuple[int, ...], int, str]]:
    return [(c.entry_ids, c.tokens, c.reason) for c, _ in plan.changes if isinstance(c, EntriesEvicted)]


# --- temporary


def test_temporary_is_the_default_kind():
    held = Held(Region("notes", max_tokens=10))
    assert held.state("notes").region.kind == "temporary"


def test_a_write_that_fills_a_temporary_region_exactly_costs_nothing():
    held = Held(Region("notes", max_tokens=100))
    held.write("notes", 60)
    assert kinds(change for change, _ in held.write("notes", 40).changes) == ["EntryWritten"]
    assert held.tokens("notes") == 100


def test_one_token_past_its_budget_a_temporary_region_sheds_to_half_in_one_step():
    held = Held(Region("notes", max_tokens=100))
    for _ in range(10):
        held.write("notes", 10)
    plan = held.write("notes", 1)
    assert evictions(plan) == [((1, 2, 3, 4, 5, 6), 60, "budget")]
    assert held.ids("notes") == [7, 8, 9, 10, 11]
    assert held.tokens("notes") == 41


@pytest.mark.parametrize(("shed_to", "left"), [(1.0, 91), (0.75, 71), (0.25, 21), (0.1, 1)])
def test_shed_to_says_how_far(shed_to: float, left: int):
    held = Held(Region("notes", max_tokens=100, shed_to=shed_to))
    for _ in range(10):
        held.write("notes", 10)
    held.write("notes", 1)
    assert held.tokens("notes") == left


def test_a_new_entry_that_fills_the_region_takes_all_of_it():
    held = Held(Region("notes", max_tokens=100))
    held.write("notes", 30)
    held.write("notes", 100)
    assert held.ids("notes") == [2]


@pytest.mark.parametrize(
    "kind", ["temporary", "pinned", "clearable", "compacting", "compact_history", "sliding_window"]
)
def test_an_entry_bigger_than_its_region_is_refused_and_empties_nothing(kind: str):
    held = Held(Region("notes", kind=kind, max_tokens=100, source_region="x"))  # type: ignore[arg-type]
    held.write("notes", 30)
    plan = held.write("notes", 101)
    assert (plan.outcome, plan.changes, plan.over_tokens) == ("refused", (), 1)
    assert plan.refusal == "`notes` holds 100 tokens at all, and this is 101. Write 1 tokens less."
    assert held.tokens("notes") == 30


def test_tool_routing_is_cut_to_the_region_with_a_marker_instead():
    held = Held(Region("notes", max_tokens=100))
    plan = held.write("notes", 400, writer="routing")
    assert plan.outcome == "written"
    assert plan.cut
    assert plan.tokens <= 100
    assert held.texts("notes")[0].endswith("\n[cut: about 100 of 400 tokens]")


def test_tool_routing_into_a_region_too_small_for_a_marker_is_refused_with_its_own_size():
    held = Held(Region("notes", max_tokens=3))
    plan = held.write("notes", 400, writer="routing")
    assert plan.why == "`notes` holds 3 tokens at all, and this is 400"


def test_a_ceiling_cuts_below_what_the_region_would_hold():
    held = Held(Region("notes", max_tokens=100))
    plan = held.write("notes", 80, writer="routing", most_tokens=40)
    assert plan.tokens <= 40 < plan.of_tokens == 80


def test_a_text_that_is_shorter_than_its_marker_would_be_stays_whole():
    held = Held(Region("notes", max_tokens=100))
    plan = held.write("notes", 6, writer="routing", most_tokens=5)
    assert (plan.cut, plan.tokens, held.texts("notes")) == (False, 6, [text_of(6)])


def test_a_ceiling_that_is_not_reached_cuts_nothing():
    held = Held(Region("notes", max_tokens=100))
    assert not held.write("notes", 40, writer="routing", most_tokens=40).cut


def test_what_is_cut_twice_is_made_again_as_it_was_written():
    held = Held(Region("notes", max_tokens=60))
    content, note = Message("user", (Text.of(text_of(25)),)), Text.of("\n" + "[the end] " * 12)
    said = Message("user", (*content.texts, note))
    draft = Draft("text", said, estimate(said), held.source(content), text=note, writer="routing")
    held.change(held.window.plan_write("notes", draft, most_tokens=45).changes)
    assert "[the end]" in held.texts("notes")[0]
    assert held.replayed().dump() == held.window.dump()


def test_what_stands_in_no_event_stands_in_the_change_itself():
    held = Held(Region("notes", max_tokens=60))
    plan = held.write("notes", "hello", sourced=False)
    [(change, _)] = plan.changes
    assert isinstance(change, EntryWritten)
    assert (change.source, str(change.text)) == (0, "hello")
    assert held.replayed().dump() == held.window.dump()


# --- pinned


def test_a_pinned_region_refuses_what_does_not_fit_and_tells_the_writer_what_it_holds():
    held = Held(Region("rules", kind="pinned", max_tokens=100))
    held.write("rules", 60, key="first")
    held.write("rules", 30)
    plan = held.write("rules", 11)
    assert plan.outcome == "refused"
    assert plan.why == (
        "`rules` is full: 90 of 100 tokens, and this needs 11, which is 1 too many. "
        "It holds: id 1 key 'first' (60), id 2 (30)"
    )
    assert plan.remedy == "Release at least 1 tokens with `context_delete` first."
    assert held.tokens("rules") == 90


def test_a_refusal_names_the_first_entries_and_counts_the_rest():
    held = Held(Region("rules", kind="pinned", max_tokens=100))
    for _ in range(20):
        held.write("rules", 5)
    assert held.write("rules", 1).why.endswith("id 11 (5), id 12 (5) and 8 more")


def test_a_pinned_region_takes_what_fits_exactly():
    held = Held(Region("rules", kind="pinned", max_tokens=100))
    held.write("rules", 60)
    assert held.write("rules", 40).outcome == "written"


def test_refusals_are_counted_in_corrected_tokens():
    held = Held(Region("rules", kind="pinned", max_tokens=100))
    held.write("rules", 30)
    held.calibrate(2.0)
    assert held.write("rules", 25).why.startswith(
        "`rules` is full: 60 of 100 tokens, and this needs 50, which is 10 too"
    )
    assert held.write("rules", 60).why == "`rules` holds 100 tokens at all, and this is 120"


# --- clearable


def test_a_clearable_region_is_wiped_whole_for_a_write_that_does_not_fit():
    held = Held(Region("scratch", kind="clearable", max_tokens=100))
    for _ in range(4):
        held.write("scratch", 24)
    plan = held.write("scratch", 5)
    assert evictions(plan) == [((1, 2, 3, 4), 96, "budget")]
    assert held.ids("scratch") == [5]


def test_a_clearable_region_keeps_not_even_a_word():
    held = Held(Region("scratch", kind="clearable", max_tokens=100))
    held.write("scratch", 99)
    held.write("scratch", 1)
    held.write("scratch", 5)
    assert held.ids("scratch") == [3]


def test_a_clearable_region_that_has_room_keeps_what_it_holds():
    held = Held(Region("scratch", kind="clearable", max_tokens=100))
    held.write("scratch", 50)
    held.write("scratch", 50)
    assert held.ids("scratch") == [1, 2]


# --- admission = "reject"


@pytest.mark.parametrize(
    "kind", ["temporary", "clearable", "compacting", "sliding_window", "compact_history", "pinned"]
)
def test_a_region_that_rejects_drops_nothing_to_admit_a_write(kind: str):
    region = Region("sources", kind=kind, max_tokens=100, admission="reject", source_region="x")  # type: ignore[arg-type]
    held = Held(region)
    held.write("sources", 90, key="rfc")
    plan = held.write("sources", 20, may_wait=True)
    assert (plan.outcome, plan.changes) == ("refused", ())
    assert "which is 10 too many" in plan.why
    assert "id 1 key 'rfc' (90)" in plan.why
    assert "context_delete" in plan.remedy


def test_a_sliding_window_that_rejects_counts_its_entries_too():
    held = Held(Region("sources", kind="sliding_window", max_items=2, admission="reject"))
    held.write("sources", 5)
    held.write("sources", 5)
    plan = held.write("sources", 5)
    assert plan.why == "`sources` is full: it holds 2 entries at most. It holds: id 1 (5), id 2 (5)"
    held.call("context_delete", region="sources", oldest=1)
    assert held.write("sources", 5).outcome == "written"


def test_a_sliding_window_that_rejects_refuses_what_is_bigger_than_itself():
    held = Held(Region("sources", kind="sliding_window", max_tokens=20, admission="reject"))
    assert held.write("sources", 21).why == "`sources` holds 20 tokens at all, and this is 21"


def test_a_sliding_window_that_rejects_has_no_count_without_max_items():
    held = Held(Region("sources", kind="sliding_window", max_items=None, admission="reject"))
    assert [held.write("sources", 5).outcome for _ in range(20)] == ["written"] * 20


# --- sliding_window: the budget


def talk(**keys: object) -> Region:
    return Region("conversation", kind="sliding_window", **{"max_items": None, **keys})  # type: ignore[arg-type]


def test_a_conversation_past_its_budget_sheds_whole_oldest_turns_to_half():
    held = Held(talk(max_tokens=100))
    for n in range(5):
        held.turn(9, calls=[f"c{n}"])
        held.answer(f"c{n}", 9)
    held.say(10)
    assert [role for role, _ in held.talk()] == ["assistant", "tool", "assistant", "tool", "user"]
    assert held.tokens("conversation") == 50


def test_a_result_never_costs_the_call_that_it_answers():
    held = Held(talk(max_tokens=100))
    held.say(20)
    held.turn(40, calls=["a", "b"])
    held.answer("a", 30)
    held.answer("b", 20)
    assert [role for role, _ in held.talk()] == ["assistant", "tool", "tool"]


def test_the_record_of_the_conversation_is_never_refused_and_all_older_goes():
    held = Held(talk(max_tokens=100))
    held.say(40)
    plan = held.say(130)
    assert plan.outcome == "written"
    assert [c.over_budget for c, _ in plan.changes if isinstance(c, EntryWritten)] == [True]
    assert held.ids("conversation") == [2]
    assert held.tokens("conversation") == 130


def test_a_conversation_over_its_budget_by_one_group_sheds_it_for_the_next():
    held = Held(talk(max_tokens=100))
    held.say(130)
    held.say(10)
    assert held.ids("conversation") == [2]


def test_a_turn_that_grows_past_the_budget_with_its_results_stays_whole():
    held = Held(talk(max_tokens=100))
    held.say(20)
    held.turn(60, calls=["a", "b"])
    first, second = held.answer("a", 30), held.answer("b", 30)
    over = [[c.over_budget for c, _ in p.changes if isinstance(c, EntryWritten)] for p in (first, second)]
    assert over == [[False], [True]]
    assert [role for role, _ in held.talk()] == ["assistant", "tool", "tool"]


def test_a_conversation_that_rejects_takes_its_record_all_the_same_and_drops_nothing():
    held = Held(talk(max_tokens=100, max_items=1, admission="reject"))
    held.say(60)
    plan = held.say(60)
    assert [c.over_budget for c, _ in plan.changes if isinstance(c, EntryWritten)] == [True]
    assert held.ids("conversation") == [1, 2]


# --- sliding_window: the count


def counted(strategy: str, **keys: int) -> Held:
    keys = {"max_items": 4, **keys}
    return Held(talk(max_tokens=5_000, strategy=strategy, **keys))


def test_per_item_drops_the_oldest_group_as_soon_as_there_are_more():
    held = counted("per_item")
    plans = [held.say(5) for _ in range(5)]
    assert [evictions(plan) for plan in plans] == [[], [], [], [], [((1,), 5, "max_items")]]
    assert held.ids("conversation") == [2, 3, 4, 5]


def test_per_item_counts_entries_and_drops_groups():
    held = counted("per_item")
    held.turn(5, calls=["a", "b"])
    held.answer("a", 5)
    held.answer("b", 5)
    held.say(5)
    held.say(5)
    assert held.ids("conversation") == [4, 5]


def test_per_item_never_drops_the_turn_that_is_being_answered():
    held = counted("per_item", max_items=2)
    held.say(5)
    held.turn(5, calls=["a", "b", "c"])
    for call_id in "abc":
        held.answer(call_id, 5)
    assert [role for role, _ in held.talk()] == ["assistant", "tool", "tool", "tool"]


def test_bulk_waits_for_overflow_more_and_goes_back_to_max_items():
    held = counted("bulk", overflow=3)
    plans = [held.say(5) for _ in range(8)]
    assert [bool(evictions(plan)) for plan in plans] == [False] * 7 + [True]
    assert held.ids("conversation") == [5, 6, 7, 8]


def test_compact_waits_for_compact_count_more_and_has_the_oldest_folded():
    held = counted("compact", compact_count=2)
    plans = [held.say(5) for _ in range(7)]
    assert [[o.entry_ids for o in plan.orders] for plan in plans] == [[]] * 6 + [[(1, 2)]]
    change, _ = held.summarise("conversation", (1, 2), "short")
    assert kinds([change]) == ["ContextCompacted"]  # type: ignore[list-item]
    assert held.talk()[0] == ("user", "short")
    assert held.ids("conversation") == [8, 3, 4, 5, 6, 7]


def test_compact_orders_no_second_summary_while_one_is_made():
    held = counted("compact", compact_count=2)
    for _ in range(6):
        held.say(5)
    assert held.say(5, in_flight=True).orders == ()


def test_compact_drops_nothing_while_a_summary_is_made():
    held = counted("compact", compact_count=2)
    plans = [held.say(5, in_flight=True) for _ in range(20)]
    assert [evictions(plan) for plan in plans] == [[]] * 20


def test_compact_whose_summaries_fail_goes_back_to_max_items_as_bulk_does():
    held = counted("compact", compact_count=2)
    plans = [held.say(5) for _ in range(9)]
    assert evictions(plans[-1]) == [((1, 2, 3, 4, 5), 25, "compaction_failed")]
    assert [len(evictions(plan)) for plan in plans[:-1]] == [0] * 8


def test_compact_never_folds_the_turn_that_is_being_answered():
    held = counted("compact", max_items=1, compact_count=2)
    held.say(5)
    held.turn(5, calls=["a", "b", "c"])
    held.answer("a", 5)
    assert held.answer("b", 5).orders[0].entry_ids == (1,)


def test_compact_with_nothing_but_the_newest_turn_orders_nothing():
    held = counted("compact", max_items=1, compact_count=2)
    held.turn(5, calls=["a", "b", "c"])
    held.answer("a", 5)
    held.answer("b", 5)
    assert held.answer("c", 5).orders == ()


def test_a_shed_for_the_budget_keeps_the_count_too():
    held = Held(talk(max_tokens=100, max_items=2, shed_to=1.0, strategy="bulk", overflow=3))
    for _ in range(5):
        held.say(10)
    held.say(60)
    assert held.ids("conversation") == [5, 6]


def test_what_goes_for_the_budget_is_not_ordered_to_be_folded():
    held = Held(talk(max_tokens=100, max_items=1, strategy="compact", compact_count=2))
    for _ in range(3):
        held.say(10)
    assert held.say(80).orders == ()


def test_without_max_items_only_the_budget_counts():
    held = Held(talk(max_tokens=5_000))
    for _ in range(60):
        held.say(5)
    assert len(held.entries("conversation")) == 60
