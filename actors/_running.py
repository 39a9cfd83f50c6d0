"""The top of a tree: what its tasks run in, and where its failures come out."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, cast, final

import anyio

from shoal.actors._clock import Clock, LoopClock
from shoal.actors._events import Observer
from shoal.actors._kernel import Kernel
from shoal.actors._life import Life
from shoal.actors._reason import SHUTDOWN, Reason, crash
from shoal.actors._tree import Tree
from shoal.errors import StartFailed

TreeT = TypeVar("TreeT", bound=Tree)


@asynccontextmanager
async def running(
    tree: TreeT,
    *,
    clock: Clock | None = None,
    draw: Callable[[], float] = random.random,
    observer: Observer | None = None,
    shutdown_s: float = math.inf,
) -> AsyncGenerator[TreeT, None]:
    """Keep *tree* running for as long as the body of `async with` does.

    Leaving the body stops the children in reverse order, each by its shutdown rule, also where the body is cancelled or
    raises. A child that was killed and does not end (a thread, a shield) holds the exit up until it does: no task is
    left behind. Where the tree gives up, the body is cancelled.

    The tasks of the tree run in the context (`contextvars`) that is current here.

    Args:
        tree: A supervisor; it may run again afterwards.
        clock: Where deadlines, delays and windows take their time from; `None` is the event loop.
        draw: Returns a random number from 0 up to 1, for the jitter of a `Backoff`.
        observer: Called on the event loop with each supervision event. It must not raise: its error ends the tree.
        shutdown_s: Seconds that the whole tree has to stop; then what is left is killed.

    Yields:
        The tree, as soon as all its children are up.

    Raises:
        StartFailed: A child did not come up; those before it were stopped.
        RestartsExhausted: The tree gave up; with the history.
    """
    top = _Top(tree, shutdown_s)
    error: BaseException | None = None
    async with anyio.create_task_group() as host:
        host.start_soon(top.serve, clock, draw, observer)
        try:
            await top.up.wait()
            with top.body:
                if top.started:
                    try:
                        yield tree
                    except (Exception, KeyboardInterrupt, SystemExit) as exc:  # noqa: BLE001 - raised again below,
                        error = exc  # outside of the group that would wrap it
                    except BaseExceptionGroup as group:
                        # Such as Ctrl-C inside of a task group of the body. A cancel is its scope's to see first.
                        if group.subgroup(anyio.get_cancelled_exc_class()) is not None:
                            raise
                        error = cast("BaseException", group)
        finally:
            top.stop()
    failure = top.failure()
    if failure is not None:
        if error is not None and error is not failure:
            failure.add_note(f"the body of `running` raised as well: {error!r}")
            failure.__context__ = error
        raise failure
    if error is not None:
        raise error


@final
class _Top:
    """What stands above the topmost supervisor.

    Args:
        tree: That supervisor.
        shutdown_s: Seconds it has to stop.
    """

    def __init__(self, tree: Tree, shutdown_s: float) -> None:
        self.up = anyio.Event()
        self.started = False
        self.body = anyio.CancelScope()
        self._tree = tree
        self._shutdown_s = shutdown_s
        self._life: Life | None = None
        self._kernel: Kernel | None = None
        self._reason: Reason | None = None
        self._stopping = False

    async def serve(self, clock: Clock | None, draw: Callable[[], float], observer: Observer | None) -> None:
        """Run the tree until it is over, and then for as long as orphans run."""
        # Whoever cancels the caller stops the tree in order, through `stop`; its specs say how long that may take.
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as timing:
                async with anyio.create_task_group() as tasks:
                    kernel = self._kernel = Kernel(
                        tasks, clock=clock or LoopClock(), draw=draw, observer=observer, stop=self.stop
                    )
                    timing.start_soon(_keep_time, kernel)
                    self._reason = await self._live(kernel)
                    self._over()
                # Time goes on for as long as orphans run, since somebody may wait for their answers.
                timing.cancel_scope.cancel()
            # Again, for where the tasks were torn down.
            self._over()

    def _over(self) -> None:
        if self.failure() is not None:
            self.body.cancel()
        self.up.set()

    async def _live(self, kernel: Kernel) -> Reason:
        name = self._tree.name
        try:
            life = self._life = self._tree.born(kernel, None, f"/{name}", name, self._shutdown_s)
        except StartFailed as exc:
            return crash(exc)
        if self._stopping:
            self.stop()
        kernel.tasks.start_soon(life.run, name=life.path)
        try:
            await life.settled()
            if life.up_at is not None:
                self.started = True
                self.up.set()
            await life.over()
        finally:
            self._tree.gone(life.reason)
        return life.reason

    def stop(self) -> None:
        """Stop the tree in order."""
        self._stopping = True
        if self._life is not None:
            self._life.end(SHUTDOWN)

    def failure(self) -> BaseException | None:
        """Return what went wrong with the tree; `None` where nothing did."""
        if self._kernel is not None and self._kernel.fatal is not None:
            return self._kernel.fatal
        return None if self._reason is None else self._reason.error


async def _keep_time(kernel: Kernel) -> None:
    try:
        await kernel.timers.run()
    except Exception as exc:  # noqa: BLE001 - not hidden: `running` raises it
        # The clock does not work, so nothing in the tree would end in time: no orderly stop.
        kernel.fail(exc)
        kernel.tasks.cancel_scope.cancel()
