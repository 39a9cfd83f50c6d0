"""Jobs of the lanes for one run as spans.

A job that the stage waits for is its child. One that goes on beside it is a child of the run, with a link to the span
in which it was ordered: a parent outlives its children.
"""

from __future__ import annotations

from typing import final

import msgspec

from shoal.observability import names
from shoal.observability._open import UNFINISHED, Open, Place
from shoal.observability._spans import Link, Span, Value
from shoal.runtime.events import LaneCompleted, LaneDegraded, LaneStarted

_TOLD = frozenset({"provider", "timeout", "overflow", "lane_down"})
"""Reasons whose error is a sentence about the request; others may quote what a model said."""


@final
class Job(msgspec.Struct, frozen=True, gc=False):
    """A job that is under way: its span, the span it was ordered in, and how many steps the run had begun by then."""

    span: Open
    ordered_in: Open
    steps: int
    waited: bool


@final
class Jobs:
    """The jobs of one run that are under way.

    Args:
        place: The run's.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._open: dict[int, Job] = {}

    def start(self, payload: LaneStarted) -> None:
        """Open the span of a job."""
        place = self._place
        attributes: dict[str, Value] = {}
        if payload.region:
            attributes[names.LANE_REGION] = payload.region
        if payload.entry_ids:
            attributes[names.LANE_ENTRIES] = len(payload.entry_ids)
        here = place.here
        span = place.open(names.lane_span(payload.lane), here.span_id, attributes)
        self._open[place.seq] = Job(span, here, place.steps, payload.lane != "titling")

    def complete(self, payload: LaneCompleted) -> None:
        """End a job that is done."""
        self._end(payload.job, "complete")

    def degrade(self, payload: LaneDegraded) -> None:
        """End a job that came to nothing; one that nobody needed any more is no error."""
        if payload.reason == "dropped":
            self._end(payload.job, "dropped", reason="the run ended before it did")
            return
        job = self._open.get(payload.job)
        if job is not None and payload.bytes_saved:
            job.span.attributes[names.BYTES_SAVED] = payload.bytes_saved
        redact = self._place.content
        told = payload.error if payload.reason in _TOLD else "" if redact is None else redact(payload.error)
        self._end(payload.job, "degraded", payload.reason, f"{payload.reason}: {told}" if told else payload.reason)

    def _end(self, number: int, outcome: str, error: str = "", reason: str = "") -> None:
        job = self._open.pop(number, None)
        if job is not None:
            self._place.done.append(self._finished(job, outcome, error, reason))

    def _finished(self, job: Job, outcome: str, error: str = "", reason: str = "") -> Span:
        place, span = self._place, job.span
        finished = span.finished(place, outcome, error, reason)
        still_there = job.ordered_in is place.stage or job.ordered_in is place.move
        if job.ordered_in is place.run or (job.waited and still_there and job.steps == place.steps):
            return finished
        links = (Link(job.ordered_in.span_id, "ordered_by"),)
        return msgspec.structs.replace(finished, parent_id=place.run.span_id, links=links)

    def span_of(self, number: int) -> Open | None:
        """Return the span of a job that is under way; `None` for none."""
        job = self._open.get(number)
        return None if job is None else job.span

    def interrupted(self) -> None:
        """Mark what a dead process was doing: it is done again."""
        for job in self._open.values():
            job.span.attributes[names.INTERRUPTED] = True

    def end(self, outcome: str, error: str, reason: str) -> None:
        """End everything, since the run ended."""
        for number in tuple(self._open):
            self._end(number, outcome, error, reason)

    def unfinished(self) -> list[Span]:
        """Return what is under way as if it ended now."""
        return [self._finished(job, UNFINISHED) for job in self._open.values()]
