"""Children that do as they are told, and a witness of what their supervisors tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from shoal.actors import Actor, ChildSpec, Question, SupervisionEvent, Supervisor, handles

DEADLOCK_S = 1000.0
"""Virtual seconds after which a wait in a test has failed; on virtual time a deadlock fails at once."""


class Witness:
    """An observer that keeps the events, and that can be waited on."""

    def __init__(self) -> None:
        self.events: list[SupervisionEvent] = []
        self._more = anyio.Event()

    def __call__(self, event: SupervisionEvent) -> None:
        self.events.append(event)
        self._more.set()

    def seen(self, kind: str, child: str | None = None) -> list[SupervisionEvent]:
        return [event for event in self.events if event.kind == kind and child in {None, event.child}]

    def kinds(self, child: str) -> list[str]:
        return [event.kind for event in self.events if event.child == child]

    async def until(self, kind: str, child: str | None = None, times: int = 1) -> SupervisionEvent:
        """Wait until *kind* was told of *child* so many times, and return the last of those."""
        with anyio.fail_after(DEADLOCK_S):
            while len(self.seen(kind, child)) < times:
                self._more = anyio.Event()
                await self._more.wait()
        return self.seen(kind, child)[times - 1]


class ByHand:
    """A clock that is set by hand and on which nobody sleeps."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    async def sleep(self, delay_s: float, /) -> None:
        await anyio.sleep_forever()


def one(start: Any, **options: Any) -> Supervisor:
    """Return a tree of one child that may be started again for ever."""
    return Supervisor("app", max_restarts=None, children=[ChildSpec("one", start, **options)])


class Troupe:
    """Functions that run until they get their cue, and write down when they come and go."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.runs: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        """How many of the next starts of a child fail."""
        self.slow: dict[str, float] = {}
        """Seconds that a child takes to end once it was told to."""
        self._cues: dict[str, tuple[anyio.Event, list[BaseException | None]]] = {}

    def child(self, name: str, **options: Any) -> ChildSpec:
        return ChildSpec(name, partial(self.play, name), **options)

    def children(self, names: str, **options: Any) -> tuple[ChildSpec, ...]:
        return tuple(self.child(name, **options) for name in names)

    async def play(self, name: str, *, task_status: anyio.abc.TaskStatus[str]) -> None:
        if self.broken[name]:
            self.broken[name] -= 1
            self.log.append(f"!{name}")
            raise OSError(f"{name} is broken")
        cue, how = self._cues[name] = (anyio.Event(), [])
        self.runs[name] += 1
        self.log.append(f"+{name}")
        task_status.started(f"{name}{self.runs[name]}")
        try:
            await cue.wait()
            if how[0] is not None:
                raise how[0]
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.slow.get(name, 0.0))
            self.log.append(f"-{name}")

    def end(self, name: str, error: BaseException | None = None) -> None:
        """Have *name* raise *error*, or return."""
        cue, how = self._cues[name]
        how.append(error)
        cue.set()

    def crash(self, name: str) -> None:
        self.end(name, ValueError(name))

    def take_log(self) -> str:
        """Return what was written down since the last time, as one word a step."""
        log, self.log = " ".join(self.log), []
        return log


@dataclass(frozen=True, slots=True)
class Add(Question[int]):
    """Asks for the sum so far, with *number* in it."""

    number: int


@dataclass(frozen=True, slots=True)
class Crash:
    """Has the actor raise."""

    text: str = "told to"


@dataclass(frozen=True, slots=True)
class Hang:
    """Has the actor wait for ever, or for *shielded_s* seconds in which it cannot be cancelled."""

    shielded_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Nap:
    """Has the actor busy for *delay_s* seconds, in which it cannot be cancelled where it is *shielded*."""

    delay_s: float
    shielded: bool = False


@dataclass(frozen=True, slots=True)
class Leave(Question[str]):
    """Has the actor end by itself."""


class Adder(Actor):
    """Adds up, and writes down what happens to it."""

    def __init__(self, log: list[Any] | None = None, slow_stop_s: float = 0.0) -> None:
        self.total = 0
        self.log: list[Any] = log if log is not None else []
        self.slow_stop_s = slow_stop_s

    async def on_start(self) -> None:
        self.log.append("start")

    @handles(Add)
    async def add(self, message: Add) -> int:
        self.log.append(message.number)
        self.total += message.number
        return self.total

    @handles(Crash)
    async def crash(self, message: Crash) -> None:
        raise ValueError(message.text)

    @handles(Hang)
    async def hang(self, message: Hang) -> None:
        self.log.append("hang")
        with anyio.CancelScope(shield=True):
            await anyio.sleep(message.shielded_s)
        await anyio.sleep_forever()

    @handles(Nap)
    async def nap(self, message: Nap) -> None:
        with anyio.CancelScope(shield=message.shielded):
            await anyio.sleep(message.delay_s)

    @handles(Leave)
    async def leave(self, message: Leave) -> str:
        self.stop()
        return "bye"

    async def on_stop(self, reason: Any) -> None:
        await anyio.sleep(self.slow_stop_s)
        self.log.append(f"stop {reason}")
