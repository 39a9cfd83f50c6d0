"""One request, asked until it is answered or its budget is spent."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import anyio
import pytest
from providers_parts import block, request, tool, tools, user

from shoal.errors import (
    ConfigInvalid,
    PartialReply,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
    ProviderSetup,
    ProviderUnavailable,
)
from shoal.providers import (
    Breaker,
    Completed,
    ModelProfile,
    RateLimit,
    ReasoningDelta,
    Reply,
    Request,
    RetryPolicy,
    StreamEvent,
    Text,
    TextDelta,
    TokenCount,
    Usage,
    anthropic,
    exchange,
)
from shoal.testing import Say, ScriptedProvider, call, wire

pytestmark = pytest.mark.anyio


def busy(retry_after_s: float | None = None) -> ProviderBusy:
    return ProviderBusy("busy", retry_after_s=retry_after_s)


def blip() -> ProviderUnavailable:
    return ProviderUnavailable("blip", request_id="r-9", status=502)


async def tried(*replies: Any, policy: RetryPolicy | None = None) -> list[tuple[int, str, float]]:
    """Return what `on_retry` was told, and check that the waits were waited."""
    told: list[tuple[int, str, float]] = []
    began = anyio.current_time()
    await exchange(
        ScriptedProvider(*replies),
        request(user("x")),
        policy=policy,
        on_retry=lambda attempt, error, delay_s: told.append((attempt, str(error), delay_s)),
    )
    assert anyio.current_time() - began == pytest.approx(sum(delay_s for _, _, delay_s in told), abs=0.5)
    return told


async def test_a_reply_at_the_first_attempt_is_returned():
    completed = await exchange(ScriptedProvider("hello"), request(user("x")))
    assert str(completed.reply.text) == "hello"


async def test_blips_wait_twice_as_long_each_time():
    assert await tried(blip(), blip(), blip(), "ok") == [(1, "blip", 1.0), (2, "blip", 2.0), (3, "blip", 4.0)]


async def test_a_busy_vendor_is_left_alone_for_longer():
    assert [delay_s for _, _, delay_s in await tried(busy(), busy(), busy(), "ok")] == [15.0, 30.0, 60.0]


async def test_the_last_wait_for_capacity_repeats():
    policy = RetryPolicy(attempts=5)
    assert [d for _, _, d in await tried(busy(), busy(), busy(), busy(), "ok", policy=policy)] == [
        15.0,
        30.0,
        60.0,
        60.0,
    ]


async def test_the_vendors_word_wins_up_to_the_cap():
    assert [delay_s for _, _, delay_s in await tried(busy(0.25), busy(3600.0), "ok")] == [0.25, 60.0]


async def test_jitter_is_a_share_that_is_added():
    assert [d for _, _, d in await tried(blip(), "ok", policy=RetryPolicy(jitter=lambda: 0.5))] == [1.5]


async def test_after_the_last_attempt_the_error_is_raised_with_its_number():
    provider = ScriptedProvider(blip(), blip(), blip(), blip())
    with pytest.raises(ProviderUnavailable) as caught:
        await exchange(provider, request(user("x")))
    assert caught.value.attempt == len(provider.requests) == 4


async def test_the_waits_of_one_request_stay_within_its_budget():
    provider = ScriptedProvider(busy(), busy(), "never")
    with pytest.raises(ProviderBusy):
        await exchange(provider, request(user("x")), policy=RetryPolicy(budget_s=40.0))
    assert anyio.current_time() == pytest.approx(15.0, abs=0.5)


@pytest.mark.parametrize("error", [ProviderRefused("no"), ProviderSetup("no key")])
async def test_what_would_be_refused_again_is_not_asked_again(error: ProviderError):
    provider = ScriptedProvider(error, "never")
    with pytest.raises(type(error)):
        await exchange(provider, request(user("x")))
    assert len(provider.requests) == 1


async def test_a_cut_stream_is_asked_again_and_its_calls_are_not_in_the_reply():
    completed = await exchange(ScriptedProvider(Say("abc", (call("look"),), cut_after=2), "whole"), request(user("x")))
    assert (str(completed.reply.text), completed.reply.calls) == ("whole", ())


async def test_deltas_of_a_cut_stream_are_void_once_the_retry_is_told():
    seen: list[str] = []
    await exchange(
        ScriptedProvider(Say("abc", cut_after=2), Say("whole", reasoning="hm")),
        request(user("x")),
        on_delta=lambda delta: seen.append(delta.text),
        on_retry=lambda attempt, error, delay_s: seen.clear(),
    )
    assert seen == ["hm", "whole"]


async def test_an_attempt_that_was_cut_is_told_with_what_it_may_have_cost():
    told: list[ProviderError] = []
    sent = request(user("x" * 40))
    await exchange(
        ScriptedProvider(Say("abcdefgh", cut_after=8), "ok"), sent, on_retry=lambda _, error, __: told.append(error)
    )
    [error] = told
    assert isinstance(error, PartialReply)
    assert (error.text, error.cost_usd, error.attempt) == ("abcdefgh", Decimal(10 + 2 * 5) / 1_000_000, 1)


@pytest.mark.parametrize("settings", [{"attempts": 0}, {"capacity_s": ()}])
def test_a_policy_that_allows_no_attempt_is_refused(settings: dict[str, Any]):
    with pytest.raises(ConfigInvalid):
        RetryPolicy(**settings)


async def test_a_reply_that_is_cut_each_time_is_partial():
    sent = request(user("x" * 40), system=(block("y" * 40),), tools=tools(tool()))
    cut = Say("abcdefgh", reasoning="hmhm", cut_after=8)
    with pytest.raises(PartialReply) as caught:
        await exchange(ScriptedProvider(cut, blip(), cut, cut, name="p"), sent)
    error = caught.value
    assert (error.text, error.attempt, error.provider, error.model) == ("abcdefgh", 4, "p", "m")
    assert error.cost_usd == (Decimal(10 + 10 + 10) * 1 + Decimal(3) * 5) / 1_000_000
    assert isinstance(error.__cause__, ProviderUnavailable)


async def test_the_cost_of_an_attempt_is_told_once():
    told: list[ProviderError] = []
    with pytest.raises(PartialReply) as caught:
        await exchange(
            ScriptedProvider(Say("abcdefgh", cut_after=8), blip()),
            request(user("x")),
            policy=RetryPolicy(attempts=2),
            on_retry=lambda _, error, __: told.append(error),
        )
    assert [getattr(error, "cost_usd", None) is None for error in (*told, caught.value)] == [False, True]


async def test_what_had_arrived_is_kept_though_the_last_attempt_brought_nothing():
    with pytest.raises(PartialReply) as caught:
        await exchange(
            ScriptedProvider(Say("abc", cut_after=2), blip(), price=None),
            request(user("x")),
            policy=RetryPolicy(attempts=2),
        )
    assert (caught.value.text, caught.value.cost_usd) == ("ab", None)
    assert (caught.value.request_id, caught.value.status) == ("r-9", 502)


async def test_a_refusal_after_a_cut_is_the_refusal():
    with pytest.raises(ProviderRefused):
        await exchange(ScriptedProvider(Say("abc", cut_after=2), ProviderRefused("no")), request(user("x")))


async def test_an_attempt_that_takes_too_long_is_repeated():
    assert [(n, d) for n, _, d in await too_slow()] == [(1, 1.0)]


async def too_slow() -> list[tuple[int, str, float]]:
    told: list[tuple[int, str, float]] = []
    await exchange(
        ScriptedProvider(Say("late", delay_s=50.0), "ok"),
        request(user("x"), timeout_s=10.0),
        on_retry=lambda attempt, error, delay_s: told.append((attempt, str(error), delay_s)),
    )
    assert anyio.current_time() == pytest.approx(11.0, abs=0.5)
    return told


async def test_cancelling_closes_the_stream_and_is_not_retried():
    provider = ScriptedProvider(Say("late", delay_s=50.0), "never")
    with anyio.move_on_after(5.0) as scope:
        await exchange(provider, request(user("x")))
    assert scope.cancelled_caught
    assert len(provider.requests) == 1


class Bare:
    """A provider of somebody else's: its stream is no generator, and may forget its end."""

    name = "bare"

    def __init__(self, *events: StreamEvent) -> None:
        self.events = list(events)

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        return self

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        await anyio.lowlevel.checkpoint()
        if not self.events:
            raise StopAsyncIteration
        return self.events.pop(0)

    async def count_tokens(self, request: Request) -> TokenCount:
        return TokenCount(1, "estimate")

    def profile(self, model: str) -> ModelProfile:
        return ModelProfile(model)

    async def aclose(self) -> None:
        pass


