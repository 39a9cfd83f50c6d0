"""Random trees whose children are killed at random, and what becomes of them held against the model of OTP's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import anyio
from anyio import wait_all_tasks_blocked
from otp_model import End, Flags, Model, Restart, Spec, Step, Sup
from troupe import ByHand, Witness

from shoal.actors import Actor, ChildSpec, DynamicSupervisor, Ignore, Reason, Shutdown, Supervisor, running
from shoal.errors import (
    AlreadyPresent,
    AlreadyStarted,
    ChildNotFound,
    ChildRunning,
    RestartsExhausted,
    StartFailed,
    SupervisorError,
    SupervisorStopped,
)

DEEDS = 24
"""What is done to one tree, unless it ends before."""
MOST_BROKEN = 3

Tree = Supervisor | DynamicSupervisor


@dataclass(eq=False)
class Difference(Exception):
    """A tree and the model went apart."""

    seed: int
    deeds: tuple[str, ...]
    what: str
    tree: object
    model: object

    def __str__(self) -> str:
        done = "\n  ".join(self.deeds)
        return f"seed {self.seed}: {self.what}\n tree  {self.tree}\n model {self.model}\nafter\n  {done}"


# --- what a random tree is


@dataclass
class Draw:
    """Draws trees; no two children of one tree have one name."""

    random: Random
    made: int = 0

    def flags(self, depth: int) -> Flags:
        random = self.random
        strategy = random.choice(["one_for_one", "one_for_all", "one_for_all", "rest_for_one", "rest_for_one"])
        auto = random.choice(["never", "never", "never", "any_significant", "all_significant"])
        intensity = random.choice([3, 8, 50] if depth == 0 else [0, 1, 1, 2, 3, 8])
        return Flags(strategy, intensity, random.choice([1.0, 2.0, 5.0]), auto, self._children(auto, depth))

    def _children(self, auto: str, depth: int) -> tuple[Spec, ...]:
        return tuple(self.spec(auto, depth) for _ in range(self.random.randint(1, 4)))

    def spec(self, auto: str, depth: int) -> Spec:
        random = self.random
        self.made += 1
        restart: Restart = random.choice(["permanent", "permanent", "transient", "transient", "temporary"])
        significant = auto != "never" and restart != "permanent" and random.random() < 0.6
        chance = random.random()
        if depth < 2 and chance < 0.3:
            return Spec(f"s{self.made}", restart, significant, self.flags(depth + 1))
        if depth < 3 and chance < 0.4:
            kept = random.choice(["never", "any_significant", "all_significant"])
            simple = Flags("simple_one_for_one", random.choice([1, 2, 5]), 5.0, kept)
            return Spec(f"d{self.made}", restart, significant, simple)
        return Spec(f"w{self.made}", restart, significant)


# --- the tree that runs


@dataclass
class World:
    """Where the children of a tree come and go, and write down that they do."""

    broken: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    cues: dict[str, Callable[[Exception | None], None]] = field(default_factory=dict)
    trees: dict[str, Tree] = field(default_factory=dict)

    def enter(self, name: str) -> None:
        """Come up, or fail to."""
        if self.broken[name]:
            self.broken[name] -= 1
            self.log.append(f"!{name}")
            raise OSError(name)
        if self.idle[name]:
            self.idle[name] -= 1
            self.log.append(f"~{name}")
            raise Ignore
        self.log.append(f"+{name}")

    async def play(self, name: str, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        self.enter(name)
        cue, how = anyio.Event(), list[Exception | None]()

        def end(error: Exception | None) -> None:
            how.append(error)
            cue.set()

        self.cues[name] = end
        task_status.started()
        try:
            await cue.wait()
            if how[0] is not None:
                raise how[0]
        finally:
            self.log.append(f"-{name}")

    def tree(self, name: str, flags: Flags) -> Tree:
        """Return the supervisor that *flags* describe."""
        budget: dict[str, Any] = {"max_restarts": flags.intensity, "within_s": flags.period}
        if flags.simple:
            tree: Tree = DynamicSupervisor(name, auto_shutdown=flags.auto_shutdown, **budget)
        else:
            children = [self.child(spec) for spec in flags.children]
            tree = Supervisor(
                name, strategy=flags.strategy, auto_shutdown=flags.auto_shutdown, children=children, **budget
            )
        self.trees[name] = tree
        return tree

    def child(self, spec: Spec) -> ChildSpec:
        """Return the child that *spec* describes: a supervisor, a function, or (each second one) an actor."""
        if spec.flags is not None:
            start: Any = self.tree(spec.name, spec.flags)
        elif int(spec.name[1:]) % 2:
            start = partial(self.play, spec.name)
        else:
            start = partial(Puppet, self, spec.name)
        return ChildSpec(spec.name, start, restart=spec.restart, significant=spec.significant)


class Puppet(Actor):
    """An actor that ends as it is told."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    async def on_start(self) -> None:
        self.world.enter(self.name)
        self.world.cues[self.name] = self.me.send_nowait

    async def receive(self, message: Exception | None) -> None:
        if message is not None:
            raise message
        self.stop()

    async def on_stop(self, reason: Reason) -> None:
        self.world.log.append(f"-{self.name}")


