"""What seeds put into regions, and what a refresh changes."""

from __future__ import annotations

from windowkit import Held, block, kinds, text_of

from shoal.blueprints import Region
from shoal.runtime.context import SeedRefreshed

FILES = Region("files", kind="pinned", max_tokens=200)


def changed(held: Held, *blocks: object, notes: tuple[str, ...] = ()) -> SeedRefreshed:
    [change] = held.refresh("files", *blocks, notes=notes)  # type: ignore[arg-type]
    assert isinstance(change, SeedRefreshed)
    return change


def seeded(*names: str) -> Held:
    held = Held(FILES)
    held.seed("files", *(block(name, f"old {name}") for name in names))
    return held


def bodies(held: Held) -> list[str]:
    return [text.partition("\n")[2] for text in held.texts("files")]


def test_each_block_of_a_seed_is_an_entry_in_order():
    held = seeded("b", "a")
    assert held.texts("files") == ["--- b ---\nold b", "--- a ---\nold a"]
    assert held.ids("files") == [1, 2]


def test_equal_bytes_write_nothing():
    held = seeded("a", "b")
    assert held.refresh("files", block("a", "old a"), block("b", "old b")) == []


def test_a_refresh_takes_the_place_of_what_the_seed_gave_before():
    held = seeded("a", "b")
    change = changed(held, block("a", "new a"), block("b", "old b"))
    assert (change.replaces, change.entry_ids) == ((1, 2), (3, 4))
    assert bodies(held) == ["new a", "old b"]


def test_what_others_wrote_since_is_kept_in_its_place():
    held = Held(FILES)
    held.write("files", "before")
    held.seed("files", block("a", "old"))
    held.write("files", "after")
    held.refresh("files", block("a", "new"), block("b", "more"))
    assert held.texts("files") == ["before", "--- a ---\nnew", "--- b ---\nmore", "after"]


def test_a_seed_that_gives_less_takes_the_rest_away():
    held = seeded("a", "b")
    held.refresh("files", block("b", "old b"))
    assert bodies(held) == ["old b"]


def test_a_seed_that_gives_nothing_any_more_leaves_nothing():
    held = seeded("a")
    held.refresh("files")
    assert held.state("files").empty


def test_a_seed_whose_entries_were_released_stands_behind_what_is_there():
    held = seeded("a")
    held.write("files", "mine")
    held.call("context_delete", region="files", id=1)
    held.refresh("files", block("a", "new"))
    assert held.texts("files") == ["mine", "--- a ---\nnew"]


def test_a_block_that_failed_keeps_its_own_old_one_while_the_others_are_replaced():
    held = seeded("a", "b")
    change = changed(held, block("a", "no such file", ok=False), block("b", "new b"), notes=("a: no such file",))
    assert bodies(held) == ["old a", "new b"]
    assert change.notes == ("a: no such file",)


def test_blocks_that_all_fail_leave_everything_as_it_was():
    held = seeded("a", "b")
    assert held.refresh("files", block("a", "x", ok=False), block("b", "x", ok=False)) == []


def test_a_block_that_never_came_is_left_out_when_it_fails_again():
    held = seeded("a")
    assert held.refresh("files", block("z", "x", ok=False), block("a", "old a")) == []


def test_two_calls_of_one_tool_keep_their_own_blocks():
    held = Held(FILES)
    held.refresh("files", block("look", "x", ok=False), block("look", "two"), block("look", "three"))
    held.refresh("files", block("look", "one"), block("look", "x", ok=False), block("look", "3"))
    assert bodies(held) == ["one", "two", "3"]


def test_a_refresh_is_cut_to_what_the_region_takes_beside_the_rest():
    held = Held(FILES)
    held.write("files", 150)
    held.seed("files", block("a", "old"))
    change = changed(held, block("a", text_of(100)))
    assert held.tokens("files") <= 200
    assert "tokens fit" in change.notes[0]
    assert bodies(held)[1].endswith("tokens]")


def test_a_refresh_without_room_takes_its_old_block_away_and_says_so():
    held = Held(Region("files", kind="pinned", max_tokens=50))
    held.seed("files", block("a", "old"))
    held.write("files", 45)
    change = changed(held, block("a", text_of(40)))
    assert change.notes == ("a: 0 of 43 tokens fit",)
    assert len(held.entries("files")) == 1


def test_a_refresh_is_the_same_on_replay():
    held = seeded("a", "b")
    held.write("files", "mine")
    held.refresh("files", block("a", "new a"), block("c", "new c"))
    assert held.replayed().dump() == held.window.dump()
    assert kinds(held.refresh("files", block("a", "newer"))) == ["SeedRefreshed"]
