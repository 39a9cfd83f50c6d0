"""Ways to make a `Telemetry`. OpenTelemetry's SDK is imported here, when one is made, and not before."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from shoal.errors import ConfigInvalid
from shoal.observability._metrics import Metrics
from shoal.observability._telemetry import Telemetry
from shoal.runtime import Reader

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

SERVICE = "shoal"
_PATH = "/v1/traces"
_METRICS_PATH = "/v1/metrics"
_CLOSE_MILLIS = 5_000
"""Longest time that closing waits for the newest figures to be taken."""
_HTTP = "http/protobuf"
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_IN_SPANS = frozenset({"span_only", "span_and_event", "true"})
_NOT_IN_SPANS = frozenset({"", "no_content", "event_only", "false"})
_TRACE_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_METRIC_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

Protocol: TypeAlias = Literal["http/protobuf", "grpc"]
"""How OTLP travels."""


def otlp(
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    service_name: str | None = None,
    capture_content: bool | None = None,
    timeout_s: float | None = None,
    protocol: Protocol | None = None,
    history: Reader | None = None,
) -> Telemetry:
    """Return a `Telemetry` that sends spans as OTLP, as Jaeger and every collector take them.

    What is `None` comes from the standard `OTEL_*` variables, read now. Certificates, compression and proxies have no
    argument and always come from there.

    Args:
        endpoint: Base URL such as `http://127.0.0.1:4318`, or a full one with a path; of `grpc` one without. `None`:
            `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`, else this machine's port 4318, or 4317
            for `grpc`.
        headers: Sent with each request. `None`: `OTEL_EXPORTER_OTLP_HEADERS`.
        service_name: Name under which Jaeger lists the spans. `None`: `OTEL_SERVICE_NAME`, else `shoal`.
        capture_content: Prompts and outputs go into spans, bounded and without secrets. `None`:
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`, else they do not.
        timeout_s: Seconds for one request, repeated attempts included. `None`: `OTEL_EXPORTER_OTLP_TIMEOUT`, else 10.
        protocol: `http/protobuf`, or `grpc`, which needs `shoal[grpc]`. `None`:
            `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`, `OTEL_EXPORTER_OTLP_PROTOCOL`, else `http/protobuf`.
        history: The journal; see `Telemetry`.

    Raises:
        ConfigInvalid: An argument or one of the variables has a value that cannot be used, or the extra is missing.
    """
    capture = captures_content() if capture_content is None else capture_content
    chosen = protocol or _said_protocol(_TRACE_PROTOCOLS)
    made = _grpc_exporter if chosen == "grpc" else _http_exporter
    exporter = made(endpoint, None if headers is None else dict(headers), timeout_s)
    return exporting(exporter, service_name=service_name, capture_content=capture, history=history)


def _http_exporter(endpoint: str | None, headers: dict[str, str] | None, timeout_s: float | None) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - see above

    url = None if endpoint is None else traces_url(endpoint)
    return OTLPSpanExporter(endpoint=url, headers=headers, timeout=timeout_s)


def _grpc_exporter(endpoint: str | None, headers: dict[str, str] | None, timeout_s: float | None) -> SpanExporter:
    try:
        from shoal.observability._grpc import GrpcExporter  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ConfigInvalid("sending spans over `grpc` needs more packages; install `shoal[grpc]`") from exc
    if endpoint is not None:
        signal_url(endpoint, "")
    return GrpcExporter(endpoint=endpoint, headers=headers, timeout=timeout_s)


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
        capture_content: Prompts and outputs go into spans, bounded and without secrets.
        queue_spans: Most spans that wait. `None`: `OTEL_BSP_MAX_QUEUE_SIZE`, else 65,536.
        batch_spans: Most spans of one request. `None`: `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, else 2,048.
        every_s: Longest wait for a batch, in seconds. `None`: `OTEL_BSP_SCHEDULE_DELAY` (milliseconds), else 1.
        history: The journal; see `Telemetry`.

    Raises:
        ConfigInvalid: One of the numbers is not above 0.
    """
    from shoal.observability._pipeline import BATCH_SPANS, EVERY_S, QUEUE_SPANS, Pipeline  # noqa: PLC0415 - see above
    from shoal.observability._senders import sender_of  # noqa: PLC0415

    queue = queue_spans or int(_number("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SPANS))
    batch = batch_spans or int(_number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_SPANS))
    every = every_s or _number("OTEL_BSP_SCHEDULE_DELAY", EVERY_S * 1000) / 1000
    if min(queue, batch, every) <= 0:
        raise ConfigInvalid(
            f"telemetry would keep {queue!r} spans, in batches of {batch!r}, for {every!r} s; give numbers above 0"
        )
    sender = sender_of(exporter, resource_of(service_name))
    pipeline = Pipeline(sender, queue_spans=queue, batch_spans=batch, every_s=every)
    return Telemetry(pipeline, history=history, capture_content=capture_content)


def metrics_otlp(
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    service_name: str | None = None,
    every_s: float | None = None,
    timeout_s: float | None = None,
    protocol: Protocol | None = None,
) -> Metrics:
    """Return `Metrics` that are sent as OTLP.

    What is `None` comes from the standard `OTEL_*` variables, as with `otlp`.

    Args:
        endpoint: Base URL such as `http://127.0.0.1:4318`, or a full one with a path; of `grpc` one without. `None`:
            `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`, else this machine's port 4318, or 4317
            for `grpc`.
        headers: Sent with each request. `None`: `OTEL_EXPORTER_OTLP_HEADERS`.
        service_name: Name under which they are listed. `None`: `OTEL_SERVICE_NAME`, else `shoal`.
        every_s: Seconds between two exports. `None`: `OTEL_METRIC_EXPORT_INTERVAL` (milliseconds), else 60.
        timeout_s: Seconds for one request, repeated attempts included. `None`: `OTEL_EXPORTER_OTLP_TIMEOUT`, else 10.
        protocol: `http/protobuf`, or `grpc`, which needs `shoal[grpc]`. `None`:
            `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL`, `OTEL_EXPORTER_OTLP_PROTOCOL`, else `http/protobuf`.

    Raises:
        ConfigInvalid: An argument or one of the variables has a value that cannot be used, or the extra is missing.
    """
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415 - see above

    from shoal.observability._metric_exporter import CountingMetrics  # noqa: PLC0415

    chosen = protocol or _said_protocol(_METRIC_PROTOCOLS)
    made = _grpc_metrics if chosen == "grpc" else _http_metrics
    exporter = CountingMetrics(made(endpoint, None if headers is None else dict(headers), timeout_s))
    millis = None if every_s is None else every_s * 1000
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=millis)
    return _measuring(reader, service_name, failures=lambda: exporter.failed)


def _http_metrics(endpoint: str | None, headers: dict[str, str] | None, timeout_s: float | None) -> MetricExporter:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415 - see above

    url = None if endpoint is None else signal_url(endpoint, _METRICS_PATH)
    return OTLPMetricExporter(endpoint=url, headers=headers, timeout=timeout_s)


def _grpc_metrics(endpoint: str | None, headers: dict[str, str] | None, timeout_s: float | None) -> MetricExporter:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415 - extra
    except ImportError as exc:
        raise ConfigInvalid("sending metrics over `grpc` needs more packages; install `shoal[grpc]`") from exc
    if endpoint is not None:
        signal_url(endpoint, "")
    return OTLPMetricExporter(endpoint=endpoint, headers=headers, timeout=timeout_s)


def prometheus(port: int = 9464, address: str = "127.0.0.1", *, service_name: str | None = None) -> Metrics:
    """Return `Metrics` that a Prometheus fetches from `http://ADDRESS:PORT/metrics`; needs `shoal[prometheus]`.

    Args:
        port: The port; 0 takes a free one. Source of the default: OpenTelemetry's own exporter.
        address: The address to listen on; this machine alone unless given.
        service_name: Name under which they are listed. `None`: `OTEL_SERVICE_NAME`, else `shoal`.

    Raises:
        ConfigInvalid: The extra is not installed, or the port cannot be had.
    """
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415 - an extra
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigInvalid("a Prometheus endpoint needs more packages; install `shoal[prometheus]`") from exc
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as exc:
        raise ConfigInvalid(
            f"nothing can listen on {address}:{port}: {exc.strerror or exc}; name another port"
        ) from exc

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return _measuring(reader, service_name, stop, server.server_port)


def _measuring(
    reader: MetricReader,
    service_name: str | None,
    stop: Callable[[], object] | None = None,
    port: int | None = None,
    failures: Callable[[], int] = int,
) -> Metrics:
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - see above

    provider = MeterProvider([reader], resource_of(service_name), shutdown_on_exit=False)

    def close() -> None:
        provider.shutdown(_CLOSE_MILLIS)
        if stop is not None:
            stop()

    return Metrics(provider, on_close=close, port=port, failures=failures)


def through(provider: TracerProvider, *, capture_content: bool = False, history: Reader | None = None) -> Telemetry:
    """Return a `Telemetry` that hands spans to a `TracerProvider` of yours; its sampler decides which traces it takes.

    Args:
        provider: OpenTelemetry's own, with your processors, resource and sampler. It is flushed and never shut down.
        capture_content: Prompts and outputs go into spans, bounded and without secrets.
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
    return signal_url(endpoint, _PATH)


def signal_url(endpoint: str, path: str) -> str:
    """Return *endpoint* with *path*, where it has none of its own.

    Raises:
        ConfigInvalid: It is no http URL.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigInvalid(f"nothing can be sent to {endpoint!r}; give a URL such as `http://127.0.0.1:4318`")
    return endpoint if parts.path.strip("/") else urlunsplit(parts._replace(path=path))


def _said_protocol(names: Sequence[str]) -> Protocol:
    """Return the protocol that the first of the variables *names* asks for which is set.

    Raises:
        ConfigInvalid: It asks for another one.
    """
    for name in names:
        said = os.environ.get(name, "").strip()
        if said == "grpc":
            return "grpc"
        if said == _HTTP:
            break
        if said:
            raise ConfigInvalid(f"`{name}` is {said!r}; set it to `{_HTTP}` or `grpc`")
    return "http/protobuf"


def _number(name: str, default: float) -> float:
    said = os.environ.get(name, "").strip()
    try:
        return float(said) if said else default
    except ValueError:
        raise ConfigInvalid(f"`{name}` is {said!r}; set it to a number") from None
