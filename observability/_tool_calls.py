"""Tool calls of one run as spans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from shoal.observability import names
from shoal.observability._content import Heard, call_id, content
from shoal.observability._open import UNFINISHED, Open, Place
from shoal.observability._spans import Span, Value
from shoal.runtime.events import CallMade, InferenceCompleted, ToolCallCompleted, ToolCallStarted


@final
class ToolCalls:
    """The calls of one run that are under way.

    Args:
        place: The run's.
        heard: Takes results where content is captured; `None` otherwise.
    """

    def __init__(self, place: Place, heard: Heard | None) -> None:
        self._place = place
        self._heard = heard
        self._made: tuple[int, tuple[CallMade, ...]] = (0, ())
        """The newest reply of a stage: its seq, and its calls."""
        self._below: dict[int, _Below] = {}
        """Replies in calls of agentic functions whose tools have not all ended, by seq."""
        self._open: dict[tuple[int, int], Open] = {}
        self.in_stage = 0
        self.in_run = 0

    def asked(self, seq: int, reply: InferenceCompleted) -> None:
        """Take note of the calls that the reply *seq* makes."""
        if reply.purpose == "stage":
            self._made = (seq, reply.calls)

    def below(self, seq: int, calls: tuple[CallMade, ...], span: Open, heard: Heard | None) -> None:
        """Have the calls of the reply *seq* hang below *span*, and their results told to *heard*."""
        self._below[seq] = _Below(calls, span, heard, len(calls))

    def start(self, payload: ToolCallStarted) -> None:
        """Open the span of a call."""
        self._place.steps += 1
        self._open[payload.source, payload.index] = self._opened(payload.source, payload.index)

    def _opened(self, source: int, index: int) -> Open:
        place = self._place
        made = self._call(source, index)
        name = "unknown" if made is None else made.name
        attributes: dict[str, Value] = {
            names.OPERATION: "execute_tool",
            names.TOOL_NAME: name,
            names.TOOL_CALL_ID: call_id(source, index),
            names.TOOL_TYPE: "function",
        }
        if place.content is not None and made is not None:
            attributes[names.TOOL_ARGUMENTS] = content(made.arguments, place.content)
        below = self._below.get(source)
        above = place.here if below is None else below.span
        return place.open(names.tool_span(name), above.span_id, attributes)

    def _call(self, source: int, index: int) -> CallMade | None:
        below = self._below.get(source)
        seq, calls = self._made if below is None else (source, below.calls)
        return calls[index] if seq == source and index < len(calls) else None

    def complete(self, payload: ToolCallCompleted) -> None:
        """End a call; one that the run answered itself, or that a gate stopped, gets a span of almost no length."""
        place = self._place
        key = (payload.source, payload.index)
        span = self._open.pop(key, None) or self._opened(*key)
        self.in_stage += 1
        made = span.attributes
        made[names.RESULT_BYTES] = len(payload.text)
        if place.content is not None:
            made[names.TOOL_RESULT] = content(payload.text, place.content)
        heard = self._heard_of(payload.source)
        if heard is not None:
            heard.answer(call_id(*key), payload.text)
        if payload.gate:
            made[names.GATE] = payload.gate
            place.close(span, "stopped", payload.gate, f"stopped at the {payload.gate} gate")
        elif payload.interrupted:
            made[names.INTERRUPTED] = True
            place.close(span, "interrupted", "interrupted", "the process died while it ran; its effect is unknown")
        elif payload.is_error:
            place.close(span, "failed", "tool_error", "the tool answered with an error")
        else:
            place.close(span, "complete")

    def _heard_of(self, source: int) -> Heard | None:
        """Return who is told a result of the reply *source*; the last one makes it forgotten."""
        below = self._below.get(source)
        if below is None:
            return self._heard
        below.left -= 1
        if not below.left:
            del self._below[source]
        return below.heard

    def span_of(self, source: int, index: int) -> Open | None:
        """Return the span of a call that is under way; `None` for none."""
        return self._open.get((source, index))

    def interrupted(self) -> None:
        """Mark what a dead process was running: it runs again, or is answered as interrupted."""
        for span in self._open.values():
            span.attributes[names.INTERRUPTED] = True

    def leave_stage(self) -> None:
        """Start a new count for the next stage."""
        self.in_run += self.in_stage
        self.in_stage = 0

    def end(self, outcome: str, error: str, reason: str) -> None:
        """End everything, since the run ended."""
        for span in self._open.values():
            self._place.close(span, outcome, error, reason)
        self._open.clear()

    def unfinished(self) -> list[Span]:
        """Return what is under way as if it ended now."""
        return [span.finished(self._place, UNFINISHED) for span in self._open.values()]


@final
@dataclass(slots=True)
class _Below:
    """A reply in a call of an agentic function.

    Args:
        calls: The tools that it calls.
        span: The span of the function.
        heard: Who is told the results; `None` where content is not captured.
        left: How many of the calls have not ended.
    """

    calls: tuple[CallMade, ...]
    span: Open
    heard: Heard | None
    left: int
