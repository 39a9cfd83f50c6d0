"""Why an actor or a child ended, and the two exceptions that say so on purpose."""

from __future__ import annotations

from dataclasses import dataclass, field
from traceback import TracebackException
from typing import Literal, cast, final

ReasonKind = Literal["normal", "shutdown", "killed", "crashed"]


class Shutdown(Exception):
    """Raise it in an actor or a child to end with the reason `shutdown`, which is a clean one.

    Args:
        detail: Anything that says more; found again in `Reason.detail`.
    """

    def __init__(self, detail: object = None) -> None:
        super().__init__(detail)
        self.detail = detail


class Ignore(Exception):
    """Raise it while a child starts to say that it has nothing to do: no failure, and no process."""


@final
@dataclass(frozen=True, slots=True)
class Reason:
    """Why something ended.

    Args:
        kind: `normal` (it returned), `shutdown` (it was asked to, or raised `Shutdown`), `killed` (it did not end in
            time, or was given no time) or `crashed` (it raised, or was cancelled by somebody else).
        detail: What `Shutdown` was raised with; `None` where nothing was said.
        error: What was raised; `None` where nothing was. A supervisor that gave up ends with `shutdown` and the
            `RestartsExhausted` here.
        trace: The traceback of *error* as it was, without its frames; `None` without an error.
    """

    kind: ReasonKind
    detail: object = None
    error: BaseException | None = None
    trace: TracebackException | None = field(default=None, repr=False, compare=False)

    @property
    def clean(self) -> bool:
        """Whether this is an end that a `transient` child is not started again after."""
        return self.kind in {"normal", "shutdown"}

    def traceback(self) -> str:
        """Return the traceback of the error as text; empty where nothing was raised."""
        return "" if self.trace is None else "".join(self.trace.format())

    def placed(self) -> str:
        """Return what it says, and where the error was raised if that is known, such as `… in 'boom', app.py:6`."""
        if self.trace is None or not self.trace.stack:
            return str(self)
        frame = self.trace.stack[-1]
        return f"{self} in {frame.name!r}, {frame.filename}:{frame.lineno}"

    def without_error(self) -> Reason:
        """Return this with the error as text only, for those who keep it while somebody else is raised the error."""
        if self.error is None:
            return self
        return Reason(self.kind, detail=repr(self.error), trace=self.trace)

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.kind}: {self.error!r}"
        return self.kind if self.detail is None else f"{self.kind}: {self.detail!r}"


NORMAL = Reason("normal")
SHUTDOWN = Reason("shutdown")
KILLED = Reason("killed")


def crash(error: BaseException) -> Reason:
    """Return the reason of something that raised *error*."""
    return Reason("crashed", error=error, trace=TracebackException.from_exception(error, lookup_lines=False))


def drop_frames(error: BaseException | None) -> None:
    """Take the tracebacks off *error* and all it came from: their frames would keep ended actors alive in a history.

    `Reason.trace` keeps the lines. (Clearing the frames instead would close coroutines that are still suspended in one
    of them, which happens where several tasks were raised the same exception object.)
    """
    seen: set[int] = set()
    todo = [error]
    while todo:
        exc = todo.pop()
        if exc is None or id(exc) in seen:
            continue
        seen.add(id(exc))
        exc.__traceback__ = None
        todo += [exc.__cause__, exc.__context__]
        if isinstance(exc, BaseExceptionGroup):
            todo += cast("BaseExceptionGroup[BaseException]", exc).exceptions
