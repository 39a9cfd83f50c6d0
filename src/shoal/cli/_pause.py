"""`shoal pause`: lets a run and all below it finish what they are in the middle of, and wait."""

from __future__ import annotations

from shoal.cli._places import JournalOption, JsonOption, RunArgument
from shoal.cli._steer import ReasonOption, steer, tell
from shoal.runtime import Run


def command(
    run: RunArgument, /, *, reason: ReasonOption = None, journal: JournalOption = None, as_json: JsonOption = False
) -> int:
    """Let a run and all below it finish what they are in the middle of, and wait."""

    async def pause(live: Run) -> None:
        await (live.pause() if reason is None else live.pause(reason))

    return tell(*steer(run, journal, pause), "is paused", as_json=as_json)
