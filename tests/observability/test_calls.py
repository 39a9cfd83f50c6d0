"""Spans of tool calls and of jobs of the lanes."""

from __future__ import annotations

import pytest
from spankit import Story, named, one, parent_of, spans_of

from shoal.observability import Span
from shoal.providers import Text
from shoal.runtime.events import (
    LaneCompleted,
    LaneDegraded,
    LaneStarted,
    ToolCallCompleted,
    ToolCallStarted,
)


@pytest.fixture
def told() -> Story:
    """A run whose model has asked for two tools."""
    story = Story()
    story.spawn()
    story.enter()
    story.answer(story.ask(), calls=("look", "write"))
    return story


def reply(story: Story) -> int:
    return next(event.seq for event in story.events if event.kind == "InferenceCompleted")


def test_a_call_lasts_from_its_start_to_its_result(told: Story):
    told.add(ToolCallStarted(reply(told), 1))
    told.add(ToolCallCompleted(reply(told), 1, Text.of("äb")))
    span = one(spans_of(told), "execute_tool write")
    assert span.end_ns - span.start_ns == 1_000_000_000
    assert span.attributes["gen_ai.operation.name"] == "execute_tool"
    assert span.attributes["gen_ai.tool.name"] == "write"
    assert span.attributes["gen_ai.tool.call.id"] == f"call_{reply(told)}_1"
    assert span.attributes["shoal.result.bytes"] == 3
    assert span.attributes["shoal.stage"] == "work"


def test_a_call_that_the_run_answers_itself_has_a_span_of_almost_no_length(told: Story):
    told.add(ToolCallCompleted(reply(told), 0, Text.of("done")))
    span = one(spans_of(told), "execute_tool look")
    assert (span.end_ns - span.start_ns, span.status) == (1, "ok")


@pytest.mark.parametrize(
    ("completed", "outcome", "error"),
    [
        ({"is_error": True}, "failed", "tool_error"),
        ({"is_error": True, "gate": "permission"}, "stopped", "permission"),
        ({"is_error": True, "interrupted": True}, "interrupted", "interrupted"),
    ],
)
def test_a_call_that_came_to_nothing_says_why(told: Story, completed: dict[str, object], outcome: str, error: str):
    told.add(ToolCallCompleted(reply(told), 0, Text.of("the secret"), **completed))
    span = one(spans_of(told), "execute_tool look")
    assert (span.status, span.attributes["shoal.outcome"], span.attributes["error.type"]) == ("error", outcome, error)
    assert "secret" not in str(span.attributes)


def test_a_call_of_a_reply_that_is_not_known_is_called_unknown(told: Story):
    told.add(ToolCallCompleted(99, 0, Text.of("done")))
    told.add(ToolCallCompleted(reply(told), 7, Text.of("done")))
    assert len(named(spans_of(told), "execute_tool unknown")) == 2


def test_calls_are_counted_by_stage_and_by_run(told: Story):
    told.add(ToolCallCompleted(reply(told), 0, Text.of("done")))
    told.leave("work", "tell")
    told.enter("tell")
    told.answer(told.ask(), calls=("look",))
    told.add(ToolCallCompleted(len(told.events), 0, Text.of("done")))
    told.leave("tell")
    told.end()
    spans = spans_of(told)
    counted = [one(spans, name).attributes["shoal.tool_calls"] for name in ("stage work", "stage tell")]
    assert counted == [1, 1]
    assert one(spans, "invoke_agent desk").attributes["shoal.tool_calls"] == 2


# --- jobs


def lane(story: Story) -> Span:
    return one(spans_of(story), "lane.compaction")


def test_a_job_that_the_stage_waits_for_is_its_child(told: Story):
    job = told.add(LaneStarted("compaction", "notes", (1, 2, 3)))
    told.add(LaneCompleted("compaction", job, "notes"))
    told.leave()
    spans = spans_of(told)
    assert parent_of(spans, lane(told)).name == "stage work"
    assert (lane(told).attributes["shoal.lane.region"], lane(told).attributes["shoal.lane.entries"]) == ("notes", 3)
    assert not lane(told).links


