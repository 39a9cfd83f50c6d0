"""Knobs on long histories in runs: the caps, a compaction that gains nothing, fresh stages, models that only append."""

from __future__ import annotations

from typing import Any

import pytest
from runkit import TASK, blueprint, bodies, edge, kinds, messages, payloads, run_once, stage, stages_of, swarm_of

from shoal.blueprints import Blueprint, Nudge, Observations, Repetition, StageContext
from shoal.errors import RunIsPaused
from shoal.providers import ModelProfile, ProviderState
from shoal.runtime import tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)
PURPOSES: dict[Any, Any] = {"titling": "A title", "compaction": "short"}


@tool(reads=True)
async def look(at: str, size: int = 200) -> str:
    """Look at something."""
    return at * size


def made(*stages: Any, **knobs: Any) -> Blueprint:
    every = stages or (stage(available_tools=("look",), nudge=QUIET),)
    knobs = {"observation_window": 1, "mask_step": 1, "min_tail_turns": 1, **knobs}
    return blueprint(*every, regions=(TASK,), observations=Observations(**knobs), repetition=Repetition(enabled=False))


def looking(count: int) -> list[Any]:
    return [call("look", at="x") for _ in range(count)]


def says(*replies: Any, **more: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes=more.pop("purposes", PURPOSES), **more)


async def once(blueprint: Blueprint, provider: ScriptedProvider) -> Any:
    return await run_once(blueprint, provider, tools=(look,))


async def test_old_results_are_masked_in_what_is_sent():
    provider = says(*looking(3), "done")
    await once(made(), provider)
    tools = [text for role, text in messages(bodies(provider)[-1]) if role == "tool"]
    assert tools == ['[masked: look("x") → ok, 200 chars]'] * 2 + ["x" * 200]


async def test_above_the_soft_cap_the_oldest_masked_turns_are_compacted_once():
    provider = says(*looking(4), "done")
    outcome, events = await once(made(soft_cap_chars=340), provider)
    [compacted] = payloads(events, "ContextCompacted")
    assert (outcome.status, compacted.region, str(compacted.summary)) == ("complete", "conversation", "short")
    assert messages(bodies(provider)[-1])[0] == ("user", "[compacted history]\nshort")


async def test_what_is_journaled_of_a_request_is_what_the_caps_measure():
    provider = says(*looking(4), "done")
    _, events = await once(made(soft_cap_chars=340), provider)
    started = [p.approx_context_chars for p in payloads(events, "InferenceStarted") if p.purpose == "stage"]
    assert max(started) <= 340


async def test_a_compaction_that_gains_nothing_is_not_used_and_not_tried_again_at_once():
    purposes: dict[Any, Any] = {"titling": "A title", "compaction": "long " * 400}
    provider = says(*looking(8), "done", purposes=purposes)
    _, events = await once(made(soft_cap_chars=100, min_tail_turns=3, observation_window=3), provider)
    degraded = payloads(events, "LaneDegraded")
    assert {(p.reason, p.error) for p in degraded} == {
        ("not_smaller", "the summary is not smaller; raise `soft_cap_chars`")
    }
    assert all(p.bytes_saved < 0 for p in degraded)
    assert len(degraded) == 2  # with four turns, and with seven
    assert payloads(events, "ContextCompacted") == []


async def test_above_the_hard_cap_nothing_is_sent_and_the_run_waits():
    provider = says(*looking(3), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made(soft_cap_chars=100, hard_cap_chars=150), task="t", tools=(look,))
        with pytest.raises(RunIsPaused, match=r"has 2[0-9]{2} characters and `hard_cap_chars` is 150; raise it"):
            await run.result()
    assert len(bodies(provider)) == 1


async def test_the_stage_s_edge_takes_a_request_above_the_hard_cap():
    first = stage("work", available_tools=("look",), nudge=QUIET, transitions=(edge("mend", condition="error"),))
    mend = stage("mend", available_tools=(), nudge=QUIET, context=StageContext(mode="fresh"))
    provider = says(*looking(1), "mended")
    outcome, events = await once(made(first, mend, soft_cap_chars=100, hard_cap_chars=200), provider)
    assert (outcome.output, stages_of(events)) == ("mended", ["work", "mend"])
    assert [p.error for p in payloads(events, "InferenceFailed")] == ["HardCapExceeded"]


async def test_a_fresh_stage_begins_with_nothing_and_the_next_sees_everything():
    quiet: dict[str, Any] = {"available_tools": (), "nudge": QUIET}
    stages = (
        stage("one", **quiet),
        stage("two", context=StageContext(mode="fresh"), **quiet),
        stage("three", **quiet),
    )
    provider = says("first", "second", "third")
    await once(blueprint(*stages), provider)
    said = [[text for role, text in messages(body) if role == "assistant"] for body in bodies(provider)]
    assert said == [[], [], ["first", "second"]]


THINKER = ModelProfile("thinker", window_tokens=100_000, append_only=True, mid_system=True)


async def test_on_a_model_that_only_appends_moving_the_edge_begins_an_epoch():
    def thought(reply: Any) -> Say:
        return Say(calls=(reply,), state=ProviderState("scripted", "scripted-model", b"thinking"))

    provider = says(*map(thought, looking(5)), "done", profile=THINKER)
    _, events = await once(made(observation_window=2, mask_step=2), provider)
    assert [p.reason for p in payloads(events, "PromptEpoch")] == ["first", "masking"]
    tools = [text for role, text in messages(bodies(provider)[-1]) if role == "tool"]
    assert [text.startswith("[masked: ") for text in tools] == [True, True, False, False, False]


async def test_on_a_model_that_only_appends_a_fresh_stage_begins_an_epoch():
    quiet: dict[str, Any] = {"available_tools": (), "nudge": QUIET}
    stages = (stage("one", **quiet), stage("two", context=StageContext(mode="fresh"), **quiet))
    provider = says("first", "second", profile=THINKER)
    _, events = await once(blueprint(*stages), provider)
    assert [text for role, text in messages(bodies(provider)[1]) if role == "assistant"] == []
    assert kinds(events, "PromptEpoch") == ["PromptEpoch"] * 2
