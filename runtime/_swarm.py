"""The swarm: the way in for users.

It is long because most of it is what is promised to them; how that is kept stands in the modules that it calls.
"""

from __future__ import annotations

import functools
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Container,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar, overload

import anyio
import anyio.to_thread

from shoal.actors import DynamicSupervisor, SupervisionEvent, Supervisor, running
from shoal.blueprints import Blueprint, Lanes
from shoal.errors import ConfigInvalid, PartMissing, RunNotFound
from shoal.providers import Provider, RetryPolicy, TextDelta
from shoal.runtime._accounts import account_of
from shoal.runtime._attachment import Attachable, SeedValue, attachments, prepared
from shoal.runtime._births import birth_of, child_of, program_of
from shoal.runtime._children import spawn_children
from shoal.runtime._clock import Clock
from shoal.runtime._control import Answer, Cancel, Command, Pause, Resume, Send, SetTimer, steer
from shoal.runtime._function import AgenticCall, AgenticFunction
from shoal.runtime._gear import Gear
from shoal.runtime._hall import Hall
from shoal.runtime._handle import Outcome, Run
from shoal.runtime._host import Traced
from shoal.runtime._keys import newest_at
from shoal.runtime._limits import Limits
from shoal.runtime._live import Late
from shoal.runtime._mcp import McpServer
from shoal.runtime._orders import GivenTool, SpawnRequest, budget_of
from shoal.runtime._people import Question, asked_below, questions_of
from shoal.runtime._resuming import resume_tree
from shoal.runtime._root import Root, rooted
from shoal.runtime._secrets import Secrets
from shoal.runtime._spawn import Announced, Birth
from shoal.runtime._spawning import given_again, spawned
from shoal.runtime._started import Started
from shoal.runtime._statistics import SwarmStatistics, statistics_of
from shoal.runtime._trees import HALL
from shoal.runtime.context import SHIPPED, Components, ContextComponent
from shoal.runtime.events import BudgetGiven, Event
from shoal.runtime.journal import Journal, MemoryJournal, Observer, RunRow, RunStatus
from shoal.runtime.ledger import Ledger
from shoal.runtime.scripts import Functions
from shoal.runtime.state import RunState
from shoal.runtime.tools import FolderMemory, Memory, Permissions

T = TypeVar("T")
Standing: TypeAlias = RunStatus | Literal["interrupted"]
"""Where a run stands."""

_NOT_OPEN = "this swarm is not open; use it inside `async with Swarm(…) as swarm:`"
MOST_JITTER = 0.25
"""Share of a wait between attempts that is added to it at most, unless a swarm is given a policy of its own."""


