"""What a child is given of its parent's regions: whole, or fields of it, and where that lands."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from runkit import TALK, TASK, bodies, events_of, payloads, sent, stage, swarm_of, system_text

from shoal.blueprints import (
    Blueprint,
    BlueprintTransform,
    CallerSeed,
    LiteralSeed,
    Nudge,
    Region,
    TransformMapping,
)
from shoal.errors import ProviderRefused, RunEnded, SpawnRefused
from shoal.providers import Request
from shoal.runtime import MemoryJournal, Run, Swarm
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)
TODOS = Region("todos", kind="checklist", max_tokens=500)
FACTS = Region("facts", kind="hashmap", max_tokens=500)
NOTES = Region("notes", max_tokens=100)
BRIEF = Region("brief", kind="pinned", max_tokens=500, seed=CallerSeed("brief"), required=True)


def parent(*mappings: TransformMapping, held: str = "what is known", to: str = "child") -> Blueprint:
    known = Region("known", kind="pinned", max_tokens=2_000, seed=LiteralSeed(held))
    transforms = (BlueprintTransform("parent", to, mappings), BlueprintTransform("other", "child", mappings))
    return Blueprint("parent", (stage(nudge=QUIET),), regions=(TASK, known, TALK), transforms=transforms)


def child(*regions: Region) -> Blueprint:
    return Blueprint("child", (stage(nudge=QUIET),), regions=(TASK, *regions, TALK))


def to(region: str, transform: Any = "direct", *fields: str) -> TransformMapping:
    return TransformMapping("known", region, transform, fields)


def family(summary: Any = "") -> ScriptedProvider:
    """Return a provider whose parent thinks for a while, so that it can have children."""

    def reply(request: Request) -> Any:
        if request.purpose == "compaction":
            return summary
        return Say("done", delay_s=0.0 if "below" in sent(request) else 100.0)

    return ScriptedProvider(script=reply, purposes={"titling": "A title"})


async def born(above: Blueprint, below: Blueprint, **more: Any) -> tuple[str, list[Any]]:
    """Return the system section of a child's first request, and its events."""
    provider = family()
    async with swarm_of(provider) as swarm:
        run: Run = await swarm.spawn(above, task="t")
        made = await run.spawn(below, task="below", **more)
        await made.result()
        events = events_of(swarm, made)
        await run.result()
    [first] = [body for body in bodies(provider) if "below" in str(body)][:1]
    return system_text(first), events


async def test_a_region_is_given_what_a_region_of_the_parent_holds():
    said, events = await born(parent(to("notes")), child(NOTES))
    assert "## notes\nwhat is known" in said
    assert [str(p.text) for p in payloads(events, "EntryWritten") if p.region == "notes"] == ["what is known"]


async def test_a_region_that_takes_a_caller_s_value_takes_it_as_one():
    said, events = await born(parent(to("brief")), child(BRIEF))
    assert "## brief\nwhat is known" in said
    assert dict(events[0].payload.seeds).keys() == {"brief"}


async def test_what_the_caller_gives_wins():
    said, _ = await born(parent(to("brief")), child(BRIEF), seeds={"brief": "the caller's"})
    assert "## brief\nthe caller's" in said


async def test_in_a_hashmap_it_stands_under_the_name_of_its_region():
    said, _ = await born(parent(to("facts")), child(FACTS))
    assert "## facts\n### known\nwhat is known" in said


async def test_of_a_checklist_each_line_is_an_open_item():
    said, _ = await born(parent(to("todos"), held="one\n\ntwo"), child(TODOS))
    assert "2 open, 0 closed\n[ ] 1 one\n[ ] 2 two" in said


async def test_it_stands_behind_what_the_region_is_seeded_with():
    seeded = Region("notes", max_tokens=100, seed=LiteralSeed("its own"))
    said, _ = await born(parent(to("notes")), child(seeded))
    assert "## notes\nits own\n\nwhat is known" in said


async def test_what_does_not_fit_is_cut():
    said, _ = await born(parent(to("notes"), held="x" * 1_000), child(NOTES))
    assert "[cut: about 100 of 250 tokens]" in said


async def test_fields_are_taken_of_what_is_json():
    held = '{"name": "é", "size": 3, "rest": []}'
    said, _ = await born(parent(to("notes", "extract", "size", "name", "missing"), held=held), child(NOTES))
    assert '## notes\n{"size": 3, "name": "é"}' in said


@pytest.mark.parametrize("held", ["no json", "[1]", '{"other": 1}'])
async def test_where_there_is_nothing_to_take_nothing_is_given(held: str):
    said, events = await born(parent(to("notes", "extract", "name"), held=held), child(NOTES))
    assert "## notes" not in said
    assert [p for p in payloads(events, "EntryWritten") if p.region == "notes"] == []


async def test_a_child_may_say_itself_what_it_takes():
    above = parent()
    below = child(NOTES)
    taking = Blueprint(
        "child",
        below.stages,
        regions=below.regions,
        transforms=(BlueprintTransform("parent", "child", (to("notes"),)),),
    )
    said, _ = await born(above, taking)
    assert "## notes\nwhat is known" in said


async def test_a_transform_between_others_gives_nothing():
    said, _ = await born(parent(to("notes"), to="somebody"), child(NOTES))
    assert "## notes" not in said


