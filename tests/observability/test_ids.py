"""Ids of traces and spans."""

from __future__ import annotations

import hashlib
import sys
import uuid

import pytest
from spankit import CHILD, LISTS, ROOT, Story, blueprint, fanned, one, parent_of, played, recomputed, spans_of

from shoal.blueprints import Stage
from shoal.observability import current_traceparent, span_id_of, trace_of
from shoal.runtime import MemoryJournal
from shoal.runtime.events import ChildSpawned
from shoal.testing import Say, ScriptedProvider, call

THEIRS, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def story(**more: object) -> Story:
    told = Story()
    told.spawn(**more)
    told.end()
    return told


def ids_of(journal: MemoryJournal) -> list[str]:
    """Work the ids of all spans out from a journal, with nothing but the rule: what opens a span, and its name."""
    ids: list[str] = []
    for row in journal.runs():
        calls: dict[int, list[str]] = {}
        begun: set[tuple[int, int]] = set()
        for event in journal.read(row.run_id):
            said, name = event.payload, None
            match event.kind:
                case "RunSpawned":
                    name = f"invoke_agent {said.name}"
                case "StageEntered":
                    name = f"stage {said.stage}"
                case "InferenceStarted":
                    name = f"chat {said.model}"
                case "InferenceCompleted":
                    calls[event.seq] = [made.name for made in said.calls]
                case "ToolCallStarted" | "ToolCallCompleted" if (said.source, said.index) not in begun:
                    begun.add((said.source, said.index))
                    name = f"execute_tool {calls[said.source][said.index]}"
                case "TransitionChosen":
                    name = f"transition {said.source} → {said.target or '(end)'}"
                case "LaneStarted":
                    name = f"lane.{said.lane}"
                case "ChildSpawned":
                    name = f"spawn {said.name}"
            if name is not None:
                ids.append(hashlib.sha256(f"{row.run_id}:{event.seq}:{name}".encode()).hexdigest()[:16])
    return sorted(ids)


@pytest.mark.anyio
async def test_every_span_id_can_be_worked_out_from_the_journal_alone():
    provider = ScriptedProvider(
        Say("", (call("list_dir"), call("context_append", region="notes", content="x"))), "read it", "told"
    )
    made = blueprint(Stage("read", available_tools=(*LISTS, "context_append")), Stage("tell"))
    journal, run_id = await played(made, provider)
    assert sorted(span.span_id for span in trace_of(journal, run_id)) == ids_of(journal)


@pytest.mark.anyio
async def test_the_ids_of_a_whole_tree_can_be_worked_out_from_the_journal_alone():
    items = [{"id": "a", "task": "one"}, {"id": "b", "task": "two"}]
    provider = ScriptedProvider(call("fan_out", items=items), "a says", "b says", purposes={"titling": "A title"})
    journal, run_id = await played(fanned(), provider)
    assert sorted(span.span_id for span in trace_of(journal, run_id)) == ids_of(journal)


def test_the_trace_is_the_root_run_and_its_root_span_has_no_parent():
    [span] = spans_of(story())
    assert (span.trace_id, span.parent_id) == (uuid.UUID(ROOT).hex, None)
    assert span.span_id == span_id_of(ROOT, 1, "invoke_agent desk")


def test_a_run_of_a_name_that_is_no_uuid_has_a_trace_of_its_own():
    told = Story("run-7")
    told.spawn(root="run-7")
    told.end()
    [span] = spans_of(told)
    assert len(span.trace_id) == 32
    assert int(span.trace_id, 16)


def test_a_run_joins_the_trace_of_the_span_that_was_current():
    [span] = spans_of(story(trace=f"00-{THEIRS}-{PARENT}-01"))
    assert (span.trace_id, span.parent_id) == (THEIRS, PARENT)
    assert (span.joined, span.sampled, span.remote_parent) == (True, True, True)


def test_a_trace_that_is_not_recorded_is_joined_and_not_recorded():
    [span] = spans_of(story(trace=f"00-{THEIRS}-{PARENT}-00"))
    assert (span.trace_id, span.sampled) == (THEIRS, False)


