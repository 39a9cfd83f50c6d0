"""What models call for agentic functions: tools, other functions, runs; and what stops them."""

from __future__ import annotations

from typing import Any

import pytest
from agentkit import called, tree_of
from runkit import blueprint, events_of, payloads, stage, swarm_of

import shoal
from shoal.errors import ContextOverflow, ProviderSetup, ProviderUnavailable, RunIsPaused, SpawnRefused, ToolInvalid
from shoal.providers import ModelProfile, ProviderState, RetryPolicy
from shoal.runtime import Attachment, Limits, Permissions
from shoal.testing import Say, ScriptedProvider, call, request_json

pytestmark = pytest.mark.anyio


@shoal.tool(reads=True)
async def count(word: str) -> int:
    """Count the letters of a word."""
    return len(word)


@shoal.tool
async def fail() -> str:
    """Fail."""
    raise ValueError("broken")


@shoal.tool
async def picture() -> Attachment:
    """Give a picture."""
    return Attachment(b"\x89PNG\r\n\x1a\n" + bytes(20), "dot.png")


@shoal.agentic(as_tool=True)
async def helper(ctx: shoal.Context, text: str, times: int = 1) -> str:
    """Help with a text."""
    return await ctx.infer(f"help {times} with {text}")


@shoal.agentic
async def working(ctx: shoal.Context) -> str:
    """Work with tools."""
    return await ctx.infer("Work.", tools=[count, fail, picture, helper, "read_file", "shell"])


def results(request: Any) -> list[str]:
    """Return the results that *request* shows, in order."""
    return [str(m["content"]) for m in request_json(request)["messages"] if m["role"] == "tool"]


async def test_a_tool_that_the_model_calls_is_run_and_its_result_shown():
    provider = ScriptedProvider(Say("let me see", (call("count", word="ants"), call("fail"))), "four")
    outcome, events = await called(working.bound(), provider)
    assert outcome.output == "four"
    assert results(provider.requests[1]) == ["4", "[error] ValueError: broken"]
    assert [each.index for each in payloads(events, "ToolCallStarted")] == [0, 1]


async def test_the_tools_of_a_call_are_on_offer_in_every_request_of_it():
    provider = ScriptedProvider(call("count", word="a"), "one")
    await called(working.bound(), provider)
    names = [[spec.name for spec in request.tools.specs] for request in provider.requests]
    assert names == [["count", "fail", "helper", "picture", "read_file", "shell"]] * 2
    assert "<tool_enforcement>" in str(request_json(provider.requests[0]))


async def test_what_opened_the_call_keeps_its_bytes_through_its_rounds():
    provider = ScriptedProvider(call("count", word="a"), "one")
    await called(working.bound(), provider)
    first, second = (request_json(request)["messages"] for request in provider.requests)
    assert second[: len(first)] == first


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (call("count"), "break its schema"),
        (call("unknown"), "[unavailable]"),
        (call("shell", command="rm x"), "[denied]"),
        (call("helper", text="a", times="many"), "break its schema"),
    ],
)
async def test_a_call_that_may_not_run_is_answered_with_the_reason(made: Any, why: str):
    provider = ScriptedProvider(made, "done")
    outcome, _ = await called(working.bound(), provider)
    assert outcome.output == "done"
    assert why in results(provider.requests[1])[0]


async def test_a_tool_that_may_not_be_called_is_denied():
    provider = ScriptedProvider(call("count", word="a"), "done")
    await called(working.bound(), provider, permissions=Permissions(user={"count": "deny"}))
    assert results(provider.requests[1]) == ["[denied] `count` may not be called here"]


async def test_a_turn_runs_so_many_calls_and_no_more():
    provider = ScriptedProvider(Say("", (call("count", word="a"), call("count", word="bb"))), "done")
    await called(working.bound(), provider, limits=Limits(max_calls_per_turn=1))
    first, second = results(provider.requests[1])
    assert first == "1"
    assert "at most 1 calls" in second


async def test_a_model_that_calls_tools_without_end_is_stopped():
    provider = ScriptedProvider(script=lambda _: call("count", word="a"))
    outcome, _ = await called(working.bound(), provider, limits=Limits(max_iterations=3))
    assert outcome.reason.startswith("RunFailed: the model called tools in 3 turns")
    assert len(provider.requests) == 3


async def test_a_part_that_a_tool_gives_stands_behind_its_result():
    provider = ScriptedProvider(call("picture"), "seen")
    outcome, events = await called(working.bound(), provider)
    assert outcome.output == "seen"
    assert [part.name for part in payloads(events, "PartStored")] == ["dot.png"]
    assert "dot.png" in results(provider.requests[1])[0]


