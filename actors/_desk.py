"""What lies on a supervisor's desk: children that ended, and letters, which are calls and its own retries."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, final

import anyio

from shoal.actors._life import Life
from shoal.actors._plan import Retry
from shoal.errors import ShoalError, SupervisorStopped


@final
class Call:
    """A call that waits for its answer.

    Args:
        op: What it asks for, run in the supervisor's task.
        done: Set once it is answered.
    """

    __slots__ = ("abandoned", "done", "error", "op", "result")

    def __init__(self, op: Callable[[], Awaitable[Any]], done: anyio.Event) -> None:
        self.op = op
        self.done = done
        self.abandoned = False
        self.result: Any = None
        self.error: ShoalError | None = None


@final
class Desk:
    """Where a supervisor finds what to do next.

    Args:
        new_event: Makes the events that it waits on.
        stopped: Makes the error for calls that come too late.
    """

    def __init__(self, new_event: Callable[[], anyio.Event], stopped: Callable[[], SupervisorStopped]) -> None:
        self.exits: deque[Life] = deque()
        self.letters: deque[Call | Retry] = deque()
        self.closed = False
        self._new_event = new_event
        self._stopped = stopped
        self._wake: anyio.Event | None = None

    def __repr__(self) -> str:
        return f"<Desk with {len(self.exits)} exits and {len(self.letters)} letters>"

    def exit(self, life: Life) -> None:
        """Put down that *life* is over."""
        self.exits.append(life)
        self._nudge()

    def post(self, letter: Call | Retry) -> None:
        """Put down *letter*."""
        self.letters.append(letter)
        self._nudge()

    async def wait(self) -> None:
        """Return once something was put down."""
        self._wake = self._new_event()
        await self._wake.wait()

    async def call(self, op: Callable[[], Awaitable[Any]]) -> Any:
        """Have the supervisor do *op* when it gets to it, and return what that returns.

        Raises:
            SupervisorStopped: It ends, or has ended.
        """
        if self.closed:
            raise self._stopped()
        call = Call(op, self._new_event())
        self.post(call)
        try:
            await call.done.wait()
        finally:
            call.abandoned = True
        if call.error is not None:
            raise call.error
        return call.result

    async def answer(self, call: Call) -> None:
        """Do what *call* asks for, unless its caller has gone."""
        if call.abandoned:
            return
        call.error = self._stopped()  # unless it gets to an end
        try:
            call.result = await call.op()
            call.error = None
        except ShoalError as exc:
            call.error = exc
        finally:
            call.done.set()

    async def answer_calls(self) -> None:
        """Answer the calls that are there; retries wait until the step they come in between is done."""
        for _ in range(len(self.letters)):
            letter = self.letters.popleft()
            if isinstance(letter, Call):
                await self.answer(letter)
            else:
                self.letters.append(letter)

    def close(self) -> None:
        """Refuse the calls that are there and those to come."""
        self.closed = True
        while self.letters:
            letter = self.letters.popleft()
            if isinstance(letter, Call):
                letter.error = self._stopped()
                letter.done.set()

    def _nudge(self) -> None:
        if self._wake is not None:
            self._wake.set()
