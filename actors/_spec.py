"""How one child is started, stopped and started again; and the check of such specs before anything runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

from shoal.actors._actor import Actor
from shoal.actors._life import Nested
from shoal.actors._restarts import Backoff
from shoal.errors import ChildSpecInvalid

Restart = Literal["permanent", "transient", "temporary"]
AutoShutdown = Literal["never", "any_significant", "all_significant"]
Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]

WORKER_SHUTDOWN_S = 5.0
WITHIN_S = 5.0
MAX_MAIL = 1000


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How one child is started, stopped and started again.

    Args:
        id: Unique in its supervisor; part of the child's path, so without `/`.
        start: Called anew for each start, with nothing. An `Actor` class, a function that returns an actor, an async
            function, or a supervisor. An actor is ready when its `on_start` returns; an async function that takes
            `task_status` when it calls `task_status.started(info)`, any other when its task first runs; a supervisor
            when all its children are.
        restart: `permanent` (always started again), `transient` (not after a clean end) or `temporary` (never).
        shutdown_s: Seconds it has to end once it was told to, then it is killed; 0 kills at once, `math.inf` waits.
            `None` is 5 for actors and functions, and no limit for supervisors.
        significant: Whether its own end counts for its supervisor's `auto_shutdown`.
        max_restarts: A budget of its own: this many restarts within `within_s`, and with one more the child ends while
            its siblings go on. Its restarts then do not count for its supervisor. `None` for no own budget.
        within_s: Seconds of the own budget's window; `None` is 5.
        backoff: Delay between restarts; `None` for the supervisor's.
        max_mail: How many letters the mailbox of an actor holds.
        redeliver: Whether a message whose handling was cut short by a crash or a restart comes back first.

    Raises:
        ChildSpecInvalid: It could not be started as it is.
    """

    id: str
    start: Callable[..., Any] | Nested
    _: KW_ONLY
    restart: Restart = "permanent"
    shutdown_s: float | None = None
    significant: bool = False
    max_restarts: int | None = None
    within_s: float | None = None
    backoff: Backoff | None = None
    max_mail: int = MAX_MAIL
    redeliver: bool = False
    takes_status: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise ChildSpecInvalid(f"child spec {self.id!r}: {problem}", child=str(self.id))
        object.__setattr__(self, "takes_status", not isinstance(self.start, Nested) and _takes_status(self.start))

    @property
    def kind(self) -> Literal["worker", "supervisor"]:
        """What the child is, as far as that is known before it starts."""
        return "supervisor" if isinstance(self.start, Nested) else "worker"

    @property
    def grace_s(self) -> float:
        """`shutdown_s`, or what stands for it where that is `None`."""
        if self.shutdown_s is not None:
            return self.shutdown_s
        return math.inf if isinstance(self.start, Nested) else WORKER_SHUTDOWN_S

    def filled_in(self) -> ChildSpec:
        """Return this with every default written out."""
        within_s = WITHIN_S if self.max_restarts is not None and self.within_s is None else self.within_s
        return replace(self, shutdown_s=self.grace_s, within_s=within_s)

    def instance(self, child_id: str, arguments: tuple[Any, ...]) -> ChildSpec:
        """Return this as the spec of one child that is made from it, with *arguments* of its own."""
        assert not isinstance(self.start, Nested)
        return replace(self, id=child_id, start=partial(self.start, *arguments) if arguments else self.start)


@dataclass(frozen=True, slots=True)
class Worker(ChildSpec):
    """A supervised async function; a `ChildSpec` whose `start` is one. See there for the arguments."""

    start: Callable[..., Awaitable[object]]

    def __post_init__(self) -> None:
        if isinstance(self.start, type | Nested):
            raise ChildSpecInvalid(
                f"worker {self.id!r} was given {self.start!r}; give an async function, or use `ChildSpec`",
                child=self.id,
            )
        ChildSpec.__post_init__(self)


Child = ChildSpec | Nested
"""What stands in a supervisor's `children`; a supervisor stands there as itself, under its name, `permanent`."""