class Swarm:
    """Runs agents: `async with Swarm([provider]) as swarm: run = await swarm.spawn("digest", task="…")`.

    Leaving the block stops what still runs; such runs stay in the journal and can be resumed.

    Args:
        providers: Who serves models, 1 or more; the first serves stages that name nobody.
        journal: Where events are kept; `None` keeps them in memory.
        observers: Each gets every event once it is durable.
        limits: What runs may do at most.
        permissions: What the user allows.
        retry: How often a request is repeated; `None` for a policy that adds up to a quarter to each wait, at random.
        pools: Most requests in flight by provider's name, or by `provider:model`, and `tools`.
        clock: Time and randomness.
        mcp: MCP servers whose tools runs may use; each is started or reached when a run needs it.
        services: Workers that live as long as the swarm, by name.
        beside: Workers that run beside the lanes and, like them, may fail without hurting a run, by name.
        scripts: Trusted functions in the place of scripts: by the path that a blueprint names, functions by name.
        components: What may stand in prompts beside regions, besides what ships; one of a shipped name takes its place.
        memory: What agents remember from run to run: a folder of Markdown files, or a memory of your own; `None` for
            nothing.
        lanes: How lanes serve runs whose blueprint says nothing else; `None` for what ships.
        default_model: What the user prefers, as `provider` or `provider:model`: it serves stages that name no model,
            and leads the lists that have it, where they let it (`allow_user_default`). `None` for the first provider
            and for lists as they stand.
        traced: Says which span a request belongs to, by run, root, seq and model; `None` says it of none.
        secrets: Values, by name, that are struck out of what tools, people, seeds and models say before an event is
            made of it, and so stand in no journal, prompt, log or span.

    Raises:
        ConfigInvalid: Two components have one name, one would move to another layer, the memory cannot be a folder, or
            a secret has less than 8 characters.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        journal: Journal | None = None,
        observers: Sequence[Observer] = (),
        *,
        limits: Limits | None = None,
        permissions: Permissions | None = None,
        retry: RetryPolicy | None = None,
        pools: Mapping[str, int] | None = None,
        clock: Clock | None = None,
        mcp: Sequence[McpServer] = (),
        services: Mapping[str, Callable[[], Awaitable[object]]] | None = None,
        beside: Mapping[str, Callable[[], Awaitable[object]]] | None = None,
        scripts: Mapping[str, Functions] | None = None,
        components: Sequence[ContextComponent] = (),
        memory: str | os.PathLike[str] | Memory | None = None,
        lanes: Lanes | None = None,
        default_model: str | None = None,
        traced: Traced | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._limits = limits or Limits()
        self._observers = tuple(observers)
        self._services = dict(services or {})
        self._beside = dict(beside or {})
        self.journal: Journal = journal or MemoryJournal()
        self.components = _components(components)
        """What may stand in prompts beside regions; change it before the runs that use it begin."""
        self._gear = Gear(
            providers=tuple(providers),
            clock=self._clock,
            limits=self._limits,
            permissions=permissions or Permissions(),
            # Runs that one failure hit together come back one by one.
            retry=retry or RetryPolicy(jitter=lambda: self._clock.random.uniform(0.0, MOST_JITTER)),
            pools=dict(pools or {}),
            scripts=dict(scripts or {}),
            mcp=tuple(mcp),
            components=self.components,
            memory=FolderMemory(memory) if isinstance(memory, str | os.PathLike) else memory,
            lanes=lanes or Lanes(),
            default_model=default_model,
            traced=traced,
            secrets=Secrets(secrets),
        )
        self._stack = AsyncExitStack()
        self._hall: Hall | None = None
        self._root: Root | None = None
        self._last: SwarmStatistics | None = None

    def __repr__(self) -> str:
        return f"<Swarm {'closed' if self._hall is None else repr(self._hall)}>"

    # --- opening and closing

    def _check_closed(self) -> None:
        if self._hall is not None:
            raise ConfigInvalid("this swarm is open already; leave its block before it is opened again")

    async def __aenter__(self) -> Self:
        self._check_closed()
        hall = Hall(self.journal, self._gear)
        root = rooted(hall, self._services, self._beside)
        self.journal.observers.extend(self._observers)
        async with AsyncExitStack() as opening:  # what is cancelled while it opens, or cannot, leaves nothing open
            opening.push_async_callback(self._close_providers)
            opening.callback(hall.sandbox.close)
            opening.callback(self._detach)
            opening.callback(hall.home.close)  # before the journal closes, and once nothing can be added to it
            # Children of trees that users start find their swarm by it: the tasks of the root run in this context.
            token = HALL.set(hall)
            try:
                await opening.enter_async_context(running(root.tree, observer=root.observe))
            finally:
                HALL.reset(token)
            root.started.body = opening.enter_context(anyio.CancelScope())
            self._stack = opening.pop_all()
        self._hall, self._root = hall, root
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._hall is not None:
            self._hall.closing = True
        try:
            swallowed = await self._stack.__aexit__(kind, error, trace)
        finally:
            if self._hall is not None:
                self._last = statistics_of(self._hall)
            hall, self._hall = self._hall, None
        if self._root is not None and self._root.started.gave_up is not None:
            raise self._root.started.gave_up
        if hall is not None:
            await hall.home.keeper.give_back()
        return swallowed

    def _detach(self) -> None:
        for observer in self._observers:
            self.journal.observers.remove(observer)

    async def _close_providers(self) -> None:
        for provider in self._gear.providers:
            await provider.aclose()

    @property
    def hall(self) -> Hall:
        """What its runs live in.

        Raises:
            RunNotFound: The swarm is not open.
        """
        if self._hall is None:
            raise RunNotFound(_NOT_OPEN)
        return self._hall

    @property
    def tree(self) -> Supervisor:
        """The supervisors of the swarm; `tree.render()` draws them."""
        return self._rooted.tree

    @property
    def side(self) -> Supervisor:
        """What works beside the runs: each lane under its name, and further observers."""
        return self._rooted.side

    @property
    def _rooted(self) -> Root:
        if self._root is None:
            raise RunNotFound(_NOT_OPEN)
        return self._root

    @property
    def healthy(self) -> bool:
        """The journal can write, a provider can be asked, and neither the root nor a started tree has given up."""
        hall = self._hall
        if hall is None or self.tree.status != "running":
            return False
        return self._rooted.started.healthy and self.journal.healthy and hall.servants.healthy

    def statistics(self) -> SwarmStatistics:
        """Return how busy the swarm is: runs by agent and state, pools (also `tools`), lanes, restarts.

        Of one that was closed it is what it was at the end: who measures asks once more then.
        """
        if self._hall is None and self._last is not None:
            return self._last
        return statistics_of(self.hall)

    def budget_of(self, run_id: str, region: str) -> int | None:
        """Return the budget of a region of a run that lives here, in tokens; `None` where that is not known."""
        live = None if self._hall is None else self._hall.home.live.get(run_id)
        held = None if live is None else live.state.view.states.get(region)
        return None if held is None else held.limits.budget

    async def start(
        self,
        tree: Supervisor | DynamicSupervisor,
        *,
        critical: bool = True,
        observer: Callable[[SupervisionEvent], None] | None = None,
    ) -> Started:
        """Start a tree of agents and workers beside the runs; returns when all of it is up.

        Args:
            tree: The tree; see `shoal.agent` for children that are runs.
            critical: Where it gives up, the swarm's block is cancelled, and leaving it raises `RestartsExhausted`.
            observer: Called with each start, end and restart in it. It must not raise: its error ends the swarm.

        Raises:
            StartFailed: A child did not come up; those before it were stopped.
        """
        return await self._rooted.started.start(tree, critical=critical, observer=observer)

    # --- runs

    @overload
    async def spawn(
        self,
        blueprint: str | Path | Blueprint,
        *,
        task: str | None = None,
        seeds: Mapping[str, SeedValue] | None = None,
        tools: Sequence[GivenTool] = (),
        workdir: str | Path = ".",
        model: str | None = None,
        unattended: bool = True,
        output_dir: str | Path | None = None,
        trace: str | None = None,
        key: str | None = None,
        output_format: str | None = None,
        output_instructions: str | None = None,
        budget: BudgetGiven | None = None,
        returns: None = None,
    ) -> Run: ...

    @overload
    async def spawn(
        self,
        blueprint: str | Path | Blueprint,
        *,
        task: str | None = None,
        seeds: Mapping[str, SeedValue] | None = None,
        tools: Sequence[GivenTool] = (),
        workdir: str | Path = ".",
        model: str | None = None,
        unattended: bool = True,
        output_dir: str | Path | None = None,
        trace: str | None = None,
        key: str | None = None,
        output_format: str | None = None,
        output_instructions: str | None = None,
        budget: BudgetGiven | None = None,
        returns: type[T],
    ) -> Run[T]: ...

    @overload
    async def spawn(
        self,
        blueprint: AgenticCall[T],
        *,
        workdir: str | Path = ".",
        model: str | None = None,
        output_dir: str | Path | None = None,
        trace: str | None = None,
        key: str | None = None,
        budget: BudgetGiven | None = None,
    ) -> Run[T]: ...

    async def spawn(
        self,
        blueprint: str | Path | Blueprint | AgenticCall[Any],
        *,
        task: str | None = None,
        seeds: Mapping[str, SeedValue] | None = None,
        tools: Sequence[GivenTool] = (),
        workdir: str | Path = ".",
        model: str | None = None,
        unattended: bool = True,
        output_dir: str | Path | None = None,
        trace: str | None = None,
        key: str | None = None,
        output_format: str | None = None,
        output_instructions: str | None = None,
        budget: BudgetGiven | None = None,
        returns: type[Any] | None = None,
    ) -> Run[Any]:
        """Start a run of *blueprint* and return its handle; everything that can be refused is refused here.

        Args:
            blueprint: A name of the library, a path, a `Blueprint`, or an agentic function with its arguments
                (`bound`), which says itself what it is given, which tools it has, and what it returns.
            task: Its task; `None` for none.
            seeds: Values by name for the regions that take a caller's value. The run sees nothing else of its caller.
            tools: Functions that it may call; stages that list them see them, and all stages do if none lists them.
            workdir: Its working directory: what its tools and seeds may read.
            model: `provider:model` that replaces every stage's.
            unattended: Nobody is there to ask.
            output_dir: A folder that listings of the working directory leave out.
            trace: A W3C `traceparent` whose trace the run joins.
            key: A second spawn under the same key returns the same run, in a later process too; where no process hosts
                it any more, it goes on here.
            output_format: How the answer is to be written, such as `markdown`; `None` for what its blueprint says.
            output_instructions: What the answer is to look like; `None` for what its blueprint says.
            budget: Limits for it and everything below it, in place of its blueprint's; `None` leaves those.
            returns: The type that the answer is to have, anything pydantic can validate: its model is shown the JSON
                schema, and the outcome's output is a value of that type. `None` for text.

        Raises:
            BlueprintInvalid: It cannot be loaded.
            SpawnRefused, NotBuiltYet: It cannot run; nothing was journaled.
            ConfigInvalid: A limit of the budget is none.
            DefinitionMissing: The run that there is under the key goes on, and a function that it needs is not given.
            JournalFailed: The journal cannot be written.
        """
        wanted = SpawnRequest(
            blueprint,
            task=task,
            seeds=seeds or {},
            tools=tools,
            workdir=workdir,
            model=model,
            unattended=unattended,
            output_dir=output_dir,
            trace=trace,
            key=key,
            output_format=output_format,
            output_instructions=output_instructions,
            returns=returns,
            budget=budget,
        )
        [run] = await self.spawn_many([wanted])
        return run

    async def spawn_many(self, requests: Iterable[SpawnRequest[T]]) -> list[Run[T]]:
        """Start runs, all or none, and return their handles in the same order; one transaction journals them all.

        Args:
            requests: The runs. Those with a key that has a run already get that run; where no process hosts it any
                more, it goes on here.

        Raises:
            BlueprintInvalid: One cannot be loaded.
            SpawnRefused, NotBuiltYet: One cannot run, or two have the same key; nothing was journaled.
            JournalFailed: The journal cannot be written.
        """

        async def begin(fresh: Mapping[str, SpawnRequest[T]]) -> Sequence[str]:
            births = [await self._birth(wanted, run_id) for run_id, wanted in fresh.items()]
            await self.hall.begin([Announced(birth) for birth in births])
            return [birth.program.blueprint.name for birth in births]

        return await self._spawned(list(requests), begin)

    async def spawn_children(
        self,
        parent: str,
        requests: Sequence[SpawnRequest[T]],
        *,
        detached: bool = False,
        max_child_depth: int | None = None,
    ) -> list[Run[T]]:
        """Start children of the run *parent*, all or none; see `Run.spawn` and `Run.spawn_many`."""

        async def begin(fresh: Mapping[str, SpawnRequest[T]]) -> Sequence[str]:
            wanted = {
                run_id: child_of(each, detached=detached, most_depth=max_child_depth) for run_id, each in fresh.items()
            }
            while True:
                with suppress(Late):  # this life of the parent was over before it was told: nothing was journaled
                    return await spawn_children(self.hall, parent, wanted)

        return await self._spawned(list(requests), begin)

    async def _spawned(
        self,
        requests: Sequence[SpawnRequest[T]],
        begin: Callable[[Mapping[str, SpawnRequest[T]]], Awaitable[Sequence[str]]],
    ) -> list[Run[T]]:
        runs = await spawned(self.hall, requests, begin)
        return [Run(self, run_id, name, _type_of(each)) for (run_id, name), each in zip(runs, requests, strict=True)]

    def _completed(self, wanted: SpawnRequest[Any]) -> SpawnRequest[Any]:
        """Return *wanted* with what the front door knows of it besides."""
        return wanted

    async def _birth(self, request: SpawnRequest[Any], run_id: str) -> Birth:
        wanted = self._completed(request)
        program = await program_of(self.hall.programs, wanted)
        return birth_of(wanted, program, run_id, limits=self._limits, default_model=self._gear.default_model)

    @overload
    def get(self, run_id: str, *, returns: None = None) -> Run: ...

    @overload
    def get(self, run_id: str, *, returns: type[T]) -> Run[T]: ...

    def get(self, run_id: str, *, returns: type[Any] | None = None) -> Run[Any]:
        """Return the run whose id is, or begins with, *run_id*.

        Args:
            run_id: The run.
            returns: The type that its spawn asked for; `None` for text.

        Raises:
            RunNotFound: The journal holds no such run, or several.
        """
        row = self.journal.find(run_id)
        return Run(self, row.run_id, row.name, returns)

    @overload
    def run_of(self, place: str, *, returns: None = None) -> Run: ...

    @overload
    def run_of(self, place: str, *, returns: type[T]) -> Run[T]: ...

    def run_of(self, place: str, *, returns: type[Any] | None = None) -> Run[Any]:
        """Return the newest run of an agent in a tree.

        Args:
            place: The tree's name and the ids down to the agent, such as `newsroom/reporters/harbour`.
            returns: The type that its answer has; `None` for text.

        Raises:
            RunNotFound: No agent had a run there; the message lists where some had.
        """
        row = newest_at(self.journal, place)
        return Run(self, row.run_id, row.name, returns)

    def runs(
        self,
        *,
        status: Standing | Collection[Standing] | None = None,
        name: str | None = None,
        root: str | None = None,
    ) -> Sequence[Run]:
        """Return runs of the journal, in the order in which they were spawned.

        Args:
            status: Only those that stand there, or at one of those, `interrupted` for those that are not over and that
                no process hosts; `None` for any.
            name: Only those of the blueprint of that name; `None` for any.
            root: Only this run and what is below it, to the id of a root; `None` for all trees.
        """
        wanted = (status,) if isinstance(status, str) else status
        others = self._others()  # before the register is read
        return [
            Run(self, row.run_id, row.name)
            for row in self.journal.runs(root=root)
            if name in (None, row.name) and (wanted is None or self._standing(row, others) in wanted)
        ]

    def row(self, run_id: str) -> RunRow:
        """Return what the journal's register says of a run."""
        return self.journal.find(run_id)

    def status(self, run_id: str) -> Standing:
        """Return where a run stands; see `Run.status`."""
        return self._standing(self.journal.find(run_id))

    def _standing(self, row: RunRow, others: Callable[[], Container[str | None]] | None = None) -> Standing:
        return "interrupted" if self._hall is not None and self._hall.home.adrift(row, others) else row.status

    def _others(self) -> Callable[[], Container[str | None]] | None:
        """Return what tells, once, of the other processes that live now or when it is asked."""
        if self._hall is None:
            return None
        home = self._hall.home
        before = home.others()
        return functools.cache(lambda: before | home.others())

    def state(self, run_id: str) -> RunState:
        """Return the state of a run: the live one, or what its journal adds up to."""
        return self.hall.home.state(run_id)

    def ledger(self, run_id: str | None = None) -> Ledger:
        """Return what all runs used, or the tree of one run."""
        root = None if run_id is None else self.journal.find(run_id).root
        return account_of(self.journal, (row.run_id for row in self.journal.runs(root=root)))

    @overload
    async def resume_tree(
        self,
        run_id: str,
        *,
        tools: Sequence[GivenTool | AgenticFunction[..., Any]] = (),
        budget: BudgetGiven | None = None,
        blueprint: str | Path | Blueprint | None = None,
        returns: None = None,
    ) -> Run[Any]: ...

    @overload
    async def resume_tree(
        self,
        run_id: str,
        *,
        tools: Sequence[GivenTool | AgenticFunction[..., Any]] = (),
        budget: BudgetGiven | None = None,
        blueprint: str | Path | Blueprint | None = None,
        returns: type[T],
    ) -> Run[T]: ...

    async def resume_tree(
        self,
        run_id: str,
        *,
        tools: Sequence[GivenTool | AgenticFunction[..., Any]] = (),
        budget: BudgetGiven | None = None,
        blueprint: str | Path | Blueprint | None = None,
        returns: type[Any] | None = None,
    ) -> Run[Any]:
        """Take up a run of the journal that was interrupted or is paused, with everything of its tree that is not over.

        Args:
            run_id: The run; the whole tree it belongs to is taken up.
            tools: The functions that it was given as tools.
            budget: Limits of the run in place of those that it has, where it is paused; `None` leaves them.
            blueprint: What the run goes on with: a name of the library, a path, or a `Blueprint`; `None` for what it is
                made of. What it did stays as it is, and so do the other runs of its tree. A run that lives here has
                to be paused.
            returns: The type that the spawn of a blueprint asked for; `None` for text. A function says its own.

        Raises:
            RunNotFound: The journal holds no such run.
            RunEnded: The tree is over, or the run that was to go on with a *blueprint*.
            SpawnRefused, NotBuiltYet: The run cannot go on with *blueprint*, or nobody here serves the stage that a run
                of the tree is in; nothing of it has moved.
            DefinitionMissing: What a run of the tree is made of cannot be had.
            JournalDamaged: The run, or one above it, cannot be read at all; any other that cannot ends `error`.
            RunOwned: Another process hosts it.
            ConfigInvalid: A limit of the budget is none.
        """
        row = self.journal.find(run_id)
        limits = budget_of(budget)
        function = await resume_tree(self.hall, row, given_again(self.hall, tools), budget=limits, blueprint=blueprint)
        return Run(self, row.run_id, row.name, returns or function)

    async def fork(
        self, run_id: str, *, at: int | None = None, tools: Sequence[GivenTool | AgenticFunction[..., Any]] = ()
    ) -> Run:
        """Copy the history of a run into a new one that goes on from there; the run itself is left as it is.

        The fork is made of what the run was made of, whatever became of its files since. It begins behind the last step
        that was whole at *at*; children that worked then are forked along, and what is copied is not billed again.

        Args:
            run_id: The run; it may live here or elsewhere, sleep, or be over.
            at: Seq of the last event that may count; `None` for the newest one, or the last request of a run that is
                over.
            tools: The functions that it was given as tools.

        Returns:
            The fork, the root of a tree of its own.

        Raises:
            RunNotFound: The journal has no such run, or the run no such event.
            SpawnRefused: Nobody here serves the stage that the fork, or a child of it, goes on in; nothing was made.
            DefinitionMissing: What the run is made of cannot be had.
            JournalDamaged: An event up to there cannot be read.
        """
        row = self.journal.find(run_id)
        return self.get(await self.hall.fork(row.run_id, at, given_again(self.hall, tools)))

    # --- steering

    async def send(
        self,
        run_id: str,
        text: str,
        *,
        region: str | None = None,
        sender: str = "user",
        parts: Sequence[Attachable] = (),
    ) -> None:
        """Send a run a message; returns once it is durable.

        Args:
            run_id: The run.
            text: What it says; may be empty where *parts* are not.
            region: The region that takes it; `None` for the conversation.
            sender: Who sends it: a run, or `user`.
            parts: Images, documents and other bytes that stand behind the text.

        Raises:
            RunEnded: It is over.
            RunNotFound: It does not live here.
            PartRefused: A part is too large.
            ConfigInvalid: What is given as a part is none, or the run has no such region.
        """
        hall = self.hall
        looked = await prepared(attachments(parts), self._limits.part_bytes, hall.threads)
        for part in looked:  # the bytes go ahead: whichever process hosts the run finds them in the journal
            self.journal.store(part.stored.digest, part.data)
        await self._steer(run_id, Send(text, sender, region, tuple([part.stored for part in looked])))

    async def part(self, run_id: str, name: str) -> bytes:
        """Return the bytes of a run's stored part; see `Run.part`.

        Raises:
            RunNotFound: The journal holds no such run.
            PartMissing: The run has no such part, or the journal does not hold its bytes any more.
        """
        shelf = self.state(self.journal.find(run_id).run_id).shelf
        seq = shelf.find(name)
        if seq is None:
            names = ", ".join(repr(stored.name) for stored in shelf.stored.values()) or "none"
            raise PartMissing(f"run {run_id} has no stored part {name!r}; its parts: {names}", run_id=run_id)
        digest = shelf.stored[seq].digest
        return await anyio.to_thread.run_sync(self.journal.part, digest, limiter=self.hall.threads)

    async def wake_at(
        self, run_id: str, at: float | datetime, text: str = "It is time.", *, region: str | None = None
    ) -> None:
        """Give a run a message at a time, however often its process dies until then; returns once that is durable.

        Args:
            run_id: The run.
            at: When: unix seconds, or a `datetime` with a time zone. A time that has passed is now.
            text: The message.
            region: The region that takes it; `None` for the conversation.

        Raises:
            ConfigInvalid: The `datetime` has no time zone, or the run has no such region.
            RunEnded: It is over.
            RunNotFound: There is no such run.
        """
        await self._steer(run_id, SetTimer(_unix(at), text, region))

    async def pause(self, run_id: str, reason: str = "paused by its user") -> None:
        """Let a run and everything below it finish what they are in the middle of, and wait."""
        await self._steer(run_id, Pause(reason))

    async def resume(self, run_id: str, *, budget: BudgetGiven | None = None) -> None:
        """Let a paused run and everything below it go on.

        Args:
            run_id: The run.
            budget: Limits in place of those that it has; `None` leaves them.

        Raises:
            ConfigInvalid: A limit of the budget is none.
        """
        await self._steer(run_id, Resume(self.journal.find(run_id).run_id, budget_of(budget)))

    async def cancel(self, run_id: str, reason: str = "cancelled by its user") -> None:
        """End a run and everything below it."""
        await self._steer(run_id, Cancel(reason))

    async def answer(self, run_id: str, text: str, *, question: int | None = None) -> None:
        """Answer what a run asks; returns once the answer is durable.

        Args:
            run_id: The run.
            text: The answer: one of the question's options (or its number, from 1), or any text where it has none.
            question: Number of the question; `None` for the only one that is open.

        Raises:
            AnswerRefused: The run asks no such question, or it takes no such answer.
            RunEnded: The run is over.
        """
        await self._steer(run_id, Answer(text, question))

    def questions(self, run_id: str | None = None) -> Sequence[Question]:
        """Return what waits for a person: of all runs, or of one run and those below it; the oldest run's first."""
        found = None if run_id is None else self.journal.find(run_id)
        rows = self.journal.runs(root=None if found is None else found.root)
        asking = asked_below(rows, None if found is None else found.run_id)
        return [question for row in asking for question in questions_of(self.state(row.run_id))]

    async def _steer(self, run_id: str, command: Command) -> None:
        await steer(self.hall.home, self.journal.find(run_id).run_id, command)

    # --- waiting

    async def result(self, run_id: str, *, wait_paused: bool = False) -> Outcome:
        """Wait for the end of a run; see `Run.result`."""
        return await self.hall.home.outcome(self.journal.find(run_id).run_id, wait_paused=wait_paused)

    @contextmanager
    def watching(self, run_id: str, watcher: Callable[[TextDelta], None]) -> Generator[None]:
        """Have *watcher* shown the pieces of a run's replies while the block runs."""
        with self.hall.watching(run_id, watcher):
            yield

    @contextmanager
    def closing(self, wake: Callable[[], None]) -> Generator[Callable[[], bool]]:
        """Have *wake* called when the swarm closes, while the block runs, and yield what says whether it has."""
        hall = self._hall
        if hall is None:
            yield lambda: True
        else:
            with hall.home.closing(wake):
                yield lambda: hall.home.closed

    def events(self, run_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Return the events of a run behind seq *after*, and new ones as they become durable; see `Run.events`."""
        return self.get(run_id).events(after=after)


def _unix(at: float | datetime) -> float:
    if not isinstance(at, datetime):
        return float(at)
    if at.tzinfo is None:
        raise ConfigInvalid(f"{at!r} has no time zone; give it one, such as `datetime.now(UTC)` has")
    return at.timestamp()


def _type_of(wanted: SpawnRequest[Any]) -> Any:
    """Return the type of what a run gives; `None` for text."""
    return wanted.blueprint.function.returns if isinstance(wanted.blueprint, AgenticCall) else wanted.returns


def _components(given: Sequence[ContextComponent]) -> Components:
    """Return what ships, and what is *given* beside it or in its place."""
    known, named = Components(SHIPPED), Components()
    for component in given:
        named.register(component)  # two of one name are a mistake; one of a shipped name is meant
        (known.replace if component.name in known else known.register)(component)
    return known
