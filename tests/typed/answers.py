"""What type checkers know of answers: checked by `make types`, and never run."""

from __future__ import annotations

from typing import assert_type

import shoal
from shoal.runtime import Outcome, Run, SpawnRequest


class Answer:
    """What somebody asks for."""


@shoal.agentic
async def doubled(ctx: shoal.Context, number: int) -> int:
    """Double a number."""
    return 2 * number


async def of_one(swarm: shoal.Swarm) -> None:
    run = await swarm.spawn("digest", returns=Answer)
    assert_type(await run.result(), Outcome[Answer])
    assert_type(await (await swarm.spawn("digest")).result(), "Outcome[str | None]")
    assert_type(await (await swarm.spawn(doubled.bound(3))).result(check=True), Outcome[int])
    assert_type(await shoal.run("digest", returns=Answer), Outcome[Answer])
    assert_type(await shoal.run(doubled.bound(3)), Outcome[int])
    assert_type(swarm.get("01", returns=Answer), Run[Answer])
    assert_type(swarm.run_of("team/lead"), "Run[str | None]")
    assert_type(await swarm.resume_tree("01", returns=Answer), Run[Answer])


async def of_many(swarm: shoal.Swarm, parent: Run) -> None:
    assert_type(await swarm.spawn_many([SpawnRequest("digest", returns=Answer)]), list[Run[Answer]])
    assert_type(await swarm.spawn_many([SpawnRequest("digest")]), "list[Run[str | None]]")
    assert_type(await swarm.spawn_many([SpawnRequest(doubled.bound(number)) for number in range(3)]), list[Run[int]])
    assert_type(await parent.spawn_many([SpawnRequest("digest", returns=Answer)]), list[Run[Answer]])
    assert_type(await parent.spawn("digest", returns=Answer), Run[Answer])
    assert_type(await parent.spawn(doubled.bound(3)), Run[int])


@shoal.agentic
async def of_children(ctx: shoal.Context) -> str:
    """Ask children."""
    typed = await ctx.spawn("digest", returns=Answer)
    assert_type((await typed.result()).output, "Answer | None")
    text = await ctx.spawn("digest")
    assert_type((await text.result()).output, "str | None")
    number = await ctx.spawn(doubled.bound(3))
    assert_type((await number.result()).output, "int | None")
    return ""
