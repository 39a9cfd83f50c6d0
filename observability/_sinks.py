"""Where finished spans go: what `Telemetry` needs of a destination, and what it counts there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

from shoal.observability._spans import Span


@final
@dataclass(frozen=True, slots=True)
class TelemetryStatistics:
    """What became of spans so far.

    Args:
        spans: Finished spans.
        exported: Those that the receiver took.
        waiting: Those that wait for the next batch, or are on their way.
        dropped: Those for which there was no room.
        failed: Those that the receiver did not take.
        unsampled: Those of traces of the user's own that are not recorded.
        left_out: Runs that are not followed: begun before, and no journal to read that from; or faulty.
        faults: Events that could not be turned into spans. Each is a defect of this package.
    """

    spans: int = 0
    exported: int = 0
    waiting: int = 0
    dropped: int = 0
    failed: int = 0
    unsampled: int = 0
    left_out: int = 0
    faults: int = 0


@runtime_checkable
class Drawing(Protocol):
    """A sink that has a thread of its own, and lets spans be made there instead of where runs are."""

    def draw_from(self, draw: Callable[[], object], forget: Callable[[], object]) -> None:
        """Have the thread call *draw*, which emits spans, before it sends any, and every now and then.

        *forget* is called in the child of a fork: what is still to be emitted there is emitted by its parent.
        """
        ...

    def wake(self) -> None:
        """Have the thread do so now."""
        ...


class Sink(Protocol):
    """Takes finished spans. `emit` never blocks and never raises because of what lies behind it."""

    def emit(self, span: Span) -> None:
        """Take *span*, or drop and count it."""
        ...

    def flush(self, timeout_s: float) -> bool:
        """Send what waits; return false where nothing got on for *timeout_s* seconds. Blocks."""
        ...

    def close(self, timeout_s: float) -> None:
        """Send what waits until nothing gets on for *timeout_s* seconds, and take no more. Blocks. Twice is fine."""
        ...

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many spans were exported, wait, were dropped, and failed."""
        ...