async def test_a_stream_without_a_reply_is_no_reply():
    with pytest.raises(ProviderUnavailable, match="without a reply"):
        await exchange(Bare(), request(user("x")), policy=RetryPolicy(attempts=1))


async def test_any_async_iterator_will_do():
    completed = Completed(Reply(Text.of("a")), Usage())
    assert await exchange(Bare(TextDelta("a"), ReasoningDelta("b"), completed), request(user("x"))) is completed


# --- pacing


class PacedProvider:
    """A scripted provider whose vendor takes few tokens a minute."""

    def __init__(self, *replies: Any) -> None:
        self.scripted = ScriptedProvider(*replies)
        self.limit = RateLimit(tokens_per_minute=100)
        self.name = self.scripted.name

    def rate_limit(self, _model: str) -> RateLimit:
        return self.limit

    def profile(self, model: str) -> ModelProfile:
        return self.scripted.profile(model)

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        return self.scripted.stream(request)


async def seconds_for(provider: Any, tokens: int) -> float:
    began = anyio.current_time()
    await exchange(provider, request(system=(block("x" * 4 * tokens),)))
    return anyio.current_time() - began


async def test_a_request_waits_until_the_vendor_takes_it():
    provider = PacedProvider(Say("a", usage=Usage(uncached=100)), "b")
    assert await seconds_for(provider, 100) == 0
    assert await seconds_for(provider, 50) == pytest.approx(30)