async def spawned(swarm: Swarm, above: Blueprint, below: Blueprint) -> Run:
    run = await swarm.spawn(above, task="t")
    return await run.spawn(below, task="below")


@pytest.mark.parametrize(
    ("mapping", "why"),
    [
        (to("nowhere"), "names the region 'nowhere', which 'child' does not have"),
        (TransformMapping("nowhere", "notes"), "names the region 'nowhere', which 'parent' does not have"),
    ],
)
async def test_a_region_that_is_not_there_refuses_the_child(mapping: TransformMapping, why: str):
    provider = family()
    async with swarm_of(provider) as swarm:
        with pytest.raises(SpawnRefused, match=why):
            await spawned(swarm, parent(mapping), child(NOTES))


async def test_a_region_that_refuses_it_refuses_the_child():
    full = Region("notes", kind="hashmap", max_tokens=9, admission="reject")
    above = parent(to("notes"), TransformMapping("task", "notes"), held="x" * 36)
    provider = family()
    async with swarm_of(provider) as swarm:
        with pytest.raises(SpawnRefused, match="what 'task' of its parent gives to region 'notes' is refused"):
            await spawned(swarm, above, child(full))


LONG = "One fact. " * 40


def sums_up(said: Any = "in short") -> ScriptedProvider:
    """Return a provider whose compaction lane says *said*."""
    return family(said)


async def summed(provider: ScriptedProvider, *mappings: TransformMapping) -> tuple[str, list[Any], list[Any]]:
    """Return what a child reads of a summary, and the events of its parent and of itself."""
    async with swarm_of(provider) as swarm:
        run: Run = await swarm.spawn(parent(*mappings, held=LONG), task="t")
        made = await run.spawn(child(replace(NOTES, max_tokens=500), FACTS), task="below")
        await made.result()
        below = events_of(swarm, made)
        await run.result()
        above = events_of(swarm, run)
    [first] = [body for body in bodies(provider) if "below" in str(body)][:1]
    return system_text(first), above, below


async def test_a_child_is_given_a_summary_of_a_region_which_its_parent_pays_for():
    said, above, below = await summed(sums_up(), to("notes", "summarize"))
    assert "## notes\nin short" in said
    paid = [[p.purpose for p in payloads(events, "InferenceCompleted")] for events in (above, below)]
    assert paid == [["titling", "compaction", "stage"], ["stage"]]
    assert [(p.region, p.aside) for p in payloads(above, "LaneStarted")][1:] == [("known", True)]


async def test_the_parent_s_own_region_stays_as_it_is():
    provider = sums_up()
    await summed(provider, to("notes", "summarize"))
    [own] = [body for body in bodies(provider) if "below" not in str(body)]
    assert LONG.strip() in system_text(own)


@pytest.mark.parametrize(
    ("said", "reason"), [("  ", "blank"), (LONG * 2, "not_smaller"), (ProviderRefused("no"), "provider")]
)
async def test_where_there_is_no_summary_the_child_is_given_the_region_and_an_event_says_why(said: Any, reason: str):
    read, above, _ = await summed(sums_up(said), to("notes", "summarize"))
    assert LONG.strip() in read
    assert [(p.region, p.reason) for p in payloads(above, "LaneDegraded")] == [("known", reason)]


async def test_children_that_are_given_the_same_share_one_summary():
    provider = sums_up()
    async with swarm_of(provider) as swarm:
        run: Run = await swarm.spawn(parent(to("notes", "summarize"), held=LONG), task="t")
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(partial(run.spawn, child(NOTES), task=f"below {number}"))
        await run.result()
    assert len(bodies(provider, "compaction")) == 1


async def test_two_regions_of_a_child_may_take_the_same_summary():
    provider = sums_up()
    said, _, _ = await summed(provider, to("notes", "summarize"), to("facts", "summarize"))
    assert said.count("in short") == 2
    assert len(bodies(provider, "compaction")) == 1


async def test_a_summary_that_a_dead_process_was_making_is_given_up_and_made_anew_for_the_next_child():
    provider = sums_up()
    journal = MemoryJournal()
    async with swarm_of(ScriptedProvider(script=lambda _: Say("x", delay_s=1e6)), journal=journal) as swarm:
        run: Run = await swarm.spawn(parent(to("notes", "summarize"), held=LONG), task="t")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run.spawn, child(NOTES), task="below"))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    async with swarm_of(provider, journal=journal, seed=1) as swarm:
        run = await swarm.resume_tree(run.run_id)
        made = await run.spawn(child(NOTES), task="below")
        await made.result()
        events = events_of(swarm, run)
        await run.result()
    assert ("known", "interrupted") in [(p.region, p.reason) for p in payloads(events, "LaneDegraded")]
    assert len(bodies(provider, "compaction")) == 1


async def test_a_parent_that_ends_while_its_summary_is_made_has_no_child():
    provider = sums_up(Say("in short", delay_s=1e6))
    async with swarm_of(provider) as swarm:
        run: Run = await swarm.spawn(parent(to("notes", "summarize"), held=LONG), task="t")
        with pytest.raises(RunEnded):
            await run.spawn(child(NOTES), task="below")
        assert len(swarm.runs()) == 1
