"""Agentic functions as spans: each under the one that called it, with its requests, tools and children below it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spankit import BEGAN, Story, named, one, parent_of, played, spans_of, tree

import shoal
from shoal.observability import Span, names, trace_of
from shoal.providers import Text
from shoal.runtime.events import (
    CallOpened,
    ChildSpawned,
    FrameEntered,
    FrameLeft,
    InferenceFailed,
    InferenceStarted,
    RunResumed,
    StepRecorded,
    TokensMeasured,
    ToolCallCompleted,
    ToolCallStarted,
)
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio


@shoal.tool
async def look(path: str) -> str:
    """Look at a path."""
    return f"saw {path}"


@shoal.agentic(as_tool=True)
async def helper(ctx: shoal.Context, text: str) -> str:
    """Help."""
    return await ctx.infer(f"help with {text}")


@shoal.agentic
async def top(ctx: shoal.Context) -> str:
    """Do it all."""
    await ctx.now()
    await helper(ctx, "this")
    return await ctx.infer("work", tools=[look, helper])


def replies() -> ScriptedProvider:
    return ScriptedProvider("helped", Say("", (call("look", path="a"), call("helper", text="that"))), "also", "done")


async def spans(**more: Any) -> list[Span]:
    bound: Any = top.bound()
    journal, run_id = await played(bound, replies(), task=None)
    return list(trace_of(journal, run_id, **more))


async def test_functions_hang_below_each_other_and_what_they_do_below_them():
    assert tree(await spans()) == [
        "invoke_agent top",
        "  stage top",
        "    function top",
        "      function helper",
        "        chat scripted-model",
        "      chat scripted-model",
        "      execute_tool look",
        "      execute_tool helper",
        "        function helper",
        "          chat scripted-model",
        "      chat scripted-model",
    ]


async def test_a_function_says_how_it_ended_and_what_it_recorded():
    function = one(await spans(), "function top")
    assert function.attributes["shoal.outcome"] == "done"
    assert function.attributes[names.FUNCTION] == "top"
    assert [(event.name, event.attributes[names.STEP]) for event in function.events] == [(names.E_STEP, "now")]


async def test_what_a_function_was_given_is_in_no_span_unless_the_user_wants_it():
    assert "this" not in str(await spans())
    found = await spans(capture_content=True)
    first, *_ = sorted(named(found, "function helper"), key=lambda span: span.start_ns)
    assert first.attributes[names.FUNCTION_INPUT] == '{"text": "this"}'
    assert first.attributes[names.FUNCTION_OUTPUT] == '"helped"'


async def test_with_content_a_request_shows_what_came_to_its_call():
    chats = sorted(named(await spans(capture_content=True), "chat scripted-model"), key=lambda span: span.start_ns)
    heard = [json.loads(str(chat.attributes[names.INPUT_MESSAGES])) for chat in chats]
    assert [len(each) for each in heard] == [1, 1, 1, 2]
    assert heard[1][0]["parts"][0]["content"].endswith("work")
    assert [each["parts"][0]["response"] for each in heard[3]] == ["saw a", "also"]


# --- by hand


def begun() -> Story:
    story = Story()
    story.spawn()
    story.enter()
    story.add(FrameEntered("top", Text.of("{}")))
    return story


def asked(story: Story, frame: int, number: int) -> tuple[int, int]:
    """Open a call and send its request; return both."""
    opened = story.add(CallOpened(frame, number, (("input", Text.of("x")),), BEGAN))
    return opened, story.add(InferenceStarted("stage", "scripted", "m", 1, 1, "d", call=opened))


def test_requests_at_once_do_not_end_each_other():
    story = begun()
    _, first = asked(story, 3, 1)
    _, second = asked(story, 3, 2)
    story.answer(second)
    story.answer(first)
    assert [span.attributes["shoal.outcome"] for span in named(spans_of(story), "chat m")] == ["complete"] * 2


def test_a_request_that_is_sent_again_points_to_the_one_that_a_dead_process_left():
    story = begun()
    first, _ = asked(story, 3, 1)
    second, _ = asked(story, 3, 2)
    story.add(RunResumed("restart"))
    for opened in (second, first):
        story.answer(story.add(InferenceStarted("stage", "scripted", "m", 1, 1, "d", call=opened)))
    chats = named(spans_of(story), "chat m")
    broken = {span.span_id for span in chats[:2]}
    assert {span.links[0].span_id for span in chats[2:]} == broken


def test_what_was_counted_stands_on_the_request_of_its_call():
    story = begun()
    opened = story.add(CallOpened(3, 1, (), BEGAN))
    story.add(TokensMeasured("m", 7, "vendor", 5, 0, 0, opened))
    _, other = asked(story, 3, 2)
    mine = story.add(InferenceStarted("stage", "scripted", "m", 1, 1, "d", call=opened))
    story.answer(other)
    story.answer(mine)
    counted = [span.attributes.get(names.COUNTED_TOKENS) for span in named(spans_of(story), "chat m")]
    assert counted == [None, 7]


def test_a_request_that_failed_hangs_below_its_function():
    story = begun()
    _, started = asked(story, 3, 1)
    story.add(InferenceFailed("stage", started, "ProviderBusy", "busy", True))
    story.add(FrameLeft(3, "error", None, "", "ProviderBusy", "busy"))
    spans = spans_of(story)
    assert parent_of(spans, one(spans, "chat m")).name == "function top"
    assert one(spans, "function top").attributes["error.type"] == "ProviderBusy"


def test_a_child_hangs_below_the_function_that_spawned_it():
    story = begun()
    story.add(ChildSpawned("child", "digest", 3, 1))
    story.add(FrameLeft(3, "done", Text.of("null")))
    spans = spans_of(story)
    assert parent_of(spans, one(spans, "spawn digest")).name == "function top"


def test_a_function_that_was_cut_off_says_so():
    story = begun()
    inner = story.add(FrameEntered("inner", Text.of("{}"), 3, 1))
    story.add(FrameLeft(inner, "cancelled"))
    span = one(spans_of(story), "function inner")
    assert (span.attributes["shoal.outcome"], span.attributes["error.type"]) == ("cancelled", "cancelled")


def test_the_end_of_a_run_ends_its_functions_innermost_first():
    story = begun()
    story.add(FrameEntered("inner", Text.of("{}"), 3, 1))
    story.end("cancelled")
    assert [span.name for span in spans_of(story) if span.name.startswith("function")] == [
        "function inner",
        "function top",
    ]


def test_a_failed_step_is_noted_with_its_error_and_one_of_a_frame_that_is_over_nowhere():
    story = begun()
    story.add(StepRecorded(3, 1, "step", "d", None, "ValueError", "no"))
    story.add(FrameLeft(3, "done", Text.of("null")))
    story.add(StepRecorded(3, 2, "now", ""), FrameLeft(3, "done", Text.of("null")))
    [event] = one(spans_of(story), "function top").events
    assert event.attributes == {names.STEP: "step", names.ERROR_TYPE: "ValueError"}


def test_what_is_under_way_in_a_function_shows_as_unfinished():
    story = begun()
    opened, started = asked(story, 3, 1)
    reply = story.answer(started, calls=("look",))
    story.add(ToolCallStarted(reply, 0), FrameEntered("inner", Text.of("{}"), 3, 0, "", reply, 0))
    found = trace_of_story(story)
    assert parent_of(found, one(found, "function inner")).name == "execute_tool look"
    assert one(found, "function top").attributes["shoal.outcome"] == "unfinished"
    assert opened < started


def trace_of_story(story: Story) -> list[Span]:
    from shoal.observability import Projection

    projection = Projection()
    done = [span for event in story.events for span in projection.feed(event)]
    return [*done, *projection.unfinished()]


def test_a_reply_to_a_call_of_a_function_that_is_over_hangs_below_the_stage():
    story = begun()
    _, started = asked(story, 3, 1)
    story.add(FrameLeft(3, "done", Text.of("null")))
    reply = story.answer(started, calls=("look",))
    story.add(ToolCallCompleted(reply, 0, Text.of("seen")))
    spans = spans_of(story)
    assert named(spans, "execute_tool look")
