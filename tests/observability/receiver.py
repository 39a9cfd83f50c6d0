"""Receivers of OTLP on loopback. They know nothing of our code, only of the protocols."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from typing_extensions import override


class Receiver:
    """Takes spans and metrics, or answers as it is told.

    *status* is what it says, *hold* what it waits for before it does.
    """

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.hold: threading.Event | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if receiver.hold is not None:
                    receiver.hold.wait(10)
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                if receiver.status == 200 and self.path == "/v1/traces":
                    receiver.requests.append(ExportTraceServiceRequest.FromString(body))
                if receiver.status == 200 and self.path == "/v1/metrics":
                    receiver.metrics.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
                pass

        return Handler

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> Sequence[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def services(self) -> set[str]:
        return {
            pair.value.string_value
            for request in self.requests
            for resource in request.resource_spans
            for pair in resource.resource.attributes
            if pair.key == "service.name"
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.hold is not None:
            self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class GrpcReceiver(TraceServiceServicer):
    """Takes spans and metrics over gRPC, or answers as it is told: *refuses* is what it says instead."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.metadata: list[dict[str, str]] = []
        self.refuses: grpc.StatusCode | None = None
        self.hold: threading.Event | None = None
        self._server = grpc.server(ThreadPoolExecutor(2))
        add_TraceServiceServicer_to_server(self, self._server)
        add_MetricsServiceServicer_to_server(_GrpcMetrics(self), self._server)
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    @override
    def Export(self, request: ExportTraceServiceRequest, context: grpc.ServicerContext) -> ExportTraceServiceResponse:
        self.answer(context)
        self.requests.append(request)
        return ExportTraceServiceResponse()

    def answer(self, context: grpc.ServicerContext) -> None:
        """Take note of what came with a request, and refuse it if that was said."""
        self.metadata.append({pair.key: str(pair.value) for pair in context.invocation_metadata()})
        if self.hold is not None:
            self.hold.wait(10)
        if self.refuses is not None:
            context.abort(self.refuses, "not now")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def spans(self) -> Sequence[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.hold is not None:
            self.hold.set()
        self._server.stop(grace=0).wait()


class _GrpcMetrics(MetricsServiceServicer):
    def __init__(self, receiver: GrpcReceiver) -> None:
        self._receiver = receiver

    @override
    def Export(
        self, request: ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> ExportMetricsServiceResponse:
        self._receiver.answer(context)
        self._receiver.metrics.append(request)
        return ExportMetricsServiceResponse()
