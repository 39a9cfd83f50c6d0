"""Forks: the history of a run up to an event, copied into a new run that goes on from there.

A run can be taken up between two steps only, so a fork begins behind the last step that was whole at the event it was
asked for. Children that worked at that moment are forked along; what had ended is read about in the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import final

import msgspec

from shoal.errors import RunNotFound, SpawnRefused
from shoal.runtime._change import made_behind
from shoal.runtime.events import (
    NUMBERS,
    ChildEnded,
    ChildSpawned,
    Event,
    GateForced,
    InferenceStarted,
    LaneStarted,
    MessageReceived,
    Payload,
    QuestionAnswered,
    RunEnded,
    RunPassivated,
    RunPaused,
    RunResumed,
    RunSpawned,
    StageEntered,
    ToolCallCompleted,
    ToolCallStarted,
    TransitionChosen,
    decode,
    encode,
)
from shoal.runtime.journal import Reader

_ALONE = (MessageReceived, RunPaused, RunResumed, RunPassivated, ChildEnded)
"""Kinds that are written by others than the run's own steps: a run can be taken up before and behind them."""
_FIRST = (InferenceStarted, TransitionChosen, QuestionAnswered)
"""Kinds with which something begins that is done again where it did not come to its end."""


@final
class Copy(msgspec.Struct, frozen=True):
    """A run that is to be made of another's history.

    Args:
        run_id: Its id.
        source: The other.
        made: How it was spawned, and what it is made of where its history ends.
        paused: It waits for somebody where its history ends.
        events: What it begins with, oldest first.
    """

    run_id: str
    source: str
    made: RunSpawned
    paused: bool
    events: tuple[Event, ...]

    @property
    def over(self) -> bool:
        """Its history ends with its end."""
        return isinstance(self.events[-1].payload, RunEnded)

    @property
    def stage(self) -> str | None:
        """The stage it goes on in; `None` where its history ends before its first."""
        for event in reversed(self.events):
            if isinstance(event.payload, StageEntered):
                return event.payload.stage
            if isinstance(event.payload, TransitionChosen) and event.payload.target is not None:
                return event.payload.target
        return None


def plan_fork(reader: Reader, run_id: str, at: int | None, new_id: Callable[[], str]) -> Sequence[Copy]:
    """Return what a fork of *run_id* is made of: the run itself, and behind it the children that worked then.

    Args:
        reader: The journal.
        run_id: The run.
        at: Seq of the last event that may count; `None` for the newest one, or the last request of a run that is over.
        new_id: Makes run ids.

    Raises:
        RunNotFound: The run has no such event.
        SpawnRefused: A newer version wrote some of its events.
        JournalDamaged: An event cannot be read.
    """
    events = _all(reader, run_id)
    last = events[-1].seq if events else 0
    if not events or (at is not None and not 1 <= at <= last):
        why = f"run {run_id} has no event {at}; its last is {last}, so fork it there or before"
        raise RunNotFound(why, run_id=run_id)
    kept = _kept(events, _newest(events) if at is None else at, ended=False)
    renamed: dict[str, str] = {}
    histories = {run_id: kept, **_working(reader, kept)}
    renamed.update({source: new_id() for source in histories})
    return [_copy(source, history, renamed) for source, history in histories.items()]


def rests(events: Sequence[Event], *, ended: bool) -> Iterator[int]:
    """Yield the seqs behind which a run with *events* (all of it, oldest first) can be taken up, in order.

    Args:
        events: The events.
        ended: Whether its end is such a place.
    """
    started: set[tuple[int, int]] = set()
    for before, event in pairwise(events):
        payload = event.payload
        titled = isinstance(payload, LaneStarted) and payload.lane == "titling"
        if (titled or isinstance(payload, _FIRST + _ALONE)) and not isinstance(before.payload, GateForced):
            yield before.seq
        if isinstance(payload, _ALONE):
            yield event.seq
        elif isinstance(payload, ToolCallStarted):
            if not isinstance(before.payload, ToolCallStarted):
                yield before.seq
            started.add((payload.source, payload.index))
        elif isinstance(payload, ToolCallCompleted) and (payload.source, payload.index) in started:
            yield event.seq
    if ended or not isinstance(events[-1].payload, RunEnded):
        yield events[-1].seq


def _all(reader: Reader, run_id: str) -> list[Event]:
    events = list(reader.read(run_id))
    if events and events[-1].seq != len(events):
        raise SpawnRefused(f"run {run_id} has events of a newer version; fork it with that one")
    return events


def _newest(events: Sequence[Event]) -> int:
    """Return where a run is forked that nobody says of where: of one that is over, before its last request."""
    asked = [e.seq - 1 for e in events if isinstance(e.payload, InferenceStarted) and e.payload.purpose == "stage"]
    return asked[-1] if asked and isinstance(events[-1].payload, RunEnded) else events[-1].seq


def _kept(events: Sequence[Event], at: int, *, ended: bool) -> Sequence[Event]:
    """Return *events* up to the last rest that is not behind *at*, or up to the first one."""
    places = list(rests(events, ended=ended))
    place = max((place for place in places if place <= at), default=min(places))
    return events[:place]


def _working(reader: Reader, kept: Sequence[Event]) -> Mapping[str, Sequence[Event]]:
    """Return the histories of the children, and theirs, that worked when *kept* ends, by run id."""
    working = {e.payload.child: None for e in kept if isinstance(e.payload, ChildSpawned) and not e.payload.detached}
    for event in kept:
        if isinstance(event.payload, ChildEnded):
            working.pop(event.payload.child, None)
    found: dict[str, Sequence[Event]] = {}
    for child in working:
        events = _all(reader, child)
        # As far as its parent could have known: what one of two runs did first is told by their clock alone.
        reached = sum(event.at <= kept[-1].at for event in events)
        found[child] = _kept(events, reached, ended=True)
        found |= _working(reader, found[child])
    return found


def _copy(source: str, history: Sequence[Event], renamed: Mapping[str, str]) -> Copy:
    run_id, root = renamed[source], next(iter(renamed.values()))
    spawned = history[0].payload
    assert isinstance(spawned, RunSpawned)  # the first event of every run
    made = made_behind(history)
    changes: dict[str, object] = {"root": root, "key": None, "forked_from": (source, history[-1].seq)}
    if run_id == root:
        changes |= {"parent": None, "depth": 0, "item": None, "waited": False, "detached": False, "trace": None}
    else:
        changes |= {"parent": renamed[str(spawned.parent)]}
    first = Event(run_id, 1, history[0].at, msgspec.structs.replace(spawned, **changes))
    events = (first, *(Event(run_id, e.seq, e.at, _renaming(e.payload, renamed)) for e in history[1:]))
    waiting = [event.payload for event in events if isinstance(event.payload, RunPaused | RunResumed)]
    return Copy(run_id, source, made, bool(waiting) and isinstance(waiting[-1], RunPaused), events)


def _renaming(payload: Payload, renamed: Mapping[str, str]) -> Payload:
    """Return *payload* with runs under their new ids, in texts too: that is where a model knows its agents from."""
    data = encode(payload)
    changed = data
    for old, new in renamed.items():
        changed = changed.replace(old.encode(), new.encode())  # as long as before, so every cut and size still holds
    if changed == data:
        return payload
    read = decode(NUMBERS[type(payload)], changed)
    assert read is not None  # it is of a kind that this version has written
    return read
