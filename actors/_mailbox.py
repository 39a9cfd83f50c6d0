"""A mailbox: what was sent to an actor and not yet read, whichever incarnation of the actor is up."""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from typing import Any, Protocol, final

import anyio

from shoal.actors._kernel import Kernel
from shoal.actors._reason import Reason
from shoal.errors import AskTimeout, MailboxClosed, MailboxError, MailboxFull


class Owned(Protocol):
    """What ends with the incarnation that made it: a timer, a monitor."""

    def cancel(self) -> object:
        """Take it back."""
        ...


class Watcher(Protocol):
    """What is told when a mailbox closes."""

    def down(self, reason: Reason) -> None:
        """Act on the end; called on the loop, must not raise."""
        ...


class Incarnation(Protocol):
    """One life of a child, from a start to the end that follows; as its mailbox and its actor see it."""

    owned: set[Owned] | None
    ending: bool
    """Whether it was told to end, by a stop that cancels what it does."""
    leaving: bool
    """Whether it asked to end by itself, after the message at hand."""
    at_hand: object
    """The message whose handling was cut short, or `NOTHING`."""

    @property
    def box(self) -> Mailbox | None:
        """Its mailbox; `None` where it has none."""
        ...

    def leave(self) -> None:
        """End with `normal` after the message at hand."""
        ...

    def quit(self) -> None:
        """End with `normal` now."""
        ...

    async def over(self) -> None:
        """Return once it has ended."""
        ...


NOTHING = object()

# What all empty mailboxes share: a deque takes 760 bytes, and most actors are idle. Nothing is ever put into it.
_EMPTY: deque[Any] = deque(maxlen=0)

CURRENT: ContextVar[Incarnation | None] = ContextVar("shoal_actors_current", default=None)
"""The incarnation in whose task, or in whose tasks' tasks, the code runs."""


@final
class Asked:
    """A message whose sender waits for the answer."""

    __slots__ = ("answered", "box", "error", "message", "reply", "timeout_s")

    def __init__(self, box: Mailbox, message: object, timeout_s: float) -> None:
        self.box = box
        self.message = message
        self.timeout_s = timeout_s
        self.answered: anyio.Event | None = box.kernel.new_event()
        self.reply: Any = None
        self.error: MailboxError | None = None

    def answer(self, reply: object) -> None:
        """Wake the sender with *reply*; too late, it is dropped."""
        event = self.answered
        if event is not None:
            self.answered = None
            self.reply = reply
            event.set()

    def refuse(self, error: MailboxError) -> None:
        """Wake the sender with *error*."""
        event = self.answered
        if event is not None:
            self.answered = None
            self.error = error
            event.set()

    def due(self) -> None:
        """The deadline came first."""
        path = self.box.path
        self.refuse(
            AskTimeout(
                f"{path!r} did not answer {type(self.message).__qualname__!r} within {self.timeout_s!r} s; "
                "it may still handle it: give a longer `timeout_s`, or look at what holds the actor up",
                path=path,
                timeout_s=self.timeout_s,
            )
        )


@final
class Parcel:
    """A message whose sender waits for room."""

    __slots__ = ("error", "message", "moved")

    def __init__(self, message: object, moved: anyio.Event) -> None:
        self.message = message
        self.moved = moved
        self.error: MailboxError | None = None

    def refuse(self, error: MailboxError) -> None:
        """Wake the sender with *error*."""
        self.error = error
        self.moved.set()


