"""What a model reads of something that failed."""

from __future__ import annotations

from shoal.errors import ShoalError


def failure_text(exc: Exception) -> str:
    """Return what a model reads of an exception: what it is and what it says."""
    said = str(exc).strip()
    kind = "" if isinstance(exc, ShoalError) else f"{type(exc).__name__}: "
    return f"{kind}{said}" if said else type(exc).__name__


def first_paragraph(reason: str) -> str:
    """Return what a model reads of why a run ended; behind the first paragraph stands a traceback, for people."""
    return reason.partition("\n\n")[0]