async def test_what_the_vendor_counted_is_what_later_requests_wait_for():
    provider = PacedProvider(Say("a", usage=Usage(cache_read=90, uncached=10)), "b")
    assert await seconds_for(provider, 100) == 0
    assert await seconds_for(provider, 160) == 0


async def test_each_attempt_is_paced_and_one_that_brought_nothing_costs_nothing():
    provider = PacedProvider(blip(), "a")
    assert await seconds_for(provider, 100) == pytest.approx(1)


async def test_what_was_written_before_a_cut_stays_counted():
    provider = PacedProvider(Say("half", cut_after=4), "a")
    assert await seconds_for(provider, 100) == pytest.approx(60)


# --- the breaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened() -> tuple[Breaker, Clock]:
    clock = Clock()
    breaker = Breaker(clock=clock)
    for _ in range(3):
        breaker.record(ProviderUnavailable("gone"))
    return breaker, clock


def test_three_fatal_failures_in_a_row_open_it():
    breaker, _ = opened()
    assert breaker.state == "open"
    assert not breaker.allow()


@pytest.mark.parametrize("ending", [None, busy(), ProviderRefused("no")])
def test_an_answer_of_any_kind_starts_the_count_anew(ending: ProviderError | None):
    breaker = Breaker()
    for error in (blip(), ProviderSetup("no key"), ending, PartialReply("cut"), blip()):
        breaker.record(error)
    assert breaker.allow()


def test_one_probe_goes_out_after_the_wait():
    breaker, clock = opened()
    clock.now = 299.0
    assert not breaker.allow()
    clock.now = 300.0
    assert [breaker.allow(), breaker.allow(), breaker.state] == [True, False, "probing"]


def test_a_probe_that_succeeds_closes_it():
    breaker, clock = opened()
    clock.now = 300.0
    breaker.allow()
    breaker.record(None)
    assert [breaker.allow(), breaker.allow()] == [True, True]


def test_a_probe_that_fails_starts_the_wait_anew():
    breaker, clock = opened()
    clock.now = 300.0
    breaker.allow()
    breaker.record(blip())
    clock.now = 599.0
    assert not breaker.allow()
    clock.now = 600.0
    assert breaker.allow()


def test_a_probe_that_was_cancelled_is_given_to_the_next():
    breaker, clock = opened()
    clock.now = 300.0
    breaker.allow()
    breaker.give_back()
    assert breaker.allow()


def test_giving_back_changes_nothing_while_it_is_closed():
    breaker = Breaker()
    breaker.give_back()
    assert breaker.state == "closed"


def test_a_reset_closes_it():
    breaker, _ = opened()
    breaker.reset()
    assert breaker.allow()


def test_it_knows_why_it_is_open_until_something_works():
    breaker = Breaker()
    why = ProviderSetup("no credits")
    breaker.record(why)
    assert breaker.why is why
    breaker.record(None)
    assert breaker.why is None


def test_a_person_may_ask_for_a_probe_before_the_wait_is_over():
    breaker, _ = opened()
    breaker.retry_now()
    assert [breaker.allow(), breaker.allow()] == [True, False]


def test_it_can_be_told_never_to_open():
    breaker = Breaker(failures=0)
    for _ in range(10):
        breaker.record(blip())
    assert breaker.allow()


async def test_it_runs_on_the_loops_clock():
    breaker = Breaker()
    for _ in range(3):
        breaker.record(blip())
    await anyio.sleep(300.0)
    assert breaker.allow()
    assert repr(breaker) == "<Breaker probing, 3 failures>"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.sockets
def test_a_provider_that_nobody_closed_serves_on_a_later_event_loop():
    with wire.serve_in_thread(wire.Script(last="hello")) as server:
        provider = anthropic("a-key", base_url=server.base_url)

        async def asked() -> str:
            return str((await exchange(provider, request(user("x"), model="claude-opus-4-8"))).reply.text)

        async def asked_last() -> str:
            said = await asked()
            await provider.aclose()
            return said

        assert [anyio.run(asked), anyio.run(asked_last)] == ["hello", "hello"]
    gc.collect()  # what the first loop left open complains here, where that is expected
