"""Ways to make a `Telemetry`. OpenTelemetry's SDK is imported here, when one is made, and not before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from shoal.errors import ConfigInvalid
from shoal.observability._telemetry import Telemetry
from shoal.runtime import Reader

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

SERVICE = "shoal"
_PATH = "/v1/traces"
_HTTP = "http/protobuf"
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_IN_SPANS = frozenset({"span_only", "span_and_event", "true"})
_NOT_IN_SPANS = frozenset({"", "no_content", "event_only", "false"})
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def otlp(
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    service_name: str | None = None,
    capture_content: bool | None = None,
    timeout_s: float | None = None,
    history: Reader | None = None,
) -> Telemetry:
    """Return a `Telemetry` that sends spans as OTLP over http/protobuf, as Jaeger and every collector take them.

    What is `None` comes from the standard `OTEL_*` variables, read now. Certificates, compression and proxies have no
    argument and always come from there.

    Args:
        endpoint: Base URL such as `http://127.0.0.1:4318`, or a full one with a path. `None`:
            `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`, else this machine's port 4318.
        headers: Sent with each request. `None`: `OTEL_EXPORTER_OTLP_HEADERS`.
        service_name: Name under which Jaeger lists the spans. `None`: `OTEL_SERVICE_NAME`, else `shoal`.
        capture_content: Prompts and outputs go into spans, bounded. `None`:
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`, else they do not.
        timeout_s: Seconds for one request, repeated attempts included. `None`: `OTEL_EXPORTER_OTLP_TIMEOUT`, else 10.
        history: The journal; see `Telemetry`.

    Raises:
        ConfigInvalid: An argument or one of the variables has a value that cannot be used.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - see above

    _check_protocol()
    capture = captures_content() if capture_content is None else capture_content
    exporter = OTLPSpanExporter(
        endpoint=None if endpoint is None else traces_url(endpoint),
        headers=None if headers is None else dict(headers),
        timeout=timeout_s,
    )
    return exporting(exporter, service_name=service_name, capture_content=capture, history=history)


def exporting(
    exporter: SpanExporter,
    *,
    service_name: str | None = None,
    capture_content: bool = False,
    queue_spans: int | None = None,
    batch_spans: int | None = None,
    every_s: float | None = None,
    history: Reader | None = None,
) -> Telemetry:
    """Return a `Telemetry` that sends spans through an exporter of OpenTelemetry's SDK.

    Args:
        exporter: Any; it is called in a thread of its own, and shut down at the end.
        service_name: Name under which the spans are listed. `None`: `OTEL_SERVICE_NAME`, else `shoal`.
        capture_content: Prompts and outputs go into spans, bounded.
        queue_spans: Most spans that wait. `None`: `OTEL_BSP_MAX_QUEUE_SIZE`, else 65,536.
        batch_spans: Most spans of one request. `None`: `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, else 2,048.
        every_s: Longest wait for a batch, in seconds. `None`: `OTEL_BSP_SCHEDULE_DELAY` (milliseconds), else 1.
        history: The journal; see `Telemetry`.

    Raises:
        ConfigInvalid: One of the numbers is not above 0.
    """
    from shoal.observability._pipeline import BATCH_SPANS, EVERY_S, QUEUE_SPANS, Pipeline  # noqa: PLC0415 - see above

    queue = queue_spans or int(_number("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SPANS))
    batch = batch_spans or int(_number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_SPANS))
    every = every_s or _number("OTEL_BSP_SCHEDULE_DELAY", EVERY_S * 1000) / 1000
    if min(queue, batch, every) <= 0:
        raise ConfigInvalid(
            f"telemetry would keep {queue!r} spans, in batches of {batch!r}, for {every!r} s; give numbers above 0"
        )
    pipeline = Pipeline(exporter, resource_of(service_name), queue_spans=queue, batch_spans=batch, every_s=every)
    return Telemetry(pipeline, history=history, capture_content=capture_content)


def through(provider: TracerProvider, *, capture_content: bool = False, history: Reader | None = None) -> Telemetry:
    """Return a `Telemetry` that hands spans to a `TracerProvider` of yours; its sampler decides which traces it takes.

    Args:
        provider: OpenTelemetry's own, with your processors, resource and sampler. It is flushed and never shut down.
        capture_content: Prompts and outputs go into spans, bounded.
        history: The journal; see `Telemetry`.

    Raises:
        ConfigInvalid: It is switched off, or is not the SDK's.
    """
    from shoal.observability._provided import Provided  # noqa: PLC0415 - see above

    return Telemetry(Provided(provider), history=history, capture_content=capture_content)


def resource_of(service_name: str | None) -> Resource:
    """Return what our spans come from: a name, and what `OTEL_RESOURCE_ATTRIBUTES` says.

    It says nothing that differs from process to process: a receiver that gets a span twice, live and from a file or
    from two processes that ran one run, can tell that it is the same.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415 - see above

    found = OTELResourceDetector().detect()
    name = service_name or found.attributes.get("service.name") or SERVICE
    return found.merge(Resource({"service.name": name}))


def captures_content() -> bool:
    """Say whether the environment asks for prompts and outputs in spans.

    Raises:
        ConfigInvalid: It says something that cannot be understood.
    """
    said = os.environ.get(_CAPTURE, "").strip().lower()
    if said in _IN_SPANS or said in _NOT_IN_SPANS:
        return said in _IN_SPANS
    raise ConfigInvalid(
        f"`{_CAPTURE}` is {said!r}; set it to `SPAN_ONLY`, `SPAN_AND_EVENT`, `EVENT_ONLY` or `NO_CONTENT`"
    )


def traces_url(endpoint: str) -> str:
    """Return where spans go: *endpoint* with the path of OTLP, where it has none of its own.

    Raises:
        ConfigInvalid: It is no http URL.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigInvalid(f"spans cannot be sent to {endpoint!r}; give a URL such as `http://127.0.0.1:4318`")
    return endpoint if parts.path.strip("/") else urlunsplit(parts._replace(path=_PATH))


def _check_protocol() -> None:
    for name in _PROTOCOLS:
        said = os.environ.get(name, "").strip()
        if said and said != _HTTP:
            raise ConfigInvalid(
                f"`{name}` is {said!r} and spans are sent as `{_HTTP}` only; set that, and an endpoint that takes it "
                "(port 4318 by custom)"
            )


def _number(name: str, default: float) -> float:
    said = os.environ.get(name, "").strip()
    try:
        return float(said) if said else default
    except ValueError:
        raise ConfigInvalid(f"`{name}` is {said!r}; set it to a number") from None
