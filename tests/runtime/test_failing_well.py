"""Vendors that are busy, drained, silent or gone, over real connections: what a run makes of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from runkit import blueprint, edge, events_of, kinds, stage, swarm_of

from shoal.blueprints import ModelChoice, ModelSettings
from shoal.errors import RunIsPaused
from shoal.providers import (
    ModelProfile,
    RateLimit,
    RetryPolicy,
    Timeouts,
    VendorProvider,
    anthropic,
    openai_chat,
    shipped_profile,
)
from shoal.runtime import Event, Run, Swarm
from shoal.runtime._swarm import MOST_JITTER
from shoal.runtime.events import InferenceFailed, InferenceRetried, InferenceStarted
from shoal.testing import wire

pytestmark = [pytest.mark.anyio, pytest.mark.sockets, pytest.mark.wall_limit(180)]

KEY = "a-key-of-the-tests"
CLAUDE = ModelChoice("anthropic", "claude-opus-4-8")
GPT = ModelChoice("openai-chat", "gpt-5.4")
PLAIN = blueprint(stage(available_tools=()), model=ModelSettings((CLAUDE,)))
BOTH = blueprint(stage(), model=ModelSettings((CLAUDE, GPT)))
TALK = blueprint(stage(available_tools=()), model=ModelSettings((CLAUDE, GPT)))
ONCE = RetryPolicy(attempts=1)
QUICK = RetryPolicy(blip_s=0.001, capacity_s=(0.001,))
SHORT = Timeouts(idle_s=1.0)
DRAINED = wire.Failure(400, "invalid_request_error", "Your credit balance is too low to access the API.")


@asynccontextmanager
async def town(
    brain: wire.Brain,
    faults: Sequence[wire.Fault] | wire.FaultPolicy = (),
    *,
    limits: wire.Limits | None = None,
    models: Mapping[str, Mapping[str, Any]] | None = None,
    timeouts: Timeouts | None = None,
    window_tokens: int | None = None,
    **more: Any,
) -> AsyncIterator[tuple[Swarm, wire.Server]]:
    """Open a swarm whose two providers speak to one wire server."""
    settings = wire.Settings(faults=faults, limits=limits or wire.Limits(), models=models or {})
    async with wire.serve(brain, settings) as server:
        providers: list[VendorProvider] = [
            anthropic(KEY, base_url=server.base_url, timeouts=timeouts, profiles=small(window_tokens)),
            openai_chat(KEY, base_url=server.openai_url, timeouts=timeouts),
        ]
        async with swarm_of(*providers, **more) as swarm:
            yield swarm, server
        assert [found for found in server.violations if found.enforced and found.rule != "A20"] == []


def small(window_tokens: int | None) -> dict[str, ModelProfile]:
    """Return the first model's profile with another window; none where that is `None`."""
    known = shipped_profile(CLAUDE.model or "")
    changed = {} if window_tokens is None else {"window_tokens": window_tokens, "max_output_tokens": 50}
    return {known.model: replace(known, **changed)} if changed else {}


