"""The queue in front of an exporter: bounded, counted, and never in the way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from spankit import Story

from shoal.observability import Span, Telemetry, exporting
from shoal.observability._factories import resource_of
from shoal.observability._pipeline import Pipeline
from shoal.observability._senders import sender_of
from shoal.observability._telemetry import MOST_EVENTS_WAITING, WAKING_EVENTS
from shoal.runtime import Event

pytestmark = pytest.mark.sockets


class Stuck(SpanExporter):
    """Exports nothing until it is let go, or shut down."""

    def __init__(self, says: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.says = says
        self.shut = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.begun.set()
        self.go.wait(20)
        return self.says

    def shutdown(self) -> None:
        self.shut += 1
        self.says = SpanExportResult.FAILURE
        self.go.set()


class Refusing(SpanExporter):
    """Fails, and says so as the SDK's own exporter does."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("HTTP %d", 503)
        if self._error is not None:
            raise self._error
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        pass


def run(telemetry: Telemetry, number: int = 1, turns: int = 1) -> None:
    """Feed one whole run: *turns* requests, and three spans more."""
    story = Story(f"run-{number}")
    story.spawn(root=f"run-{number}")
    story.enter()
    for _ in range(turns):
        story.answer(story.ask())
    story.leave()
    story.end()
    for event in story.events:
        telemetry(event)


def test_spans_reach_the_exporter_as_the_sdk_knows_them():
    exporter = InMemorySpanExporter()
    telemetry = exporting(exporter, service_name="newsroom")
    run(telemetry)
    telemetry.close()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    chat, stage = spans["chat m"], spans["stage work"]
    assert chat.parent is not None
    assert stage.context is not None
    assert chat.parent.span_id == stage.context.span_id
    assert chat.resource.attributes["service.name"] == "newsroom"
    assert chat.status.is_ok
    assert (chat.end_time or 0) - (chat.start_time or 0) == 1_000_000_000


def test_what_was_exported_is_counted():
    telemetry = exporting(InMemorySpanExporter())
    run(telemetry, turns=10)
    telemetry.close()
    counted = telemetry.statistics()
    assert (counted.spans, counted.exported, counted.waiting, counted.dropped) == (13, 13, 0, 0)


@pytest.mark.anyio
async def test_flushing_sends_what_waits():
    exporter = InMemorySpanExporter()
    telemetry = exporting(exporter, every_s=3600)
    run(telemetry)
    assert await telemetry.flush()
    assert len(exporter.get_finished_spans()) == 4
    telemetry.close()
    assert await telemetry.flush()


def test_a_full_queue_drops_and_counts_and_tells_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    exporter = Stuck()
    telemetry = exporting(exporter, queue_spans=8, batch_spans=8)
    run(telemetry, turns=5)
    exporter.begun.wait(10)
    run(telemetry, 2, turns=20)
    counted = telemetry.statistics()
    assert (counted.spans, counted.waiting, counted.dropped) == (31, 16, 15)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "8 spans wait and the receiver is slow"
    ]
    exporter.go.set()
    telemetry.close()
    assert telemetry.statistics().exported == 16
    assert caplog.records[-1].getMessage().startswith("15 spans were not exported (16 exported)")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("error", [None, OSError("no route")])
def test_of_failures_the_first_is_told_and_all_are_counted(error: Exception | None, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    telemetry = exporting(Refusing(error), batch_spans=2)
    run(telemetry, turns=10)
    telemetry.close()
    assert telemetry.statistics().failed == 13
    first, last = [record.getMessage() for record in caplog.records]
    assert first.startswith(f"2 spans could not be exported: {'OSError: no route' if error else 'HTTP 503'}")
    assert last.startswith("13 spans were not exported")
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("shoal.observability", "WARNING"),
        ("shoal.observability", "INFO"),
    ]