def test_a_job_beside_which_the_run_goes_on_hangs_below_the_run_and_points_to_where_it_was_ordered(told: Story):
    job = told.add(LaneStarted("compaction", "notes", (1,)))
    told.answer(told.ask())
    told.add(LaneCompleted("compaction", job, "notes"))
    told.leave()
    told.end()
    spans = spans_of(told)
    assert parent_of(spans, lane(told)).name == "invoke_agent desk"
    stage = one(spans, "stage work")
    assert [(link.span_id, link.kind) for link in lane(told).links] == [(stage.span_id, "ordered_by")]


def test_a_job_beside_which_a_call_begins_hangs_below_the_run(told: Story):
    job = told.add(LaneStarted("compaction", "notes", (1,)))
    told.add(ToolCallStarted(reply(told), 0))
    told.add(LaneCompleted("compaction", job, "notes"))
    told.end()
    assert parent_of(spans_of(told), lane(told)).name == "invoke_agent desk"


def test_nobody_waits_for_a_title(told: Story):
    job = told.add(LaneStarted("titling"))
    told.add(LaneCompleted("titling", job))
    told.leave()
    told.end()
    spans = spans_of(told)
    title = one(spans, "lane.titling")
    assert parent_of(spans, title).name == "invoke_agent desk"
    assert [link.span_id for link in title.links] == [one(spans, "stage work").span_id]


def test_a_job_that_outlives_its_stage_hangs_below_the_run(told: Story):
    job = told.add(LaneStarted("compaction", "notes", (1,)))
    told.leave()
    told.add(LaneCompleted("compaction", job, "notes"))
    told.end()
    spans = spans_of(told)
    assert parent_of(spans, lane(told)).name == "invoke_agent desk"


def test_a_job_that_is_ordered_outside_any_stage_points_nowhere():
    story = Story()
    story.spawn()
    job = story.add(LaneStarted("compaction", "notes", (1,)))
    story.add(LaneCompleted("compaction", job, "notes"))
    assert (lane(story).parent_id is not None, lane(story).links) == (True, ())


def test_a_job_that_nobody_needed_any_more_is_no_error(told: Story):
    job = told.add(LaneStarted("compaction", "notes", (1,)))
    told.add(LaneDegraded("compaction", job, "notes", "dropped"))
    assert (lane(told).status, lane(told).attributes["shoal.outcome"]) == ("ok", "dropped")


def test_a_summary_that_would_not_have_been_smaller_says_by_how_much(told: Story):
    job = told.add(LaneStarted("compaction", "notes", (1,)))
    told.add(LaneDegraded("compaction", job, "notes", "not_smaller", "the summary is not smaller", -20))
    assert (lane(told).status, lane(told).attributes["shoal.lane.bytes_saved"]) == ("error", -20)


def test_what_a_model_said_is_not_in_the_reason_of_a_job_that_failed(told: Story):
    job = told.add(LaneStarted("titling"))
    told.add(LaneDegraded("titling", job, "", "nonsense", "'the secret' is no title"))
    assert one(spans_of(told), "lane.titling").attributes["shoal.reason"] == "nonsense"
    shown = one(spans_of(told, capture_content=True), "lane.titling").attributes["shoal.reason"]
    assert shown == "nonsense: 'the secret' is no title"


def test_the_end_of_a_job_that_is_not_known_changes_nothing(told: Story):
    told.add(LaneCompleted("titling", 99), LaneDegraded("titling", 98, "", "timeout"))
    assert not named(spans_of(told), "lane.titling")


@pytest.mark.parametrize(
    ("status", "outcome"), [("cancelled", "cancelled"), ("error", "error"), ("complete", "dropped")]
)
def test_what_a_run_leaves_open_ends_with_it(told: Story, status: str, outcome: str):
    told.add(ToolCallStarted(reply(told), 0))
    told.ask("titling", told.add(LaneStarted("titling")))
    told.end(status)
    ended = {span.name: span.attributes["shoal.outcome"] for span in spans_of(told)}
    assert ended["execute_tool look"] == ended["lane.titling"] == outcome
    assert ended["invoke_agent desk"] == ended["stage work"] == status


def test_calls_in_an_answer_to_a_lane_are_not_those_of_the_stage(told: Story):
    told.answer(told.ask("compaction"), "compaction", calls=("other",))
    told.add(ToolCallStarted(reply(told), 0), ToolCallCompleted(reply(told), 0, Text.of("seen")))
    assert [span.name for span in spans_of(told) if span.name.startswith("execute_tool")] == ["execute_tool look"]