def of(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [event.payload for event in events if isinstance(event.payload, kind) and event.payload.purpose == "stage"]


def at(path: str, *faults: wire.Fault) -> wire.FaultPolicy:
    """Return a policy under which every request to *path* goes wrong."""
    return lambda exchange: faults if exchange.incoming.path.endswith(path) else ()


# --- again


async def test_a_busy_vendor_is_asked_again_after_the_time_that_it_names():
    busy = wire.first(2, wire.Failure(429, retry_after="0.03"))
    async with town(wire.Script("done"), busy) as (swarm, _):
        run = await swarm.spawn(PLAIN)
        assert (await run.result()).output == "done"
        told = of(events_of(swarm, run), InferenceRetried)
    assert [(one.attempt, one.error) for one in told] == [(1, "ProviderBusy"), (2, "ProviderBusy")]
    assert all(0.03 <= one.delay_s <= 0.03 * (1 + MOST_JITTER) for one in told)


async def test_an_overload_that_comes_in_the_middle_of_a_reply_is_asked_again():
    async with town(wire.Script("done"), wire.first(1, wire.ErrorEvent()), retry=QUICK) as (swarm, _):
        run = await swarm.spawn(PLAIN)
        assert (await run.result()).output == "done"
        [told] = of(events_of(swarm, run), InferenceRetried)
    assert told.error == "PartialReply"


@pytest.mark.parametrize("fault", [wire.Cut(), wire.HangUp(at=3), wire.Reset(at=3)])
async def test_calls_of_a_reply_that_was_cut_never_run(fault: wire.Fault):
    brain = wire.Script(wire.turn("so", wire.call("context_append", region="notes", content="once")), "done")
    async with town(brain, wire.first(1, fault), retry=QUICK) as (swarm, _):
        run = await swarm.spawn(blueprint(stage(), model=ModelSettings((CLAUDE,))))
        await run.result()
        events = events_of(swarm, run)
    assert len(of(events, InferenceRetried)) == 1
    assert kinds(events, "ToolCallCompleted") == ["ToolCallCompleted"]


async def test_a_vendor_that_falls_silent_is_not_waited_for():
    async with town(wire.Script("done"), wire.first(1, wire.Stall(600, at=2)), timeouts=SHORT, retry=QUICK) as (
        swarm,
        _,
    ):
        run = await swarm.spawn(PLAIN)
        assert (await run.result()).output == "done"
        told = of(events_of(swarm, run), InferenceRetried)
    assert "nothing arrived in time" in told[0].message


async def test_a_budget_that_is_spent_is_an_error_with_its_name():
    async with town(wire.Script("never"), [wire.Cut()], retry=RetryPolicy(attempts=3, blip_s=0.001)) as (swarm, server):
        run = await swarm.spawn(PLAIN)
        outcome = await run.result()
        [failed] = of(events_of(swarm, run), InferenceFailed)
        told = of(events_of(swarm, run), InferenceRetried)
    assert (outcome.status, failed.error, len(server.journal)) == ("error", "PartialReply", 3)
    # The journal keeps what each of them may have cost, since each may be billed.
    assert all(one.cost > 0 for one in (*told, failed))


# --- another vendor


async def test_a_run_goes_on_with_its_next_candidate_in_the_middle_of_its_work():
    brain = wire.Script(wire.turn(wire.think("hm"), wire.call("context_append", region="notes", content="1")), "done")
    later = wire.on({2: [wire.Failure(529)]})
    async with town(brain, later, retry=ONCE) as (swarm, server):
        run = await swarm.spawn(BOTH)
        assert (await run.result()).output == "done"
        events = events_of(swarm, run)
    assert [one.provider for one in of(events, InferenceStarted)] == ["anthropic", "anthropic", "openai-chat"]
    assert kinds(events, "ModelChanged") == ["ModelChanged"]
    assert server.violations == ()


async def test_where_nobody_is_left_the_run_takes_its_error_edge():
    down = blueprint(
        stage(transitions=(edge("rescue", condition="error"),)),
        stage("rescue", available_tools=(), transitions=()),
        model=ModelSettings((CLAUDE, GPT)),
    )
    async with town(wire.Script("rescued"), wire.first(2, wire.Html()), retry=ONCE) as (swarm, _):
        run = await swarm.spawn(down)
        assert (await run.result()).output == "rescued"


# --- somebody has to act


async def test_a_drained_account_pauses_the_run_and_names_the_remedy():
    async with town(wire.Script("done"), wire.first(1, DRAINED)) as (swarm, _):
        run = await swarm.spawn(PLAIN)
        with pytest.raises(RunIsPaused) as paused:
            await run.result()
        assert paused.value.reason == "needs setup"
        assert paused.value.remedy.endswith("Add credits to the account, or raise its spending limit.")
        await run.resume()
        assert (await run.result()).output == "done"


async def test_runs_behind_an_open_breaker_pause_with_the_remedy_and_are_not_sent():
    async with town(wire.Script("done"), wire.first(3, DRAINED)) as (swarm, server):
        runs = [await paused(await swarm.spawn(PLAIN)) for _ in range(5)]
        assert len(server.journal) == 3
        assert not swarm.statistics().pools["anthropic"].busy
        await runs[4].resume()
        assert (await runs[4].result()).output == "done"


async def paused(run: Run) -> Run:
    with pytest.raises(RunIsPaused, match="Add credits"):
        await run.result()
    return run


async def test_a_vendor_that_is_gone_is_left_alone_and_its_runs_go_elsewhere():
    async with town(wire.Script(last="done"), at("/messages", wire.Failure(503)), retry=ONCE) as (swarm, server):
        for _ in range(5):
            assert (await (await swarm.spawn(TALK)).result()).output == "done"
        asked = [exchange.incoming.path for exchange in server.journal]
    assert (asked.count("/v1/messages"), asked.count("/v1/chat/completions")) == (3, 5)


async def test_a_prompt_that_is_too_long_pauses_the_run_and_says_by_how_much():
    small = {"claude-opus-4-8": {"like": "claude-opus-4-8", "window": 50}}
    async with town(wire.Script("never"), models=small) as (swarm, _):
        run = await swarm.spawn(PLAIN, task="a b c " * 100)
        with pytest.raises(RunIsPaused, match=r"too long: \d+ tokens > 50") as paused:
            await run.result()
    assert paused.value.reason == "context overflow"


async def test_a_large_request_is_counted_by_its_vendor_before_it_is_sent():
    async with town(wire.Script("done"), window_tokens=100) as (swarm, server):
        run = await swarm.spawn(blueprint(stage(available_tools=(), system_prompt="x " * 90), model=PLAIN.model))
        await run.result()
        assert [exchange.incoming.path for exchange in server.journal] == ["/v1/messages/count_tokens", "/v1/messages"]
        assert kinds(events_of(swarm, run), "TokensMeasured") == ["TokensMeasured"]


async def test_where_the_counter_is_down_the_request_goes_out_uncounted():
    down = at("/count_tokens", wire.Failure(500))
    async with town(wire.Script("done"), down, window_tokens=100) as (swarm, server):
        run = await swarm.spawn(blueprint(stage(available_tools=(), system_prompt="x " * 90), model=PLAIN.model))
        assert (await run.result()).output == "done"
        assert [exchange.status for exchange in server.journal] == [500, 200]


# --- pacing


async def test_limits_are_learned_from_answers_and_kept():
    limits = wire.Limits(requests_per_minute=2)
    async with town(wire.Script(last="done"), limits=limits) as (swarm, server), anyio.create_task_group() as tasks:
        for _ in range(2):
            await finish(swarm)
        tasks.start_soon(finish, swarm)
        limit = limit_of(swarm)
        while limit.statistics().queued == 0:  # another task's turn
            await checkpoint()
        assert (limit.requests_per_minute, len(server.journal)) == (2, 2)
        tasks.cancel_scope.cancel()


def limit_of(swarm: Swarm) -> RateLimit:
    [limit] = [p.rate_limit(CLAUDE.model or "") for p in swarm.hall.servants.providers if p.name == CLAUDE.provider]  # type: ignore[attr-defined]
    return limit


async def finish(swarm: Swarm) -> None:
    await (await swarm.spawn(PLAIN)).result()


async def test_no_more_requests_are_under_way_than_the_pool_of_a_model_lets():
    pools = {"anthropic:claude-opus-4-8": 2}
    async with town(wire.Script(last="done"), limits=wire.Limits(concurrency=4), pools=pools) as (swarm, server):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(finish, swarm)
        assert [exchange.status for exchange in server.journal] == [200] * 8


async def test_cancelling_a_run_closes_its_connection():
    async with town(wire.Script("never"), [wire.Stall(600, at=1)]) as (swarm, server):
        run = await swarm.spawn(PLAIN)
        while not server.journal or server.journal[0].first_byte_s is None:  # another task's bytes
            await checkpoint()
        await run.cancel()
        assert (await run.result()).status == "cancelled"
        await server.journal.wait_ended()
        assert server.journal[0].client_left
