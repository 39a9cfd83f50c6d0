"""Agentic functions of one run as spans, and which of their spans a request, a tool call or a child hangs below."""

from __future__ import annotations

from typing import final

from shoal.observability import names
from shoal.observability._content import Heard, content
from shoal.observability._open import UNFINISHED, Open, Place
from shoal.observability._spans import Span, Value
from shoal.observability._tool_calls import ToolCalls
from shoal.runtime.events import CallOpened, FrameEntered, FrameLeft, InferenceCompleted, InferenceStarted, StepRecorded


@final
class Functions:
    """The functions of one run that have not ended.

    Args:
        place: The run's.
        calls: Its tool calls.
    """

    def __init__(self, place: Place, calls: ToolCalls) -> None:
        self._place = place
        self._calls = calls
        self._open: dict[int, Open] = {}
        """By frame."""
        self._frames: dict[int, int] = {}
        """Frames of the calls of models that are under way, by call."""
        self._within: dict[int, list[int]] = {}
        """Calls by the frame that they are in."""
        self._asking: dict[int, int] = {}
        """Calls by the request that is under way."""
        self._heard: dict[int, Heard] = {}
        """What came to each call since its last request, where content is captured."""

    def enter(self, payload: FrameEntered) -> None:
        """Open the span of a function."""
        place = self._place
        called = self._calls.span_of(payload.source, payload.index)
        above = called or self._open.get(payload.parent) or place.here
        attributes: dict[str, Value] = {names.FUNCTION: payload.function, names.EXPOSE: payload.expose}
        if place.content is not None:
            attributes[names.FUNCTION_INPUT] = content(payload.arguments, place.content)
        self._open[place.seq] = place.open(names.function_span(payload.function), above.span_id, attributes)

    def leave(self, payload: FrameLeft) -> None:
        """End the span of a function."""
        for call in self._within.pop(payload.frame, ()):
            del self._frames[call]
            self._heard.pop(call, None)
        span = self._open.pop(payload.frame, None)
        if span is None:
            return
        redact = self._place.content
        if redact is not None and payload.output is not None:
            span.attributes[names.FUNCTION_OUTPUT] = content(payload.output, redact)
        failed = payload.error or ("cancelled" if payload.status == "cancelled" else "")
        self._place.close(span, payload.status, failed, payload.reason)

    def ask(self, payload: CallOpened) -> None:
        """Take note that a function asks a model."""
        self._frames[self._place.seq] = payload.frame
        self._within.setdefault(payload.frame, []).append(self._place.seq)
        redact = self._place.content
        if redact is not None:
            heard = self._heard[self._place.seq] = Heard(redact)
            heard.say("\n\n".join([str(text) for _, text in payload.blocks]))

    def record(self, payload: StepRecorded) -> None:
        """Note what a function recorded in its span."""
        span = self._open.get(payload.frame)
        if span is not None:
            said: dict[str, Value] = {names.STEP: payload.step}
            if payload.error:
                said[names.ERROR_TYPE] = payload.error
            span.note(self._place.now_ns, names.E_STEP, said)

    def send(self, payload: InferenceStarted) -> Open | None:
        """Take note of a request of a call, and return the span that it hangs below; `None` where none is open."""
        self._asking[self._place.seq] = payload.call
        return self.span_of(self._frames.get(payload.call, 0))

    def heard(self, call: int) -> Heard | None:
        """Return what came to *call* since its last request; `None` where content is not captured."""
        return self._heard.get(call)

    def reply(self, seq: int, payload: InferenceCompleted) -> None:
        """Take note of the reply *seq*: the tools that it calls hang below its function."""
        call = self._asking.pop(payload.started, 0)
        span = self.span_of(self._frames.get(call, 0))
        if span is None:
            return
        if payload.calls:
            self._calls.below(seq, payload.calls, span, self._heard.get(call))

    def miss(self, started: int) -> None:
        """Take note that a request came to nothing."""
        self._asking.pop(started, None)

    def span_of(self, frame: int) -> Open | None:
        """Return the span of a function that has not ended; `None` for any other frame."""
        return self._open.get(frame)

    def end(self, outcome: str, error: str, reason: str) -> None:
        """End everything, since the run ended; what was called last ends first."""
        for span in reversed(self._open.values()):
            self._place.close(span, outcome, error, reason)
        self._open.clear()

    def unfinished(self) -> list[Span]:
        """Return what has not ended as if it ended now, innermost first."""
        return [span.finished(self._place, UNFINISHED) for span in reversed(self._open.values())]
