"""What everything in one running tree shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from shoal.actors._clock import Clock
from shoal.actors._events import Observer, SupervisionEvent
from shoal.actors._timers import Timers


@final
class Kernel:
    """One running tree's task group, time, timers and observer.

    All tasks of a tree live in one group, whatever supervisor they belong to: a supervisor can then end although a
    child that cannot be killed still runs, and the group at the top outlives that child.

    Args:
        tasks: Where every task of the tree runs.
        clock: Where the time comes from.
        draw: Returns a random number from 0 up to 1; for jitter.
        observer: Told of each event; `None` for nobody.
        stop: Asks the whole tree to stop.
    """

    __slots__ = ("_observer", "_stop", "checkpoint", "clock", "draw", "fatal", "new_event", "now", "tasks", "timers")

    def __init__(
        self,
        tasks: TaskGroup,
        *,
        clock: Clock,
        draw: Callable[[], float],
        observer: Observer | None,
        stop: Callable[[], None],
    ) -> None:
        self.tasks = tasks
        self.clock = clock
        self.now = clock.now
        self.timers = Timers(clock)
        self.draw = draw
        # Both looked up once: finding the backend costs more than making the event.
        self.new_event: type[anyio.Event] = type(anyio.Event())
        self.checkpoint = current_token().backend_class.checkpoint
        self.fatal: BaseException | None = None
        self._observer = observer
        self._stop = stop

    def __repr__(self) -> str:
        return f"<Kernel {self.timers!r}{' failing' if self.fatal else ''}>"

    def observe(self, event: SupervisionEvent) -> None:
        """Hand *event* to the observer. One that raises ends the tree: its error comes out of `running`."""
        if self._observer is None:
            return
        try:
            self._observer(event)
        except Exception as exc:  # noqa: BLE001 - not hidden: `running` raises it
            self.fail(exc)

    def fail(self, error: BaseException) -> None:
        """Stop the tree in order; `running` then raises *error*, or the one that came before it."""
        if self.fatal is None:
            self.fatal = error
            self._stop()
