"""The supervisor whose children are named beforehand and depend on each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, final, get_args

from shoal.actors import _calls as calls
from shoal.actors._plan import Plan
from shoal.actors._restarts import Backoff
from shoal.actors._spec import (
    WITHIN_S,
    AutoShutdown,
    Child,
    Strategy,
    check_childspecs,
)
from shoal.actors._tree import Tree, check_settings
from shoal.errors import ChildSpecInvalid


@final
class Supervisor(Tree):
    """Starts its children in order, watches them, starts them again when they fail, and stops them in reverse order.

    It is a value while a tree is written down, and stands in another supervisor's `children` as itself; the same object
    is the handle of the tree that runs. Restarts work as in OTP.

    Args:
        name: Its name, the last part of its path.
        strategy: `one_for_one` (a failure restarts the child alone), `one_for_all` (all children) or `rest_for_one`
            (the child and those started after it).
        max_restarts: Restarts within `within_s` that are allowed; with one more it stops its children and ends with
            `shutdown`. `None` for any number.
        within_s: Seconds of that window.
        children: n specs, in start order; a bare supervisor is `permanent` and has no limit for its stop. Wrap it in a
            `ChildSpec` for anything else.
        auto_shutdown: Whether the own end of `significant` children ends it: of any, or of all.
        backoff: Delay between restarts; `None` for none, as in OTP.

    Raises:
        ChildSpecInvalid: It could not be started as it is.
    """

    def __init__(
        self,
        name: str,
        *,
        strategy: Strategy = "one_for_one",
        max_restarts: int | None = 1,
        within_s: float = WITHIN_S,
        children: Sequence[Child] = (),
        auto_shutdown: AutoShutdown = "never",
        backoff: Backoff | None = None,
    ) -> None:
        check_settings(name, max_restarts, within_s, auto_shutdown)
        if strategy not in get_args(Strategy):
            known = ", ".join(map(repr, get_args(Strategy)))
            raise ChildSpecInvalid(f"supervisor {name!r}: `strategy` is {strategy!r}; take one of {known}")
        specs = check_childspecs(children, auto_shutdown=auto_shutdown)
        super().__init__(Plan(name, specs, strategy, max_restarts, within_s, auto_shutdown, backoff))

    async def start_child(self, child: Child) -> Any:
        """Add *child* at the end of the start order, start it, and wait until it is up.

        A call that is cancelled while the child starts does not stop the start.

        Returns:
            The `Ref` of an actor, the supervisor itself, what a function called `task_status.started` with, or `None`.

        Raises:
            AlreadyStarted: A child of that id runs.
            AlreadyPresent: A child of that id is there, without a process.
            StartFailed: It did not come up, and is not kept; the cause is in `__cause__`.
            ChildSpecInvalid: It does not fit here.
            SupervisorStopped: The supervisor does not run.
        """
        (spec,) = check_childspecs([child], auto_shutdown=self._plan.auto_shutdown)
        return await self._running().call(partial(calls.start_child, spec=spec))

    async def restart_child(self, child_id: str) -> Any:
        """Start a child that has no process. It does not count as a restart.

        Returns:
            What `start_child` returns.

        Raises:
            ChildNotFound: There is no such child.
            ChildRunning: It has a process.
            ChildRestarting: It is between two tries.
            StartFailed: It did not come up; its spec stays.
            SupervisorStopped: The supervisor does not run.
        """
        return await self._running().call(partial(calls.restart_child, child_id=child_id))

    async def delete_child(self, child_id: str) -> None:
        """Forget a child that has no process.

        Raises:
            ChildNotFound: There is no such child.
            ChildRunning: It has a process.
            ChildRestarting: It is between two tries.
            SupervisorStopped: The supervisor does not run.
        """
        await self._running().call(partial(calls.delete_child, child_id=child_id))
