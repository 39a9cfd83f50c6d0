"""The tools `context_*`: what the model writes, reads, lists and releases."""

from __future__ import annotations

import pytest
from windowkit import Held, kinds, stage, text_of

from shoal.blueprints import Region
from shoal.runtime.context import OPERATIONS, EntriesReleased, Order

NOTES = Region("notes", max_tokens=100)


def test_these_are_the_operations():
    assert set(OPERATIONS) == {
        "context_write",
        "context_append",
        "context_attach",
        "context_read",
        "context_list",
        "context_delete",
        "todo_add",
        "todo_done",
        "todo_note",
        "todo_drop",
    }


# --- context_append


def test_append_adds_an_entry_and_tells_the_regions_new_size():
    held = Held(NOTES)
    answer = held.call("context_append", region="notes", content=text_of(10))
    assert answer.text == "Added entry 1. `notes` holds 10 of 100 tokens."
    assert held.call("context_append", region="notes", content="two").text.startswith("Added entry 2. ")


def test_append_under_a_key_adds_another_entry_of_that_key():
    held = Held(NOTES)
    for text in ("one", "two"):
        held.call("context_append", region="notes", content=text, key="k")
    assert [(e.key, e.text) for e in held.entries("notes")] == [("k", "one"), ("k", "two")]


def test_append_says_what_it_dropped():
    held = Held(NOTES)
    for _ in range(4):
        held.call("context_append", region="notes", content=text_of(25))
    answer = held.call("context_append", region="notes", content=text_of(5))
    assert answer.text == (
        "Added entry 5; 75 tokens of older entries were dropped for it. `notes` holds 30 of 100 tokens."
    )


def test_append_to_a_key_of_a_hashmap_joins_with_a_newline():
    held = Held(Region("facts", kind="hashmap", max_tokens=100))
    held.call("context_append", region="facts", content="one", key="k")
    answer = held.call("context_append", region="facts", content="two", key="k")
    assert held.texts("facts") == ["one\ntwo"]
    assert answer.text == "Added to key 'k'. `facts` holds 2 of 100 tokens."
    assert held.replayed().dump() == held.window.dump()


def test_append_to_a_hashmap_needs_a_key():
    answer = Held(Region("facts", kind="hashmap")).call("context_append", region="facts", content="x")
    assert answer.is_error
    assert answer.text.endswith("Name the `key` to write.")


def test_a_refused_append_is_an_error_that_says_how_to_release():
    held = Held(Region("notes", max_tokens=20, admission="reject"))
    held.call("context_append", region="notes", content=text_of(15), key="a")
    answer = held.call("context_append", region="notes", content=text_of(10))
    assert (answer.is_error, answer.changes) == (True, ())
    assert answer.text == (
        "[error] `notes` is full: 15 of 20 tokens, and this needs 10, which is 5 too many. "
        "It holds: id 1 key 'a' (15). Release at least 5 tokens with `context_delete` first."
    )


def test_an_append_that_waits_says_for_which_region():
    held = Held(Region("code", kind="compacting", max_tokens=100))
    held.write("code", 90)
    answer = held.call("context_append", region="code", content=text_of(20), may_wait=True)
    assert (answer.wait, answer.changes, answer.orders) == ("code", (), (Order("code", (1,)),))
    again = held.call("context_append", region="code", content=text_of(20), in_flight=frozenset({"code"}))
    assert not again.is_error


def test_an_append_passes_on_the_summary_that_it_orders():
    held = Held(Region("code", kind="compacting", max_tokens=100))
    held.write("code", 50)
    assert held.call("context_append", region="code", content=text_of(40)).orders == (Order("code", (1,)),)


# --- context_write


def test_write_replaces_all_that_a_region_holds():
    held = Held(NOTES)
    for text in ("one", "two"):
        held.call("context_append", region="notes", content=text)
    answer = held.call("context_write", region="notes", content="three")
    assert held.texts("notes") == ["three"]
    assert answer.text == "Replaced the whole region (2 entries). `notes` holds 2 of 100 tokens."


def test_write_under_a_key_replaces_that_keys_entries_in_their_place():
    held = Held(NOTES)
    for key, text in (("a", "one"), ("b", "two"), ("a", "three")):
        held.call("context_append", region="notes", content=text, key=key)
    answer = held.call("context_write", region="notes", content="four", key="a")
    assert held.texts("notes") == ["four", "two"]
    assert answer.text.startswith("Replaced key 'a' (2 entries). ")


