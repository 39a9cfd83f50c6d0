"""The limits of runs, each with its default; a swarm is given its own."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar, final

from shoal.errors import ConfigInvalid
from shoal.runtime.scripts import ScriptLimits


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What runs of one swarm may do at most.

    Args:
        max_iterations: Inferences in one visit of a stage that sets none.
        max_calls_per_turn: Tool calls of one reply that are run; the rest get an error that says so.
        max_child_depth: Levels of children below a root.
        tool_threads: Threads that block for tools at once, over all runs.
        tool_calls: Tool calls that run at once, over all runs.
        inferences: Requests in flight to one provider.
        read_bytes: Most bytes that one file read gives.
        list_entries: Most names that one listing gives.
        seed_bytes: Most bytes that one seed file may have.
        edit_bytes: Largest file that is edited.
        part_bytes: Largest stored part.
        result_bytes: Longest text of a tool's result; what is longer is stored as a part, and its beginning is shown.
        commands: Shell lines that run at once, over all runs.
        command_timeout_s: Seconds that a shell line may take.
        command_bytes: Most bytes that are kept of each of its two streams; the rest is counted.
        scripts: What one call of a script may use.
        request_timeout_s: Seconds for one attempt of a request.
        mailbox: Messages that a run's mailbox holds.
        shutdown_s: Seconds that a run gets to stop.
        idle_s: Seconds after which a run that has only to wait leaves memory; `None` for never.
        question_s: Seconds after which a question to a person counts as unanswered; `None` waits for ever.
        point_rounds: How often an interaction point may send its stage back before it lets it go.
        asks: How often a stage is asked again for what it owes.
        nudges: How often a stage is asked again after a reply without a tool call.
        output_bytes: Longest output; what is longer is cut.

    Raises:
        ConfigInvalid: One of them is no such number.
    """

    MAY_BE_NONE: ClassVar[frozenset[str]] = frozenset({"idle_s", "question_s"})
    """Names of limits that may be `None`."""
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"asks", "max_child_depth", "nudges", "point_rounds"})
    """Names of limits that may be 0."""

    max_iterations: int = 50
    max_calls_per_turn: int = 64
    max_child_depth: int = 3
    tool_threads: int = 8
    tool_calls: int = 64
    inferences: int = 64
    read_bytes: int = 256 * 1024
    list_entries: int = 2_000
    seed_bytes: int = 8 * 1024 * 1024
    edit_bytes: int = 8 * 1024 * 1024
    part_bytes: int = 32 * 1024 * 1024
    result_bytes: int = 1024 * 1024
    commands: int = 16
    command_timeout_s: float = 60.0
    command_bytes: int = 1024 * 1024
    scripts: ScriptLimits = field(default_factory=ScriptLimits)
    request_timeout_s: float = 900.0
    mailbox: int = 256
    shutdown_s: float = 5.0
    idle_s: float | None = 60.0
    question_s: float | None = 3600.0
    point_rounds: int = 4
    asks: int = 3
    nudges: int = 3
    output_bytes: int = 256 * 1024

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "scripts" or (value is None and each.name in self.MAY_BE_NONE):
                continue
            whole = each.type == "int"
            number: float = -1
            if isinstance(value, int if whole else int | float) and not isinstance(value, bool):
                number = value
            zero = each.name in self.MAY_BE_ZERO
            if not (number >= 0 if zero else number > 0):
                least = "0 or more" if zero else "above 0"
                never = ", or `None` for never" if each.name in self.MAY_BE_NONE else ""
                kind = "whole number" if whole else "number"
                raise ConfigInvalid(f"the limit `{each.name}` is {value!r}; give a {kind} {least}{never}")
