"""The window of one run: it plans changes, applies them, and turns into a prompt.

Planning reads and returns; applying is the only thing that changes it. A live run appends what was planned to its
journal and applies it; a resumed run applies what the journal holds. Both end in the same window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, final

import msgspec

from shoal.blueprints import Region
from shoal.providers import Message, Text
from shoal.runtime.context._budget import Limits, resolve
from shoal.runtime.context._changes import (
    BudgetChange,
    Change,
    ContextCompacted,
    EntriesEvicted,
    EntriesReleased,
    EntryWritten,
    EvictReason,
    ItemChanged,
    LayoutChanged,
    RegionReset,
    SeedBlock,
    SeedRefreshed,
    SeedResolved,
)
from shoal.runtime.context._cut import Cut, cut_to, fair_shares
from shoal.runtime.context._entry import Draft, Entry, bytes_of, chars_of, estimate_text
from shoal.runtime.context._layout import CONVERSATION, Layout, cut_of
from shoal.runtime.context._store import Item, RegionState
from shoal.runtime.context.regions import KINDS, Asked
from shoal.runtime.context.regions._kind import oldest_until
from shoal.runtime.context.regions.compact_history import oldest_half

Outcome: TypeAlias = Literal["written", "refused", "wait"]


@final
class Order(msgspec.Struct, frozen=True, gc=False):
    """A summary that a region wants: of these entries."""

    region: str
    entry_ids: tuple[int, ...]


@final
class Plan(msgspec.Struct, frozen=True):
    """What a write comes to.

    Args:
        outcome: `written`, `refused` (nothing changes), or `wait` for the summary of *region* and plan again.
        changes: Changes to journal and apply, in order, each with the message it brings (or `None`).
        orders: Summaries to order.
        why: Of a refusal: one sentence for the writer.
        over_tokens: Of a refusal: by how much it does not fit.
        tokens: What is written, after cutting.
        of_tokens: What was to be written.
    """

    outcome: Outcome
    changes: tuple[tuple[Change, Message | None], ...] = ()
    orders: tuple[Order, ...] = ()
    why: str = ""
    over_tokens: int = 0
    tokens: int = 0
    of_tokens: int = 0

    @property
    def cut(self) -> bool:
        """Only a part of it is written."""
        return self.tokens < self.of_tokens


@final
class Window:
    """The regions of one run, as its current stage sees them.

    Args:
        layout: What the stage sees.
        window_tokens: The model's window.
    """

    __slots__ = ("layout", "ratio", "states", "window_tokens")

    def __init__(self, layout: Layout, window_tokens: int) -> None:
        self.states: dict[str, RegionState] = {}
        self.ratio = 1.0
        self.layout = layout
        self.window_tokens = window_tokens
        self.enter(layout, window_tokens)

    def __repr__(self) -> str:
        held = ", ".join(f"{name} {state.tokens}/{state.limits.budget}" for name, state in self.states.items())
        return f"<Window {self.layout.stage}: {held}>"

    # --- layout

    def enter(self, layout: Layout, window_tokens: int) -> None:
        """Take on a stage's layout and its model's window; contents stay, and what was hidden comes back intact."""
        former = self.states.get(self.layout.instructions_in)
        if former is not None:
            former.instructions, former.instruction_tokens = None, 0
            former.touched()
        self.layout, self.window_tokens = layout, window_tokens
        for name, first in layout.everything.items():
            state = self.states.get(name)
            # A hidden region keeps the definition under which it was last seen; its budget holds on any model.
            region = first if state is None else layout.regions.get(name, state.region)
            limits = resolve(region, window_tokens)
            if state is None:
                self.states[name] = RegionState(region, limits, cut_of(region))
            elif state.region != region or state.limits != limits:
                _redefine(state, region, limits)
        home = self.states[layout.instructions_in]
        if layout.instructions is not None:
            home.instructions, home.instruction_tokens = layout.instructions, layout.instruction_tokens
            home.touched()

    def plan_layout(self, layout: Layout, model: str, window_tokens: int) -> tuple[Change, ...]:
        """Return what a change to *layout* and *model* does: what is shed, then one report where a budget changed.

        Call it before `enter`. A region that is over its new budget shrinks by its own rule, newest kept.
        """
        changes: list[Change] = []
        report: list[BudgetChange] = []
        for name, state in self.states.items():
            region = layout.regions.get(name, state.region)
            limits = resolve(region, window_tokens)
            if state.limits.budget == limits.budget:
                continue
            evicted = self._fit(state, region, limits.estimated(self.ratio))
            changes.extend(evicted)
            report.append(BudgetChange(name, state.limits.budget, limits.budget, sum(e.tokens for e in evicted)))
        if report:
            changes.append(LayoutChanged(model, window_tokens, tuple(report)))
        return tuple(changes)

    def _fit(self, state: RegionState, region: Region, limits: Limits) -> tuple[EntriesEvicted, ...]:
        over = state.tokens - limits.budget
        if over <= 0 or region.kind in ("pinned", "checklist", "compact_history") or region.admission == "reject":
            return ()
        if region.kind in ("clearable", "hashmap"):
            shrunk = KINDS[region.kind].shrink(state, limits, over)
            gone, tokens = shrunk.evict, shrunk.tokens
        else:
            newest = state.newest
            fits = newest is not None and newest.tokens <= limits.budget
            keep = fits or region.kind == "sliding_window"
            gone, tokens = oldest_until(state, limits.shed_to, keep_newest=keep)
        return (EntriesEvicted(region.name, gone, tokens, "layout"),) if gone else ()

    # --- planning

    def state(self, region: str) -> RegionState:
        """Return the state of *region*.

        Raises:
            KeyError: No layout so far declared it.
        """
        return self.states[region]

    def plan_write(
        self,
        region: str,
        draft: Draft,
        *,
        most_tokens: int | None = None,
        in_flight: bool = False,
        may_wait: bool = False,
        joins: bool = False,
    ) -> Plan:
        """Return what writing *draft* into *region* comes to; nothing changes.

        Args:
            region: The region; a checklist takes one item a line.
            draft: What is to be written.
            most_tokens: It is cut to this, with a marker; `None` for no such limit.
            in_flight: A summary of the region is being made.
            may_wait: The writer can wait for it.
            joins: The entry answers a call of the newest group.
        """
        state = self.states[region]
        if state.region.kind == "checklist":
            return self._plan_items(state, draft)
        limits = state.limits.estimated(self.ratio)
        most = draft.tokens if most_tokens is None else most_tokens
        if draft.writer in ("routing", "seed"):
            most = min(most, limits.budget - state.instruction_tokens)
        shorter = cut_to(draft.message, draft.tokens, most) if draft.tokens > most else None
        record = region == CONVERSATION and draft.writer == "framework"
        return self._admitted(state, draft, Asked(limits, in_flight, may_wait, joins, record), shorter)

    def _admitted(self, state: RegionState, draft: Draft, asked: Asked, shorter: Cut | None) -> Plan:
        of_tokens = draft.tokens
        if shorter is not None:
            draft = msgspec.structs.replace(draft, message=shorter.message, tokens=shorter.tokens)
        admission = KINDS[state.region.kind].write(state, draft, asked)
        name = state.region.name
        orders = (Order(name, admission.order),) if admission.order else ()
        if admission.verdict == "wait":
            return Plan("wait", orders=orders, of_tokens=of_tokens)
        if admission.verdict == "refuse":
            return Plan(
                "refused", orders=orders, why=admission.why, over_tokens=admission.over_tokens, of_tokens=of_tokens
            )
        changes: list[tuple[Change, Message | None]] = []
        if admission.evict:
            changes.append((self._evicted(state, admission.evict, admission.reason), None))
        sourced = draft.source > 0
        written = EntryWritten(
            name,
            state.next_id,
            draft.kind,
            draft.tokens,
            draft.source,
            draft.index,
            draft.key,
            shorter.chars if shorter is not None and sourced else draft.cut,
            (shorter.marker if shorter is not None else draft.text) if sourced else _inline(draft.message),
            admission.replaces,
            admission.over_budget,
            draft.counted,
        )
        changes.append((written, draft.message))
        return Plan("written", tuple(changes), orders, tokens=draft.tokens, of_tokens=of_tokens)

    def _evicted(self, state: RegionState, ids: tuple[int, ...], reason: EvictReason) -> EntriesEvicted:
        gone = frozenset(ids)
        tokens = sum(entry.tokens for entry in state.all_entries() if entry.entry_id in gone)
        return EntriesEvicted(state.region.name, ids, tokens, reason)

    def plan_replace(self, region: str, draft: Draft, replaces: Sequence[int]) -> Plan:
        """Return what putting *draft* in place of the entries *replaces* comes to; checked first, then swapped in."""
        state = self.states[region]
        limits = state.limits.estimated(self.ratio)
        gone = frozenset(replaces)
        freed = sum(entry.tokens for entry in state.all_entries() if entry.entry_id in gone)
        if state.charged - freed + draft.tokens > limits.budget:
            over = state.charged - freed + draft.tokens - limits.budget
            why = (
                f"`{region}` holds {limits.budget} tokens at all, and with this it would hold {over} more; "
                f"write {over} tokens less" + ("" if state.charged == freed else " or release entries first")
            )
            return Plan("refused", why=why, over_tokens=over, of_tokens=draft.tokens)
        written = EntryWritten(
            region,
            state.next_id,
            draft.kind,
            draft.tokens,
            draft.source,
            draft.index,
            draft.key,
            text=None if draft.source else _inline(draft.message),
            replaces=tuple(replaces),
            counted=draft.counted,
        )
        return Plan("written", ((written, draft.message),), tokens=draft.tokens, of_tokens=draft.tokens)

    def shares(self, region: str, costs: Sequence[int]) -> tuple[int, ...]:
        """Return what each result of the newest turn's calls may cost, n in call order.

        Where the turn's group alone exceeds its region, each result gets an equal share of what is left.
        """
        state = self.states[region]
        budget = state.limits.estimated(self.ratio).budget
        turn = state.newest.tokens if state.newest is not None else 0
        return tuple(costs) if turn + sum(costs) <= budget else fair_shares(costs, max(0, budget - turn))

    def _plan_items(self, state: RegionState, draft: Draft) -> Plan:
        lines = [line.strip() for line in draft.message.text.splitlines() if line.strip()]
        texts = [Text.of(line) for line in lines]
        costs = [item_tokens(text) for text in texts]
        asked = Asked(state.limits.estimated(self.ratio))
        total = msgspec.structs.replace(draft, tokens=sum(costs))
        admission = KINDS["checklist"].write(state, total, asked)
        if admission.verdict != "accept":
            return Plan("refused", why=admission.why, over_tokens=admission.over_tokens, of_tokens=total.tokens)
        name = state.region.name
        changes = tuple(
            (ItemChanged(name, state.next_item + offset, "open", text, cost), None)
            for offset, (text, cost) in enumerate(zip(texts, costs, strict=True))
        )
        return Plan("written", changes, tokens=total.tokens, of_tokens=total.tokens)

    def plan_summary(
        self, region: str, entry_ids: Sequence[int], summary: Text, tokens: int
    ) -> tuple[ContextCompacted | None, tuple[Order, ...]]:
        """Return what putting *summary* in place of those entries comes to, and which summaries that orders in turn.

        Returns:
            `None` where the entries are gone, or where the summary is not smaller than what it stands for.
        """
        state = self.states[region]
        wanted = frozenset(entry_ids)
        entries = [entry for entry in state.all_entries() if entry.entry_id in wanted]
        held = sum(entry.tokens for entry in entries)
        if not entries or tokens >= held:
            return None, ()
        home, orders = self._home_of_summary(state, tokens)
        target = self.states[home]
        return (
            ContextCompacted(
                region,
                (min(entry.seq for entry in entries), max(entry.seq for entry in entries)),
                tuple(entry.entry_id for entry in entries),
                summary,
                tokens,
                bytes_of(entries) - len(str(summary).encode()),
                into=home,
                entry_id=target.next_id,
            ),
            orders,
        )

    def _home_of_summary(self, state: RegionState, tokens: int) -> tuple[str, tuple[Order, ...]]:
        name = state.region.name
        for other in self.states.values():
            if other.region.kind == "compact_history" and other.region.source_region == name:
                if other.charged + tokens <= other.limits.estimated(self.ratio).budget:
                    return other.region.name, ()
                fold = oldest_half(other)
                return name, (Order(other.region.name, fold),) if fold else ()
        return name, ()

    def plan_pressure(
        self, need_tokens: int, *, ordered: Iterable[str] = ()
    ) -> tuple[tuple[Change, ...], tuple[Order, ...]]:
        """Return what goes so that *need_tokens* (estimated) become free, in the order of the cascade.

        Args:
            need_tokens: Tokens that are wanted, 1 or more.
            ordered: Regions whose summary was already waited for; they are passed over.

        Returns:
            Changes to apply, and summaries to order: where there are any, wait for them and plan again.
        """
        changes: list[Change] = []
        passed = frozenset(ordered)
        left = need_tokens
        for kind in ("clearable", "temporary", "compacting", "sliding_window", "hashmap"):
            orders: list[Order] = []
            for name in self.layout.regions:
                state = self.states[name]
                if state.region.kind != kind or state.region.admission == "reject" or left <= 0:
                    continue
                shrunk = KINDS[kind].shrink(state, state.limits.estimated(self.ratio), left)
                if shrunk.evict:
                    changes.append(EntriesEvicted(name, shrunk.evict, shrunk.tokens, "pressure"))
                    left -= shrunk.tokens
                elif shrunk.order and name not in passed:
                    orders.append(Order(name, shrunk.order))
            if orders:
                return tuple(changes), tuple(orders)
        return tuple(changes), ()

    # --- applying

    def apply(self, change: Change, seq: int, at: float, message: Message | None = None) -> None:
        """Apply *change*, which is event *seq* of the run and happened *at* (unix seconds).

        Args:
            change: The change.
            seq: Its seq.
            at: When it happened.
            message: Of `EntryWritten`: what the entry says, cut and marked already.
        """
        match change:
            case EntryWritten():
                assert message is not None  # the run resolves an entry's source before it applies it
                self._write(change, seq, at, message)
            case EntriesEvicted() | EntriesReleased():
                self._remove(change.region, change.entry_ids)
            case RegionReset():
                self.states[change.region].clear()
            case ItemChanged():
                self._change_item(change)
            case ContextCompacted():
                self._compact(change, seq, at)
            case SeedResolved():
                self._seed(change, seq, at)
            case SeedRefreshed():
                self._refresh(change, seq, at)
            case LayoutChanged():
                pass  # a report: budgets follow from the layout, what was shed stands in its own events

    def _write(self, change: EntryWritten, seq: int, at: float, message: Message) -> None:
        state = self.states[change.region]
        state.next_id = max(state.next_id, change.entry_id + 1)
        entry = Entry(change.entry_id, seq, change.kind, message, change.tokens, chars_of(message), at, change.key)
        if change.replaces:
            where = state.remove(change.replaces)
            if where is not None:
                state.insert(entry, where)
                return
        if change.at_head:
            state.put_at_head(entry)
            return
        state.append(entry, joins=change.kind == "tool_result" and _answers(state, message))

    def _remove(self, region: str, ids: tuple[int, ...]) -> None:
        state = self.states[region]
        if state.region.kind == "checklist":
            for item_id in ids:
                del state.items[item_id]
        state.remove(ids)

    def _change_item(self, change: ItemChanged) -> None:
        state = self.states[change.region]
        note = change.note
        if change.item_id >= state.next_item:
            state.next_item = change.item_id + 1
            state.items[change.item_id] = Item(change.item_id, note or Text.of(""), tokens=change.tokens)
        else:
            item = state.items[change.item_id]
            tokens = item.tokens + change.tokens
            match change.state:
                case "done" | "open":
                    item = msgspec.structs.replace(item, state=change.state, tokens=tokens)
                case "dropped":
                    item = msgspec.structs.replace(item, state="dropped", reason=note, tokens=tokens)
                case "note":
                    notes = item.notes if note is None else (*item.notes, note)
                    item = msgspec.structs.replace(item, notes=notes, tokens=tokens)
            state.items[change.item_id] = item
        state.remove(())

    def _compact(self, change: ContextCompacted, seq: int, at: float) -> None:
        source = self.states[change.region]
        source.remove(change.entry_ids)
        target = self.states[change.into or change.region]
        target.next_id = max(target.next_id, change.entry_id + 1)
        message = Message("user", (change.summary,))
        entry = Entry(change.entry_id, seq, "summary", message, change.tokens, chars_of(message), at)
        if target is source:
            target.put_at_head(entry)
        else:
            target.append(entry, joins=False)

    def _seed(self, change: SeedResolved, seq: int, at: float) -> None:
        state = self.states[change.region]
        if state.region.kind == "checklist":
            return  # its items follow as changes of their own
        for block in change.blocks:
            state.append(_seed_entry(state, state.next_id, seq, at, block), joins=False)

    def _refresh(self, change: SeedRefreshed, seq: int, at: float) -> None:
        state = self.states[change.region]
        where = state.remove(change.replaces)
        for offset, (entry_id, block) in enumerate(zip(change.entry_ids, change.blocks, strict=True)):
            entry = _seed_entry(state, entry_id, seq, at, block)
            if where is None:
                state.append(entry, joins=False)
            else:
                state.insert(entry, where + offset)

    # --- looking

    def required_and_empty(self) -> tuple[str, ...]:
        """Return the regions of this stage that are required and empty, in declared order."""
        return tuple(n for n, region in self.layout.regions.items() if region.required and self.states[n].empty)

    def fill(self) -> Mapping[str, tuple[int, int]]:
        """Return tokens and budget of each region that the stage sees, corrected alike."""
        return {
            name: (round(state.charged * self.ratio), state.limits.budget)
            for name, state in self.states.items()
            if self.layout.sees(name)
        }

    def dump(self) -> dict[str, object]:
        """Return everything that makes this window, as plain values; equal windows give equal dumps."""
        dumped: dict[str, object] = {name: dump_region(state) for name, state in sorted(self.states.items())}
        return {**dumped, "@": (self.layout.stage, self.window_tokens, self.ratio)}


def dump_region(state: RegionState) -> dict[str, object]:
    """Return everything that makes one region, as plain values."""
    return {
        "budget": state.limits.budget,
        "next": (state.next_id, state.next_item, state.next_chunk),
        "tokens": state.tokens,
        "chunks": [
            (chunk.number, chunk.frozen, [[_dump_entry(e) for e in group.entries] for group in chunk.groups])
            for chunk in state.chunks
        ],
        "items": [
            (i.item_id, str(i.text), i.state, [str(n) for n in i.notes], str(i.reason)) for i in state.items.values()
        ],
        "instructions": str(state.instructions),
    }


def _dump_entry(entry: Entry) -> tuple[object, ...]:
    message = entry.message
    calls = [(call.call_id, call.name, str(call.arguments)) for call in message.calls]
    said = (message.role, message.text, calls, message.call_id, message.tool_name, message.is_error)
    state = None if message.state is None else message.state.data
    return (
        entry.entry_id,
        entry.seq,
        entry.kind,
        said,
        state,
        entry.tokens,
        entry.chars,
        entry.created,
        entry.key,
        entry.seeded,
    )


def _seed_entry(state: RegionState, entry_id: int, seq: int, at: float, block: SeedBlock) -> Entry:
    state.next_id = max(state.next_id, entry_id + 1)
    message = Message("user", (block.text,))
    key = block.name if state.region.kind == "hashmap" and block.name else None
    return Entry(entry_id, seq, "text", message, block.tokens, chars_of(message), at, key, seeded=True)


def item_tokens(text: Text) -> int:
    """Return what an item or a note of *text* costs, its mark and id included."""
    return estimate_text(text) + 2


def _answers(state: RegionState, message: Message) -> bool:
    newest = state.newest
    return newest is not None and any(call.call_id == message.call_id for call in newest.entries[0].message.calls)


def _inline(message: Message) -> Text | None:
    texts = message.texts
    if len(texts) == 1:
        return texts[0]
    return Text.of(message.text) if texts else None


def _redefine(state: RegionState, region: Region, limits: Limits) -> None:
    cut = cut_of(region)
    recut = cut != state.cut
    state.region, state.limits, state.cut = region, limits, cut
    for chunk in state.chunks:
        chunk.made = None
    if recut:
        entries = [(group.entries, chunk) for chunk in state.chunks for group in chunk.groups]
        state.clear_chunks()
        for group, _ in entries:
            for position, entry in enumerate(group):
                state.append(entry, joins=position > 0)
    state.touched()
