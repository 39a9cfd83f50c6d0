"""What a user prefers: it leads the lists of stages, stands in the journal, and holds for the life of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from runkit import blueprint, events_of, stage, swarm_of

from shoal.blueprints import Blueprint, Edge, ModelChoice, ModelSettings
from shoal.errors import ConfigInvalid, ProviderRefused
from shoal.runtime import Context, Swarm, agentic
from shoal.runtime.journal import MemoryJournal
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

BOTH = ModelSettings((ModelChoice("one"), ModelChoice("two")))


def providers(*said: Any, late: float = 0.0) -> tuple[ScriptedProvider, ScriptedProvider]:
    """Return the providers `one` and `two`, each of which says *said*, the first of it after *late* seconds."""
    lines = said or ("done",) * 4
    titled = {"titling": "T"}
    return (
        ScriptedProvider(Say(lines[0], delay_s=late), *lines[1:], name="one", purposes=titled),
        ScriptedProvider(Say(lines[0], delay_s=late), *lines[1:], name="two", purposes=titled),
    )


def served(model: ModelSettings | None = BOTH) -> Blueprint:
    """Return a blueprint of two stages that *model* serves."""
    return blueprint(
        replace(stage("first", transitions=(Edge("second"),)), model=model),
        replace(stage("second", transitions=()), model=model),
    )


def entered(swarm: Swarm, run: Any) -> list[str]:
    """Return who served each stage that the run entered."""
    return [e.payload.provider for e in events_of(swarm, run) if e.kind == "StageEntered"]


async def test_every_stage_is_served_by_what_the_user_prefers():
    async with swarm_of(*providers(), default_model="two") as swarm:
        run = await swarm.spawn(served(), task="x")
        await run.result()
        assert entered(swarm, run) == ["two", "two"]


async def test_a_stage_that_fails_over_goes_back_to_the_blueprints_first():
    one, _ = providers()
    two = ScriptedProvider(ProviderRefused("no", provider="two", model="m"), name="two", purposes={"titling": "T"})
    async with swarm_of(one, two, default_model="two") as swarm:
        run = await swarm.spawn(blueprint(replace(stage(), model=BOTH)), task="x")
        assert (await run.result()).output == "done"
        assert [e.payload.provider for e in events_of(swarm, run) if e.kind == "ModelChanged"] == ["one"]


async def test_a_resumed_run_keeps_what_was_preferred_when_it_was_spawned():
    journal = MemoryJournal()
    async with swarm_of(*providers(late=600.0), journal=journal, default_model="two") as swarm:
        run = await swarm.spawn(served(), task="x")
    async with swarm_of(*providers(), journal=journal, default_model="one") as swarm:
        again = await swarm.resume_tree(run.run_id)
        await again.result()
        assert entered(swarm, again) == ["two", "two"]


async def test_a_run_that_was_spawned_without_a_preference_never_gets_one():
    journal = MemoryJournal()
    async with swarm_of(*providers(late=600.0), journal=journal) as swarm:
        run = await swarm.spawn(served(), task="x")
    async with swarm_of(*providers(), journal=journal, seed=1, default_model="two") as swarm:
        again = await swarm.resume_tree(run.run_id)
        child = await again.spawn(served(), task="y")
        await again.result()
        assert (entered(swarm, again), entered(swarm, child)[:1]) == (["one", "one"], ["one"])


async def test_children_prefer_what_their_parent_does():
    async with swarm_of(*providers(late=600.0), default_model="two") as swarm:
        run = await swarm.spawn(served(), task="x")
        child = await run.spawn(served(None), task="y")
        assert entered(swarm, child) == ["two"]


async def test_the_order_of_models_that_stands_in_code_is_kept():
    @agentic
    async def ask(ctx: Context) -> list[str]:
        """Ask twice."""
        return [await ctx.infer("What?", model=["one:a", "two:b"]), await ctx.infer("And?")]

    one, two = providers("from one")[0], providers("from two")[1]
    async with swarm_of(one, two, default_model="two") as swarm:
        run = await swarm.spawn(ask.bound())
        assert (await run.result()).output == ["from one", "from two"]


async def test_a_swarm_that_prefers_a_provider_it_does_not_have_does_not_open():
    with pytest.raises(ConfigInvalid, match="this swarm has `one`, `two`"):
        async with Swarm(providers(), default_model="three"):
            raise AssertionError
