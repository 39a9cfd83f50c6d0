"""A trace as a Jaeger JSON file: what the Upload tab of Jaeger's page reads, with no server behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from shoal.observability import names
from shoal.observability._spans import Span, SpanEvent, Value

_PROCESS = "p1"
_encode = msgspec.json.Encoder().encode


def jaeger_json(spans: Sequence[Span], resource: Mapping[str, Value]) -> bytes:
    """Return *spans*, of one trace, as Jaeger's own JSON. Times are microseconds.

    Args:
        spans: In the order in which they are to stand there.
        resource: What they come from; `service.name` names the process, the rest are its tags.
    """
    here = frozenset(span.span_id for span in spans)
    tags = {key: value for key, value in resource.items() if key != "service.name"}
    process = {"serviceName": resource["service.name"], "tags": _tags(tags)}
    trace_ids = dict.fromkeys(span.trace_id for span in spans)
    data = [
        {
            "traceID": trace_id,
            "spans": [_span(span, here) for span in spans if span.trace_id == trace_id],
            "processes": {_PROCESS: process},
            "warnings": None,
        }
        for trace_id in trace_ids
    ]
    return _encode({"data": data, "total": 0, "limit": 0, "offset": 0, "errors": None})


def _span(span: Span, here: frozenset[str]) -> dict[str, Any]:
    return {
        "traceID": span.trace_id,
        "spanID": span.span_id,
        "flags": 1 if span.sampled else 0,
        "operationName": span.name,
        "references": _references(span, here),
        "startTime": span.start_ns // 1000,
        "duration": (span.end_ns - span.start_ns) // 1000,
        "tags": _tags({**span.attributes, **_of_status(span), "span.kind": span.kind}),
        "logs": [_log(event) for event in span.events],
        "processID": _PROCESS,
        "warnings": None,
    }


def _references(span: Span, here: frozenset[str]) -> list[dict[str, str]]:
    """Return parent and links; a reference to a span that is not in the file would be shown as a fault."""
    parents = [("CHILD_OF", span.parent_id)] if span.parent_id is not None else []
    wanted = [*parents, *(("FOLLOWS_FROM", link.span_id) for link in span.links)]
    return [{"refType": kind, "traceID": span.trace_id, "spanID": to} for kind, to in wanted if to in here]


def _of_status(span: Span) -> dict[str, Value]:
    if span.status == "error":
        said = str(span.attributes.get(names.REASON, ""))
        return {"otel.status_code": "ERROR", "otel.status_description": said, "error": True}
    return {"otel.status_code": "OK"} if span.status == "ok" else {}


def _log(event: SpanEvent) -> dict[str, Any]:
    return {"timestamp": event.at_ns // 1000, "fields": _tags({"event": event.name, **event.attributes})}


def _tags(attributes: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, **_value(value)} for key, value in attributes.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"type": "bool", "value": value}
        case int():
            return {"type": "int64", "value": value}
        case float():
            return {"type": "float64", "value": value}
        case str():
            return {"type": "string", "value": value}
        case _:
            return {"type": "string", "value": f"[{','.join([_listed(item) for item in value])}]"}


def _listed(item: str | float) -> str:
    """Return *item* as JSON the way Jaeger itself writes it into a list, so that both files of a trace say the same.

    Source: Go's `encoding/json`, "Marshal": numbers as ES6 has them.
    """
    if not isinstance(item, float):
        return _encode(item).decode()
    if not item or 1e-6 <= abs(item) < 1e21:
        digits = format(Decimal(repr(item)), "f")
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    mantissa, _, power = repr(item).partition("e")
    return f"{mantissa}e{int(power):+d}"
