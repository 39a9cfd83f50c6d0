"""Any life of a window as an append-only model sees it: what was sent stays, thinking stands behind what it saw."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from windowkit import Held, stage

from shoal.blueprints import Region
from shoal.providers import NO_TOOLS, Message, ToolSet, ToolSpec
from shoal.runtime.context import Prompt, PromptEpoch, Ways

TOOLS = (NO_TOOLS, ToolSet((ToolSpec("look", "", b"{}"),), 5))
STAGES = (
    stage("a", system_prompt="Read."),
    stage("b", system_prompt="Read."),
    stage("c", system_prompt="Write.", hide=("facts",)),
)
REGIONS = (
    Region("rules", kind="pinned", max_tokens=60, volatility="stable"),
    Region("notes", kind="temporary", max_tokens=40),
    Region("log", kind="temporary", max_tokens=60, volatility="grows"),
    Region("facts", kind="hashmap", max_tokens=40, max_entries=2),
    Region("todos", kind="checklist", max_tokens=40),
    Region("mail", kind="sliding_window", max_tokens=40, max_items=3),
    Region("plan", max_tokens=30, placement="tail"),
    Region("stage_instructions", kind="pinned", max_tokens=40),
    Region("conversation", kind="sliding_window", max_tokens=120, max_items=8, strategy="bulk", overflow=4),
)
WRITABLE = st.sampled_from(["rules", "notes", "log", "facts", "mail", "plan"])
KEYS = st.sampled_from(["k", "l", "m"])
Bound: TypeAlias = tuple[tuple[bytes, ...], bytes | None]
"""What stands in front of a thought, thinking left out, and the thought before it."""


def messages(prompt: Prompt) -> list[Message]:
    return [message for segment in prompt.messages for message in segment.messages]


def front(prompt: Prompt) -> tuple[bytes, ...]:
    return (prompt.tools.digest, *[block.digest for block in prompt.system])


def bounds(prompt: Prompt) -> dict[bytes, Bound]:
    """Return what each thought in *prompt* is bound to, and under the empty name what the next one will be."""
    seen = list(front(prompt))
    last: bytes | None = None
    made: dict[bytes, Bound] = {}
    for message in messages(prompt):
        if message.state is not None:
            made[message.state.data] = (tuple(seen), last)
            last = message.state.data
        seen.append(msgspec.structs.replace(message, state=None).digest)
    return {**made, b"": (tuple(seen), last)}


def bare(message: Message) -> bytes:
    return msgspec.structs.replace(message, state=None).digest


def is_within(few: list[bytes], many: list[bytes]) -> bool:
    """Say whether *few* stand in *many*, in their order."""
    rest = iter(many)
    return all(one in rest for one in few)


def said_of(prompt: Prompt, region: str) -> list[str]:
    """Return how *region* was said at the end, oldest first."""
    headings = (f"## {region}\n", f"## {region} (now)\n")
    return [message.text for message in messages(prompt) if message.text.startswith(headings)]


class Life(RuleBasedStateMachine):
    """Writes, releases, stages, models and requests, in any order."""

    @initialize(mid=st.booleans(), turn=st.booleans())
    def begin(self, *, mid: bool, turn: bool) -> None:
        self.held = Held(*REGIONS, stages=STAGES, window_tokens=2_000)
        self.ways = Ways("scripted", "thinker", mid, mid and turn)
        self.calls = 0
        self.before: Prompt | None = None
        self.bound: dict[bytes, Bound] = {}
        self.next: Bound | None = None

    @rule(region=WRITABLE, tokens=st.integers(1, 30), key=KEYS, replaces=st.booleans())
    def write(self, region: str, tokens: int, key: str, *, replaces: bool) -> None:
        tool = "context_write" if replaces else "context_append"
        self.held.call(tool, region=region, content=f"{tokens} ".ljust(tokens * 4, "x"), key=key)

    @rule(region=WRITABLE)
    def release(self, region: str) -> None:
        self.held.call("context_delete", region=region, oldest=1)

    @rule(item=st.integers(1, 4))
    def list_items(self, item: int) -> None:
        self.held.call("todo_add", region="todos", item="an item")
        self.held.call("todo_done", region="todos", id=item)

    @rule(tokens=st.integers(1, 30))
    def say(self, tokens: int) -> None:
        self.next = None  # a run says nothing while a reply is on its way
        self.held.say(tokens)

    @precondition(lambda self: self.next is not None)
    @rule(calls=st.integers(0, 2), tokens=st.integers(1, 40), thinks=st.booleans())
    def turn(self, calls: int, tokens: int, *, thinks: bool) -> None:
        ids = [f"call_{self.calls + number}" for number in range(calls)]
        self.calls += calls
        thought = f"thought {len(self.bound)}" if thinks else ""
        if self.next is not None and thinks:
            self.bound[thought.encode()] = self.next
        self.next = None
        self.held.turn(tokens, calls=ids, thought=thought)
        for call_id in ids:
            self.held.answer(call_id, tokens)

    @rule(need=st.integers(1, 200))
    def press(self, need: int) -> None:
        self.held.press(need)

    @rule(position=st.integers(0, 20))
    def fold(self, position: int) -> None:
        ids = self.held.ids("conversation")
        self.held.summarise("conversation", ids[position : position + 4], "s")

    @rule(name=st.sampled_from(["a", "b", "c"]), window_tokens=st.sampled_from([1_000, 2_000]))
    def enter(self, name: str, window_tokens: int) -> None:
        self.held.enter(name, window_tokens)

    @rule()
    def change_model(self) -> None:
        self.held.forget()
        self.before = None

    @rule(tools=st.sampled_from(TOOLS))
    def send(self, tools: ToolSet) -> None:
        epochs = len(self.held.changes(PromptEpoch))
        prompt = self.held.send(self.ways, tools=tools)
        if self.before is not None and epochs == len(self.held.changes(PromptEpoch)):
            assert front(prompt) == front(self.before)
            sent = [message.digest for message in messages(self.before)]
            assert [message.digest for message in messages(prompt)][: len(sent)] == sent
        for thought, now in bounds(prompt).items():
            if thought:
                assert now[0] == self.bound[thought][0]
                assert now[1] in (None, self.bound[thought][1])
        self.before, self.next = prompt, bounds(prompt)[b""]
        assert prompt.tokens == sum(part.tokens for part in prompt.parts)
        self.check_shown(prompt)

    def check_shown(self, prompt: Prompt) -> None:
        """The model knows what the window holds, and is shown no message that went."""
        shown = [bare(message) for message in messages(prompt) if not message.text.startswith("## ")]
        mail, talk = ([bare(entry.message) for entry in self.held.entries(name)] for name in ("mail", "conversation"))
        assert sorted(shown) == sorted(mail + talk)
        assert is_within(talk, shown)
        assert is_within(mail, shown)
        for name in ("rules", "notes", "plan"):
            newest = ([block.text for block in prompt.system if block.owner == name] + said_of(prompt, name))[-1:]
            texts = "\n\n".join(self.held.texts(name))
            assert "".join(newest).partition("\n")[2] in (texts, texts or "(empty)")

    def teardown(self) -> None:
        if hasattr(self, "held"):
            window, epoch = self.held.replay()
            assert window.dump() == self.held.window.dump()
            live = self.held.epoch
            assert (epoch and epoch.dump(window)) == (live and live.dump(self.held.window))


TestLife = Life.TestCase