def test_write_to_an_empty_region_or_a_new_key_replaces_nothing():
    held = Held(NOTES)
    assert held.call("context_write", region="notes", content="one").text.startswith("Wrote the whole region. ")
    assert held.call("context_write", region="notes", content="two", key="k").text.startswith("Wrote key 'k'. ")


def test_write_to_a_key_of_a_hashmap():
    held = Held(Region("facts", kind="hashmap", max_tokens=100))
    assert held.call("context_write", region="facts", content="one", key="k").text.startswith("Wrote key 'k'. ")
    answer = held.call("context_write", region="facts", content="two", key="k")
    assert answer.text == "Replaced key 'k' (1 entry). `facts` holds 1 of 100 tokens."


def test_write_to_a_hashmap_needs_a_key():
    assert Held(Region("facts", kind="hashmap")).call("context_write", region="facts", content="x").is_error


def test_a_write_that_is_too_big_leaves_the_region_as_it_was():
    held = Held(NOTES)
    held.call("context_append", region="notes", content="one")
    answer = held.call("context_write", region="notes", content=text_of(101))
    assert answer.text == "[error] `notes` holds 100 tokens at all, and this is 101. Write 1 tokens less."
    assert held.texts("notes") == ["one"]


def test_a_write_under_a_key_makes_room_as_any_other_write_does():
    held = Held(NOTES)
    for key in "abcd":
        held.call("context_append", region="notes", content=text_of(25), key=key)
    answer = held.call("context_write", region="notes", content=text_of(30), key="d")
    assert [entry.key for entry in held.entries("notes")] == ["d"]
    assert "75 tokens of older entries were dropped for it. `notes` holds 30 of 100" in answer.text


def test_a_write_under_the_oldest_key_drops_what_comes_next_and_not_itself():
    held = Held(NOTES)
    for key in "abc":
        held.call("context_append", region="notes", content=text_of(30), key=key)
    held.call("context_write", region="notes", content=text_of(45), key="a")
    assert [(entry.key, entry.tokens) for entry in held.entries("notes")] == [("a", 45)]


def test_a_write_under_a_key_counts_what_the_key_gives_back():
    held = Held(Region("notes", kind="pinned", max_tokens=100))
    held.call("context_append", region="notes", content=text_of(60), key="a")
    held.call("context_append", region="notes", content=text_of(40), key="b")
    assert not held.call("context_write", region="notes", content=text_of(60), key="a").is_error
    assert held.call("context_write", region="notes", content=text_of(61), key="a").is_error


# --- what cannot be written


@pytest.mark.parametrize("tool", ["context_write", "context_append"])
@pytest.mark.parametrize("region", ["conversation", "tool_results", "stage_instructions", "final_output"])
def test_what_the_runtime_writes_the_model_does_not(tool: str, region: str):
    answer = Held(NOTES).call(tool, region=region, content="x")
    assert answer.text == f"[error] `{region}` is written by the runtime; write to a region of your own"


@pytest.mark.parametrize("tool", ["context_write", "context_append"])
def test_a_checklist_takes_no_free_text(tool: str):
    answer = Held(Region("todos", kind="checklist")).call(tool, region="todos", content="x")
    assert answer.text == "[error] `todos` is a checklist and takes items; open one with `todo_add`"


@pytest.mark.parametrize("tool", ["context_write", "context_append", "context_read", "context_list", "context_delete"])
def test_a_region_that_the_stage_does_not_see_is_not_there(tool: str):
    held = Held(NOTES, Region("plan"), stages=(stage(hide=("plan",)),))
    answer = held.call(tool, region="plan", content="x", oldest=1)
    assert answer.text.startswith("[error] there is no region 'plan' in this stage; it has `notes`, `conversation`")


@pytest.mark.parametrize("args", [{"content": " \n"}, {"content": "x", "key": ""}, {"content": "x", "key": "  "}])
def test_an_empty_argument_is_refused_by_name(args: dict[str, str]):
    name = "key" if "key" in args else "content"
    answer = Held(NOTES).call("context_append", region="notes", **args)
    assert answer.text == f"[error] `{name}` is empty; say something in it"


# --- context_read, context_list


def test_read_shows_a_region_as_it_stands_in_the_prompt():
    held = Held(Region("notes", volatility="grows", max_tokens=9_000))
    held.write("notes", "one")
    assert held.call("context_read", region="notes").text == held.block("notes") == "## notes\none"


