"""What a stage sees, in which order, and where its instructions stand."""

from __future__ import annotations

from itertools import permutations

import pytest
from windowkit import Held, layouts, stage, text_of

from shoal.blueprints import ALWAYS_REGIONS, Blueprint, Region
from shoal.errors import BlueprintInvalid
from shoal.runtime.context import names_of

OWN = set(ALWAYS_REGIONS)


def system_of(*regions: Region) -> list[str]:
    """Return the system section's regions in prompt order, without those that every run has anyway."""
    declared = {region.name for region in regions}
    [layout] = layouts(stage(), regions=regions)
    return [name for name in layout.system if name in declared]


# --- order


def test_regions_stand_in_order_of_volatility_first():
    made = (Region("c", volatility="rewritten"), Region("b", volatility="grows"), Region("a", volatility="stable"))
    assert all(system_of(*order) == ["a", "b", "c"] for order in permutations(made))


def test_rewritten_is_what_an_undeclared_region_is():
    assert system_of(Region("a"), Region("b", volatility="grows")) == ["b", "a"]


def test_within_a_volatility_steadier_kinds_stand_in_front():
    steady = [Region("p", kind="pinned"), Region("h", kind="compact_history", source_region="t")]
    steady.append(Region("s", kind="custom", script="s.py", pinned=True))
    middle = [Region("l", kind="checklist"), Region("m", kind="hashmap"), Region("g", kind="compacting")]
    middle.append(Region("u", kind="custom", script="u.py"))
    moving = [Region("t"), Region("w", kind="clearable")]
    assert system_of(*moving, *middle, *steady) == list("phslmgutw")


def test_within_a_kind_regions_stand_as_declared():
    assert system_of(Region("z"), Region("y"), Region("x")) == ["z", "y", "x"]


def test_the_conversation_is_the_last_of_the_regions_that_render_as_messages():
    regions = [Region(name, kind="sliding_window") for name in ("talk", "conversation", "mail")]
    [layout] = layouts(stage(), regions=regions)
    assert layout.messages == ("talk", "mail", "conversation")


def test_tail_regions_stand_in_no_other_section():
    [layout] = layouts(stage(), regions=[Region("b", placement="tail"), Region("a", placement="tail"), Region("c")])
    assert layout.tail == ("b", "a")
    assert not set(layout.tail) & set(layout.system)


def test_instructions_stand_behind_every_other_pinned_block_whatever_they_declare():
    regions = [
        Region("stage_instructions", kind="pinned", volatility="stable"),
        Region("b", kind="pinned"),
        Region("h", kind="compact_history", source_region="t"),
        Region("l", kind="checklist"),
        Region("a", kind="pinned", volatility="stable"),
    ]
    assert system_of(*regions) == ["a", "b", "h", "stage_instructions", "l"]


def test_instructions_of_another_kind_stand_there_too():
    regions = [Region("stage_instructions"), Region("b", kind="pinned"), Region("l", kind="checklist")]
    assert system_of(*regions) == ["b", "stage_instructions", "l"]


# --- what a stage sees


def test_every_run_has_four_regions_that_no_layout_declares():
    held = Held(Region("notes"))
    assert {*held.window.layout.regions} == {"notes", *OWN}
    kinds = {name: held.state(name).region.kind for name in OWN}
    assert kinds == {
        "conversation": "sliding_window",
        "tool_results": "temporary",
        "final_output": "pinned",
        "stage_instructions": "pinned",
    }
    assert held.state("conversation").region.strategy == "bulk"
    assert (held.state("conversation").limits.budget, held.state("conversation").region.max_items) == (10_000, 50)


def test_without_regions_there_are_a_task_instructions_and_a_conversation():
    held = Held(window_tokens=8_000)
    declared = [region for region in held.window.layout.regions.values() if region.name in ("task", *OWN)]
    assert [region.name for region in declared][:3] == ["task", "stage_instructions", "conversation"]
    assert (declared[0].kind, declared[0].volatility) == ("pinned", "stable")
    assert declared[2].max_items is None


def test_a_hidden_region_gives_nothing_and_comes_back_intact():
    held = Held(Region("notes"), stages=(stage("one"), stage("two", hide=("notes",))))
    held.write("notes", "kept")
    held.enter("two")
    assert "notes" not in held.owners()
    assert not held.window.layout.sees("notes")
    held.enter("one")
    assert held.block("notes") == "## notes\nkept"


def test_a_region_that_a_stages_own_layout_omits_is_hidden_and_comes_back_intact():
    held = Held(Region("notes"), stages=(stage("one"), stage("two", regions=[Region("plan")])))
    held.write("notes", "kept")
    held.enter("two")
    held.write("plan", "think")
    assert held.owners() == ["plan"]
    held.enter("one")
    assert held.owners() == ["notes"]


