"""A window under random layouts and random work: what must hold after every single step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from windowkit import SEES, Held, block, png, stage, text_of

from shoal.blueprints import Region
from shoal.providers import SERVERS, TEXT_ONLY, Intake, Message, ModelProfile, Request, chat_encoder
from shoal.runtime.context import (
    CONVERSATION,
    ContextCompacted,
    EntriesEvicted,
    EntriesReleased,
    EntryWritten,
    Order,
    PartStored,
    Prompt,
    RegionReset,
    RegionState,
    SeedBlock,
    SeedRefreshed,
    Window,
    assemble,
    estimate,
)
from shoal.runtime.context import _store as store
from shoal.runtime.context._entry import part_tokens
from shoal.runtime.events import decode

ENCODER = chat_encoder(SERVERS["generic"], profile=ModelProfile("m", input_types=("image/*",)))
PARTS = {"small": png(28, 28), "large": png(112, 84), "text": b"some words", "bytes": b"\0bytes"}
SOME_PARTS = st.lists(st.sampled_from(sorted(PARTS)), max_size=2)
KEPT = ("pinned", "checklist", "compact_history")
ROLLING = ("temporary", "sliding_window", "compacting")
KEYS = st.sampled_from([None, "a", "b", "c"])


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """Chunks that freeze early, so that small windows have several."""
    patch = pytest.MonkeyPatch()
    patch.setattr(store, "CHUNK_TOKENS", 16)
    patch.setattr(store, "SEGMENT_MESSAGES", 4)
    yield
    patch.undo()


def a_region(name: str, kind: str, most: int, **more: Any) -> st.SearchStrategy[Region]:
    return st.builds(
        Region,
        st.just(name),
        kind=st.just(kind),
        max_tokens=st.integers(4, most),
        admission=st.sampled_from(["evict", "evict", "evict", "reject"]),
        volatility=st.sampled_from(["rewritten", "grows", "stable"]),
        accepts=st.sampled_from([None, None, None, ("text/*", "image/png"), ("image/*",)]),
        max_stored=st.sampled_from([None, None, 0, 1, 3]),
        **more,
    )


SHED = st.sampled_from([0.1, 0.5, 0.75, 1.0])


def layout(most: int) -> st.SearchStrategy[tuple[Region, ...]]:
    items = {"max_items": st.integers(1, 6), "overflow": st.integers(1, 4), "compact_count": st.integers(1, 4)}
    strategy = st.sampled_from(["per_item", "bulk", "compact"])
    trigger = st.sampled_from([0.3, 0.8, 1.0])
    return st.tuples(
        a_region("pinned", "pinned", most),
        a_region("temporary", "temporary", most, shed_to=SHED),
        a_region("compacting", "compacting", most, shed_to=SHED, compact_at=trigger),
        a_region("alone", "compacting", most, shed_to=SHED, compact_at=trigger),
        a_region("history", "compact_history", most, source_region=st.just("compacting")),
        a_region("clearable", "clearable", most),
        a_region("hashmap", "hashmap", most, max_entries=st.one_of(st.none(), st.integers(1, 4))),
        a_region("checklist", "checklist", most),
        a_region("sliding", "sliding_window", most, shed_to=SHED, strategy=strategy, **items),
        a_region(CONVERSATION, "sliding_window", most, shed_to=SHED, strategy=strategy, **items),
    )


def encoded(prompt: Prompt) -> bytes:
    return bytes(ENCODER.encode(Request("m", prompt.system, prompt.messages, prompt.tail)))


def unrendered(window: Window) -> Window:
    """Return *window* with nothing kept of what was rendered."""
    window.lifted = None
    for state in window.states.values():
        state.touched()
        for chunk in state.chunks:
            chunk.changed()
    return window


def covers(accepts: Sequence[str], mime: str) -> bool:
    return any(mime == pattern or mime.startswith(pattern.removesuffix("*")) for pattern in accepts)


def messages_of(prompt: Prompt) -> list[Message]:
    return [message for segment in prompt.messages for message in segment.messages]


def seen_of(state: RegionState, prompt: Prompt) -> list[str]:
    """Return what the model reads of a region, piece by piece, where one write may only add to its end."""
    texts = [block.text for block in prompt.system if block.owner == state.region.name]
    if state.region.kind != "sliding_window":
        return texts
    return [f"{m.role} {m.text}" for s in prompt.messages if s.owner == state.region.name for m in s.messages]


def begins(now: Sequence[str], before: Sequence[str]) -> bool:
    """Say whether *now* is *before* with more at its end."""
    same = all(new == old for new, old in zip(now, before[:-1], strict=False))
    return not before or (len(now) >= len(before) and same and now[len(before) - 1].startswith(before[-1]))


class WindowMachine(RuleBasedStateMachine):
    """Plans and applies; what it checks is worked out from the events and the window alone."""

    most = 40
    orders: Bundle[Order] = Bundle("orders")

    def __init__(self) -> None:
        super().__init__()
        self.held: Held | None = None
        self.waiting: list[str] = []
        self.calls = 0
        self.excused: set[str] = set()
        self.ids: dict[str, set[int]] = {}
        self.items: dict[str, set[int]] = {}
        self.order: dict[str, list[int]] = {}
        self.shown: dict[str, list[str]] = {}
        self.done = 0
        self.in_flight: set[str] = set()
        self.stored: dict[str, int] = {}
        self.parts: dict[str, int] = {}

    @property
    def at(self) -> Held:
        assert self.held is not None
        return self.held

    def room(self, name: str) -> int:
        return self.at.state(name).limits.estimated(self.at.window.ratio).budget

    def over(self) -> set[str]:
        return {name for name, state in self.at.window.states.items() if state.charged > self.room(name)}

    # --- beginning

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        other = data.draw(st.permutations(data.draw(layout(self.most))))
        kept = other[: data.draw(st.integers(0, len(other)))]
        prompts = st.sampled_from([None, "Do it.", text_of(self.most // 8 or 1)])
        stages = (
            stage("one", system_prompt=data.draw(prompts)),
            stage("two", regions=kept, system_prompt=data.draw(prompts)),
            stage("three", hide=("temporary", "clearable", "history"), prompt_as="nudge"),
        )
        self.held = Held(*data.draw(layout(self.most)), stages=stages)
        self.mirror = self.at.begun()
        self.stored = {name: self.at.store(data, name) for name, data in PARTS.items()}
        self.excused = self.over()

    # --- work

    def order_summaries(self, orders: Sequence[Order]) -> Any:
        """Return those of *orders* that are taken: one a region is under way at a time."""
        taken = [order for order in orders if order.region not in self.in_flight]
        self.in_flight.update(order.region for order in taken)
        return multiple(*taken)

    @rule(
        target=orders,
        region=st.sampled_from(["pinned", "temporary", "compacting", "alone", "history", "clearable", "sliding"]),
        tokens=st.integers(1, most + 4),
        key=KEYS,
        writer=st.sampled_from(["model", "framework", "routing"]),
        cap=st.one_of(st.none(), st.integers(1, most)),
        sourced=st.booleans(),
        waits=st.booleans(),
        parts=SOME_PARTS,
    )
    def write(
        self,
        region: str,
        tokens: int,
        key: str | None,
        writer: Any,
        cap: int | None,
        sourced: bool,
        waits: bool,
        parts: list[str],
    ) -> Any:
        before = self.at.window.dump()
        seqs = self.seqs(parts)
        draft = self.at.draft(text_of(tokens), key=key, writer=writer, sourced=sourced, parts=seqs)
        plan = self.at.window.plan_write(
            region, draft, most_tokens=cap, in_flight=region in self.in_flight, may_wait=waits
        )
        assert self.at.window.dump() == before, "planning changes nothing"
        assert plan.outcome == "written" or not plan.changes, "what is not written changes nothing"
        assert plan.outcome != "wait" or waits
        self.at.change(plan.changes)
        state = self.at.state(region)
        if state.region.kind in (*ROLLING, "clearable") and state.region.admission == "evict":
            fits = draft.tokens + state.instruction_tokens <= self.room(region)
            free = state.region.accepts is None and not parts
            assert plan.outcome != "refused" or not fits or not free, "what fits an evicting region is taken"
        return self.order_summaries(plan.orders)

    def seqs(self, parts: Sequence[str]) -> tuple[int, ...]:
        return tuple([self.stored[name] for name in parts])

    @rule(
        target=orders,
        region=st.sampled_from(["pinned", "temporary", "compacting", "clearable", "sliding", "hashmap", "checklist"]),
        part=st.sampled_from(sorted(PARTS)),
        key=KEYS,
    )
    def attach(self, region: str, part: str, key: str | None) -> Any:
        answer = self.at.call("context_attach", region=region, part=part, key=key)
        assert not (answer.is_error and answer.changes)
        return self.order_summaries(answer.orders)

    @rule(key=KEYS, tokens=st.integers(1, most + 4), append=st.booleans())
    def put(self, key: str | None, tokens: int, append: bool) -> None:
        tool = "context_append" if append else "context_write"
        if self.at.window.layout.sees("hashmap"):
            self.at.call(tool, region="hashmap", content=text_of(tokens), key=key)

    @rule(
        target=orders,
        region=st.sampled_from(["pinned", "temporary", "compacting", "history", "clearable", "sliding"]),
        tokens=st.integers(1, most + 4),
        key=KEYS,
    )
    def rewrite(self, region: str, tokens: int, key: str | None) -> Any:
        answer = self.at.call("context_write", region=region, content=text_of(tokens), key=key)
        assert not (answer.is_error and answer.changes)
        return self.order_summaries(answer.orders)

    @precondition(lambda self: not self.waiting)
    @rule(target=orders, tokens=st.integers(1, most + 4), parts=SOME_PARTS)
    def say(self, tokens: int, parts: list[str]) -> Any:
        busy = CONVERSATION in self.in_flight
        return self.order_summaries(self.record(self.at.say(tokens, parts=self.seqs(parts), in_flight=busy)))

    @precondition(lambda self: not self.waiting)
    @rule(target=orders, tokens=st.integers(0, most // 2), calls=st.integers(0, 3), parts=SOME_PARTS)
    def turn(self, tokens: int, calls: int, parts: list[str]) -> Any:
        if not tokens and not calls:
            return multiple()
        self.waiting = [f"call{self.calls + n}" for n in range(calls)]
        self.calls += calls
        made = self.at.turn(tokens or "", calls=self.waiting, parts=self.seqs(parts))
        return self.order_summaries(self.record(made))

    @precondition(lambda self: self.waiting)
    @rule(target=orders, tokens=st.integers(1, most + 4), parts=SOME_PARTS)
    def answer(self, tokens: int, parts: list[str]) -> Any:
        made = self.at.answer(self.waiting.pop(0), tokens, parts=self.seqs(parts))
        return self.order_summaries(self.record(made))

    def record(self, plan: Any) -> Sequence[Order]:
        assert plan.outcome == "written", "the record of the conversation is never refused"
        state = self.at.state(CONVERSATION)
        region = state.region
        if region.admission == "evict" and region.max_items is not None and region.strategy == "per_item":
            assert state.entries <= max(region.max_items, len(state.newest.entries))  # type: ignore[union-attr]
        return plan.orders

    @rule(
        region=st.sampled_from(["pinned", "temporary", "sliding", "hashmap", "clearable", CONVERSATION, "checklist"]),
        what=st.sampled_from(["index", "id", "oldest", "key"]),
        number=st.integers(0, 9),
        key=st.sampled_from(["a", "b"]),
        listed=st.booleans(),
    )
    def release(self, region: str, what: str, number: int, key: str, listed: bool) -> None:
        if listed:
            self.at.call("context_list", region=region)
        self.at.call("context_delete", region=region, **{what: key if what == "key" else number})

    @rule(tool=st.sampled_from(["add", "done", "note", "drop"]), item=st.integers(1, 9), tokens=st.integers(1, 6))
    def todo(self, tool: str, item: int, tokens: int) -> None:
        args: dict[str, Any] = {
            "add": {"item": text_of(tokens)},
            "done": {"id": item},
            "note": {"id": item, "note": text_of(tokens)},
            "drop": {"id": item, "reason": text_of(tokens)},
        }[tool]
        self.at.call(f"todo_{tool}", region="checklist", **args)

    @rule(lines=st.lists(st.integers(1, 6), max_size=4), writer=st.sampled_from(["routing", "seed", "framework"]))
    def list_lines(self, lines: list[int], writer: str) -> None:
        self.at.write("checklist", "\n".join(text_of(n, "t") for n in lines), writer=writer)

    # --- summaries

    @rule(target=orders, region=st.sampled_from([CONVERSATION, "temporary", "compacting", "sliding"]))
    def order_all(self, region: str) -> Any:
        """Order what an edge's transform does: a summary of everything, whatever happens until it lands."""
        ids = tuple(self.at.ids(region))
        return self.order_summaries([Order(region, ids)] if ids else [])

    @rule(
        order=consumes(orders),
        how=st.sampled_from(["small", "big", "blank", "missing"]),
    )
    def land(self, order: Order, how: str) -> None:
        self.in_flight.discard(order.region)
        held = sum(e.tokens for e in self.at.entries(order.region) if e.entry_id in order.entry_ids)
        said = {"small": text_of(max(1, held // 4), "s"), "big": text_of(held + 1), "blank": " \n"}.get(how)
        if said is None:
            return
        before = self.at.window.dump()
        change, _ = self.at.summarise(order.region, order.entry_ids, said)
        assert change is None or how == "small", "a summary that is blank or no smaller changes nothing"
        assert change is not None or self.at.window.dump() == before

    @precondition(lambda self: not self.waiting)
    @rule(target=orders, need=st.integers(1, 4 * most), failed=st.booleans())
    def press(self, need: int, failed: bool) -> Any:
        changes, orders = self.at.press(need)
        if not failed or not orders:
            self.relieved(need, changes, orders)
            return self.order_summaries(orders)
        need -= sum(change.tokens for change in changes if isinstance(change, EntriesEvicted))
        changes, more = self.at.press(need, waited=orders)
        assert not more, "no summary is waited for twice"
        self.relieved(need, changes, ())
        return multiple()

    def relieved(self, need: int, changes: Sequence[Any], orders: Sequence[Order]) -> None:
        """Hold that pressure is relieved, or that nothing more can go."""
        freed = sum(change.tokens for change in changes)
        if freed >= need or orders:
            return
        for name in self.at.window.layout.regions:
            state = self.at.state(name)
            if state.region.admission == "reject":
                continue
            if state.region.kind in ("clearable", "hashmap"):
                assert state.empty
            elif state.region.kind in ROLLING:
                assert len(list(state.groups())) <= 1 or self.room(name) < state.newest.tokens  # type: ignore[union-attr]

    # --- stages, models, seeds

    @precondition(lambda self: not self.waiting)
    @rule(
        name=st.sampled_from(["one", "two", "three"]),
        window_tokens=st.sampled_from([40, 400, 4000]),
        intake=st.sampled_from([TEXT_ONLY, SEES]),
    )
    def enter(self, name: str, window_tokens: int, intake: Intake) -> None:
        costs = intake != self.at.window.intake
        self.at.enter(name, window_tokens, intake)
        if costs:  # what a region drifts over its budget by goes with its next write
            self.excused |= {name for name in self.over() if self.at.state(name).parts}
        states = self.at.window.states
        home = self.at.window.layout.instructions_in
        self.excused |= {
            n
            for n in self.over()
            if states[n].region.kind in KEPT or states[n].region.admission == "reject" or n == home
        }

    @rule(ratio=st.sampled_from([0.5, 1.0, 1.7]))
    def calibrate(self, ratio: float) -> None:
        self.at.calibrate(ratio)
        self.excused |= self.over()

    @rule(
        region=st.sampled_from(["pinned", "temporary", "hashmap", "sliding", "checklist"]),
        sizes=st.lists(st.integers(1, 12), max_size=3),
        ok=st.booleans(),
    )
    def refresh(self, region: str, sizes: list[int], ok: bool) -> None:
        if self.at.state(region).charged <= self.room(region):
            blocks = [self.sown(block("f", text_of(n), ok=ok or n > 6), n) for n in sizes]
            self.at.refresh(region, *blocks)
            assert not self.at.refresh(region, *blocks), "equal bytes write nothing"

    def sown(self, made: SeedBlock, number: int) -> SeedBlock:
        """Return *made*, with a part behind it where *number* is odd."""
        parts = self.seqs(["small"] if number % 2 else [])
        whole = Message("user", (made.text,), blobs=self.at.blobs(*parts))
        return msgspec.structs.replace(made, parts=parts, tokens=estimate(whole, self.at.window.intake))

    @precondition(lambda self: not self.waiting)
    @rule(region=st.sampled_from(["pinned", "checklist", "temporary", CONVERSATION]))
    def reset(self, region: str) -> None:
        self.at.change([(RegionReset(region, self.at.tokens(region), "stage"), None)])

    # --- what must hold

    def catch_up(self) -> list[Any]:
        """Bring the mirror up to the newest event, and return the changes since; `None` stands for a stage entry."""
        changes: list[Any] = []
        for row in self.at.journal[self.done :]:
            match row:
                case ("enter", name, tokens, intake, since):
                    self.mirror.enter(self.at.layouts[name], tokens, intake, since=since)
                    changes.append(None)
                case ("ratio", ratio):
                    self.mirror.ratio = ratio
                case ("listed", region):
                    self.mirror.note_listed(region)
                case (seq, number, data):
                    change: Any = decode(number, data)
                    if isinstance(change, PartStored):
                        self.mirror.shelf.keep(seq, change)
                        continue
                    self.follow(change)
                    self.mirror.apply(change, seq, float(seq), self.at.message_of(change))
                    self.settled(change)
                    changes.append(change)
        self.done = len(self.at.journal)
        return changes

    def follow(self, change: Any) -> None:
        """Hold what an event may say of the window as it was before."""
        if isinstance(change, EntriesEvicted):
            region = self.mirror.states[change.region].region
            assert change.reason == "layout" or (region.kind not in KEPT and region.admission == "evict")
        new = {
            EntryWritten: lambda: [(change.region, change.entry_id)],
            ContextCompacted: lambda: [(change.into, change.entry_id)],
            SeedRefreshed: lambda: [(change.region, entry_id) for entry_id in change.entry_ids],
        }.get(type(change), list)()
        for name, entry_id in new:
            assert entry_id not in self.ids.setdefault(name, set()), "ids are never used again"
            self.ids[name].add(entry_id)

    def settled(self, change: Any) -> None:
        """Hold what a shed leaves."""
        if not isinstance(change, EntriesEvicted) or change.reason in ("max_items", "max_entries", "max_stored"):
            return
        state = self.mirror.states[change.region]
        counted = change.reason == "compaction_failed" and state.region.kind == "sliding_window"
        if state.region.kind not in ROLLING or change.reason == "layout" or counted:
            return
        newest = 0 if state.newest is None else state.newest.tokens
        assert state.charged <= state.limits.estimated(self.mirror.ratio).shed_to + newest

    @invariant()
    def holds(self) -> None:
        if self.held is None:
            return
        changes = self.catch_up()
        assert self.mirror.dump() == self.at.window.dump(), "events are the whole truth"
        prompt = self.at.prompt()
        assert encoded(prompt) == encoded(self.at.prompt()) == encoded(assemble(unrendered(self.mirror)))
        self.budgets_hold()
        self.order_holds(changes)
        self.prefixes_hold(prompt, changes)
        self.pairs_hold(messages_of(prompt))
        self.parts_hold(prompt, changes)

    def parts_hold(self, prompt: Prompt, changes: Sequence[Any]) -> None:
        intake = self.at.window.intake
        for name, state in self.at.window.states.items():
            blobs = [blob for entry in state.all_entries() for blob in entry.message.blobs]
            assert state.parts == len(blobs), "parts are counted"
            assert state.part_tokens == sum(part_tokens(e.message, intake) for e in state.all_entries())
            most = state.region.max_stored
            assert most is None or state.parts <= max(most, self.parts.get(name, 0)), "no more than `max_stored` come"
            self.parts[name] = state.parts
            if name in self.at.window.layout.regions and state.region.kind != "sliding_window":
                lines = "".join(block.text for block in prompt.system if block.owner == name)
                assert all(str(blob.stand_in) in lines for blob in blobs), "a part is named where it stands"
        for change in changes:
            if isinstance(change, EntryWritten) and change.region != CONVERSATION:
                accepts = self.at.state(change.region).region.accepts
                types = {self.at.window.shelf.stored[seq].mime for seq in change.parts}
                assert accepts is None or all(covers(accepts, mime) for mime in types), "only what is accepted comes"

    def budgets_hold(self) -> None:
        over = self.over()
        self.excused &= over
        for name in over - self.excused:
            state = self.at.state(name)
            one_group = len(list(state.groups())) == 1 and state.region.kind == "sliding_window"
            kept_whole = name == CONVERSATION and state.region.admission == "reject"
            assert one_group or kept_whole, f"{name} is over its budget: {state} {self.room(name)}"

    def order_holds(self, changes: Sequence[Any]) -> None:
        named: dict[str, set[int]] = {}
        for change in changes:
            if isinstance(change, EntriesEvicted | EntriesReleased | ContextCompacted):
                named.setdefault(change.region, set()).update(change.entry_ids)
            elif isinstance(change, EntryWritten | SeedRefreshed):
                named.setdefault(change.region, set()).update(change.replaces)
            elif isinstance(change, RegionReset):
                named.setdefault(change.region, set()).update(self.order.get(change.region, ()))
        for name, state in self.at.window.states.items():
            now = [entry.entry_id for entry in state.all_entries()]
            before = self.order.get(name, [])
            left = set(before) & set(now)
            assert [i for i in before if i in left] == [i for i in now if i in left], "order is kept"
            assert set(before) - left == named.get(name, set()) & set(before), "nothing goes but what events name"
            self.order[name] = now

    def prefixes_hold(self, prompt: Prompt, changes: Sequence[Any]) -> None:
        moved = {getattr(c, "region", "") for c in changes if not isinstance(c, EntryWritten) or c.replaces}
        moved |= {getattr(c, "into", "") for c in changes}
        moved.add(self.at.window.layout.instructions_in)
        for name in self.at.window.layout.regions:
            state = self.at.state(name)
            now, before = seen_of(state, prompt), self.shown.get(name, [])
            if None not in changes and name not in moved and state.region.kind not in ("hashmap", "checklist"):
                assert begins(now, before), "between two sheds what was sent stays in front"
            self.shown[name] = now

    def pairs_hold(self, messages: Sequence[Message]) -> None:
        asked = [call.call_id for message in messages for call in message.calls]
        answered = [message.call_id for message in messages if message.role == "tool"]
        assert set(answered) <= set(asked), "no result without its call"
        assert set(asked) - set(answered) <= set(self.waiting), "no call without its result"


class WideWindowMachine(WindowMachine):
    """The same with room for several entries in each region."""

    most = 400


# A nightly profile draws more; the steps are what finds things.
EXAMPLES = settings.default.max_examples if settings.default else 100

TestSmallWindows = pytest.mark.wall_limit(900)(WindowMachine.TestCase)
TestSmallWindows.settings = settings(max_examples=EXAMPLES // 2, stateful_step_count=40)
TestWideWindows = pytest.mark.wall_limit(900)(WideWindowMachine.TestCase)
TestWideWindows.settings = settings(max_examples=EXAMPLES // 4, stateful_step_count=60)
