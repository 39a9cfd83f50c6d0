"""What the SDK logs of an export of ours, kept back: the first failure is told by us, and the others are counted."""

from __future__ import annotations

import logging
import threading
from typing import final

NOISY = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk.trace.export",
)
"""Loggers of the SDK that speak while something is exported."""


@final
class Hush(logging.Filter):
    """Keeps what the SDK logs while we export to itself: `last` is the newest line of it.

    It is bound to the thread that exports for us; what other exporters of the process log is not touched.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self._here = threading.local()
        for name in NOISY:
            logging.getLogger(name).addFilter(self)

    def __enter__(self) -> None:
        self.last = ""
        self._here.exporting = True

    def __exit__(self, *_exc: object) -> None:
        self._here.exporting = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(self._here, "exporting", False):
            return True
        self.last = record.getMessage()
        return False

    def close(self) -> None:
        """Let go of the loggers."""
        for name in NOISY:
            logging.getLogger(name).removeFilter(self)
