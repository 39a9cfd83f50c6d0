"""`checklist` and the tools `todo_*`: items that carry state."""

from __future__ import annotations

import pytest
from windowkit import Held, block, kinds, text_of

from shoal.blueprints import Region
from shoal.runtime.context import RegionReset


def todos(*items: str, max_tokens: int = 200) -> Held:
    held = Held(Region("todos", kind="checklist", max_tokens=max_tokens))
    for item in items:
        held.call("todo_add", region="todos", item=item)
    return held


def test_add_opens_an_item_and_answers_with_its_id():
    held = todos("first")
    answer = held.call("todo_add", region="todos", item="second")
    assert answer.text == "Opened item 2. `todos` holds 8 of 200 tokens."


def test_done_closes_an_item_and_counts_what_is_open():
    held = todos("one", "two")
    assert held.call("todo_done", region="todos", id=1).text == "Closed item 1. 1 open. `todos` holds 6 of 200 tokens."


def test_a_note_leaves_the_item_open():
    held = todos("one")
    assert held.call("todo_note", region="todos", id=1, note="half way").text.startswith("Noted on item 1. ")
    assert held.block("todos") == "## todos\n1 open, 0 closed\n[ ] 1 one\n  half way"


def test_drop_closes_an_item_and_keeps_the_reason():
    held = todos("one")
    assert held.call("todo_drop", region="todos", id=1, reason="too late").text.startswith("Dropped item 1. ")
    assert held.block("todos") == "## todos\n0 open, 1 closed\n[-] 1 one (too late)"


def test_a_checklist_renders_its_counts_then_open_items_then_closed_ones():
    held = todos("a", "b", "c", "d")
    held.call("todo_done", region="todos", id=1)
    held.call("todo_drop", region="todos", id=3, reason="no")
    held.call("todo_note", region="todos", id=4, note="n")
    assert held.block("todos").splitlines() == [
        "## todos",
        "2 open, 2 closed",
        "[ ] 2 b",
        "[ ] 4 d",
        "  n",
        "[x] 1 a",
        "[-] 3 c (no)",
    ]


def test_ids_never_come_back():
    held = todos("a", "b")
    held.call("todo_done", region="todos", id=2)
    held.call("context_delete", region="todos", id=2)
    assert held.call("todo_add", region="todos", item="c").text.startswith("Opened item 3. ")
    held.change([(RegionReset("todos", 0, "stage"), None)])
    assert held.call("todo_add", region="todos", item="d").text.startswith("Opened item 4. ")


def test_notes_and_reasons_count_as_tokens():
    held = todos(text_of(10))
    assert held.tokens("todos") == 12
    held.call("todo_note", region="todos", id=1, note=text_of(10))
    assert held.tokens("todos") == 24
    held.call("todo_drop", region="todos", id=1, reason=text_of(10))
    assert held.tokens("todos") == 36


@pytest.mark.parametrize(("tool", "more"), [("done", {}), ("note", {"note": "x"}), ("drop", {"reason": "x"})])
def test_an_unknown_item_is_an_error_that_lists_the_open_ones(tool: str, more: dict[str, str]):
    held = todos("a", "b", "c")
    held.call("todo_done", region="todos", id=2)
    answer = held.call(f"todo_{tool}", region="todos", id=9, **more)
    assert (answer.text, answer.is_error) == ("[error] `todos` has no item 9; open items: 1, 3", True)


def test_an_unknown_item_of_an_empty_list_says_that_none_is_open():
    assert todos().call("todo_done", region="todos", id=1).text.endswith("open items: none")


def test_closing_a_closed_item_changes_nothing():
    held = todos("a", "b")
    held.call("todo_drop", region="todos", id=1, reason="no")
    answer = held.call("todo_done", region="todos", id=1)
    assert (answer.text, answer.changes) == ("Item 1 is closed already. 1 open.", ())
    assert "[-] 1 a (no)" in held.block("todos")


def test_dropping_a_closed_item_is_refused():
    held = todos("a")
    held.call("todo_done", region="todos", id=1)
    answer = held.call("todo_drop", region="todos", id=1, reason="no")
    assert answer.text == "[error] item 1 of `todos` is closed already; nothing is to be done"


def test_a_closed_item_still_takes_a_note():
    held = todos("a")
    held.call("todo_done", region="todos", id=1)
    assert not held.call("todo_note", region="todos", id=1, note="later").is_error


@pytest.mark.parametrize(
    ("tool", "args"),
    [("add", {"item": " "}), ("note", {"id": 1, "note": ""}), ("drop", {"id": 1, "reason": "\n"})],
)
def test_an_empty_text_is_refused(tool: str, args: dict[str, object]):
    answer = todos("a").call(f"todo_{tool}", region="todos", **args)
    assert answer.is_error
    assert answer.text.endswith("is empty; say something in it")


