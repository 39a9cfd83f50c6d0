"""Spans through a `TracerProvider` of the user's own: its processors, its resource and its sampler stay as they are."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, TraceState, set_span_in_context
from opentelemetry.util.types import Attributes

from shoal.errors import ConfigInvalid
from shoal.observability import names
from shoal.observability._pipeline import within
from shoal.observability._readable import KINDS, context_of, links_of, status_of
from shoal.observability._spans import Span

MOST_TRACES = 4_096
"""How many traces the sampler's answer is remembered for."""


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
        # The tracer of this name is ours alone; other tracers of the provider keep their generator and sampler.
        self._ids = _GivenIds()
        self._sampler = _WholeTraces(provider.sampler)
        tracer.id_generator, tracer.sampler = self._ids, self._sampler
        self._handed = 0

    def __repr__(self) -> str:
        return f"<Provided {self._handed} spans>"

    def emit(self, span: Span) -> None:
        """Hand *span* to the provider's processors, where its sampler takes the trace."""
        trace_id = int(span.trace_id, 16)
        self._ids.trace_id, self._ids.span_id = trace_id, int(span.span_id, 16)
        self._sampler.joined = span.joined
        context = Context()
        if span.parent_id is not None:
            parent = context_of(span, trace_id, span.parent_id, remote=span.remote_parent)
            context = set_span_in_context(NonRecordingSpan(parent), context)
        made = self._tracer.start_span(
            span.name, context, KINDS[span.kind], span.attributes, links_of(span, trace_id), span.start_ns
        )
        if not made.is_recording():
            return
        for event in span.events:
            made.add_event(event.name, event.attributes, event.at_ns)
        made.set_status(status_of(span))
        made.end(span.end_ns)
        self._handed += 1

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
class _WholeTraces(Sampler):
    """Asks the user's sampler once a trace: spans come when they end, children first, and all share one answer.

    Args:
        theirs: The user's sampler.
    """

    def __init__(self, theirs: Sampler) -> None:
        self._theirs = theirs
        self._known: OrderedDict[int, Decision] = OrderedDict()
        self.joined = False
        """The span at hand is in a trace of the user's own, whose flag decides."""

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        if self.joined:
            return self._theirs.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        decision = self._known.get(trace_id)
        if decision is None:
            # Asked about a digest: the SDK's ratio compares the low 64 bits, and in a UUID two of those never change.
            spread = int.from_bytes(hashlib.sha256(trace_id.to_bytes(16, "big")).digest()[:16], "big")
            decision = self._theirs.should_sample(Context(), spread, name, kind, attributes).decision
            self._known[trace_id] = decision
            if len(self._known) > MOST_TRACES:
                self._known.popitem(last=False)
        return SamplingResult(decision, attributes)

    def get_description(self) -> str:
        return f"WholeTraces({self._theirs.get_description()})"


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
