"""Runs on models that bind their thinking to every byte in front of it: what is journaled, sent and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from runkit import (
    TALK,
    TASK,
    blueprint,
    edge,
    events_of,
    folded,
    kinds,
    payloads,
    run_once,
    stage,
    swarm_of,
    write_files,
)

from shoal.blueprints import ModelChoice, ModelSettings, Nudge, Region
from shoal.errors import ProviderSetup
from shoal.providers import ModelProfile, ProviderState, Request
from shoal.runtime import Event, RunState, fold
from shoal.runtime.events import InferenceStarted
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

NOTES = Region("notes", kind="pinned", max_tokens=500)
PROFILE = ModelProfile("thinker", window_tokens=100_000, append_only=True, mid_system=True)
TITLED: dict[Any, str] = {"titling": "A title"}


def thinking(*replies: Any, profile: ModelProfile = PROFILE, **more: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes=TITLED, profile=profile, **more)


def thought(text: str, *calls: Any) -> Say:
    return Say(text, calls=calls, state=ProviderState("scripted", "scripted-model", text.encode()))


def note(text: str) -> Any:
    return call("context_append", region="notes", content=text)


def stage_requests(provider: ScriptedProvider) -> list[Request]:
    return [request for request in provider.requests if request.purpose == "stage"]


def said(request: Request) -> list[tuple[str, str]]:
    return [(message.role, message.text) for segment in request.messages for message in segment.messages]


def fingerprints(request: Request) -> list[bytes]:
    messages = [message for segment in request.messages for message in segment.messages]
    return [request.tools.digest, *[b.digest for b in request.system], b"|", *[m.digest for m in messages]]


async def test_a_run_sends_its_prompt_in_epochs_and_says_at_the_end_what_changed():
    provider = thinking(thought("I note.", note("first")), "done")
    _, events = await run_once(blueprint(stage()), provider)
    first, second = stage_requests(provider)
    assert fingerprints(second)[: len(fingerprints(first))] == fingerprints(first)
    assert said(second)[-1] == ("system", "## notes (now)\nfirst")
    assert kinds(events, "PromptEpoch", "PromptAmended") == ["PromptEpoch", "PromptAmended"]


async def test_any_other_model_gets_its_prompt_as_the_window_is():
    provider = thinking(thought("I note.", note("first")), "done", profile=ModelProfile("m", window_tokens=100_000))
    _, events = await run_once(blueprint(stage()), provider)
    assert "## notes\nfirst" in [block.text for block in stage_requests(provider)[1].system]
    assert kinds(events, "PromptEpoch", "PromptAmended") == []


async def test_what_the_journal_adds_up_to_is_what_was_sent():
    provider = thinking(thought("I note.", note("first")), thought("More.", note("second")), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage()), task="the task")
        await run.result()
        state = folded(swarm, run)
    prompt = state.prompt()
    messages = [message.digest for segment in prompt.messages for message in segment.messages]
    last = fingerprints(stage_requests(provider)[-1])
    assert last == [prompt.tools.digest, *[b.digest for b in prompt.system], b"|", *messages[:-1]]


async def test_thinking_comes_back_with_its_turn():
    provider = thinking(thought("I note.", note("first")), "done")
    await run_once(blueprint(stage()), provider)
    states = [m.state for s in stage_requests(provider)[1].messages for m in s.messages if m.state]
    assert [state.data for state in states] == [b"I note."]


async def test_a_stage_with_other_instructions_begins_a_new_epoch_without_the_thinking():
    provider = thinking(thought("Read."), "done")
    stages = (
        stage("a", available_tools=(), system_prompt="Read.", transitions=(edge("b"),)),
        stage("b", available_tools=(), system_prompt="Write."),
    )
    _, events = await run_once(blueprint(*stages, nudge=Nudge(enabled=False)), provider)
    assert [(p.reason, p.thinking_dropped) for p in payloads(events, "PromptEpoch")] == [
        ("first", 0),
        ("instructions", 1),
    ]


async def test_a_routing_question_leaves_the_epoch_as_it_is():
    provider = ScriptedProvider(thought("Read."), "done", purposes={**TITLED, "routing": "c"}, profile=PROFILE)
    stages = (
        stage(
            "a",
            available_tools=(),
            transitions=(edge("b", condition="llm_choice", hint="h"), edge("c", condition="llm_choice", hint="h")),
        ),
        stage("b", available_tools=(), transitions=()),
        stage("c", available_tools=(), transitions=()),
    )
    _, events = await run_once(blueprint(*stages, nudge=Nudge(enabled=False)), provider)
    asked = next(request for request in provider.requests if request.purpose == "routing")
    first, second = stage_requests(provider)
    assert fingerprints(asked)[: len(fingerprints(first))] == fingerprints(first)
    assert fingerprints(second)[: len(fingerprints(first))] == fingerprints(first)
    assert len(payloads(events, "PromptEpoch")) == 1


async def test_a_model_that_takes_over_gets_an_epoch_of_its_own():
    first = thinking(ProviderSetup("no key"), name="one")
    second = thinking("done", name="two")
    model = ModelSettings((ModelChoice("one", "m"), ModelChoice("two", "m")))
    async with swarm_of(first, second) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=(), model=model)), task="t")
        await run.result()
        assert [p.reason for p in payloads(events_of(swarm, run), "PromptEpoch")] == ["first", "model"]


async def test_amendments_give_way_before_anything_is_evicted():
    small = ModelProfile("thinker", window_tokens=2_000, max_output_tokens=100, append_only=True, mid_system=True)
    facts = Region("facts", kind="hashmap", max_tokens=800)
    keys = [call("context_write", region="facts", key=f"k{n}", content="x" * 600) for n in range(2)]
    more = [call("context_write", region="facts", key="k", content=f"{n}") for n in range(6)]
    provider = thinking(*keys, *more, "done", profile=small)
    made = blueprint(stage(available_tools=("context_write",)), regions=(TASK, facts, TALK))
    _, events = await run_once(made, provider)
    assert "pressure" in [p.reason for p in payloads(events, "PromptEpoch")]
    assert kinds(events, "EntriesEvicted") == []


SHOWS = """
def render(ctx):
    return {"system": ["; ".join(entry["content"] for entry in ctx["entries"])]}
