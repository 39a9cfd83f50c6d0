"""What a supervisor tells of its children."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

from shoal.actors._reason import Reason

EventKind = Literal[
    "started",
    "ignored",
    "start_failed",
    "exited",
    "restarting",
    "gave_up",
    "auto_shutdown",
    "stopped",
    "shutdown_error",
    "orphaned",
    "orphan_ended",
    "mail_lost",
]


@final
@dataclass(frozen=True, slots=True)
class SupervisionEvent:
    """One thing that happened to one child.

    Args:
        at: When, in seconds of the tree's clock.
        kind: `started`; `ignored` (it had nothing to do); `start_failed`; `exited` (by itself); `restarting` (it will
            be started again in `delay_s`); `gave_up` (one restart more than the budget allows); `auto_shutdown` (its
            end stops the supervisor); `stopped` (by its supervisor); `shutdown_error` (it was stopped, and did not end
            as it should); `orphaned` (it was killed and still runs); `orphan_ended`; `mail_lost` (its mailbox closed
            with mail in it).
        supervisor: Path of the supervisor.
        child: Id of the child.
        reason: Why it ended or did not start; `None` where neither is meant.
        attempt: Which restart in a row this is, 1 or more; 0 where none is meant.
        delay_s: Seconds until the restart, 0 or more.
        error: Whether this is to be reported as an error. The clean end of a `permanent` child is one.
        lost: How many messages nobody will read any more; askers and waiting senders were told and do not count.
    """

    at: float
    kind: EventKind
    supervisor: str
    child: str
    reason: Reason | None = None
    attempt: int = 0
    delay_s: float = 0.0
    error: bool = False
    lost: int = 0

    def __str__(self) -> str:
        parts = [f"{self.at:.3f} {self.supervisor}/{self.child} {self.kind}"]
        if self.attempt:
            parts.append(f"attempt {self.attempt} in {self.delay_s:g} s")
        if self.reason is not None:
            parts.append(str(self.reason))
        return ", ".join(parts)


Observer = Callable[[SupervisionEvent], None]
