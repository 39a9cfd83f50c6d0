"""The class that users subclass, and the loop that feeds it its mail."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, ClassVar, TypeVar

from shoal.actors._mailbox import NOTHING, Asked, Incarnation, Mailbox
from shoal.actors._reason import Reason
from shoal.actors._ref import Ref
from shoal.errors import UnhandledMessage

Handler = Callable[..., Coroutine[Any, Any, Any]]
_MARK = "__shoal_handles__"

HandlerT = TypeVar("HandlerT", bound=Handler)

# After so many messages in a row the loop gets its turn: a flooded actor must not starve the others.
TURNS = 64


def handles(*types: type) -> Callable[[HandlerT], HandlerT]:
    """Mark a method of an `Actor` as the one for messages of exactly these *types*."""

    def mark(method: HandlerT) -> HandlerT:
        if not types or not iscoroutinefunction(method):
            raise TypeError(f"`handles` marks an `async def` and names its message types; got {method!r} for {types!r}")
        method.__dict__[_MARK] = types
        return method

    return mark


class Actor:
    """State with one mailbox and one task: messages are handled one at a time, so nothing in it needs a lock.

    Subclass it, mark methods with `handles` or override `receive`, and hand the class (or a function that makes one) to
    a `ChildSpec`. Each restart makes a new instance; `me` and the mail outlive it.
    """

    __slots__ = ("__weakref__", "_life", "me")

    _handlers: ClassVar[dict[type, Handler]] = {}

    me: Ref
    """The actor's own handle; there from `on_start` on."""

    _life: Incarnation

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._handlers = _collect(cls)

    async def on_start(self) -> None:
        """Prepare; the actor is ready, and its first mail is read, when this returns. Raising fails the start."""

    async def receive(self, message: Any) -> Any:
        """Handle *message*: by default with the method that is marked for exactly its type.

        Returns:
            The answer, where the message was asked; else it is dropped.

        Raises:
            UnhandledMessage: No method is marked for it.
        """
        handler = self._handlers.get(message.__class__)
        if handler is None:
            known = ", ".join(sorted(f"`{kind.__qualname__}`" for kind in self._handlers)) or "nothing"
            name = message.__class__.__qualname__
            raise UnhandledMessage(
                f"{self.me.path!r} ({type(self).__qualname__}) takes no {name!r}, it takes {known}; mark a method with "
                "`handles`, or override `receive`",
                path=self.me.path,
            )
        return await handler(self, message)

    async def on_stop(self, reason: Reason) -> None:
        """Clean up; called with the reason once `on_start` has returned, whatever the end was.

        It has the child's `shutdown_s` seconds, and is not called where those are 0.
        """

    def stop(self) -> None:
        """End with `normal` once the message at hand is handled."""
        self._life.leave()


def _collect(cls: type[Actor]) -> dict[type, Handler]:
    """Return the handlers of *cls* by message type. A method that overrides a marked one takes over its types."""
    names: dict[type, str] = {}
    for owner in reversed(cls.__mro__):
        own: dict[type, str] = {}
        for name, member in vars(owner).items():
            for kind in getattr(member, _MARK, ()):
                if kind in own:
                    both = f"{own[kind]!r} and {name!r}"
                    raise TypeError(f"{owner.__qualname__!r} handles {kind!r} twice, in {both}; keep one")
                own[kind] = name
        names |= own
    return {kind: getattr(cls, name) for kind, name in names.items()}


def adopt(actor: Actor, ref: Ref, life: Incarnation) -> None:
    """Tell *actor* who it is."""
    actor.me = ref
    actor._life = life  # pyright: ignore[reportPrivateUsage] - nobody but this room sets it


async def handle_mail(actor: Actor, box: Mailbox, life: Incarnation) -> None:
    """Feed *actor* from *box* until it leaves. What it had at hand when it ended otherwise stays in `life.at_hand`."""
    letters = box.letters
    receive = actor.receive
    checkpoint = box.kernel.checkpoint
    turns = TURNS
    item: Any = NOTHING
    try:
        while True:
            if not letters or box.held:
                if life.leaving:
                    return
                await box.rest(life).wait()
                letters = box.letters
                turns = TURNS
                continue
            item = letters.popleft()
            if box.waiting is not None:
                box.admit(box.waiting)
            if type(item) is Asked:
                item.answer(await receive(item.message))
            else:
                await receive(item)
            item = NOTHING
            turns -= 1
            if not turns:
                turns = TURNS
                await checkpoint()
    finally:
        life.at_hand = item
