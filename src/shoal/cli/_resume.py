"""`shoal resume`: goes on with runs that were interrupted or are paused."""

from __future__ import annotations

import anyio

import shoal
from shoal._environment import providers_from
from shoal.cli._allowed import AllowOption, permissions_of
from shoal.cli._hosted import Hosting, host
from shoal.cli._places import JournalOption, JsonOption, RunArgument, program_of, run_reader
from shoal.cli._progress import Progress
from shoal.cli._summary import conclude
from shoal.runtime import Run


def command(
    run: RunArgument,
    /,
    *,
    allow: AllowOption = (),
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Go on with a run that was interrupted or is paused, and with the tree it belongs to."""
    with run_reader(run, journal) as (reader, row):
        path, root = reader.path, row.root
        permissions = permissions_of(program_of(reader, root).blueprint, allow)

    async def begin(swarm: shoal.Swarm, progress: Progress) -> Run:
        for each in swarm.journal.runs(root=root):
            progress.replay(swarm.journal.read(each.run_id))
        return await swarm.resume_tree(root)

    hosting = Hosting(path, providers_from(), permissions, as_json=as_json)
    return conclude(hosting, anyio.run(host, hosting, begin))
