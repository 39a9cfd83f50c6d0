"""The span of the user's own that is current where a run is spawned, which the run joins."""

from __future__ import annotations

import sys


def current_traceparent() -> str | None:
    """Return the W3C `traceparent` of the current span; `None` where none is current.

    It asks nothing and imports nothing in a program that does not use OpenTelemetry.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
