"""`shoal cancel`: ends a run and all below it."""

from __future__ import annotations

from shoal.cli._places import JournalOption, JsonOption, RunArgument
from shoal.cli._steer import ReasonOption, steer, tell
from shoal.runtime import Run


def command(
    run: RunArgument, /, *, reason: ReasonOption = None, journal: JournalOption = None, as_json: JsonOption = False
) -> int:
    """End a run and all below it."""

    async def cancel(live: Run) -> None:
        await (live.cancel() if reason is None else live.cancel(reason))

    return tell(*steer(run, journal, cancel), "is cancelled", as_json=as_json)
