"""Headings, escapes, descriptions, chunks: what the model reads of a region."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windowkit import Held, block, stage, text_of

from shoal.blueprints import Region
from shoal.providers import Text
from shoal.runtime.context import Theme
from shoal.runtime.context._store import CHUNK_TOKENS


def test_entries_stand_under_the_regions_heading_with_a_blank_line_between_them():
    held = Held(Region("notes"))
    held.write("notes", "one")
    held.write("notes", "two")
    assert held.block("notes") == "## notes\none\n\ntwo"


def test_an_empty_region_gives_nothing():
    held = Held(Region("notes"))
    assert held.owners() == []
    held.write("notes", "one")
    held.call("context_delete", region="notes", oldest=1)
    assert held.owners() == []


def test_a_description_is_for_people_unless_it_is_to_be_described():
    held = Held(Region("notes", description="One line each."))
    held.write("notes", "one")
    assert held.block("notes") == "## notes\none"


def test_a_description_stands_under_the_first_heading_only():
    region = Region(
        "notes", description="One line each.", describe_in_prompt=True, volatility="grows", max_tokens=9_000
    )
    held = Held(region)
    held.write("notes", 2_100)
    held.write("notes", "two")
    first, second = held.blocks("notes")
    assert first.startswith("## notes\nOne line each.\n\nx ")
    assert second == "## notes (continued)\ntwo"


def test_a_region_that_was_emptied_begins_anew_under_its_plain_heading():
    held = Held(Region("notes", volatility="grows", max_tokens=9_000))
    for _ in range(3):
        held.write("notes", 2_100)
    held.call("context_write", region="notes", content="anew")
    assert held.blocks("notes") == ["## notes\nanew"]


# --- forged headings


@pytest.mark.parametrize(
    "line", ["## notes", "## notes (continued)", "## notes (now)", "## conversation", "## notes  "]
)
def test_a_line_that_reads_like_a_heading_is_escaped(line: str):
    held = Held(Region("notes"))
    held.write("notes", f"before\n{line}\nafter")
    assert held.block("notes") == f"## notes\nbefore\n\\{line}\nafter"


@pytest.mark.parametrize(
    "line", ["## other", "### notes", "## notes and more", " ## notes", "# notes", "##notes", "## Notes"]
)
def test_any_other_line_is_left_alone(line: str):
    held = Held(Region("notes"))
    held.write("notes", line)
    assert held.block("notes") == f"## notes\n{line}"


def test_a_heading_is_escaped_at_both_ends_and_before_a_carriage_return():
    held = Held(Region("notes"))
    held.write("notes", "## notes\r\nx\n## notes")
    assert held.block("notes") == "## notes\n\\## notes\r\nx\n\\## notes"


def test_the_heading_of_a_region_that_only_another_stage_declares_is_protected_too():
    held = Held(Region("notes"), stages=(stage("one"), stage("two", regions=[Region("plan")])))
    held.write("notes", "## plan")
    assert held.block("notes") == "## notes\n\\## plan"


def test_messages_are_never_altered():
    held = Held(Region("notes"))
    held.say("## notes\nhello")
    assert held.talk() == [("user", "## notes\nhello")]


def test_no_key_instruction_description_or_item_can_forge_a_heading():
    held = Held(
        Region("facts", kind="hashmap", description="## notes", describe_in_prompt=True),
        Region("todos", kind="checklist"),
        Region("notes", placement="tail"),
        stages=(stage(system_prompt="Mind this:\n## facts\nthat"),),
    )
    held.write("facts", "x", key="k\n## notes")
    held.call("todo_add", region="todos", item="a\n## facts")
    held.write("notes", "## todos")
    prompt = held.prompt()
    text = "\n\n".join((*(b.text for b in prompt.system), str(prompt.tail)))
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert sorted(headings) == ["## facts", "## notes", "## stage_instructions", "## todos"]


@given(st.text(alphabet="# notes\n\r(continued)", max_size=60))
def test_escaping_twice_is_escaping_once(text: str):
    theme = Theme(["notes"])
    once = theme.escaped(Text.of(text))
    assert theme.escaped(once) == once


@given(st.lists(st.sampled_from(["## notes", "x", "", "## notes (now)", "## other"]), max_size=8))
def test_escaping_adds_a_backslash_and_nothing_else(lines: list[str]):
    escaped = str(Theme(["notes"]).escaped(Text.of("\n".join(lines)))).split("\n")
    assert [line.removeprefix("\\") for line in escaped] == ("\n".join(lines)).split("\n")


def test_a_text_without_a_heading_is_the_very_same_object():
    text = Text.of("## other\nplain")
    assert Theme(["notes"]).escaped(text) is text


# --- chunks that freeze


GROWS = Region("notes", volatility="grows", max_tokens=20_000)


def test_a_chunk_freezes_at_2048_tokens():
    held = Held(GROWS)
    held.write("notes", CHUNK_TOKENS - 1)
    held.write("notes", 1)
    held.write("notes", 1)
    assert [(b.frozen, b.text[:21]) for b in held.prompt().system] == [
        (True, "## notes\nx xxxxxxxxxx"),
        (False, "## notes (continued)\n"),
    ]
    assert CHUNK_TOKENS == 2_048


def test_one_token_less_leaves_a_chunk_open():
    held = Held(GROWS)
    held.write("notes", CHUNK_TOKENS - 1)
    assert [b.frozen for b in held.prompt().system] == [False]


def test_an_append_touches_only_the_open_chunk():
    held = Held(GROWS)
    for _ in range(3):
        held.write("notes", 2_100)
    held.write("notes", "open")
    before = held.prompt().system
    held.write("notes", "more")
    after = held.prompt().system
    assert [new is old for new, old in zip(after, before, strict=True)] == [True, True, True, False]


def test_eviction_at_the_head_drops_whole_chunks_and_leaves_the_others_as_they_were():
    held = Held(Region("notes", volatility="grows", max_tokens=10_000))
    for _ in range(8):
        held.write("notes", 1_200)
    before = held.prompt().system
    held.write("notes", 700)
    after = held.prompt().system
    assert [b.text[:8] for b in after] == ["## notes"] * 2
    assert after[0] is before[3]
    assert after[0].text.startswith("## notes (continued)\n")


def test_whole_frozen_chunks_go_first_and_then_groups_of_the_open_one():
    held = Held(Region("notes", volatility="grows", max_tokens=3_000))
    for tokens in (2_100, 400, 400):
        held.write("notes", tokens)
    held.write("notes", 1_200)
    assert held.ids("notes") == [4]


def test_what_rewritten_regions_hold_is_one_block_however_big():
    held = Held(Region("notes", max_tokens=20_000))
    for _ in range(4):
        held.write("notes", 2_100)
    assert len(held.blocks("notes")) == 1
    assert not held.prompt().system[0].frozen


@pytest.mark.parametrize("kind", ["pinned", "compact_history", "compacting", "temporary", "clearable"])
def test_these_kinds_are_cut_into_chunks_where_they_grow(kind: str):
    held = Held(Region("notes", kind=kind, volatility="grows", max_tokens=20_000, source_region="x"))  # type: ignore[arg-type]
    held.write("notes", 2_100)
    held.write("notes", 5)
    assert len(held.blocks("notes")) == 2


@pytest.mark.parametrize("kind", ["hashmap", "checklist"])
def test_on_these_kinds_growing_only_orders(kind: str):
    held = Held(Region("notes", kind=kind, volatility="grows", max_tokens=20_000))  # type: ignore[arg-type]
    for key in "ab":
        held.write("notes", text_of(2_100), key=key, writer="framework")
    assert len(held.blocks("notes")) == 1


def test_a_summary_at_the_head_of_a_growing_region_takes_the_plain_heading_and_cuts_nothing_anew():
    held = Held(Region("code", kind="compacting", volatility="grows", max_tokens=9_000))
    for tokens in (2_100, 2_100, 2_100, 50):
        held.write("code", tokens)
    held.summarise("code", (1, 2), "short")
    assert [text[:21] for text in held.blocks("code")] == [
        "## code\nshort",
        "## code (continued)\nx",
        "## code (continued)\nx",
    ]
    assert [b.frozen for b in held.prompt().system] == [True, True, False]


def test_a_summary_in_front_of_a_first_chunk_makes_that_a_later_one():
    held = Held(Region("code", kind="compacting", volatility="grows", max_tokens=9_000))
    for tokens in (500, 500, 2_100):
        held.write("code", tokens)
    held.summarise("code", (1, 2), "short")
    assert [text[:21] for text in held.blocks("code")] == ["## code\nshort", "## code (continued)\nx"]


def test_a_summary_in_front_of_a_chunk_that_lost_nothing_still_takes_its_heading():
    held = Held(Region("code", kind="compacting", volatility="grows", max_tokens=9_000))
    held.write("code", 2_100, key="a")
    held.write("code", 2_100)
    held.write("code", "newest")
    held.call("context_write", region="code", key="a", content="written since")
    assert held.blocks("code")[0] == "## code\nwritten since"
    held.summarise("code", (1, 2), "short")
    assert held.blocks("code") == [
        "## code\nshort",
        "## code (continued)\nwritten since",
        "## code (continued)\nnewest",
    ]


def test_a_summary_of_everything_is_all_that_is_left():
    held = Held(Region("code", kind="compacting", volatility="grows", max_tokens=9_000))
    held.write("code", 2_100)
    held.summarise("code", (1,), "short")
    assert held.blocks("code") == ["## code\nshort"]


def test_a_rewritten_key_stays_in_its_frozen_chunk():
    held = Held(Region("notes", volatility="grows", max_tokens=9_000))
    held.write("notes", 1_500, key="a")
    held.write("notes", 1_500, key="b")
    held.write("notes", "end")
    held.call("context_write", region="notes", key="a", content="small")
    assert held.blocks("notes")[0].startswith("## notes\nsmall\n\nx ")
    assert held.state("notes").chunks[0].frozen


def test_a_rewritten_key_that_was_all_of_its_chunk_stays_in_it():
    held = Held(Region("notes", volatility="grows", max_tokens=9_000))
    held.write("notes", 2_100, key="a")
    held.write("notes", 2_100)
    before = held.prompt().system[1]
    held.call("context_write", region="notes", key="a", content="new")
    assert held.blocks("notes")[0] == "## notes\nnew"
    assert held.prompt().system[1] is before


def test_a_rewritten_key_that_makes_its_chunk_big_enough_freezes_it():
    held = Held(Region("notes", volatility="grows", max_tokens=9_000))
    held.write("notes", "small", key="a")
    held.call("context_write", region="notes", key="a", content=text_of(2_100))
    assert held.prompt().system[0].frozen


# --- messages


def test_a_turn_and_its_results_stand_in_one_segment_however_many_there_are():
    held = Held(Region("conversation", kind="sliding_window", max_items=None))
    calls = [f"c{n}" for n in range(40)]
    held.turn("go", calls=calls)
    for call_id in calls:
        held.answer(call_id)
    held.say("next")
    assert [len(segment.messages) for segment in held.prompt().messages] == [41, 1]
    assert [segment.closed for segment in held.prompt().messages] == [True, False]


def test_a_segment_closes_at_16_messages_or_32_kb():
    held = Held(Region("conversation", kind="sliding_window", max_items=None, max_tokens=90_000))
    for _ in range(17):
        held.say("short")
    held.say(9_000)
    held.say("short")
    assert [len(segment.messages) for segment in held.prompt().messages] == [16, 2, 1]


def test_a_new_message_touches_only_the_open_segment():
    held = Held(Region("conversation", kind="sliding_window", max_items=None))
    for _ in range(35):
        held.say("short")
    before = held.prompt().messages
    held.say("more")
    after = held.prompt().messages
    assert [new is old for new, old in zip(after, before, strict=True)] == [True, True, False]


def test_a_sliding_window_of_ones_own_renders_as_messages_in_front_of_the_conversation():
    held = Held(Region("mail", kind="sliding_window"), Region("conversation", kind="sliding_window"))
    held.say("hello")
    held.write("mail", "a letter")
    assert held.talk() == [("user", "a letter"), ("user", "hello")]
    assert held.owners() == []


# --- what is kept


def test_a_change_of_model_renders_nothing_anew():
    held = Held(Region("notes", budget=0.5))
    held.write("notes", "one")
    held.say("hello")
    before = held.prompt()
    held.enter("work", 5_000)
    after = held.prompt()
    assert (after.system[0] is before.system[0], after.messages[0] is before.messages[0]) == (True, True)


def test_another_description_is_shown_at_once():
    described = Region("notes", description="New.", describe_in_prompt=True)
    held = Held(Region("notes"), stages=(stage("one"), stage("two", regions=[described])))
    held.write("notes", "one")
    assert held.block("notes") == "## notes\none"
    held.enter("two")
    assert held.block("notes") == "## notes\nNew.\n\none"


def test_a_seed_is_shown_as_it_was_given():
    held = Held(Region("files", kind="pinned"))
    held.seed("files", block("a.txt", "alpha"), block("b.txt", "beta"))
    assert held.block("files") == "## files\n--- a.txt ---\nalpha\n\n--- b.txt ---\nbeta"
