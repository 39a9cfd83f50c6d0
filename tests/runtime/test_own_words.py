"""What the runtime says itself is no content: a provider that quotes what it is shown never quotes a nudge."""

from __future__ import annotations

from typing import Any

import pytest
from runkit import TALK, TASK, blueprint, edge, sent, stage, swarm_of

from shoal.blueprints import Blueprint, BlueprintTransform, Nudge, Region, TransformMapping
from shoal.providers import Message, Request, Situation, Text, offline
from shoal.runtime._words import EDITED, is_own_word, own_word
from shoal.runtime.context import Entry, EntryKind
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)
PROMPT = "Weigh what the harbour says of its piers and boats, and name what is missing."


def asking(name: str, **more: Any) -> Any:
    return stage(name, nudge=QUIET, system_prompt=PROMPT, prompt_as="nudge", **more)


class Listener:
    """Replies, and what each request of a purpose says of where it stands."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, Situation]] = []

    def __call__(self, request: Request) -> Say:
        assert request.situation is not None
        self.heard.append((request.purpose, sent(request), request.situation()))
        if request.purpose == "compaction":
            return Say("in short")
        return Say("The east pier takes twelve boats. " * 20, delay_s=0.0 if "below" in sent(request) else 50.0)

    def of(self, purpose: str) -> list[tuple[str, Situation]]:
        return [(said, situation) for each, said, situation in self.heard if each == purpose]


async def test_an_offline_run_quotes_no_nudge():
    made = Blueprint("quoting", (asking("a", transitions=(edge("b"),)), asking("b")), regions=(TASK, TALK))
    async with swarm_of(offline()) as swarm:
        outcome = await (await swarm.spawn(made, task="The pier is closed. Boats wait outside.")).result()
    assert "pier is closed" in str(outcome.output)
    assert "[System]" not in str(outcome.output)
    assert "Weigh" not in str(outcome.output)


async def test_regions_are_told_without_nudges_and_with_what_people_say():
    listener = Listener()
    async with swarm_of(ScriptedProvider(script=listener)) as swarm:
        run = await swarm.spawn(blueprint(asking("a", transitions=(edge("b"),)), asking("b")), task="x")
        await run.send("Count the boats.")
        await run.result()
    said, situation = listener.of("stage")[-1]
    assert PROMPT in said
    assert "Count the boats." in situation.regions["conversation"]
    assert "The east pier" in situation.regions["conversation"]
    assert PROMPT not in situation.regions["conversation"]


async def test_a_region_that_holds_nothing_but_nudges_is_not_told():
    listener = Listener()
    async with swarm_of(ScriptedProvider(script=listener)) as swarm:
        await (await swarm.spawn(blueprint(asking("a")), task="x")).result()
    assert "conversation" not in listener.of("stage")[0][1].regions


async def test_a_summary_s_material_is_told_without_nudges():
    listener = Listener()
    made = blueprint(asking("a", transitions=(edge("b", transform="compact"),)), asking("b"))
    async with swarm_of(ScriptedProvider(script=listener)) as swarm:
        await (await swarm.spawn(made, task="x")).result()
    [(said, situation)] = listener.of("compaction")
    assert PROMPT in said
    assert str(situation.material).startswith("assistant: The east pier")
    assert PROMPT not in str(situation.material)


async def test_a_summary_for_a_child_is_told_without_nudges():
    listener = Listener()
    mapping = TransformMapping("conversation", "notes", "summarize")
    above = Blueprint(
        "parent",
        (asking("a", transitions=(edge("b"),)), asking("b")),
        regions=(TASK, TALK),
        transforms=(BlueprintTransform("parent", "child", (mapping,)),),
    )
    below = Blueprint("child", (stage(nudge=QUIET),), regions=(TASK, Region("notes", max_tokens=500), TALK))
    async with swarm_of(ScriptedProvider(script=listener)) as swarm:
        run = await swarm.spawn(above, task="x")
        await run.send("Count the boats.")
        child = await run.spawn(below, task="below")
        await child.result()
        await run.result()
    [(said, situation)] = listener.of("compaction")
    assert PROMPT in said
    assert PROMPT not in str(situation.material)


@pytest.mark.parametrize(
    ("kind", "text", "own"),
    [
        ("user_message", "[System] Go on.", True),
        ("text", EDITED, True),
        ("user_message", "Go on.", False),
        ("text", "[System] settings\nmode = fast", False),
        ("tool_result", "[System] unit started", False),
        ("assistant_turn", "[System] says the log", False),
    ],
)
def test_a_file_a_result_and_a_reply_are_no_word_of_the_runtime(kind: EntryKind, text: str, own: bool):
    entry = Entry(1, 1, kind, Message("user", (Text.of(text),)), tokens=5, chars=len(text), created=0.0)
    assert is_own_word(entry) is own


def test_the_runtime_s_own_word_begins_as_such():
    assert own_word("Go on.").text == "[System] Go on."
