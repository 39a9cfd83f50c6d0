"""Transcripts as runs make them: drawn as a list of moves, and played against a vendor that answers.

A story keeps what a run keeps: turns in segments, blocks of the system section, the tools of its stage. Between two
requests it may lose results, entries and whole vendors, as runs do. On a model that binds what it thought to every byte
before it, a story does what a run does there: an edit of what was sent ends the epoch, and thinking is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anyio
import msgspec
from hypothesis import strategies as st
from providers_parts import PNG, tool

from shoal.providers import (
    Blob,
    Block,
    Completed,
    Message,
    Provider,
    Request,
    RetryPolicy,
    Segment,
    Text,
    ToolCall,
    ToolSet,
    blob,
    exchange,
)

Move: TypeAlias = tuple[str, int]
Fate: TypeAlias = Literal["result", "error", "empty", "blank", "image", "text", "binary", "lost", "late"]

WORDS = ("", " ", "hello", 'quote " and \\ and \n', "\N{LINE SEPARATOR}", "é\N{GRINNING FACE}", "\ud800", "x" * 3000)
FATES: tuple[Fate, ...] = ("result", "error", "empty", "blank", "image", "text", "binary", "lost", "late")
IDS = ("a", "b", "call.with dots", "x" * 70, "", "sh_" + "0" * 29, "é", "toolu_01", "c\0d")
STAGES = (
    ToolSet((tool("look"), tool("server.tool"), tool("9 lives"), tool("very long " + "n" * 80)), 40),
    ToolSet((tool("find", b'{"type":"object","properties":{}}'), tool("look", b"{}", " ")), 20),
    ToolSet(),
)
PARTS: dict[str, tuple[Blob, ...]] = {
    "image": (blob(PNG, "a.png"), blob(PNG)),
    "text": (blob("Grüße".encode(), "a.txt"),),
    "binary": (blob(b"\0\1", "a.bin"), blob(b"%PDF-1.7 x", "a.pdf")),
}

MOVES = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 2000)),
    st.tuples(st.sampled_from(["user", "mail", "system", "assistant", "blob"]), st.integers(0, len(WORDS) - 1)),
    st.tuples(
        st.sampled_from(["evict", "tear", "mask", "amend", "grow", "stage", "tail", "model", "close"]),
        st.integers(0, 9),
    ),
    st.tuples(st.just("foreign"), st.integers(0, 80)),
    st.just(("cancel", 0)),
)
PLANS = st.lists(MOVES, min_size=1, max_size=14)


@dataclass
class Casting:
    """Who serves: a provider with one of its models."""

    provider: Provider
    model: str


@dataclass
class Story:
    """A run, as far as its requests tell.

    Args:
        cast: Who may serve; a move of its own goes over to the next.
        moves: What happens, in order; each ask draws what becomes of its calls from its number.
    """

    cast: Sequence[Casting]
    moves: Sequence[Move]
    turns: list[list[Message]] = field(default_factory=list)  # groups: what is evicted together
    closed: list[Segment] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    stage: int = 0
    at: int = 0
    minted: int = 0
    tail: str | None = None
    replies: list[Completed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blocks = [
            Block("base", (Text.of("You keep a log. " * 40),), 160, "stable"),
            Block("notes", (Text.of("## notes\n"),), 3, "grows", frozen=True),
            Block("todo", (Text.of("- one"),), 2),
        ]

    @property
    def serving(self) -> Casting:
        return self.cast[self.at % len(self.cast)]

    def request(self) -> Request:
        open_ = [message for group in self.turns for message in group]
        last = (Segment("conversation", tuple(open_), len(open_) * 10),) if open_ else ()
        return Request(
            self.serving.model,
            tuple(self.blocks),
            (*self.closed, *last),
            None if self.tail is None else Text.of(self.tail),
            STAGES[self.stage % len(STAGES)],
            max_tokens=2000,
            temperature=(None, 0.0, 1.5)[self.stage % 3],
            run_id="story",
            timeout_s=150.0,
        )

    async def play(self) -> None:
        """Make each move; end with a request."""
        for name, number in [*self.moves, ("ask", 3)]:
            if name == "ask":
                await self.ask(number)
            elif name == "cancel":
                await self.cancel()
            else:
                getattr(self, f"move_{name}")(number)

    # --- what happens

    async def ask(self, number: int) -> None:
        completed = await exchange(self.serving.provider, self.request(), policy=RetryPolicy(attempts=1))
        self.replies.append(completed)
        reply = completed.reply
        if not (reply.text or reply.calls):
            return
        calls = tuple([self.own(call) for call in reply.calls])
        self.turns.append([Message("assistant", (reply.text,) if reply.text else (), calls, state=reply.state)])
        self.answer(calls, number)

    async def cancel(self) -> None:
        """Ask, and leave at the first sign of an answer: nothing of it is kept."""
        with anyio.CancelScope() as scope:
            await exchange(
                self.serving.provider,
                self.request(),
                policy=RetryPolicy(attempts=1),
                on_delta=lambda _delta: scope.cancel(),
            )

    def own(self, call: ToolCall) -> ToolCall:
        """Return *call* under an id of ours, as a run mints them."""
        self.minted += 1
        return ToolCall(f"call_{self.minted:09d}", call.name, call.arguments, call.vendor_id or call.call_id)

    def answer(self, calls: Sequence[ToolCall], number: int) -> None:
        """Give each call its fate; some results come in another order, or behind what a user says."""
        results: list[Message] = []
        late: list[Message] = []
        for position, call in enumerate(calls):
            fate = FATES[(number + position * 7) % len(FATES)]
            if fate == "lost":
                continue
            said = {"empty": "", "blank": " \n", "error": "it broke"}.get(fate, "found " * (number % 40))
            made = Message(
                "tool",
                (Text.of(said),),
                call_id=call.call_id,
                tool_name=call.name,
                is_error=fate == "error" or number % 11 == 0,
                blobs=PARTS.get(fate, ()),
            )
            (late if fate == "late" else results).append(made)
        if number % 2:
            results.reverse()
        self.turns[-1] += results
        if late:
            self.turns[-1] += [Message("user", (Text.of("meanwhile"),)), *late]

    def say(self, role: Any, number: int, **more: Any) -> None:
        self.turns.append([Message(role, (Text.of(WORDS[number % len(WORDS)]),), **more)])

    def move_user(self, number: int) -> None:
        self.say("user", number)

    def move_mail(self, number: int) -> None:
        self.turns.append([Message("user", (Text.of("mail: "), Text.of(WORDS[number % len(WORDS)])))])

    def move_system(self, number: int) -> None:
        self.say("system", number)

    def move_assistant(self, number: int) -> None:
        """Something that nobody asked for stands as an assistant's: a summary, a turn of another vendor."""
        self.say("assistant", number)

    def move_blob(self, number: int) -> None:
        kind = ("image", "text", "binary")[number % 3]
        self.say("user", number, blobs=PARTS[kind])

    def move_foreign(self, number: int) -> None:
        """A turn with calls whose ids and arguments come from somewhere else."""
        ids = [IDS[number % len(IDS)], IDS[(number // len(IDS)) % len(IDS)]]
        arguments = ("", "{}", "[1]", "{broken", r'{"s":"\ud800"}', '{"a": 1}')
        calls = tuple(
            ToolCall(
                f"{id_}{self.minted}" if position else id_ + str(self.minted),
                name,
                Text.of(arguments[(number + position) % 6]),
            )
            for position, (id_, name) in enumerate(zip(ids, ("look", "gone.tool"), strict=True))
        )
        self.minted += 1
        self.turns.append([Message("assistant", (), calls)])
        self.answer(calls, number)

    # --- edits of what was sent

    def edited(self) -> None:
        """End the epoch: what was thought behind an edit no longer holds, and here every edit is one of the front."""
        if not any(casting.provider.profile(casting.model).append_only for casting in self.cast):
            return
        self.turns = [[msgspec.structs.replace(m, state=None) for m in group] for group in self.turns]
        self.closed = [
            Segment(s.owner, tuple(msgspec.structs.replace(m, state=None) for m in s.messages), s.tokens, s.closed)
            for s in self.closed
        ]

    def move_evict(self, number: int) -> None:
        if self.closed:
            del self.closed[0]
        elif self.turns:
            del self.turns[0 : 1 + number % 2]
        self.edited()

    def move_tear(self, number: int) -> None:
        """Lose one message, whatever it belongs to: what a damaged journal or a hasty script does."""
        if self.turns:
            group = self.turns[number % len(self.turns)]
            del group[number % len(group)]
            if not group:
                self.turns.remove(group)
        self.edited()

    def move_mask(self, number: int) -> None:
        for group in self.turns:
            for index, message in enumerate(group):
                if message.role == "tool":
                    group[index] = Message(
                        "tool", (Text.of("[masked]"),), call_id=message.call_id, tool_name=message.tool_name
                    )
        self.edited()

    def move_amend(self, number: int) -> None:
        self.blocks[2] = Block("todo", (Text.of(f"- {number}"),), 2)
        self.edited()

    def move_grow(self, number: int) -> None:
        self.blocks.insert(2, Block("notes", (Text.of(f"note {number} " * 30),), 60, "grows", frozen=bool(number % 2)))
        self.edited()

    def move_stage(self, number: int) -> None:
        self.stage += 1
        self.edited()

    def move_tail(self, number: int) -> None:
        if any(casting.provider.profile(casting.model).append_only for casting in self.cast):
            # What would be left out of the next request cannot stand in this one.
            self.turns.append([Message("system", (Text.of(f"## now\n{number}"),), turn_scoped=True)])
        else:
            self.tail = None if self.tail is not None else f"## now\n{number}"

    def move_model(self, number: int) -> None:
        self.at += 1
        self.edited()

    def move_close(self, number: int) -> None:
        messages = tuple(message for group in self.turns for message in group)
        if messages:
            self.closed.append(Segment("conversation", messages, 10 * len(messages), closed=True))
        self.turns = []
