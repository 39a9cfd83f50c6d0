"""Regions that are declared `stable` and are not: said once, with what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from runkit import TALK, TASK, blueprint, payloads, run_once, stage

from shoal.blueprints import Region
from shoal.runtime.events import VolatilityBroken
from shoal.testing import ScriptedProvider, call

pytestmark = pytest.mark.anyio

RULES = Region("rules", kind="pinned", max_tokens=500, volatility="stable")
NOTES = Region("notes", kind="pinned", max_tokens=500)


async def broken(*replies: Any, regions: Any = (TASK, RULES, NOTES, TALK)) -> list[VolatilityBroken]:
    provider = ScriptedProvider(*replies, "done", purposes={"titling": "A title"})
    made = blueprint(stage(available_tools=("context_write",)), regions=regions)
    _, events = await run_once(made, provider)
    return payloads(events, "VolatilityBroken")


def write(region: str, content: str) -> Any:
    return call("context_write", region=region, content=content)


async def test_what_is_filled_and_changed_once_is_let_pass():
    assert await broken(write("rules", "one"), write("rules", "two")) == []


async def test_a_second_change_is_said_once_with_what_stands_from_there_on():
    [said] = await broken(*[write("rules", f"rule {number}") for number in range(5)])
    assert said.region == "rules"
    assert said.tokens > 60  # three turns stand behind it


async def test_a_region_that_says_that_it_is_rewritten_may_be():
    assert await broken(*[write("notes", f"note {number}") for number in range(5)]) == []


async def test_each_region_is_said_for_itself():
    other = Region("other", kind="pinned", max_tokens=500, volatility="stable")
    writes = [write(region, f"{number}") for number in range(4) for region in ("rules", "other")]
    assert {said.region for said in await broken(*writes, regions=(TASK, RULES, other, TALK))} == {"rules", "other"}


async def test_two_changes_between_two_requests_are_one():
    both = [write("rules", "one"), write("rules", "two"), write("rules", "two")]
    assert await broken(*both) == []
