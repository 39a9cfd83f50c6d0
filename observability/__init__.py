"""Observers of events: spans, logs, traces as files and as text. Nothing below knows that it exists.

A span is computed from a run's events and from nothing else, so a live run, one that was resumed and an export of last
week's journal give the same trace. Importing this package imports no exporter and sets nothing up.
"""

from shoal.observability import names
from shoal.observability._current import current_traceparent
from shoal.observability._export import TraceFormat, export_trace
from shoal.observability._factories import exporting, metrics_otlp, otlp, prometheus, through
from shoal.observability._figures import figures_of
from shoal.observability._logs import Logs, logs
from shoal.observability._metrics import Metrics
from shoal.observability._project import Projection
from shoal.observability._propagate import Propagation
from shoal.observability._replay import trace_of
from shoal.observability._report import html_of
from shoal.observability._sinks import Sink, TelemetryStatistics
from shoal.observability._spans import Link, Span, SpanEvent, span_id_of
from shoal.observability._telemetry import Telemetry
from shoal.observability._tree import render_trace

__all__ = [
    "Link",
    "Logs",
    "Metrics",
    "Projection",
    "Propagation",
    "Sink",
    "Span",
    "SpanEvent",
    "Telemetry",
    "TelemetryStatistics",
    "TraceFormat",
    "current_traceparent",
    "export_trace",
    "exporting",
    "figures_of",
    "html_of",
    "logs",
    "metrics_otlp",
    "names",
    "otlp",
    "prometheus",
    "render_trace",
    "span_id_of",
    "through",
    "trace_of",
]
