"""OTP's decisions about children, as pure functions: who is started again, who is dragged along, when it is all over.

Source: the reference page of OTP's `supervisor` (OTP 27).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile
from typing import Literal

from shoal.actors._reason import Reason
from shoal.actors._spec import AutoShutdown, Restart, Strategy

Verdict = Literal["restart", "keep", "remove"]


def verdict(restart: Restart, reason: Reason) -> Verdict:
    """Return what becomes of a child that ended by itself: started again, kept without a process, or removed."""
    if restart == "temporary":
        return "remove"
    if restart == "transient" and reason.clean:
        return "keep"
    return "restart"


def is_error(restart: Restart, reason: Reason) -> bool:
    """Say whether the end of a child by itself is reported as an error; for a permanent one each end is."""
    return restart == "permanent" or not reason.clean


def is_shutdown_error(restart: Restart, reason: Reason, *, brutal: bool) -> bool:
    """Say whether a child that its supervisor stopped ended otherwise than it should.

    Args:
        restart: Its restart type.
        reason: What it ended with.
        brutal: Whether it was killed without being asked.
    """
    if brutal and reason.kind == "killed":
        return False
    if reason.kind == "normal":
        return restart == "permanent"
    # A permanent child may end with the bare reason only, as OTP has it.
    return reason.kind != "shutdown" or (restart == "permanent" and reason.detail is not None)


def group(strategy: Strategy, ids: Iterable[str], failed: str) -> tuple[str, ...]:
    """Return which of *ids* (n, in start order) a restart of *failed* stops and starts, *failed* included, in order."""
    if strategy == "one_for_one":
        return (failed,)
    if strategy == "one_for_all":
        return tuple(ids)
    return tuple(dropwhile(lambda child_id: child_id != failed, ids))


def ends_supervisor(auto_shutdown: AutoShutdown, *, others_up: bool) -> bool:
    """Say whether the end of a significant child by itself, which is not started again, ends its supervisor.

    Args:
        auto_shutdown: The supervisor's setting.
        others_up: Whether another significant child still runs or waits for its restart.
    """
    return auto_shutdown == "any_significant" or (auto_shutdown == "all_significant" and not others_up)