async def test_a_function_that_a_model_calls_stands_in_the_tree_below_the_one_that_asked():
    provider = ScriptedProvider(call("helper", text="this"), "helped", "done")
    outcome, events = await called(working.bound(), provider)
    assert outcome.output == "done"
    assert tree_of(provider.requests[1]).endswith(
        '- function: helper\n      input: "text: this"\n      status: running'
    )
    assert results(provider.requests[2]) == ["helped"]
    entered = payloads(events, "FrameEntered")[1]
    assert (entered.source, entered.index, entered.call) == (payloads(events, "ToolCallStarted")[0].source, 0, 0)


async def test_what_a_function_raises_is_for_the_model_that_called_it():
    provider = ScriptedProvider(call("helper", text="this"), ProviderUnavailable("gone"), "done")
    outcome, _ = await called(working.bound(), provider, retry=RetryPolicy(attempts=1))
    assert outcome.output == "done"
    assert "gone" in results(provider.requests[2])[0]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["no_such_tool"], "no built-in tool `no_such_tool`"),
        (["context_write"], "works on the stages and regions of a blueprint"),
        ([count, count], "two tools of one call are called `count`"),
    ],
)
async def test_a_tool_that_cannot_be_offered_is_refused(given: list[Any], why: str):
    @shoal.agentic
    async def odd(ctx: Any) -> str:
        return await ctx.infer("x", tools=given)

    outcome, _ = await called(odd.bound(), ScriptedProvider())
    assert outcome.reason.startswith("ToolInvalid: ")
    assert why in outcome.reason


def test_a_function_is_a_tool_only_where_it_says_so():
    with pytest.raises(ToolInvalid, match="declare it with `@agentic"):
        assert working.tool
    assert helper.tool.description == "Help with a text."
    assert [*helper.tool.schema["properties"]] == ["text", "times"]


# --- models that fail


async def test_the_next_candidate_serves_a_call_that_the_first_cannot():
    @shoal.agentic
    async def choosy(ctx: Any) -> str:
        return await ctx.infer("x", model=["first:a", "second:b"])

    first = ScriptedProvider(script=lambda _: ProviderUnavailable("down"), name="first")
    second = ScriptedProvider("served", name="second")
    async with swarm_of(first, second, retry=RetryPolicy(attempts=1)) as swarm:
        run = await swarm.spawn(choosy.bound())
        assert (await run.result()).output == "served"
        failed = payloads(events_of(swarm, run), "InferenceFailed")
    assert [each.error for each in failed] == ["ProviderUnavailable"]


async def test_a_failure_of_the_vendor_reaches_the_function():
    provider = ScriptedProvider(script=lambda _: ProviderUnavailable("down"))
    outcome, events = await called(working.bound(), provider, retry=RetryPolicy(attempts=1))
    assert outcome.reason == "ProviderUnavailable: down"
    assert [each.step for each in payloads(events, "StepRecorded")] == ["failed"]


async def test_a_run_that_needs_a_person_waits_for_one_and_goes_on():
    provider = ScriptedProvider(ProviderSetup("no key", remedy="set one"), "there")
    async with swarm_of(provider, retry=RetryPolicy(attempts=1)) as swarm:
        run = await swarm.spawn(working.bound())
        with pytest.raises(RunIsPaused, match="needs setup"):
            await run.result()
        await run.resume()
        assert (await run.result()).output == "there"


async def test_a_request_that_does_not_fit_the_window_is_not_sent():
    @shoal.agentic
    async def long(ctx: Any) -> str:
        return await ctx.infer("word " * 3_000)

    provider = ScriptedProvider(window_tokens=2_000, max_output_tokens=500)
    outcome, _ = await called(long.bound(), provider)
    assert outcome.reason.startswith("ContextOverflow: the prompt of")
    assert not provider.requests


async def test_a_request_that_the_vendor_finds_too_long_is_not_sent_again():
    provider = ScriptedProvider(script=lambda _: ContextOverflow("too long"))
    outcome, _ = await called(working.bound(), provider)
    assert outcome.reason == "ContextOverflow: too long"
    assert len(provider.requests) == 1


async def test_a_request_with_more_characters_than_the_hard_cap_is_not_sent():
    @shoal.agentic
    async def longer(ctx: Any) -> str:
        return await ctx.infer("x" * 600_001)

    provider = ScriptedProvider()
    outcome, _ = await called(longer.bound(), provider)
    assert outcome.reason.startswith("HardCapExceeded: the request has")
    assert not provider.requests