def test_a_stages_own_layout_declares_any_key_anew():
    own = Region("notes", kind="pinned", max_tokens=300, volatility="stable")
    held = Held(Region("notes", max_tokens=100), stages=(stage("one"), stage("two", regions=[own])))
    held.enter("two")
    assert (held.state("notes").region, held.state("notes").limits.budget) == (own, 300)
    assert held.write("notes", 301).outcome == "refused"


def test_a_hidden_region_stays_what_it_was_when_it_was_last_seen():
    own = Region("notes", max_tokens=300)
    stages = (stage("one"), stage("two", regions=[own]), stage("three", hide=("notes",)))
    held = Held(Region("notes", max_tokens=100), stages=stages)
    held.enter("two")
    held.write("notes", 200)
    held.enter("three")
    assert (held.state("notes").limits.budget, held.tokens("notes")) == (300, 200)


def test_the_first_stages_own_layout_holds_from_the_start():
    held = Held(Region("notes", max_tokens=100), stages=(stage(regions=[Region("notes", max_tokens=7)]),))
    assert held.state("notes").limits.budget == 7


def test_a_region_that_becomes_chunked_is_cut_and_one_that_stops_is_joined():
    grows = Region("notes", max_tokens=9_000, volatility="grows")
    held = Held(Region("notes", max_tokens=9_000), stages=(stage("one"), stage("two", regions=[grows])))
    for _ in range(3):
        held.write("notes", 2_100)
    assert len(held.blocks("notes")) == 1
    held.enter("two")
    assert len(held.blocks("notes")) == 3
    held.enter("one")
    assert len(held.blocks("notes")) == 1


def test_a_region_that_becomes_messages_in_a_stage_is_a_block_again_in_the_next():
    messages = Region("talk", kind="sliding_window")
    held = Held(Region("talk"), stages=(stage("one"), stage("two", regions=[messages])))
    held.write("talk", "hello")
    held.enter("two")
    assert (held.talk(), held.owners()) == ([("user", "hello")], [])
    held.enter("one")
    assert (held.talk(), held.block("talk")) == ([], "## talk\nhello")


def test_the_four_regions_are_never_hidden_by_omission_and_keep_what_they_are_elsewhere():
    own = Region("conversation", kind="sliding_window", max_tokens=77)
    made = layouts(stage("one"), stage("two", regions=[Region("plan")]), regions=[own])
    assert all(set(layout.regions) >= OWN for layout in made)
    assert made[1].regions["conversation"] is own


def test_the_four_regions_keep_what_only_another_stage_declares():
    own = Region("conversation", kind="sliding_window", max_tokens=77)
    one, _ = layouts(stage("one"), stage("two", regions=[own]), regions=[Region("notes")])
    assert one.regions["conversation"] is own


def test_every_region_of_every_layout_is_known_in_declared_order():
    made = Blueprint(
        "b", (stage("one"), stage("two", regions=[Region("c"), Region("a")])), regions=(Region("z"), Region("a"))
    )
    [one, _] = layouts(*made.stages, regions=made.regions)
    assert list(one.everything) == ["z", "a", "c", *ALWAYS_REGIONS]
    assert names_of(made) == tuple(sorted(["z", "a", "c", *ALWAYS_REGIONS]))


def test_a_required_region_that_is_empty_is_named():
    held = Held(Region("plan", required=True), Region("notes", required=True), Region("x"))
    held.write("notes", "here")
    assert held.window.required_and_empty() == ("plan",)


def test_a_region_with_nothing_but_instructions_is_empty():
    region = Region("task", kind="pinned", required=True)
    assert Held(region, stages=(stage(system_prompt="Do it."),)).window.required_and_empty() == ("task",)


# --- what cannot be declared


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("conversation", "pinned"),
        ("conversation", "checklist"),
        ("stage_instructions", "hashmap"),
        ("stage_instructions", "sliding_window"),
        ("final_output", "hashmap"),
    ],
)
def test_a_region_that_every_run_has_must_be_able_to_do_its_work(name: str, kind: str):
    with pytest.raises(BlueprintInvalid, match=f"`{name}` is '{kind}', which cannot do its work; make it `"):
        layouts(stage(), regions=[Region(name, kind=kind)])  # type: ignore[arg-type]


def test_a_stages_own_layout_is_held_to_the_same():
    with pytest.raises(BlueprintInvalid, match="`conversation` is 'temporary'"):
        layouts(stage(), stage("two", regions=[Region("conversation")]), regions=[Region("x")])


@pytest.mark.parametrize(("first", "second"), [("checklist", "temporary"), ("pinned", "checklist")])
def test_a_checklist_is_a_checklist_in_every_layout(first: str, second: str):
    regions = [Region("todos", kind=first)]  # type: ignore[arg-type]
    with pytest.raises(BlueprintInvalid, match=f"`todos` is '{first}' in one layout and '{second}' in another"):
        layouts(stage("one", regions=[Region("todos", kind=second)]), regions=regions)  # type: ignore[arg-type]


# --- instructions


PROMPT = text_of(63, "I")


