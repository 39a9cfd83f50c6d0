"""The prompt of a call is a pure function of the events in front of it: what is shown later is what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from runkit import events_of, swarm_of

import shoal
from shoal.runtime import Event, RunState, Swarm, newest_prompt
from shoal.runtime.events import InferenceStarted
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio


@shoal.tool(reads=True)
async def count(word: str) -> int:
    """Count the letters of a word."""
    return len(word)


@shoal.agentic(expose="full")
async def inner(ctx: shoal.Context, word: str) -> str:
    """Say a word."""
    return await ctx.infer(f"say {word}", tools=[count])


@shoal.agentic
async def outer(ctx: shoal.Context) -> list[str]:
    """Say words."""
    said = await ctx.gather(*[inner(ctx, word) for word in ("a", "b", "c")])
    return [*said, await ctx.infer("and now?"), await ctx.decide("which", options=["x", "y"])]


def script(request: Any) -> Any:
    last = request.messages[-1].messages[-1]
    if "Menu:" in str(last.text):
        return '{"choice": "y"}'
    return call("count", word="abc") if last.role == "user" and "say" in str(last.text) else Say("said")


async def prompts(swarm: Swarm, events: Sequence[Event]) -> list[tuple[str, str]]:
    """Return of each request the digest that is journaled, and that of what its events in front of it show."""
    first = events[0]
    program = swarm.state(first.run_id).program
    state = RunState(first.run_id, program, definition=swarm.journal.definition)
    found: list[tuple[str, str]] = []
    for event in events:
        state.apply(event)
        if isinstance(event.payload, InferenceStarted):
            prompt = newest_prompt(state)
            assert prompt is not None
            found.append((event.payload.prompt_digest, prompt.digest_on(event.payload.model)))
    return found


async def test_what_the_journal_shows_of_a_request_is_what_was_sent():
    provider = ScriptedProvider(script=script)
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(outer.bound())
        assert (await run.result()).output == ["said"] * 4 + ["y"]
        found = await prompts(swarm, events_of(swarm, run))
    assert len(found) == 8
    assert [was for was, _ in found] == [shown for _, shown in found]
    assert sorted(was for was, _ in found) == sorted(request.digest.hex() for request in provider.requests)


async def test_there_is_a_prompt_behind_any_event_of_a_call():
    async with swarm_of(ScriptedProvider(script=script)) as swarm:
        run = await swarm.spawn(outer.bound())
        await run.result()
        program, events = swarm.state(run.run_id).program, events_of(swarm, run)
        state = RunState(run.run_id, program, definition=swarm.journal.definition)
        shown: list[Any] = []
        for event in events:
            state.apply(event)
            shown.append(newest_prompt(state))
    first = next(number for number, event in enumerate(events) if event.kind == "CallOpened")
    assert [prompt is None for prompt in shown] == [number < first for number in range(len(events))]


async def test_a_run_without_a_call_shows_none():
    @shoal.agentic
    async def nothing(ctx: Any) -> str:
        return "nothing"

    async with swarm_of(ScriptedProvider()) as swarm:
        run = await swarm.spawn(nothing.bound())
        await run.result()
        assert newest_prompt(swarm.state(run.run_id)) is None


async def test_growth_and_release_happen_at_the_end_of_the_tree():
    provider = ScriptedProvider(script=lambda _: "said")

    @shoal.agentic
    async def leaf(ctx: Any, number: int) -> str:
        return str(await ctx.infer(f"{number}"))

    @shoal.agentic
    async def line(ctx: Any) -> str:
        for number in range(6):
            await leaf(ctx, number)
        return "done"

    async with swarm_of(provider) as swarm:
        await (await swarm.spawn(line.bound())).result()
    trees = [str(request.messages[0].messages[0].text).removesuffix("</call_tree>") for request in provider.requests]
    for before, after in pairwise(trees):
        done = before[: before.rindex("    - function: leaf")]
        assert after.startswith(done)
