"""Log lines of live runs: an observer of events that writes one line for each that people look for.

Each line has the run, its stage, and the ids of the trace and the span it belongs to, so that a line found in a log
leads to its span in Jaeger. Prompts and outputs are in no line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, TextIO, TypeAlias, final

from shoal.errors import DefinitionMissing, JournalDamaged, JournalFailed
from shoal.observability import names
from shoal.observability._spans import clip, first_line, span_id_of, span_name, tree_of
from shoal.runtime import Event, Reader, recorded
from shoal.runtime.context import ContextCompacted, PromptEpoch
from shoal.runtime.events import (
    ENDED_WELL,
    BlueprintChanged,
    ChildEnded,
    ChildSpawned,
    GateBlocked,
    GateForced,
    InferenceCompleted,
    InferenceFailed,
    InferenceRetried,
    InferenceStarted,
    ItemRefused,
    LaneDegraded,
    MessageReceived,
    ModelChanged,
    Payload,
    RunEnded,
    RunPaused,
    RunRestarted,
    RunResumed,
    RunSpawned,
    ScriptFailed,
    StageEntered,
    StageLeft,
    ToolCallCompleted,
    TransitionChosen,
    VolatilityBroken,
)

Level: TypeAlias = Literal["debug", "info", "warning", "error"]

_NUMBERS: Mapping[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Logger(Protocol):
    """What takes the lines: a structlog logger, or anything that has its `log`."""

    def log(self, level: int, event: str, **fields: Any) -> Any:
        """Write one line."""
        ...


@final
class Logs:
    """Writes one line for each noteworthy event; give it to a swarm as an observer. See `logs`.

    Args:
        logger: Takes the lines.
        history: The journal, from which the stage of a run is read that began before; `None` leaves it out.
    """

    def __init__(self, logger: Logger, *, history: Reader | None = None) -> None:
        self._logger = logger
        self._history = history
        self._places: dict[str, _Place] = {}
        self._default_knobs: dict[str, bool] = {}
        """Whether nobody wrote the observation knobs that act on a run, by its definition."""
        self.lost = 0
        """Lines that could not be written, or not with all they could have said."""

    def __repr__(self) -> str:
        return f"<Logs of {len(self._places)} runs>"

    def __call__(self, event: Event) -> None:
        """Take *event*, which is durable."""
        place = self._places.get(event.run_id)
        if place is None:
            place = self._places[event.run_id] = self._met(event)
        place.take(event)
        line = _LINES.get(type(event.payload))
        if line is not None and place.is_news(event.payload):
            self._write(event, place, line)
        if isinstance(event.payload, RunSpawned) and self._has_default_knobs(event.payload.definition):
            self._write(event, place, _BY_DEFAULT)
        if isinstance(event.payload, StageLeft):
            place.stage = place.stage_span = None
        elif isinstance(event.payload, RunEnded):
            del self._places[event.run_id]

    def _met(self, event: Event) -> _Place:
        """Return where the run of *event* stands, which was not seen before."""
        if isinstance(event.payload, RunSpawned):
            return _Place(self._trace_of(event.payload))
        place = _Place(None)
        for earlier in self._read(event.run_id):
            if earlier.seq >= event.seq:
                break
            if isinstance(earlier.payload, RunSpawned):
                place = _Place(self._trace_of(earlier.payload))
            place.take(earlier)
        return place

    def _trace_of(self, spawned: RunSpawned) -> str:
        """Return the trace that a run belongs to: its parent's, or the one that its root gave the tree."""
        if spawned.parent is None:
            return tree_of(spawned.root, spawned.trace).trace_id
        parent = self._places.get(spawned.parent)
        if parent is not None and parent.trace_id is not None:
            return parent.trace_id
        first = next(self._read(spawned.root), None)
        joined = first.payload.trace if first is not None and isinstance(first.payload, RunSpawned) else None
        return tree_of(spawned.root, joined).trace_id

    def _read(self, run_id: str) -> Iterator[Event]:
        if self._history is not None:
            try:
                yield from self._history.read(run_id)
            except JournalDamaged:  # a line says less then; who resumes the run is told of the damage and its place
                self.lost += 1

    def _has_default_knobs(self, definition: str) -> bool:
        """Say whether observation knobs act on the runs of *definition* that nobody wrote."""
        if self._history is None:
            return False
        if definition not in self._default_knobs:
            try:
                program = recorded(self._history.definition(definition))
            except (DefinitionMissing, JournalFailed):
                return False
            stages = [stage for stage in program.stages.values() if stage.layout.knobs is not None]
            written = (program.blueprint.observations, *(each.stage.context.observations for each in stages))
            self._default_knobs[definition] = bool(stages) and not any(layer is not None for layer in written)
        return self._default_knobs[definition]

    def _write(self, event: Event, place: _Place, line: _Line) -> None:
        choose, said, fields = line
        level = choose(event.payload)
        if level is None:
            return
        where = {"run_id": event.run_id, "stage": place.stage, "trace_id": place.trace_id, "span_id": place.span}
        known = {name: value for name, value in where.items() if value is not None}
        try:
            self._logger.log(
                _NUMBERS[level],
                said,
                timestamp=event.time.isoformat(),
                seq=event.seq,
                **known,
                **fields(event.payload),
            )
        except Exception:  # noqa: BLE001 - a closed pipe, or a logger of anybody's, must not end the run; counted
            self.lost += 1


