"""From a window to what is sent: order, sizes, what is kept, and the explanation of it."""

from __future__ import annotations

from windowkit import Held, block, stage, text_of

from shoal.blueprints import Region
from shoal.providers import NO_TOOLS, Block, Breakpoint, Text, ToolSet, ToolSpec
from shoal.runtime.context import TOOLS, Part, Prompt, assemble

OFFERED = ToolSet((ToolSpec("look", "Looks.", b"{}"),), 25)


def filled() -> Held:
    held = Held(
        Region("task", kind="pinned", volatility="stable"),
        Region("files", volatility="grows", max_tokens=9_000),
        Region("facts", kind="hashmap"),
        Region("plan", kind="pinned", placement="tail"),
        Region("conversation", kind="sliding_window"),
        stages=(stage(system_prompt=text_of(10, "I")),),
    )
    held.write("task", 10)
    held.write("files", 2_100)
    held.write("files", 10)
    held.write("facts", 10, key="k")
    held.write("plan", 10)
    held.say(10)
    return held


def test_a_prompt_stands_in_this_order():
    parts = filled().prompt(OFFERED).parts
    assert [(part.owner, part.section) for part in parts] == [
        (TOOLS, "tools"),
        ("task", "system"),
        ("files", "system"),
        ("files", "system"),
        ("facts", "system"),
        ("conversation", "messages"),
        ("plan", "tail"),
    ]


def test_a_prompt_without_tools_has_no_part_of_theirs():
    assert TOOLS not in [part.owner for part in filled().prompt().parts]


def test_tokens_are_those_of_the_parts():
    prompt = filled().prompt(OFFERED)
    assert prompt.tokens == sum(part.tokens for part in prompt.parts)
    assert prompt.tools is OFFERED


def test_characters_are_those_of_what_regions_hold_and_of_instructions():
    held = Held(
        Region("task", kind="pinned"), Region("plan", placement="tail"), stages=(stage(system_prompt="Do it."),)
    )
    for region, text in (("task", "12345"), ("plan", "678")):
        held.write(region, text)
    held.say("90")
    assert held.prompt().chars == 5 + 3 + 2 + 6


def test_calls_count_as_characters():
    held = Held(Region("x"))
    held.turn("ab", calls=["c"], arguments='{"n": 1}')
    assert held.prompt().chars == 2 + 8


def test_the_tail_is_one_text_with_a_blank_line_between_regions():
    held = Held(Region("b", placement="tail"), Region("a", placement="tail"), Region("c", placement="tail"))
    held.write("a", "one")
    held.write("b", "two")
    assert str(held.prompt().tail) == "## b\ntwo\n\n## a\none"
    assert held.prompt().system == ()


def test_an_empty_tail_is_none():
    assert Held(Region("a", placement="tail")).prompt().tail is None


def test_a_conversation_that_is_empty_brings_no_segment():
    prompt = Held(Region("a")).prompt()
    assert (prompt.messages, prompt.parts, prompt.tokens) == ((), (), 0)


def test_hidden_regions_are_not_counted():
    held = Held(Region("a"), stages=(stage("one"), stage("two", hide=("a",))))
    held.write("a", 100)
    held.enter("two")
    assert held.prompt().tokens == 0


def test_assembling_twice_gives_the_same_objects():
    held = filled()
    once, twice = assemble(held.window), assemble(held.window)
    assert all(a is b for a, b in zip(once.system + once.messages, twice.system + twice.messages, strict=True))


def test_an_append_leaves_what_other_regions_show_alone():
    held = filled()
    before = held.prompt()
    held.write("facts", 5, key="new")
    after = held.prompt()
    same = [new is old for new, old in zip(after.system, before.system, strict=True)]
    assert same == [True, True, True, False]


