"""Spans of live runs: an observer of events that turns them into spans and hands those to a sink."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import final

import anyio
import anyio.to_thread

from shoal.observability._follow import Following
from shoal.observability._project import Projection
from shoal.observability._sinks import Drawing, Sink, TelemetryStatistics
from shoal.runtime import Event, Reader

WAKING_EVENTS = 256
"""How many events wait when the thread that makes spans of them is woken: enough to keep it at work for a while."""
MOST_EVENTS_WAITING = 2_048
FLUSH_S = 5.0
"""How long closing waits for a receiver that takes nothing, in seconds."""

_logger = logging.getLogger("shoal.observability")


@final
class Telemetry:
    """Watches runs and exports their spans: `shoal.Swarm(telemetry=…)` takes it and keeps it going.

    A `shoal.runtime.Swarm` takes it as an observer, and its `serve` as a worker beside.

    Nothing that happens here reaches a run: spans are queued, what finds no room is dropped and counted, and a defect
    in the making of spans costs the spans of that one run. A sink that has a thread of its own has spans made there: a
    run only puts its events down. While that thread is busy with a slow receiver they are made where runs are, so that
    no more than `MOST_EVENTS_WAITING` events ever wait.

    Args:
        sink: Where finished spans go; see `otlp`, `exporting` and `through`.
        history: The journal, from which a run is caught up with that began before; `None` takes that of the
            `shoal.Swarm` it is given to, and elsewhere leaves such runs out.
        capture_content: Prompts and outputs go into spans, bounded and without secrets.
    """

    def __init__(self, sink: Sink, *, history: Reader | None = None, capture_content: bool = False) -> None:
        self._sink = sink
        self._thread = sink if isinstance(sink, Drawing) else None
        self._waiting: deque[tuple[Event, bool]] = deque()
        """Events whose spans are still to be made, and whether each is replayed."""
        self._making = threading.Lock()
        self._woken = False
        """The thread was called for; from then on it looks by itself every now and then."""
        if self._thread is not None:
            self._thread.draw_from(self._make, self._forget)
        self._projection = Projection(capture_content=capture_content)
        self._following = Following(self._take, history)
        self._own_history = history is not None
        self._spans = 0
        self._unsampled = 0
        self._faults = 0

    def __repr__(self) -> str:
        return f"<Telemetry {self._spans} spans, {self._sink!r}>"

    def catch_up_from(self, journal: Reader) -> None:
        """Read in *journal* what began before, unless it was made with a history of its own."""
        if not self._own_history:
            self._following.history = journal

    def __call__(self, event: Event) -> None:
        """Take *event*, which is durable."""
        try:
            self._following(event)
        except Exception as exc:  # noqa: BLE001 - a run must not end because of who watches it; told and counted
            self._fault(event, exc)

    def _take(self, event: Event, replayed: bool) -> None:  # noqa: FBT001 - as `Following` calls it
        if self._thread is None:
            self._feed(event, replayed)
            return
        waiting = self._waiting
        waiting.append((event, replayed))
        if len(waiting) >= MOST_EVENTS_WAITING:
            self._make()
        elif len(waiting) == WAKING_EVENTS or not self._woken:
            self._woken = True
            self._thread.wake()

    def _make(self) -> None:
        """Make the spans of all events that wait. Called in either thread; no event is lost or overtaken."""
        with self._making:
            waiting = self._waiting
            while waiting:
                event, replayed = waiting.popleft()
                try:
                    self._feed(event, replayed)
                except Exception as exc:  # noqa: BLE001 - see `__call__`
                    self._fault(event, exc)

    def _forget(self) -> None:
        self._waiting.clear()
        self._making = threading.Lock()
        self._woken = False

    def _feed(self, event: Event, replayed: bool) -> None:  # noqa: FBT001 - see `_take`
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
        return await anyio.to_thread.run_sync(self._flush, timeout_s)

    def _flush(self, timeout_s: float) -> bool:
        self._make()
        return self._sink.flush(timeout_s)

    def close(self, timeout_s: float = FLUSH_S) -> None:
        """Send what waits, as long as something gets through every *timeout_s* seconds, and stop.

        It blocks; see `aclose`. Closing twice is fine, and what happens later is dropped and counted.
        """
        self._make()
        self._sink.close(timeout_s)
        # What comes from now on has no thread to be made in.
        self._thread = None

    async def aclose(self, timeout_s: float = FLUSH_S) -> None:
        """Close in a thread; it is finished even where the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close, timeout_s)

    def statistics(self) -> TelemetryStatistics:
        """Return what became of spans so far."""
        self._make()
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
