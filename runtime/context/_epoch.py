"""What was sent to a model that binds its thinking to every byte in front of it, and how it goes on.

Such a model gets its prompt in epochs. Within one, tools and system section stay as they were at its first request,
messages are only added, and a region that changed is said again at the end. The state here is made by applied events
and read from the window, so a run that is resumed sends the bytes that it had sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

import msgspec

from shoal.providers import Block, Message, Segment, Text, ToolSet
from shoal.runtime.context._assemble import TOOLS, Part, Prompt, front, lifted_of, shown
from shoal.runtime.context._changes import (
    Change,
    ContextCompacted,
    EntriesEvicted,
    EntriesReleased,
    EntryWritten,
    EpochReason,
    PromptAmended,
    PromptEpoch,
    RegionReset,
    SeedRefreshed,
)
from shoal.runtime.context._entry import Entry, chars_of, estimate
from shoal.runtime.context._layout import CONVERSATION
from shoal.runtime.context._store import SEGMENT_CHARS, SEGMENT_MESSAGES, RegionState
from shoal.runtime.context._told import said_in, sections, stood_for, told_of
from shoal.runtime.context._window import Window


@final
class Epoch:
    """One stretch of requests.

    Args:
        window: The window at its start.
        tools: The tools at its start.
        started: The event that it started with.
        before: The epoch before it; `None` for none.
    """

    def __init__(self, window: Window, tools: ToolSet, started: PromptEpoch, before: Epoch | None = None) -> None:
        layout = window.layout
        self.started = started
        self.tools = tools
        self.instructions = window.instructions
        self.silent = _silent(before, started.silent_from, window.states[CONVERSATION].next_id)
        """Ranges of the conversation's entries whose thinking is left out: first id, and the one behind the last."""
        self.told = {name: told_of(window, name, section) for name, section in sections(window)}
        self.first = {name: told.digest for name, told in self.told.items()}
        """What stands for each region as it was at the start."""
        for name in layout.tail:  # it is said behind the conversation, by an event of its own
            self.told[name].digest, self.told[name].next_id = b"", 0
        self.broken: EpochReason | None = None
        """What was done to something that had been sent."""
        made = front(window)
        self.standing = standing_digest(window)
        """What stands for the components as they were at the start."""
        self.system: tuple[Block, ...] = tuple([block for one in made for block in one.blocks])
        self.stream: list[Segment] = []
        """What was sent behind the system section; nothing in it changes."""
        lifted, stored = lifted_of(window)
        self.lifted = lifted_digest(window)
        """What stands for the stored parts of system regions as they were at the start."""
        self.parts: list[Part] = [*[part for one in made for part in one.block_parts], *stored]
        self.turn: list[Part] = []
        """What counts for the newest turn only."""
        self.chars = sum([one.block_chars for one in made])
        self.amended = 0
        """Tokens of what was said again."""
        self.taken = 0
        """The conversation's entries from this id on are not in *stream* yet."""
        self.open: tuple[Message, ...] = ()
        """What was sent behind the stream and is not in it yet."""
        self.stream += lifted
        for name in layout.messages:
            if name != CONVERSATION:
                one = shown(window.states[name], layout.theme, window.intake)
                self._add(one.segments)
                self.chars += one.message_chars
        self._add_silenced(window.states[CONVERSATION])

    def __repr__(self) -> str:
        return f"<Epoch after {self.started.reason}: {len(self.stream)} segments, {self.amended} tokens amended>"

    # --- changing (by applied events only)

    def note(self, window: Window, change: Change) -> None:
        """Take note of *change* before it is applied to *window*: whether it takes away what was sent."""
        match change:
            case EntriesEvicted():
                # A map that drops one key for another is rewritten; the window is not short of its room.
                mapped = window.states[change.region].region.kind == "hashmap"
                kept = mapped and change.reason in ("max_entries", "budget")
                self._lost(change.region, change.entry_ids, None if kept else "eviction")
            case EntriesReleased():
                self._lost(change.region, change.entry_ids, "release")
            case ContextCompacted():
                self._lost(change.region, change.entry_ids, "compaction")
                told = self.told.get(change.region)
                if told is not None and change.into == change.region:  # the summary goes in front of what was sent
                    told.rewritten = True
                    if told.section == "messages":
                        self._break("compaction")
            case EntryWritten() | SeedRefreshed():
                told = self.told.get(change.region)
                stands = told is not None and told.section == "messages"
                self._lost(change.region, change.replaces, "rewrite" if stands else None)
            case RegionReset():
                told = self.told.get(change.region)
                if told is not None and (told.digest or told.text is not None):
                    self._break("reset")
            case _:
                pass

    def _lost(self, region: str, entry_ids: Iterable[int], reason: EpochReason | None) -> None:
        told = self.told.get(region)
        if told is None or not any(entry_id < told.next_id for entry_id in entry_ids):
            return  # it was never sent
        told.rewritten = True
        if reason is not None:
            self._break(reason)

    def _break(self, reason: EpochReason) -> None:
        self.broken = self.broken or reason

    def differs(self) -> None:
        """Take note that this is not what was sent: the journal was written by a version that rendered otherwise."""
        self._break("replay")

    def amend(self, window: Window, amended: PromptAmended) -> None:
        """Put *amended* behind everything that the conversation holds by now."""
        self.take(window)
        name = amended.region
        before = self.told.get(name)
        told = self.told[name] = told_of(window, name, dict(sections(window))[name], before)
        if amended.form == "entries":
            wanted = frozenset(amended.entry_ids)
            said = tuple([entry.message for entry in window.states[name].all_entries() if entry.entry_id in wanted])
        else:
            text = amended.text if amended.text is not None else told.text
            assert text is not None  # an event without a text repeats the one before it
            told.text = text
            if window.layout.regions[name].kind == "custom":  # what a script had rendered is not there on replay
                told.digest = stood_for(said_in(window, name, text))
            said = (_message(amended, text),)
        self._say(said, amended.tokens)
        if amended.form == "turn":
            self.turn.append(Part(name, amended.tokens, "tail", cacheable=False))
        else:
            _charge(self.parts, name, amended.tokens)
            self.amended += 0 if amended.form == "entries" else amended.tokens

    def _say(self, said: tuple[Message, ...], tokens: int) -> None:
        """Put *said* behind the stream, in one segment with what it follows: vendors look at what stands in front."""
        last = self.stream.pop() if self.stream else _NO_SEGMENT
        self.stream.append(_longer(last, said, tokens, closed=last.closed))
        self.chars += sum([chars_of(message) for message in said])

    def sent(self, window: Window) -> None:
        """Take note that a request goes out: what the conversation holds by now was sent."""
        state = window.states[CONVERSATION]
        self.told[CONVERSATION].next_id = state.next_id
        pending = self._pending(state)
        self.open = () if pending is None else pending.messages

    def take(self, window: Window) -> None:
        """Put what the conversation holds by now into the stream."""
        state = window.states[CONVERSATION]
        segment = self._pending(state)
        if segment is not None:
            last = self.stream[-1] if self.stream else _NO_SEGMENT
            if not last.closed and len(last.messages) < SEGMENT_MESSAGES and _chars(last) < SEGMENT_CHARS:
                self.stream[-1:] = [_longer(last, segment.messages, segment.tokens)]
            else:
                if not last.closed:  # it is big enough to be encoded once and for all
                    self.stream[-1] = _longer(last, (), 0, closed=True)
                self.stream.append(_longer(_NO_SEGMENT, segment.messages, segment.tokens))
            _charge(self.parts, CONVERSATION, segment.tokens)
            self.chars += _chars(segment)
            self.turn = []
        self.taken = state.next_id
        self.open = ()

    # --- reading

    @property
    def sent_messages(self) -> list[Message]:
        """Everything that was sent behind the system section, in order."""
        return [*[message for segment in self.stream for message in segment.messages], *self.open]

    def prompt(self, window: Window) -> Prompt:
        """Return what the next request shows the model, if nothing ends the epoch before it."""
        state = window.states[CONVERSATION]
        pending = self._pending(state)
        if pending is not None and pending.closed:
            self.take(window)
            pending = None
        parts = [*([Part(TOOLS, self.tools.tokens, "tools")] if self.tools.specs else ()), *self.parts]
        chars = self.chars
        if pending is None:
            parts += self.turn
            segments = tuple(self.stream)
        else:
            _charge(parts, CONVERSATION, pending.tokens)
            segments = (*self.stream, pending)
            chars += _chars(pending)
        tokens = sum([part.tokens for part in parts])
        return Prompt(self.tools, self.system, segments, None, tokens, chars, tuple(parts))

    def has_pending(self, window: Window) -> bool:
        """Say whether the conversation holds what is not in the stream yet."""
        return bool(_from(window.states[CONVERSATION], self.taken))

    def is_silent(self, entry_id: int) -> bool:
        """Say whether the thinking of that entry of the conversation is left out."""
        return any(first <= entry_id < behind for first, behind in self.silent)

    def dump(self, window: Window) -> dict[str, object]:
        """Return everything that makes this epoch, as plain values; equal epochs give equal dumps."""
        pending = self._pending(window.states[CONVERSATION])
        segments = [*self.stream, *([] if pending is None else [pending])]
        told = {n: (t.section, t.digest, t.next_id, str(t.text), t.rewritten) for n, t in sorted(self.told.items())}
        return {
            "started": self.started,
            "told": told,
            "broken": self.broken,
            "silent": self.silent,
            "amended": self.amended,
            "front": (self.tools.digest, *[block.digest for block in self.system]),
            "sent": [message.digest for segment in segments for message in segment.messages],
        }

    def _pending(self, state: RegionState) -> Segment | None:
        """Return what the conversation holds that is not in the stream; closed once it is big enough to stay so."""
        entries = _from(state, self.taken)
        if not entries:
            return None
        size = sum([entry.chars for entry in entries])
        newest = state.newest
        whole = newest is None or not newest.waits
        closed = whole and (len(entries) >= SEGMENT_MESSAGES or size >= SEGMENT_CHARS)
        return Segment(
            CONVERSATION,
            tuple([entry.message for entry in entries]),
            sum([entry.tokens for entry in entries]),
            closed=closed,
        )

    # --- making

    def _add_silenced(self, state: RegionState) -> None:
        """Put the conversation into the stream, without the thinking that stands behind an edit."""
        if state.view is not None:
            state.view.edges(state)
        for chunk in state.chunks:
            if state.view is None:
                shown_entries = [(entry, entry.message) for group in chunk.groups for entry in group.entries]
            else:
                shown_entries = [pair for group in chunk.groups for pair in state.view.said(group)]
            said = tuple([self._silenced(entry, message) for entry, message in shown_entries])
            tokens = chunk.tokens if state.view is None else sum([estimate(message) for message in said])
            if said:
                self._add((Segment(CONVERSATION, said, tokens, closed=True),))
                self.chars += chunk.chars if state.view is None else sum([chars_of(message) for message in said])
        self.taken = state.next_id

    def _silenced(self, entry: Entry, message: Message) -> Message:
        if message.state is None or not self.is_silent(entry.entry_id):
            return message
        return msgspec.structs.replace(message, state=None)

    def moved(self, reason: EpochReason) -> None:
        """Take note that what was sent of the conversation is seen otherwise from now on."""
        self._break(reason)

    def _add(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self.stream.append(segment)
            _charge(self.parts, segment.owner, segment.tokens)


_NO_SEGMENT = Segment(CONVERSATION, (), 0)


def _longer(segment: Segment, messages: tuple[Message, ...], tokens: int, *, closed: bool = False) -> Segment:
    """Return *segment* with *messages*, which cost *tokens*, behind what it holds."""
    return Segment(segment.owner, (*segment.messages, *messages), segment.tokens + tokens, closed=closed)


def _chars(segment: Segment) -> int:
    return sum([chars_of(message) for message in segment.messages])


def _charge(parts: list[Part], owner: str, tokens: int) -> None:
    """Put *tokens* of messages of *owner* behind *parts*; neighbours of one owner are one part."""
    last = parts[-1] if parts else None
    if last is not None and last.section == "messages" and last.owner == owner:
        parts[-1] = Part(owner, last.tokens + tokens, "messages")
    else:
        parts.append(Part(owner, tokens, "messages"))


def _silent(before: Epoch | None, silent_from: int, behind: int) -> tuple[tuple[int, int], ...]:
    """Return the ranges of entries whose thinking is left out from now on."""
    earlier = () if before is None else before.silent
    kept = [(first, min(last, silent_from)) for first, last in earlier if first < silent_from]
    return (*kept, (silent_from, behind))


def _from(state: RegionState, entry_id: int) -> list[Entry]:
    """Return the entries of *state* from that id on, oldest first; looks at no chunk in front of them."""
    found: list[Entry] = []
    for chunk in reversed(state.chunks):
        entries = [entry for group in chunk.groups for entry in group.entries]
        newer = [entry for entry in entries if entry.entry_id >= entry_id]
        found[:0] = newer
        if len(newer) < len(entries):
            break
    return found


def _message(amended: PromptAmended, text: Text) -> Message:
    """Return *text* as the message in which *amended* puts it behind the conversation."""
    if amended.form == "user":
        return Message("user", (text,))
    return Message("system", (text,), turn_scoped=amended.form == "turn")


def standing_digest(window: Window) -> bytes:
    """Return what stands for what components show as they are now; empty for none."""
    return b"".join([block.digest for _, one in window.standing for block in one.blocks])


def lifted_digest(window: Window) -> bytes:
    """Return what stands for the stored parts of system regions as they are now; empty for none."""
    return b"".join([segment.digest for segment in lifted_of(window)[0]])
