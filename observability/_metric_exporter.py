"""Our own way to an exporter of the SDK's metrics: of what fails the first is told and the rest counted."""

from __future__ import annotations

import logging
from typing import Any, final

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from typing_extensions import override

from shoal.observability._hush import Hush

_logger = logging.getLogger("shoal.observability")


@final
class CountingMetrics(MetricExporter):
    """Counts what *exporter* makes of each export, and tells of the first failure only.

    Args:
        exporter: The one that sends.
    """

    def __init__(self, exporter: MetricExporter) -> None:
        # Whether sums are totals or differences is the exporter's choice, and a reader asks for it there.
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter: Any = exporter  # its methods take arguments that nobody has typed
        self._hush = Hush()
        self._at_work = self._down = False
        self.failed = 0
        """How many exports came to nothing."""

    @override
    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        self._at_work = True
        try:
            return self._export(metrics_data, timeout_millis, **kwargs)
        finally:
            self._at_work = False
            if self._down:
                self._hush.close()

    def _export(self, metrics_data: MetricsData, timeout_millis: float, **kwargs: Any) -> MetricExportResult:
        with self._hush:
            try:
                result: MetricExportResult = self._exporter.export(metrics_data, timeout_millis, **kwargs)
            except Exception as exc:  # noqa: BLE001 - an exporter of anybody's; counted and told like any failure
                self._fail(f"{type(exc).__name__}: {exc}")
                return MetricExportResult.FAILURE
        if result is not MetricExportResult.SUCCESS:
            self._fail(self._hush.last or "it said no more")
        return result

    def _fail(self, why: str) -> None:
        if not self.failed:
            _logger.warning(
                "metrics could not be exported: %s; runs go on, further failures are counted and not told", why
            )
        self.failed += 1

    @override
    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    @override
    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._down = True
        self._exporter.shutdown(timeout_millis)
        if not self._at_work:
            self._hush.close()  # otherwise an export is still under way, and has something to say when it gives up
