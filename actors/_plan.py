"""What a supervisor was built with, and what it keeps of each child while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, final

from shoal.actors._child import ChildLife
from shoal.actors._life import Life, Nested
from shoal.actors._reason import SHUTDOWN, Reason
from shoal.actors._ref import Ref, box_of
from shoal.actors._report import ChildInfo, ChildKind, ChildState, WhichChild
from shoal.actors._restarts import Backoff, RestartWindow
from shoal.actors._spec import WITHIN_S, AutoShutdown, ChildSpec, Strategy
from shoal.actors._timers import Table

Idle = Literal["down", "restarting", "stopped", "finished", "ignored", "gave_up"]


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What a supervisor was built with.

    Args:
        name: Its name.
        children: n specs in start order.
        strategy: Whom a failure drags along.
        max_restarts: Restarts that the window allows; `None` for any number.
        within_s: Seconds of the window.
        auto_shutdown: Whether a child's own end may end the supervisor.
        backoff: Delay between restarts; `None` for none.
        max_children: How many children it takes; `None` for any number.
        dynamic: Whether its children are independent: an ended one leaves nothing, and all are stopped at once.
    """

    name: str
    children: tuple[ChildSpec, ...] = ()
    strategy: Strategy = "one_for_one"
    max_restarts: int | None = 1
    within_s: float = WITHIN_S
    auto_shutdown: AutoShutdown = "never"
    backoff: Backoff | None = None
    max_children: int | None = None
    dynamic: bool = False


@final
class Retry:
    """A restart that is still to come: a letter of the supervisor to itself, so that a stop or a call can overtake it.

    Args:
        post: Puts it among the supervisor's letters.
        record: The child.
        begun: Whether the restart was counted and the group stopped before its delay.
    """

    __slots__ = ("at", "begun", "due", "record", "table")

    def __init__(self, post: Callable[[Retry], None], record: Record, *, begun: bool) -> None:
        self.due = partial(post, self)
        self.record = record
        self.begun = begun
        self.table: Table | None = None
        self.at: float | None = None


@final
class Record:
    """One child of a running supervisor.

    Args:
        spec: How it is started.
        path: Where it stands in the tree.
        ref: The handle that it had in an earlier life of the supervisor; `None` for none.
    """

    __slots__ = ("attempt", "idle", "life", "path", "reason", "ref", "restarts", "retry", "spec", "window")

    def __init__(self, spec: ChildSpec, path: str, ref: Ref | None) -> None:
        self.spec = spec
        self.path = path
        self.ref = ref
        self.life: Life | None = None
        self.idle: Idle = "down"
        self.reason: Reason | None = None
        self.restarts = -1
        self.attempt = 0
        self.retry: Retry | None = None
        self.window: RestartWindow | None = None
        if spec.max_restarts is not None:
            self.window = RestartWindow(spec.max_restarts, WITHIN_S if spec.within_s is None else spec.within_s)

    def __repr__(self) -> str:
        return f"<Record {self.path!r} {self.state}>"

    @property
    def state(self) -> ChildState:
        """What it does now."""
        if self.life is None:
            return self.idle
        # Ended, but the supervisor has not read it yet: nothing else may be started in its place.
        return "running" if self.life.state == "ended" else self.life.state

    @property
    def terminated(self) -> bool:
        """Whether `terminate_child` was called, perhaps while it starts."""
        return self.idle == "stopped"

    @property
    def active(self) -> bool:
        """Whether it has a process, or waits for one."""
        return self.life is not None or self.idle == "restarting"

    @property
    def last(self) -> Reason:
        """Why it last ended; `shutdown` where it did not yet, since then it is its supervisor that ends it."""
        return SHUTDOWN if self.reason is None else self.reason

    @property
    def kind(self) -> ChildKind:
        """What it is."""
        return "actor" if self.ref is not None else self.spec.kind

    def drop_retry(self) -> None:
        """Call off a restart that is still to come."""
        retry, self.retry = self.retry, None
        if retry is not None:
            self.idle = "down"
            if retry.table is not None:
                retry.table.pop(retry, None)

    def close(self, reason: Reason) -> int:
        """Close its mailbox, if it has one, and return how many messages nobody will read."""
        if self.ref is None:
            return 0
        ref, self.ref = self.ref, None
        return box_of(ref).close(reason)

    def info(self, now: float) -> ChildInfo:
        """Return what it is at *now*."""
        up_at = self.life.up_at if self.life is not None else None
        retry_at = self.retry.at if self.retry is not None else None
        return ChildInfo(
            id=self.spec.id,
            kind=self.kind,
            restart=self.spec.restart,
            state=self.state,
            restarts=max(0, self.restarts),
            ref=self.ref,
            supervisor=self.spec.start if isinstance(self.spec.start, Nested) else None,
            reason=self.reason,
            up_s=None if up_at is None else now - up_at,
            retry_in_s=None if retry_at is None else max(0.0, retry_at - now),
        )

    def which(self) -> WhichChild:
        """Return its entry of `which_children`."""
        kind = self.spec.kind
        if self.life is None:
            return WhichChild(self.spec.id, "restarting" if self.idle == "restarting" else None, kind)
        if isinstance(self.life, ChildLife):
            return WhichChild(self.spec.id, self.life.ref or "running", kind)
        assert isinstance(self.spec.start, Nested)
        return WhichChild(self.spec.id, self.spec.start, kind)
