"""Our own way to an exporter of OpenTelemetry's SDK: a bounded queue, a thread of its own, and a count of everything.

The SDK's `BatchSpanProcessor` queues and batches. It drops silently and logs each failure; here what is dropped is
counted before it comes to that, and of failures the first is told and the rest counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import cast, final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from shoal.observability._hush import Hush
from shoal.observability._senders import Sender
from shoal.observability._spans import Span

QUEUE_SPANS = 65_536
"""Most spans that wait: a burst of ten thousand turns."""
BATCH_SPANS = 2_048
EVERY_S = 1.0
"""Longest time that a span waits for its batch, in seconds."""

_ABORT_S = 1.0
_logger = logging.getLogger("shoal.observability")


@final
class Pipeline:
    """Sends spans through *sender* in batches, from a thread of its own.

    Args:
        sender: Sends one batch.
        queue_spans: Most spans that wait; one more is dropped and counted.
        batch_spans: Most spans of one request.
        every_s: Seconds after which a batch goes out even if it is small.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        queue_spans: int = QUEUE_SPANS,
        batch_spans: int = BATCH_SPANS,
        every_s: float = EVERY_S,
    ) -> None:
        self._queue_spans = queue_spans
        self._counting = CountingExporter(sender)
        self._processor = BatchSpanProcessor(
            self._counting,
            max_queue_size=queue_spans,
            schedule_delay_millis=every_s * 1000,
            max_export_batch_size=min(batch_spans, queue_spans),
        )
        self._emitted = 0
        self._dropped = 0
        self._closed = False

    def __repr__(self) -> str:
        exported, waiting, dropped, failed = self.counts()
        return f"<Pipeline {exported} exported, {waiting} waiting, {dropped} dropped, {failed} failed>"

    def emit(self, span: Span) -> None:
        """Queue *span*; where the queue is full it is dropped and counted."""
        if self._closed or self._emitted - self._counting.taken >= self._queue_spans:
            self._drop()
            return
        self._emitted += 1
        self._processor.on_end(_Queued(span))

    def _drop(self) -> None:
        if not self._dropped and not self._closed:
            _logger.warning(
                "%d spans wait and the receiver is slow: spans are dropped; further drops are counted and not told",
                self._queue_spans,
            )
        self._dropped += 1

    def flush(self, timeout_s: float) -> bool:
        """Send what waits; return false where nothing got on for *timeout_s* seconds."""
        return self._closed or within(timeout_s, self._processor.force_flush, self._exported)

    def _exported(self) -> int:
        return self._counting.exported

    def close(self, timeout_s: float) -> None:
        """Send what waits until nothing gets on for *timeout_s* seconds, and stop the thread."""
        if self._closed:
            return
        self._closed = True
        # Flushed first: the processor's own shutdown gives up after 30 s, whether it gets on or not.
        if not within(timeout_s, self._processor.force_flush, self._exported):
            # It sits in a pause between two attempts, or in a request that nobody answers.
            self._counting.shutdown()
        within(_ABORT_S, self._processor.shutdown, self._exported)
        self._counting.unhush()
        exported, waiting, dropped, failed = self.counts()
        if waiting + dropped + failed:
            _logger.warning(
                "%d spans were not exported (%d exported); read them from the journal with `export_trace`",
                waiting + dropped + failed,
                exported,
            )

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many spans were exported, wait, were dropped, and failed."""
        counting = self._counting
        waiting = self._emitted - counting.exported - counting.failed
        return counting.exported, waiting, self._dropped, counting.failed


@final
class _Queued(ReadableSpan):
    """A span in the queue: it becomes one of the SDK's only in the exporter's thread, out of the way of runs."""

    _context = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def __init__(self, span: Span) -> None:
        self.span = span


@final
class CountingExporter(SpanExporter):
    """Counts what *sender* makes of each batch, and tells of the first failure only.

    Args:
        sender: The one that sends.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._hush = Hush()
        self._down = threading.Lock()
        self.taken = 0
        """Spans that have left the queue."""
        self.exported = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send *spans*, which `Pipeline` has queued."""
        self.taken += len(spans)
        with self._hush:
            try:
                taken = self._sender.send([queued.span for queued in cast("Sequence[_Queued]", spans)])
            except Exception as exc:  # noqa: BLE001 - an exporter of anybody's; counted and told like any failure
                self._fail(len(spans), f"{type(exc).__name__}: {exc}")
                return SpanExportResult.FAILURE
        self.exported += taken
        if taken == len(spans):
            return SpanExportResult.SUCCESS
        self._fail(len(spans) - taken, self._hush.last or "it said no more")
        return SpanExportResult.FAILURE

    def _fail(self, spans: int, why: str) -> None:
        if not self.failed:
            _logger.warning(
                "%d spans could not be exported: %s; runs go on, further failures are counted and not told", spans, why
            )
        self.failed += spans

    def shutdown(self) -> None:
        """Close what sends, once; a request that is under way gives up."""
        if self._down.acquire(blocking=False):
            self._sender.shutdown()

    def unhush(self) -> None:
        """Let the SDK log again what it has to say of us: the last request is through."""
        self._hush.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return true: nothing is held here."""
        return True


def within(stalled_s: float, work: Callable[[], object], progress: Callable[[], int]) -> bool:
    """Do *work* in a thread; return whether it was done before *progress* stood still for *stalled_s* seconds.

    The SDK's own calls take no deadline, or ignore the one they take.
    """
    thread = threading.Thread(target=work, name="shoal-telemetry", daemon=True)
    thread.start()
    while True:
        before = progress()
        thread.join(stalled_s)
        if not thread.is_alive():
            return True
        if progress() == before:
            return False
