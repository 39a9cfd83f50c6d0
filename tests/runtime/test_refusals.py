"""A run whose model refuses, or is cut, says so in its flags, to its user and to its parent."""

from __future__ import annotations

import pytest
from runkit import blueprint, stage, swarm_of

from shoal.blueprints import Nudge
from shoal.providers import Finish, Request
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

PLAIN = blueprint(stage(available_tools=()))


def plays(*replies: str | Say) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "T"})


@pytest.mark.parametrize(("finish", "flag"), [("refusal", "replies_refused"), ("length", "replies_cut")])
async def test_a_run_whose_last_reply_was_refused_or_cut_is_complete_and_says_so(finish: Finish, flag: str):
    async with swarm_of(plays(Say("", finish=finish))) as swarm:
        outcome = await (await swarm.spawn(PLAIN, task="x")).result()
    assert (outcome.status, outcome.output, outcome.flags) == ("complete", None, {flag: 1})


async def test_a_run_whose_model_answers_has_no_flag():
    async with swarm_of(plays("an answer")) as swarm:
        assert (await (await swarm.spawn(PLAIN, task="x")).result()).flags == {}


async def test_each_reply_that_is_refused_counts():
    made = blueprint(stage("a", nudge=Nudge(enabled=True, max=2)))
    async with swarm_of(plays(Say("", finish="refusal"), Say("", finish="refusal"), "yes")) as swarm:
        outcome = await (await swarm.spawn(made, task="x")).result()
    assert (outcome.output, outcome.flags) == ("yes", {"replies_refused": 2})


async def test_a_title_that_is_refused_flags_nothing():
    def answer(request: Request) -> Say:
        return Say("", finish="refusal") if request.purpose == "titling" else Say("an answer", delay_s=5)

    async with swarm_of(ScriptedProvider(script=answer)) as swarm:
        assert (await (await swarm.spawn(PLAIN, task="x")).result()).flags == {}
