"""A trace as an OTLP JSON file: what collectors read from a file, and take over HTTP as `application/json`.

Source: OpenTelemetry protocol specification 1.9, "JSON Protobuf encoding": ids are hex, 64-bit numbers are strings,
enums are numbers, names are camel case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.observability import names
from shoal.observability._otlp_wire import IS_REMOTE, KINDS, KNOWS_REMOTE, STATUSES
from shoal.observability._spans import Link, Span, SpanEvent, Value

_encode = msgspec.json.Encoder().encode


def otlp_json(spans: Sequence[Span], resource: Mapping[str, Value]) -> bytes:
    """Return *spans* as one `TracesData` object in OTLP JSON.

    Args:
        spans: In the order in which they are to stand there.
        resource: What they come from, such as `service.name`.
    """
    scope = {"scope": {"name": names.SCOPE}, "spans": [_span(span) for span in spans]}
    return _encode({"resourceSpans": [{"resource": {"attributes": _pairs(resource)}, "scopeSpans": [scope]}]})


def _span(span: Span) -> dict[str, Any]:
    made: dict[str, Any] = {"traceId": span.trace_id, "spanId": span.span_id}
    if span.parent_id is not None:
        made["parentSpanId"] = span.parent_id
    # As the SDK's exporter has them: a receiver that gets a span live and from a file can tell that it is the same.
    made["flags"] = KNOWS_REMOTE | (IS_REMOTE if span.remote_parent else 0)
    made["name"] = span.name
    made["kind"] = KINDS[span.kind]
    made["startTimeUnixNano"] = str(span.start_ns)
    made["endTimeUnixNano"] = str(span.end_ns)
    made["attributes"] = _pairs(span.attributes)
    if span.events:
        made["events"] = [_event(event) for event in span.events]
    if span.links:
        made["links"] = [_link(span, link) for link in span.links]
    made["status"] = _status(span)
    return made


def _status(span: Span) -> dict[str, Any]:
    code = STATUSES[span.status]
    reason = span.attributes.get(names.REASON)
    return {"code": code, "message": reason} if span.status == "error" and reason else {"code": code}


def _event(event: SpanEvent) -> dict[str, Any]:
    return {"timeUnixNano": str(event.at_ns), "name": event.name, "attributes": _pairs(event.attributes)}


def _link(span: Span, link: Link) -> dict[str, Any]:
    kind = _pairs({names.LINK_KIND: link.kind})
    return {"traceId": span.trace_id, "spanId": link.span_id, "attributes": kind, "flags": KNOWS_REMOTE}


def _pairs(attributes: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case _:
            return {"arrayValue": {"values": [_value(item) for item in value]}}
