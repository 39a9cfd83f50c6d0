"""Prompts and outputs: in no span, unless the user wants them there."""

from __future__ import annotations

import json

import pytest
from spankit import LISTS, Story, blueprint, one, played, spans_of

from shoal.blueprints import Stage
from shoal.observability import export_trace, trace_of
from shoal.observability._content import MOST_CONTENT_CHARS, content
from shoal.observability._redact import Redactor
from shoal.providers import Text
from shoal.runtime.context import SeedBlock, SeedRefreshed, SeedResolved
from shoal.runtime.events import (
    LaneDegraded,
    LaneStarted,
    MessageReceived,
    Nudged,
    RunTitled,
    ToolCallCompleted,
    ToolCallStarted,
)
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


# --- secrets

KEYS = {
    "an API key": "sk-ant-api03-" + "aB3_" * 8,
    "a project's key": "sk-proj-" + "Zz9-" * 10,
    "a key of Google's": "AIza" + "Sy0_" * 8 + "abc",
    "an id of an AWS key": "AKIA" + "ABCD2345" * 2,
    "a token of GitHub's": "ghp_" + "a1B2c3" * 6,
    "a fine-grained one": "github_pat_" + "a1B2c3" * 6,
    "a token of GitLab's": "glpat-" + "a1B2_" * 4,
    "a token of Slack's": "xoxb-" + "123456-" * 3 + "abc",
    "a token of a model hub": "hf_" + "aBcDeF" * 6,
    "a token of PyPI's": "pypi-" + "AgEI" * 15,
    "a token of npm's": "npm_" + "a1B2c3" * 6,
    "a web token": "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----",
    "one that was cut off": "-----BEGIN PRIVATE KEY-----\nMIIE\nabc",
    "a bearer": "abcdEFGH12345678==",
    "a password in an address": "anna:s3cr3t",
}
AROUND = {"a bearer": "Authorization: Bearer {} ", "a password in an address": "postgres://{}@db/news"}


@pytest.mark.parametrize("kind", KEYS)
def test_what_has_the_shape_of_a_secret_is_struck_out(kind: str):
    around = AROUND.get(kind, "it is {} here" if kind != "one that was cut off" else "it is {}")
    assert Redactor()(around.format(KEYS[kind])) == around.format("[redacted]")


@pytest.mark.parametrize(
    "plain",
    [
        "the task-force of risk-averse sk-8 skaters",
        "https://example.com:8080/a@b",
        "eyJ is how they begin",
        "Bearer of news",
    ],
)
def test_ordinary_words_stay(plain: str):
    assert Redactor()(plain) == plain


def test_values_that_look_like_credentials_by_their_name_are_struck_out_the_longest_first():
    redact = Redactor.of({"NEWS_TOKEN": "abcdefgh", "OTHER_KEY": "abcdefghijkl", "PIN": "1234", "HOME": "/home/anna"})
    assert redact("abcdefghijkl, abcdefgh, 1234, /home/anna") == "[redacted], [redacted], 1234, /home/anna"


def test_no_span_with_content_holds_a_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEWS_PASSWORD", "open sesame")
    secret = f"open sesame {KEYS['an API key']}"
    story = Story()
    story.spawn(task=Text.of(f"the task {secret}"))
    story.enter()
    story.add(SeedResolved("code", "files", (SeedBlock("a", Text.of(secret), 1),)))
    reply = story.answer(story.ask(), calls=("look",), text=f"the reply {secret}", reasoning=secret)
    story.add(ToolCallStarted(reply, 0), ToolCallCompleted(reply, 0, Text.of(secret)))
    job = story.add(LaneStarted("compaction", "conversation", (1,)))
    story.add(LaneDegraded("compaction", job, "conversation", "nonsense", f"it said {secret}"))
    story.add(RunTitled(f"About {secret}", "lane"))
    story.answer(story.ask(), text="")
    story.leave()
    story.end()
    shown = str(spans_of(story, capture_content=True))
    assert "the task [redacted] [redacted]" in shown
    assert "the reply [redacted] [redacted]" in shown
    assert "open sesame" not in shown
    assert KEYS["an API key"] not in shown


def test_a_secret_that_lies_across_the_cut_is_struck_out_whole():
    told = content("x" * (MOST_CONTENT_CHARS - 10) + " " + KEYS["an API key"], Redactor())
    assert "sk-" not in told
    assert len(told) == MOST_CONTENT_CHARS
