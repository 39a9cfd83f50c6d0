"""What functions raise, kept so that the same is raised when they come to that place again."""

from __future__ import annotations

import builtins
from typing import cast

from shoal import errors
from shoal.errors import JournalFailed, ReplayMismatch, RunFailed
from shoal.runtime._live import Late


def fault_of(error: Exception) -> tuple[str, str]:
    """Return class and message of *error*; raise it where it is not the function's own.

    Raises:
        Late, JournalFailed, ReplayMismatch: It is one of these, or a group that holds one.
    """
    if _ends_all(error):
        raise error
    return type(error).__name__, str(error)


def revived(name: str, message: str) -> Exception:
    """Return the exception of that class with that message: one of Shoal's or Python's own, else `RunFailed`."""
    found = getattr(errors, name, None) or getattr(builtins, name, None)
    if (
        isinstance(found, type)
        and issubclass(found, Exception)
        and not issubclass(found, UnicodeError | ExceptionGroup)
    ):
        return found(message)
    return RunFailed(f"{name}: {message}" if message else name)


def _ends_all(error: Exception) -> bool:
    """Say whether a life is over by *error*: nothing may be written any more, or the function does not repeat."""
    if isinstance(error, ExceptionGroup):
        return any(_ends_all(each) for each in cast("ExceptionGroup[Exception]", error).exceptions)
    return isinstance(error, Late | JournalFailed | ReplayMismatch)
