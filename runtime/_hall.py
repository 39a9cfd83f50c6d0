"""What runs live in: the services that they share, and how each begins.

One hall serves one swarm. It is the `Host` whose services a run uses; where each run stands, its `home` knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import final

import anyio

from shoal.actors import ChildSpec, DynamicSupervisor, SupervisionEvent
from shoal.blueprints import ModelSettings
from shoal.errors import AlreadyStarted, ShoalError, SpawnRefused
from shoal.providers import Breaker, ReasoningDelta, TextDelta
from shoal.runtime import _threads
from shoal.runtime._change import change
from shoal.runtime._children import spawn_child
from shoal.runtime._connections import Connections
from shoal.runtime._control import Cancel, Pause, Resume, steer
from shoal.runtime._fork import plan_fork
from shoal.runtime._gear import Gear
from shoal.runtime._home import Home, read_back
from shoal.runtime._host import ChildRequest, Serving
from shoal.runtime._keys import Keys
from shoal.runtime._lanes import WIDTHS, Job, LaneDesk
from shoal.runtime._pools import Pools
from shoal.runtime._programs import Programs
from shoal.runtime._run import Begun, RunActor
from shoal.runtime._serving import Servants
from shoal.runtime._spawn import Announced, Birth, Drafting, conceive, held
from shoal.runtime.events import Lane, RunSpawned
from shoal.runtime.journal import Journal
from shoal.runtime.program import Program
from shoal.runtime.scripts import Sandbox
from shoal.runtime.state import RunState
from shoal.runtime.tools import Shell, Tool

Watcher = Callable[[TextDelta], None]


@final
class Hall:
    """The services that all runs of a swarm share, and the place where they begin.

    Args:
        journal: Where events are kept.
        gear: What the user gave them to share.

    Raises:
        ConfigInvalid: Nobody serves the model that the user prefers.
    """

    def __init__(self, journal: Journal, gear: Gear) -> None:
        self.journal = journal
        self.clock = gear.clock
        self.limits = limits = gear.limits
        self.permissions = gear.permissions
        self.retry = gear.retry
        self.components = gear.components
        self.memory = gear.memory
        self.lane_defaults = gear.lanes
        self.default_model = gear.default_model
        self.traced = gear.traced
        self.secrets = gear.secrets
        self.pools = Pools({"tools": limits.tool_calls, **gear.pools}, limits.inferences)
        self.servants = Servants(gear.providers, gear.clock.monotonic)
        if gear.default_model is not None:
            self.servants.check_default(gear.default_model)
        self.lanes = {lane: LaneDesk(lane, width) for lane, width in WIDTHS.items()}
        self.runs = DynamicSupervisor("runs", max_restarts=None)
        self.threads: anyio.CapacityLimiter = _threads.limiter(limits.tool_threads)
        self.shell = Shell(
            limits.command_timeout_s,
            limits.command_bytes,
            gear.permissions.grants.allow_env_vars,
            _threads.limiter(limits.commands),
        )
        self.sandbox = Sandbox(limits.scripts, threads=self.threads, trusted=gear.scripts)
        self.connections = Connections(gear.mcp)
        self.programs = Programs(journal, self.components, self.connections, self.sandbox)
        self.home = Home(self, self.runs, self.programs, self._house_again)
        self.keys = Keys(journal, gear.clock)
        self.restarts: Counter[str] = Counter()
        """How often supervisors restarted something, by the supervisor's path."""
        self._watchers: dict[str, list[Watcher]] = {}
        self.closing = False

    def __repr__(self) -> str:
        return f"<Hall {len(self.home.live)} runs live here>"

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

    async def begin(self, births: Sequence[Announced]) -> None:
        """Bring runs into the world, all or none, and let them live here: one transaction journals their beginning.

        Raises:
            SpawnRefused: One of them cannot run; nothing was journaled.
        """
        self._check_open()
        born = [await conceive(self, each.birth) for each in births]
        async with AsyncExitStack() as moving:
            for each in births:
                await moving.enter_async_context(self.home.keeper.moving(each.birth.run_id))
            for each, child in zip(births, born, strict=True):
                if each.announce is not None:
                    each.announce()
                child.write(self)
            await self.journal.barrier()
            bereft = [self._bereft(each.birth) for each in births]
            for child, command in zip(born, bereft, strict=True):
                if not isinstance(command, Cancel):
                    await self._house(child.state.run_id, child.state, None)
        for child, command in zip(born, bereft, strict=True):
            if command is not None:
                await steer(self.home, child.state.run_id, command)

    def _bereft(self, birth: Birth) -> Cancel | Pause | None:
        """Return what is to be done to a run whose parent ended or paused while it was born; `None` for nothing."""
        if birth.parent is None or birth.detached:
            return None
        parent = self.home.live.get(birth.parent)
        if parent is None or parent.over:
            return Cancel("its parent ended")
        return Pause("its parent is paused") if parent.state.phase == "paused" else None

    def _check_open(self) -> None:
        if self.closing:
            raise SpawnRefused("this swarm is closing; it starts nothing new")

    def check_fit(
        self, run_id: str, program: Program, made: RunSpawned, stage: str | None, given: Sequence[Tool]
    ) -> None:
        """See that a run of the journal can go on here.

        Args:
            run_id: The run, for the message.
            program: What it is made of.
            made: How it was spawned, and what it is made of where it goes on.
            stage: The stage that it goes on in; `None` where it was in none.
            given: The functions that it was given as tools.

        Raises:
            DefinitionMissing: It needs a function that is not here.
            SpawnRefused: Nobody here serves the stage.
        """
        self.programs.check_functions(made, given)
        self.programs.check_function(program)
        going_on = None if stage is None else program.stages.get(stage)
        if going_on is not None and program.function is None:
            try:
                self.serving(going_on.model, made.model, made.default_model)
            except SpawnRefused as error:
                raise SpawnRefused(f"run {run_id} cannot go on in stage {stage!r}: {error}") from error

    async def take_up(self, run_id: str, program: Program, resumed_by: str) -> None:
        """Let a run of the journal live here again, made of *program*; one that does by now is left alone.

        A call that is cancelled while the run starts does not stop the start.
        """
        async with self.home.keeper.moving(run_id):
            if run_id in self.home.keeper.made_of:  # somebody else took its tree up at the same time
                return
            self.home.keeper.made_of[run_id] = program
            try:
                await self._house(run_id, None, resumed_by)
            except anyio.get_cancelled_exc_class():
                self.home.keeper.bring_up(run_id, program, resumed_by)
                raise
            except ShoalError:
                self.home.keeper.made_of.pop(run_id, None)
                raise

    async def change(self, run_id: str, program: Program) -> bool:
        """Have a run that is paused, or that nobody hosts, made of *program* from here on; say whether that differs.

        Raises:
            SpawnRefused, NotBuiltYet: It cannot go on with that; nothing was journaled.
            JournalFailed: The journal cannot be written.
        """
        at_home = self.home.keeper.made_of.get(run_id)
        if at_home is not None and at_home.function is not None:  # it is never laid down while it waits
            raise SpawnRefused(f"run {run_id} is an agentic function, which goes on with its own source; spawn another")
        async with self.home.keeper.laid_down(run_id):
            await self.journal.barrier()
            drafting, kept = Drafting(), self.home.keeper.made_of.get(run_id)

            def program_of(digest: str) -> Program:
                return program if digest == program.digest else self.programs.made(kept, digest)

            state = read_back(self.journal, run_id, program_of, partial(held, drafting.parts, self.journal.part))
            if kept is not None and state.phase != "paused":
                raise SpawnRefused(f"run {run_id} is at work here; pause it first, or end its process")
            changed = await change(self, state, program, drafting)
            if changed is None:
                return False
            changed.write(self)
            await self.journal.barrier()
            if kept is not None:
                self.home.keeper.made_of[run_id] = program
            return True

    async def fork(self, run_id: str, at: int | None, tools: Sequence[Tool]) -> str:
        """Copy the history of a run up to *at* into a new run, let that live here, and return its id.

        Raises:
            RunNotFound, JournalDamaged: See `plan_fork`.
            SpawnRefused: The same, or nobody here serves the stage that a copy goes on in; nothing was journaled.
            DefinitionMissing: What the run is made of cannot be had.
        """
        self._check_open()
        await self.journal.barrier()
        copies = plan_fork(self.journal, run_id, at, self.clock.new_id)
        programs = {copy.run_id: self.programs.defined(copy.made.definition, tools) for copy in copies}
        for copy in copies:
            if not copy.over:
                self.check_fit(copy.source, programs[copy.run_id], copy.made, copy.stage, tools)
        for copy in copies:
            for event in copy.events:
                self.journal.graft(event)
        await self.journal.barrier()
        # Children first: a parent that waits for one finds it at home.
        for copy in reversed(copies):
            await self.take_up(copy.run_id, programs[copy.run_id], "fork")
        for copy in copies:
            if copy.paused:
                await steer(self.home, copy.run_id, Resume())
        return copies[0].run_id

    async def _house_again(self, run_id: str) -> None:
        with suppress(AlreadyStarted):  # by a call that was cancelled before it knew
            await self._house(run_id, None, self.home.keeper.resumed_by(run_id))

    async def _house(self, run_id: str, fresh: RunState | None, resumed_by: str | None) -> None:
        first = [Begun(run_id, fresh, resumed_by)]

        def make() -> RunActor:
            begun = first.pop() if first else Begun(run_id)

            async def begin() -> Begun:
                return begun

            return RunActor(self, begin)

        spec = ChildSpec(
            run_id, make, restart="transient", shutdown_s=self.limits.shutdown_s, max_mail=self.limits.mailbox
        )
        await self.runs.start_child(spec)

    def supervised(self, event: SupervisionEvent) -> None:
        """Take note of what a supervisor did."""
        if event.kind == "restarting":
            self.restarts[event.supervisor] += 1

    async def spawn_child(self, parent: str, wanted: ChildRequest) -> str:
        """Start a child of *parent* and return its id."""
        return await spawn_child(self, parent, wanted)
