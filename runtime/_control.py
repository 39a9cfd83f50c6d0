"""Steering runs from anywhere: runs that live here, sleep here, are hosted by another process, or by none.

What is asked of a run becomes events of it. A run that another process hosts is reached through the journal's file: its
host journals the effect and marks the command as done in the same transaction, so that it takes effect once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol, TypeAlias, final

import anyio
import msgspec

from shoal import errors
from shoal.errors import ConfigInvalid, RunNotFound, RunOwned, ShoalError
from shoal.errors import RunEnded as RunIsOver
from shoal.providers import Text
from shoal.runtime._claims import Claims
from shoal.runtime._clock import Clock
from shoal.runtime._edges import end
from shoal.runtime._keeper import Keeper
from shoal.runtime._live import Live
from shoal.runtime._people import answer, mail
from shoal.runtime.context import PartStored
from shoal.runtime.events import BudgetGiven, BudgetReached, RunPaused, RunResumed, TimerSet
from shoal.runtime.journal import Journal

LOOK_S = 0.2
"""Seconds from one look for commands of other processes to the next."""
_ASK_S = 0.05


@final
class Send(msgspec.Struct, frozen=True, tag="send"):
    """Give a run a message."""

    text: str
    sender: str = "user"
    region: str | None = None
    parts: tuple[PartStored, ...] = ()
    """What stands behind the text; the journal has the bytes."""


@final
class SetTimer(msgspec.Struct, frozen=True, tag="timer"):
    """Give a run a message at a time, in unix seconds."""

    due_at: float
    text: str
    region: str | None = None


@final
class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """Let a run and everything below it finish what they are in the middle of, and wait."""

    reason: str


@final
class Resume(msgspec.Struct, frozen=True, tag="resume"):
    """Let a paused run and everything below it go on; *budget* is for the run *owner*."""

    owner: str = ""
    budget: BudgetGiven | None = None


@final
class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """End a run and everything below it."""

    reason: str


@final
class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """Answer what a run asks; *question* is the number of the question, `None` the only one that is open."""

    text: str
    question: int | None = None


@final
class Reach(msgspec.Struct, frozen=True, tag="reach"):
    """Pause a run whose budget is reached, and everything below it; or end it with what it has, as it says itself."""

    owner: str
    limit: str
    most: str
    spent: str
    needed: str
    finishes: bool = False

    @property
    def reason(self) -> str:
        """What stops, in one sentence."""
        if self.limit == "max_wall_s":
            return f"its budget is reached: it ran {self.spent} s of `max_wall_s` = {self.most}"
        return (
            f"its budget is reached: {self.spent} of `{self.limit}` = {self.most} are used, and the next request could "
            f"take {self.needed}"
        )


Command: TypeAlias = Send | SetTimer | Pause | Resume | Cancel | Answer | Reach
_FLAGS = {"max_cost_usd": "--max-cost-usd", "max_tokens": "--max-tokens", "max_wall_s": "--max-wall-s"}
_decoder = msgspec.json.Decoder(Command)


class Steered(Protocol):
    """What steering needs of where runs stand."""

    journal: Journal
    clock: Clock
    keeper: Keeper
    claims: Claims

    def moved(self, live: Live) -> None:
        """Take note that a run waits, or is over."""
        ...


async def steer(home: Steered, run_id: str, command: Command, done: Callable[[], None] | None = None) -> None:
    """Carry out *command*, wherever the run is; return once its effect is durable.

    Args:
        home: Where runs stand.
        run_id: The run.
        command: The command.
        done: Called once: where this process writes the effect, so that what it writes becomes durable with that; else
            as soon as the host has written it.

    Raises:
        RunEnded: The run is over.
        RunNotFound: The journal has no such run, or nobody hosts it and it would have to take steps.
        JournalFailed: The effect cannot be written.
    """
    while True:
        if run_id in home.keeper.made_of:
            await obey(home, run_id, command, done)
            return
        await home.journal.barrier()
        row = home.journal.find(run_id)
        if row.ended:
            raise _over(run_id, row.status)
        shared = home.journal.shared
        if shared is None:
            await _write_to(home, run_id, command, done)
            return
        if row.host not in shared.others(now=home.clock.unix()):
            try:
                await _write_to(home, run_id, command, done)
            except RunOwned:
                continue  # somebody took it up just now
            return
        number = shared.post(run_id, msgspec.json.encode(command), home.clock.unix())
        if await _answered(home, run_id, number):
            if done is not None:
                done()
            return


async def _answered(home: Steered, run_id: str, number: int) -> bool:
    """Wait until the host of *run_id* obeyed; false where it died before it did.

    Raises:
        ShoalError: It could not.
    """
    shared = home.journal.shared
    assert shared is not None  # the caller posted to it
    obeyed = False
    try:
        while True:
            answer = shared.answer(number)
            if answer is not None:
                obeyed = True
                break
            row = home.journal.find(run_id)
            if row.ended or row.host not in shared.others(now=home.clock.unix()):
                break
            await anyio.sleep(_ASK_S)
    finally:
        if not obeyed and not shared.withdraw(number):
            answer, obeyed = shared.answer(number), True
    if answer:
        kind, _, said = answer.partition(": ")
        error = getattr(errors, kind)
        raise error(said, run_id=run_id) if issubclass(error, errors.RunError) else error(said)
    return obeyed


async def _write_to(home: Steered, run_id: str, command: Command, done: Callable[[], None] | None) -> None:
    """Carry out *command* on runs that nobody hosts: what has to be done to them is written to them."""
    if isinstance(command, Resume):
        raise RunNotFound(f"no process hosts run {run_id}; take it up with `shoal resume {run_id}`", run_id=run_id)
    with home.claims.held(_concerned(home, run_id, command)):
        await obey(home, run_id, command, done)


async def obey(home: Steered, run_id: str, command: Command, done: Callable[[], None] | None = None) -> None:
    """Carry out *command* on a run that is kept here.

    Args:
        home: Where runs stand.
        run_id: The run.
        command: The command.
        done: Called when everything is written and nothing is durable yet.

    Raises:
        RunEnded: The run is over.
        JournalFailed: The effect cannot be written.
    """
    while True:
        lives = await _written(home, run_id, command, done)
        if lives is not None:
            break
    for live in lives:
        home.moved(live)
        if live.state.ended is not None:
            live.gone = True
            await home.keeper.stop(live.run_id)
        else:
            home.keeper.wake(live.run_id)


async def _written(
    home: Steered, run_id: str, command: Command, done: Callable[[], None] | None
) -> Sequence[Live] | None:
    """Write what *command* does to each run that it concerns; `None` where its run has just moved: try again."""
    async with AsyncExitStack() as stack:
        lives = [await stack.enter_async_context(home.keeper.reached(each)) for each in _tree(home, run_id, command)]
        first = lives[0]
        if first.state.ended is not None:
            raise _over(run_id, first.state.ended.status)
        if any(_moved(home, live) for live in lives):
            return None
        if isinstance(command, Send | SetTimer):
            _check_message(first, command.region)
        # From here on nothing waits: all of it becomes durable together.
        for live in lives:
            if not live.over:
                _apply(live, command)
                home.keeper.wrote(live)
        if done is not None:
            done()
    return lives


def _check_message(live: Live, region: str | None) -> None:
    """Refuse a message for a run that reads none, or for a region that it has in no stage.

    Raises:
        ConfigInvalid: See above.
    """
    if live.state.program.function is not None:
        raise ConfigInvalid(
            f"run {live.run_id} is an agentic function, which reads no messages; pass what it needs as an argument, or "
            "have it look with `ctx.step`"
        )
    names = dict.fromkeys((*live.state.view.states, *live.state.program.regions))
    if region is not None and region not in names:
        there = ", ".join(f"`{name}`" for name in names)
        raise ConfigInvalid(f"run {live.run_id} has no region {region!r}; it has {there}")


def _moved(home: Steered, live: Live) -> bool:
    """Say whether a life that was reached is none any more, or another one of its run has come meanwhile."""
    return live.state.ended is None and (live.gone or not home.keeper.still(live))


def _apply(live: Live, command: Command) -> None:
    phase = live.state.phase
    match command:
        case Send(text, sender, region, parts):
            mail(live, text, sender, region, tuple([live.keep(part) for part in parts]))
        case SetTimer(due_at, text, region):
            live.emit(TimerSet(due_at, live.host.secrets.strike(Text.of(text)), region))
        case Answer(text, question):
            answer(live, text, question)
        case Pause(reason):
            if phase == "running":
                live.emit(RunPaused(reason, f"resume it with `shoal resume {live.run_id}`"))
        case Resume():
            if phase == "paused":
                live.emit(RunResumed("user", "", command.budget if live.run_id == command.owner else None))
                live.host.reconsider(live.state.serving[0])
        case Cancel(reason):
            end(live, "cancelled", reason)
        case Reach():
            _reach(live, command)


def _reach(live: Live, reach: Reach) -> None:
    own = live.run_id == reach.owner
    if own:
        live.emit(BudgetReached(reach.limit, reach.most, reach.spent, reach.needed))
    if reach.finishes:
        end(live, "complete" if own else "cancelled", reach.reason)
    elif live.state.phase == "running":
        raised = f"raise it with `shoal resume {reach.owner} {_FLAGS[reach.limit]} N`"
        shorter = (
            "" if reach.limit == "max_wall_s" else ", or let replies be shorter (`max_tokens` of the stage's model)"
        )
        remedy = f"{raised}{shorter}"
        numbers: dict[str, int | float | str] = {
            "limit": reach.limit,
            "most": reach.most,
            "spent": reach.spent,
            "needed": reach.needed,
        }
        live.emit(RunPaused(reach.reason, remedy, numbers))


def _tree(home: Steered, run_id: str, command: Command) -> Sequence[str]:
    """Return the runs that *command* concerns, parents before children."""
    return [run_id, *(each for each in _concerned(home, run_id, command) if each != run_id)]


def _concerned(home: Steered, run_id: str, command: Command) -> Sequence[str]:
    if isinstance(command, Send | SetTimer | Answer):
        return [run_id]
    rows = home.journal.runs(root=home.journal.find(run_id).root)
    below = {run_id}
    for row in rows:  # in the order in which they were spawned: parents first
        if row.parent in below and not row.ended and not row.detached:
            below.add(row.run_id)
    return [row.run_id for row in rows if row.run_id in below]


def _over(run_id: str, status: str) -> RunIsOver:
    return RunIsOver(f"run {run_id} is over ({status}); nothing reaches it any more", run_id=run_id)


async def serve_commands(home: Steered) -> None:
    """Carry out what other processes ask of the runs that are kept here, and show what they did, until cancelled."""
    shared = home.journal.shared
    if shared is None:
        return
    while True:
        for number, run_id, data in shared.waiting():
            await _serve_one(home, number, run_id, data)
        shared.look(home.keeper.made_of)
        await anyio.sleep(LOOK_S)


async def _serve_one(home: Steered, number: int, run_id: str, data: bytes) -> None:
    shared = home.journal.shared
    assert shared is not None  # see `serve_commands`
    try:
        await obey(home, run_id, _read(run_id, data), lambda: shared.obeyed(number, ""))
    except ShoalError as error:
        shared.obeyed(number, f"{type(error).__name__}: {error}")
        await home.journal.barrier()


def _read(run_id: str, data: bytes) -> Command:
    """Return the command that another process left for *run_id*.

    Raises:
        RunOwned: It is none that this version knows.
    """
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise RunOwned(
            f"run {run_id} is hosted by a process of another version, which cannot read the command ({error}); stop "
            f"that process, and take the run up with `shoal resume {run_id}`",
            run_id=run_id,
        ) from error
