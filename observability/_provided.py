"""Spans through a `TracerProvider` of the user's own: its processors, its resource and its sampler stay as they are."""

from __future__ import annotations

from collections import OrderedDict
from typing import final

from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, set_span_in_context

from shoal.errors import ConfigInvalid
from shoal.observability import names
from shoal.observability._pipeline import within
from shoal.observability._readable import KINDS, context_of, links_of, status_of
from shoal.observability._spans import Span

_MOST_TRACES = 4_096


@final
class Provided:
    """Starts and ends each span on a tracer of *provider*, after the fact, with our ids and times.

    Args:
        provider: The user's.

    Raises:
        ConfigInvalid: It is switched off, or is not the SDK's.
    """

    def __init__(self, provider: TracerProvider) -> None:
        tracer = provider.get_tracer(names.SCOPE)
        if not isinstance(tracer, Tracer):
            raise ConfigInvalid(
                f"{provider!r} gives no tracer of OpenTelemetry's SDK (`OTEL_SDK_DISABLED` switches it off); "
                "use `otlp()`, or no telemetry"
            )
        self._provider = provider
        self._tracer = tracer
        # The tracer of this name is ours alone; other tracers of the provider keep their generator.
        self._ids = _GivenIds()
        tracer.id_generator = self._ids
        self._sampled: OrderedDict[str, bool] = OrderedDict()
        self._handed = 0

    def __repr__(self) -> str:
        return f"<Provided {self._handed} spans>"

    def emit(self, span: Span) -> None:
        """Hand *span* to the provider's processors, where its sampler takes the trace."""
        trace_id = int(span.trace_id, 16)
        self._ids.trace_id, self._ids.span_id = trace_id, int(span.span_id, 16)
        context = None
        if span.parent_id is not None:
            parent = context_of(span, trace_id, span.parent_id, remote=span.remote_parent)
            if not span.joined and not self._sampler_takes(span, trace_id):
                return
            context = set_span_in_context(NonRecordingSpan(parent))
        made = self._tracer.start_span(
            span.name, context, KINDS[span.kind], span.attributes, links_of(span, trace_id), span.start_ns
        )
        for event in span.events:
            made.add_event(event.name, event.attributes, event.at_ns)
        made.set_status(status_of(span))
        made.end(span.end_ns)
        self._handed += 1

    def _sampler_takes(self, span: Span, trace_id: int) -> bool:
        """Say whether the trace is recorded: asked once a trace, since children come before their root."""
        known = self._sampled.get(span.trace_id)
        if known is None:
            asked = self._tracer.sampler.should_sample(None, trace_id, span.name, KINDS[span.kind])
            known = self._sampled[span.trace_id] = asked.decision is Decision.RECORD_AND_SAMPLE
            if len(self._sampled) > _MOST_TRACES:
                self._sampled.popitem(last=False)
        return known

    def flush(self, timeout_s: float) -> bool:
        """Have the provider send what waits; return false where that took longer than *timeout_s* seconds."""
        return within(timeout_s, self._provider.force_flush, int)

    def close(self, timeout_s: float) -> None:
        """Have the provider send what waits; it stays open, since it is the user's."""
        self.flush(timeout_s)

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many spans were handed over; what becomes of them is the provider's business."""
        return self._handed, 0, 0, 0


@final
class _GivenIds(IdGenerator):
    """Gives the ids it is given."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return False
