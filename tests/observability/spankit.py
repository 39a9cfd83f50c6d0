"""What tests of spans share: events written by hand, whole runs on scripted providers, and ways to look at a trace."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import anyio
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from shoal.blueprints import Blueprint, CallerSeed, FanOut, Nudge, Region, Stage
from shoal.observability import Projection, Sink, Span
from shoal.providers import Provider, Text
from shoal.runtime import Event, MemoryJournal, Observer, Swarm, virtual
from shoal.runtime.context import Share
from shoal.runtime.events import (
    CallMade,
    InferenceCompleted,
    InferenceStarted,
    Payload,
    RunEnded,
    RunSpawned,
    StageEntered,
    StageLeft,
    TransitionChosen,
)

ROOT = "01970000-0000-7000-8000-000000000001"
CHILD = "01970000-0000-7000-8000-000000000002"
BEGAN = 1_767_225_600.0

TASK = Region("task", kind="pinned", max_tokens=500, seed=CallerSeed("task"), volatility="stable")
NOTES = Region("notes", kind="pinned", max_tokens=500)
TALK = Region("conversation", kind="sliding_window", max_tokens=4000, max_items=None)
LISTS = ("list_dir",)


def blueprint(*stages: Stage, regions: Sequence[Region] = (TASK, NOTES, TALK), **more: Any) -> Blueprint:
    return Blueprint("desk", tuple(stages), regions=tuple(regions), **more)


def fanned(**more: Any) -> Blueprint:
    """Return a blueprint whose first stage hands items to runs of its second."""
    fan_out = FanOut(worker_stage="worker", **more)
    first = Stage("split", mode="fan_out", fan_out=fan_out, transitions=())
    return blueprint(first, Stage("worker", transitions=()), nudge=Nudge(enabled=False))


# --- events by hand


class Story:
    """The events of one run, each a second behind the one before."""

    def __init__(self, run_id: str = ROOT, began: float = BEGAN) -> None:
        self.run_id = run_id
        self.at = began
        self.events: list[Event] = []

    def add(self, *payloads: Payload, after: float = 1.0) -> int:
        """Add events and return the seq of the last."""
        for payload in payloads:
            self.events.append(Event(self.run_id, len(self.events) + 1, self.at, payload))
            self.at += after
        return len(self.events)

    def spawn(self, name: str = "desk", **more: Any) -> int:
        more.setdefault("parent", None)
        more.setdefault("root", ROOT)
        more.setdefault("depth", 0 if more["parent"] is None else 1)
        return self.add(RunSpawned(name, "digest", more.pop("task", None), (), "/", **more))

    def enter(self, stage: str = "work", visit: int = 1) -> int:
        return self.add(StageEntered(stage, visit, "scripted", "m", 1000))

    def leave(self, stage: str = "work", target: str | None = None, **more: Any) -> int:
        condition = "linear" if target else "terminal"
        left = StageLeft(stage, 1, more.pop("reason", "done"), 1, **more)
        self.add(TransitionChosen(stage, target, condition))
        return self.add(left)

    def ask(self, purpose: Any = "stage", job: int = 0, model: str = "m") -> int:
        return self.add(InferenceStarted(purpose, "scripted", model, 100, 25, "d1", 50, job))

    def answer(self, started: int, purpose: Any = "stage", **more: Any) -> int:
        usage = more.pop("usage", (10, 0, 0, 0, 5, 0))
        made = InferenceCompleted(
            purpose,
            started,
            Text.of(more.pop("text", "said")),
            tuple(CallMade(name, Text.of("{}")) for name in more.pop("calls", ())),
            usage,
            more.pop("cost", Decimal("0.01")),
            more.pop("shares", ()),
            **more,
        )
        return self.add(made)

    def end(self, status: Any = "complete", reason: str = "it is done", **more: Any) -> int:
        return self.add(RunEnded(status, reason, **more))


def burst(observer: Observer, *, spans: int, name: str = "run") -> None:
    """Feed whole runs of a hundred spans each, as fast as that goes, until *observer* was told of so many spans."""
    for number in range(spans // 100):
        story = Story(f"{name}-{number}")
        story.spawn(root=f"{name}-{number}")
        story.enter()
        for _ in range(97):
            story.answer(story.ask())
        story.leave()
        story.end()
        for event in story.events:
            observer(event)


def share(owner: str, tokens: int = 10, cost: str | None = "0.01", **more: Any) -> Share:
    return Share(owner, tokens, cost=None if cost is None else Decimal(cost), **more)


def spans_of(*stories: Story, **more: Any) -> list[Span]:
    """Return what the events of *stories* give, one story after the other."""
    projection = Projection(**more)
    return [span for story in stories for event in story.events for span in projection.feed(event)]


# --- runs


class Kept(Sink):
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.closed = 0

    def emit(self, span: Span) -> None:
        self.spans.append(span)

    def flush(self, timeout_s: float) -> bool:
        return True

    def close(self, timeout_s: float) -> None:
        self.closed += 1

    def counts(self) -> tuple[int, int, int, int]:
        return len(self.spans), 0, 0, 0


async def played(made: Blueprint, provider: Provider, **more: Any) -> tuple[MemoryJournal, str]:
    """Run *made* once to its end and return its journal and its id."""
    journal = MemoryJournal()
    more.setdefault("task", "the task")
    observers = more.pop("observers", ())
    settings = more.pop("settings", {})
    with anyio.fail_after(86_400):
        async with Swarm([provider], journal, observers, clock=virtual(), **settings) as swarm:
            run = await swarm.spawn(made, **more)
            await run.result()
    return journal, run.run_id


# --- looking


def by_id(spans: Iterable[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: span.span_id)


def named(spans: Iterable[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def one(spans: Iterable[Span], name: str) -> Span:
    [span] = named(spans, name)
    return span


def parent_of(spans: Iterable[Span], span: Span) -> Span:
    [parent] = [other for other in spans if other.span_id == span.parent_id]
    return parent


def tree(spans: Sequence[Span]) -> list[str]:
    """Return the names of *spans* as an indented tree, in the order in which they were opened."""
    here = {span.span_id for span in spans}

    def below(parent: str | None, depth: int) -> Iterable[str]:
        for span in spans:
            if (span.parent_id if span.parent_id in here else None) == parent:
                yield "  " * depth + span.name
                yield from below(span.span_id, depth + 1)

    return list(below(None, 0))


def recomputed(span: Span) -> str:
    """Return the id that *span* must have, worked out from the rule alone."""
    rule = f"{span.attributes['shoal.run_id']}:{span.attributes['shoal.seq']}:{span.name}"
    return hashlib.sha256(rule.encode()).hexdigest()[:16]


def parsed(data: bytes) -> ExportTraceServiceRequest:
    """Read OTLP JSON as a collector does: protobuf's JSON, but for ids, which are hex there and base64 here."""
    document = json.loads(data)
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for holder in (span, *span.get("links", ())):
                    for key in ("traceId", "spanId", "parentSpanId"):
                        if key in holder:
                            holder[key] = base64.b64encode(bytes.fromhex(holder[key])).decode()
    return json_format.ParseDict(document, ExportTraceServiceRequest())