@final
class Mailbox:
    """A bounded inbox. It outlives the restarts of its actor and closes when the actor ends for good.

    Invariant: something stands in `waiting` only while `letters` is full, so nobody overtakes those who wait.

    Args:
        kernel: What the tree shares.
        path: Where the actor stands in its tree.
        max_mail: How many letters it holds, 1 or more.
    """

    __slots__ = (
        "__weakref__",
        "capacity",
        "closed",
        "held",
        "incoming",
        "kernel",
        "letters",
        "life",
        "path",
        "paused",
        "resumed",
        "waiting",
        "wake",
        "watchers",
    )

    def __init__(self, kernel: Kernel, path: str, max_mail: int) -> None:
        self.kernel = kernel
        self.path = path
        self.capacity = max_mail
        self.letters = _EMPTY
        # Made when needed: an idle actor is to cost little.
        self.waiting: deque[Any] | None = None
        self.watchers: dict[Watcher, None] | None = None
        self.incoming: set[Owned] | None = None
        self.wake: anyio.Event | None = None
        self.resumed: anyio.Event | None = None
        self.life: Incarnation | None = None
        self.paused = False
        # Whether the reader has to look at more than its letters: it is paused, or is to end.
        self.held = False
        self.closed: Reason | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "paused" if self.paused else "open"
        return f"<Mailbox {self.path!r} {state}, {len(self)} of {self.capacity}>"

    def __len__(self) -> int:
        return len(self.letters) + len(self.waiting or ())

    # --- writing

    def put(self, item: object) -> bool:
        """Take *item* where there is room, wake the reader, and say whether there was."""
        letters = self.letters
        if len(letters) >= self.capacity:
            return False
        if letters is _EMPTY:
            self.letters = deque((item,))
        else:
            letters.append(item)
        wake = self.wake
        if wake is not None:
            self.wake = None
            wake.set()
        return True

    def post(self, item: object) -> None:
        """Take *item*, behind all that wait for room where there is none.

        Raises:
            MailboxClosed: The actor ended.
        """
        if not self.put(item):
            if self.closed is not None:
                raise self.closed_error()
            if self.waiting is None:
                self.waiting = deque()
            self.waiting.append(item)

    def withdraw(self, item: object) -> None:
        """Take back *item* if it still waits for room."""
        # By identity: what else waits there are the users' messages, and what `==` does to those is theirs.
        waiting = self.waiting or deque()
        for place, other in enumerate(waiting):
            if other is item:
                del waiting[place]
                return

    # --- reading

    def admit(self, waiting: deque[Any]) -> None:
        """Let the first of those who wait take the place of the letter that was just read."""
        item = waiting.popleft()
        if type(item) is Parcel:
            self.letters.append(item.message)
            item.moved.set()
        else:
            self.letters.append(item)
        if not waiting:
            self.waiting = None

    def rest(self, life: Incarnation) -> anyio.Event:
        """Return what the reader waits on, now that there is no letter for it; it then looks for `letters` anew."""
        event: anyio.Event = self.kernel.new_event()
        if life.ending:
            return event  # it is cancelled already and waits for just that; another one may read here by now
        if not self.letters:
            self.letters = _EMPTY
        if self.paused:
            self.resumed = event
        else:
            self.wake = event
        return event

    def give_back(self, item: object) -> None:
        """Put *item* where it is read next; it was read before and not handled."""
        self.letters = deque((item, *self.letters))

    def fork(self) -> None:
        """Leave a reader that cannot be ended with an empty mailbox, and keep the letters for the next one."""
        letters, self.letters = self.letters, deque(self.letters)
        letters.clear()

    def pause(self) -> None:
        """Have the reader take no letter after the one at hand."""
        self.paused = self.held = True

    def resume(self) -> None:
        """Have the reader take letters again, unless it is to end."""
        self.paused = False
        self.held = self.life is not None and (self.life.ending or self.life.leaving)
        self.nudge()

    def nudge(self) -> None:
        """Have the reader look at its state."""
        for event in (self.wake, self.resumed):
            if event is not None:
                event.set()
        self.wake = self.resumed = None

    # --- the end

    def watch(self, watcher: Watcher) -> None:
        """Have *watcher* told of the end."""
        if self.watchers is None:
            self.watchers = {}
        self.watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> bool:
        """Tell *watcher* no more, and say whether it was to be told."""
        if self.watchers is None or watcher not in self.watchers:
            return False
        del self.watchers[watcher]
        return True

    def close(self, reason: Reason) -> int:
        """Take no mail from now on, and tell everybody who waits.

        Returns:
            How many messages nobody will read; askers and waiting senders were told and do not count.
        """
        self.closed = reason
        self.capacity = 0
        left = [*self.letters, *(self.waiting or ())]
        self.letters.clear()  # in place: an orphan may come back to look for one
        self.waiting = None
        lost = 0
        for item in left:
            if type(item) is Asked or type(item) is Parcel:
                item.refuse(self.closed_error())
            else:
                lost += 1
        for timer in tuple(self.incoming or ()):
            timer.cancel()
        watchers, self.watchers = self.watchers, None
        for watcher in watchers or ():
            watcher.down(reason)
        return lost

    def closed_error(self) -> MailboxClosed:
        """Return the error for those who come too late."""
        why = f"{self.path!r} takes no mail, it ended ({self.closed}); look it up again or start it"
        return MailboxClosed(why, path=self.path)

    def full_error(self, hint: str) -> MailboxFull:
        """Return the error for a message that found no room."""
        return MailboxFull(f"{self.path!r} holds {len(self)!r} letters and has no room; {hint}", path=self.path)
