"""The supervisor whose children come and go while it runs."""

from __future__ import annotations

from functools import partial
from typing import Any, final

from shoal.actors import _calls as calls
from shoal.actors._engine import Engine
from shoal.actors._life import Nested
from shoal.actors._plan import Plan
from shoal.actors._restarts import Backoff
from shoal.actors._spec import (
    WITHIN_S,
    AutoShutdown,
    ChildSpec,
    as_spec,
    check_childspecs,
    count_problem,
)
from shoal.actors._tree import Tree, check_settings
from shoal.errors import ChildSpecInvalid, SupervisorError


@final
class DynamicSupervisor(Tree):
    """Takes children while it runs, which have nothing to do with each other; a child that ends leaves nothing.

    Each failure restarts that child alone. On its end all children are told at once, each with its own time.

    Without a `template` each child comes with its own spec. With one, all are made from it, each with arguments of its
    own (OTP's `simple_one_for_one`); all then have one shared deadline on the end.

    Args:
        name: Its name, the last part of its path.
        template: The spec that all children are made from; `None` where each brings its own.
        max_children: How many children it takes, 1 or more; `None` for any number.
        max_restarts: Restarts of all children within `within_s` that are allowed. `None` for any number.
        within_s: Seconds of that window.
        auto_shutdown: Whether the own end of `significant` children ends it: of any, or of all.
        backoff: Delay between restarts; `None` for none.

    Raises:
        ChildSpecInvalid: It could not be started as it is.
    """

    def __init__(
        self,
        name: str,
        *,
        template: ChildSpec | None = None,
        max_children: int | None = None,
        max_restarts: int | None = 1,
        within_s: float = WITHIN_S,
        auto_shutdown: AutoShutdown = "never",
        backoff: Backoff | None = None,
    ) -> None:
        check_settings(name, max_restarts, within_s, auto_shutdown)
        if max_children is not None and (problem := count_problem("max_children", max_children)):
            raise ChildSpecInvalid(f"supervisor {name!r}: {problem}, or `None`")
        if template is not None:
            check_childspecs([template], auto_shutdown=auto_shutdown)
            if isinstance(template.start, Nested):
                raise ChildSpecInvalid(
                    f"supervisor {name!r}: the template is the supervisor {template.id!r}, of which there is one; give "
                    "an actor class or a function, or start each supervisor with a spec of its own",
                    child=template.id,
                )
        self._template = template
        self._made = 0
        super().__init__(
            Plan(
                name,
                max_restarts=max_restarts,
                within_s=within_s,
                auto_shutdown=auto_shutdown,
                backoff=backoff,
                max_children=max_children,
                dynamic=True,
            )
        )

    async def start_child(self, *child: Any, key: str | None = None) -> Any:
        """Start a child and wait until it is up.

        A call that is cancelled while the child starts does not stop the start.

        Args:
            *child: Without a template one spec or supervisor. With one what its `start` is called with, each time.
            key: The id of a child made from a template; `None` counts them up.

        Returns:
            The `Ref` of an actor, the supervisor itself, what a function called `task_status.started` with, or `None`.

        Raises:
            AlreadyStarted: A child of that id runs.
            TooManyChildren: `max_children` is reached.
            StartFailed: It did not come up; the cause is in `__cause__`.
            ChildSpecInvalid: It does not fit here.
            SupervisorStopped: The supervisor does not run.
        """
        engine = self._running()
        (spec,) = check_childspecs([self._spec(engine, child, key)], auto_shutdown=self._plan.auto_shutdown)
        return await engine.call(partial(calls.start_child, spec=spec))

    async def restart_child(self, child_id: str) -> Any:
        """Refuse: a child that has no process is not there any more.

        Raises:
            SupervisorError: Always.
        """
        raise self._refusal("restart_child", child_id)

    async def delete_child(self, child_id: str) -> None:
        """Refuse: a child that has no process is not there any more.

        Raises:
            SupervisorError: Always.
        """
        raise self._refusal("delete_child", child_id)

    def _spec(self, engine: Engine, child: tuple[Any, ...], key: str | None) -> ChildSpec:
        template = self._template
        if template is not None:
            if key is None:
                key = self._next_key(template, engine)
            return template.instance(key, child)
        if len(child) != 1 or key is not None:
            raise ChildSpecInvalid(f"supervisor {self.name!r} has no template: give one spec, whose `id` is the key")
        return as_spec(child[0])

    def _next_key(self, template: ChildSpec, engine: Engine) -> str:
        while True:
            self._made += 1
            key = f"{template.id}-{self._made}"
            if key not in engine.records:
                return key

    def _refusal(self, call: str, child_id: str) -> SupervisorError:
        why = f"a dynamic supervisor keeps no child without a process, so `{call}` has none; use `start_child`"
        return SupervisorError(why, supervisor=self.name, child=child_id)
