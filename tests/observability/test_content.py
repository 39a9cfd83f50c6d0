"""Prompts and outputs: in no span, unless the user wants them there."""

from __future__ import annotations

import json

import pytest
from spankit import LISTS, Story, blueprint, one, played, spans_of

from shoal.blueprints import Stage
from shoal.observability import export_trace, trace_of
from shoal.providers import Text
from shoal.runtime.context import SeedBlock, SeedRefreshed, SeedResolved
from shoal.runtime.events import MessageReceived, Nudged, ToolCallCompleted
from shoal.testing import Say, ScriptedProvider, call

SECRETS = ("alpha secret", "beta secret", "gamma secret", "delta secret", "zeta secret")


def told() -> Story:
    story = Story()
    story.spawn(task=Text.of(SECRETS[0]))
    story.enter()
    story.add(SeedResolved("code", "files", (SeedBlock("a", Text.of(SECRETS[1]), 1),)))
    reply = story.answer(story.ask(), calls=("look",), text=SECRETS[2], reasoning=SECRETS[3])
    story.add(ToolCallCompleted(reply, 0, Text.of(SECRETS[4])))
    story.add(Nudged("gate", Text.of("go on")), MessageReceived(Text.of("mail")))
    story.add(SeedRefreshed("code", "files", (SeedBlock("a", Text.of("newer"), 1),), (2,), (1,)))
    story.answer(story.ask(), text="")
    story.leave()
    story.end()
    return story


def test_no_span_holds_what_was_said():
    shown = str(spans_of(told()))
    assert not [secret for secret in SECRETS if secret in shown]


def test_with_content_each_request_shows_what_came_to_it_since_the_one_before():
    first, second = [s for s in spans_of(told(), capture_content=True) if s.name == "chat m"]
    heard = json.loads(str(first.attributes["gen_ai.input.messages"]))
    assert [message["parts"][0]["content"] for message in heard] == [SECRETS[0], SECRETS[1]]
    heard = json.loads(str(second.attributes["gen_ai.input.messages"]))
    assert heard[0]["parts"] == [{"type": "tool_call_response", "id": "call_5_0", "response": SECRETS[4]}]
    assert [message["parts"][0]["content"] for message in heard[1:]] == ["go on", "mail", "newer"]


def test_with_content_each_reply_shows_what_the_model_said_and_called():
    first, second = [s for s in spans_of(told(), capture_content=True) if s.name == "chat m"]
    [message] = json.loads(str(first.attributes["gen_ai.output.messages"]))
    assert message["parts"] == [
        {"type": "reasoning", "content": SECRETS[3]},
        {"type": "text", "content": SECRETS[2]},
        {"type": "tool_call", "id": "call_5_0", "name": "look", "arguments": "{}"},
    ]
    assert json.loads(str(second.attributes["gen_ai.output.messages"]))[0]["parts"] == []


def test_with_content_a_call_shows_arguments_and_result():
    span = one(spans_of(told(), capture_content=True), "execute_tool look")
    assert span.attributes["gen_ai.tool.call.arguments"] == "{}"
    assert span.attributes["gen_ai.tool.call.result"] == SECRETS[4]


def test_content_is_cut_and_stays_json():
    story = Story()
    story.spawn(task=Text.of("x" * 100_000))
    story.enter()
    for _ in range(40):
        story.add(MessageReceived(Text.of("y" * 100_000)))
    story.answer(story.ask(), text="z" * 100_000)
    span = one(spans_of(story, capture_content=True), "chat m")
    heard = json.loads(str(span.attributes["gen_ai.input.messages"]))
    assert len(heard) == 16
    assert {len(message["parts"][0]["content"]) for message in heard} == {8192}
    assert len(str(span.attributes["gen_ai.output.messages"])) < 9000


@pytest.mark.anyio
@pytest.mark.parametrize("captured", [False, True])
async def test_a_whole_run_shows_its_content_only_where_that_is_wanted(captured: bool):
    made = blueprint(Stage("read", available_tools=LISTS))
    provider = ScriptedProvider(Say("omega", (call("list_dir"),), reasoning="psi"), "chi", purposes={"titling": "Phi"})
    journal, run_id = await played(made, provider, task="the alpha task")
    shown = export_trace(journal, run_id, capture_content=captured).decode()
    assert [word in shown for word in ("alpha", "omega", "psi", "chi", "Phi")] == [captured] * 5
    assert len(trace_of(journal, run_id)) == len(trace_of(journal, run_id, capture_content=True))
