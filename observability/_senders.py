"""Ways from a batch of our spans to an exporter of OpenTelemetry's SDK.

Any exporter takes spans as the SDK knows them. Those for OTLP are handed the request itself, as they would have made
it: what they do with it, from retries to certificates, stays theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from shoal.observability._otlp_wire import SpanWriter
from shoal.observability._readable import readable
from shoal.observability._spans import Span

MOST_REQUEST_BYTES = 3 * 2**20
"""Most bytes of one request: over gRPC, receivers refuse what is above 4 MiB unless they are told otherwise."""

Post: TypeAlias = Callable[[int, bytes], bool]
"""Sends one request that holds so many spans; returns whether it was taken."""


class Sender(Protocol):
    """Sends a batch of spans. It blocks, and is called in a thread of its own."""

    def send(self, spans: Sequence[Span]) -> Iterator[int]:
        """Send *spans*, and yield after each request how many of them were taken."""
        ...

    def shutdown(self) -> None:
        """Close; a request that is under way gives up."""
        ...


@final
class Readables:
    """Sends through *exporter*, which may be any.

    Args:
        exporter: Of the SDK's kind.
        resource: What the spans come from.
    """

    def __init__(self, exporter: SpanExporter, resource: Resource) -> None:
        self._exporter = exporter
        self._resource = resource

    def send(self, spans: Sequence[Span]) -> Iterator[int]:
        """Send *spans* as the SDK knows them."""
        batch = [readable(span, self._resource) for span in spans]
        yield len(spans) if self._exporter.export(batch) is SpanExportResult.SUCCESS else 0

    def shutdown(self) -> None:
        """Close the exporter."""
        self._exporter.shutdown()


@final
class Requests:
    """Sends requests for OTLP that are written here.

    Args:
        exporter: Whose `shutdown` closes what sends.
        resource: What the spans come from.
        post: Sends one.
    """

    def __init__(self, exporter: SpanExporter, resource: Resource, post: Post) -> None:
        self._exporter = exporter
        self._writer = SpanWriter({name: str(value) for name, value in resource.attributes.items()})
        self._post = post

    def send(self, spans: Sequence[Span]) -> Iterator[int]:
        """Send *spans*, in as many requests as it takes."""
        for count, body in self._writer.requests(spans, MOST_REQUEST_BYTES):
            yield count if self._post(count, body) else 0

    def shutdown(self) -> None:
        """Close the exporter."""
        self._exporter.shutdown()


class Posting(ABC):
    """An exporter that takes requests."""

    @abstractmethod
    def post(self, spans: int, body: bytes) -> bool:
        """Send *body*, which holds so many *spans*; return whether it was taken."""


def sender_of(exporter: SpanExporter, resource: Resource) -> Sender:
    """Return the way through *exporter* that costs least."""
    post = exporter.post if isinstance(exporter, Posting) else _http_post(exporter)
    return Readables(exporter, resource) if post is None else Requests(exporter, resource, post)


def _http_post(exporter: SpanExporter) -> Post | None:
    """Return what sends a request over HTTP; `None` where *exporter* is another one.

    From release 1.45 on, the SDK's exporter has a part that takes a request as bytes, under a private name. Where it is
    not found the exporter is treated like any other, and is only slower.
    """
    if type(exporter) is not OTLPSpanExporter:
        return None
    export: Callable[[bytes], Any] | None = getattr(getattr(exporter, "_client", None), "export", None)
    return None if export is None else lambda _, body: bool(export(body).success)
