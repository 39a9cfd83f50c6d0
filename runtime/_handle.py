"""A run as its user holds it, and how it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, final, overload

import anyio
from typing_extensions import TypeVar

from shoal.errors import JournalFailed, RunCancelled, RunFailed, RunInterrupted
from shoal.providers import TextDelta, Usage
from shoal.runtime._accounts import account_of
from shoal.runtime._attachment import Attachable, SeedValue
from shoal.runtime._orders import GivenTool, OutputT_co, SpawnRequest, typed
from shoal.runtime.context import PartStored
from shoal.runtime.events import ENDED_WELL, BudgetGiven, Event, RunEnded, Status
from shoal.runtime.ledger import NO_USAGE, Ledger, plain_usage
from shoal.runtime.state import RunState

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from shoal.blueprints import Blueprint
    from shoal.runtime._function import AgenticCall
    from shoal.runtime._people import Question
    from shoal.runtime._swarm import Swarm

_DELTAS_HELD = 256
"""Deltas that a slow reader may be behind; older ones are dropped."""


T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Outcome(Generic[OutputT_co]):
    """How a run ended.

    Args:
        run_id: The run.
        status: `complete`, `complete_interactive`, `error` or `cancelled`.
        output: What it submitted, else the last thing it said; `None` where it said nothing. A value of the type that
            the spawn asked for with `returns`; then `None` where the run failed.
        reason: Why it ended, one sentence.
        flags: What tells a forced end from a clean one, by name.
        usage: What its own inferences were billed, its children's excluded.
        cost_usd: What they cost; `None` where a price is unknown.
        artifacts: Paths in its working directory that belong to the output.
    """

    run_id: str
    status: Status
    output: OutputT_co
    reason: str = ""
    flags: Mapping[str, int | tuple[str, ...]] = field(default_factory=dict[str, "int | tuple[str, ...]"])
    usage: Usage = NO_USAGE
    cost_usd: Decimal | None = None
    artifacts: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """The run ended as it should."""
        return self.status in ENDED_WELL

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "output": self.output,
            "reason": self.reason,
            "flags": {name: list(v) if isinstance(v, tuple) else v for name, v in self.flags.items()},
            "usage": plain_usage(self.usage),
            "cost_usd": None if self.cost_usd is None else format(self.cost_usd, "f"),
            "artifacts": list(self.artifacts),
        }


def outcome_of(state: RunState, ended: RunEnded) -> Outcome:
    """Return how a run ended whose events add up to *state*."""
    if state.output is not None:
        output: str | None = str(state.output)
    else:
        output = str(state.last_text) or None
    return Outcome(
        state.run_id,
        ended.status,
        output,
        ended.reason,
        dict(ended.flags),
        state.usage,
        state.cost,
        state.artifacts,
    )


def left_behind(run_id: str) -> RunInterrupted:
    """Return the error of whoever waits for a run while the swarm closes that it was got from."""
    return RunInterrupted(
        f"the swarm was closed while run {run_id} was waited for; wait for it inside the swarm's block, or open a "
        f"swarm with the same journal and take it up with `await swarm.resume_tree({run_id!r})`",
        run_id=run_id,
    )


@final
class Run(Generic[OutputT_co]):
    """One execution of a blueprint, as its user holds it; it may live here, sleep in the journal, or be over.

    Args:
        swarm: The swarm that knows it.
        run_id: Its id.
        name: Its blueprint's name.
        returns: The type that its answer has; `None` for text.
    """

    def __init__(self, swarm: Swarm, run_id: str, name: str, returns: type[OutputT_co] | None = None) -> None:
        self._returns = returns
        self._swarm = swarm
        self.run_id = run_id
        self.name = name

    def __repr__(self) -> str:
        return f"<Run {self.name} {self.run_id} {self.status}>"

    @property
    def status(self) -> str:
        """`running`, `paused`, `interrupted` (it is not over and no process hosts it), or how it ended."""
        return self._swarm.status(self.run_id)

    @property
    def stage(self) -> str | None:
        """The stage it is in, or was in last; `None` before its first."""
        return self._swarm.row(self.run_id).stage

    @property
    def title(self) -> str | None:
        """Its title; `None` while it has none."""
        return self._swarm.row(self.run_id).title

    async def result(self, *, wait_paused: bool = False, check: bool = False) -> Outcome[OutputT_co]:
        """Wait for the end of the run and return how it ended.

        Args:
            wait_paused: Also wait while it is paused or nobody hosts it, for code that lets it go on elsewhere.
            check: Raise where the run did not end as it should; without, the outcome says so.

        Raises:
            RunFailed, RunCancelled: It ended so, with *check*.
            RunIsPaused: It waits for somebody.
            RunInterrupted: It is not over, and no process hosts it, or the swarm closed meanwhile: take it up with
                `Swarm.resume_tree`.
            JournalFailed: Its journal cannot be written; it stopped where it was.
            OutputInvalid: It is complete, and its answer is not of the type that its spawn asked for.
        """
        outcome = await self._swarm.result(self.run_id, wait_paused=wait_paused)
        if check:
            checked(outcome)
        return cast("Outcome[OutputT_co]", outcome if self._returns is None else _typed(outcome, self._returns))

    @overload
    def events(self, *, after: int = 0, deltas: Literal[False] = False) -> AsyncIterator[Event]: ...

    @overload
    def events(self, *, after: int = 0, deltas: bool) -> AsyncIterator[Event | TextDelta]: ...

    async def events(self, *, after: int = 0, deltas: bool = False) -> AsyncIterator[Event | TextDelta]:
        """Yield its events behind seq *after*, oldest first, as they become durable; ends with the run.

        They come from the journal, so a slow reader holds nothing up.

        Args:
            after: Seq of the last event that is known; 0 for all.
            deltas: Yield `TextDelta` values between them as replies stream. They have no seq and are not journaled; a
                slow reader misses some. After `InferenceRetried`, forget the deltas that came before.

        Raises:
            RunInterrupted: The swarm closed before the run was over.
        """
        async with aclosing(self._followed(after, deltas=deltas)) as events:
            async for event in events:
                yield event
                if isinstance(event, Event) and isinstance(event.payload, RunEnded):
                    return

    async def _followed(self, after: int, *, deltas: bool) -> AsyncGenerator[Event | TextDelta]:
        swarm, run_id = self._swarm, self.run_id
        held: deque[TextDelta] = deque(maxlen=_DELTAS_HELD)
        woken = anyio.Event()

        def show(delta: TextDelta) -> None:
            held.append(delta)
            woken.set()

        def wake() -> None:
            woken.set()  # whichever event is waited for now, not the first one

        shown = swarm.watching(run_id, show) if deltas else nullcontext()
        with shown, swarm.journal.listening(run_id, wake), swarm.closing(wake) as closed:
            while True:
                woken = anyio.Event()
                over = closed()  # what is read behind that is all that there will be
                while held:  # what streamed came before the events that end it
                    yield held.popleft()
                try:
                    for event in swarm.journal.read(run_id, after=after):
                        after = event.seq
                        yield event
                except JournalFailed as gone:
                    if not over:
                        raise
                    raise left_behind(run_id) from gone  # it was closed with the swarm
                if over:
                    raise left_behind(run_id)
                await woken.wait()

    def ledger(self) -> Ledger:
        """Return what it used so far, by stage, region and transition."""
        return account_of(self._swarm.journal, (self.run_id,))

    def region(self, name: str) -> str:
        """Return the text of one of its regions as it is now, so that it can be handed to a child.

        Raises:
            KeyError: It has no region of that name.
        """
        states = self._swarm.state(self.run_id).view.states
        if name not in states:
            there = ", ".join(f"`{known}`" for known in states)
            raise KeyError(f"run {self.run_id} has no region {name!r}; there is {there}")
        state = states[name]
        return "\n\n".join(entry.text for entry in state.all_entries())

    @overload
    async def spawn(
        self,
        blueprint: str | Path | Blueprint,
        *,
        task: str | None = None,
        seeds: Mapping[str, SeedValue] | None = None,
        tools: Sequence[GivenTool] = (),
        model: str | None = None,
        key: str | None = None,
        budget: BudgetGiven | None = None,
        detached: bool = False,
        max_child_depth: int | None = None,
        output_format: str | None = None,
        output_instructions: str | None = None,
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
        model: str | None = None,
        key: str | None = None,
        budget: BudgetGiven | None = None,
        detached: bool = False,
        max_child_depth: int | None = None,
        output_format: str | None = None,
        output_instructions: str | None = None,
        returns: type[T],
    ) -> Run[T]: ...

    @overload
    async def spawn(
        self,
        blueprint: AgenticCall[T],
        *,
        model: str | None = None,
        key: str | None = None,
        budget: BudgetGiven | None = None,
        detached: bool = False,
        max_child_depth: int | None = None,
    ) -> Run[T]: ...

    async def spawn(
        self,
        blueprint: str | Path | Blueprint | AgenticCall[Any],
        *,
        task: str | None = None,
        seeds: Mapping[str, SeedValue] | None = None,
        tools: Sequence[GivenTool] = (),
        model: str | None = None,
        key: str | None = None,
        budget: BudgetGiven | None = None,
        detached: bool = False,
        max_child_depth: int | None = None,
        output_format: str | None = None,
        output_instructions: str | None = None,
        returns: type[Any] | None = None,
    ) -> Run[Any]:
        """Start a child of this run; it works in the same folder, and sees its task and its seeds and nothing else.

        Args:
            blueprint: A name of the library, a path, a `Blueprint`, or an agentic function with its arguments
                (`bound`).
            task: Its task; `None` for none.
            seeds: Values by name for its regions that take a caller's value, such as what `region` returns.
            tools: Functions that it may call.
            model: `provider:model` that replaces every stage's; `None` for what replaces this run's.
            key: A second spawn under the same key returns the same run, in a later process too.
            budget: Limits for it and everything below it, beside those of this run, in place of its blueprint's.
            detached: It outlives this run; otherwise this run's end is its end too.
            max_child_depth: How many levels of children it may have of its own; `None` for as many as this run leaves.
            output_format: How its answer is to be written; `None` for what its blueprint says.
            output_instructions: What its answer is to look like; `None` for what its blueprint says.
            returns: The type that the answer is to have; see `Swarm.spawn`.

        Raises:
            BlueprintInvalid: It cannot be loaded.
            SpawnRefused: It cannot run, or this run may have no children, or no more.
            RunEnded: This run is over.
            RunNotFound: This run does not live here.
            ConfigInvalid: A limit of the budget is none.
        """
        wanted = SpawnRequest(
            blueprint,
            task=task,
            seeds=seeds or {},
            tools=tools,
            model=model,
            key=key,
            budget=budget,
            output_format=output_format,
            output_instructions=output_instructions,
            returns=returns,
        )
        [child] = await self._swarm.spawn_children(
            self.run_id, [wanted], detached=detached, max_child_depth=max_child_depth
        )
        return child

    async def spawn_many(self, requests: Iterable[SpawnRequest[T]], *, detached: bool = False) -> list[Run[T]]:
        """Start children of this run, all or none, and return them in the same order.

        Args:
            requests: The children. Those with a key that has a run already get that run.
            detached: They outlive this run; otherwise this run's end is their end too.

        Raises:
            BlueprintInvalid: One cannot be loaded.
            SpawnRefused: One cannot run, two have the same key, one says what its parent decides, or this run may have
                no children; nothing was journaled.
            RunEnded: This run is over.
            RunNotFound: This run does not live here.
        """
        return await self._swarm.spawn_children(self.run_id, list(requests), detached=detached)

    def parts(self) -> Sequence[PartStored]:
        """Return its stored parts, oldest first: what it was given, what its tools brought and what its model made."""
        return list(self._swarm.state(self.run_id).shelf.stored.values())

    async def part(self, name: str) -> bytes:
        """Return the bytes of one of its stored parts.

        Args:
            name: The part's name, or its digest, or how that begins (8 characters or more).

        Raises:
            PartMissing: It has no such part, or the journal does not hold its bytes any more.
        """
        return await self._swarm.part(self.run_id, name)

    async def send(self, text: str, *, region: str | None = None, parts: Sequence[Attachable] = ()) -> None:
        """Send it a message, delivered before its next request; returns once the message is durable.

        Args:
            text: What it says; may be empty where *parts* are not.
            region: The region that takes it; `None` for the conversation.
            parts: Images, documents and other bytes that stand behind the text.

        Raises:
            RunEnded: It is over.
            RunNotFound: It does not live here.
            PartRefused: A part is too large.
            ConfigInvalid: What is given as a part is none, or it has no such region.
        """
        await self._swarm.send(self.run_id, text, region=region, parts=parts)

    async def wake_at(self, at: float | datetime, text: str = "It is time.", *, region: str | None = None) -> None:
        """Give it a message at a time; see `Swarm.wake_at`."""
        await self._swarm.wake_at(self.run_id, at, text, region=region)

    def questions(self) -> Sequence[Question]:
        """Return what it and the runs below it ask a person."""
        return self._swarm.questions(self.run_id)

    async def answer(self, text: str, *, question: int | None = None) -> None:
        """Answer what it asks; see `Swarm.answer`."""
        await self._swarm.answer(self.run_id, text, question=question)

    async def fork(self, *, at: int | None = None, tools: Sequence[Any] = ()) -> Run:
        """Copy its history up to event *at* into a new run that goes on from there; see `Swarm.fork`."""
        return await self._swarm.fork(self.run_id, at=at, tools=tools)

    async def pause(self, reason: str = "paused by its user") -> None:
        """Let it finish what it is in the middle of, and wait."""
        await self._swarm.pause(self.run_id, reason)

    async def resume(self, *, budget: BudgetGiven | None = None) -> None:
        """Let it go on.

        Args:
            budget: Limits in place of those that it has; `None` leaves them.
        """
        await self._swarm.resume(self.run_id, budget=budget)

    async def cancel(self, reason: str = "cancelled by its user") -> None:
        """End it and its children."""
        await self._swarm.cancel(self.run_id, reason)


def _typed(outcome: Outcome, returns: type[Any]) -> Outcome[Any]:
    if not outcome.ok or outcome.output is None:
        return replace(outcome, output=None)
    return replace(cast("Outcome[Any]", outcome), output=typed(outcome.output, returns, outcome.run_id))


def checked(outcome: Outcome[T]) -> Outcome[T]:
    """Return *outcome* where the run ended as it should.

    Raises:
        RunFailed: It ended `error`.
        RunCancelled: It ended `cancelled`.
    """
    if outcome.status == "error":
        raise RunFailed(f"run {outcome.run_id} failed: {outcome.reason}", run_id=outcome.run_id)
    if outcome.status == "cancelled":
        raise RunCancelled(f"run {outcome.run_id} was cancelled: {outcome.reason}", run_id=outcome.run_id)
    return outcome
