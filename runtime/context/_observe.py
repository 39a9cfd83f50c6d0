"""What a stage sees of the conversation: from which event on, and with which old tool results masked.

A view changes nothing of what the conversation holds. Its edges move in steps, so that the bytes in front of them stay
put between two steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast, final

import msgspec

from shoal.blueprints import Observations
from shoal.providers import Message, Segment, Text
from shoal.runtime.context._entry import Entry, Group, estimate, size
from shoal.runtime.context._store import Chunk, RegionState

_ARGUMENT_CHARS = 40
COMPACTED = Text.of("[compacted history]\n")
"""Stands in front of what is left of turns that were compacted."""


@final
class Knobs(msgspec.Struct, frozen=True, gc=False):
    """The knobs of one stage, all of them set.

    Args:
        window: Turns whose results stay in full, at the least; 1 or more.
        soft_cap: Characters of the whole request above which there is one compaction.
        hard_cap: Characters above which nothing is sent.
        tail: Newest turns that are never compacted, 0 or more.
        forget: Turns after which older ones are left out; 0 is never.
        step: How many turns the edge of what is masked moves at once, 1 or more.
    """

    window: int
    soft_cap: int
    hard_cap: int
    tail: int
    forget: int
    step: int

    @classmethod
    def of(cls, knobs: Observations) -> Knobs:
        """Return *knobs*, none of which is left open."""
        made = (
            knobs.observation_window,
            knobs.soft_cap_chars,
            knobs.hard_cap_chars,
            knobs.min_tail_turns,
            knobs.forget_after_turns,
            knobs.mask_step,
        )
        return cls(*[value or 0 for value in made])


@final
class Edges(msgspec.Struct, frozen=True, gc=False):
    """Where a view changes, by ids of entries.

    Args:
        turns: How many turns it holds.
        masked: Results in front of this entry are masked; 0 for none.
        forgotten: Turns in front of this entry are left out; 0 for none.
    """

    turns: int = 0
    masked: int = 0
    forgotten: int = 0


@final
class View:
    """What a stage sees of the conversation.

    Args:
        knobs: Its knobs; `None` masks nothing.
        since: Seq of the event from which on it sees it; 0 for all of it.
    """

    __slots__ = ("_at", "_edges", "_masked", "_segments", "knobs", "since")

    def __init__(self, knobs: Knobs | None, since: int) -> None:
        self.knobs = knobs
        self.since = since
        self._at: tuple[int, int] = (-1, -1)
        self._edges = Edges()
        self._masked: dict[int, Message] = {}
        self._segments: dict[int, tuple[Any, Segment | None]] = {}

    def __repr__(self) -> str:
        return f"<View since {self.since}, {self._edges}>"

    # --- where it changes

    def edges(self, state: RegionState) -> Edges:
        """Return where the view of *state* changes."""
        at = (state.next_id, state.moved)
        if at != self._at:
            self._at, self._edges = at, self._found(state)
        return self._edges

    def _found(self, state: RegionState) -> Edges:
        turns = [group.entries[0].entry_id for group in state.groups() if self._is_turn(group)]
        if self.knobs is None:
            return Edges(len(turns))
        masked = max(0, len(turns) - self.knobs.window) // self.knobs.step * self.knobs.step
        forgotten = max(0, len(turns) - self.knobs.forget) if self.knobs.forget else 0
        return Edges(len(turns), turns[masked] if masked else 0, turns[forgotten] if forgotten else 0)

    def _is_turn(self, group: Group) -> bool:
        return group.entries[0].kind == "assistant_turn" and not self._is_before(group)

    def _is_before(self, group: Group) -> bool:
        """Say whether *group*, or all that a summary stands for, came before the view begins."""
        first = group.entries[0]
        return (first.stands_for or first.seq) < self.since

    def compactable(self, state: RegionState) -> tuple[int, ...]:
        """Return the ids of what is compacted first: everything in front of the newest turn that is not masked."""
        edges = self.edges(state)
        if self.knobs is None or not edges.masked:
            return ()
        ids: list[int] = []
        for group in state.groups():
            if group.entries[0].entry_id == edges.masked:
                break
            if not self._is_before(group):
                ids.extend(group.ids)
        return tuple(ids)

    # --- what it shows

    def said(self, group: Group) -> Iterator[tuple[Entry, Message]]:
        """Yield what is shown of *group* by the edges that were found last, each message with its entry."""
        edges = self._edges
        first = group.entries[0]
        if self._is_before(group) or (first.kind == "assistant_turn" and first.entry_id < edges.forgotten):
            return
        for entry in group.entries:
            if entry.kind == "tool_result" and entry.entry_id < edges.masked:
                yield entry, self._mask(first, entry)
            elif entry.kind == "summary" and self.knobs is not None:
                texts = (COMPACTED, *entry.message.texts)
                yield entry, msgspec.structs.replace(entry.message, texts=texts, _digest=b"", _wire=None)
            else:
                yield entry, entry.message

    def _mask(self, turn: Entry, entry: Entry) -> Message:
        made = self._masked.get(entry.entry_id)
        if made is None:
            made = self._masked[entry.entry_id] = masked(turn.message, entry.message, entry.chars)
        return made

    def segments(self, state: RegionState) -> tuple[Segment, ...]:
        """Return what is shown of *state*, one segment a chunk; a chunk that is shown as it is keeps its own."""
        edges = self.edges(state)
        made = [self._segment(state, chunk, edges) for chunk in state.chunks]
        numbers = {chunk.number for chunk in state.chunks}
        self._segments = {number: kept for number, kept in self._segments.items() if number in numbers}
        return tuple([segment for segment in made if segment is not None])

    def _segment(self, state: RegionState, chunk: Chunk, edges: Edges) -> Segment | None:
        last = chunk.groups[-1].ids[-1]
        inner = [min(edge, last + 1) for edge in (edges.masked, edges.forgotten)]
        key = (last, chunk.entries, state.moved, chunk.frozen, *inner)
        kept = self._segments.get(chunk.number)
        if kept is None or kept[0] != key:
            messages = tuple([message for group in chunk.groups for _, message in self.said(group)])
            tokens = sum([estimate(message) for message in messages])
            segment = Segment(state.region.name, messages, tokens, closed=chunk.frozen) if messages else None
            kept = self._segments[chunk.number] = (key, segment)
        return kept[1]


def masked(turn: Message, result: Message, chars: int) -> Message:
    """Return what stands in the place of a tool's *result*, of that many characters, which a call of *turn* had."""
    status = "error" if result.is_error else "ok"
    text = Text.of(f"[masked: {_called(turn, result)} → {status}, {chars} chars]")
    short = msgspec.structs.replace(result, texts=(text,), blobs=(), _digest=b"", _wire=None)
    # A result that says less than its mask is no burden.
    return short if size(text)[0] < chars else result


def _called(turn: Message, result: Message) -> str:
    """Return the call that *result* answers, as its name and its first argument."""
    source = next((str(c.arguments) for c in turn.calls if c.call_id == result.call_id), "")
    try:
        parsed: object = msgspec.json.decode(source or "{}")
    except (msgspec.DecodeError, RecursionError):
        parsed = {}
    given = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    first = next(iter(given.values()), None)
    said = first if isinstance(first, str) else ("" if first is None else msgspec.json.encode(first).decode())
    short = " ".join(said.split())
    short = short if len(short) <= _ARGUMENT_CHARS else f"{short[: _ARGUMENT_CHARS - 1]}…"
    return f'{result.tool_name}("{short}")' if short else f"{result.tool_name}()"