def test_a_failure_that_says_nothing_is_told_all_the_same(caplog: pytest.LogCaptureFixture):
    class Mute(Refusing):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.FAILURE

    telemetry = exporting(Mute())
    run(telemetry)
    telemetry.close()
    assert "it said no more" in caplog.records[0].getMessage()


def test_what_other_exporters_of_the_process_log_is_left_alone(caplog: pytest.LogCaptureFixture):
    telemetry = exporting(InMemorySpanExporter())
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("theirs")
    telemetry.close()
    assert [record.getMessage() for record in caplog.records] == ["theirs"]
    assert not logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").filters


def test_closing_gives_up_on_an_exporter_that_hangs_and_shuts_it_down_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    exporter = Stuck()
    telemetry = exporting(exporter, batch_spans=1)
    run(telemetry)
    exporter.begun.wait(10)
    telemetry.close(timeout_s=0.05)
    telemetry.close(timeout_s=0.05)
    assert exporter.shut == 1
    assert telemetry.statistics().exported == 0
    assert "were not exported" in caplog.records[-1].getMessage()
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_closing_waits_as_long_as_the_receiver_gets_on():
    class Slow(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            threading.Event().wait(0.03)
            return super().export(spans)

    telemetry = exporting(Slow(), batch_spans=1, every_s=3600)
    run(telemetry, turns=10)
    telemetry.close(timeout_s=0.2)
    assert telemetry.statistics().exported == 13


def test_what_comes_after_closing_is_dropped_and_counted(caplog: pytest.LogCaptureFixture):
    telemetry = exporting(InMemorySpanExporter())
    telemetry.close()
    run(telemetry)
    assert telemetry.statistics().dropped == 4
    assert not caplog.records


def test_it_shows_its_state():
    pipeline = Pipeline(sender_of(InMemorySpanExporter(), resource_of(None)))
    assert repr(pipeline) == "<Pipeline 0 exported, 0 waiting, 0 dropped, 0 failed>"
    pipeline.close(1)


def test_events_are_put_down_and_their_spans_made_in_the_thread():
    exporter = InMemorySpanExporter()
    telemetry = exporting(exporter, every_s=3600)
    run(telemetry)
    assert len(telemetry._waiting) > 0
    assert telemetry.statistics().spans == 4
    assert not telemetry._waiting
    telemetry.close()


def test_no_more_events_wait_than_may_however_slow_the_receiver_is():
    exporter = Stuck()
    telemetry = exporting(exporter, batch_spans=1)
    run(telemetry)
    exporter.begun.wait(10)
    most = 0
    for number in range(2, 40):
        run(telemetry, number, turns=100)
        most = max(most, len(telemetry._waiting))
    assert 0 < most <= MOST_EVENTS_WAITING
    exporter.go.set()
    telemetry.close()
    counted = telemetry.statistics()
    assert counted.exported == counted.spans == 4 + 38 * 103


def test_a_span_goes_out_in_time_however_often_the_thread_is_woken():
    exporter = InMemorySpanExporter()
    telemetry = exporting(exporter, every_s=0.05)
    run(telemetry, turns=WAKING_EVENTS)
    for number in range(2, 1000):
        run(telemetry, number, turns=WAKING_EVENTS // 2)
        if exporter.get_finished_spans():
            break
    assert len(exporter.get_finished_spans()) > 0
    telemetry.close()


def test_a_fault_in_the_thread_costs_the_spans_of_one_run(monkeypatch: pytest.MonkeyPatch):
    exporter = InMemorySpanExporter()
    telemetry = exporting(exporter)
    feed = telemetry._projection.feed

    def faulty(event: Event) -> Sequence[Span]:
        if event.run_id == "run-1" and event.seq == 3:
            raise ZeroDivisionError
        return feed(event)

    monkeypatch.setattr(telemetry._projection, "feed", faulty)
    run(telemetry, 1)
    run(telemetry, 2)
    telemetry.close()
    counted = telemetry.statistics()
    assert (counted.spans, counted.exported, counted.left_out) == (4, 4, 1)
    assert counted.faults == 1
