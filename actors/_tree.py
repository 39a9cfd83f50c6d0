"""What both kinds of supervisor are: values that nest while a tree is written down, handles once it runs."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, final, get_args

import anyio
from anyio.lowlevel import checkpoint

from shoal.actors import _calls as calls
from shoal.actors._engine import Engine
from shoal.actors._events import SupervisionEvent
from shoal.actors._kernel import Kernel
from shoal.actors._life import Boss, Life, Nested
from shoal.actors._plan import Plan
from shoal.actors._reason import KILLED, Reason
from shoal.actors._ref import Ref
from shoal.actors._report import Book, ChildInfo, Counts, WhichChild, describe, draw, plural
from shoal.actors._spec import (
    AutoShutdown,
    ChildSpec,
    budget_problem,
    name_problem,
)
from shoal.errors import (
    ChildNotFound,
    ChildSpecInvalid,
    RestartsExhausted,
    StartFailed,
    SupervisorStopped,
)

TreeState = Literal["down", "starting", "running", "stopping", "gave_up"]


@final
class TreeLife(Life):
    """One life of a supervisor; its last rites are to stop its children.

    Once killed it needs no limit of its own: each of its children has one, and it ends right after the last of them.
    """

    __slots__ = ("engine",)

    kill_s = math.inf

    engine: Engine

    async def serve(self) -> None:
        """Start the children and look after them."""
        await self.engine.run()

    def hand_back(self) -> None:
        """Do nothing: a supervisor has no mailbox, and refuses the calls that it does not get to."""

    async def conclude(self) -> None:
        """Stop the children."""
        engine, reason = self.engine, self.reason
        if engine.done is not None and reason.clean:
            reason = engine.done
        with self.last_rites() as end:
            await engine.stop_all()
        if self.killed or end.reason.kind == "crashed":
            await engine.kill_all()
        engine.finish()
        if end.reason.kind == "crashed":
            self.reason = end.reason
        else:
            self.reason = KILLED if self.killed and reason.error is None else reason


class Tree(Nested):
    """What both kinds of supervisor have in common.

    Args:
        plan: What it was built with.
    """

    def __init__(self, plan: Plan) -> None:
        self.name = plan.name
        self._plan = plan
        self._book = Book()
        self._engine: Engine | None = None
        self._life: Life | None = None
        self._gone: anyio.Event | None = None
        self._reason: Reason | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.status}, {len(self.children())} children>"

    # --- looking

    @property
    def status(self) -> TreeState:
        """What it does now: `down` (not started, or ended), `starting`, `running`, `stopping`, or `gave_up`."""
        life = self._life
        if life is not None and life.state != "ended":
            return "stopping" if life.state == "orphan" else life.state
        reason = self._reason if life is None else life.reason
        return "gave_up" if reason is not None and isinstance(reason.error, RestartsExhausted) else "down"

    def ref(self, child_id: str) -> Ref:
        """Return the handle of the actor of that id.

        Raises:
            ChildNotFound: There is no such child, or it is no actor, or it is not up yet or any more.
            SupervisorStopped: The supervisor does not run.
        """
        record = calls.find(self._running(), child_id)
        if record.ref is None:
            why = f"{record.path!r} is a {record.kind} and {record.state}; only an actor that has come up has a `Ref`"
            raise ChildNotFound(why, supervisor=self.name, child=child_id)
        return record.ref

    def children(self) -> tuple[ChildInfo, ...]:
        """Return the children as they are now, in start order, and after them those that were killed and still run."""
        orphans = tuple(self._book.orphans.values())
        engine = self._engine
        if engine is None:
            return (*map(_down, self._plan.children), *orphans)
        now = engine.kernel.now()
        return (*(record.info(now) for record in engine.records.values()), *orphans)

    def which_children(self) -> tuple[WhichChild, ...]:
        """Return id, handle and type of each child, in start order.

        Raises:
            SupervisorStopped: The supervisor does not run.
        """
        return tuple(record.which() for record in self._running().records.values())

    def count_children(self) -> Counts:
        """Return how many specs there are, how many have a process, and how many are supervisors and workers.

        Raises:
            SupervisorStopped: The supervisor does not run.
        """
        records = self._running().records.values()
        supervisors = sum(record.spec.kind == "supervisor" for record in records)
        active = sum(record.life is not None for record in records)
        return Counts(len(records), active, supervisors, len(records) - supervisors)

    def get_childspec(self, child_id: str) -> ChildSpec:
        """Return the spec of a child, with every default filled in.

        Raises:
            ChildNotFound: There is no such child.
            SupervisorStopped: The supervisor does not run.
        """
        return calls.find(self._running(), child_id).spec.filled_in()

    def history(self) -> tuple[SupervisionEvent, ...]:
        """Return what happened to the children, oldest first: the newest 200 events, from before its restarts too."""
        return tuple(self._book.history)

    def render(self) -> str:
        """Return the tree as text: one line a child, nested supervisors with theirs."""
        plan = self._plan
        budget = "any number of restarts" if plan.max_restarts is None else plural(plan.max_restarts, "restart")
        head = f"{self.name}  {plan.strategy}  {self.status}  {budget} in {plan.within_s:g} s"
        return draw(head, ((describe(child), _below(child)) for child in self.children()))

    # --- waiting

    async def wait(self) -> Reason:
        """Wait until it has ended and will not be started again; at once where it has.

        Raises:
            RestartsExhausted: It gave up, or the supervisor above did because of it; with the history.
            SupervisorStopped: It was never started.
        """
        if self._reason is None:
            if self._life is None:
                raise self._stopped_error()
            if self._gone is None:
                self._gone = anyio.Event()
            await self._gone.wait()
        else:
            await checkpoint()
        assert self._reason is not None
        if isinstance(self._reason.error, RestartsExhausted):
            raise self._reason.error
        return self._reason

    # --- changing

    async def terminate_child(self, child: str | Ref) -> None:
        """Stop a child by its shutdown rule. Its spec stays, without a process, but for a `temporary` one.

        For a child that is already stopped nothing happens; a restart that is still to come is called off. Its end does
        not count for `auto_shutdown`.

        Args:
            child: Its id, or the handle of an actor.

        Raises:
            ChildNotFound: There is no such child.
            SupervisorStopped: The supervisor does not run.
        """
        engine = self._running()
        child_id = child if isinstance(child, str) else self._id_of(engine, child)
        cut = engine.cut_start(child_id)
        try:
            await engine.call(partial(calls.terminate_child, child_id=child_id))
        except ChildNotFound:
            if not cut:  # else the start that was cut has already taken it away
                raise

    def _id_of(self, engine: Engine, ref: Ref) -> str:
        for record in engine.records.values():
            if record.ref is ref:
                return record.spec.id
        raise ChildNotFound(f"supervisor {engine.path!r} has no child {ref!r}", supervisor=self.name)

    # --- as a child

    def born(self, kernel: Kernel, boss: Boss | None, path: str, child_id: str, grace_s: float) -> Life:
        """Return a new life of it; called by the supervisor that starts it.

        Raises:
            StartFailed: It runs already, in another place.
        """
        if self._life is not None and self._life.state != "ended":
            raise StartFailed(
                f"{path!r}: supervisor {self.name!r} already runs as {self._life.path!r}; build one for each place",
                supervisor=self.name,
                child=child_id,
            )
        if self._engine is None:
            self._book.history.clear()
        life = TreeLife(kernel, boss, path, child_id, grace_s)
        life.engine = Engine(self._plan, self._book, kernel, life, self._engine)
        self._life, self._engine = life, life.engine
        self._gone, self._reason = None, None
        return life

    def gone(self, reason: Reason) -> None:
        """Take note that whoever started it will not start it again."""
        engine, self._engine = self._engine, None
        assert engine is not None
        engine.gone()
        self._life, self._reason = None, reason
        if self._gone is not None:
            self._gone.set()

    def _running(self) -> Engine:
        if self._engine is None:
            raise self._stopped_error()
        return self._engine

    def _stopped_error(self) -> SupervisorStopped:
        why = f"supervisor {self.name!r} does not run; start it with `running`, or as a child of a tree that runs"
        return SupervisorStopped(why, supervisor=self.name)


def check_settings(name: str, max_restarts: int | None, within_s: float, auto_shutdown: str) -> None:
    problem = name_problem(name) or budget_problem(max_restarts, within_s)
    if problem is None and auto_shutdown not in get_args(AutoShutdown):
        problem = f"`auto_shutdown` is {auto_shutdown!r}; take one of {', '.join(map(repr, get_args(AutoShutdown)))}"
    if problem:
        raise ChildSpecInvalid(f"supervisor {name!r}: {problem}")


def _down(spec: ChildSpec) -> ChildInfo:
    """Return what a child is while its supervisor does not run."""
    nested = spec.start if isinstance(spec.start, Nested) else None
    return ChildInfo(spec.id, spec.kind, spec.restart, "down", supervisor=nested)


def _below(child: ChildInfo) -> str:
    """Return the lines below a child that is a supervisor."""
    if not isinstance(child.supervisor, Tree):
        return ""
    return child.supervisor.render().partition("\n")[2]
