"""The life of an actor or of a supervised function."""

from __future__ import annotations

from inspect import isawaitable
from typing import final

from shoal.actors._actor import Actor, adopt, handle_mail
from shoal.actors._kernel import Kernel
from shoal.actors._life import Boss, Life, Nested
from shoal.actors._mailbox import NOTHING, Asked, Mailbox
from shoal.actors._reason import Reason, crash
from shoal.actors._ref import Ref, box_of
from shoal.actors._spec import ChildSpec
from shoal.errors import MailboxClosed, StartFailed


@final
class Status:
    """What a function that takes `task_status` says it is ready with."""

    __slots__ = ("_life",)

    def __init__(self, life: Life) -> None:
        self._life = life

    def started(self, value: object = None) -> None:
        """Be ready, with *value* for whoever started the child.

        Raises:
            RuntimeError: It was called before.
        """
        if self._life.up_at is not None:
            raise RuntimeError("`task_status.started` was called twice; call it once")
        self._life.ready(value)


@final
class ChildLife(Life):
    """One life of an actor or of a function.

    Args:
        kernel: What the tree shares.
        boss: The supervisor.
        path: Where it stands in the tree.
        spec: How it is started.
        ref: The handle that earlier lives of this child had; `None` where there were none.
    """

    __slots__ = ("_actor", "ref", "spec")

    def __init__(self, kernel: Kernel, boss: Boss, path: str, spec: ChildSpec, ref: Ref | None) -> None:
        super().__init__(kernel, boss, path, spec.id, spec.grace_s)
        self.spec = spec
        self.ref = ref
        self._actor: Actor | None = None

    async def serve(self) -> None:
        """Run the actor or the function."""
        start = self.spec.start
        assert not isinstance(start, Nested)
        made = start(task_status=Status(self)) if self.spec.takes_status else start()
        if isinstance(made, Actor):
            box = self._adopt(made)
            await made.on_start()
            self.ready(self.ref)
            await handle_mail(made, box, self)
        elif isawaitable(made):
            if not self.spec.takes_status:
                self.ready(None)
            await made
            if self.up_at is None:
                raise self._failed(
                    "returned before it called `task_status.started()`; call it once it is ready, or `raise Ignore` "
                    "where there is nothing to do"
                )
        else:
            raise self._failed(
                f"has a `start` that returned {made!r}; give an actor class, a function that returns an actor, or an "
                "async function"
            )

    async def conclude(self) -> None:
        """Have the actor take its leave."""
        reason = self.reason
        actor, self._actor = self._actor, None
        if actor is None:
            return
        assert self.box is not None
        if self.up_at is not None and not self.killed and self.grace_s > 0:
            with self.last_rites() as end:
                await actor.on_stop(reason)
            self.reason = _worst(reason, end.reason)
        if self.box.life is self:
            self.box.life = None

    def _adopt(self, actor: Actor) -> Mailbox:
        if hasattr(actor, "me"):
            raise self._failed(
                f"has a `start` that returned {actor!r}, which has run before; make a new one on each call"
            )
        if self.ref is None:
            self.ref = Ref(Mailbox(self.kernel, self.path, self.spec.max_mail))
        box = self.box = box_of(self.ref)
        if box.life is not None:
            # An orphan of an earlier life still runs; it must find no letter when it comes back to look for one.
            box.fork()
        box.life = self
        box.held = box.paused or self.ending
        adopt(actor, self.ref, self)
        self._actor = actor
        return box

    def _failed(self, why: str) -> StartFailed:
        return StartFailed(f"{self.path!r} {why}", child=self.child_id)

    def hand_back(self) -> None:
        """See to the message whose handling was cut short: it comes back, or whoever asked it is told."""
        item, self.at_hand = self.at_hand, NOTHING
        if item is NOTHING or self.box is None:
            return
        if self.spec.redeliver:
            self.box.give_back(item)
        elif type(item) is Asked:
            error = MailboxClosed(
                f"{self.path!r} ended while it handled {type(item.message).__qualname__!r} ({self.reason}); "
                "ask again where handling it twice does no harm",
                path=self.path,
            )
            error.__cause__ = self.reason.error
            item.refuse(error)


def _worst(work: Reason, rites: Reason) -> Reason:
    """Return why an actor ended whose work and `on_stop` ended so."""
    if rites.kind == "crashed" and work.error is not None:
        assert rites.error is not None
        return crash(BaseExceptionGroup("it crashed, and so did its `on_stop`", [work.error, rites.error]))
    return work if rites.kind in {"normal", "shutdown"} or not work.clean else rites