def test_a_full_checklist_refuses_and_names_what_can_be_removed():
    held = todos(text_of(18), text_of(18), max_tokens=40)
    assert held.call("todo_add", region="todos", item="x").text == (
        "[error] `todos` is full: 40 of 40 tokens, and this needs 3. "
        "Remove closed items with `context_delete` first: none is closed yet."
    )
    held.call("todo_done", region="todos", id=2)
    assert held.call("todo_note", region="todos", id=1, note="x").text.endswith("first: 2.")
    assert held.call("todo_drop", region="todos", id=1, reason="x").is_error


def test_a_checklist_takes_what_fits_exactly():
    held = todos(text_of(18), max_tokens=40)
    assert not held.call("todo_add", region="todos", item=text_of(18)).is_error


def test_only_closed_items_can_be_deleted():
    held = todos("a", "b")
    assert held.call("context_delete", region="todos", id=1).text == (
        "[error] items 1 of `todos` are open: close them with `todo_done` or `todo_drop` first"
    )
    held.call("todo_done", region="todos", id=1)
    assert held.call("context_delete", region="todos", id=1).text == "Removed item 1. `todos` holds 3 of 200 tokens."
    assert list(held.state("todos").items) == [2]


@pytest.mark.parametrize("named", [{"oldest": 1}, {"index": 0}, {"key": "a"}])
def test_items_are_deleted_by_id_alone(named: dict[str, object]):
    answer = todos("a").call("context_delete", region="todos", **named)
    assert answer.text == "[error] `todos` is a checklist; name the `id` of a closed item"


def test_deleting_an_unknown_item_lists_the_open_ones():
    assert todos("a").call("context_delete", region="todos", id=5).text.endswith("open items: 1")


@pytest.mark.parametrize("tool", ["todo_add", "todo_done", "todo_note", "todo_drop"])
def test_another_kind_of_region_has_no_items(tool: str):
    answer = Held(Region("notes")).call(tool, region="notes", id=1, item="x", note="x", reason="x")
    assert answer.text == "[error] `notes` is a temporary region, not a checklist; write to it with `context_append`"


def test_an_item_of_several_lines_cannot_pass_for_another_item():
    held = todos("a\n[x] 7 done already")
    held.call("todo_note", region="todos", id=1, note="n\n[x] 8 too")
    assert held.block("todos").splitlines()[2:] == [
        "[ ] 1 a",
        "  [x] 7 done already",
        "  n",
        "  [x] 8 too",
    ]


# --- what others write


def test_a_route_opens_an_item_for_each_line_that_says_something():
    held = todos()
    plan = held.write("todos", "one\n\n  two  \n", writer="routing")
    assert kinds(change for change, _ in plan.changes) == ["ItemChanged"] * 2
    assert held.block("todos") == "## todos\n2 open, 0 closed\n[ ] 1 one\n[ ] 2 two"


def test_a_route_past_the_budget_keeps_the_first_lines_that_fit():
    held = todos(max_tokens=20)
    plan = held.write("todos", "\n".join(text_of(6, tag) for tag in "abc"), writer="routing")
    assert (plan.outcome, plan.cut, plan.tokens, plan.of_tokens) == ("written", True, 16, 24)
    assert len(held.state("todos").items) == 2


def test_a_ceiling_keeps_the_first_lines_below_it():
    held = todos()
    held.write("todos", "\n".join(text_of(6, tag) for tag in "abc"), writer="routing", most_tokens=10)
    assert len(held.state("todos").items) == 1


def test_a_route_of_which_no_line_fits_is_refused():
    held = todos(max_tokens=10)
    plan = held.write("todos", text_of(20), writer="routing")
    assert (plan.outcome, plan.of_tokens) == ("refused", 22)
    assert plan.over_tokens == 12


def test_other_writers_open_all_of_their_lines_or_none():
    held = todos(max_tokens=20)
    assert held.write("todos", "\n".join(text_of(6, tag) for tag in "abc"), writer="framework").outcome == "refused"
    assert held.state("todos").empty


def test_a_text_without_lines_opens_nothing():
    held = todos()
    assert held.write("todos", " \n ", writer="routing").changes == ()


def test_a_checklist_that_is_seeded_gets_its_items_as_changes_of_their_own():
    held = todos()
    held.seed("todos", block("plan", "one"))
    assert held.state("todos").empty


def test_a_refreshed_seed_opens_only_lines_that_are_not_on_the_list():
    held = todos("one", "two")
    held.call("todo_done", region="todos", id=1)
    [change] = held.refresh("todos", block("", "one\nthree"), block("failed", "x", ok=False))[1:]
    assert "[ ] 4 three" in held.block("todos")
    assert kinds([change]) == ["ItemChanged"]
    assert held.refresh("todos", block("", "one\nthree")) == []


def test_items_count_as_characters_of_the_prompt():
    held = todos("12345")
    held.call("todo_note", region="todos", id=1, note="678")
    assert held.prompt().chars == 8
