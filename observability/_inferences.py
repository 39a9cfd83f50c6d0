"""Inferences of one run as spans, and what they cost."""

from __future__ import annotations

from typing import final

from shoal.observability import names
from shoal.observability._content import Heard, output
from shoal.observability._open import UNFINISHED, Open, Place
from shoal.observability._spans import MOST_REGIONS, Link, Span, Value
from shoal.observability._tally import Bill, Tally
from shoal.runtime.context import PromptAmended, PromptEpoch
from shoal.runtime.events import (
    InferenceFailed,
    InferenceRetried,
    InferenceStarted,
    RunSpawned,
    TokensMeasured,
)


@final
class Inferences:
    """The requests of one run that are under way.

    Args:
        place: The run's.
        spawned: How it was spawned.
    """

    def __init__(self, place: Place, spawned: RunSpawned) -> None:
        self._place = place
        self._agent = spawned.name
        self._root = spawned.root
        self._open: dict[int, tuple[Open, InferenceStarted]] = {}
        self._broken: dict[tuple[int, int], str] = {}
        """Span ids of requests that a dead process left open, by job (0 for the run's own) and call (0 for none)."""
        self.serving: tuple[str, str] = ("", "")
        """Provider and model of the stage."""
        self.in_stage = Tally()
        self.in_run = Tally()
        self.routed_by: str | None = None
        """Span id of the newest routing question of this visit."""
        self.heard = None if place.content is None else Heard(place.content)
        self._told: dict[int, dict[str, Value]] = {}
        """What is known of the run's next request before it goes out, by the call that it is for; 0 for none."""
        self._amended: list[str] = []

    def measured(self, payload: TokensMeasured) -> None:
        """Take note that a request was counted before it went out."""
        told = self._told.setdefault(payload.call, {})
        told[names.COUNTED_TOKENS] = payload.tokens
        told[names.COUNTED_BY] = payload.how

    def epoch(self, payload: PromptEpoch) -> None:
        """Take note that the next request is made anew."""
        told = self._told.setdefault(0, {})
        told[names.EPOCH] = payload.reason
        told[names.EPOCH_REWRITTEN] = payload.tokens_rewritten
        told[names.EPOCH_DROPPED] = payload.thinking_dropped
        self._amended = []

    def amended(self, payload: PromptAmended) -> None:
        """Take note that the next request says a region again."""
        self._amended.append(payload.region)

    def start(self, payload: InferenceStarted, parent_id: str, heard: Heard | None) -> None:
        """Open the span of a request; an older one of the same kind that is still open came to nothing.

        *heard* is what came to whoever asks since the last request; `None` where content is not captured.
        """
        place = self._place
        self._abandon((payload.job, payload.call), "abandoned")
        attributes = self._identity(payload.provider, payload.model, payload.purpose)
        attributes[names.REQUEST_MAX_TOKENS] = payload.reply_tokens
        attributes[names.CONTEXT_CHARS] = payload.approx_context_chars
        attributes[names.CONTEXT_TOKENS] = payload.approx_tokens
        if payload.wanted_tokens:
            attributes[names.REPLY_WANTED] = payload.wanted_tokens
        if not payload.job:
            attributes |= self._told.pop(payload.call, {})
            if self._amended:
                attributes[names.AMENDED] = tuple(self._amended)
            self._amended = []
        if heard is not None and payload.purpose == "stage":
            attributes[names.INPUT_MESSAGES] = heard.take()
        span = place.open(names.chat_span(payload.model), parent_id, attributes, "client")
        broken = self._broken.pop((payload.job, payload.call), None)
        if broken is not None:
            span.links.append(Link(broken, "retry_of"))
        self._open[place.seq] = (span, payload)
        if not payload.job:
            place.steps += 1

    def _identity(self, provider: str, model: str, purpose: str) -> dict[str, Value]:
        vendor = names.vendor(provider)
        made: dict[str, Value] = {
            names.OPERATION: "chat",
            names.PROVIDER: vendor,
            names.SYSTEM: vendor,
            names.REQUEST_MODEL: model,
            names.CONVERSATION_ID: self._root,
            names.AGENT_NAME: self._agent,
            names.PURPOSE: purpose,
        }
        if vendor != provider:
            made[names.OUR_PROVIDER] = provider
        return made

    def complete(self, bill: Bill) -> None:
        """End a request that was answered, and add its bill."""
        place, payload = self._place, bill.completed
        (self.in_stage if place.stage is not None else self.in_run).add(bill)
        span, started = self._open.pop(payload.started, (None, None))
        if span is None or started is None:
            return
        made = span.attributes
        made[names.RESPONSE_MODEL] = payload.model or started.model
        made[names.FINISH_REASONS] = (payload.finish,)
        if payload.request_id is not None:
            made[names.RESPONSE_ID] = payload.request_id
        if payload.simulated:
            made[names.SIMULATED] = True
        if payload.estimated:
            made[names.ESTIMATED] = True
        bill.attributes(made)
        if len(bill.regions) > MOST_REGIONS:
            span.events.extend(bill.table(place.now_ns))
        if place.content is not None:
            made[names.OUTPUT_MESSAGES] = output(payload, place.seq, place.content)
        if payload.purpose == "routing":
            self.routed_by = span.span_id
        place.close(span, "complete")

    def retry(self, payload: InferenceRetried) -> None:
        """Note an attempt that failed and is repeated."""
        span, _ = self._open.get(payload.started, (None, None))
        if span is not None:
            span.attributes[names.ATTEMPTS] = payload.attempt + 1
            said: dict[str, Value] = {
                names.ATTEMPT: payload.attempt,
                names.ERROR_TYPE: payload.error,
                names.DELAY_S: payload.delay_s,
            }
            if payload.cost is not None:
                said[names.CUT_COST_USD] = float(payload.cost)
            span.note(self._place.now_ns, names.E_RETRY, said)

    def fail(self, payload: InferenceFailed) -> None:
        """End a request that came to nothing; one that was never sent gets a span of almost no length."""
        place = self._place
        span, _ = self._open.pop(payload.started, (None, None))
        if span is None:
            provider, model = self.serving
            attributes = self._identity(provider, model, payload.purpose)
            span = place.open(names.chat_span(model), place.here.span_id, attributes, "client")
        if payload.cost is not None:
            span.attributes[names.CUT_COST_USD] = float(payload.cost)
        place.close(span, "failed", payload.error, payload.message)

    # --- ends without an answer

    def _abandon(self, whose: tuple[int, int], why: str, reason: str = "") -> None:
        for seq, (span, started) in tuple(self._open.items()):
            if (started.job, started.call) == whose:
                del self._open[seq]
                self._place.close(span, "abandoned", why, reason)

    def job_ended(self, job: int, why: str) -> None:
        """End what a lane's job was still asking when it ended; *why* is one word."""
        self._abandon((job, 0), why or "abandoned")

    def interrupted(self) -> None:
        """End what a dead process was asking; the request that repeats it points back."""
        for span, started in self._open.values():
            span.attributes[names.INTERRUPTED] = True
            self._broken[started.job, started.call] = span.span_id
            self._place.close(span, "interrupted", "interrupted", "the process died before the reply was recorded")
        self._open.clear()

    def end(self, outcome: str, error: str, reason: str) -> None:
        """End everything, since the run ended."""
        for span, _ in self._open.values():
            self._place.close(span, outcome, error, reason)
        self._open.clear()

    def leave_stage(self) -> None:
        """Start a new sum for the next stage."""
        self.in_run.merge(self.in_stage)
        self.in_stage = Tally()

    def unfinished(self) -> list[Span]:
        """Return what is under way as if it ended now."""
        return [span.finished(self._place, UNFINISHED) for span, _ in self._open.values()]

    def whole(self) -> Tally:
        """Return what the run used in all, the stage it is in included."""
        whole = Tally()
        whole.merge(self.in_run)
        whole.merge(self.in_stage)
        return whole
