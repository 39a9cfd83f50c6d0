"""What holds for the spans of any tree of runs."""

from __future__ import annotations

from collections import Counter

import pytest
from drawn_events import merged, trees
from hypothesis import given
from hypothesis import strategies as st
from spankit import Story, by_id, recomputed

from shoal.observability import Projection, Span, trace_of
from shoal.runtime import Event, MemoryJournal
from shoal.runtime.events import ChildSpawned, RunEnded

pytestmark = pytest.mark.wall_limit(600)  # nightly draws two thousand trees


def whole(stories: list[Story]) -> tuple[Span, ...]:
    journal = MemoryJournal()
    for story in stories:
        for event in story.events:
            journal.append(event)
    journal.close()
    return trace_of(journal, stories[0].run_id)


def fed(events: list[Event]) -> list[Span]:
    projection = Projection()
    return [span for event in events for span in projection.feed(event)]


@given(trees())
def test_ids_are_unique_and_follow_the_rule(stories: list[Story]):
    spans = whole(stories)
    assert [span.span_id for span in spans] == [recomputed(span) for span in spans]
    assert max(Counter(span.span_id for span in spans).values()) == 1


@given(trees())
def test_every_parent_and_every_linked_span_is_in_the_trace(stories: list[Story]):
    spans = whole(stories)
    here = {span.span_id for span in spans}
    assert {span.parent_id for span in spans} <= {*here, None}
    assert {link.span_id for span in spans for link in span.links} <= here
    assert [span.parent_id for span in spans].count(None) == 1


@given(trees())
def test_every_span_lasts_and_begins_no_earlier_than_its_parent(stories: list[Story]):
    spans = {span.span_id: span for span in whole(stories)}
    for span in spans.values():
        parent = spans.get(span.parent_id or "", span)
        assert span.start_ns < span.end_ns
        assert parent.start_ns <= span.start_ns
        assert all(span.start_ns <= event.at_ns <= span.end_ns for event in span.events)


@given(trees())
def test_a_parent_in_the_same_run_outlives_its_children(stories: list[Story]):
    spans = {span.span_id: span for span in whole(stories)}
    for span in spans.values():
        parent = spans.get(span.parent_id or "", span)
        assert parent.run_id != span.run_id or span.end_ns <= parent.end_ns


@given(trees())
def test_a_run_that_is_over_leaves_no_span_open_and_each_says_how_it_ended(stories: list[Story]):
    over = {story.run_id for story in stories if any(isinstance(e.payload, RunEnded) for e in story.events)}
    for span in whole(stories):
        assert (span.attributes["shoal.outcome"] == "unfinished") <= (span.run_id not in over)
        assert (span.status == "error") == ("error.type" in span.attributes)


@given(trees())
def test_every_event_that_opens_a_span_has_one(stories: list[Story]):
    openers = {"RunSpawned", "StageEntered", "InferenceStarted", "ToolCallStarted", "LaneStarted", "TransitionChosen"}
    opened = {(s.run_id, e.seq) for s in stories for e in s.events if e.kind in openers}
    spans = {(span.run_id, span.attributes["shoal.seq"]) for span in whole(stories)}
    assert opened <= spans


@given(st.data())
def test_the_order_in_which_runs_of_a_tree_become_durable_does_not_matter(data: st.DataObject):
    stories = data.draw(trees())
    one_way, another = fed(data.draw(merged(stories))), fed(data.draw(merged(stories)))
    assert by_id(one_way) == by_id(another)


@given(trees())
def test_what_is_exported_twice_is_the_same(stories: list[Story]):
    assert whole(stories) == whole(stories)


@given(st.data())
def test_live_spans_are_those_that_the_journal_gives_of_what_is_over(data: st.DataObject):
    stories = data.draw(trees())
    live = fed(data.draw(merged(stories)))
    finished = [span for span in whole(stories) if span.attributes["shoal.outcome"] != "unfinished"]
    assert {span.span_id for span in live} <= {span.span_id for span in finished}
    assert by_id(live) == by_id([span for span in finished if span.span_id in {one.span_id for one in live}])


@given(trees())
def test_the_cost_of_requests_adds_up_to_the_cost_of_their_run(stories: list[Story]):
    spans = whole(stories)
    for run in (span for span in spans if span.name.startswith("invoke_agent")):
        asked = [s for s in spans if s.run_id == run.run_id and s.name.startswith("chat")]
        paid = sum(span.attributes.get("operation.cost", 0.0) for span in asked)
        assert abs(paid - run.attributes["shoal.cost.usd"]) < 1e-9


@given(trees())
def test_attributes_are_bounded(stories: list[Story]):
    for span in whole(stories):
        assert len(span.attributes) < 128
        assert len(span.events) <= 65
        assert all(len(value) <= 512 for value in span.attributes.values() if isinstance(value, str | tuple))


@given(trees())
def test_a_child_that_is_waited_for_hangs_below_the_call(stories: list[Story]):
    spans = {span.span_id: span for span in whole(stories)}
    runs = {span.run_id: span for span in spans.values() if span.name.startswith("invoke_agent")}
    for story in stories:
        for event in story.events:
            if isinstance(event.payload, ChildSpawned):
                parent = spans[runs[event.payload.child].parent_id or ""]
                assert parent.name.startswith("execute_tool" if event.payload.waited else "invoke_agent")
