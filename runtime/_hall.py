"""What runs live in: the services they share, the register of those that live here, and how children find parents.

One hall serves one swarm. It is both sides of a run's world: the `Host` whose services a run uses, and the `Home` that
knows where each run stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import final

import anyio

from shoal.actors import ChildSpec, DynamicSupervisor, SupervisionEvent
from shoal.blueprints import (
    Lanes,
    ModelSettings,
)
from shoal.errors import (
    DefinitionMissing,
    JournalDamaged,
    JournalFailed,
    ShoalError,
    SpawnRefused,
)
from shoal.errors import RunEnded as RunIsOver
from shoal.providers import Breaker, Provider, ReasoningDelta, RetryPolicy, TextDelta
from shoal.runtime import _threads
from shoal.runtime._budget import Purses
from shoal.runtime._change import change
from shoal.runtime._children import spawn_child
from shoal.runtime._clock import Clock
from shoal.runtime._control import Cancel, Command, Pause, Reach, Resume, steer
from shoal.runtime._fork import plan_fork
from shoal.runtime._host import ChildRequest, Serving, Traced
from shoal.runtime._keeper import Keeper
from shoal.runtime._keys import Keys
from shoal.runtime._lanes import WIDTHS, Job, LaneDesk
from shoal.runtime._limits import Limits
from shoal.runtime._live import Live
from shoal.runtime._mcp import Connections, McpServer
from shoal.runtime._mending import UNREADABLE, cancel_strays, mended
from shoal.runtime._pools import Pools
from shoal.runtime._program import Program
from shoal.runtime._programs import Programs
from shoal.runtime._resuming import open_runs
from shoal.runtime._run import Begun, RunActor
from shoal.runtime._secrets import Secrets
from shoal.runtime._serving import Servants
from shoal.runtime._spawn import Birth, Drafting, conceive, give_birth, part_of
from shoal.runtime._standings import Standing, Standings
from shoal.runtime.context import SHIPPED, Components
from shoal.runtime.events import (
    BudgetReached,
    ChildEnded,
    Event,
    Lane,
    RunEnded,
    RunSpawned,
)
from shoal.runtime.journal import Journal
from shoal.runtime.scripts import Functions, Sandbox
from shoal.runtime.state import RunState
from shoal.runtime.tools import Memory, Permissions, Shell, Tool

Watcher = Callable[[TextDelta], None]


@final
class Hall:
    """The services that all runs of a swarm share, and where each run stands.

    Args:
        providers: The providers, 1 or more.
        journal: Where events are kept.
        clock: Time and randomness.
        limits: What runs may do at most.
        permissions: What the user allows.
        retry: How often a request is repeated.
        pools: Limits of pools by name.
        scripts: Functions of the program in the place of scripts, by the path that a blueprint names.
        mcp: MCP servers whose tools runs may use.
        components: What may stand in prompts beside regions; `None` for what ships.
        memory: What is remembered from run to run; `None` for nothing.
        lanes: How lanes serve runs whose blueprint says nothing else.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        journal: Journal,
        clock: Clock,
        limits: Limits,
        permissions: Permissions,
        retry: RetryPolicy,
        pools: Mapping[str, int],
        scripts: Mapping[str, Functions] | None = None,
        mcp: Sequence[McpServer] = (),
        components: Components | None = None,
        memory: Memory | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        self.lane_defaults = lanes or Lanes()
        self.default_model: str | None = None
        """What its user prefers, of runs that begin here; see `Servants.of`."""
        self.traced: Traced | None = None
        """Says which span a request belongs to; `None` where nobody is to know."""
        self.secrets = Secrets()
        self.components = SHIPPED if components is None else components
        self.memory = memory
        self.journal = journal
        self.clock = clock
        self.limits = limits
        self.permissions = permissions
        self.retry = retry
        self.pools = Pools({"tools": limits.tool_calls, **pools}, limits.inferences)
        self.servants = Servants(providers, clock.monotonic)
        self.lanes = {lane: LaneDesk(lane, width) for lane, width in WIDTHS.items()}
        self.runs = DynamicSupervisor("runs", max_restarts=None)
        self.threads: anyio.CapacityLimiter = _threads.limiter(limits.tool_threads)
        self.shell = Shell(
            limits.command_timeout_s,
            limits.command_bytes,
            permissions.grants.allow_env_vars,
            _threads.limiter(limits.commands),
        )
        self.sandbox = Sandbox(limits.scripts, threads=self.threads, trusted=scripts)
        self.connections = Connections(mcp)
        self.programs = Programs(journal, self.components, self.connections, self.sandbox)
        self.standings = Standings()
        self.keys = Keys(journal, clock)
        self.keeper = Keeper(
            self,
            self.runs,
            self.standings,
            self._house_again,
            self._abandon,
            self._stop_at_budget,
            self.load,
            self._failed,
        )
        self.purses = Purses(journal, clock, self._state_of, self.keeper.reach)
        self.restarts: Counter[str] = Counter()
        """How often supervisors restarted something, by the supervisor's path."""
        self._crashes: dict[str, str] = {}
        self._watchers: dict[str, list[Watcher]] = {}
        self.closing = False

    def __repr__(self) -> str:
        return f"<Hall {len(self.live)} runs live here>"

    # --- services (Host)

    def serving(self, model: ModelSettings | None, override: str | None, default: str | None) -> Sequence[Serving]:
        """Return who may serve a stage with these settings, best first."""
        return self.servants.of(model, override, default)

    def breaker(self, provider: str) -> Breaker:
        """Return the circuit breaker of *provider*."""
        return self.servants.breaker(provider)

    def reconsider(self, provider: str) -> None:
        """Let *provider* be asked at once though it kept failing: a person says that what was wrong is mended."""
        self.servants.reconsider(provider)

    def submit(self, lane: Lane, job: Job) -> None:
        """Hand *job* to a lane."""
        self.lanes[lane].submit(job)

    def drop_jobs(self, run_id: str) -> None:
        """Forget the jobs of a run that ends."""
        for lane in self.lanes.values():
            lane.drop(run_id)

    def delta(self, run_id: str, delta: TextDelta | ReasoningDelta) -> None:
        """Show a piece of a reply to whoever watches the run."""
        if isinstance(delta, TextDelta):
            for watcher in self._watchers.get(run_id, ()):
                watcher(delta)

    @contextmanager
    def watching(self, run_id: str, watcher: Watcher) -> Generator[None]:
        """Have *watcher* shown the pieces of *run_id*'s replies while the block runs."""
        watchers = self._watchers.setdefault(run_id, [])
        watchers.append(watcher)
        try:
            yield
        finally:
            watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(run_id, None)

    # --- births

    async def begin(self, birth: Birth, announce: Callable[[], object] | None = None) -> None:
        """Bring a run into the world and let it live here.

        Args:
            birth: How it begins.
            announce: Called right before its first event is journaled, so that both become durable together.

        Raises:
            SpawnRefused: It cannot run.
        """
        self._check_open()
        async with self.keeper.moving(birth.run_id):
            state = await give_birth(self, birth, announce)
            parent = None if birth.parent is None else self.live.get(birth.parent)
            orphaned = birth.parent is not None and not birth.detached and (parent is None or parent.over)
            if not orphaned:
                await self._house(birth.run_id, state, None)
        if orphaned:  # its parent ended while it was being born
            await steer(self, birth.run_id, Cancel("its parent ended"))
        elif parent is not None and not birth.detached and parent.state.phase == "paused":
            await steer(self, birth.run_id, Pause("its parent is paused"))

    async def begin_all(self, births: Sequence[Birth]) -> None:
        """Bring runs into the world, all or none: their first events become durable in one transaction.

        Raises:
            SpawnRefused: One of them cannot run; nothing was journaled.
        """
        self._check_open()
        born = [await conceive(self, birth) for birth in births]
        async with AsyncExitStack() as moving:
            for birth in births:
                await moving.enter_async_context(self.keeper.moving(birth.run_id))
            for each in born:
                each.write(self)
            await self.journal.barrier()
            for each in born:
                await self._house(each.state.run_id, each.state, None)

    def _check_open(self) -> None:
        if self.closing:
            raise SpawnRefused("this swarm is closing; it starts nothing new")

    async def take_up(self, run_id: str, program: Program, resumed_by: str | None) -> None:
        """Let a run of the journal live here again, made of *program*."""
        async with self.keeper.moving(run_id):
            self.keeper.made_of[run_id] = program
            await self._house(run_id, None, resumed_by)

    async def change(self, run_id: str, program: Program) -> bool:
        """Have a run that is paused, or that nobody hosts, made of *program* from here on; say whether that differs.

        Raises:
            SpawnRefused, NotBuiltYet: It cannot go on with that; nothing was journaled.
            JournalFailed: The journal cannot be written.
        """
        at_home = self.keeper.made_of.get(run_id)
        if at_home is not None and at_home.function is not None:  # it is never laid down while it waits
            raise SpawnRefused(f"run {run_id} is an agentic function, which goes on with its own source; spawn another")
        async with self.keeper.laid_down(run_id):
            await self.journal.barrier()
            drafting, kept = Drafting(), self.keeper.made_of.get(run_id)

            def program_of(digest: str) -> Program:
                return program if digest == program.digest else self.programs.made(kept, digest)

            state = self._read_back(run_id, program_of, partial(part_of, drafting.parts, self.journal))
            if kept is not None and state.phase != "paused":
                raise SpawnRefused(f"run {run_id} is at work here; pause it first, or end its process")
            changed = await change(self, state, program, drafting)
            if changed is None:
                return False
            changed.write(self)
            await self.journal.barrier()
            if kept is not None:
                self.keeper.made_of[run_id] = program
            return True

    async def fork(self, run_id: str, at: int | None, tools: Sequence[Tool]) -> str:
        """Copy the history of a run up to *at* into a new run, let that live here, and return its id.

        Raises:
            RunNotFound, SpawnRefused, JournalDamaged: See `plan_fork`.
            DefinitionMissing: What the run is made of cannot be had.
        """
        self._check_open()
        await self.journal.barrier()
        copies = plan_fork(self.journal, run_id, at, self.clock.new_id)
        programs = {copy.run_id: self.programs.defined(copy.made.definition, tools) for copy in copies}
        for copy in copies:
            self.programs.check_functions(copy.made, tools)
        for copy in copies:
            for event in copy.events:
                self.journal.graft(event)
        await self.journal.barrier()
        # Children first: a parent that waits for one finds it at home.
        for copy in reversed(copies):
            await self.take_up(copy.run_id, programs[copy.run_id], "fork")
        for copy in copies:
            if copy.paused:
                await steer(self, copy.run_id, Resume())
        return copies[0].run_id

    async def _house_again(self, run_id: str) -> None:
        await self._house(run_id, None, self.keeper.resumed_by(run_id))

    async def _house(self, run_id: str, fresh: RunState | None, resumed_by: str | None) -> None:
        first = [Begun(run_id, fresh, resumed_by)]

        def make() -> RunActor:
            begun = first.pop() if first else Begun(run_id)

            async def begin() -> Begun:
                return begun

            return RunActor(self, self, begin, crash=self.crash_of)

        spec = ChildSpec(
            run_id, make, restart="transient", shutdown_s=self.limits.shutdown_s, max_mail=self.limits.mailbox
        )
        await self.runs.start_child(spec)

    def crash_of(self, run_id: str) -> str | None:
        """Return what the last life of a run crashed with, once; `None` where it did not."""
        return self._crashes.pop(run_id, None)

    def supervised(self, event: SupervisionEvent) -> None:
        """Take note of what a supervisor did."""
        if event.kind == "restarting":
            self.restarts[event.supervisor] += 1

    # --- where runs stand (Home)

    @property
    def live(self) -> Mapping[str, Live]:
        """The runs that live here, by id."""
        return self.keeper.live

    def load(self, run_id: str) -> RunState:
        """Return the state that the run's journal adds up to."""
        return self._read_back(run_id, partial(self.programs.made, self.keeper.made_of.get(run_id)), self.journal.part)

    def _read_back(self, run_id: str, program_of: Callable[[str], Program], load: Callable[[str], bytes]) -> RunState:
        events = self.journal.read(run_id)
        first = next(events, None)
        if first is None:
            raise DefinitionMissing(f"the journal holds no event of run {run_id}")
        assert isinstance(first.payload, RunSpawned)  # the first event of every run
        program = program_of(first.payload.definition)
        state = RunState(run_id, program, definition=self.journal.definition, load=load, program_of=program_of)
        state.apply(first)
        for event in events:
            state.apply(event)
        return state

    def mended(self, run_id: str, damage: JournalDamaged) -> RunState:
        """Return the state of a run up to where its record is damaged; see `mended`."""
        return mended(self, run_id, damage)

    async def cancel_strays(self, state: RunState) -> None:
        """Cancel the children of a run whose record was mended that it knows nothing of."""
        await cancel_strays(self, state)

    def arrived(self, live: Live, wake: Callable[[], None], *, stop: Callable[[], Awaitable[None]] | None) -> None:
        """Take note of a life of a run; one that has a *stop* of its own never leaves memory before its end."""
        self.keeper.arrived(live, wake, stop=stop)
        self.standings.of(live.run_id).paused = live.state.paused
        self.purses.moved(live)

    def unseen(self, run_id: str) -> int:
        """Return the seq up to which a life that is read back now has to come; 0 for any."""
        return self.keeper.unseen(run_id)

    def left(self, live: Live, crash: str | None) -> None:
        """Take note that a life of a run is over."""
        self.keeper.left(live, stopped=crash is None)
        if live.state.ended is not None:
            self.purses.forget(live)
        if crash is not None:
            self._crashes[live.run_id] = crash

    def moved(self, live: Live) -> None:
        """Take note that a run waits, or is over."""
        standing = self.standings.of(live.run_id)
        state = live.state
        self.purses.moved(live)
        standing.paused = state.paused if state.phase == "paused" else None
        if state.ended is not None:
            standing.settle(state, self.clock.monotonic())
            self._tell_parent(live)
            for child in state.children.values():
                if child.open:
                    self.keeper.orphan(child.spawned.child)
        elif state.next_due is not None:
            self.keeper.alarm(live.run_id, state.next_due)
        standing.pulse()

    def broke(self, run_id: str, error: JournalFailed) -> None:
        """Take note that a run cannot go on because its journal cannot be written."""
        self.keeper.back(run_id)
        above: str | None = run_id
        while above is not None:  # what waits for it would wait for ever
            standing = self.standings.of(above)
            standing.broken = error
            standing.pulse()
            self.keeper.wake(above)
            live = self.live.get(above)
            above = None if live is None else live.state.made_by.parent

    async def _failed(self, run_id: str, error: ShoalError) -> None:
        """Take note that a run could not be brought back, or told what it has to know, while nobody waits for that."""
        damage = error.__cause__
        if isinstance(damage, JournalDamaged):
            await self.write_off(run_id, str(damage))
        else:
            self.broke(run_id, error if isinstance(error, JournalFailed) else JournalFailed(str(error)))

    async def write_off(self, run_id: str, why: str) -> None:
        """End a run as `error` that cannot be read back, and tell its parent: the others are as well as they were.

        Args:
            run_id: The run.
            why: Why it cannot.

        Raises:
            JournalFailed: The journal cannot be written.
        """
        await self.journal.barrier()
        row = self.journal.find(run_id)
        ended = RunEnded("error", why, flags={UNREADABLE: 1})
        self.journal.append(Event(run_id, row.events + 1, self.clock.stamp(), ended))
        await self.journal.barrier()
        self.keeper.made_of.pop(run_id, None)
        self.keeper.back(run_id)
        standing = self.standings.of(run_id)
        standing.write_off(run_id, ended, self.clock.monotonic())
        standing.pulse()
        for child in open_runs(self.journal, row.root):
            if child.parent == run_id and not child.detached:
                self.keeper.orphan(child.run_id)
        if row.parent is not None:
            self._tell(row.parent, run_id)

    def settled(self, run_id: str) -> Standing:
        """Return where a run stands, read from the journal where it does not live here."""
        standing = self.standings.of(run_id)
        if standing.outcome is None and standing.paused is None and run_id not in self.live:
            row = self.journal.find(run_id)
            if row.ended:
                self._settle(standing, run_id)
            elif row.status == "paused":
                standing.paused = self.load(run_id).paused
        return standing

    def _settle(self, standing: Standing, run_id: str) -> None:
        last, now = self.journal.newest(run_id, RunEnded), self.clock.monotonic()
        if last is not None and isinstance(last.payload, RunEnded) and UNREADABLE in last.payload.flags:
            standing.write_off(run_id, last.payload, now)
        else:
            standing.settle(self.load(run_id), now)

    # --- children

    async def spawn_child(self, parent: str, wanted: ChildRequest) -> str:
        """Start a child of *parent* and return its id."""
        return await spawn_child(self, parent, wanted)

    async def command(self, run_id: str, command: Command, done: Callable[[], None] | None = None) -> None:
        """Carry out *command*, wherever the run is; returns once its effect is durable. *done* as in `steer`."""
        await steer(self, run_id, command, done)

    async def over(self, run_id: str) -> ChildEnded:
        """Return how a run ended, once it has.

        Raises:
            JournalFailed: Its journal cannot be written.
        """
        while True:
            standing = self.settled(run_id)
            ended = standing.as_child()
            if ended is not None:
                return ended
            if standing.broken is not None:
                raise type(standing.broken)(str(standing.broken), run_id=run_id) from standing.broken
            await standing.wait()

    def _state_of(self, run_id: str) -> RunState:
        live = self.live.get(run_id)
        return self.load(run_id) if live is None else live.state

    async def _stop_at_budget(self, run_id: str, reached: BudgetReached) -> None:
        finishes = self._state_of(run_id).budget.on_budget == "finish"
        reach = Reach(run_id, reached.limit, reached.most, reached.spent, reached.needed, finishes)
        with suppress(RunIsOver):
            await steer(self, run_id, reach)
        self.purses.told(run_id)

    async def _abandon(self, run_id: str) -> None:
        with suppress(RunIsOver):
            await steer(self, run_id, Cancel("its parent ended"))

    def ended(self, child: str) -> ChildEnded | None:
        """Return how *child* ended; `None` where it has not."""
        try:
            return self.settled(child).as_child()
        except JournalDamaged as damage:  # it is over, and what it said is lost: its parent goes on without
            return ChildEnded(child, "error", None, f"its record cannot be read: {damage}")

    def _tell_parent(self, child: Live) -> None:
        """Tell the parent of a run that has ended; one that sleeps asks when it comes back."""
        parent = child.state.made_by.parent
        if parent is not None:
            self._tell(parent, child.run_id)

    def _tell(self, run_id: str, child: str) -> None:
        """Tell a run that its *child* has ended."""
        parent = self.live.get(run_id)
        ended = self.standings.of(child).as_child()
        if parent is not None and not parent.over and ended is not None:
            known = parent.state.children.get(child)
            if known is not None and known.ended is None:
                try:
                    parent.emit(ended)
                except JournalFailed as error:
                    self.broke(run_id, error)
        self.keeper.wake(run_id)

    # --- ends

    async def stop(self, run_id: str) -> None:
        """Stop what a run that has ended is still in the middle of."""
        await self.keeper.stop(run_id)
