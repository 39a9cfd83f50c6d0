"""OTLP over gRPC; needs an extra, so this module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SpanExportResult

from shoal.observability._senders import Posting


@final
class GrpcExporter(OTLPSpanExporter, Posting):
    """The SDK's exporter, which is given the request itself."""

    def post(self, spans: int, body: bytes) -> bool:
        """Send the request *body*, which holds so many *spans*; return whether it was taken."""
        request: Any = ExportTraceServiceRequest.FromString(body)
        # Once for each span in it, since it counts what it is given.
        return self.export((request,) * spans) is SpanExportResult.SUCCESS

    def _translate_data(self, data: Sequence[Any]) -> ExportTraceServiceRequest:
        request: ExportTraceServiceRequest = data[0]
        return request
