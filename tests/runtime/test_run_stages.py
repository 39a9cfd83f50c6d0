"""Runs that walk stages: exits, edges, gates, nudges, outputs, caps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from runkit import (
    NOTES,
    TALK,
    TASK,
    blueprint,
    bodies,
    edge,
    events_of,
    kinds,
    messages,
    payloads,
    run_once,
    stage,
    stages_of,
    swarm_of,
    system_text,
)

from shoal.blueprints import Blueprint, CallerSeed, Gate, Nudge, Region, TransformConfig
from shoal.errors import ProviderRefused, ProviderSetup, RunIsPaused
from shoal.runtime import Limits, Permissions
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

NO_NUDGE = Nudge(enabled=False)
TITLED = {"titling": "A title"}


def scripted(*replies: object, **more: object) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={**TITLED, **more})  # type: ignore[arg-type]


# --- the simplest run


async def test_a_text_reply_ends_a_stage_that_owes_nothing():
    provider = scripted("hello")
    outcome, events = await run_once(blueprint(stage(available_tools=())), provider)
    assert (outcome.status, outcome.output) == ("complete", "hello")
    assert kinds(events, "StageEntered", "InferenceCompleted", "RunEnded")[0] == "StageEntered"


async def test_the_request_shows_the_task_under_its_heading():
    provider = scripted("hello")
    await run_once(blueprint(stage(available_tools=())), provider, task="count the stars")
    assert "## task\ncount the stars" in system_text(bodies(provider)[0])


async def test_stages_without_edges_follow_one_another_in_the_order_of_the_file():
    provider = scripted("one", "two")
    _, events = await run_once(blueprint(stage("a", available_tools=()), stage("b", available_tools=())), provider)
    assert stages_of(events) == ["a", "b"]


async def test_an_empty_table_of_edges_is_the_end():
    provider = scripted("one")
    made = blueprint(stage("a", available_tools=(), transitions=()), stage("b", available_tools=()))
    outcome, events = await run_once(made, provider)
    assert (outcome.status, stages_of(events)) == ("complete", ["a"])


async def test_instructions_of_the_stage_being_entered_replace_the_ones_before():
    provider = scripted("one", "two")
    made = blueprint(
        stage("a", available_tools=(), system_prompt="First do this."),
        stage("b", available_tools=(), system_prompt="Then do that."),
        regions=(TASK, Region("stage_instructions", kind="pinned", max_tokens=200), TALK),
    )
    await run_once(made, provider)
    first, second = (system_text(body) for body in bodies(provider))
    assert "First do this." in first
    assert "Then do that." in second
    assert "First do this." not in second


async def test_a_prompt_as_nudge_leaves_the_system_section_alone():
    provider = scripted("one", "two")
    made = blueprint(
        stage("a", available_tools=(), system_prompt="First do this."),
        stage("b", available_tools=(), system_prompt="Sum it up.", prompt_as="nudge"),
        regions=(TASK, Region("stage_instructions", kind="pinned", max_tokens=200), TALK),
    )
    await run_once(made, provider)
    first, last = bodies(provider)
    assert system_text(last) == system_text(first)
    assert "First do this." in system_text(last)
    assert messages(last)[-1] == ("user", "[System] Sum it up.")


# --- being asked again


async def test_a_reply_without_a_tool_call_is_asked_again_three_times_and_then_counts():
    provider = scripted("no", "no", "no", "no")
    outcome, events = await run_once(blueprint(stage()), provider)
    assert outcome.status == "complete"
    assert [p.reason for p in payloads(events, "Nudged")] == ["no_tool_call"] * 3


async def test_a_stage_that_has_called_a_tool_is_not_nudged():
    provider = scripted(call("context_append", region="notes", content="x"), "done")
    _, events = await run_once(blueprint(stage()), provider)
    assert payloads(events, "Nudged") == []


async def test_a_nudge_says_what_the_blueprint_wants_it_to_say():
    provider = scripted("no", call("context_append", region="notes", content="x"), "done")
    made = blueprint(stage(nudge=Nudge(text="Go on in {stage}.")))
    await run_once(made, provider)
    assert messages(bodies(provider)[1])[-1] == ("user", "[System] Go on in work.")


async def test_a_required_region_holds_the_stage_until_it_is_filled():
    provider = scripted("done", call("context_append", region="notes", content="x"), "done")
    made = blueprint(
        stage(nudge=NO_NUDGE), regions=(TASK, Region("notes", kind="pinned", required=True, max_tokens=100), TALK)
    )
    outcome, events = await run_once(made, provider)
    assert [p.reason for p in payloads(events, "Nudged")] == ["required_region"]
    assert outcome.flags == {}


async def test_a_required_region_that_stays_empty_goes_on_with_a_flag():
    provider = scripted("done", "done", "done", "done")
    made = blueprint(
        stage(nudge=NO_NUDGE), regions=(TASK, Region("notes", kind="pinned", required=True, max_tokens=100), TALK)
    )
    outcome, _ = await run_once(made, provider)
    assert (outcome.status, outcome.flags) == ("complete", {"required_regions_abandoned": ("notes",)})


async def test_a_region_that_is_filled_later_leaves_the_flag():
    provider = scripted(*["done"] * 4, call("context_append", region="notes", content="x"), "done")
    notes = Region("notes", kind="pinned", required=True, max_tokens=100)
    made = blueprint(stage("a", nudge=NO_NUDGE), stage("b", nudge=NO_NUDGE), regions=(TASK, notes, TALK))
    outcome, _ = await run_once(made, provider)
    assert outcome.flags == {}


async def test_an_owed_output_is_asked_for_and_then_submitted():
    provider = scripted("here it is", call("submit_output", content="the answer"), "done")
    made = blueprint(stage(mode="output", require_output=True, available_tools=(), nudge=NO_NUDGE))
    outcome, events = await run_once(made, provider)
    assert outcome.output == "the answer"
    assert [p.reason for p in payloads(events, "Nudged")] == ["output_owed"]


async def test_a_run_that_never_submits_what_it_owes_ends_in_error():
    provider = scripted(*["no"] * 4)
    made = blueprint(stage(mode="output", require_output=True, available_tools=(), nudge=NO_NUDGE))
    outcome, _ = await run_once(made, provider)
    assert (outcome.status, outcome.flags) == ("error", {"output_forced": 1})


async def test_a_later_valid_submission_takes_the_place_of_an_earlier_one():
    provider = scripted(call("submit_output", content="first"), call("submit_output", content="second"), "done")
    made = blueprint(stage(mode="output", require_output=True, available_tools=()))
    outcome, _ = await run_once(made, provider)
    assert outcome.output == "second"


async def test_the_name_of_a_stage_is_no_answer():
    provider = scripted(call("submit_output", content="work"), call("submit_output", content="real"), "done")
    made = blueprint(stage(mode="output", require_output=True, available_tools=()))
    outcome, _ = await run_once(made, provider)
    assert outcome.output == "real"


# --- edges


async def test_a_single_edge_is_taken_without_asking():
    provider = scripted("one", "two")
    made = blueprint(
        stage("a", available_tools=(), transitions=(edge("c"),)),
        stage("b", available_tools=()),
        stage("c", available_tools=()),
    )
    _, events = await run_once(made, provider)
    assert stages_of(events) == ["a", "c"]
    assert bodies(provider, "routing") == []


FORK = (
    stage(
        "a", available_tools=(), transitions=(edge("b", condition="llm_choice", hint="short"), edge("c", hint="long"))
    ),
    stage("b", available_tools=(), transitions=()),
    stage("c", available_tools=(), transitions=()),
)


async def test_the_model_is_asked_where_several_edges_are_open():
    provider = scripted("one", "two", routing="c")
    _, events = await run_once(blueprint(*FORK), provider)
    assert stages_of(events) == ["a", "c"]
    assert payloads(events, "TransitionChosen")[0].by == "model"


async def test_the_routing_question_lists_the_stages_with_their_hints_and_does_not_stay():
    provider = scripted("one", "two", routing="b")
    await run_once(blueprint(*FORK), provider)
    question = messages(bodies(provider, "routing")[0])[-1][1]
    assert "- b: short" in question
    assert "- c: long" in question
    assert all("short" not in text for _, text in messages(bodies(provider)[1]))


async def test_an_answer_that_names_no_stage_takes_the_first_edge():
    provider = scripted("one", "two", routing="I would rather not say which of them it is")
    _, events = await run_once(blueprint(*FORK), provider)
    assert stages_of(events) == ["a", "b"]
    assert payloads(events, "TransitionChosen")[0].by == "default"


async def test_done_ends_the_run_where_the_stage_allows_it():
    provider = scripted("one", routing="DONE")
    made = blueprint(stage("a", available_tools=(), allow_complete=True, transitions=(edge("b"),)), stage("b"))
    outcome, events = await run_once(made, provider)
    assert (outcome.status, stages_of(events)) == ("complete", ["a"])


async def test_a_failed_routing_call_goes_through_the_error_edge():
    provider = ScriptedProvider(
        script=lambda request: ProviderRefused("no") if request.purpose == "routing" else "said", purposes=TITLED
    )
    made = blueprint(
        stage(
            "a",
            available_tools=(),
            transitions=(edge("b", hint="x"), edge("c", hint="y"), edge("d", condition="error")),
        ),
        stage("b", available_tools=(), transitions=()),
        stage("c", available_tools=(), transitions=()),
        stage("d", available_tools=(), transitions=()),
    )
    _, events = await run_once(made, provider)
    assert stages_of(events) == ["a", "d"]


async def test_an_error_edge_takes_a_failed_request_and_a_report_says_what_happened():
    provider = scripted(ProviderRefused("the vendor says no"), "recovered")
    made = blueprint(
        stage("a", available_tools=(), transitions=(edge("b", condition="error"),)),
        stage("b", available_tools=(), transitions=()),
        regions=(TASK, Region("error_report", kind="pinned", max_tokens=300), TALK),
    )
    outcome, events = await run_once(made, provider)
    assert (outcome.status, stages_of(events)) == ("complete", ["a", "b"])
    assert "## error_report\nthe vendor says no" in system_text(bodies(provider)[1])


async def test_a_failed_request_without_an_edge_ends_the_run_in_error():
    provider = scripted(ProviderRefused("the vendor says no"))
    outcome, _ = await run_once(blueprint(stage(available_tools=())), provider)
    assert (outcome.status, outcome.reason) == ("error", "the vendor says no")


async def test_a_drained_account_pauses_the_run_and_says_what_to_do():
    provider = scripted(ProviderSetup("no credits", remedy="add credits"))
    with pytest.raises(RunIsPaused, match="no credits"):
        await run_once(blueprint(stage(available_tools=())), provider)


async def test_a_visited_stage_may_be_entered_again_as_often_as_it_says():
    provider = scripted(*["said"] * 5, routing="a")
    made = blueprint(
        stage("a", available_tools=(), max_revisits=1, transitions=(edge("b"),)),
        stage("b", available_tools=(), max_revisits=9, transitions=(edge("a", hint="again"), edge("c", hint="on"))),
        stage("c", available_tools=(), transitions=()),
    )
    _, events = await run_once(made, provider)
    assert stages_of(events) == ["a", "b", "a", "b", "c"]


async def test_a_run_whose_edges_are_all_used_up_ends_in_error_and_not_complete():
    provider = scripted(*["said"] * 3)
    made = blueprint(stage("a", available_tools=(), max_revisits=1, transitions=(edge("a"),)))
    outcome, events = await run_once(made, provider)
    assert (outcome.status, stages_of(events)) == ("error", ["a", "a"])


async def test_a_dead_end_edge_comes_before_the_error_edge():
    provider = scripted("one", "two", "three")
    made = blueprint(
        stage(
            "a",
            available_tools=(),
            max_revisits=0,
            transitions=(edge("a"), edge("e", condition="error"), edge("d", condition="dead_end")),
        ),
        stage("d", available_tools=(), transitions=()),
        stage("e", available_tools=(), transitions=()),
    )
    _, events = await run_once(made, provider)
    assert stages_of(events) == ["a", "d"]


# --- caps


async def test_a_stage_that_reaches_its_cap_leaves_by_its_own_edge_with_a_flag():
    more = call("context_append", region="notes", content="x")
    provider = scripted(more, more, "said")
    made = blueprint(
        stage("a", max_iterations=2, transitions=(edge("c"), edge("b", condition="max_iterations"))),
        stage("b", available_tools=(), transitions=()),
        stage("c", available_tools=(), transitions=()),
    )
    outcome, events = await run_once(made, provider)
    assert stages_of(events) == ["a", "b"]
    assert outcome.flags == {"max_iterations_hit": 1}


async def test_a_cap_without_an_edge_of_its_own_resolves_the_normal_ones():
    more = call("context_append", region="notes", content="x")
    provider = scripted(more, "said")
    made = blueprint(stage("a", max_iterations=1), stage("b", available_tools=()))
    outcome, events = await run_once(made, provider)
    assert (stages_of(events), outcome.flags) == (["a", "b"], {"max_iterations_hit": 1})


async def test_a_stage_that_sets_no_cap_has_the_hosts():
    more = call("context_append", region="notes", content="x")
    provider = scripted(more, more, more)
    outcome, _ = await run_once(blueprint(stage()), provider, limits=Limits(max_iterations=3))
    assert outcome.flags == {"max_iterations_hit": 1}


# --- gates


def gated(gate: Gate, **more: object):
    todos = Region("todos", kind="checklist", max_tokens=300)
    return blueprint(
        stage("a", nudge=NO_NUDGE, transitions=(edge("b", gate=gate),), **more),
        stage("b", available_tools=(), transitions=()),
        regions=(TASK, NOTES, todos, TALK),
    )


async def test_a_gate_holds_its_edge_until_the_region_is_filled():
    provider = scripted("done", call("context_append", region="notes", content="x"), "done", "said")
    outcome, events = await run_once(gated(Gate(require_regions=("notes",))), provider)
    assert [(p.requirement, p.attempt) for p in payloads(events, "GateBlocked")] == [("require_regions", 1)]
    assert outcome.flags == {}


async def test_a_gate_is_forced_after_its_attempts_with_a_flag():
    provider = scripted("done", "done", "done", "said")
    outcome, events = await run_once(gated(Gate(require_regions=("notes",), max_attempts=2)), provider)
    assert stages_of(events) == ["a", "b"]
    assert outcome.flags == {"gates_forced": 1}


async def test_a_gate_on_a_checklist_names_the_items_that_are_open():
    provider = scripted(
        call("todo_add", region="todos", item="count"), "done", call("todo_done", region="todos", id=1), "done", "said"
    )
    made = gated(Gate(require_no_open_items="todos"), available_tools=("todo_add", "todo_done"))
    _, events = await run_once(made, provider)
    nudged = payloads(events, "Nudged")
    assert [p.reason for p in nudged] == ["gate"]
    assert str(nudged[0].text).endswith("\n1 count")


async def test_a_gate_on_an_update_is_not_met_by_writing_the_same_text_again():
    same = call("context_write", region="notes", content="seeded")
    provider = scripted(same, "done", call("context_write", region="notes", content="new"), "done", "said")
    notes = Region("notes", kind="pinned", max_tokens=200, seed=CallerSeed("notes"))
    made = blueprint(
        stage(
            "a",
            available_tools=("context_write",),
            transitions=(edge("b", gate=Gate(require_region_updated="notes")),),
        ),
        stage("b", available_tools=(), transitions=()),
        regions=(TASK, notes, TALK),
    )
    _, events = await run_once(made, provider, seeds={"notes": "seeded"})
    assert [p.requirement for p in payloads(events, "GateBlocked")] == ["require_region_updated"]


async def test_a_gate_on_modifications_is_met_by_a_stage_that_has_no_modifying_tool():
    provider = scripted("done", "said")
    _, events = await run_once(gated(Gate(require_modifications=True)), provider)
    assert payloads(events, "GateBlocked") == []


async def test_a_gate_on_modifications_takes_the_tools_it_names():
    provider = scripted("done", call("context_append", region="notes", content="x"), "done", "said")
    _, events = await run_once(gated(Gate(require_modifications=True, tools=("context_append",))), provider)
    assert [p.requirement for p in payloads(events, "GateBlocked")] == ["require_modifications"]


async def test_an_edge_that_takes_an_error_asks_no_gate():
    provider = scripted(ProviderRefused("no"), "said")
    gate = Gate(require_regions=("notes",))
    made = blueprint(
        stage("a", transitions=(edge("b", condition="error", gate=gate),)),
        stage("b", available_tools=(), transitions=()),
    )
    _, events = await run_once(made, provider)
    assert (stages_of(events), payloads(events, "GateBlocked")) == (["a", "b"], [])


# --- transforms


async def test_clear_empties_what_is_not_protected():
    provider = scripted(call("context_append", region="scratch", content="gone"), "done", "said")
    made = blueprint(
        stage("a", transitions=(edge("b", transform="clear"),)),
        stage("b", available_tools=(), transitions=()),
        regions=(TASK, NOTES, Region("scratch", max_tokens=200), TALK),
    )
    _, events = await run_once(made, provider)
    assert {p.region for p in payloads(events, "RegionReset")} == {"scratch", "conversation"}
    assert "gone" not in str(bodies(provider)[-1])


async def test_compact_summarises_before_the_next_stage_asks():
    provider = scripted(
        call("context_append", region="scratch", content="a long story " * 20), "done", "said", compaction="a story"
    )
    made = blueprint(
        stage("a", transitions=(edge("b", transform="compact"),)),
        stage("b", available_tools=(), transitions=()),
        regions=(TASK, NOTES, Region("scratch", max_tokens=500), TALK),
    )
    await run_once(made, provider)
    assert "## scratch\na story" in system_text(bodies(provider)[-1])


async def test_custom_clears_and_summarises_the_regions_it_names_and_carries_the_rest():
    provider = scripted(
        Say(
            calls=(
                call("context_append", region="one", content="first " * 30),
                call("context_append", region="two", content="second " * 30),
                call("context_append", region="three", content="third"),
            )
        ),
        "done",
        "said",
        compaction="short",
    )
    config = TransformConfig(carry=("three",), compact=("two",), clear=("one",))
    made = blueprint(
        stage("a", transitions=(edge("b", transform="custom", transform_config=config),)),
        stage("b", available_tools=(), transitions=()),
        regions=(TASK, *(Region(name, max_tokens=500) for name in ("one", "two", "three")), TALK),
    )
    await run_once(made, provider)
    shown = system_text(bodies(provider)[-1])
    assert "## one" not in shown
    assert "## two\nshort" in shown
    assert "## three\nthird" in shown


async def test_an_edges_own_prompt_is_what_the_summary_is_asked_with():
    provider = scripted(
        call("context_append", region="scratch", content="a long story " * 20), "done", "said", compaction="short"
    )
    config = TransformConfig(compact=("scratch",), compact_prompt="Keep the names.")
    made = blueprint(
        stage("a", transitions=(edge("b", transform="custom", transform_config=config),)),
        stage("b", available_tools=(), transitions=()),
        regions=(TASK, Region("scratch", max_tokens=500), TALK),
    )
    await run_once(made, provider)
    assert "Keep the names." in system_text(bodies(provider, "compaction")[0])


async def test_reset_empties_a_region_on_each_entry():
    from shoal.blueprints import StageContext

    provider = scripted(call("context_append", region="notes", content="secret"), "done", "said")
    made = blueprint(stage("a"), stage("b", available_tools=(), context=StageContext(reset=("notes", "conversation"))))
    await run_once(made, provider)
    assert "secret" not in str(bodies(provider)[-1])


# --- stuck


def stuck_after(**threshold: object) -> Blueprint:
    """Return a blueprint whose first stage gives way to `rescue` at *threshold*."""
    way_out = edge("rescue", condition="stuck", **threshold)
    tools = ("context_append", "write_file")
    work = stage("work", available_tools=tools, transitions=(edge("done"), way_out), nudge=NO_NUDGE)
    rescue = stage("rescue", available_tools=(), transitions=())
    return blueprint(work, rescue, stage("done", available_tools=()))


def notes(count: int = 1) -> Say:
    return Say(calls=tuple(call("context_append", region="notes", content="x") for _ in range(count)))


def writes(path: str) -> Say:
    return Say(calls=(call("write_file", path=path, content="x"),))


@pytest.mark.parametrize(
    ("threshold", "replies", "said"),
    [
        ({"stuck_after_iterations": 2}, [notes(), notes()], "2 requests, and `stuck_after_iterations` is 2"),
        ({"stuck_after_tool_calls": 3}, [notes(2), notes(2)], "4 tool calls, and `stuck_after_tool_calls` is 3"),
        (
            {"stuck_after_minutes": 1.5},
            [Say(calls=notes().calls, delay_s=100)],
            "1.7 minutes, and `stuck_after_minutes` is 1.5",
        ),
        (
            {"stuck_after_same_file_edits": 2},
            [writes("a"), writes("b"), writes("a")],
            "2 edits of 'a', and `stuck_after_same_file_edits` is 2",
        ),
    ],
)
async def test_a_stage_that_gets_nowhere_gives_way(
    threshold: dict[str, object], replies: list[Say], said: str, tmp_path: Path
):
    provider = scripted(*replies, "rescued")
    allowed = Permissions(launch={"write_file": "allow"})
    outcome, events = await run_once(stuck_after(**threshold), provider, permissions=allowed, workdir=tmp_path)
    assert stages_of(events) == ["work", "rescue"]
    assert outcome.flags == {"stuck": 1}
    assert f"[System] stage 'work' got stuck: {said}" in str(bodies(provider)[-1])


async def test_a_stage_that_gets_somewhere_in_time_is_not_stuck():
    _, events = await run_once(stuck_after(stuck_after_iterations=3), scripted(notes(), notes(), "on", "done"))
    assert stages_of(events) == ["work", "done"]


async def test_a_stuck_stage_is_reported_in_its_own_region():
    report = Region("stuck_report", kind="pinned", max_tokens=500)
    made = replace(stuck_after(stuck_after_iterations=1), regions=(TASK, NOTES, report, TALK))
    provider = scripted(notes(), "rescued")
    await run_once(made, provider)
    assert "stage 'work' got stuck: 1 requests" in system_text(bodies(provider)[-1])


async def test_a_stuck_stage_goes_on_where_its_way_out_is_used_up():
    made = stuck_after(stuck_after_iterations=1)
    rescue = stage("rescue", available_tools=(), transitions=(edge("work"),), max_revisits=0)
    made = replace(made, stages=(made.stages[0], rescue, made.stages[2]))
    _, events = await run_once(made, scripted(notes(), "back to work", notes(), notes(), "on", "done"))
    assert stages_of(events) == ["work", "rescue", "work", "done"]


async def test_a_pause_is_no_time_in_which_a_stage_was_stuck():
    provider = scripted(Say(calls=notes().calls, delay_s=10), "on", "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(stuck_after(stuck_after_minutes=1), task="x")
        await anyio.sleep(5)
        await run.pause()
        await anyio.sleep(1000)
        await run.resume()
        await run.result()
        assert stages_of(events_of(swarm, run)) == ["work", "done"]