"""


async def test_what_a_script_had_shown_is_sent_again_by_a_run_that_is_loaded(tmp_path: Path):
    write_files(tmp_path, {"scripts/brain.py": SHOWS})
    brain = Region("brain", kind="custom", script="scripts/brain.py", max_tokens=500)
    made = blueprint(stage(), regions=(TASK, brain, TALK), folder=tmp_path)
    writes = [thought("I note.", call("context_append", region="brain", content=f"{n}")) for n in range(2)]
    provider = thinking(*writes, "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="the task")
        await run.result()
        prompt = folded(swarm, run).prompt()
    messages = [message.digest for segment in prompt.messages for message in segment.messages]
    last = fingerprints(stage_requests(provider)[-1])
    assert last == [prompt.tools.digest, *[b.digest for b in prompt.system], b"|", *messages[:-1]]
    assert "## brain (now)\n0; 1" in [text for _, text in said(stage_requests(provider)[-1])]


async def test_a_journal_that_another_version_rendered_begins_a_new_epoch():
    provider = thinking(thought("I note.", note("first")), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage()), task="the task")
        await run.result()
        events = events_of(swarm, run)
        program = folded(swarm, run).program
    assert broken(fold(run.run_id, program, events)) is None
    assert broken(fold(run.run_id, program, [otherwise(event) for event in events])) == "replay"


def broken(state: RunState) -> str | None:
    assert state.epoch is not None
    return state.epoch.broken


def otherwise(event: Event) -> Event:
    """Return *event* as if its request had been other bytes."""
    if not isinstance(event.payload, InferenceStarted):
        return event
    return replace(event, payload=replace(event.payload, prompt_digest="00"))


async def test_a_stage_whose_prompt_is_a_nudge_goes_on_in_the_epoch_of_the_one_before():
    stages = [
        stage("a", available_tools=(), system_prompt="First do this."),
        stage("b", available_tools=(), system_prompt="Sum it up.", prompt_as="nudge"),
    ]
    provider = thinking(thought("one"), thought("two"))
    _, events = await run_once(blueprint(*stages), provider)
    first, second = stage_requests(provider)
    assert fingerprints(second)[: len(fingerprints(first))] == fingerprints(first)
    assert [p.reason for p in payloads(events, "PromptEpoch")] == ["first"]
