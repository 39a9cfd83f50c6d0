"""One life of a child: its task, and the way to its end, which is the same for actors, functions and supervisors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Literal, Protocol, final

import anyio

from shoal.actors._kernel import Kernel
from shoal.actors._mailbox import CURRENT, NOTHING, Mailbox, Owned
from shoal.actors._reason import KILLED, NORMAL, Ignore, Reason, Shutdown, crash
from shoal.actors._timers import Table

LifeState = Literal["starting", "running", "stopping", "ended", "orphan"]

# How long a killed task is waited for. Python cannot kill one: a shield or a thread may hold it for longer.
KILL_S = 1.0

_TORN = Reason("crashed", detail="its task was torn down")


class Boss(Protocol):
    """Who started a life, and is told of its end."""

    life: Life | None
    """The life of the boss itself."""

    def ended(self, life: Life) -> None:
        """It is over."""
        ...

    def orphaned(self, life: Life) -> None:
        """It was killed, did not end, and is no longer waited for."""
        ...

    def orphan_ended(self, life: Life) -> None:
        """An orphan is over after all."""
        ...


class Nested(ABC):
    """A supervisor as its parent sees it: a child that is made of children."""

    name: str

    @abstractmethod
    def born(self, kernel: Kernel, boss: Boss | None, path: str, child_id: str, grace_s: float) -> Life:
        """Return a new life of it, that is yet to run."""

    @abstractmethod
    def gone(self, reason: Reason) -> None:
        """Take note that whoever started it will not start it again."""


class Life(ABC):
    """One life of a child. Its end goes by two scopes: the work's, and the last rites' (`on_stop`, stopping children).

    Told to end, it has the first cancelled and is given time; then it is killed, which cancels the second; what still
    runs `kill_s` later is an orphan. Its own timer drives that, so whoever waits for the end need not count.

    Args:
        kernel: What the tree shares.
        boss: Who is told of the end; `None` at the top.
        path: Where it stands in the tree.
        child_id: Its id in its supervisor.
        grace_s: Seconds it has to end; `math.inf` for no limit.
    """

    __slots__ = (
        "_changed",
        "_last",
        "_ordered",
        "_table",
        "_work",
        "at_hand",
        "boss",
        "box",
        "child_id",
        "ending",
        "grace_s",
        "info",
        "kernel",
        "killed",
        "leaving",
        "owned",
        "path",
        "reason",
        "state",
        "up_at",
    )

    kill_s = KILL_S

    def __init__(self, kernel: Kernel, boss: Boss | None, path: str, child_id: str, grace_s: float) -> None:
        self.kernel = kernel
        self.boss = boss
        self.path = path
        self.child_id = child_id
        self.grace_s = grace_s
        self.state: LifeState = "starting"
        self.reason = _TORN
        self.info: object = None
        self.up_at: float | None = None
        self.ending = False
        self.leaving = False
        self.killed = False
        self.box: Mailbox | None = None
        self.owned: set[Owned] | None = None
        self.at_hand: object = NOTHING
        self._ordered = NORMAL
        self._work = anyio.CancelScope()
        self._last: anyio.CancelScope | None = None
        self._table: Table | None = None
        self._changed: anyio.Event | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r} {self.state}>"

    @abstractmethod
    async def serve(self) -> None:
        """Come up, and do what it is for."""

    @abstractmethod
    def hand_back(self) -> None:
        """See to the message whose handling was cut short, if there is one."""

    @abstractmethod
    async def conclude(self) -> None:
        """Do the last rites, once `reason` says how `serve` ended."""

    async def run(self) -> None:
        """Be the task of this life. No error leaves it: the others in the group are none of its business."""
        CURRENT.set(self)
        try:
            with Contained(self, self._work) as end:
                if self.ending:
                    await self.kernel.checkpoint()  # told to end before it began: cancelled here
                await self.serve()
            self.reason = end.reason
            self.hand_back()
            await self.conclude()
        except (KeyboardInterrupt, SystemExit, BaseExceptionGroup) as exc:
            self.reason = crash(exc)
            self.kernel.fail(exc)
        finally:
            self.hand_back()
            self._finish()

    # --- what it does itself

    def ready(self, info: object) -> None:
        """Have come up, with *info* for whoever started it."""
        self.info = info
        self.up_at = self.kernel.now()
        self._turn("running")

    def last_rites(self) -> Contained:
        """Return what the last rites are done in: what is left of the time to end; they are cut short after it."""
        if not self.ending:
            self.ending = True
            self._limit(self.grace_s)
        self._turn("stopping")
        self._last = anyio.CancelScope()
        if self.killed:
            self._last.cancel()
        return Contained(self, self._last)

    @property
    def ordered(self) -> Reason:
        """What it ends with where it does as it is told."""
        return self._ordered

    # --- what others do to it

    def leave(self) -> None:
        """End with `normal` after the message at hand."""
        assert self.box is not None  # only actors leave
        self.leaving = self.box.held = True
        self.box.nudge()

    def quit(self) -> None:
        """End with `normal` now."""
        if self.grace_s <= 0:
            self.kill(NORMAL)
        else:
            self.end(NORMAL)

    def end(self, reason: Reason) -> None:
        """Tell it to end, with *reason* where it does as it is told; where it ends already, its own clock goes on."""
        if self.grace_s <= 0:
            self.kill()
        elif not self.ending and self.state != "ended":
            self._cut(reason, self.grace_s)

    def kill(self, reason: Reason = KILLED) -> None:
        """Cancel what it does, the last rites too, and wait for it no longer than `kill_s`."""
        if not self.killed and self.state != "ended":
            self.killed = True
            self._cut(reason, self.kill_s)
            if self._last is not None:
                self._last.cancel()

    def due(self) -> None:
        """Time is up; called by the timers."""
        if not self.killed:
            self.kill()
        else:
            if self.reason is _TORN or self.reason.clean:
                self.reason = KILLED
            self._disown()
            self._turn("orphan")
            assert self.boss is not None  # at the top is a supervisor, and none of those becomes an orphan
            self.boss.orphaned(self)

    async def settled(self) -> None:
        """Return once it is up, or over without having been."""
        while self.up_at is None and self.state not in {"ended", "orphan"}:
            await self._change()

    async def over(self) -> None:
        """Return once it has ended, or is an orphan."""
        while self.state not in {"ended", "orphan"}:
            await self._change()

    # --- inside

    def _cut(self, reason: Reason, grace_s: float) -> None:
        self.ending = True
        self._ordered = reason
        if self.box is not None:
            self.box.held = True
        self._limit(grace_s)
        self._work.cancel()

    def _limit(self, delay_s: float) -> None:
        if self._table is not None:
            self._table.pop(self, None)
        self._table = self.kernel.timers.add(delay_s, self) if delay_s < math.inf else None

    def _disown(self) -> None:
        for thing in tuple(self.owned or ()):
            thing.cancel()

    def _turn(self, state: LifeState) -> None:
        self.state = state
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = self.kernel.new_event()
        await self._changed.wait()

    def _finish(self) -> None:
        if self._table is not None:
            self._table.pop(self, None)
        self._disown()
        orphan = self.state == "orphan"
        self._turn("ended")
        if self.boss is None:
            return
        if orphan:
            self.boss.orphan_ended(self)
        else:
            self.boss.ended(self)


@final
class Contained:
    """Runs what it encloses in a cancel scope, lets nothing out, and says in `reason` how it ended.

    A context manager and no function around a coroutine, since each level of those costs an idle actor 250 bytes.

    Args:
        life: Whose work it is.
        scope: What is cancelled to cut it short.
    """

    __slots__ = ("_life", "_scope", "reason")

    def __init__(self, life: Life, scope: anyio.CancelScope) -> None:
        self._life = life
        self._scope = scope
        self.reason = _TORN

    def __enter__(self) -> Contained:
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            if not self._scope.__exit__(kind, error, trace) and error is not None:
                raise error  # noqa: TRY301 - sorted by the clauses below, with what the scope itself may raise
        except Shutdown as exc:
            self.reason = Reason("shutdown", detail=exc.detail)
        except Exception as exc:  # noqa: BLE001 - not hidden: it is the reason of the exit that the supervisor acts on
            self.reason = crash(exc)
        except anyio.get_cancelled_exc_class() as exc:
            # Not by our scope, so by somebody who reached for the task: an abnormal exit, and this task ends with it.
            if self._life.kernel.tasks.cancel_scope.cancel_called:
                raise
            self.reason = crash(exc)
        else:
            self.reason = self._life.ordered if self._scope.cancelled_caught else NORMAL
        return True


def is_ignore(reason: Reason) -> bool:
    """Say whether *reason* is that of a child that had nothing to do."""
    return isinstance(reason.error, Ignore)
