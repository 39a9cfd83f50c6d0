"""The handle of an actor that others hold, and what it gives out: monitors and timers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final, overload

import anyio
from anyio.lowlevel import checkpoint

from shoal.actors._mailbox import CURRENT, Asked, Incarnation, Mailbox, Parcel
from shoal.actors._reason import Reason
from shoal.actors._timers import Table
from shoal.errors import AskedSelf

ReplyT = TypeVar("ReplyT")
ReplyT_co = TypeVar("ReplyT_co", covariant=True)


class Question(Generic[ReplyT_co]):
    """Marks a message by what it is answered with, so that `ask` is typed.

    `class Balance(Question[int])` makes `await ref.ask(Balance())` an `int`. A message without the mark can be asked as
    well; its answer is `Any`.
    """

    __slots__ = ()


@final
@dataclass(frozen=True, slots=True)
class Down:
    """An actor that was monitored has ended.

    Args:
        ref: The actor.
        reason: Why it ended.
    """

    ref: Ref
    reason: Reason


@final
class Monitor:
    """Waits for the end of an actor; made by `Ref.monitor`."""

    __slots__ = ("_down", "_event", "_owner", "_ref", "_watcher")

    def __init__(self, ref: Ref, watcher: Ref | None) -> None:
        self._ref = ref
        self._watcher = watcher
        self._down: Down | None = None
        self._event: anyio.Event | None = None
        box = box_of(ref)
        self._owner = _own(self, box_of(watcher).life if watcher is not None else None)
        if box.closed is not None:
            self.down(box.closed)
        else:
            box.watch(self)

    def __repr__(self) -> str:
        return f"<Monitor of {self._ref.path!r}{', down' if self._down else ''}>"

    def down(self, reason: Reason) -> None:
        """Take note of the end; called by the mailbox that closes."""
        self._down = Down(self._ref, reason)
        if self._event is not None:
            self._event.set()
        _disown(self, self._owner)
        # A watcher that has ended itself wants no mail.
        if self._watcher is not None and box_of(self._watcher).closed is None:
            box_of(self._watcher).post(self._down)

    async def wait(self) -> Down:
        """Return once the actor has ended for good; at once where it has."""
        if self._down is None:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
            assert self._down is not None
        else:
            await checkpoint()
        return self._down

    def cancel(self) -> bool:
        """Stop watching, and say whether the end was still to come."""
        _disown(self, self._owner)
        return box_of(self._ref).unwatch(self)


@final
class Scheduled:
    """A message that will be sent later; made by `Ref.send_after`."""

    __slots__ = ("_box", "_incoming", "_message", "_owner", "_table")

    def __init__(self, box: Mailbox, delay_s: float, message: object) -> None:
        self._box = box
        self._message = message
        self._table: Table | None = box.kernel.timers.add(delay_s, self)
        self._owner = _own(self, CURRENT.get())
        if box.incoming is None:
            box.incoming = set()
        self._incoming = box.incoming
        self._incoming.add(self)

    def __repr__(self) -> str:
        return f"<Scheduled {self._message!r} to {self._box.path!r}{'' if self._table is not None else ', over'}>"

    def due(self) -> None:
        """Send the message; called by the timers. Where the mailbox is full it waits for room like any sender."""
        self._forget()
        self._box.post(self._message)

    def cancel(self) -> bool:
        """Do not send it, and say whether it was still to be sent."""
        table = self._table
        if table is None:
            return False
        table.pop(self, None)
        self._forget()
        return True

    def _forget(self) -> None:
        self._table = None
        _disown(self, self._owner)
        self._incoming.discard(self)


@final
class Ref:
    """The handle of an actor: send it mail, ask it, watch it, stop it.

    It stays good over restarts of its actor, and what is in the mailbox then waits for the next incarnation. It
    promises memory only: mail is gone with the process. It is for code on the tree's event loop, not for other threads.

    `path` says where the actor stands in its tree, such as `/swarm/agents/review-3`.
    """

    __slots__ = ("__weakref__", "_box", "path")

    def __init__(self, box: Mailbox) -> None:
        self._box = box
        self.path = box.path

    def __repr__(self) -> str:
        box = self._box
        if box.closed is not None:
            return f"<Ref {self.path!r} ended ({box.closed})>"
        return f"<Ref {self.path!r} {'paused' if box.paused else 'open'}, {len(box)} letters>"

    async def send(self, message: object) -> None:
        """Put *message* into the mailbox; wait while that is full.

        Messages of one sender are read in the order in which they were sent. With room at hand this does not yield to
        the event loop. A send that is cancelled while it waits may have been delivered.

        Raises:
            MailboxClosed: The actor ended, before or meanwhile.
            MailboxFull: The actor sends to itself and would wait for itself.
        """
        box = self._box
        if not box.put(message):
            await self._send_later(box, message)

    async def _send_later(self, box: Mailbox, message: object) -> None:
        if box.closed is not None:
            raise box.closed_error()
        if _is_current(box):
            raise box.full_error("an actor cannot wait for itself: give it a larger `max_mail`, or keep the message")
        parcel = Parcel(message, box.kernel.new_event())
        box.post(parcel)
        try:
            await parcel.moved.wait()
        finally:
            if not parcel.moved.is_set():
                box.withdraw(parcel)
        if parcel.error is not None:
            raise parcel.error

    def send_nowait(self, message: object) -> None:
        """Put *message* into the mailbox.

        Raises:
            MailboxFull: There is no room; `send` would wait for it.
            MailboxClosed: The actor ended.
        """
        box = self._box
        if not box.put(message):
            if box.closed is not None:
                raise box.closed_error()
            raise box.full_error("wait with `send`, try again later, or set a larger `max_mail`")

    @overload
    async def ask(self, message: Question[ReplyT], *, timeout_s: float = 5.0) -> ReplyT: ...
    @overload
    async def ask(self, message: object, *, timeout_s: float = 5.0) -> Any: ...
    async def ask(self, message: object, *, timeout_s: float = 5.0) -> Any:
        """Send *message* and return what the actor's `receive` returns for it.

        Args:
            message: What to ask.
            timeout_s: Seconds until this gives up, finite; waiting for room in the mailbox counts. OTP's default.

        Raises:
            AskTimeout: No answer came in time; the message may still be handled.
            MailboxClosed: The actor ended, or this message ended its incarnation; the error is then in `__cause__`.
            AskedSelf: The actor asked itself.
            ValueError: *timeout_s* is negative or not finite.
        """
        box = self._box
        current = CURRENT.get()
        if current is not None and current.box is box:
            raise AskedSelf(
                f"{self.path!r} asked itself {type(message).__qualname__!r} and would wait for its own end; "
                "call the method, or `send` it to be handled later",
                path=self.path,
            )
        asked = Asked(box, message, timeout_s)
        table = box.kernel.timers.add(timeout_s, asked)
        event = asked.answered
        assert event is not None
        try:
            if not box.put(asked):
                box.post(asked)
            await event.wait()
        finally:
            table.pop(asked, None)
            if asked.answered is not None or asked.error is not None:
                box.withdraw(asked)
        if asked.error is not None:
            raise asked.error
        return asked.reply

    def send_after(self, delay_s: float, message: object) -> Scheduled:
        """Send *message* in *delay_s* seconds of the tree's clock.

        It dies with its sender: where an actor or a child calls this, its next restart or end takes it back.

        Returns:
            A handle that can be cancelled.

        Raises:
            MailboxClosed: The actor ended.
            ValueError: *delay_s* is negative or not finite.
        """
        if self._box.closed is not None:
            raise self._box.closed_error()
        return Scheduled(self._box, delay_s, message)

    def monitor(self, watcher: Ref | None = None) -> Monitor:
        """Watch for the end of the actor. A restart is no end.

        Args:
            watcher: Who gets one `Down` in its mailbox, whether or not there is room; the monitor dies with this
                incarnation of it. `None` where the caller waits with `Monitor.wait`.
        """
        return Monitor(self, watcher)

    async def stop(self) -> None:
        """End the present incarnation with `normal` and return once it has ended.

        A `receive` that runs is cancelled; then `on_stop` has `shutdown_s`. As in OTP its supervisor starts a
        `permanent` child again: to end one for good, call `terminate_child`.

        Raises:
            AskedSelf: The actor would wait for its own end; it ends with `self.stop()`.
        """
        box = self._box
        if _is_current(box):
            raise AskedSelf(f"{self.path!r} would wait for its own end; call `self.stop()`", path=self.path)
        life = box.life
        if life is None:
            await checkpoint()
            return
        life.quit()
        await life.over()

    def pause(self) -> None:
        """Have the actor handle no ordinary mail after the message at hand, until `resume`; restarts keep it so."""
        self._box.pause()

    def resume(self) -> None:
        """Have a paused actor handle its mail again."""
        self._box.resume()


def box_of(ref: Ref) -> Mailbox:
    """Return the mailbox behind *ref*; for this room only."""
    return ref._box  # pyright: ignore[reportPrivateUsage] - this is its one door


def _is_current(box: Mailbox) -> bool:
    current = CURRENT.get()
    return current is not None and current.box is box


def _own(thing: Monitor | Scheduled, owner: Incarnation | None) -> Incarnation | None:
    if owner is not None:
        if owner.owned is None:
            owner.owned = set()
        owner.owned.add(thing)
    return owner


def _disown(thing: Monitor | Scheduled, owner: Incarnation | None) -> None:
    if owner is not None and owner.owned is not None:
        owner.owned.discard(thing)
