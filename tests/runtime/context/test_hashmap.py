"""`hashmap`: one entry a key; the least recently written keys go first."""

from __future__ import annotations

import pytest
from windowkit import Held, block, kinds

from shoal.blueprints import Region
from shoal.runtime.context import EntriesEvicted, EntryWritten, Shelf, fit_blocks


def facts(**keys: object) -> Held:
    return Held(Region("facts", kind="hashmap", **{"max_tokens": 100, **keys}))  # type: ignore[arg-type]


def keys_of(held: Held) -> list[str | None]:
    return [entry.key for entry in held.entries("facts")]


def test_a_write_to_a_key_takes_the_place_of_what_it_held():
    held = facts()
    for key in "abc":
        held.write("facts", f"old {key}", key=key)
    plan = held.write("facts", "new", key="b")
    assert kinds(change for change, _ in plan.changes) == ["EntryWritten"]
    assert held.texts("facts") == ["old a", "new", "old c"]


def test_a_write_without_a_key_is_refused():
    plan = facts().write("facts", 5)
    assert plan.refusal == "`facts` is a hashmap and keeps nothing without a key. Name the `key` to write."


@pytest.mark.parametrize("entries", [1, 3])
def test_past_max_entries_the_least_recently_written_key_goes(entries: int):
    held = facts(max_entries=entries)
    for key in "abcd"[: entries + 1]:
        plan = held.write("facts", 5, key=key)
    [evicted] = [change for change, _ in plan.changes if isinstance(change, EntriesEvicted)]
    assert (evicted.entry_ids, evicted.reason) == ((1,), "max_entries")
    assert keys_of(held) == list("abcd"[1 : entries + 1])


def test_a_key_that_was_written_again_is_not_the_oldest():
    held = facts(max_entries=2)
    for key in ("a", "b", "a", "c"):
        held.write("facts", 5, key=key)
    assert keys_of(held) == ["a", "c"]


def test_writing_a_known_key_at_max_entries_costs_no_other():
    held = facts(max_entries=2)
    for key in ("a", "b", "b"):
        held.write("facts", 5, key=key)
    assert keys_of(held) == ["a", "b"]


def test_past_the_budget_the_least_recently_written_keys_go_until_it_fits():
    held = facts()
    for key in "abcd":
        held.write("facts", 25, key=key)
    plan = held.write("facts", 30, key="e")
    [evicted] = [change for change, _ in plan.changes if isinstance(change, EntriesEvicted)]
    assert (evicted.entry_ids, evicted.tokens, evicted.reason) == ((1, 2), 50, "budget")


def test_a_key_that_grows_past_the_budget_costs_others_and_never_itself():
    held = facts()
    for key in "abc":
        held.write("facts", 30, key=key)
    held.write("facts", 60, key="a")
    assert keys_of(held) == ["a", "c"]
    assert held.tokens("facts") == 90


def test_a_value_bigger_than_the_region_is_refused_and_empties_nothing():
    held = facts()
    held.write("facts", 60, key="a")
    assert held.write("facts", 101, key="a").outcome == "refused"
    assert held.tokens("facts") == 60


def test_a_hashmap_that_rejects_drops_no_key_for_another():
    held = facts(admission="reject")
    held.write("facts", 60, key="a")
    plan = held.write("facts", 50, key="b")
    assert "60 of 100 tokens, and this needs 50, which is 10 too many. It holds: id 1 key 'a' (60)" in plan.why
    assert keys_of(held) == ["a"]


def test_a_hashmap_that_rejects_counts_what_a_key_gives_back():
    held = facts(admission="reject")
    held.write("facts", 60, key="a")
    assert held.write("facts", 90, key="a").outcome == "written"


def test_a_hashmap_that_rejects_refuses_a_key_past_max_entries():
    held = facts(admission="reject", max_entries=1)
    held.write("facts", 5, key="a")
    assert held.write("facts", 5, key="a").outcome == "written"
    assert held.write("facts", 5, key="b").why.startswith("`facts` is full: it holds 1 keys at most.")


def test_a_hashmap_renders_one_sub_heading_a_key_in_the_order_in_which_keys_came():
    held = facts()
    for key, text in (("b", "two"), ("a", "one"), ("b", "three")):
        held.write("facts", text, key=key)
    assert held.block("facts") == "## facts\n### b\nthree\n\n### a\none"


def test_under_pressure_the_least_recently_written_keys_go_until_there_is_room():
    held = facts()
    for key in ("a", "b", "c", "a"):
        held.write("facts", 10, key=key)
    changes, _ = held.press(15)
    assert kinds(changes) == ["EntriesEvicted"]
    assert keys_of(held) == ["a"]


def test_a_seed_without_a_name_stands_under_no_sub_heading():
    held = facts()
    held.seed("facts", block("", "x"))
    assert held.block("facts") == "## facts\n---  ---\nx"


def test_a_seed_of_two_calls_of_one_tool_is_two_keys():
    held = facts()
    held.seed("facts", *fit_blocks([block("look", "one"), block("look", "two")], 100, Region("facts"), Shelf())[0])
    assert keys_of(held) == ["look", "look (2)"]


def test_a_refreshed_seed_leaves_what_others_wrote_under_its_key():
    held = facts()
    held.seed("facts", block("look", "old"))
    held.write("facts", "mine", key="look")
    held.refresh("facts", block("look", "new"))
    assert dict(zip(keys_of(held), held.texts("facts"), strict=True)) == {
        "look": "mine",
        "look (2)": "--- look ---\nnew",
    }


def test_a_refreshed_seed_keeps_its_keys():
    held = facts()
    held.seed("facts", block("look", "old"), block("ask", "old"))
    held.refresh("facts", block("look", "new"), block("ask", "old"))
    assert keys_of(held) == ["look", "ask"]


def test_blocks_of_a_seed_keep_apart_where_others_hold_one_of_their_keys():
    held = facts()
    held.write("facts", "mine", key="look")
    held.seed("facts", *fit_blocks([block("look", "one"), block("look", "two")], 100, Region("facts"), Shelf())[0])
    assert keys_of(held) == ["look", "look (2)", "look (2) (2)"]


def test_a_key_is_free_under_the_first_number_that_is():
    held = facts()
    held.write("facts", 5, key="look")
    held.write("facts", 5, key="look (2)")
    assert held.state("facts").free_key("look") == "look (3)"
    assert held.state("facts").free_key("read") == "read"


def test_an_entry_says_what_it_replaces():
    held = facts()
    held.write("facts", 5, key="a")
    [(change, _)] = held.write("facts", 5, key="a").changes
    assert isinstance(change, EntryWritten)
    assert change.replaces == (1,)