@pytest.mark.parametrize(
    "trace",
    [
        "",
        "nonsense",
        f"ff-{THEIRS}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{THEIRS}-{'0' * 16}-01",
        f"00-{THEIRS.upper()}-{PARENT}-01",
        f"00-{THEIRS}-{PARENT}",
    ],
)
def test_a_traceparent_that_is_not_valid_is_as_none(trace: str):
    [span] = spans_of(story(trace=trace))
    assert (span.trace_id, span.parent_id, span.joined) == (uuid.UUID(ROOT).hex, None, False)


def test_a_traceparent_of_a_later_version_is_read_as_far_as_it_is_known():
    [span] = spans_of(story(trace=f"01-{THEIRS}-{PARENT}-01-more"))
    assert span.trace_id == THEIRS


def test_a_child_is_in_the_trace_that_its_root_joined():
    above, below = Story(), Story(CHILD)
    above.spawn(trace=f"00-{THEIRS}-{PARENT}-01")
    above.add(ChildSpawned(CHILD, "worker"))
    below.spawn("worker", parent=ROOT)
    below.end()
    above.end()
    spans = spans_of(above, below)
    child = one(spans, "invoke_agent worker")
    assert (child.trace_id, child.remote_parent) == (THEIRS, False)
    assert parent_of(spans, child).name == "invoke_agent desk"


def test_a_child_that_nobody_waits_for_hangs_below_the_run_and_points_to_its_spawn():
    above, below = Story(), Story(CHILD)
    above.spawn()
    above.enter()
    above.add(ChildSpawned(CHILD, "worker"))
    below.spawn("worker", parent=ROOT)
    below.end()
    above.end()
    spans = spans_of(above, below)
    child, spawned = one(spans, "invoke_agent worker"), one(spans, "spawn worker")
    assert parent_of(spans, child).name == parent_of(spans, spawned).name == "invoke_agent desk"
    assert [(link.span_id, link.kind) for link in child.links] == [(spawned.span_id, "spawned_by")]


def test_a_child_whose_parent_is_not_at_hand_is_a_root_in_the_trace_of_its_tree():
    below = Story(CHILD)
    below.spawn("worker", parent=ROOT, trace=f"00-{THEIRS}-{PARENT}-01")
    below.end()
    [span] = spans_of(below)
    assert (span.trace_id, span.parent_id) == (uuid.UUID(ROOT).hex, None)


def test_a_child_is_found_from_any_run_of_its_tree():
    journal = MemoryJournal()
    above, below = Story(), Story(CHILD)
    above.spawn()
    above.add(ChildSpawned(CHILD, "worker"))
    below.spawn("worker", parent=ROOT)
    for event in (*above.events, *below.events):
        journal.append(event)
    journal.close()
    assert trace_of(journal, CHILD) == trace_of(journal, ROOT)


def test_a_name_that_is_too_long_is_cut_and_its_id_is_that_of_the_cut_name():
    told = Story()
    told.spawn("x" * 500)
    told.end()
    [span] = spans_of(told)
    assert len(span.name) == 160
    assert span.span_id == recomputed(span)


def test_where_no_span_is_current_there_is_nothing_to_join():
    import opentelemetry.trace

    assert not opentelemetry.trace.get_current_span().get_span_context().is_valid
    assert current_traceparent() is None


def test_a_program_that_does_not_use_opentelemetry_has_nothing_to_join(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    assert current_traceparent() is None
    assert "opentelemetry.trace" not in sys.modules


def test_the_current_span_is_what_a_run_joins():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import use_span

    span = TracerProvider(shutdown_on_exit=False).get_tracer("theirs").start_span("request")
    with use_span(span):
        trace = current_traceparent()
    [joined] = spans_of(story(trace=trace))
    assert int(joined.trace_id, 16) == span.get_span_context().trace_id
    assert int(joined.parent_id or "", 16) == span.get_span_context().span_id
