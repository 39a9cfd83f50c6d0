"""`shoal resume`: goes on with runs that were interrupted or are paused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter

import shoal
from shoal._environment import providers_from
from shoal.blueprints import load, resolve
from shoal.cli._allowed import (
    AllowOption,
    AttendedOption,
    CostOption,
    MemoryOption,
    NoSeedCommandsOption,
    TokensOption,
    WallOption,
    YesOption,
    budget_of,
    memory_folder,
    permissions_of,
)
from shoal.cli._hosted import Hosting, host, person_at
from shoal.cli._places import JournalOption, JsonOption, RunArgument, blueprint_of, run_reader
from shoal.cli._progress import Progress
from shoal.cli._steer import steer, tell
from shoal.cli._summary import conclude
from shoal.errors import RunOwned
from shoal.runtime import BudgetGiven, Run


def command(
    run: RunArgument,
    /,
    *,
    allow: AllowOption = (),
    yes: YesOption = False,
    no_seed_commands: NoSeedCommandsOption = False,
    attended: AttendedOption = None,
    max_cost_usd: CostOption = None,
    max_tokens: TokensOption = None,
    max_wall_s: WallOption = None,
    blueprint: Annotated[
        str | None,
        Parameter(name="--blueprint", help="A changed blueprint that the run goes on with: a path, or a name."),
    ] = None,
    memory: MemoryOption = None,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Go on with a run that was interrupted or is paused, and with the tree it belongs to."""
    budget = budget_of(max_cost_usd, max_tokens, max_wall_s)
    with run_reader(run, journal) as (reader, row):
        path, root = reader.path, row.root
        changed = None if blueprint is None else load(resolve(blueprint))
        granted = blueprint_of(reader, root) if changed is None or root != row.run_id else changed
        permissions = permissions_of(granted, allow, yes=yes, no_seed_commands=no_seed_commands)
        owner = reader.owners().get(row.run_id)
    if owner is not None:
        if changed is not None:
            raise RunOwned(
                f"run {row.run_id} is hosted by {owner}, which goes on with what it is made of; end that process first",
                run_id=row.run_id,
            )
        if row.status != "paused":
            raise RunOwned(f"run {row.run_id} is hosted by {owner} and goes on there already", run_id=row.run_id)
        return _let_go_on(row.run_id, path, budget, as_json=as_json)

    async def begin(swarm: shoal.Swarm, progress: Progress) -> Run:
        for each in swarm.journal.runs(root=root):
            progress.replay(swarm.journal.read(each.run_id))
        await swarm.resume_tree(row.run_id, budget=budget, blueprint=blueprint)
        return swarm.get(root)

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


def _let_go_on(run_id: str, path: Path, budget: BudgetGiven | None, *, as_json: bool) -> int:
    """Tell the process that hosts a paused run to let it go on."""

    async def resume(live: Run) -> None:
        await live.resume(budget=budget)

    return tell(*steer(run_id, path, resume), "goes on", as_json=as_json)
