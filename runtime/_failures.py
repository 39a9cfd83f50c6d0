"""What a model reads of something that failed."""

from __future__ import annotations

from shoal.errors import ShoalError


def failure_text(exc: Exception) -> str:
    """Return what a model reads of an exception: what it is and what it says."""
    said = str(exc).strip()
    kind = "" if isinstance(exc, ShoalError) else f"{type(exc).__name__}: "
    return f"{kind}{said}" if said else type(exc).__name__
