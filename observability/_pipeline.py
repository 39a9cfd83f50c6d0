"""Our own way to an exporter: a bounded queue, a thread of its own, and a count of everything.

The SDK's `BatchSpanProcessor` does much the same, but takes spans of the SDK's only, so that each would have to be made
into one on the way of a run; it drops silently and logs each failure, and its closing takes no deadline. Here spans
wait as they are, what is dropped is counted, and of failures the first is told and the rest counted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import final

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
        self._sender = sender
        self._queue_spans = queue_spans
        self._batch_spans = min(batch_spans, queue_spans)
        self._every_s = every_s
        self._queue: deque[Span] = deque()
        self._draw: Callable[[], object] = list  # nothing is drawn, and nothing to be forgotten
        self._forget: Callable[[], object] = list
        self._hush = Hush()
        self._emitted = self._dropped = self._exported = self._failed = 0
        self._closed = False
        self._down = False
        self._told = False
        self._begin()
        again = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (forked := again()) is not None and forked())

    def _begin(self) -> None:
        self._wake = threading.Event()
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None

    def _forked(self) -> None:
        """Begin anew in the child of a fork: it has the queue, whose spans its parent sends, and no thread."""
        self._queue.clear()
        self._emitted = self._exported + self._failed
        self._begin()
        self._forget()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="shoal-telemetry", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        exported, waiting, dropped, failed = self.counts()
        return f"<Pipeline {exported} exported, {waiting} waiting, {dropped} dropped, {failed} failed>"

    def draw_from(self, draw: Callable[[], object], forget: Callable[[], object]) -> None:
        """Have the thread call *draw*, which emits spans, before it sends any, and at least every *every_s* seconds.

        Args:
            draw: Called in the thread, and wherever spans are sent.
            forget: Called in the child of a fork: what is still to be emitted there is emitted by its parent.
        """
        self._draw, self._forget = draw, forget

    def wake(self) -> None:
        """Have the thread look for spans now."""
        if self._thread is None and not self._closed:
            self._start()
        self._wake.set()

    def emit(self, span: Span) -> None:
        """Queue *span*; where the queue is full it is dropped and counted."""
        if self._closed or len(self._queue) >= self._queue_spans:
            self._drop()
            return
        self._emitted += 1
        self._queue.append(span)
        if self._thread is None or (len(self._queue) >= self._batch_spans and not self._wake.is_set()):
            self.wake()

    def _drop(self) -> None:
        if not self._dropped and not self._closed:
            self._tell(
                "%d spans wait and the receiver is slow: spans are dropped; further drops are counted and not told",
                self._queue_spans,
            )
        self._dropped += 1

    # --- the thread

    def _work(self) -> None:
        sends_at = time.monotonic() + self._every_s
        while not self._down:
            self._wake.wait(sends_at - time.monotonic())
            self._wake.clear()
            due = time.monotonic() >= sends_at
            with self._sending:
                self._send_all(1 if due else self._batch_spans)
            if due:
                sends_at = time.monotonic() + self._every_s

    def _send_all(self, least: int) -> None:
        """Send batches as long as at least so many spans wait."""
        self._draw()
        while len(self._queue) >= least and not self._down:
            self._send([self._queue.popleft() for _ in range(min(self._batch_spans, len(self._queue)))])

    def _send(self, batch: list[Span]) -> None:
        left, why = len(batch), ""
        with self._hush:
            try:
                for taken in self._sender.send(batch):
                    self._exported += taken
                    left -= taken
            except Exception as exc:  # noqa: BLE001 - an exporter of anybody's; counted and told like any failure
                why = f"{type(exc).__name__}: {exc}"
        if left:
            self._fail(left, why or self._hush.last or "it said no more")

    def _fail(self, spans: int, why: str) -> None:
        if not self._failed:
            self._tell(
                "%d spans could not be exported: %s; runs go on, further failures are counted and not told", spans, why
            )
        self._failed += spans

    def _tell(self, message: str, *given: object) -> None:
        """Warn of trouble with the receiver, once; what comes of it later is for those who want to know."""
        _logger.log(logging.INFO if self._told else logging.WARNING, message, *given)
        self._told = True

    # --- the end

    def flush(self, timeout_s: float) -> bool:
        """Send what waits; return false where nothing got on for *timeout_s* seconds."""
        return self._closed or within(timeout_s, self._flush, lambda: self._exported)

    def _flush(self) -> None:
        with self._sending:
            self._send_all(1)

    def close(self, timeout_s: float) -> None:
        """Send what waits until nothing gets on for *timeout_s* seconds, and stop the thread."""
        if self._closed:
            return
        flushed = self.flush(timeout_s)
        self._closed = self._down = True
        self._wake.set()
        # Where it was not flushed it sits in a pause between two attempts, or in a request that nobody answers.
        within(_ABORT_S, self._end if flushed else self._abort, int)
        if self._thread is None or not self._thread.is_alive():
            self._hush.close()  # otherwise a request is still under way, and has something to say when it gives up
        exported, waiting, dropped, failed = self.counts()
        if waiting + dropped + failed:
            self._tell(
                "%d spans were not exported (%d exported); read them from the journal with `export_trace`",
                waiting + dropped + failed,
                exported,
            )

    def _end(self) -> None:
        self._join()
        self._sender.shutdown()

    def _abort(self) -> None:
        self._sender.shutdown()
        self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many spans were exported, wait, were dropped, and failed."""
        return self._exported, self._emitted - self._exported - self._failed, self._dropped, self._failed


def within(stalled_s: float, work: Callable[[], object], progress: Callable[[], int]) -> bool:
    """Do *work* in a thread; return whether it was done before *progress* stood still for *stalled_s* seconds.

    What is called there takes no deadline, or ignores the one it takes.
    """
    thread = threading.Thread(target=work, name="shoal-telemetry-end", daemon=True)
    thread.start()
    while True:
        before = progress()
        thread.join(stalled_s)
        if not thread.is_alive():
            return True
        if progress() == before:
            return False
