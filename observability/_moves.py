"""Stages of one run and the transitions between them as spans.

What a transition cost shows in the first request behind it, so its span is finished only then; its times are those of
the transition itself. Figures follow the same rules as `TransitionRow` of the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import final

import msgspec

from shoal.observability import names
from shoal.observability._inferences import Inferences
from shoal.observability._open import UNFINISHED, Open, Place
from shoal.observability._spans import MOST_REGIONS, Link, Span, Value
from shoal.observability._tally import NOTHING, Bill, Stretch, Used, sent
from shoal.observability._tool_calls import ToolCalls
from shoal.runtime.events import (
    GateBlocked,
    GateForced,
    ModelChanged,
    StageEntered,
    StageLeft,
    TransitionChosen,
)

_ZERO = Decimal(0)


@final
class Moves:
    """Where one run stands among its stages.

    Args:
        place: The run's.
        inferences: The run's.
        calls: The run's.
    """

    def __init__(self, place: Place, inferences: Inferences, calls: ToolCalls) -> None:
        self._place = place
        self._inferences = inferences
        self._calls = calls
        self._made: Open | None = None
        """The transition that was made and whose first request is not through."""
        self._routing_cost: Decimal | None = _ZERO
        self._move_cost: Decimal | None = _ZERO
        self._cached = 0
        self._sent: Sequence[Used] = ()
        self._gates: dict[str, int] = {}
        self._forced: set[str] = set()

    # --- stages

    def enter(self, payload: StageEntered) -> None:
        """End the transition and open the span of a visit."""
        place = self._place
        if place.move is not None:
            place.move.end_ns = place.now_ns
            self._made, place.move = place.move, None
        place.steps += 1
        place.stage_name = payload.stage
        self._inferences.serving = (payload.provider, payload.model)
        attributes: dict[str, Value] = {
            names.VISIT: payload.visit,
            names.WINDOW_TOKENS: payload.window_tokens,
        }
        place.stage = place.open(names.stage_span(payload.stage), place.run.span_id, attributes)

    def change_model(self, payload: ModelChanged) -> None:
        """Take note of who serves the stage now."""
        self._inferences.serving = (payload.provider, payload.model)
        said: dict[str, Value] = {names.PROVIDER: names.vendor(payload.provider), names.REQUEST_MODEL: payload.model}
        self._place.note(names.E_MODEL_CHANGED, {**said, names.ERROR_TYPE: payload.reason})

    def leave(self, payload: StageLeft) -> None:
        """End the span of a visit."""
        place = self._place
        place.steps += 1
        if place.stage is not None:
            made = place.stage.attributes
            made[names.ITERATIONS] = payload.iterations
            if payload.flags:
                made[names.FLAGS] = payload.flags
            if payload.abandoned:
                made[names.ABANDONED] = payload.abandoned
            failed = payload.reason if payload.error or payload.reason == "error" else ""
            self._close_stage(place.stage, payload.reason, failed, payload.error)

    def _close_stage(self, stage: Open, outcome: str, error: str, reason: str) -> None:
        place = self._place
        place.done.append(self._finished_stage(stage, outcome, error, reason))
        self._inferences.leave_stage()
        self._calls.leave_stage()
        self._gates.clear()
        self._forced.clear()
        self._inferences.routed_by = None
        place.stage, place.stage_name = None, ""

    def _finished_stage(self, stage: Open, outcome: str, error: str = "", reason: str = "") -> Span:
        """Return the span *stage* with what the visit used."""
        place, tally = self._place, self._inferences.in_stage
        sums: dict[str, Value] = {
            names.STAGE_INPUT: tally.input,
            names.STAGE_OUTPUT: tally.output,
            names.STAGE_CACHE_READ: tally.read,
            names.STAGE_CACHE_WRITE: tally.written,
            names.TOOL_CALLS: self._calls.in_stage,
            **tally.attributes(),
        }
        return stage.finished(place, outcome, error, reason, sums, tally.table(place.now_ns))

    # --- gates

    def block(self, payload: GateBlocked) -> None:
        """Take note of a gate that held."""
        self._gates[payload.target] = payload.attempt
        said: dict[str, Value] = {
            names.TARGET: payload.target,
            names.REQUIREMENT: payload.requirement,
            names.ATTEMPT: payload.attempt,
        }
        self._place.note(names.E_GATE_BLOCKED, said)

    def force(self, payload: GateForced) -> None:
        """Take note of a gate that was passed although it held."""
        self._forced.add(payload.target)

    # --- transitions

    def choose(self, payload: TransitionChosen) -> None:
        """Open the span of a transition."""
        self._settle_made({})
        place = self._place
        attributes: dict[str, Value] = {
            names.FROM: payload.source,
            names.CONDITION: payload.condition,
            names.CHOSEN_BY: payload.by,
            names.TRANSFORM: payload.transform,
            names.CACHED_BEFORE: self._cached,
        }
        if payload.target is not None:
            attributes[names.TO] = payload.target
            attributes[names.GATE_ATTEMPTS] = self._gates.get(payload.target, 0)
            if payload.target in self._forced:
                attributes[names.GATE_FORCED] = True
        name = names.transition_span(payload.source, payload.target)
        place.move = place.open(name, place.run.span_id, attributes)
        if self._inferences.routed_by is not None:
            place.move.links.append(Link(self._inferences.routed_by, "routed_by"))
        self._move_cost, self._routing_cost = self._routing_cost, _ZERO

    def bill(self, bill: Bill) -> None:
        """Take note of what an inference cost, where a transition pays for it or is measured by it."""
        purpose, cost = bill.completed.purpose, bill.completed.cost
        if purpose == "stage":
            if self._made is not None:
                self._settle_made(self._measured(bill))
            self._cached = bill.read + bill.written
            self._sent = bill.regions
        elif purpose == "routing":
            self._routing_cost = _sum(self._routing_cost, cost)
        elif purpose == "compaction" and (self._place.move or self._made) is not None:
            self._move_cost = _sum(self._move_cost, cost)

    def _measured(self, bill: Bill) -> dict[str, Value]:
        before, after = sent(self._sent), sent(bill.regions)
        every = {**before, **after}
        regions = sorted(every, key=lambda name: -max(_in(before, name).tokens, _in(after, name).tokens))[:MOST_REGIONS]
        return {
            names.CACHED_AFTER: bill.read,
            names.UNCACHED_AFTER: bill.input - bill.read,
            names.CACHE_LOST: max(0, self._cached - bill.read),
            names.MOVED_REGIONS: tuple(regions),
            names.TOKENS_BEFORE: tuple([_in(before, name).tokens for name in regions]),
            names.TOKENS_AFTER: tuple([_in(after, name).tokens for name in regions]),
            names.REGIONS_LOST: tuple([max(0, _in(before, name).cached - _in(after, name).read) for name in regions]),
        }

    def _settle_made(self, measured: dict[str, Value]) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.attributes.update(measured)
            self._place.done.append(self._paid(made).finished(self._place, "complete"))

    def _paid(self, move: Open) -> Open:
        if self._move_cost is not None:
            move.attributes[names.COST_USD] = float(self._move_cost)
        return move

    # --- the end

    def end(self, outcome: str, error: str, reason: str) -> None:
        """End everything, since the run ended."""
        place = self._place
        self._settle_made({})
        if place.stage is not None:
            self._close_stage(place.stage, outcome, error, reason)
        if place.move is not None:
            place.close(self._paid(place.move), outcome, error, reason)
            place.move = None

    def unfinished(self) -> list[Span]:
        """Return what is under way as if it ended now."""
        place = self._place
        shown = [] if place.stage is None else [self._finished_stage(place.stage, UNFINISHED)]
        if place.move is not None:
            shown.append(place.move.finished(place, UNFINISHED))
        if self._made is not None:
            made = self._paid(self._made).finished(place, "complete")
            # It is over, and what it cost is still to be added.
            shown.append(msgspec.structs.replace(made, attributes=dict(made.attributes)))
        return shown


def _in(shown: Mapping[str, Stretch], region: str) -> Stretch:
    return shown.get(region, NOTHING)


def _sum(known: Decimal | None, more: Decimal | None) -> Decimal | None:
    return None if known is None or more is None else known + more
