"""Spans that are not over, and what all parts of one run's trace share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from shoal.observability import names
from shoal.observability._redact import Redactor
from shoal.observability._spans import (
    MOST_EVENTS,
    Kind,
    Link,
    Span,
    SpanEvent,
    StatusCode,
    Tree,
    Value,
    first_line,
    span_id_of,
    span_name,
)


@final
class Open:
    """A span that is not over.

    Args:
        name: Its name.
        span_id: Its id.
        parent_id: Its parent's; `None` for a root.
        start_ns: Unix nanoseconds.
        attributes: What is known of it; more is added while it lasts.
        kind: `client` for what asks a provider.
    """

    __slots__ = (
        "attributes",
        "dropped",
        "end_ns",
        "events",
        "kind",
        "links",
        "name",
        "parent_id",
        "span_id",
        "start_ns",
    )

    def __init__(
        self,
        name: str,
        span_id: str,
        parent_id: str | None,
        start_ns: int,
        attributes: dict[str, Value],
        kind: Kind = "internal",
    ) -> None:
        self.name = name
        self.span_id = span_id
        self.parent_id = parent_id
        self.start_ns = start_ns
        self.end_ns = 0
        self.attributes = attributes
        self.kind: Kind = kind
        self.events: list[SpanEvent] = []
        self.links: list[Link] = []
        self.dropped = 0

    def note(self, at_ns: int, name: str, attributes: dict[str, Value]) -> None:
        """Note something that happened in it; past `MOST_EVENTS` it is only counted."""
        if len(self.events) < MOST_EVENTS:
            self.events.append(SpanEvent(name, at_ns, attributes))
        else:
            self.dropped += 1

    def finished(
        self,
        place: Place,
        outcome: str,
        error: str = "",
        reason: str = "",
        sums: Mapping[str, Value] | None = None,
        tables: tuple[SpanEvent, ...] = (),
    ) -> Span:
        """Return it as a finished span.

        Args:
            place: The run's.
            outcome: How it ended, one word; it is never left out.
            error: Class of the error; empty where it ended well.
            reason: Why, one sentence.
            sums: Attributes that are worked out at the end; `None` for none.
            tables: Events that are worked out at the end.
        """
        # One that is still open goes on; it must not say already how it ended.
        attributes = dict(self.attributes) if outcome == UNFINISHED else self.attributes
        attributes[names.OUTCOME] = outcome
        if sums is not None:
            attributes.update(sums)
        if error:
            attributes[names.ERROR_TYPE] = error
        if reason:
            attributes[names.REASON] = first_line(reason)
        if self.dropped:
            attributes[names.DROPPED_EVENTS] = self.dropped
        status: StatusCode = "error" if error else "unset" if outcome == UNFINISHED else "ok"
        tree = place.tree
        end_ns = self.end_ns or place.now_ns
        # Each span lasts: Jaeger takes one of no length for a fault of the clock.
        if outcome == UNFINISHED:
            end_ns = place.now_ns + 1
        elif end_ns <= self.start_ns:
            place.now_ns = end_ns = self.start_ns + 1
        return Span(
            self.name,
            tree.trace_id,
            self.span_id,
            self.parent_id,
            self.kind,
            self.start_ns,
            end_ns,
            status,
            attributes,
            (*self.events, *tables),
            tuple(self.links),
            place.run_id,
            tree.parent_id is not None,
            tree.sampled,
            self.parent_id is not None and self.parent_id == tree.parent_id,
        )


UNFINISHED = "unfinished"
"""Outcome of a span that is still open where its trace is shown."""


@final
class Place:
    """What all parts of one run's trace share: which run, where it stands, and what came to an end.

    Args:
        run_id: The run.
        tree: The tree it belongs to.
        at: When it began, unix seconds.
        after_ns: Unix nanoseconds before which nothing of it happened: when its parent announced it.
        content: Strikes secrets out of prompts and outputs, which go into spans; `None` where they do not.
    """

    __slots__ = ("content", "done", "move", "now_ns", "run", "run_id", "seq", "stage", "stage_name", "steps", "tree")

    run: Open
    """The run's own span; opened first."""

    def __init__(self, run_id: str, tree: Tree, at: float, *, after_ns: int, content: Redactor | None) -> None:
        self.run_id = run_id
        self.tree = tree
        self.content = content
        self.seq = 0
        self.now_ns = after_ns
        self.at(1, at)
        self.stage: Open | None = None
        self.stage_name = ""
        self.move: Open | None = None
        """The transition that is being made."""
        self.steps = 0
        """How many steps of its own the run has begun: requests, calls, stages."""
        self.done: list[Span] = []

    def at(self, seq: int, at: float) -> None:
        """Take note that event *seq* happened at *at* (unix seconds); within a run time always goes on."""
        self.seq = seq
        # As the journal keeps it: the microsecond, so that live spans and exported ones are the same.
        self.now_ns = max(self.now_ns + 1, round(at * 1e6) * 1000)

    def open(self, name: str, parent_id: str | None, attributes: dict[str, Value], kind: Kind = "internal") -> Open:
        """Open the span *name* by the event at hand; it keeps *attributes* and adds to them."""
        name = span_name(name)
        attributes[names.RUN_ID] = self.run_id
        attributes[names.SEQ] = self.seq
        if self.stage_name:
            attributes[names.STAGE] = self.stage_name
        return Open(name, span_id_of(self.run_id, self.seq, name), parent_id, self.now_ns, attributes, kind)

    def close(self, span: Open, outcome: str, error: str = "", reason: str = "") -> None:
        """End *span* now."""
        self.done.append(span.finished(self, outcome, error, reason))

    @property
    def here(self) -> Open:
        """The innermost of stage, transition and run."""
        return self.stage or self.move or self.run

    def note(self, name: str, attributes: dict[str, Value]) -> None:
        """Note something that happened in the innermost span."""
        self.here.note(self.now_ns, name, attributes)
