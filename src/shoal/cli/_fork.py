"""`shoal fork`: lets a copy of a run go on from any of its events."""

from __future__ import annotations

from typing import Annotated

import anyio
from cyclopts import Parameter

import shoal
from shoal._environment import providers_from
from shoal.cli._allowed import AllowOption, AttendedOption, MemoryOption, YesOption, memory_folder, permissions_of
from shoal.cli._hosted import Hosting, host, person_at
from shoal.cli._places import JournalOption, JsonOption, RunArgument, blueprint_of, run_reader
from shoal.cli._progress import Progress
from shoal.cli._summary import conclude
from shoal.runtime import Run


def command(
    run: RunArgument,
    /,
    *,
    at: Annotated[int | None, Parameter(name="--at", help="Seq of the last event that counts.")] = None,
    allow: AllowOption = (),
    yes: YesOption = False,
    attended: AttendedOption = None,
    memory: MemoryOption = None,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Copy a run up to one of its events, and go on with the copy; the run stays as it is."""
    with run_reader(run, journal) as (reader, row):
        path, run_id = reader.path, row.run_id
        permissions = permissions_of(blueprint_of(reader, run_id), allow, yes=yes)

    async def begin(swarm: shoal.Swarm, progress: Progress) -> Run:
        fork = await swarm.fork(run_id, at=at)
        for each in swarm.journal.runs(root=fork.run_id):
            progress.replay(swarm.journal.read(each.run_id))
        return fork

    person = person_at(attended=attended, as_json=as_json)
    hosting = Hosting(
        path,
        providers_from(),
        permissions,
        memory=memory_folder(memory),
        as_json=as_json,
        person=person,
    )
    return conclude(hosting, anyio.run(host, hosting, begin))