def check_childspecs(children: Iterable[Child], *, auto_shutdown: AutoShutdown = "never") -> tuple[ChildSpec, ...]:
    """Check what is to stand in one supervisor, without starting anything.

    Args:
        children: n specs and supervisors, in start order.
        auto_shutdown: That of the supervisor.

    Returns:
        n specs, in the same order; a supervisor has become the spec it stands for.

    Raises:
        ChildSpecInvalid: An id stands there twice, or a child is significant where no end of a child counts.
    """
    specs = tuple(as_spec(child) for child in children)
    seen: set[str] = set()
    for spec in specs:
        if spec.id in seen:
            raise ChildSpecInvalid(
                f"the id {spec.id!r} stands there twice; ids are unique in a supervisor", child=spec.id
            )
        seen.add(spec.id)
        if spec.significant and auto_shutdown == "never":
            raise ChildSpecInvalid(
                f"child {spec.id!r} is significant where `auto_shutdown` is 'never'; set that, or drop `significant`",
                child=spec.id,
            )
    return specs


def as_spec(child: object) -> ChildSpec:
    """Return the spec that *child* stands for.

    Raises:
        ChildSpecInvalid: It stands for none.
    """
    if isinstance(child, Nested):
        return ChildSpec(child.name, child)
    if not isinstance(child, ChildSpec):
        raise ChildSpecInvalid(f"{child!r} is no child; give a `ChildSpec`, a `Worker` or a supervisor")
    return child


def name_problem(name: object) -> str | None:
    """Return what is wrong with *name* as a part of a path, or `None`."""
    if isinstance(name, str) and name and "/" not in name:
        return None
    return "it is a part of a path; give a string that is not empty and has no `/`"


def _problem(spec: ChildSpec) -> str | None:
    """Return what is wrong with *spec* on its own, or `None`."""
    shutdown_s, max_restarts, within_s = spec.shutdown_s, spec.max_restarts, spec.within_s
    if problem := name_problem(spec.id):
        return f"as an id, {problem}"
    if not _can_start(spec.start):
        return f"`start` is {spec.start!r}; give an actor class, an async function or a supervisor"
    if spec.restart not in get_args(Restart):
        return f"`restart` is {spec.restart!r}; take one of {', '.join(map(repr, get_args(Restart)))}"
    if spec.significant and spec.restart == "permanent":
        return "`significant` is for a child that can end; make this one 'transient' or 'temporary'"
    if shutdown_s is not None and not shutdown_s >= 0:
        return f"`shutdown_s` is {shutdown_s!r}; give seconds, 0 or more, `math.inf` for no limit"
    if max_restarts is None and within_s is not None:
        return "`within_s` is the window of `max_restarts`, which is not set; set both or none"
    budget = budget_problem(max_restarts, WITHIN_S if within_s is None else within_s)
    return budget or count_problem("max_mail", spec.max_mail)


def budget_problem(max_restarts: object, within_s: float) -> str | None:
    """Return what is wrong with a budget of restarts, or `None`."""
    if max_restarts is not None and not (isinstance(max_restarts, int) and max_restarts >= 0):
        return f"`max_restarts` is {max_restarts!r}; give a whole number, 0 or more, or `None`"
    if not 0 < within_s < math.inf:
        return f"`within_s` is {within_s!r}; give finite seconds above 0"
    return None


def count_problem(name: str, value: object) -> str | None:
    """Return what is wrong with *value* as the setting *name*, a number of things, or `None`."""
    if isinstance(value, int) and value >= 1:
        return None
    return f"`{name}` is {value!r}; give a whole number, 1 or more"


def _takes_status(start: Any) -> bool:
    """Say whether *start* has a parameter `task_status`."""
    if _makes_actors(start):
        return False
    code = getattr(getattr(start, "__func__", start), "__code__", None)
    if code is not None and not hasattr(start, "__wrapped__"):
        # Ten times faster than a signature, and this is on the way of every spawn.
        return "task_status" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        parameter = inspect.signature(start).parameters.get("task_status")
    except (TypeError, ValueError):  # a callable without a signature, some of those in C
        return False
    return parameter is not None


def _makes_actors(start: object) -> bool:
    return isinstance(start, type) and issubclass(start, Actor)


def _can_start(start: object) -> bool:
    return callable(start) or isinstance(start, Nested)
