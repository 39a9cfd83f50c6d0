"""`tool_list = "run"`: every request has the tools of all stages, and each stage may call its own."""

from __future__ import annotations

from typing import Any

import pytest
from runkit import NOTES, TALK, TASK, blueprint, bodies, messages, payloads, run_once, stage

from shoal.blueprints import Blueprint, Nudge, OutputSpec
from shoal.providers import Request
from shoal.runtime import tool
from shoal.testing import ScriptedProvider, call

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)


@tool(reads=True)
async def look(at: str) -> str:
    """Look at something."""
    return at


@tool(reads=True)
async def shout(text: str) -> str:
    """Shout something."""
    return text


def made(**more: Any) -> Blueprint:
    stages = (
        stage("one", available_tools=("look", "ask_user_text"), nudge=QUIET, allow_blocking_tools=True),
        stage("two", available_tools=("shout", "look"), nudge=QUIET),
    )
    return blueprint(*stages, regions=(TASK, NOTES, TALK), **{"tool_list": "run", **more})


def says(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


def stage_requests(provider: ScriptedProvider) -> list[Request]:
    return [request for request in provider.requests if request.purpose == "stage"]


async def once(blueprint: Blueprint, provider: ScriptedProvider, **more: Any) -> Any:
    return await run_once(blueprint, provider, tools=(look, shout), **more)


async def test_every_request_has_the_tools_of_all_stages_in_the_same_bytes():
    provider = says("done", "done")
    await once(made(), provider)
    one, two = stage_requests(provider)
    assert [spec.name for spec in one.tools.specs] == ["look", "shout"]
    assert one.tools.digest == two.tools.digest
    assert (one.allowed_tools, two.allowed_tools) == (("look",), ("look", "shout"))


async def test_a_tool_of_another_stage_is_refused():
    provider = says(call("shout", text="x"), "done", "done")
    _, events = await once(made(), provider)
    assert messages(bodies(provider)[1])[-1][1] == "[unavailable] this stage has no tool 'shout'; it has `look`"
    assert [p.gate for p in payloads(events, "ToolCallCompleted")] == ["visibility"]


async def test_tools_that_wait_for_a_person_stand_where_a_person_is():
    provider = says("done", "done")
    await once(made(), provider, unattended=False)
    assert [spec.name for spec in stage_requests(provider)[0].tools.specs] == ["ask_user_text", "look", "shout"]


async def test_a_tool_that_stages_describe_otherwise_stands_once_as_the_first_has_it():
    stages = (
        stage("one", available_tools=("submit_output",), output=OutputSpec(format="json"), nudge=QUIET),
        stage("two", available_tools=("submit_output",), output=OutputSpec(format="xml"), nudge=QUIET),
    )
    provider = says("done", "done")
    await once(blueprint(*stages, tool_list="run"), provider)
    one, two = stage_requests(provider)
    assert one.tools.digest == two.tools.digest
    assert "json" in str([spec.description for spec in two.tools.specs])


async def test_by_default_a_request_has_its_stage_s_own():
    provider = says("done", "done")
    await once(made(tool_list="stage"), provider)
    one, two = stage_requests(provider)
    assert [spec.name for spec in one.tools.specs] == ["look"]
    assert (one.allowed_tools, two.allowed_tools) == (None, None)
