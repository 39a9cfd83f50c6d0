"""The picture of a tree of runs that all views draw: fed by events, in whatever order runs mix."""

from __future__ import annotations

from decimal import Decimal

import anyio
import pytest
from front_story import Story, replied, spawned

from shoal.runtime import Event
from shoal.runtime.events import (
    ChildSpawned,
    InferenceStarted,
    LaneDegraded,
    RunEnded,
    RunPaused,
    RunRestarted,
    RunResumed,
    RunTitled,
    StageEntered,
)


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def family(story: Story) -> Story:
    """A lead with two readers."""
    story.tell("root", spawned())
    for child in ("a", "b"):
        story.tell("root", ChildSpawned(child, "reader", item=child))
        story.tell(child, spawned("reader", "root", child))
    return story


def test_a_run_is_followed_from_its_begin_to_its_end(story: Story):
    story.tell("root", spawned(), StageEntered("survey", 1, "offline", "m", 8000), RunTitled("A title", "lane"))
    story.tell("root", InferenceStarted("stage", "offline", "m", 1, 1, ""), replied())
    run = story.tell("root", RunEnded("complete", "it is done")).runs["root"]
    assert run is story.progress.root
    assert (run.label, run.task, run.title) == ("lead", "a task", "A title")
    assert (run.stage, run.model) == ("survey", "offline:m")
    assert (run.status, run.reason, run.over, run.requests, run.replies) == ("complete", "it is done", True, 1, 1)
    assert (run.usage.input, run.usage.output, run.cost) == (15, 3, Decimal("0.5"))


def test_a_childs_first_event_may_come_before_its_parent_tells_of_it(story: Story):
    story.tell("root", spawned())
    story.tell("a", spawned("reader", "root", "a.md"))
    progress = story.tell("root", ChildSpawned("a", "reader"))
    assert progress.runs["root"].children == ["a"]
    assert progress.runs["a"].label == "reader a.md"


def test_the_tree_is_told_parents_first(family: Story):
    assert [(run.run_id, depth) for run, depth in family.progress.descend(family.progress.runs["root"])] == [
        ("root", 0),
        ("a", 1),
        ("b", 1),
    ]


def test_totals_are_those_of_all_runs(family: Story):
    family.tell("a", replied("0.25"))
    progress = family.tell("root", replied("0.5", simulated=True))
    assert (progress.usage.input, progress.cost, progress.simulated) == (30, Decimal("0.75"), True)
    assert progress.subtree_cost(progress.runs["a"]) == Decimal("0.25")
    assert progress.counts() == {"running": 3}


def test_one_unknown_price_makes_the_total_unknown(family: Story):
    family.tell("a", replied(None))
    progress = family.tell("b", replied("1"))
    assert (progress.cost, progress.subtree_cost(progress.runs["b"])) == (None, Decimal(1))


def test_no_model_was_replaced_where_every_reply_is_a_models(family: Story):
    assert not family.tell("a", replied()).simulated


def test_a_reason_is_one_line(story: Story):
    progress = story.tell("root", spawned(), RunEnded("error", "it crashed\n\nTraceback"))
    assert progress.runs["root"].reason == "it crashed"


def test_degraded_jobs_are_counted(story: Story):
    assert story.tell("root", spawned(), LaneDegraded("titling", 1, "", "timeout")).degraded == 1


def test_events_of_runs_whose_begin_was_not_seen_change_nothing(story: Story):
    assert story.tell("other", RunTitled("T", "lane")).runs == {}


def test_a_second_root_does_not_take_the_firsts_place(story: Story):
    story.tell("root", spawned())
    assert story.tell("second", spawned()).root is story.progress.runs["root"]


def test_whoever_listens_is_told_of_what_is_new_and_not_of_what_is_replayed(story: Story):
    told: list[str] = []
    story.progress.changed = lambda event, run: told.append(f"{run.run_id} {event.kind}")
    story.progress.replay([Event("root", 1, 1.0, spawned())])
    story.progress.record(Event("root", 2, 2.0, RunTitled("T", "lane")))
    assert told == ["root RunTitled"]


# --- pauses


def test_a_run_that_is_paused_and_resumed_runs(story: Story):
    story.tell("root", spawned(), RunPaused("needs setup", "set the key"))
    assert (story.progress.runs["root"].status, story.progress.runs["root"].remedy) == ("paused", "set the key")
    assert story.tell("root", RunResumed("user")).runs["root"].status == "running"


def test_a_run_that_is_restarted_runs(story: Story):
    assert story.tell("root", spawned(), RunPaused("x"), RunRestarted("e", 1)).runs["root"].status == "running"


def test_a_tree_stands_still_once_its_parents_wait_for_paused_children_only(family: Story):
    family.tell("a", RunPaused("needs setup"))
    assert family.progress.held() == []
    progress = family.tell("b", RunEnded("complete", ""))
    assert [run.run_id for run in progress.held()] == ["a"]


def test_a_tree_whose_paused_child_is_resumed_does_not_stand_still(family: Story):
    family.tell("b", RunEnded("complete", ""))
    family.tell("a", RunPaused("needs setup"), RunResumed("user"))
    assert family.progress.held() == []


@pytest.mark.anyio
async def test_whoever_waits_is_told_when_the_tree_stands_still(family: Story):
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(family.progress.wait, lambda: bool(family.progress.held()))
            await anyio.wait_all_tasks_blocked()
            family.tell("a", RunPaused("needs setup"))
            await anyio.wait_all_tasks_blocked()
            family.tell("b", RunPaused("needs setup"))
    assert len(family.progress.held()) == 2