def test_read_shows_what_one_key_holds():
    held = Held(NOTES)
    for key, text in (("a", "one"), ("b", "two"), ("a", "three")):
        held.write("notes", text, key=key)
    assert held.call("context_read", region="notes", key="a").text == "one\n\nthree"


def test_reading_an_unknown_key_names_the_keys():
    held = Held(NOTES)
    held.write("notes", "one", key="a")
    held.write("notes", "two")
    assert held.call("context_read", region="notes", key="z").text == "[error] `notes` has no key 'z'; keys: 'a'"
    assert held.call("context_read", region="tool_results", key="z").text.endswith("keys: none")


def test_read_shows_messages_with_their_role():
    held = Held(NOTES)
    held.say("hello")
    held.turn("hi", calls=["c"])
    assert held.call("context_read", region="conversation").text == "user: hello\n\nassistant: hi"


def test_an_empty_region_reads_as_empty():
    assert Held(NOTES).call("context_read", region="notes").text == "(empty)"
    assert Held(NOTES).call("context_list", region="notes").text == "(empty)"


def test_list_shows_index_id_key_and_tokens():
    held = Held(NOTES)
    held.write("notes", "one\ntwo", key="k")
    held.write("notes", "y" * 100)
    held.call("context_delete", region="notes", id=1)
    held.write("notes", "three", key="k")
    assert held.call("context_list", region="notes").text == (
        f"[0] id 2 25 tokens: {'y' * 59}…\n[1] id 3 key 'k' 2 tokens: three"
    )


def test_list_without_a_region_shows_every_region_with_its_fill():
    held = Held(NOTES, Region("hidden"), stages=(stage(hide=("hidden",)),))
    held.write("notes", 30)
    lines = held.call("context_list").text.splitlines()
    assert lines[0] == "notes: 30 of 100 tokens"
    assert not any(line.startswith("hidden") for line in lines)


def test_what_is_listed_is_corrected():
    held = Held(NOTES)
    held.write("notes", 30)
    held.calibrate(1.5)
    assert held.call("context_list").text.startswith("notes: 45 of 100 tokens")
    assert held.call("context_list", region="notes").text.startswith("[0] id 1 45 tokens: ")
    assert held.call("context_append", region="notes", content=text_of(10)).text.endswith("holds 60 of 100 tokens.")


def test_a_checklist_is_listed_item_by_item():
    held = Held(Region("todos", kind="checklist"))
    held.call("todo_add", region="todos", item="work")
    assert held.call("context_list", region="todos").text == "[ ] 1 work"


# --- context_delete


def three() -> Held:
    held = Held(NOTES)
    for key, tokens in (("a", 10), ("b", 20), ("a", 30)):
        held.write("notes", tokens, key=key)
    return held


@pytest.mark.parametrize(
    ("named", "left"),
    [({"key": "a"}, [2]), ({"index": 0}, [2, 3]), ({"id": 3}, [1, 2]), ({"oldest": 2}, [3]), ({"oldest": 9}, [])],
)
def test_delete_releases_what_is_named(named: dict[str, object], left: list[int]):
    held = three()
    answer = held.call("context_delete", region="notes", **named)
    assert kinds(change for change, _ in answer.changes) == ["EntriesReleased"]
    assert held.ids("notes") == left


def test_released_tokens_are_free_at_once():
    held = three()
    answer = held.call("context_delete", region="notes", key="a")
    assert answer.text == "Released 2 entries, 40 tokens. `notes` holds 20 of 100 tokens."
    assert held.call("context_delete", region="notes", id=2).text.startswith("Released 1 entry, 20 tokens. ")


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({}, "name exactly one of `key`, `index`, `id`, `oldest`"),
        ({"key": "a", "index": 0}, "name exactly one of `key`, `index`, `id`, `oldest`"),
        ({"key": "z"}, "`notes` has no key 'z'; see `context_list`"),
        ({"id": 7}, "`notes` has no entry with id 7; see `context_list`"),
        ({"index": 3}, "`notes` has no index 3: it has 3 entries; see `context_list`"),
        ({"index": -1}, "`notes` has no index -1: it has 3 entries; see `context_list`"),
        ({"oldest": 0}, "`oldest` is 0; give 1 or more"),
    ],
)
def test_what_cannot_be_found_is_an_error_that_says_what_to_do(named: dict[str, object], says: str):
    held = three()
    assert held.call("context_delete", region="notes", **named).text == f"[error] {says}"
    assert len(held.entries("notes")) == 3


