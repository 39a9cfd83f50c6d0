"""Seeds of checklists: an open item a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from runkit import TALK, TASK, blueprint, run_once, stage, swarm_of, system_text, write_files

from shoal.blueprints import CallerSeed, FilesSeed, Region, Seed
from shoal.errors import SpawnRefused
from shoal.testing import ScriptedProvider, request_json

pytestmark = pytest.mark.anyio


def listing(seed: Seed, max_tokens: int = 500) -> Region:
    return Region("todos", kind="checklist", max_tokens=max_tokens, seed=seed)


async def shown(region: Region, **more: object) -> str:
    provider = ScriptedProvider(["done"])
    await run_once(blueprint(stage(), regions=(TASK, TALK, region)), provider, **more)  # type: ignore[arg-type]
    return system_text(request_json(provider.requests[0]))


async def test_a_file_gives_an_item_for_each_line_and_none_for_its_name(tmp_path: Path):
    write_files(tmp_path, {"plan.md": "read\n\n  write  \n"})
    text = await shown(listing(FilesSeed(("plan.md",))), workdir=tmp_path)
    assert "## todos\n2 open, 0 closed\n[ ] 1 read\n[ ] 2 write" in text


async def test_a_file_with_more_lines_than_fit_gives_the_first_ones(tmp_path: Path):
    write_files(tmp_path, {"plan.md": "\n".join(f"item number {n} of many" for n in range(50))})
    text = await shown(listing(FilesSeed(("plan.md",)), max_tokens=40), workdir=tmp_path)
    assert "5 open, 0 closed" in text
    assert "[cut" not in text


async def test_the_callers_own_lines_refuse_the_spawn_where_they_do_not_all_fit():
    made = blueprint(stage(), regions=(TASK, TALK, listing(CallerSeed("todos"), max_tokens=18)))
    async with swarm_of(ScriptedProvider(["done"])) as swarm:
        with pytest.raises(SpawnRefused, match="the seed of region 'todos' does not fit: `todos` is full"):
            await swarm.spawn(made, task="x", seeds={"todos": "one thing\nand another thing\nand a third thing"})
