"""An agentic function that is killed goes on where it was: same result, no request, tool or spawn twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agentkit import cut_after, journaled, replies, resumed
from runkit import payloads

import shoal
from shoal.errors import ProviderRefused
from shoal.testing import ScriptedProvider, call

pytestmark = pytest.mark.anyio


def echo() -> ScriptedProvider:
    """A provider that answers each question with its last word."""
    return ScriptedProvider(script=lambda request: str(request.messages[-1].messages[0].text).split()[-1])


@shoal.agentic
async def five(ctx: shoal.Context) -> list[str]:
    """Ask five things at once."""
    return await ctx.gather(*[ctx.infer(f"say {n}") for n in "abcde"])


@shoal.agentic
async def five_asyncio(ctx: shoal.Context) -> list[str]:
    """Ask five things at once, the way of one event loop."""
    return list(await asyncio.gather(*[ctx.infer(f"say {n}") for n in "abcde"]))


async def test_five_questions_at_once_give_the_same_with_as_many_requests_wherever_they_are_cut(tmp_path: Path):
    whole = tmp_path / "whole.db"
    expected, events = await journaled(five.bound(), echo(), whole)
    assert expected.output == [*"abcde"]
    for number in events:
        cut = cut_after(whole, number)
        held, provider = replies(cut), echo()
        outcome, _ = await resumed(cut, provider, [five])
        assert (outcome.status, outcome.output, outcome.usage) == (
            expected.status,
            expected.output,
            expected.usage,
        ), number
        assert len(provider.requests) == 5 - held, number


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncios_own_gather_repeats_as_well(anyio_backend: str, tmp_path: Path):
    whole = tmp_path / "whole.db"
    expected, events = await journaled(five_asyncio.bound(), echo(), whole)
    for number in events:
        cut = cut_after(whole, number)
        held, provider = replies(cut), echo()
        outcome, _ = await resumed(cut, provider, [five_asyncio])
        assert (outcome.output, len(provider.requests)) == (expected.output, 5 - held), number


# --- nested functions, tools, steps, spawns


DONE: list[str] = []


@shoal.tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    DONE.append(f"paid {amount}")
    return f"paid {amount}"


@shoal.agentic(as_tool=True)
async def summary(ctx: shoal.Context, text: str) -> str:
    """Sum up a text."""
    return await ctx.infer(f"sum up {text}")


@shoal.agentic
async def child(ctx: shoal.Context, word: str) -> str:
    """Say a word."""
    return await ctx.infer(f"say {word}")


def look() -> dict[str, int]:
    DONE.append("looked")
    return {"found": 3}


@shoal.agentic
async def everything(ctx: shoal.Context) -> dict[str, Any]:
    """Do everything that a context can do."""
    began = await ctx.now()
    found = await ctx.step(look)
    paid = await ctx.infer("pay three", tools=[pay, summary])
    choice = await ctx.decide("which", options=["left", "right"])
    await ctx.sleep(60)
    nested = await summary(ctx, "this")
    run = await ctx.spawn(child.bound("below"))
    ended = await run.result()
    luck = await ctx.random()
    failed = ""
    try:
        await ctx.step(int, "no number")
    except ValueError as exc:
        failed = str(exc)
    return {
        "began": began.isoformat(),
        "found": found["found"],
        "paid": paid,
        "choice": choice,
        "nested": nested,
        "child": ended.output,
        "luck": luck,
        "failed": failed,
    }


def everybody() -> ScriptedProvider:
    def script(request: Any) -> Any:
        text = str(shoal.testing.request_json(request)["messages"][-1])
        if "pay three" in text:
            return shoal.testing.Say("", (call("pay", amount=3), call("summary", text="that")))
        if "Menu:" in text:
            return '{"choice": "right"}'
        return "said"

    return ScriptedProvider(script=script)


async def test_a_function_that_does_everything_ends_the_same_wherever_it_is_cut(tmp_path: Path):
    DONE.clear()
    whole = tmp_path / "whole.db"
    expected, events = await journaled(everything.bound(), everybody(), whole)
    assert expected.status == "complete", expected.reason
    assert sorted(DONE) == ["looked", "paid 3"]
    total = replies(whole)
    varying = {"began", "luck"}
    for number in events:
        DONE.clear()
        cut = cut_after(whole, number)
        held, provider = replies(cut), everybody()
        outcome, _ = await resumed(cut, provider, [everything, summary, child])
        assert outcome.status == expected.status, (number, outcome.reason)
        same = {name: value for name, value in outcome.output.items() if name not in varying}
        assert same["paid"] == "said", number
        assert {**expected.output, **same} == expected.output, number
        assert DONE.count("looked") <= 1, number
        if "paid 3" in DONE:  # it had not begun
            assert len(provider.requests) >= total - held - 1, number
        else:
            assert len(provider.requests) == total - held, number


# --- what failed before fails again, in the same way


@shoal.agentic
async def breaking(ctx: shoal.Context) -> str:
    """Break."""
    raise LookupError("broken")


@shoal.agentic
async def waiting(ctx: shoal.Context) -> str:
    """Wait for long."""
    await ctx.sleep(1_000)
    return "waited"


@shoal.agentic
async def stumbling(ctx: shoal.Context) -> list[str]:
    """Go on after everything that fails."""
    said: list[str] = []
    tries: list[Any] = [
        lambda: breaking(ctx),
        lambda: ctx.step(int, "no number"),
        lambda: ctx.spawn("no-such-blueprint"),
        lambda: ctx.infer("x", model="nobody:model"),
        lambda: ctx.infer("refuse me"),
        lambda: ctx.gather(waiting(ctx), breaking(ctx)),
        lambda: ctx.spawn(child.bound("x"), task="none"),  # type: ignore[call-overload]
    ]
    for each in tries:
        try:
            await each()
        except (LookupError, ValueError, shoal.ShoalError) as exc:
            said.append(f"{type(exc).__name__}: {exc}")
        said.append(await ctx.infer("go on"))
    return said


def stubborn() -> ScriptedProvider:
    return ScriptedProvider(
        script=lambda request: (
            ProviderRefused("no") if "refuse me" in str(request.messages[-1].messages[0].text) else "on"
        )
    )


async def test_what_failed_fails_again_in_the_same_way_wherever_it_is_cut(tmp_path: Path):
    whole = tmp_path / "whole.db"
    expected, cuts = await journaled(stumbling.bound(), stubborn(), whole)
    assert expected.ok, expected.reason
    assert [each.partition(":")[0] for each in expected.output[::2]] == [
        "LookupError",
        "ValueError",
        "BlueprintInvalid",
        "SpawnRefused",
        "ProviderRefused",
        "LookupError",
        "SpawnRefused",
    ]
    for number in cuts:
        outcome, events = await resumed(cut_after(whole, number), stubborn(), [stumbling, breaking, waiting, child])
        assert outcome.output == expected.output, number
        left = sorted(each.status for each in payloads(events, "FrameLeft"))
        assert left == ["cancelled", "done", "error", "error"], number