@final
class _Place:
    """Where one run stands, for its lines: its trace, its stage, and the span that the newest event belongs to."""

    __slots__ = ("_failed_scripts", "_models", "_run_span", "span", "stage", "stage_span", "trace_id")

    def __init__(self, trace_id: str | None) -> None:
        self.trace_id = trace_id
        self.stage: str | None = None
        self.stage_span: str | None = None
        self.span: str | None = None
        self._run_span: str | None = None
        self._models: dict[int, str] = {}
        """Model of each request that is under way, by its seq."""
        self._failed_scripts: set[tuple[str, str]] = set()
        """Regions (or scripts) and functions of which a failure was said."""

    def take(self, event: Event) -> None:
        """Take note of *event*."""
        run_id, payload = event.run_id, event.payload
        match payload:
            case RunSpawned():
                self._run_span = _span_id(run_id, event.seq, names.agent_span(payload.name))
            case StageEntered():
                self.stage = payload.stage
                self.stage_span = _span_id(run_id, event.seq, names.stage_span(payload.stage))
            case InferenceStarted():
                self._models[event.seq] = payload.model
            case _:
                pass
        self.span = self._span_of(run_id, payload) or self.stage_span or self._run_span

    def is_news(self, payload: Payload) -> bool:
        """Say whether a line is to be written: a script that goes on failing is said once."""
        if not isinstance(payload, ScriptFailed):
            return True
        which = (payload.region or payload.script, payload.function)
        known = which in self._failed_scripts
        self._failed_scripts.add(which)
        return not known

    def _span_of(self, run_id: str, payload: Payload) -> str | None:
        match payload:
            case InferenceCompleted() | InferenceFailed():
                model = self._models.pop(payload.started, None)
            case InferenceRetried():
                model = self._models.get(payload.started)
            case RunEnded():
                return self._run_span
            case _:
                return None
        return None if model is None else _span_id(run_id, payload.started, names.chat_span(model))


def _span_id(run_id: str, seq: int, name: str) -> str:
    return span_id_of(run_id, seq, span_name(name))


def logs(
    stream: TextIO | None = None,
    *,
    level: Level = "info",
    json: bool | None = None,
    history: Reader | None = None,
) -> Logs:
    """Return a `Logs` that writes to *stream*. Nothing else is set up: no root logger, no structlog default.

    Args:
        stream: Where lines go; `None` is standard error.
        level: The least that is written.
        json: One JSON object a line. `None`: where *stream* is no terminal.
        history: The journal; see `Logs`.
    """
    import structlog  # noqa: PLC0415 - only where lines are wanted

    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    plain = not terminal if json is None else json
    writer = structlog.processors.JSONRenderer() if plain else structlog.dev.ConsoleRenderer(colors=terminal)
    logger = structlog.wrap_logger(
        structlog.WriteLogger(target),
        processors=[structlog.processors.add_log_level, writer],
        wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]),
    )
    return Logs(logger, history=history)


# --- the lines

_Line: TypeAlias = tuple[Callable[[Any], "Level | None"], str, Callable[[Any], dict[str, object]]]


def _always(level: Level) -> Callable[[Any], Level]:
    return lambda _payload: level


def _spawned(payload: RunSpawned) -> dict[str, object]:
    more: dict[str, object] = {} if payload.parent is None else {"parent": payload.parent}
    if payload.item is not None:
        more["item"] = clip(payload.item)
    return {"agent": payload.name, **more}


def _left(payload: StageLeft) -> dict[str, object]:
    more: dict[str, object] = {"error": first_line(payload.error)} if payload.error else {}
    return {"reason": payload.reason, "iterations": payload.iterations, **more}


def _answered_level(payload: InferenceCompleted) -> Level:
    return "warning" if payload.finish == "refusal" else "debug"


def _answered(payload: InferenceCompleted) -> dict[str, object]:
    usage = payload.billed
    cost = None if payload.cost is None else format(payload.cost, "f")
    return {
        "purpose": payload.purpose,
        "input_tokens": usage.input,
        "cached_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "cost_usd": cost,
        "finish": payload.finish,
    }