def test_the_digest_of_a_region_stands_for_its_content_and_not_for_ids():
    one, other = Held(Region("a"), Region("t", kind="checklist")), Held(Region("a"), Region("t", kind="checklist"))
    other.write("a", "gone")
    other.call("context_delete", region="a", oldest=1)
    for held in (one, other):
        held.write("a", "same")
        held.call("todo_add", region="t", item="work")
    assert one.state("a").digest() == other.state("a").digest()
    assert one.state("t").digest() == other.state("t").digest()
    other.write("a", "more")
    other.call("todo_done", region="t", id=1)
    assert one.state("a").digest() != other.state("a").digest()
    assert one.state("t").digest() != other.state("t").digest()


# --- explain


def test_explain_gives_one_row_a_part_with_its_place_and_offset():
    prompt = filled().prompt(OFFERED)
    rows = prompt.explain()
    assert [row["block"] for row in rows] == [
        "tools[0]",
        "system[0]",
        "system[1]",
        "system[2]",
        "system[3]",
        "messages[0]",
        "tail[0]",
    ]
    assert [row["owner"] for row in rows] == [part.owner for part in prompt.parts]
    assert [row["tokens"] for row in rows] == [part.tokens for part in prompt.parts]
    assert [row["offset"] for row in rows] == [sum(p.tokens for p in prompt.parts[:n]) for n in range(len(rows))]


def test_explain_says_what_may_stay_in_a_cache_and_why():
    rows = filled().prompt(OFFERED).explain()
    assert [(row["cacheable"], row["why"]) for row in rows] == [
        (True, "sent by every request of the stage"),
        (True, "declared `stable`: written once"),
        (True, "a frozen chunk: it stays as it is until its region sheds it"),
        (True, "an open chunk: new entries come at its end until it freezes"),
        (True, "declared `rewritten`: sent anew after each change"),
        (True, "new messages come at its end; a change of `facts` in front of it costs it"),
        (False, "at the tail: the next request leaves it out and says it anew at its own end"),
    ]


def test_explain_blames_the_first_region_that_moves():
    held = Held(Region("a"), Region("b"), Region("c", volatility="stable"))
    for name in "abc":
        held.write(name, 5)
    held.say("hello")
    why = {row["owner"]: str(row["why"]) for row in held.prompt().explain()}
    assert "a change of" not in why["c"] + why["a"]
    assert "a change of `a`" in why["b"]
    assert "a change of `a`" in why["conversation"]


def test_explain_takes_what_stands_behind_a_block_that_no_cache_holds_for_uncacheable():
    texts = (Text.of("x"),)
    system = (Block("task", texts, 5), Block("date", texts, 2, cacheable=False), Block("late", texts, 3))
    parts = (Part("task", 5), Part("date", 2, cacheable=False), Part("late", 3), Part("talk", 4, "messages"))
    prompt = Prompt(NO_TOOLS, system, (), None, 14, 3, parts)
    rows = prompt.explain()
    assert [row["cacheable"] for row in rows] == [True, False, False, False]
    assert rows[1]["why"] == "it is made anew for every request"
    assert rows[3]["why"] == "it stands behind `date`, which no cache holds"


def test_explain_says_which_parts_a_marker_stands_in():
    prompt = filled().prompt(OFFERED)
    rows = prompt.explain()
    talk = next(row for row in rows if row["owner"] == "conversation")
    end = int(str(talk["offset"])) + int(str(talk["tokens"]))
    marks = (Breakpoint("tools", 0, 1, "1h"), Breakpoint("system", 2, 9, "5m"), Breakpoint("messages", 7, end, "5m"))
    marked = {row["block"]: row["breakpoint"] for row in prompt.explain(marks)}
    assert {place: mark for place, mark in marked.items() if mark} == {
        "tools[0]": "1h",
        "system[2]": "5m",
        "messages[0]": "5m",
    }
    assert {row["breakpoint"] for row in rows} == {None}


def test_a_seeded_block_is_explained_like_any_other():
    held = Held(Region("files", kind="pinned", volatility="stable"))
    held.seed("files", block("a", "x"))
    assert held.prompt().explain()[0]["why"] == "declared `stable`: written once"