def test_nothing_can_be_released_from_an_empty_region():
    assert Held(NOTES).call("context_delete", region="notes", oldest=1).text == (
        "[error] `notes` has no entry to release; see `context_list`"
    )


def test_an_index_that_was_listed_before_the_region_changed_is_refused():
    held = three()
    held.call("context_list", region="notes")
    held.call("context_delete", region="notes", index=0)
    answer = held.call("context_delete", region="notes", index=0)
    assert answer.text == (
        "[error] `notes` changed since it was listed, and index 0 may be another entry now; "
        "see `context_list`, or name the `id`"
    )


def test_an_index_holds_while_entries_are_only_added_behind_it():
    held = three()
    held.call("context_list", region="notes")
    held.write("notes", 10)
    assert not held.call("context_delete", region="notes", index=0).is_error


def test_listing_anew_makes_an_index_good_again():
    held = three()
    held.call("context_delete", region="notes", index=0)
    held.call("context_list", region="notes")
    assert not held.call("context_delete", region="notes", index=0).is_error


def test_listing_another_region_or_all_regions_makes_no_index_good():
    held = three()
    held.call("context_delete", region="notes", index=0)
    held.call("context_list", region="tool_results")
    held.call("context_list")
    assert held.call("context_delete", region="notes", index=0).is_error


def test_an_id_holds_whatever_happened():
    held = three()
    held.call("context_delete", region="notes", id=1)
    assert not held.call("context_delete", region="notes", id=3).is_error
    assert held.ids("notes") == [2]


def test_the_oldest_of_a_hashmap_are_the_least_recently_written():
    held = Held(Region("facts", kind="hashmap"))
    for key in ("a", "b", "a"):
        held.write("facts", 5, key=key)
    held.call("context_delete", region="facts", oldest=1)
    assert [entry.key for entry in held.entries("facts")] == ["a"]


def test_a_pinned_region_releases_by_name():
    held = Held(Region("rules", kind="pinned"))
    held.write("rules", 5)
    assert not held.call("context_delete", region="rules", id=1).is_error


@pytest.mark.parametrize("kind", ["clearable", "compacting", "compact_history"])
def test_these_kinds_release_anything(kind: str):
    held = Held(Region("r", kind=kind, source_region="x"))  # type: ignore[arg-type]
    held.write("r", 5)
    assert not held.call("context_delete", region="r", oldest=1).is_error


@pytest.mark.parametrize("region", ["final_output", "stage_instructions"])
def test_the_answer_and_the_instructions_are_the_runtimes(region: str):
    answer = Held(NOTES).call("context_delete", region=region, oldest=1)
    assert answer.text == f"[error] `{region}` is kept by the runtime; release entries of another region"


def test_routed_results_can_be_released():
    held = Held(NOTES)
    held.write("tool_results", 50, writer="routing")
    assert not held.call("context_delete", region="tool_results", oldest=1).is_error


def talking() -> Held:
    held = Held(NOTES)
    held.say(5)
    held.turn(5, calls=["a"])
    held.answer("a", 5)
    held.turn(5, calls=["b"])
    return held


@pytest.mark.parametrize("named", [{"index": 1}, {"index": 2}, {"id": 2}, {"id": 3}])
def test_a_turn_of_the_conversation_is_released_whole(named: dict[str, int]):
    held = talking()
    answer = held.call("context_delete", region="conversation", **named)
    assert [change.entry_ids for change, _ in answer.changes if isinstance(change, EntriesReleased)] == [(2, 3)]
    assert [role for role, _ in held.talk()] == ["user", "assistant"]


@pytest.mark.parametrize("named", [{"index": 3}, {"id": 4}])
def test_the_turn_that_is_being_answered_cannot_be_released(named: dict[str, int]):
    held = talking()
    answer = held.call("context_delete", region="conversation", **named)
    assert answer.text == (
        "[error] the newest turn of `conversation` is still being answered and stays; name older entries"
    )


def test_the_oldest_of_the_conversation_never_hold_the_turn_that_is_being_answered():
    held = talking()
    held.call("context_delete", region="conversation", oldest=50)
    held.answer("b", 5)
    assert [role for role, _ in held.talk()] == ["assistant", "tool"]


def test_a_turn_that_was_answered_can_be_released():
    held = talking()
    held.answer("b", 5)
    assert not held.call("context_delete", region="conversation", id=4).is_error