def _retried(payload: InferenceRetried) -> dict[str, object]:
    return {
        "purpose": payload.purpose,
        "attempt": payload.attempt,
        "error": payload.error,
        "delay_s": round(payload.delay_s, 3),
    }


def _called(payload: ToolCallCompleted) -> dict[str, object]:
    more: dict[str, object] = {"gate": payload.gate} if payload.gate else {}
    return {"call": f"call_{payload.source}_{payload.index}", "failed": payload.is_error, **more}


def _ended_level(payload: RunEnded) -> Level:
    return "info" if payload.status in ENDED_WELL else "warning"


_BY_DEFAULT: _Line = (
    _always("info"),
    "old results are masked by default",
    lambda _payload: {"profile": "coding", "docs": "docs/windows.md"},
)
"""Of a run without a layout: what nobody wrote acts on it."""

_LINES: Mapping[type[Payload], _Line] = {
    RunSpawned: (_always("info"), "run spawned", _spawned),
    RunEnded: (
        _ended_level,
        "run ended",
        lambda p: {"status": p.status, "reason": first_line(p.reason), "flags": sorted(p.flags)},
    ),
    RunPaused: (_always("warning"), "run paused", lambda p: {"reason": first_line(p.reason)}),
    RunResumed: (_always("info"), "run resumed", lambda p: {"by": p.by}),
    RunRestarted: (
        _always("error"),
        "run restarted",
        lambda p: {"attempt": p.attempt, "error": clip(p.error.strip().rpartition("\n")[2])},
    ),
    BlueprintChanged: (_always("info"), "blueprint changed", lambda p: {"changed": clip(", ".join(p.changed))}),
    ChildSpawned: (_always("debug"), "child spawned", lambda p: {"child": p.child, "agent": p.name}),
    ChildEnded: (_always("debug"), "child ended", lambda p: {"child": p.child, "status": p.status}),
    ItemRefused: (_always("warning"), "item refused", lambda p: {"item": clip(p.item)}),
    StageEntered: (
        _always("info"),
        "stage entered",
        lambda p: {"visit": p.visit, "provider": p.provider, "model": p.model},
    ),
    StageLeft: (lambda p: "warning" if p.error else "info", "stage left", _left),
    TransitionChosen: (
        _always("debug"),
        "transition",
        lambda p: {"to": p.target, "condition": p.condition, "by": p.by, "transform": p.transform},
    ),
    GateBlocked: (
        _always("info"),
        "gate blocked",
        lambda p: {"target": p.target, "requirement": p.requirement, "attempt": p.attempt},
    ),
    GateForced: (
        _always("warning"),
        "gate forced",
        lambda p: {"target": p.target, "requirement": p.requirement},
    ),
    ModelChanged: (
        _always("warning"),
        "model changed",
        lambda p: {"provider": p.provider, "model": p.model, "reason": p.reason},
    ),
    InferenceStarted: (
        lambda p: "warning" if p.wanted_tokens else None,
        "reply budget cut",
        lambda p: {"purpose": p.purpose, "reply_tokens": p.reply_tokens, "wanted_tokens": p.wanted_tokens},
    ),
    PromptEpoch: (
        _always("debug"),
        "prompt made anew",
        lambda p: {"reason": p.reason, "tokens": p.tokens_rewritten, "thinking_dropped": p.thinking_dropped},
    ),
    VolatilityBroken: (
        _always("warning"),
        "a region declared `stable` keeps changing",
        lambda p: {"region": p.region, "tokens": p.tokens},
    ),
    InferenceCompleted: (_answered_level, "inference completed", _answered),
    InferenceRetried: (_always("warning"), "inference retried", _retried),
    InferenceFailed: (
        _always("warning"),
        "inference failed",
        lambda p: {"purpose": p.purpose, "error": p.error, "message": first_line(p.message)},
    ),
    ToolCallCompleted: (_always("debug"), "tool call completed", _called),
    MessageReceived: (_always("info"), "message received", lambda p: {"sender": clip(p.sender)}),
    ContextCompacted: (
        _always("info"),
        "context compacted",
        lambda p: {"region": p.region, "entries": len(p.entry_ids), "bytes_saved": p.bytes_saved},
    ),
    ScriptFailed: (
        _always("warning"),
        "script failed",
        # Not its message: an exception of a script may say what a prompt holds.
        lambda p: {"script": clip(p.script), "function": p.function, "region": p.region, "reason": p.reason},
    ),
    LaneDegraded: (
        lambda p: "debug" if p.reason == "dropped" else "warning",
        "lane degraded",
        lambda p: {"lane": p.lane, "region": p.region, "reason": p.reason},
    ),
}
"""Level (`None` for no line), message and fields of the line that each kind of event gets; other kinds get none."""
