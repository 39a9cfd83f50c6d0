"""What one call of a model by an agentic function shows: a pure function of the run's events in front of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import cast, final

import msgspec

from shoal.providers import EMPTY, NO_TOOLS, Message, ProviderState, Segment, Text, ToolSet, ToolSpec
from shoal.runtime._call_tree import CALL_TREE, call_tree
from shoal.runtime.context import (
    CONVERSATION,
    INPUT,
    TOOLS,
    Inside,
    Knobs,
    Part,
    Prompt,
    Shown,
    Surroundings,
    chars_of,
    estimate,
    estimate_text,
    masked,
    stand,
)
from shoal.runtime.events import CallOpened
from shoal.runtime.state import Again, Call, Frame, Frames, Round, RunState, Said

_BETWEEN = "\n\n"


@final
class Offer(msgspec.Struct, frozen=True):
    """The tools of a call, as the journal keeps them."""

    specs: tuple[tuple[str, str, str], ...]
    tokens: int


def offer_bytes(tools: ToolSet) -> bytes:
    """Return what the journal keeps of *tools*."""
    specs = tuple([(spec.name, spec.description, spec.schema.decode()) for spec in tools.specs])
    return msgspec.json.encode(Offer(specs, tools.tokens))


def offer_of(data: bytes) -> ToolSet:
    """Return the tools that *data* keeps."""
    read = msgspec.json.decode(data, type=Offer)
    return ToolSet(tuple([ToolSpec(name, said, schema.encode()) for name, said, schema in read.specs]), read.tokens)


def newest_prompt(state: RunState) -> Prompt | None:
    """Return what the call that the run was last at shows its model; `None` where it has made none."""
    call = state.frames.calls.get(state.frames.newest)
    if call is None:
        return None
    return call_prompt(state, call, offer_of(state.kept(call.opened.tools)) if call.opened.tools else NO_TOOLS)


def call_prompt(state: RunState, call: Call, offered: ToolSet) -> Prompt:
    """Return what the next request of *call* shows its model, with *offered* as its tools."""
    frame = state.frames.frames[call.opened.frame]
    system = _system(state, call.opened, offered)
    tree = Message("user", (Text.of(call_tree(state.frames, frame.seq, call.seq)),))
    before, own = _said(state, call, frame)
    segments = [Segment(CALL_TREE, (tree,), estimate(tree), closed=True)]
    if before:
        segments.append(Segment(CONVERSATION, tuple(before), sum([estimate(each) for each in before]), closed=True))
    segments.append(Segment(CONVERSATION, tuple(own), sum([estimate(each) for each in own])))
    parts = [
        *([Part(TOOLS, offered.tokens, "tools")] if offered.specs else []),
        *[part for shown in system for part in shown.block_parts],
        *_message_parts(segments, call.opened, own),
    ]
    blocks = tuple([block for shown in system for block in shown.blocks])
    messages = [message for segment in segments for message in segment.messages]
    return Prompt(
        offered,
        blocks,
        tuple(segments),
        None,
        sum([part.tokens for part in parts]),
        sum([shown.block_chars for shown in system]) + sum([chars_of(message) for message in messages]),
        tuple(parts),
    )


def opening_text(blocks: Sequence[tuple[str, Text]]) -> str:
    """Return what opens the message of a call."""
    return _BETWEEN.join([str(text) for _, text in blocks])


def _message_parts(segments: Sequence[Segment], opened: CallOpened, own: Sequence[Message]) -> Iterator[Part]:
    yield Part(CALL_TREE, segments[0].tokens, "messages")
    yield from (Part(CONVERSATION, segment.tokens, "messages") for segment in segments[1:-1])
    left = estimate(own[0])
    for number, (name, text) in enumerate(opened.blocks):
        # What stands between two blocks goes to the last of them.
        tokens = min(left, estimate_text(text)) if number < len(opened.blocks) - 1 else left
        left -= tokens
        yield Part(name, tokens, "messages")
    said = sum([estimate(message) for message in own[1:]])
    if said:
        yield Part(CONVERSATION, said, "messages")


def around_call(state: RunState, opened: CallOpened, tools: ToolSet, inside: Inside) -> Surroundings:
    """Return what components make their texts of in a call that offers *tools*."""
    return replace(
        state.surroundings(opened.at),
        provider=opened.provider,
        model=opened.model,
        tools=tuple(sorted([spec.name for spec in tools.specs])),
        inside=inside,
    )


def inside_of(frames: Frames, frame: Frame) -> Inside:
    """Return what is known of every call of the function of *frame*."""
    entered = frame.entered
    path = tuple([frames.frames[seq].entered.function for seq in frame.path])
    return Inside(entered.function, entered.job, path, entered.system)


def _system(state: RunState, opened: CallOpened, offered: ToolSet) -> list[Shown]:
    inside = inside_of(state.frames, state.frames.frames[opened.frame])
    standing, _ = stand(state.stage.components, around_call(state, opened, offered, inside))
    return [one for _, one in sorted(standing, key=itemgetter(0))]


# --- what was said before


def _said(state: RunState, call: Call, frame: Frame) -> tuple[list[Message], list[Message]]:
    """Return the exchanges that the function sees, and what was said in the call itself; old results are masked."""
    knobs = cast("Knobs", state.stage.layout.knobs)
    exchanges = visible(state.frames, frame, call.seq)
    turns = sum([isinstance(each, Round) for _, said in exchanges for each in said])
    # A model that binds its thinking to what it was sent gets the same bytes until the call is over.
    edge = _Edge(knobs, turns if call.opened.steady else turns + call.rounds)
    before: list[Message] = []
    for other, said in exchanges:
        asked = next((text for name, text in other.opened.blocks if name == INPUT), EMPTY)
        before.append(Message("user", (asked,)))
        for each in said:
            before.extend(edge.shown(state, each, thinking=False))
    own = [Message("user", (Text.of(opening_text(call.opened.blocks)),))]
    for each in call.said:
        own.extend(edge.shown(state, each, thinking=True))
    return before, own


def visible(frames: Frames, frame: Frame, at: int) -> list[tuple[Call, tuple[Said, ...]]]:
    """Return the exchanges in front of event *at* that the function of *frame* sees, oldest first.

    It sees its own, and those of others that expose theirs, as far as its caps let it.
    """
    entered = frame.entered
    before: list[tuple[Call, tuple[Said, ...]]] = []
    since: list[tuple[Call, tuple[Said, ...]]] = []
    for call in frames.calls.values():
        if call.seq >= at:
            break
        other = frames.frames[call.opened.frame]
        own = other.seq == frame.seq
        if own or other.entered.expose in ("llm", "full"):
            said = call.whole_at(at)
            if said:
                (before if call.seq < frame.seq else since).append((call, said))
    if entered.callers is not None:
        before = before[max(0, len(before) - entered.callers) :]
    if entered.subcalls is not None:
        below = [each for each in since if each[0].opened.frame != frame.seq]
        dropped = {each[0].seq for each in below[: max(0, len(below) - entered.subcalls)]}
        since = [each for each in since if each[0].seq not in dropped]
    return before + since


@final
class _Edge:
    """Where old results are masked; *total* turns are counted, the oldest first."""

    def __init__(self, knobs: Knobs, total: int) -> None:
        self._turn = 0
        self._masked = max(0, total - knobs.window) // knobs.step * knobs.step

    def shown(self, state: RunState, said: Said, *, thinking: bool) -> Iterator[Message]:
        if isinstance(said, Again):
            yield Message("user", (said.text,))
            return
        turn, self._turn = self._turn, self._turn + 1
        made = messages_of(state, said, thinking=thinking)
        yield made[0]
        for message in made[1:]:
            yield masked(made[0], message, chars_of(message)) if turn < self._masked else message


def messages_of(state: RunState, made: Round, *, thinking: bool) -> tuple[Message, ...]:
    """Return a reply and the results of its calls as messages; what its vendor wants back only while its call lasts."""
    known = state.frames.made.get((made.seq, thinking, len(made.results)))
    if known is not None:
        return known
    reply = made.reply
    kept = ProviderState(made.provider, made.model, reply.state) if thinking and reply.state is not None else None
    texts = (reply.text,) if reply.text else ()
    messages = [Message("assistant", texts, made.calls, state=kept, blobs=state.shelf.blobs(reply.parts))]
    for index, call in enumerate(made.calls):
        result = made.results.get(index)
        if result is not None:
            said = result[1]
            noted = (said.text, Text.of(f"\n{said.note}")) if said.note else (said.text,)
            blobs = state.shelf.blobs(said.parts)
            one = Message("tool", noted, (), call.call_id, call.name, is_error=said.is_error, blobs=blobs)
            messages.append(one)
    state.frames.made[made.seq, thinking, len(made.results)] = tuple(messages)
    return tuple(messages)
