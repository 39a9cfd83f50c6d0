"""Spans through a `TracerProvider` of the user's own."""

from __future__ import annotations

import random

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode
from spankit import ROOT, Story, share, spans_of

from shoal.errors import ConfigInvalid
from shoal.observability import _provided as provided
from shoal.observability import through
from shoal.runtime import Clock
from shoal.runtime.events import RunPaused

THEIRS, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Theirs:
    """A provider of the user's, and what it got."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        resource = Resource({"service.name": "theirs"})
        self.provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


def story(run_id: str = ROOT, status: str = "complete", **more: object) -> Story:
    told = Story(run_id)
    told.spawn(root=run_id, **more)
    told.enter()
    told.add(RunPaused("wait"))
    told.answer(told.ask("routing"), "routing", shares=(share("notes"),))
    told.leave("work", "tell")
    told.end(status, "because")
    return told


def feed(theirs: Theirs, *stories: Story) -> None:
    telemetry = through(theirs.provider)
    for told in stories:
        for event in told.events:
            telemetry(event)


def test_its_processors_get_our_spans_with_our_ids_and_its_resource():
    theirs, told = Theirs(), story(status="error")
    feed(theirs, told)
    for ours in spans_of(told):
        got = theirs.spans[ours.name]
        assert got.context is not None
        assert (f"{got.context.trace_id:032x}", f"{got.context.span_id:016x}") == (ours.trace_id, ours.span_id)
        assert (None if got.parent is None else f"{got.parent.span_id:016x}") == ours.parent_id
        assert (got.start_time, got.end_time) == (ours.start_ns, ours.end_ns)
        assert dict(got.attributes or {}) == dict(ours.attributes)
        assert [(event.name, event.timestamp) for event in got.events] == [(e.name, e.at_ns) for e in ours.events]
        assert [f"{link.context.span_id:016x}" for link in got.links] == [link.span_id for link in ours.links]
        assert got.resource.attributes["service.name"] == "theirs"
    assert theirs.spans["chat m"].kind is SpanKind.CLIENT
    ended = theirs.spans["invoke_agent desk"].status
    assert (ended.status_code, ended.description) == (StatusCode.ERROR, "because")


def test_their_own_tracers_keep_their_ids():
    theirs = Theirs()
    feed(theirs, story())
    with theirs.provider.get_tracer("theirs").start_as_current_span("request"):
        pass
    ours = {span.context.span_id for name, span in theirs.spans.items() if name != "request" and span.context}
    request = theirs.spans["request"].context
    assert request is not None
    assert request.span_id not in ours


def test_a_sampler_that_takes_nothing_gets_no_span():
    theirs = Theirs(ALWAYS_OFF)
    feed(theirs, story())
    assert not theirs.spans


def test_a_sampler_takes_whole_traces_or_nothing_of_them():
    theirs = Theirs(ParentBased(TraceIdRatioBased(0.5)))
    ids = Clock(unix=lambda: 1e9, random=random.Random(7))
    feed(theirs, *[story(ids.new_id()) for _ in range(40)])
    by_trace: dict[int, int] = {}
    for span in theirs.exporter.get_finished_spans():
        assert span.context is not None
        by_trace[span.context.trace_id] = by_trace.get(span.context.trace_id, 0) + 1
    assert 10 < len(by_trace) < 30
    assert set(by_trace.values()) == {4}


def test_a_run_that_joined_a_recorded_trace_is_recorded_whatever_the_ratio():
    theirs = Theirs(ParentBased(TraceIdRatioBased(0.0)))
    feed(theirs, story(trace=f"00-{THEIRS}-{PARENT}-01"))
    assert len(theirs.spans) == 4


def test_what_the_sampler_said_is_remembered_for_so_many_traces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(provided, "MOST_TRACES", 1)
    theirs = Theirs()
    feed(theirs, story("run-1"), story("run-2"), story("run-1"))
    assert len(theirs.exporter.get_finished_spans()) == 12
    sampler = getattr(theirs.provider.get_tracer("shoal.observability"), "sampler", None)
    assert isinstance(sampler, Sampler)
    assert sampler.get_description().startswith("WholeTraces(ParentBased")


def test_it_is_flushed_and_stays_open():
    theirs = Theirs()
    telemetry = through(theirs.provider)
    telemetry.close()
    for event in story().events:
        telemetry(event)
    assert telemetry.statistics().exported == len(theirs.spans) == 4
    assert "<Provided 4 spans>" in repr(telemetry)


def test_a_provider_that_is_switched_off_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with pytest.raises(ConfigInvalid, match="OTEL_SDK_DISABLED"):
        through(TracerProvider(shutdown_on_exit=False))


def test_content_goes_through_where_it_is_wanted():
    theirs = Theirs()
    telemetry = through(theirs.provider, capture_content=True)
    for event in story().events:
        telemetry(event)
    assert "gen_ai.output.messages" in (theirs.spans["chat m"].attributes or {})