async def test_a_model_that_nobody_serves_is_a_failure_of_the_call():
    @shoal.agentic
    async def nowhere(ctx: Any) -> str:
        try:
            return str(await ctx.infer("x", model="nobody:model"))
        except SpawnRefused:
            return "nobody"

    outcome, _ = await called(nowhere.bound(), ScriptedProvider())
    assert outcome.output == "nobody"


# --- long histories


async def test_old_results_are_masked_in_steps():
    @shoal.agentic
    async def long(ctx: Any) -> str:
        return await ctx.infer("Work.", tools=[wordy])

    provider = ScriptedProvider(*[call("wordy", word=str(number)) for number in range(21)], "done")
    await called(long.bound(), provider)
    masked = [sum(each.startswith("[masked: wordy(") for each in results(r)) for r in provider.requests]
    assert masked == [0] * 20 + [10] * 2


@shoal.tool
async def wordy(word: str) -> str:
    """Say much."""
    return word * 100


APPEND_ONLY = ModelProfile("m", window_tokens=200_000, max_output_tokens=4_000, append_only=True)


async def test_a_model_that_binds_its_thinking_gets_it_back_and_nothing_of_its_call_masked():
    state = ProviderState("scripted", "scripted-model", b'{"thought":1}')
    turns = [Say("", (call("wordy", word=str(number)),), state=state) for number in range(21)]

    @shoal.agentic
    async def thinking(ctx: Any) -> str:
        await ctx.infer("Work.", tools=[wordy])
        return await ctx.infer("And now?")

    provider = ScriptedProvider(*turns, "done", "then", profile=APPEND_ONLY)
    await called(thinking.bound(), provider)
    last_of_call, after = provider.requests[21], provider.requests[22]
    states = [[m.state for s in r.messages for m in s.messages if m.role == "assistant"] for r in (last_of_call, after)]
    assert states[0] == [state] * 21
    assert set(states[1]) == {None}
    assert not any(each.startswith("[masked") for each in results(last_of_call))
    assert sum(each.startswith("[masked") for each in results(after)) == 10


# --- children


@shoal.agentic
async def parent(ctx: shoal.Context, task: str) -> dict[str, Any]:
    """Have a blueprint work."""
    child = await ctx.spawn(blueprint(stage(available_tools=())), task=task)
    ended = await child.result()
    assert (repr(child), repr(ended)) == (f"<Spawned {child.run_id}>", f"<Ended {child.run_id} complete>")
    return {"status": ended.status, "output": ended.output, "ok": ended.ok, "child": child.run_id == ended.run_id}


async def test_a_function_spawns_a_blueprint_and_reads_what_it_gave():
    provider = ScriptedProvider("built")
    outcome, events = await called(parent.bound("build"), provider)
    assert outcome.output == {"status": "complete", "output": "built", "ok": True, "child": True}
    [spawned] = payloads(events, "ChildSpawned")
    assert (spawned.source, spawned.index) == (7, 1)


@shoal.agentic
async def watchful(ctx: shoal.Context) -> list[str]:
    """Return the flags of a child."""
    return list((await (await ctx.spawn(blueprint(stage(available_tools=())), task="x")).result()).flags)


async def test_a_function_sees_the_flags_of_what_it_spawned():
    outcome, _ = await called(watchful.bound(), ScriptedProvider(Say("", finish="refusal")))
    assert outcome.output == ["replies_refused"]


@shoal.agentic
async def typed_child(ctx: shoal.Context) -> list[int]:
    """Give numbers."""
    return [1, 2]


@shoal.agentic
async def reading(ctx: shoal.Context) -> int:
    """Add the numbers of another run."""
    ended = await (await ctx.spawn(typed_child.bound())).result()
    return sum(ended.output or [])


async def test_a_function_that_is_spawned_gives_a_value_of_its_type():
    outcome, _ = await called(reading.bound(), ScriptedProvider())
    assert outcome.output == 3


@shoal.agentic
async def refused(ctx: shoal.Context) -> str:
    """Spawn what is not there."""
    try:
        await ctx.spawn("no-such-blueprint")
    except shoal.BlueprintError as exc:
        return type(exc).__name__
    return "spawned"


async def test_a_spawn_that_is_refused_is_a_failure_of_the_call():
    outcome, events = await called(refused.bound(), ScriptedProvider())
    assert outcome.output == "BlueprintInvalid"
    assert [each.error for each in payloads(events, "StepRecorded")] == ["BlueprintInvalid"]
