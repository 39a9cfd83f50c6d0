"""What requests say of what comes next, so that cache markers stand where a later request still begins alike."""

from __future__ import annotations

import pytest
from runkit import NOTES, TALK, TASK, blueprint, edge, run_once, stage

from shoal.blueprints import Blueprint, ModelChoice, ModelSettings, Nudge, Region, Stage
from shoal.providers import Request
from shoal.runtime._bundle import Bundle
from shoal.runtime.program import Program
from shoal.testing import ScriptedProvider

QUIET = Nudge(enabled=False)
OTHER = ModelSettings((ModelChoice("scripted", "other"),))


def ahead(*stages: Stage) -> list[bool]:
    made = Program(Bundle(blueprint(*stages)))
    return [program.stages_ahead for program in made.stages.values()]


def test_a_stage_that_follows_with_the_same_tools_and_model_shares_the_cache():
    assert ahead(stage("a"), stage("b")) == [True, False]


def test_other_tools_or_another_model_begin_anew():
    assert ahead(stage("a"), stage("b", available_tools=())) == [False, False]
    assert ahead(stage("a"), stage("b", model=OTHER)) == [False, False]


def test_a_budget_of_its_own_does_not_make_a_stage_begin_anew():
    assert ahead(stage("a", model=OTHER), stage("b", model=ModelSettings(OTHER.models, max_tokens=9))) == [True, False]


def test_stages_that_are_reached_over_another_one_count():
    assert ahead(stage("a"), stage("b", available_tools=()), stage("c")) == [True, False, False]


def test_edges_decide_what_follows():
    back = stage("b", transitions=(edge("a"),))
    assert ahead(stage("a", transitions=()), back) == [False, True]
    assert ahead(stage("a"), back) == [True, True]


@pytest.mark.anyio
async def test_requests_say_whose_a_block_is_and_whether_stages_follow():
    made = blueprint(stage("a", system_prompt="Do.", nudge=QUIET), stage("b", nudge=QUIET))
    provider = ScriptedProvider(script=lambda _request: "done")
    await run_once(made, provider)
    first, second = [request for request in provider.requests if request.purpose == "stage"]
    assert (first.stages_ahead, second.stages_ahead) == (True, False)
    assert reaches(first) == {"task": "stage"}


@pytest.mark.anyio
async def test_where_instructions_have_a_region_the_callers_value_is_the_runs():
    declared = Region("stage_instructions", kind="pinned", max_tokens=500)
    made = Blueprint("test", (stage("a", system_prompt="Do.", nudge=QUIET),), regions=(TASK, NOTES, declared, TALK))
    provider = ScriptedProvider(script=lambda _request: "done")
    await run_once(made, provider)
    assert reaches(provider.requests[-1]) == {"task": "run", "stage_instructions": "stage"}


def reaches(request: Request) -> dict[str, str]:
    return {block.owner: block.reach for block in request.system}
