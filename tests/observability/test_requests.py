"""Spans of inferences: what was asked, what it cost, and how they end that got no answer."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spankit import Story, named, one, parent_of, share, spans_of

from shoal.observability import Span
from shoal.runtime.context import PromptAmended, PromptEpoch
from shoal.runtime.events import (
    InferenceFailed,
    InferenceRetried,
    InferenceStarted,
    LaneCompleted,
    LaneDegraded,
    LaneStarted,
    ModelChanged,
    RunRestarted,
    TokensMeasured,
)


@pytest.fixture
def told() -> Story:
    """A run in its first stage."""
    story = Story()
    story.spawn()
    story.enter()
    return story


def chat(story: Story) -> Span:
    return one(spans_of(story), "chat m")


def test_a_request_says_what_was_asked_and_what_came_back(told: Story):
    told.answer(told.ask(), usage=(4, 3, 2, 1, 5, 2), model="m-2", request_id="r-1", finish="length")
    said = chat(told).attributes
    assert said["gen_ai.operation.name"] == "chat"
    assert (said["gen_ai.provider.name"], said["gen_ai.system"]) == ("scripted", "scripted")
    assert (said["gen_ai.request.model"], said["gen_ai.response.model"]) == ("m", "m-2")
    assert (said["gen_ai.response.id"], said["gen_ai.response.finish_reasons"]) == ("r-1", ("length",))
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (10, 5)
    assert said["gen_ai.usage.cache_read.input_tokens"] == 3
    assert said["gen_ai.usage.cache_write.input_tokens"] == said["gen_ai.usage.cache_creation.input_tokens"] == 3
    assert said["gen_ai.usage.reasoning.output_tokens"] == 2
    assert (said["shoal.cost.usd"], said["operation.cost"]) == (0.01, 0.01)
    assert chat(told).kind == "client"


def test_a_request_that_its_server_did_not_count_says_so(told: Story):
    told.answer(told.ask(), estimated=True)
    assert chat(told).attributes["shoal.usage.estimated"] is True
    told.answer(told.ask())
    assert "shoal.usage.estimated" not in named(spans_of(told), "chat m")[1].attributes


def test_a_request_of_unknown_price_has_no_cost_instead_of_none(told: Story):
    told.answer(told.ask(), cost=None, shares=(share("notes", cost=None),))
    told.end()
    spans = spans_of(told)
    assert not [name for name in one(spans, "chat m").attributes if "cost" in name]
    run = one(spans, "invoke_agent desk").attributes
    assert (run["shoal.cost.band"], "shoal.cost.usd" in run) == ("unknown", False)


def test_each_region_says_what_it_cost_and_the_reply_beside_it(told: Story):
    shares = (
        share("notes", 10, "0.02", cache_read=4, cache_write=2, cache_write_long=1),
        share("reply.text", 0, "0.03"),
        share("reply.reasoning", 0, "0.04"),
    )
    told.answer(told.ask(), shares=shares)
    said = chat(told).attributes
    assert said["shoal.region.notes.tokens"] == 17
    assert said["shoal.region.notes.cache_read"] == 4
    assert said["shoal.region.notes.cache_write"] == 3
    assert said["shoal.region.notes.cost_usd"] == 0.02
    assert said["shoal.cost.reply_usd"] == 0.07
    assert not [name for name in said if name.startswith("shoal.region.reply")]


def test_of_many_regions_the_dearest_are_attributes_and_all_are_in_an_event(told: Story):
    shares = tuple(share(f"r{n}", 10, f"0.{n:02}") for n in range(1, 21))
    told.answer(told.ask(), shares=shares)
    span = chat(told)
    shown = {name for name in span.attributes if name.endswith(".cost_usd") and name.startswith("shoal.region.")}
    assert shown == {f"shoal.region.r{n}.cost_usd" for n in range(5, 21)}
    [table] = span.events
    assert set(table.attributes["shoal.regions"]) == {f"r{n}" for n in range(1, 21)}


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=24))
def test_regions_and_reply_add_up_to_the_bill(micros: list[int]):
    costs = [Decimal(micro) / 10**6 for micro in micros]
    owners = ["reply.text", *(f"r{n}" for n in range(len(costs) - 1))]
    told = Story()
    told.spawn()
    shares = tuple(share(owner, 1, str(cost)) for owner, cost in zip(owners, costs, strict=True))
    told.answer(told.ask(), cost=sum(costs), shares=shares)
    told.end()
    run = one(spans_of(told), "invoke_agent desk")
    tables = [event.attributes for event in run.events if event.name == "shoal.regions"] or [run.attributes]
    regions = tables[0].get("shoal.regions.cost_usd", ())
    assert sum(regions) + run.attributes.get("shoal.cost.reply_usd", 0) == pytest.approx(float(sum(costs)))


def test_a_repeated_attempt_is_an_event_and_is_counted(told: Story):
    started = told.ask()
    told.add(InferenceRetried("stage", started, 1, "ProviderBusy", "wait", 0.5))
    told.add(InferenceRetried("stage", started, 2, "ProviderBusy", "wait", 1.0))
    told.answer(started)
    span = chat(told)
    assert span.attributes["shoal.attempts"] == 3
    assert [event.attributes["shoal.delay_s"] for event in span.events] == [0.5, 1.0]


def test_what_an_attempt_that_was_cut_may_have_cost_is_said_and_is_in_no_sum(told: Story):
    started = told.ask()
    told.add(InferenceRetried("stage", started, 1, "PartialReply", "cut", 0.5, Decimal("0.25")))
    told.add(InferenceFailed("stage", started, "PartialReply", "cut", cost=Decimal("0.5")))
    told.end()
    spans = spans_of(told)
    [retry] = one(spans, "chat m").events
    assert retry.attributes["shoal.cost.cut_usd"] == 0.25
    assert one(spans, "chat m").attributes["shoal.cost.cut_usd"] == 0.5
    assert one(spans, "invoke_agent desk").attributes["shoal.cost.usd"] == 0.0


def test_a_request_says_how_its_prompt_went_on(told: Story):
    told.add(PromptEpoch("eviction", 120, 3), PromptAmended("plan", "turn", None, 4))
    told.answer(told.ask())
    said = chat(told).attributes
    assert (said["shoal.prompt.epoch"], said["shoal.prompt.tokens_rewritten"]) == ("eviction", 120)
    assert (said["shoal.prompt.thinking_dropped"], said["shoal.prompt.amended"]) == (3, ("plan",))


def test_what_was_said_again_is_said_of_one_request_only(told: Story):
    told.add(PromptEpoch("first", 1), PromptAmended("plan", "turn", None, 4))
    told.answer(told.ask())
    told.answer(told.ask())
    second = [span for span in spans_of(told) if span.name == "chat m"][1]
    assert not [name for name in second.attributes if name.startswith("shoal.prompt")]


def test_a_request_says_who_counted_it_and_what_the_window_left_of_its_reply(told: Story):
    told.add(TokensMeasured("m", 900, "vendor", 800))
    started = told.add(InferenceStarted("stage", "scripted", "m", 1, 900, "d", 100, wanted_tokens=400))
    told.answer(started)
    said = chat(told).attributes
    assert (said["shoal.context.counted_tokens"], said["shoal.context.counted_by"]) == (900, "vendor")
    assert said["shoal.reply.wanted_tokens"] == 400


def test_what_was_counted_for_a_job_is_not_said_of_the_stage(told: Story):
    told.add(TokensMeasured("m", 900, "vendor", 800, job=1))
    told.answer(told.ask())
    assert "shoal.context.counted_tokens" not in chat(told).attributes


def test_a_request_that_failed_says_with_what(told: Story):
    started = told.ask()
    told.add(InferenceFailed("stage", started, "ProviderBusy", "come back later\nnot today"))
    span = chat(told)
    assert (span.status, span.attributes["shoal.outcome"]) == ("error", "failed")
    assert (span.attributes["error.type"], span.attributes["shoal.reason"]) == ("ProviderBusy", "come back later")


def test_a_request_that_was_never_sent_has_a_span_of_almost_no_length(told: Story):
    told.add(ModelChanged("other", "big", 1000, "ProviderBusy"))
    told.add(InferenceFailed("stage", 0, "ContextOverflow", "too much"))
    span = one(spans_of(told), "chat big")
    assert span.end_ns - span.start_ns == 1
    assert (span.attributes["gen_ai.provider.name"], span.attributes["error.type"]) == ("other", "ContextOverflow")


def test_a_request_of_a_job_hangs_below_the_job(told: Story):
    job = told.add(LaneStarted("titling"))
    told.answer(told.ask("titling", job), "titling")
    told.add(LaneCompleted("titling", job))
    spans = spans_of(told)
    assert parent_of(spans, one(spans, "chat m")).name == "lane.titling"


def test_an_attempt_of_a_job_that_got_no_answer_ends_when_the_next_begins(told: Story):
    job = told.add(LaneStarted("titling"))
    told.ask("titling", job)
    told.answer(told.ask("titling", job), "titling")
    told.add(LaneCompleted("titling", job))
    first, second = named(spans_of(told), "chat m")
    assert (first.attributes["shoal.outcome"], first.status) == ("abandoned", "error")
    assert first.end_ns == second.start_ns


def test_an_attempt_that_its_job_gave_up_on_says_why(told: Story):
    job = told.add(LaneStarted("titling"))
    told.ask("titling", job)
    told.add(LaneDegraded("titling", job, "", "timeout", "no answer within 60 s"))
    spans = spans_of(told)
    assert one(spans, "chat m").attributes["error.type"] == "timeout"
    assert one(spans, "lane.titling").attributes["shoal.reason"] == "timeout: no answer within 60 s"


def test_a_reply_that_comes_after_its_request_was_given_up_is_billed_and_ends_nothing(told: Story):
    job = told.add(LaneStarted("titling"))
    started = told.ask("titling", job)
    told.add(LaneDegraded("titling", job, "", "timeout"))
    told.answer(started, "titling", cost=Decimal("0.5"))
    told.end()
    spans = spans_of(told)
    assert len(named(spans, "chat m")) == 1
    assert one(spans, "invoke_agent desk").attributes["shoal.cost.usd"] == 0.5


def test_a_retry_of_a_request_that_was_given_up_is_noted_nowhere(told: Story):
    told.add(InferenceRetried("stage", 99, 1, "ProviderBusy", "wait", 0.5))
    told.end()
    assert not [event for span in spans_of(told) for event in span.events]


def test_a_crash_ends_what_was_asked_and_the_next_request_points_back(told: Story):
    told.ask()
    told.add(RunRestarted("Traceback\nValueError: no", 1))
    told.answer(told.ask())
    told.leave()
    broken, again = named(spans_of(told), "chat m")
    assert (broken.attributes["shoal.outcome"], broken.status) == ("interrupted", "error")
    assert [link.span_id for link in again.links] == [broken.span_id]
    [crash] = one(spans_of(told), "stage work").events
    assert crash.attributes["shoal.reason"] == "ValueError: no"


@pytest.mark.parametrize(
    ("cost", "band"),
    [("0", "0"), ("0.0123", "1e-2"), ("0.99", "1e-1"), ("1", "1"), ("9.99", "1"), ("10", "1e1"), ("0.0000001", "1e-7")],
)
def test_a_cost_is_banded_by_its_power_of_ten(told: Story, cost: str, band: str):
    told.answer(told.ask(), cost=Decimal(cost))
    told.end()
    assert one(spans_of(told), "invoke_agent desk").attributes["shoal.cost.band"] == band


def test_the_dearest_region_can_be_searched_for(told: Story):
    told.answer(told.ask(), shares=(share("notes", cost="0.01"), share("code", 1, "0.02"), share("task", cost="0.01")))
    told.leave()
    stage = one(spans_of(told), "stage work").attributes
    assert stage["shoal.cost.top_region"] == "code"
    assert stage["shoal.regions"] == ("code", "notes", "task")
    assert stage["shoal.regions.cost_usd"] == (0.02, 0.01, 0.01)


def test_the_run_holds_what_its_stages_used_and_what_was_used_between_them(told: Story):
    told.answer(told.ask(), usage=(10, 0, 0, 0, 5, 1))
    told.leave("work", "tell")
    job = told.add(LaneStarted("compaction", "notes", (1, 2)))
    told.answer(told.ask("compaction", job), "compaction", usage=(7, 1, 0, 0, 2, 0))
    told.add(LaneCompleted("compaction", job, "notes"))
    told.enter("tell")
    told.answer(told.ask(), usage=(20, 0, 3, 0, 4, 0))
    told.leave("tell")
    told.end()
    spans = spans_of(told)
    run = one(spans, "invoke_agent desk").attributes
    assert (run["gen_ai.usage.input_tokens"], run["gen_ai.usage.output_tokens"]) == (41, 11)
    assert (run["shoal.inferences"], run["shoal.cost.usd"]) == (3, 0.03)
    stages = [one(spans, f"stage {name}").attributes["shoal.tokens.input"] for name in ("work", "tell")]
    assert stages == [10, 23]


@pytest.mark.parametrize(
    ("provider", "vendor"),
    [
        ("google", "gcp.gemini"),
        ("openai-chat", "openai"),
        ("codex", "openai"),
        ("azure", "azure.ai.openai"),
        ("mistral", "mistral_ai"),
    ],
)
def test_a_vendor_is_called_what_the_conventions_call_it(told: Story, provider: str, vendor: str):
    told.add(InferenceStarted("stage", provider, "m", 100, 25, "d1", 50, 0))
    told.answer(len(told.events))
    said = one(spans_of(told), "chat m").attributes
    assert [said[name] for name in ("gen_ai.provider.name", "gen_ai.system")] == [vendor] * 2
    assert said["shoal.provider"] == provider


def test_a_vendor_of_the_same_name_in_both_is_named_once(told: Story):
    told.answer(told.ask())
    assert "shoal.provider" not in one(spans_of(told), "chat m").attributes