def test_undeclared_instructions_are_charged_to_the_first_pinned_region():
    held = Held(Region("task", kind="pinned"), stages=(stage(system_prompt=PROMPT),))
    held.write("task", text_of(2, "t"))
    assert held.window.fill()["task"][0] == 65
    assert held.owners() == ["task"]
    assert held.block("task") == f"## task\n{text_of(2, 't')}\n\n{PROMPT}"


def test_declared_instructions_have_a_region_and_a_size_of_their_own():
    held = Held(
        Region("stage_instructions", kind="pinned"),
        Region("task", kind="pinned"),
        stages=(stage(system_prompt=PROMPT),),
    )
    held.write("task", text_of(2, "t"))
    fill = held.window.fill()
    assert (fill["task"][0], fill["stage_instructions"][0]) == (2, 63)
    assert held.owners() == ["task", "stage_instructions"]
    assert held.block("stage_instructions") == f"## stage_instructions\n{PROMPT}"


def test_instructions_that_any_layout_declares_are_declared():
    own = [Region("stage_instructions", kind="pinned"), Region("task", kind="pinned")]
    one, two = layouts(stage("one"), stage("two", regions=own), regions=[Region("task", kind="pinned")])
    assert (one.instructions_in, two.instructions_in) == ("stage_instructions", "stage_instructions")


@pytest.mark.parametrize(
    "regions",
    [
        pytest.param([Region("a")], id="no pinned region"),
        pytest.param([Region("a", kind="custom", script="a.py", pinned=True)], id="never a custom one"),
        pytest.param([Region("final_output", kind="pinned")], id="never one that every run has"),
        pytest.param([Region("a", kind="pinned", placement="tail")], id="never one at the tail"),
    ],
)
def test_undeclared_instructions_without_a_home_stand_in_the_runtimes_own_region(regions: list[Region]):
    [layout] = layouts(stage(system_prompt="Do it."), regions=regions)
    assert layout.instructions_in == "stage_instructions"


def test_undeclared_instructions_go_to_the_first_declared_pinned_region_that_the_stage_sees():
    regions = [Region("x"), Region("b", kind="pinned"), Region("a", kind="pinned")]
    one, two = layouts(stage("one", system_prompt="x"), stage("two", hide=("b",), system_prompt="x"), regions=regions)
    assert (one.instructions_in, two.instructions_in) == ("b", "a")


def test_the_next_stages_instructions_replace_those_of_the_stage_before():
    stages = (stage("one", system_prompt="First."), stage("two", system_prompt="Second."), stage("three"))
    held = Held(Region("stage_instructions", kind="pinned"), stages=stages)
    held.enter("two")
    assert held.block("stage_instructions") == "## stage_instructions\nSecond."
    held.enter("three")
    assert held.blocks("stage_instructions") == []


def test_a_prompt_that_is_a_nudge_stands_in_no_region():
    [layout] = layouts(stage(system_prompt="Do it.", prompt_as="nudge"))
    assert layout.instructions is None
    assert layout.instruction_tokens == 0


def test_a_stage_change_leaves_the_blocks_in_front_of_the_instructions_alone():
    stages = (stage("one", system_prompt="First."), stage("two", system_prompt="Second."))
    held = Held(Region("task", kind="pinned"), Region("stage_instructions", kind="pinned"), stages=stages)
    held.write("task", "the task")
    before = held.prompt().system[0]
    held.enter("two")
    assert held.prompt().system[0] is before


def test_instructions_count_against_the_budget_of_their_region():
    held = Held(Region("task", kind="pinned", max_tokens=100), stages=(stage(system_prompt=PROMPT),))
    assert held.write("task", 38).why == "`task` holds 37 tokens at all, and this is 38"
    assert held.write("task", 37).outcome == "written"
    assert held.write("task", 1).why.startswith("`task` is full: 100 of 100 tokens")


def test_instructions_move_to_the_end_of_what_is_appended():
    held = Held(Region("task", kind="pinned", volatility="grows"), stages=(stage(system_prompt="Do it."),))
    held.write("task", 2_100)
    held.write("task", "more")
    assert [text.startswith("## task") for text in held.blocks("task")] == [True, True]
    assert held.blocks("task")[1] == "## task (continued)\nmore\n\nDo it."
    assert [block.frozen for block in held.prompt().system] == [True, False]


def test_instructions_behind_a_frozen_chunk_thaw_its_block():
    held = Held(Region("task", kind="pinned", volatility="grows"), stages=(stage(system_prompt="Do it."),))
    held.write("task", 2_100)
    assert [block.frozen for block in held.prompt().system] == [False]


def test_a_window_says_what_it_holds():
    held = Held(Region("notes", max_tokens=50))
    held.write("notes", 5)
    assert "<Window work: notes 5/50, " in repr(held.window)
    assert repr(held.state("notes")) == "<RegionState notes temporary 5/50 tokens>"
    assert repr(held.state("notes").chunks[0]) == "<Chunk 0 1 groups 5 tokens>"
