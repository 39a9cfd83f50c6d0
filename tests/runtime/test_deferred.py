"""Tools that stand by name only until the model loads them."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest
from runkit import (
    TALK,
    TASK,
    blueprint,
    bodies,
    edge,
    folded,
    messages,
    payloads,
    run_once,
    stage,
    swarm_of,
    system_text,
)

from shoal.blueprints import Blueprint, Nudge
from shoal.providers import Request
from shoal.runtime import MemoryJournal, tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)


@tool(reads=True, deferred=True)
async def zeta(at: str) -> str:
    """Look far away."""
    return f"saw {at}"


@tool(reads=True)
async def alpha(at: str) -> str:
    """Look close by."""
    return at


def one_stage(*tools: str, **more: Any) -> Blueprint:
    made = stage(available_tools=tools or ("zeta", "alpha"), nudge=QUIET, **more)
    return blueprint(made, regions=(TASK, TALK))


def says(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


async def once(made: Blueprint, provider: ScriptedProvider, **more: Any) -> Any:
    listed = {name for each in made.stages for name in each.available_tools}
    return await run_once(made, provider, tools=[each for each in (zeta, alpha) if each.tool.name in listed], **more)


def offered(provider: ScriptedProvider) -> list[list[str]]:
    requests: list[Request] = [request for request in provider.requests if request.purpose == "stage"]
    return [[spec.name for spec in request.tools.specs] for request in requests]


async def test_a_deferred_tool_stands_by_name_and_not_among_the_schemas():
    provider = says("done")
    await once(one_stage(), provider)
    assert offered(provider) == [["alpha", "load_tools"]]
    assert "<deferred_tools>" in system_text(bodies(provider)[0])
    assert system_text(bodies(provider)[0]).rstrip().endswith("zeta\n</deferred_tools>")


async def test_a_stage_without_deferred_tools_is_told_of_none():
    provider = says("done")
    await once(one_stage("alpha"), provider)
    assert offered(provider) == [["alpha"]]
    assert "deferred" not in system_text(bodies(provider)[0])


async def test_loading_puts_a_schema_behind_all_others_from_the_next_call_on():
    provider = says(call("load_tools", names=["zeta"]), call("zeta", at="x"), "done")
    await once(one_stage("zeta", "alpha", "read_file"), provider)
    assert offered(provider)[1] == ["alpha", "load_tools", "read_file", "zeta"]
    assert messages(bodies(provider)[1])[-1][1] == "You can call `zeta` from your next turn on."
    assert messages(bodies(provider)[2])[-1][1] == "saw x"


async def test_the_catalogue_stays_as_it_was_so_that_the_prefix_does():
    provider = says(call("load_tools", names=["zeta"]), "done")
    await once(one_stage(), provider)
    first, second = (system_text(body) for body in bodies(provider))
    assert first == second


async def test_what_is_not_loaded_is_refused_with_the_way_to_it():
    provider = says(call("zeta", at="x"), "done")
    _, events = await once(one_stage(), provider)
    told = messages(bodies(provider)[1])[-1][1]
    assert told == "[unavailable] `zeta` is not loaded; call `load_tools` with its name, and then it"
    assert [p.gate for p in payloads(events, "ToolCallCompleted")] == ["visibility"]


async def test_loading_twice_changes_nothing():
    provider = says(call("load_tools", names=["zeta"]), call("load_tools", names=["zeta", "zeta"]), "done")
    await once(one_stage(), provider)
    assert offered(provider)[1:] == [["alpha", "load_tools", "zeta"]] * 2


async def test_a_name_that_is_none_is_named_with_those_that_are():
    provider = says(call("load_tools", names=["eta"]), call("load_tools", names=["eta", "zeta"]), "done")
    await once(one_stage(), provider)
    told = [messages(body)[-1][1] for body in bodies(provider)[1:]]
    assert told == [
        "[error] there is no deferred tool 'eta'; there is `zeta`",
        "You can call `zeta` from your next turn on. But there is no deferred tool 'eta'.",
    ]


async def test_what_a_stage_lists_as_deferred_is():
    provider = says(call("load_tools", names=["bash"]), "done")
    await once(one_stage("shell", "alpha", deferred_tools=("bash",)), provider)
    assert offered(provider) == [["alpha", "load_tools"], ["alpha", "load_tools", "shell"]]


async def test_each_stage_loads_for_itself_and_keeps_it_on_re_entry():
    work = {"available_tools": ("zeta",), "nudge": QUIET}
    two = (
        stage("one", **work, max_revisits=1, transitions=(edge("two"),)),
        stage("two", **work, transitions=(edge("one", condition="llm_choice", hint="again"),)),
    )
    provider = ScriptedProvider(
        call("load_tools", names=["zeta"]), "one", "two", "again", "done", purposes={"titling": "A", "routing": "one"}
    )
    await once(blueprint(*two, regions=(TASK, TALK)), provider)
    assert offered(provider)[:4] == [["load_tools"], ["load_tools", "zeta"], ["load_tools"], ["load_tools", "zeta"]]


async def test_the_catalogue_of_one_stage_does_not_stand_in_the_next():
    two = (stage("one", available_tools=("zeta",), nudge=QUIET), stage("two", available_tools=("alpha",), nudge=QUIET))
    provider = says("done", "done")
    await once(blueprint(*two, regions=(TASK, TALK)), provider)
    one, two_said = (system_text(body) for body in bodies(provider))
    assert "<deferred_tools>" in one
    assert "<deferred_tools>" not in two_said


async def test_a_resumed_run_still_has_what_it_had_loaded():
    journal = MemoryJournal()
    made = one_stage()
    first = says(call("load_tools", names=["zeta"]), Say("x", delay_s=1e6))
    async with swarm_of(first, journal=journal) as swarm:
        run = await swarm.spawn(made, task="t", tools=(zeta, alpha))
        async with aclosing(run.events()) as events:
            async for event in events:
                if event.kind == "ToolCallCompleted":
                    break
    second = says("done")
    async with swarm_of(second, journal=journal, seed=1) as swarm:
        run = await swarm.resume_tree(run.run_id, tools=(zeta, alpha))
        await run.result()
        assert folded(swarm, run).loaded == {"work": ("zeta",)}
    assert offered(second) == [["alpha", "load_tools", "zeta"]]


async def test_where_all_stages_share_their_tools_a_loaded_one_may_be_called_in_its_stage():
    provider = says(call("load_tools", names=["zeta"]), call("zeta", at="x"), "done")
    made = blueprint(stage(available_tools=("zeta",), nudge=QUIET), regions=(TASK, TALK), tool_list="run")
    await once(made, provider)
    requests = [request for request in provider.requests if request.purpose == "stage"]
    assert [request.allowed_tools for request in requests] == [("load_tools",), *([("load_tools", "zeta")] * 2)]
    assert messages(bodies(provider)[2])[-1][1] == "saw x"


async def test_a_deferred_tool_that_asks_a_person_is_not_there_where_nobody_is():
    made = one_stage("ask_user_text", "alpha", deferred_tools=("ask_user_text",), allow_blocking_tools=True)
    alone, watched = says("done"), says("done")
    await once(made, alone)
    await once(made, watched, unattended=False)
    assert (offered(alone), offered(watched)) == ([["alpha"]], [["alpha", "load_tools"]])
