"""Our spans as the SDK's own `ReadableSpan`, with our ids."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from shoal.observability import names
from shoal.observability._spans import Span
from shoal.observability._spans import StatusCode as OurCode

SCOPE = InstrumentationScope(names.SCOPE)
KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_PLAIN: dict[OurCode, Status] = {"ok": Status(StatusCode.OK), "unset": Status(StatusCode.UNSET)}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NOT_SAMPLED = TraceFlags(TraceFlags.DEFAULT)


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return *span* as exporters take it."""
    trace_id = int(span.trace_id, 16)
    return ReadableSpan(
        span.name,
        context_of(span, trace_id, span.span_id),
        None if span.parent_id is None else context_of(span, trace_id, span.parent_id, remote=span.remote_parent),
        resource,
        span.attributes,
        [Event(event.name, event.attributes, event.at_ns) for event in span.events] if span.events else (),
        links_of(span, trace_id) if span.links else (),
        KINDS[span.kind],
        status=status_of(span),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=SCOPE,
    )


def context_of(span: Span, trace_id: int, span_id: str, *, remote: bool = False) -> SpanContext:
    """Return the context of *span_id*, which is *span* or a neighbour of it."""
    return SpanContext(trace_id, int(span_id, 16), remote, _SAMPLED if span.sampled else _NOT_SAMPLED)


def links_of(span: Span, trace_id: int) -> list[Link]:
    """Return the links of *span*."""
    return [Link(context_of(span, trace_id, link.span_id), {names.LINK_KIND: link.kind}) for link in span.links]


def status_of(span: Span) -> Status:
    """Return the status of *span*; only an error has a description there, the reason of others is an attribute."""
    plain = _PLAIN.get(span.status)
    return plain or Status(StatusCode.ERROR, str(span.attributes.get(names.REASON, "")) or None)
