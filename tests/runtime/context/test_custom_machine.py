"""Custom regions under scripts that say anything at all: what must hold after every single step."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from windowkit import Held, stage, text_of

from shoal.blueprints import Region
from shoal.providers import SERVERS, Request, chat_encoder
from shoal.runtime.context import CONVERSATION, EntryWritten
from shoal.runtime.events import decode

ENCODER = chat_encoder(SERVERS["generic"])
MOST = 40
KEYS = st.sampled_from([None, "a", "b"])
SAYS = st.one_of(
    st.sampled_from([None, True, False, 7, {}, {"action": "reject", "reason": "no"}, {"action": "cancel"}]),
    st.integers(0, MOST + 4).map(lambda tokens: text_of(tokens) if tokens else ""),
    st.builds(lambda key: {"action": "accept", "key": key}, st.sampled_from(["a", "b"])),
)
FREES = st.one_of(
    st.none(), st.just("nonsense"), st.lists(st.integers(0, 6), max_size=6), st.lists(st.integers(-2, 9), max_size=3)
)
SHOWS = st.one_of(
    st.sampled_from(["", "shown", 7, {"system": ["a", "b"]}, {"messages": [{"role": "user", "content": "m"}]}]),
    st.just("entries"),
)


class CustomMachine(RuleBasedStateMachine):
    """Writes, releases, pressure and stages; the scripts' answers are drawn anew for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.held: Held | None = None
        self.says: Any = None
        self.frees: Any = None
        self.shows: Any = ""
        self.waiting: list[str] = []
        self.calls = 0

    @property
    def at(self) -> Held:
        assert self.held is not None
        return self.held

    def rendered(self, ctx: Any) -> Any:
        if self.shows != "entries":
            return self.shows
        said: list[Any] = []
        for entry in ctx["entries"]:
            if entry["kind"] == "tool_result":
                result = {"tool_call_id": entry["tool_call_id"], "content": entry["content"]}
                said.append({"role": "user", "tool_results": [result]})
            elif entry["kind"] == "assistant_turn":
                said.append({"role": "assistant", "content": entry["content"], "tool_calls": entry["tool_calls"]})
            else:
                said.append({"role": "user", "content": entry["content"]})
        return {"messages": said}

    @initialize(
        budget=st.integers(4, MOST),
        smaller=st.integers(2, MOST),
        pinned=st.booleans(),
        admission=st.sampled_from(["evict", "evict", "reject"]),
        shed_to=st.sampled_from([0.1, 0.5, 1.0]),
    )
    def begin(self, budget: int, smaller: int, pinned: bool, admission: Any, shed_to: float) -> None:
        def region(name: str, most: int) -> Region:
            return Region(
                name,
                kind="custom",
                script="x.py",
                max_tokens=most,
                pinned=pinned,
                admission=admission,
                shed_to=shed_to,
            )

        hooks = {
            "on_write": lambda _ctx: self.says,
            "on_overflow": lambda _ctx: self.frees,
            "render": self.rendered,
        }
        stages = (stage("one"), stage("two", regions=(region("brain", smaller), region(CONVERSATION, smaller))))
        self.held = Held(
            region("brain", budget),
            region(CONVERSATION, budget),
            stages=stages,
            scripts={"brain": hooks, CONVERSATION: hooks},
        )

    def answers(self, says: Any, frees: Any, shows: Any) -> None:
        self.says, self.frees, self.shows = says, frees, shows

    # --- work

    @rule(
        tokens=st.integers(1, MOST + 4),
        key=KEYS,
        writer=st.sampled_from(["model", "routing", "framework"]),
        sourced=st.booleans(),
        says=SAYS,
        frees=FREES,
        shows=SHOWS,
    )
    def write(
        self, tokens: int, key: str | None, writer: Any, sourced: bool, says: Any, frees: Any, shows: Any
    ) -> None:
        self.answers(says, frees, shows)
        before = self.at.window.dump()
        plan = self.at.write("brain", tokens, key=key, writer=writer, sourced=sourced)
        assert plan.outcome == "written" or self.at.window.dump() == before, "a refused write changes nothing"
        refused = says is False or (isinstance(says, dict) and says.get("action") == "reject")
        if refused and writer != "framework":
            assert plan.outcome == "refused"
        if refused and writer == "framework" and plan.outcome == "written":
            assert self.at.texts("brain")[-1] == text_of(tokens), "what cannot be refused goes in unchanged"

    @rule(tokens=st.integers(1, MOST + 4), key=KEYS, append=st.booleans(), says=SAYS, frees=FREES)
    def put(self, tokens: int, key: str | None, append: bool, says: Any, frees: Any) -> None:
        self.answers(says, frees, self.shows)
        tool = "context_append" if append else "context_write"
        answer = self.at.call(tool, region="brain", content=text_of(tokens), key=key)
        assert not (answer.is_error and answer.changes)

    @rule(what=st.sampled_from(["id", "oldest", "key"]), number=st.integers(1, 9), key=st.sampled_from(["a", "b"]))
    def release(self, what: str, number: int, key: str) -> None:
        for region in ("brain", CONVERSATION):
            self.at.call("context_delete", region=region, **{what: key if what == "key" else number})

    @precondition(lambda self: not self.waiting)
    @rule(tokens=st.integers(1, MOST + 4), says=SAYS, frees=FREES)
    def say(self, tokens: int, says: Any, frees: Any) -> None:
        self.answers(says, frees, self.shows)
        assert self.at.say(tokens).outcome == "written", "the record of the conversation is never refused"

    @precondition(lambda self: not self.waiting)
    @rule(tokens=st.integers(1, MOST), calls=st.integers(0, 2), says=SAYS, frees=FREES)
    def turn(self, tokens: int, calls: int, says: Any, frees: Any) -> None:
        self.answers(says, frees, self.shows)
        self.waiting = [f"call{self.calls + number}" for number in range(calls)]
        self.calls += calls
        assert self.at.turn(tokens, calls=self.waiting).outcome == "written"

    @precondition(lambda self: self.waiting)
    @rule(tokens=st.integers(1, MOST), says=SAYS, frees=FREES)
    def answer(self, tokens: int, says: Any, frees: Any) -> None:
        self.answers(says, frees, self.shows)
        call_id = self.waiting.pop(0)
        assert self.at.answer(call_id, tokens).outcome == "written"
        assert any(entry.message.call_id == call_id for entry in self.at.entries(CONVERSATION))

    @precondition(lambda self: not self.waiting)
    @rule(need=st.integers(1, 3 * MOST), frees=FREES)
    def press(self, need: int, frees: Any) -> None:
        self.answers(self.says, frees, self.shows)
        before = {name: self.at.ids(name) for name in ("brain", CONVERSATION)}
        changes, _ = self.at.press(need)
        region = self.at.state("brain").region
        if region.pinned or region.admission == "reject":
            assert (changes, before) == ((), {name: self.at.ids(name) for name in before})
        elif sum(change.tokens for change in changes) < need:
            assert self.at.state(CONVERSATION).entries <= 1 or len(list(self.at.state(CONVERSATION).groups())) == 1

    @precondition(lambda self: not self.waiting)
    @rule(name=st.sampled_from(["one", "two"]), frees=FREES)
    def enter(self, name: str, frees: Any) -> None:
        self.answers(self.says, frees, self.shows)
        self.at.enter(name)

    # --- what must hold

    @invariant()
    def events_are_the_whole_truth(self) -> None:
        if self.held is not None:
            assert self.at.replayed().dump() == self.at.window.dump()

    @invariant()
    def a_region_that_evicts_keeps_its_budget(self) -> None:
        if self.held is None:
            return
        state = self.at.state("brain")
        newest = 0 if state.newest is None else state.newest.tokens
        if not state.region.pinned and state.region.admission == "evict":
            assert state.charged <= max(state.limits.budget, newest)

    @invariant()
    def ids_are_never_used_again(self) -> None:
        if self.held is not None:
            written = [change for change in self.changes() if isinstance(change, EntryWritten)]
            assert len({(change.region, change.entry_id) for change in written}) == len(written)

    def changes(self) -> list[Any]:
        return [decode(row[1], row[2]) for row in self.at.journal if isinstance(row[0], int)]

    @invariant()
    def a_request_has_no_half_of_a_call_and_is_the_same_twice(self) -> None:
        if self.held is None:
            return
        prompts = [self.at.prompt() for _ in range(2)]
        sent = [bytes(ENCODER.encode(Request("m", p.system, p.messages, p.tail))) for p in prompts]
        assert sent[0] == sent[1]
        messages = [message for segment in prompts[0].messages for message in segment.messages]
        asked = [call.call_id for message in messages for call in message.calls]
        assert asked == [message.call_id for message in messages if message.role == "tool"]


CustomMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCustomRegions = CustomMachine.TestCase
