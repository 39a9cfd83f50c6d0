"""What a model reads of something that failed."""

from __future__ import annotations

from shoal.errors import ShoalError
from shoal.runtime.events import ENDED_WELL, ChildEnded


def failure_text(exc: Exception) -> str:
    """Return what a model reads of an exception: what it is and what it says."""
    said = str(exc).strip()
    kind = "" if isinstance(exc, ShoalError) else f"{type(exc).__name__}: "
    return f"{kind}{said}" if said else type(exc).__name__


def answer_of(ended: ChildEnded) -> str:
    """Return what a model reads of a worker: its answer, or why there is none."""
    if ended.output:
        return str(ended.output)
    refused = ended.status in ENDED_WELL and "replies_refused" in ended.flags
    return without_answer(ended) if refused else first_paragraph(ended.reason)


def without_answer(ended: ChildEnded) -> str:
    """Return what a model reads of a run that ended well and said nothing."""
    refused = ": its model refused to give one" if "replies_refused" in ended.flags else ""
    return f"It gave no answer{refused}."


def first_paragraph(reason: str) -> str:
    """Return what a model reads of why a run ended; behind the first paragraph stands a traceback, for people."""
    return reason.partition("\n\n")[0]
