"""Spans of live runs: an observer of events that turns them into spans and hands those to a sink."""

from __future__ import annotations

import logging
from typing import final

import anyio
import anyio.to_thread

from shoal.observability._follow import Following
from shoal.observability._project import Projection
from shoal.observability._sinks import Sink, TelemetryStatistics
from shoal.runtime import Event, Reader

FLUSH_S = 5.0
"""How long closing waits for a receiver that takes nothing, in seconds."""

_logger = logging.getLogger("shoal.observability")


@final
class Telemetry:
    """Watches runs and exports their spans: give it to a swarm as an observer, and `serve` as a worker beside.

    Nothing that happens here reaches a run: spans are queued, what finds no room is dropped and counted, and a defect
    in the making of spans costs the spans of that one run.

    Args:
        sink: Where finished spans go; see `otlp`, `exporting` and `through`.
        history: The journal, from which a run is caught up with that began before; `None` leaves such runs out.
        capture_content: Prompts and outputs go into spans, bounded and without secrets.
    """

    def __init__(self, sink: Sink, *, history: Reader | None = None, capture_content: bool = False) -> None:
        self._sink = sink
        self._projection = Projection(capture_content=capture_content)
        self._following = Following(self._take, history)
        self._spans = 0
        self._unsampled = 0
        self._faults = 0

    def __repr__(self) -> str:
        return f"<Telemetry {self._spans} spans, {self._sink!r}>"

    def __call__(self, event: Event) -> None:
        """Take *event*, which is durable."""
        try:
            self._following(event)
        except Exception as exc:  # noqa: BLE001 - a run must not end because of who watches it; told and counted
            self._fault(event, exc)

    def _take(self, event: Event, replayed: bool) -> None:  # noqa: FBT001 - as `Following` calls it
        for span in self._projection.feed(event):
            # What was finished before was exported before, by the process that was there.
            if replayed:
                continue
            self._spans += 1
            if span.sampled:
                self._sink.emit(span)
            else:
                self._unsampled += 1

    def _fault(self, event: Event, exc: Exception) -> None:
        if not self._faults:
            _logger.warning(
                "run %s is left out of telemetry from event %d (%s) on, further faults are counted and not told",
                event.run_id,
                event.seq,
                event.kind,
                exc_info=exc,
            )
        self._faults += 1
        self._following.leave_out(event.run_id)
        self._projection.forget(event.run_id)

    async def serve(self) -> None:
        """Live as long as a swarm, and send what waits when it stops."""
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await self.flush()

    async def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Send what waits, in a thread; return false where nothing got on for *timeout_s* seconds."""
        return await anyio.to_thread.run_sync(self._sink.flush, timeout_s)

    def close(self, timeout_s: float = FLUSH_S) -> None:
        """Send what waits, as long as something gets through every *timeout_s* seconds, and stop.

        It blocks; see `aclose`. Closing twice is fine, and what happens later is dropped and counted.
        """
        self._sink.close(timeout_s)

    async def aclose(self, timeout_s: float = FLUSH_S) -> None:
        """Close in a thread; it is finished even where the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close, timeout_s)

    def statistics(self) -> TelemetryStatistics:
        """Return what became of spans so far."""
        exported, waiting, dropped, failed = self._sink.counts()
        return TelemetryStatistics(
            self._spans,
            exported,
            waiting,
            dropped,
            failed,
            self._unsampled,
            self._following.left_out,
            self._faults,
        )
