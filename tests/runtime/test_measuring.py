"""What a request costs is known before it is sent: estimated, corrected, counted, and refused where it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from runkit import TALK, TASK, blueprint, edge, events_of, folded, kinds, payloads, run_once, stage, swarm_of

from shoal.blueprints import Nudge, Region
from shoal.errors import ContextOverflow, ProviderUnavailable, RunIsPaused
from shoal.providers import ModelProfile, Request, TokenCount, Usage, compatible
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

NOTES = Region("notes", kind="temporary", max_tokens=20_000)
TITLED: dict[Any, str] = {"titling": "A title"}


def own(request: Request) -> int:
    """Return what our own estimate says of *request*."""
    parts = [block.tokens for block in request.system] + [segment.tokens for segment in request.messages]
    return sum(parts) + request.tools.tokens + 3 * sum(len(segment.messages) for segment in request.messages)


class Counter:
    """Counts requests as *says* does, and keeps what it counted."""

    def __init__(self, says: Callable[[Request], int], how: str = "vendor") -> None:
        self._says = says
        self._how = how
        self.counted: list[int] = []

    def __call__(self, request: Request) -> TokenCount:
        self.counted.append(self._says(request))
        return TokenCount(self.counted[-1], self._how, exact=self._how == "vendor")


def counted(*replies: Any, count: Any, window_tokens: int = 10_000, reply_tokens: int = 100, **more: Any) -> Any:
    profile = ModelProfile(
        "m", window_tokens, reply_tokens, window_source="the script", window_key='[models."m"] context'
    )
    more.setdefault("purposes", TITLED)
    return ScriptedProvider(*replies, profile=profile, count=count, lenient=True, **more)


LATER = Say("done", delay_s=10.0)
"""A reply that leaves the lanes time for their work."""


def note(tokens: int) -> Any:
    return call("context_append", region="notes", content="x" * tokens * 4)


# --- when it is counted


async def test_a_request_far_from_half_the_window_is_not_counted():
    counter = Counter(own)
    await run_once(blueprint(stage(available_tools=())), counted("done", count=counter))
    assert counter.counted == []


async def test_a_request_that_reaches_half_the_window_with_its_reply_is_counted():
    counter = Counter(own)
    provider = counted("done", count=counter, reply_tokens=5_000)
    _, events = await run_once(blueprint(stage(available_tools=())), provider)
    assert [payload.how for payload in payloads(events, "TokensMeasured")] == ["vendor"]


async def test_a_counter_that_only_estimates_teaches_nothing():
    provider = counted("done", count=Counter(own, "estimate"), reply_tokens=5_000)
    _, events = await run_once(blueprint(stage(available_tools=())), provider)
    assert kinds(events, "TokensMeasured") == []


async def test_a_counter_that_cannot_be_reached_stops_nothing():
    def fails(_request: Request) -> TokenCount:
        raise ProviderUnavailable("no network")

    outcome, events = await run_once(
        blueprint(stage(available_tools=())), counted("done", count=fails, reply_tokens=5_000)
    )
    assert (outcome.status, kinds(events, "TokensMeasured")) == ("complete", [])


async def test_a_counter_that_says_the_request_is_too_long_refuses_it():
    def fails(_request: Request) -> TokenCount:
        raise ContextOverflow("too long", prompt_tokens=11_000)

    provider = counted("done", count=fails, reply_tokens=5_000)
    with pytest.raises(RunIsPaused):
        await run_once(blueprint(stage(available_tools=())), provider)
    assert [request.purpose for request in provider.requests if request.purpose == "stage"] == []


# --- what the count is good for


async def test_a_counter_that_says_a_tenth_more_stops_the_first_request_that_is_too_long_and_the_next_is_right():
    asked: list[tuple[int, int]] = []

    def count(request: Request) -> TokenCount:
        asked.append((round(own(request) * 1.1), request.max_tokens))
        return TokenCount(asked[-1][0], "vendor", exact=True)

    task = Region("task", kind="pinned", max_tokens=5_000, seed=TASK.seed)
    provider = counted("done", count=count, window_tokens=6_000, reply_tokens=3_000)
    made = blueprint(stage(available_tools=()), regions=(task, TALK))
    _, events = await run_once(made, provider, task="x" * 15_600)
    assert [tokens + reply > 6_000 for tokens, reply in asked] == [True, False]
    [sent] = [request for request in provider.requests if request.purpose == "stage"]
    [started] = [p for p in payloads(events, "InferenceStarted") if p.purpose == "stage"]
    assert (started.approx_tokens, sent.max_tokens) == (pytest.approx(own(sent) * 1.1, rel=0.01), asked[1][1])


async def test_an_estimate_that_is_too_high_is_put_right_before_anything_is_refused():
    task = Region("task", kind="pinned", max_tokens=5_000, seed=TASK.seed)
    counter = Counter(lambda request: own(request) // 2)
    provider = counted("done", count=counter, window_tokens=4_000, reply_tokens=1_500)
    made = blueprint(stage(available_tools=()), regions=(task, TALK))
    outcome, _ = await run_once(made, provider, task="x" * 18_000)
    [sent] = [request for request in provider.requests if request.purpose == "stage"]
    assert outcome.status == "complete"
    assert own(sent) > 4_000
    assert sent.max_tokens == 1_500


async def test_a_prompt_that_is_estimated_to_fill_the_window_is_refused_where_nobody_counts_better():
    task = Region("task", kind="pinned", max_tokens=5_000, seed=TASK.seed)
    provider = counted("done", count=Counter(own, "estimate"), window_tokens=4_000)
    with pytest.raises(RunIsPaused):
        await run_once(blueprint(stage(available_tools=()), regions=(task, TALK)), provider, task="x" * 18_000)


async def test_what_was_counted_corrects_the_estimates_of_a_resumed_run():
    counter = Counter(lambda request: own(request) * 2)
    provider = counted(Say("done", usage=Usage()), count=counter, reply_tokens=5_000)
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=())), task="x" * 2_000)
        await run.result()
        assert folded(swarm, run).calibrated("scripted-model").ratio == pytest.approx(2.0, rel=0.02)


async def test_where_the_server_counts_nothing_no_estimate_is_corrected_by_another():
    said = {"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}
    http = httpx.MockTransport(lambda _: httpx.Response(200, json=said))
    async with swarm_of(compatible("http://there/v1", model="m", http=http)) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=())), task="x" * 2_000)
        await run.result()
        [completed] = payloads(events_of(swarm, run), "InferenceCompleted")
        assert completed.estimated
        assert completed.billed.input > 500
        assert folded(swarm, run).calibrated("m").seen == 0


async def test_what_a_local_vocabulary_counts_is_one_measurement_among_others():
    first = Counter(lambda request: own(request) * 2, "tiktoken:o200k_base")
    provider = counted(note(10), "done", count=first, reply_tokens=5_000)
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage(), regions=(TASK, NOTES, TALK)), task="x" * 2_000)
        await run.result()
        hows = {payload.how for payload in payloads(events_of(swarm, run), "TokensMeasured")}
    assert hows == {"tiktoken:o200k_base"}


# --- what does not fit


async def test_a_refusal_names_prompt_reply_window_and_the_setting():
    provider = counted("done", count=Counter(own), window_tokens=600, reply_tokens=300)
    task = Region("task", kind="pinned", max_tokens=5_000, seed=TASK.seed)
    with pytest.raises(RunIsPaused) as raised:
        await run_once(blueprint(stage(available_tools=()), regions=(task, TALK)), provider, task="x" * 4_000)
    said = str(raised.value)
    assert "reply of 300" in said
    assert "the window of 600 tokens (the script)" in said
    assert '`[models."m"] context`' in said


async def test_a_refusal_takes_the_stages_error_edge():
    twice = iter((9_000, 9_000))
    provider = counted("saved", count=Counter(lambda _request: next(twice, 10)), reply_tokens=5_000)
    stages = (
        stage("a", available_tools=(), transitions=(edge("b", condition="error"),)),
        stage("b", available_tools=(), transitions=()),
    )
    outcome, events = await run_once(blueprint(*stages, nudge=Nudge(enabled=False)), provider)
    assert (outcome.output, len(payloads(events, "TokensMeasured"))) == ("saved", 3)


async def test_a_reply_that_the_window_cuts_is_said_to_be():
    provider = counted("done", count=Counter(own), window_tokens=2_000, reply_tokens=1_990)
    _, events = await run_once(blueprint(stage(available_tools=())), provider, task="x" * 400)
    [started] = [p for p in payloads(events, "InferenceStarted") if p.purpose == "stage"]
    assert started.wanted_tokens == 1_990
    assert started.reply_tokens == 2_000 - started.approx_tokens


async def test_a_reply_that_fits_is_not():
    _, events = await run_once(blueprint(stage(available_tools=())), counted("done", count=Counter(own)))
    assert [p.wanted_tokens for p in payloads(events, "InferenceStarted") if p.purpose == "stage"] == [0]


# --- the same for what is no stage's


def by_purpose(purpose: str) -> Callable[[Request], TokenCount]:
    """Return a counter that says of requests for *purpose* that they fit nowhere, and of others what we say of them."""
    return lambda asked: TokenCount(10**6 if asked.purpose == purpose else own(asked), "vendor", exact=True)


async def test_a_title_that_does_not_fit_as_counted_is_taken_from_the_task():
    provider = counted(LATER, count=by_purpose("titling"), window_tokens=200)
    _, events = await run_once(blueprint(stage(available_tools=())), provider, task="count the stars")
    [degraded] = payloads(events, "LaneDegraded")
    assert (degraded.lane, degraded.reason) == ("titling", "overflow")
    assert [payload.title for payload in payloads(events, "RunTitled")] == ["count the stars"]


async def test_a_summary_that_does_not_fit_as_counted_leaves_the_entries():
    files = Region("files", kind="compacting", max_tokens=400)
    replies = [call("context_append", region="files", content="x" * 640) for _ in range(3)]
    provider = counted(*replies, LATER, count=by_purpose("compaction"), window_tokens=2_000, reply_tokens=900)
    _, events = await run_once(blueprint(stage(), regions=(TASK, files, TALK)), provider)
    assert {p.reason for p in payloads(events, "LaneDegraded") if p.lane == "compaction"} == {"overflow"}
    assert not [request for request in provider.requests if request.purpose == "compaction"]


async def test_a_count_for_a_lane_says_so():
    provider = counted(LATER, count=Counter(own), window_tokens=200)
    _, events = await run_once(blueprint(stage(available_tools=())), provider)
    jobs = {event.seq for event in events if event.kind == "LaneStarted"}
    assert {p.job for p in payloads(events, "TokensMeasured") if p.job} <= jobs
    assert [p for p in payloads(events, "TokensMeasured") if p.job]


async def test_a_routing_question_that_does_not_fit_as_counted_is_not_sent():
    provider = counted("one", "two", count=by_purpose("routing"), window_tokens=250)
    edges = (edge("b", hint="x"), edge("c", hint="y"), edge("d", condition="error"))
    stages = (
        stage("a", available_tools=(), transitions=edges),
        *(stage(name, available_tools=(), transitions=()) for name in "bcd"),
    )
    outcome, events = await run_once(blueprint(*stages, nudge=Nudge(enabled=False)), provider)
    assert "routing" not in {request.purpose for request in provider.requests}
    assert [p.error for p in payloads(events, "InferenceFailed")] == ["ContextOverflow"]
    assert outcome.output == "two"


# --- what is written


async def test_what_is_written_is_counted_by_the_models_own_vocabulary_and_the_event_says_so():
    profile = ModelProfile("m", 10_000, 100, tokenizer="tiktoken:o200k_base")
    provider = ScriptedProvider(note(20), "done", profile=profile, purposes=TITLED)
    _, events = await run_once(blueprint(stage(), regions=(TASK, NOTES, TALK)), provider)
    [written] = [p for p in payloads(events, "EntryWritten") if p.region == "notes"]
    assert written.counted == "tiktoken:o200k_base"
    assert written.tokens < 20


async def test_a_model_whose_vocabulary_nobody_has_is_estimated():
    profile = ModelProfile("m", 10_000, 100, tokenizer="tiktoken:no_such_base")
    provider = ScriptedProvider(note(20), "done", profile=profile, purposes=TITLED)
    _, events = await run_once(blueprint(stage(), regions=(TASK, NOTES, TALK)), provider)
    assert {p.counted for p in payloads(events, "EntryWritten")} == {"estimate"}
