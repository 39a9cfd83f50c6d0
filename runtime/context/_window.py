"""The window of one run: it plans changes, applies them, and turns into a prompt.

Planning reads and returns; applying is the only thing that changes it. A live run appends what was planned to its
journal and applies it; a resumed run applies what the journal holds. Both end in the same window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

from shoal.blueprints import Region
from shoal.providers import TEXT_ONLY, Intake, Message, Segment, Text, TextCounter
from shoal.runtime.context._apply import (
    Sown,
    apply_item,
    apply_refresh,
    apply_removal,
    apply_seed,
    apply_summary,
    apply_write,
)
from shoal.runtime.context._budget import Limits, resolve
from shoal.runtime.context._calls import Scene, ScriptCall, overflow_call, render_call
from shoal.runtime.context._changes import (
    BudgetChange,
    Change,
    ContextCompacted,
    EntriesEvicted,
    EntriesReleased,
    EntryWritten,
    ItemChanged,
    LayoutChanged,
    RegionReset,
    SeedBlock,
    SeedRefreshed,
    SeedResolved,
)
from shoal.runtime.context._cut import fair_shares
from shoal.runtime.context._dump import dump_region
from shoal.runtime.context._entry import Draft, counted
from shoal.runtime.context._layout import CONVERSATION, Layout, cut_of
from shoal.runtime.context._observe import View
from shoal.runtime.context._plan import Order, Plan, Planned, plan_entry, plan_items
from shoal.runtime.context._plan_custom import NOTHING_SAID, Said, next_call, plan_custom
from shoal.runtime.context._refresh import BlockKeys, plan_refresh
from shoal.runtime.context._room import NO_FREES, Frees, calls_under_pressure, to_fit, under_pressure
from shoal.runtime.context._said import Rendering
from shoal.runtime.context._shelf import Shelf
from shoal.runtime.context._store import RegionState
from shoal.runtime.context._summary import plan_summary
from shoal.runtime.context.regions import Asked


@final
class Window:
    """The regions of one run, as its current stage sees them.

    Args:
        layout: What the stage sees.
        window_tokens: The model's window.
        intake: What the model takes beside text.
        shelf: The run's stored parts.
    """

    __slots__ = (
        "_instruction_tokens",
        "around",
        "counter",
        "instructions",
        "intake",
        "layout",
        "lifted",
        "ratio",
        "scripted",
        "shelf",
        "since",
        "stable",
        "standing",
        "states",
        "window_tokens",
    )

    def __init__(
        self, layout: Layout, window_tokens: int, intake: Intake = TEXT_ONLY, shelf: Shelf | None = None
    ) -> None:
        self.states: dict[str, RegionState] = {}
        self.ratio = 1.0
        """What one estimated token really costs on the stage's model."""
        self.counter: TextCounter | None = None
        """Counts what is written, where the model's vocabulary is at hand; what was counted stands in the event."""
        self.layout = layout
        self.window_tokens = window_tokens
        self.intake = intake
        self.shelf = Shelf() if shelf is None else shelf
        self.since = 0
        """Seq of the event from which on the stage sees the conversation; 0 for all of it."""
        self.instructions: Text | None = None
        """The instructions that stand in a region: those of the last stage whose prompt is no message."""
        self._instruction_tokens = 0
        self.lifted: Segment | None = None
        """The message with the stored parts of system regions, as it was sent last."""
        self.standing: tuple[tuple[tuple[int, int], Any], ...] = ()
        """What components show in the system section: each with its layer and its place in that."""
        self.around: Any = None
        """What stands around the messages of its prompt, until a region of it changes."""
        self.stable: tuple[Any, Mapping[str, bytes]] | None = None
        """What stands for its stable regions, with the *around* of which that is true."""
        self.scripted = False
        """A script renders some region of this stage."""
        self.enter(layout, window_tokens, intake)

    def __repr__(self) -> str:
        held = ", ".join(f"{name} {state.tokens}/{state.limits.budget}" for name, state in self.states.items())
        return f"<Window {self.layout.stage}: {held}>"

    @property
    def standing_tokens(self) -> int:
        """Estimated tokens of what components show."""
        tokens: list[int] = [one.block_tokens for _, one in self.standing]
        return sum(tokens)

    # --- layout

    def enter(
        self, layout: Layout, window_tokens: int, intake: Intake = TEXT_ONLY, *, since: int | None = None
    ) -> None:
        """Take on a stage's layout and its model's window; contents stay, and what was hidden comes back intact.

        Args:
            layout: What the stage sees.
            window_tokens: The model's window.
            intake: What the model takes beside text; stored parts count what they cost there.
            since: Seq of the event from which on the stage sees the conversation; `None` leaves that as it is.
        """
        self.since = self.since if since is None else since
        if intake != self.intake:
            self.intake = intake
            for held in self.states.values():
                held.reprice(intake)
        self.layout, self.window_tokens = layout, window_tokens
        self.scripted = any(region.kind == "custom" for region in layout.regions.values())
        shared = layout.limits(window_tokens)
        for name, first in layout.everything.items():
            state = self.states.get(name)
            # A hidden region keeps the definition under which it was last seen; its budget holds on any model.
            region = first if state is None else layout.regions.get(name, state.region)
            limits = shared[name] if region is first else resolve(region, window_tokens)
            if state is None:
                self.states[name] = RegionState(region, limits, cut_of(region))
            else:
                _redefine(state, region, limits)
        if not layout.nudged:
            self.instructions, self._instruction_tokens = layout.instructions, layout.instruction_tokens
        for name, state in self.states.items():
            home = name == layout.instructions_in
            state.instruct(self.instructions if home else None, self._instruction_tokens if home else 0)
        self._look(self.states[CONVERSATION])

    def redraw(self) -> None:
        """Forget what was rendered of every region: what the renderings were made with is another now."""
        for state in self.states.values():
            state.redraw()

    def _look(self, state: RegionState) -> None:
        """Let the conversation be seen as the layout says."""
        knobs, since = self.layout.knobs, self.since
        before = state.view
        if knobs is None and not since:
            state.view = None
        elif before is None or (before.knobs, before.since) != (knobs, since):
            state.view = View(knobs, since)
        if state.view is not before:
            state.touched()

    def plan_layout(
        self, layout: Layout, model: str, window_tokens: int, *, frees: Frees = NO_FREES
    ) -> tuple[Change, ...]:
        """Return what a change to *layout* and *model* does: what is shed, then one report where a budget changed.

        Call it before `enter`. A region that is over its new budget shrinks by its own rule, newest kept; of custom
        ones goes first what their scripts free (*frees*, see `layout_calls`).
        """
        changes: list[Change] = []
        report: list[BudgetChange] = []
        for name, state in self.states.items():
            region = layout.regions.get(name, state.region)
            limits = resolve(region, window_tokens)
            if state.limits.budget != limits.budget:
                evicted = list(to_fit(state, region, limits.estimated(self.ratio), frees.get(name, ())))
                changes.extend(evicted)
                report.append(
                    BudgetChange(name, state.limits.budget, limits.budget, sum(change.tokens for change in evicted))
                )
        if report:
            changes.append(LayoutChanged(model, window_tokens, tuple(report)))
        return tuple(changes)

    def layout_calls(self, layout: Layout, window_tokens: int) -> tuple[ScriptCall, ...]:
        """Return what the scripts of custom regions have to be asked before `plan_layout`."""
        calls: list[ScriptCall] = []
        for name, state in self.states.items():
            region = layout.regions.get(name, state.region)
            limits = resolve(region, window_tokens).estimated(self.ratio)
            over = state.charged - limits.budget
            if region.kind == "custom" and region.admission != "reject" and over > 0:
                calls.append(overflow_call(state, over, limits, self.intake))
        return tuple(calls)

    # --- planning

    def plan_write(
        self,
        region: str,
        draft: Draft,
        *,
        most_tokens: int | None = None,
        replaces: Sequence[int] = (),
        in_flight: bool = False,
        may_wait: bool = False,
        joins: bool = False,
        said: Said = NOTHING_SAID,
    ) -> Plan:
        """Return what writing *draft* into *region* comes to; nothing changes.

        Args:
            region: The region; a checklist takes one item a line.
            draft: What is to be written.
            most_tokens: It is cut to this, with a marker; `None` for no such limit.
            replaces: Ids of the entries that it takes the place of.
            in_flight: A summary of the region is being made.
            may_wait: The writer can wait for it.
            joins: The entry answers a call of the newest group of the conversation.
            said: What the script of a custom region said of this write; see `write_call`.
        """
        state = self.states[region]
        draft = counted(draft, self.counter)
        asked = self._asked(region, draft, replaces, in_flight=in_flight, may_wait=may_wait, joins=joins)
        if state.region.kind == "custom":
            return plan_custom(state, draft, asked, most_tokens, said)
        plan = plan_items if state.region.kind == "checklist" else plan_entry
        return plan(state, draft, asked, most_tokens)

    def write_call(
        self,
        region: str,
        draft: Draft,
        said: Said,
        *,
        most_tokens: int | None = None,
        replaces: Sequence[int] = (),
        joins: bool = False,
    ) -> ScriptCall | None:
        """Return what the script of *region* has to be asked before *draft* is written; `None` for nothing more.

        What comes of the call belongs into *said*, and this is asked again; then `plan_write` is given all of it.
        """
        state = self.states[region]
        if state.region.kind != "custom":
            return None
        draft = counted(draft, self.counter)
        asked = self._asked(region, draft, replaces, joins=joins)
        return next_call(state, draft, asked, most_tokens, said, self.intake)

    def _asked(
        self,
        region: str,
        draft: Draft,
        replaces: Sequence[int],
        *,
        in_flight: bool = False,
        may_wait: bool = False,
        joins: bool = False,
    ) -> Asked:
        state = self.states[region]
        gone = frozenset(replaces)
        return Asked(
            state.limits.estimated(self.ratio),
            self.ratio,
            gone,
            sum(entry.tokens for entry in state.all_entries() if entry.entry_id in gone) if gone else 0,
            in_flight,
            may_wait,
            joins,
            record=region == CONVERSATION and draft.writer == "framework",
        )

    def shares(self, region: str, costs: Sequence[int]) -> tuple[int, ...]:
        """Return what each result of the newest turn's calls may cost, n in call order.

        Where the turn's group alone exceeds its region, each result gets an equal share of what is left.
        """
        state = self.states[region]
        budget = state.limits.estimated(self.ratio).budget
        turn = state.newest.tokens if state.newest is not None else 0
        return tuple(costs) if turn + sum(costs) <= budget else fair_shares(costs, max(0, budget - turn))

    def plan_summary(
        self, region: str, entry_ids: Sequence[int], summary: Text, tokens: int
    ) -> tuple[ContextCompacted | None, tuple[Order, ...]]:
        """Return what putting *summary* in place of those entries comes to, and which summaries that orders in turn.

        Returns:
            `None` where the entries are gone, or where the summary is blank or not smaller than what it stands for.
        """
        return plan_summary(self.states, self.states[region], entry_ids, summary, tokens, self.ratio)

    def plan_pressure(
        self, need_tokens: int, *, waited: Iterable[Order] = (), frees: Frees = NO_FREES
    ) -> tuple[tuple[Change, ...], tuple[Order, ...]]:
        """Return what goes so that *need_tokens* (estimated) become free, in the order of the cascade.

        Args:
            need_tokens: Tokens that are wanted, 1 or more.
            waited: Summaries that this was asked to wait for before, and that are over. Where one failed, its region
                drops its oldest groups instead; where it came, the region is passed over.
            frees: What the scripts of custom regions free; see `pressure_calls`.

        Returns:
            Changes to apply, and summaries to order: where there are any, wait for them and plan again.
        """
        return under_pressure(self._seen, need_tokens, {order.region: order for order in waited}, self.ratio, frees)

    def pressure_calls(self, need_tokens: int) -> tuple[ScriptCall, ...]:
        """Return what the scripts of custom regions have to be asked before `plan_pressure`."""
        return calls_under_pressure(self._seen, need_tokens, self.ratio, self.intake)

    @property
    def _seen(self) -> list[RegionState]:
        return [self.states[name] for name in self.layout.regions]

    def plan_refresh(
        self,
        region: str,
        form: str,
        blocks: Sequence[SeedBlock],
        notes: tuple[str, ...] = (),
        keys: BlockKeys = (),
    ) -> tuple[Planned, ...]:
        """Return what changes where the seed of *region* gives *blocks* now; nothing where it gives the same bytes.

        Args:
            region: The region.
            form: The seed's form.
            blocks: What it gave, in order; in place of one that failed its old block stays.
            notes: What failed, for people.
            keys: Keys that the script of a custom region gave, by name of the block.
        """
        state = self.states[region]
        asked = Asked(state.limits.estimated(self.ratio), self.ratio)
        return plan_refresh(state, asked, form, blocks, notes, self.shelf, keys)

    # --- rendering custom regions

    def render_calls(self, model: str, iterations: int) -> tuple[ScriptCall, ...]:
        """Return the calls that render the custom regions of this stage, in declared order.

        Args:
            model: The model that is asked.
            iterations: How many inferences this visit of the stage has had.
        """
        seen = self._seen
        total = round(sum(state.charged for state in seen) * self.ratio)
        scene = Scene(self.layout.stage, iterations, model, total, self.window_tokens)
        return tuple(
            render_call(state, self.ratio, scene, self.intake) for state in seen if state.region.kind == "custom"
        )

    def show(self, region: str, rendering: Rendering | None) -> None:
        """Let *region* be seen as its script rendered it; `None` shows its entries as plain text."""
        state = self.states[region]
        state.rendering = rendering
        state.touched()

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
                apply_write(self.states[change.region], change, seq, at, message, self.intake)
            case EntriesEvicted() | EntriesReleased():
                apply_removal(self.states[change.region], change.entry_ids)
            case RegionReset():
                self.states[change.region].clear()
            case ItemChanged():
                apply_item(self.states[change.region], change)
            case ContextCompacted():
                apply_summary(self.states, change, seq, at)
            case SeedResolved():
                apply_seed(self.states[change.region], change, Sown(seq, at, self.shelf, self.intake))
            case SeedRefreshed():
                apply_refresh(self.states[change.region], change, Sown(seq, at, self.shelf, self.intake))
            case _:
                pass  # `LayoutChanged` is a report: what was shed for it stands in events of its own

    def note_listed(self, region: str) -> None:
        """Remember that the model was shown the entries of *region* numbered: until they move, a number names one."""
        state = self.states.get(region)
        if state is not None:
            state.listed = state.moved

    # --- looking

    def required_and_empty(self) -> tuple[str, ...]:
        """Return the regions of this stage that are required and empty, in declared order."""
        return tuple(n for n, region in self.layout.regions.items() if region.required and self.states[n].empty)

    def fill(self) -> Mapping[str, tuple[int, int]]:
        """Return tokens and budget of each region that the stage sees, in declared order, corrected alike."""
        states = ((name, self.states[name]) for name in self.layout.regions)
        return {name: (round(state.charged * self.ratio), state.limits.budget) for name, state in states}

    def dump(self) -> dict[str, object]:
        """Return everything that makes this window, as plain values; equal windows give equal dumps."""
        dumped: dict[str, object] = {name: dump_region(state) for name, state in sorted(self.states.items())}
        return {**dumped, "@": (self.layout.stage, self.window_tokens, self.ratio, self.intake), "+": self.shelf.dump()}


def _redefine(state: RegionState, region: Region, limits: Limits) -> None:
    """Let *region* and *limits* hold for *state*; what is rendered stays where they do not show."""
    state.limits = limits
    if state.region == region:
        return
    state.region = region
    cut = cut_of(region)
    if cut != state.cut:
        state.recut(cut)
    state.redraw()