# --- both, side by side

ANSWERS: dict[type[Exception], str] = {
    AlreadyStarted: "already started",
    AlreadyPresent: "already present",
    ChildNotFound: "not found",
    ChildRunning: "running",
    StartFailed: "not started",
    SupervisorError: "refused",
}
REPORTS = {"exited": "ended", "gave_up": "gave up", "shutdown_error": "shutdown"}
ENDS: dict[End, Callable[[], Exception | None]] = {
    "crash": lambda: ValueError("killed"),
    "normal": lambda: None,
    "shutdown": Shutdown,
}


class Simulation:
    """One random tree, and all that is done to it.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.draw = Draw(self.random)
        self.world = World()
        self.clock = ByHand()
        self.witness = Witness()
        self.deeds: list[str] = []
        self.kills = 0

    async def play(self) -> int:
        """Return how many children were killed.

        Raises:
            Difference: The tree does not do what the model says.
        """
        flags = self.draw.flags(0)
        self.deeds.append(f"{flags}")
        self.model = Model(flags)
        tree = self.world.tree("root", flags)
        try:
            async with running(tree, clock=self.clock, observer=self.witness):
                self._compare()
                for _ in range(DEEDS):
                    if self.model.root.gone:
                        break
                    # Shielded: where the tree gives up in the middle of a deed, the model is still told of it.
                    with anyio.CancelScope(shield=True):
                        await self._do_something()
                        await wait_all_tasks_blocked()
                        self._compare()
        except RestartsExhausted:
            if self.model.root.gone != "gave up":
                self._differ("the tree gave up", tree.render(), self.model.root.gone)
        self.model.stop()
        self._compare_past()
        return self.kills

    # --- deeds

    async def _do_something(self) -> None:
        random = self.random
        alive = list(self._alive(self.model.root))
        sup = random.choice(alive)
        ids = list(sup.children)
        up = [c.spec.name for c in sup.children.values() if c.up and c.below is None]
        chance = random.random()
        self._break(up)
        if chance < 0.6 and up:
            how: End = random.choice(["crash", "crash", "crash", "crash", "crash", "normal", "shutdown"])
            await self._end(sup, random.sample(up, random.randint(1, len(up)) if chance < 0.15 else 1), how)
        elif chance < 0.65 and sup.above is not None:
            await self._crash(sup)
        elif chance < 0.72:
            gap_s = random.choice([1.0, sup.flags.period, sup.flags.period + 1])
            self.deeds.append(f"{gap_s:g} s pass")
            self.clock.at += gap_s
            self.model.now += gap_s
        elif chance < 0.82:
            await self._start_child(sup, ids)
        elif ids:
            call = random.choice(["terminate_child", "terminate_child", "restart_child", "delete_child"])
            name = random.choice([*ids, "nobody"])
            tree = self.world.trees[self._name(sup)]
            answer = getattr(self.model, call)(sup, name)
            await self._ask(f"{call} {name}", getattr(tree, call)(name), answer)

    def _alive(self, sup: Sup) -> list[Sup]:
        below = [child.below for child in sup.children.values() if child.below is not None]
        return [sup, *(each for one in below for each in self._alive(one))]

    def _name(self, sup: Sup) -> str:
        return "root" if sup.above is None else sup.above[1].spec.name

    def _break(self, names: list[str]) -> None:
        """Have the next starts of some children fail, or find nothing to do."""
        for name in names:
            chance = self.random.random()
            if chance < 0.08:
                times = self.random.randint(1, MOST_BROKEN)
                self.deeds.append(f"the next {times} starts of {name} fail")
                self.world.broken[name] = self.model.broken[name] = times
            elif chance < 0.12:
                self.deeds.append(f"{name} will have nothing to do")
                self.world.idle[name] = self.model.idle[name] = 1

    async def _end(self, sup: Sup, names: list[str], how: End) -> None:
        self.deeds.append(f"{' '.join(names)} end: {how}")
        self.kills += len(names) if how == "crash" else 0
        before = len(self.world.log)
        for name in names:
            self.world.cues[name](ENDS[how]())
        await wait_all_tasks_blocked()
        # A loop may run tasks in any order: the one in which they ended decides.
        ended = [step[1:] for step in self.world.log[before : before + len(names)]]
        self.model.ends(sup, sorted(names, key=lambda name: ended.index(name) if name in ended else -1), how)

    async def _crash(self, sup: Sup) -> None:
        name = self._name(sup)
        self.deeds.append(f"the supervisor {name} crashes")
        self.kills += 1

        async def crash(_engine: object) -> None:
            raise ValueError("killed")

        engine = self.world.trees[name]._engine
        assert engine is not None
        with suppress(SupervisorStopped):
            await engine.call(crash)
        self.model.crashes(sup)

    async def _start_child(self, sup: Sup, ids: list[str]) -> None:
        twice = bool(ids) and not sup.flags.simple and self.random.random() < 0.2
        spec = self.draw.spec(sup.flags.auto_shutdown, 3 if sup.flags.simple else 2)
        if twice:
            spec = Spec(self.random.choice(ids), "permanent")
        if self.random.random() < 0.15:
            self.world.broken[spec.name] += 1
            self.model.broken[spec.name] += 1
        answer = self.model.start_child(sup, spec)
        child = ChildSpec(spec.name, anyio.sleep_forever) if twice else self.world.child(spec)
        await self._ask(f"start {spec}", self.world.trees[self._name(sup)].start_child(child), answer)

    async def _ask(self, deed: str, call: Awaitable[Any], expected: str) -> None:
        self.deeds.append(deed)
        try:
            await call
            answer = "done"
        except SupervisorError as exc:
            answer = ANSWERS[type(exc)]
        if answer != expected:
            self._differ(f"{deed} was answered", answer, expected)

    # --- comparing

    def _compare(self) -> None:
        self._compare_past()
        running_now = {name: tree for name, tree in self.world.trees.items() if tree.status == "running"}
        shown = {name: _shown(tree) for name, tree in running_now.items()}
        picture = self.model.picture()
        if shown != picture:
            self._differ("what runs", shown, picture)

    def _compare_past(self) -> None:
        steps = _in_order(self.model.steps, self.world.log)
        if self.world.log != steps:
            self._differ("starts and ends", self.world.log, self.model.steps)
        self.model.steps, self.world.log = [], []
        told = Counter((REPORTS[e.kind], e.child) for e in self.witness.events if e.error and e.kind in REPORTS)
        if told != self.model.errors:
            self._differ("error reports", told, self.model.errors)

    def _differ(self, what: str, tree: object, model: object) -> None:
        raise Difference(self.seed, tuple(self.deeds), what, tree, model)


def _shown(tree: Tree) -> object:
    listed = [(child.id, child.child is not None) for child in tree.which_children()]
    return frozenset(listed) if isinstance(tree, DynamicSupervisor) else tuple(listed)


def _in_order(expected: list[Step], log: list[str]) -> list[str]:
    """Return *expected* as one list, with what has no order in the order of *log*."""
    steps: list[str] = []
    for step in expected:
        if isinstance(step, str):
            steps.append(step)
        else:
            place = len(steps)
            there = [entry for entry in log[place : place + len(step)] if entry in step]
            steps += there + sorted(step.difference(there))
    return steps


async def simulate(first_seed: int, kills: int) -> int:
    """Play trees from *first_seed* on until so many children were killed, and return how many trees that took.

    Raises:
        Difference: A tree does not do what the model says.
    """
    killed = trees = 0
    while killed < kills:
        killed += await Simulation(first_seed + trees).play()
        trees += 1
    return trees
