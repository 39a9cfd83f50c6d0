"""What runs live in: the services they share, the register of those that live here, and how children find parents.

One hall serves one swarm. It is both sides of a run's world: the `Host` whose services a run uses, and the `Home` that
knows where each run stands.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, final

import anyio
from msgspec.structs import replace

from shoal.actors import ChildSpec, DynamicSupervisor, SupervisionEvent
from shoal.blueprints import (
    Blueprint,
    ChildSupervision,
    Lanes,
    ModelSettings,
    Stage,
    load,
    refuse_unusable,
    resolve,
    stage_tools,
)
from shoal.errors import (
    DefinitionMissing,
    JournalDamaged,
    JournalFailed,
    RunNotFound,
    ShoalError,
    SpawnRefused,
)
from shoal.errors import RunEnded as RunIsOver
from shoal.providers import Breaker, Provider, ReasoningDelta, RetryPolicy, TextDelta
from shoal.runtime import _threads
from shoal.runtime._budget import Purses
from shoal.runtime._bundle import Bundle, bundle_of, read_definition
from shoal.runtime._change import change
from shoal.runtime._clock import Clock
from shoal.runtime._control import Cancel, Command, Pause, Reach, Resume, steer
from shoal.runtime._fork import plan_fork
from shoal.runtime._function import AgenticCall, AgenticFunction, find
from shoal.runtime._host import ChildRequest, Serving, Traced
from shoal.runtime._keeper import Keeper
from shoal.runtime._keys import Keys
from shoal.runtime._lanes import WIDTHS, Job, LaneDesk
from shoal.runtime._limits import Limits
from shoal.runtime._live import Live
from shoal.runtime._mcp import Connections, McpServer
from shoal.runtime._mending import UNREADABLE, cancel_strays, mended
from shoal.runtime._pools import Pools
from shoal.runtime._program import Program, recorded, shipped_names, warn_of_schemas
from shoal.runtime._resuming import open_runs
from shoal.runtime._run import Begun, RunActor
from shoal.runtime._running import entered
from shoal.runtime._script_tools import signature
from shoal.runtime._secrets import Secrets
from shoal.runtime._seed_files import OWN_FOLDER
from shoal.runtime._seeds import callers_of
from shoal.runtime._serving import Servants
from shoal.runtime._side import condensed
from shoal.runtime._spawn import Birth, Drafting, conceive, give_birth, part_of
from shoal.runtime._standings import Standing, Standings
from shoal.runtime._transforms import as_seeds, carried
from shoal.runtime.context import AGENTIC, SHIPPED, Components
from shoal.runtime.events import (
    BudgetReached,
    ChildEnded,
    ChildSpawned,
    Event,
    FrameEntered,
    Lane,
    RestartRule,
    RunEnded,
    RunSpawned,
)
from shoal.runtime.journal import Journal
from shoal.runtime.scripts import MARK, Functions, Sandbox
from shoal.runtime.state import RunState
from shoal.runtime.tools import Memory, Permissions, Shell, Tool

Watcher = Callable[[TextDelta], None]
_READY = 256
"""Definitions that are kept ready to run; the one that was used longest ago goes first."""
_K = TypeVar("_K")
_V = TypeVar("_V")


@final
class _Recent(Generic[_K, _V]):
    """The values that were used last, by key."""

    def __init__(self) -> None:
        self._values: dict[_K, _V] = {}

    def get(self, key: _K, make: Callable[[], _V]) -> _V:
        """Return the value of *key*, made where it is not kept."""
        value = self._values.pop(key) if key in self._values else make()
        self._values[key] = value
        if len(self._values) > _READY:
            del self._values[next(iter(self._values))]
        return value


_WITHIN_S = 5.0
"""Window of a child's restart budget where its stage names none: OTP's default."""
_FOR_EVER_S = 1e12


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
        self.secrets = Secrets()
        """Says which span a request belongs to; `None` where nobody is to know."""
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
        self.functions: dict[str, AgenticFunction[..., Any]] = {}
        """Agentic functions that were given in code, by qualified name; others are imported."""
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
        self._ready: _Recent[tuple[object, ...], tuple[object, Program]] = _Recent()
        self._files: dict[tuple[object, ...], Bundle] = {}
        self._adopted: _Recent[tuple[object, ...], Bundle] = _Recent()
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

    # --- definitions

    def bundle(self, name: str | Path, base: Path | None = None) -> Bundle:
        """Return the blueprint called *name* with its workers; a file that did not change is read once.

        Raises:
            BlueprintError: It cannot be found or loaded.
        """
        path = resolve(name, base=base)
        file = path / "blueprint.toml" if path.is_dir() else path
        if not file.exists():
            file = path / "agent.leviath"
        known = file.stat() if file.exists() else None
        key = (path, known.st_mtime_ns, known.st_size, signature(file.parent)) if known is not None else None
        bundle = self._files.get(key) if key is not None else None
        if bundle is None:
            bundle = bundle_of(load(path), self._load)
            if key is not None:
                self._files[key] = bundle
        return bundle

    def _load(self, name: str, base: Path | None) -> Blueprint:
        return load(resolve(name, base=base))

    async def program(self, bundle: Bundle, tools: Sequence[Tool] = ()) -> Program:
        """Return *bundle* made ready to run; runs of one bundle with the same tools share it.

        Raises:
            SpawnRefused: It lists tools that nobody has, or a server of tools cannot be reached.
        """
        needs = len(self.connections) or any(stage.available_connectors for stage in bundle.blueprint.stages)
        connected = await self.connections.tools_for(bundle, tools) if needs else ()
        key = (id(bundle), *map(id, tools), *map(id, connected))
        # What the key names is kept with the program: while that lives, its ids name nothing else.
        return self._ready.get(key, lambda: ((bundle, tools, connected), self._composed(bundle, tools, connected)))[1]

    def _composed(self, bundle: Bundle, tools: Sequence[Tool], connected: Sequence[Tool]) -> Program:
        missing = [name for name in bundle.blueprint.components if name not in self.components]
        if missing:
            near = get_close_matches(missing[0], [each.name for each in self.components], n=1)
            hint = f"did you mean `{near[0]}`?" if near else "register it with `swarm.components.register(…)`"
            raise SpawnRefused(
                f"{bundle.blueprint.name!r} wants the component {missing[0]!r} in its prompts, and this swarm has none"
                f" of that name; {hint}"
            )
        used = self.components.used(bundle.blueprint.components)
        odd = [each.name for each in used if each.layer == "L2"]
        if odd and bundle.function is None:
            raise SpawnRefused(
                f"{bundle.blueprint.name!r} wants the component {odd[0]!r} in its prompts, which stands in calls of "
                "agentic functions only; take it out"
            )
        program = Program(bundle, tools, connected, self.components)
        warn_of_schemas((*connected, *(tool for tool, _ in program.shipped)))
        return program

    def adopt(self, blueprint: Blueprint) -> Bundle:
        """Return *blueprint*, built in Python, with its workers; the same object is looked at and made ready once.

        Raises:
            BlueprintInvalid: A name in it stands for nothing.
        """
        key = (id(blueprint), signature(blueprint.folder))
        return self._adopted.get(key, lambda: self._adopt(blueprint))

    def _adopt(self, blueprint: Blueprint) -> Bundle:
        refuse_unusable(blueprint)
        return bundle_of(blueprint, self._load)

    def enlist(self, function: AgenticFunction[..., Any]) -> Bundle:
        """Take note of *function*, and return what a run of it is made of."""
        source = function.source
        self.functions[source.qualname] = function
        known = [each.name for each in self.components]
        used = tuple([name for name in known if name in AGENTIC or name not in SHIPPED])
        key = (source, function.name, function.job, used)
        return self._adopted.get(key, lambda: Bundle(_blueprint_of(function, used), function=source))

    def function(self, qualname: str) -> AgenticFunction[..., Any]:
        """Return the agentic function of a qualified name: as it was given in code, else imported.

        Raises:
            DefinitionMissing: It cannot be had.
        """
        return self.functions.get(qualname) or find(qualname)

    def check_function(self, program: Program) -> None:
        """See that the agentic function that a run of *program* is, if it is one, is here; a changed one is named.

        Raises:
            DefinitionMissing: It is not; it is named.
        """
        was = program.function
        if was is not None and self.function(was.qualname).source.digest != was.digest:
            said = f"the agentic function {was.qualname!r} is not what it was when the run began"
            warnings.warn(said, RuntimeWarning, stacklevel=3)

    def defined(self, digest: str, tools: Sequence[Tool] = ()) -> Program:
        """Return what the journal holds under *digest*, made ready to run.

        Raises:
            DefinitionMissing: It is not there, or needs functions that were not given again.
        """
        key = (digest, *map(id, tools))
        return self._ready.get(key, lambda: (tools, self._recorded(digest, tools)))[1]

    def _recorded(self, digest: str, tools: Sequence[Tool]) -> Program:
        bundle, given = read_definition(self.journal.definition(digest))
        at_hand = {tool.name: tool for tool in tools}
        connected = [self.connections.recorded(tool) for tool in given if tool.get("connector")]
        given = [tool for tool in given if not tool.get("connector")]
        missing = [str(tool["name"]) for tool in given if tool["name"] not in at_hand]
        if missing:
            listed = ", ".join(f"`{name}`" for name in missing)
            raise DefinitionMissing(f"this run has the functions {listed} as tools; give them again with `tools=[…]`")
        missing = [name for name in bundle.blueprint.components if name not in self.components]
        if missing:
            raise DefinitionMissing(
                f"this run has the component {missing[0]!r} in its prompts; register it again with `swarm.components`"
            )
        functions = [at_hand[str(tool["name"])] for tool in given]
        return Program(bundle, functions, connected, self.components, recorded_as=digest)

    def check_functions(self, spawned: RunSpawned, tools: Sequence[Tool]) -> None:
        """See that the functions that stand in the place of a run's scripts are here; a changed one is named.

        Functions that it has as *tools* are named too, where their source is not what it was.

        Raises:
            DefinitionMissing: One is not; it is named.
        """
        here_now = {tool.name: tool.source for tool in tools}
        for was in spawned.tools:
            now = here_now.get(was.name)
            if now is not None and now[1] != was.digest:
                said = f"the function {was.name!r}, a tool of this run, is not what it was when the run began"
                warnings.warn(said, RuntimeWarning, stacklevel=3)
        for path, digest in spawned.scripts:
            kept = self.journal.definition(digest).decode()
            if not kept.startswith(MARK):
                continue
            name = path.removeprefix(OWN_FOLDER)
            here = self.sandbox.trusted(name)
            if here is None:
                raise DefinitionMissing(
                    f"this run has functions in the place of the script {name!r}; give them again with `scripts={{…}}`"
                )
            if here.digest != digest:
                said = f"the functions in the place of the script {name!r} are not what they were when the run began"
                warnings.warn(said, RuntimeWarning, stacklevel=3)

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
                return program if digest == program.digest else self._made(kept, digest)

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
        programs = {copy.run_id: self.defined(copy.made.definition, tools) for copy in copies}
        for copy in copies:
            self.check_functions(copy.made, tools)
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
        return self._read_back(run_id, partial(self._made, self.keeper.made_of.get(run_id)), self.journal.part)

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

    def _made(self, kept: Program | None, digest: str) -> Program:
        """Return what *digest* stands for in the history of a run that is made of *kept* by now."""
        if kept is None:
            return self._looked_at(digest)
        return kept if digest in (kept.digest, kept.recorded_as) else self._before(kept, digest)

    def _before(self, kept: Program, digest: str) -> Program:
        try:
            return self.defined(digest, kept.given)
        except DefinitionMissing:  # it had functions that are not needed any more
            return self._looked_at(digest)

    def mended(self, run_id: str, damage: JournalDamaged) -> RunState:
        """Return the state of a run up to where its record is damaged; see `mended`."""
        return mended(self, run_id, damage)

    async def cancel_strays(self, state: RunState) -> None:
        """Cancel the children of a run whose record was mended that it knows nothing of."""
        await cancel_strays(self, state)

    def _looked_at(self, digest: str) -> Program:
        def make() -> tuple[object, Program]:
            return None, recorded(self.journal.definition(digest), self.components)

        return self._ready.get(("looked at", digest), make)[1]

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
        live = await self._parent(parent)
        made = live.state.made_by
        if made.children_deeper < 1:
            raise SpawnRefused(
                f"{_called(wanted.blueprint)!r} would stand at depth {made.depth + 1} and this run may have no "
                "children; raise `max_child_depth`"
            )
        run_id = self.clock.new_id()
        program = live.state.program if wanted.stage is not None else await self._child_program(live, wanted)
        allowed = (made.children_deeper - 1, program.blueprint.max_child_depth, wanted.most_depth)
        takes = callers_of(program.regions)
        offered = {name: text for name, text in wanted.offered.items() if name in takes}
        carries = carried(live.state, program.blueprint, program.regions)
        ready = [
            replace(each, text=await condensed(live, each.source, each.text)) if each.summarize else each
            for each in carries
        ]
        if live.state.ended is not None:  # while its region was summarised
            raise RunIsOver(f"run {parent} is over; it can have no more children", run_id=parent)
        given, carried_over = as_seeds(ready, program.regions)
        birth = Birth(
            run_id,
            program,
            wanted.task,
            {**given, **offered, **wanted.seeds},
            live.context.workdir,
            wanted.stage,
            parent,
            made.root,
            made.depth + 1,
            min(levels for levels in allowed if levels is not None),
            wanted.item,
            wanted.waited,
            made.unattended or isinstance(wanted.blueprint, AgenticCall),
            None,
            made.model,
            live.context.hidden_dir,
            detached=wanted.detached,
            output_format=wanted.output_format,
            output_instructions=wanted.output_instructions,
            carried=carried_over,
            budgets=() if wanted.detached else made.budgets,
            restarts=_rule_of(live.state.stage.stage.supervision) if wanted.source else None,
            entered=_entered(wanted.blueprint),
            default_model=made.default_model,
        )
        spawned = ChildSpawned(
            run_id,
            program.blueprint.name,
            wanted.source,
            wanted.index,
            wanted.item,
            wanted.waited,
            wanted.detached,
        )

        def announce() -> None:
            if wanted.step is not None:
                live.emit(wanted.step)
            live.emit(spawned)

        await self.begin(birth, announce)
        return run_id

    async def _parent(self, run_id: str) -> Live:
        """Return a run that is to have a child, brought back where it sleeps.

        Raises:
            RunEnded: It is over.
            RunNotFound: It does not live here.
        """
        await self.keeper.awake(run_id)
        live = self.live.get(run_id)
        if live is not None and not live.over:
            return live
        row = self.journal.find(run_id)
        if row.ended or live is not None:
            raise RunIsOver(f"run {run_id} is over; it can have no more children", run_id=run_id)
        raise RunNotFound(f"run {run_id} does not live here; take it up with `shoal resume {run_id}`", run_id=run_id)

    async def _child_program(self, live: Live, wanted: ChildRequest) -> Program:
        bundle = self._child_bundle(live, wanted)
        return await self.program(bundle, (*wanted.tools, *self._passed_on(live.run_id, bundle, wanted.tools)))

    def _child_bundle(self, live: Live, wanted: ChildRequest) -> Bundle:
        if isinstance(wanted.blueprint, AgenticCall):
            return self.enlist(wanted.blueprint.function)
        if isinstance(wanted.blueprint, Blueprint):
            return self.adopt(wanted.blueprint)
        given = live.state.program.bundle.workers.get(str(wanted.blueprint))
        if given is not None:
            return given
        path = resolve(wanted.blueprint, base=live.state.program.blueprint.folder)
        workdir = live.context.workdir
        if wanted.by_model and (path.resolve() == workdir or workdir in path.resolve().parents):
            raise SpawnRefused(
                f"{_called(wanted.blueprint)!r} lies in the run's working directory; a model may not run what it could "
                "write"
            )
        return self.bundle(path)

    def _passed_on(self, parent: str, bundle: Bundle, given: Sequence[Tool]) -> Iterator[Tool]:
        """Yield the functions that code gave to *parent* or a run above it, as far as *bundle* lists them by name.

        What comes with the child itself, in code or as a script of its own, goes before them.
        """
        listed = {name for stage in bundle.blueprint.stages for name in stage_tools(stage)}
        found = {tool.name: tool for tool in self._given_above(parent) if tool.name in listed}
        if found:  # the scripts are read only where there is something to be passed on
            own = {tool.name for tool in given} | shipped_names(bundle.tools)
            yield from (tool for name, tool in found.items() if name not in own)

    def _given_above(self, run_id: str) -> Iterator[Tool]:
        """Yield the functions that code gave to the runs above *run_id* and to itself, the root's first."""
        live = self.live.get(run_id)
        parent = self.journal.find(run_id).parent if live is None else live.state.made_by.parent
        if parent is not None:
            yield from self._given_above(parent)
        program = self.keeper.made_of.get(run_id)
        yield from () if program is None else program.given

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


def _blueprint_of(function: AgenticFunction[..., Any], components: tuple[str, ...]) -> Blueprint:
    """Return the blueprint that stands for *function*: one stage, which the function walks in its place."""
    return Blueprint(
        function.name, (Stage(function.name, transitions=()),), description=function.job, components=components
    )


def _entered(blueprint: str | Path | Blueprint | AgenticCall[Any]) -> FrameEntered | None:
    return entered(blueprint.function, blueprint.arguments) if isinstance(blueprint, AgenticCall) else None


def _called(blueprint: str | Path | Blueprint | AgenticCall[Any]) -> str:
    if isinstance(blueprint, AgenticCall):
        return blueprint.function.name
    return blueprint.name if isinstance(blueprint, Blueprint) else str(blueprint)


def _rule_of(supervision: ChildSupervision) -> RestartRule | None:
    """Return how often the children of a stage may crash; one that is over is never started again."""
    if supervision.restart == "temporary":
        return RestartRule(0, _FOR_EVER_S)
    if supervision.max_restarts is None:
        return None
    return RestartRule(supervision.max_restarts, supervision.within_s or _WITHIN_S)
