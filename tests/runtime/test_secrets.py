"""Secrets: what tools, people, seeds and models say of them never comes into a run."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runkit import NOTES, TALK, TASK, blueprint, bodies, edge, events_of, payloads, stage, swarm_of

from shoal.blueprints import CallerSeed, FilesSeed, InteractionPoint, Nudge, Region
from shoal.errors import ConfigInvalid
from shoal.providers import Completed, ProviderState, Reply, Text, ToolCall, Usage
from shoal.runtime import tool
from shoal.runtime._secrets import Secrets
from shoal.runtime.events import encode
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

SECRET = 'tr0ub4dor"&3'
KNOWN = {"DOOR": SECRET}
QUIET = Nudge(enabled=False)


def talk(*replies: object) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})  # type: ignore[arg-type]


def leaks(*things: object) -> bool:
    """Say whether the secret stands in what is sent or kept, in any form that JSON gives it."""
    said = " ".join(str(thing) for thing in things)
    return any(form in said for form in (SECRET, json.dumps(SECRET)[1:-1], json.dumps(json.dumps(SECRET)[1:-1])[1:-1]))


# --- in runs


async def test_what_a_tool_gives_or_raises_of_a_secret_reaches_neither_journal_nor_model():
    @tool(reads=True)
    async def look(fail: bool) -> str:
        """Look."""
        if fail:
            raise ValueError(f"no door for {SECRET}")
        return f"the door opens with {SECRET}."

    provider = talk(call("look", fail=False), call("look", fail=True), "done")
    async with swarm_of(provider, secrets=KNOWN) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=("look",), nudge=QUIET)), task="x", tools=[look])
        await run.result()
        events = events_of(swarm, run)
    assert str(payloads(events, "ToolCallCompleted")[0].text) == "the door opens with [redacted]."
    assert not leaks(bodies(provider), *[encode(event.payload).decode() for event in events])


async def test_what_a_run_begins_with_holds_no_secret(tmp_path: Path):
    (tmp_path / "door.txt").write_text(f"opens with {SECRET}")
    regions = (
        TASK,
        Region("brief", kind="pinned", max_tokens=500, seed=CallerSeed("brief")),
        Region("door", kind="pinned", max_tokens=500, seed=FilesSeed(("door.txt",))),
        TALK,
    )
    provider = talk("done")
    async with swarm_of(provider, secrets=KNOWN) as swarm:
        made = blueprint(stage(available_tools=(), nudge=QUIET), regions=regions)
        run = await swarm.spawn(made, task=f"try {SECRET}", seeds={"brief": f"or {SECRET}"}, workdir=tmp_path)
        await run.result()
        events = events_of(swarm, run)
    assert str(bodies(provider)).count("[redacted]") == 3
    assert not leaks(bodies(provider), *[encode(event.payload).decode() for event in events])


async def test_a_seed_that_is_read_again_holds_no_secret(tmp_path: Path):
    (tmp_path / "door.txt").write_text("opens with a key")
    door = Region("door", kind="pinned", max_tokens=500, seed=FilesSeed(("door.txt",), refresh="each_stage"))
    stages = (stage("a", available_tools=(), nudge=QUIET, transitions=(edge("b"),)), stage("b", available_tools=()))
    provider = talk(Say("one", delay_s=10), "two")
    async with swarm_of(provider, secrets=KNOWN) as swarm:
        run = await swarm.spawn(blueprint(*stages, regions=(TASK, door, TALK)), task="x", workdir=tmp_path)
        await anyio.sleep(1)
        (tmp_path / "door.txt").write_text(f"opens with {SECRET} now")
        await run.result()
        events = events_of(swarm, run)
    assert "opens with [redacted] now" in str(bodies(provider))
    assert not leaks(bodies(provider), *[encode(event.payload).decode() for event in events])


async def test_what_people_say_of_a_secret_is_struck_out():
    asks = stage(available_tools=(), nudge=QUIET, interaction_points=(InteractionPoint("go", "Which door?"),))
    provider = talk(Say("one", delay_s=10), "two", "three")
    async with swarm_of(provider, secrets=KNOWN) as swarm:
        run = await swarm.spawn(blueprint(asks, regions=(TASK, NOTES, TALK)), task="x", unattended=False)
        await run.send(f"by the way, {SECRET}", region="notes")
        await run.wake_at(4e9, f"at last {SECRET}")
        await anyio.sleep(20)
        await run.answer(f"that of {SECRET}")
        await run.result()
        events = events_of(swarm, run)
    kinds = ("MessageReceived", "QuestionAnswered", "TimerSet")
    assert all("[redacted]" in str(payloads(events, kind)[0].text) for kind in kinds)
    assert not leaks(bodies(provider), *[encode(event.payload).decode() for event in events])


async def test_what_a_model_says_of_a_secret_is_struck_out_of_text_and_calls():
    provider = talk(Say(f"I know {SECRET}", calls=(call("context_append", region="notes", content=SECRET),)), "done")
    async with swarm_of(provider, secrets=KNOWN) as swarm:
        run = await swarm.spawn(blueprint(stage(nudge=QUIET)), task="x")
        await run.result()
        assert run.region("notes") == "[redacted]"
        events = events_of(swarm, run)
    assert not leaks(bodies(provider), *[encode(event.payload).decode() for event in events])


# --- by itself


def test_a_reply_that_held_a_secret_gives_up_what_its_vendor_wants_back():
    state = ProviderState("p", "m", b"{}")
    said = Completed(Reply(Text.of(f"it is {SECRET}"), reasoning=f"hm, {SECRET}", state=state), Usage())
    struck = Secrets(KNOWN).in_reply(said).reply
    assert (str(struck.text), struck.reasoning, struck.state) == ("it is [redacted]", "hm, [redacted]", None)


def test_a_reply_without_secrets_stays_the_same_object():
    said = Completed(Reply(Text.of("fine"), (ToolCall("c", "look", Text.of("{}")),)), Usage())
    assert Secrets(KNOWN).in_reply(said) is said
    assert Secrets().in_reply(said) is said


@given(before=st.text(), after=st.text())
def test_a_secret_is_struck_out_wherever_it_stands_and_nothing_else_is(before: str, after: str):
    struck = Secrets(KNOWN).strike(Text.of(before + SECRET + after))
    plain = Text.of(before + SECRET + after)
    assert str(struck) == str(plain).replace(SECRET, "[redacted]")


def test_a_secret_that_begins_with_another_is_struck_out_whole():
    secrets = Secrets({"A": "12345678", "B": "123456789"})
    assert secrets.strike_plain("123456789 12345678") == "[redacted] [redacted]"


def test_a_secret_that_stands_in_what_is_put_in_its_place_is_struck_out_once():
    secrets = Secrets({"A": "redacted", "B": "12345678"})
    assert secrets.strike_plain("12345678") == "[redacted]"
    assert str(secrets.strike(Text.of("12345678 redacted"))) == "[redacted] [redacted]"


def test_a_secret_that_is_too_short_is_refused_by_its_name_without_being_told():
    with pytest.raises(ConfigInvalid, match="the secret `DOOR` has 7 characters") as refused:
        Secrets({"DOOR": "sesame!"})
    assert "sesame" not in str(refused.value)


def test_what_is_shown_of_secrets_tells_none():
    assert repr(Secrets(KNOWN)) == "<Secrets, 1 of them>"
    assert Secrets(KNOWN)
    assert not Secrets()


def test_texts_without_secrets_are_handed_back_as_they_are():
    text = Text.of("nothing here")
    assert Secrets(KNOWN).strike(text) is text
