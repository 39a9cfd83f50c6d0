"""Spans of stages, of transitions, and of what happens in a run beside its work."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spankit import CHILD, Story, named, one, share, spans_of

from shoal.observability import Projection, Span
from shoal.providers import Text
from shoal.runtime import ledger_of
from shoal.runtime.context import (
    ContextCompacted,
    EntriesEvicted,
    LayoutChanged,
    RegionReset,
    SeedBlock,
    SeedRefreshed,
    SeedResolved,
)
from shoal.runtime.events import (
    BlueprintChanged,
    ChildEnded,
    ChildSpawned,
    GateBlocked,
    GateForced,
    LaneCompleted,
    LaneStarted,
    MessageReceived,
    ModelChanged,
    Nudged,
    Payload,
    RunPaused,
    RunResumed,
    RunTitled,
    VolatilityBroken,
)


def begun() -> Story:
    story = Story()
    story.spawn()
    story.enter()
    return story


def moved(story: Story) -> Span:
    return one(spans_of(story), "transition work → tell")


def test_a_visit_says_how_it_went():
    story = begun()
    story.leave(reason="max_iterations", error="cut off", flags=("max_iterations_hit",), abandoned=("notes",))
    stage = one(spans_of(story), "stage work")
    assert (stage.status, stage.attributes["error.type"]) == ("error", "max_iterations")
    assert (stage.attributes["shoal.outcome"], stage.attributes["shoal.reason"]) == ("max_iterations", "cut off")
    assert stage.attributes["shoal.flags"] == ("max_iterations_hit",)
    assert stage.attributes["shoal.regions.abandoned"] == ("notes",)
    assert (stage.attributes["shoal.visit"], stage.attributes["shoal.iterations"]) == (1, 1)


def test_a_transition_lasts_until_the_next_stage_and_is_finished_by_its_first_request():
    story = begun()
    story.leave("work", "tell")
    story.enter("tell")
    assert not named(spans_of(story), "transition work → tell")
    story.answer(story.ask())
    span = moved(story)
    assert span.end_ns - span.start_ns == 2_000_000_000


def test_a_transition_says_what_the_next_request_had_to_send_again():
    story = begun()
    story.answer(story.ask(), usage=(10, 60, 30, 0, 5, 0), shares=(share("notes", 40), share("talk", 60)))
    story.leave("work", "tell")
    story.enter("tell")
    story.answer(story.ask(), usage=(70, 20, 0, 0, 5, 0), shares=(share("notes", 40), share("plan", 50)))
    said = moved(story).attributes
    assert said["shoal.transition.cached_before"] == 90
    assert (said["shoal.transition.cached_after"], said["shoal.transition.uncached_after"]) == (20, 70)
    assert said["shoal.transition.cache_tokens_lost"] == 70
    assert said["shoal.transition.regions"] == ("talk", "plan", "notes")
    assert said["shoal.transition.tokens_before"] == (60, 0, 40)
    assert said["shoal.transition.tokens_after"] == (0, 50, 40)


def test_a_transition_says_of_each_region_what_is_cached_no_more():
    story = begun()
    before = (share("notes", 10, cache_read=30), share("talk", 0, cache_read=20, cache_write=40))
    story.answer(story.ask(), usage=(10, 50, 40, 0, 5, 0), shares=before)
    story.leave("work", "tell")
    story.enter("tell")
    after = (share("notes", 35, cache_read=5), share("plan", 50))
    story.answer(story.ask(), usage=(85, 5, 0, 0, 5, 0), shares=after)
    said = moved(story).attributes
    lost = dict(zip(said["shoal.transition.regions"], said["shoal.transition.regions.cache_tokens_lost"], strict=True))
    assert lost == {"notes": 25, "talk": 60, "plan": 0}


def test_a_transition_behind_which_nothing_was_asked_says_nothing_of_what_was_lost():
    story = begun()
    story.leave("work", "tell")
    story.enter("tell")
    story.leave("tell")
    story.end()
    assert "shoal.transition.cached_after" not in moved(story).attributes


def test_a_transition_whose_price_is_not_known_has_no_cost():
    story = begun()
    story.answer(story.ask("routing"), "routing", cost=None)
    story.leave("work", "tell")
    story.end()
    assert "shoal.cost.usd" not in moved(story).attributes


def test_a_routing_question_is_paid_by_the_transition_it_chose_and_linked_from_no_other():
    story = begun()
    story.answer(story.ask("routing"), "routing", cost=Decimal("0.25"))
    story.leave("work", "tell")
    story.enter("tell")
    story.leave("tell", "end")
    story.end()
    first, second = moved(story), one(spans_of(story), "transition tell → end")
    assert (first.attributes["shoal.cost.usd"], second.attributes["shoal.cost.usd"]) == (0.25, 0.0)
    assert (len(first.links), len(second.links)) == (1, 0)


@given(st.lists(st.sampled_from(["stage", "routing", "compaction", "titling"]), max_size=8), st.integers(0, 8))
def test_a_transition_costs_what_the_ledger_says(purposes: list[str], split: int):
    story = begun()
    # Between two stages there are only the summaries that the edge orders.
    ordered = [*purposes[:split], *["compaction"] * len(purposes[split : split + 1]), *purposes[split + 1 :]]
    for number, purpose in enumerate(ordered):
        if number == split:
            story.leave("work", "tell")
        if number == split + 1:
            story.enter("tell")
        story.answer(story.ask(purpose), purpose, usage=(number, 10 * number, 5, 0, 1, 0), cost=Decimal(number) / 100)
    story.end()
    rows = ledger_of(story.events).transitions
    moves = [span for span in spans_of(story) if span.name.startswith("transition")]
    assert [move.attributes["shoal.cost.usd"] for move in moves] == [float(row.cost or 0) for row in rows]
    lost = [move.attributes.get("shoal.transition.cache_tokens_lost") for move in moves]
    assert all(mine in (None, row.cache_tokens_lost) for mine, row in zip(lost, rows, strict=True))


def test_gates_are_counted_by_target_and_forgotten_with_the_visit():
    story = begun()
    story.add(GateBlocked("tell", "require_regions", 1), GateBlocked("tell", "require_regions", 2))
    story.add(GateForced("tell", "require_regions"))
    story.leave("work", "tell")
    story.enter("tell")
    story.leave("tell", "tell")
    story.end()
    first, second = moved(story).attributes, one(spans_of(story), "transition tell → tell").attributes
    assert (first["shoal.transition.gate_attempts"], first["shoal.transition.gate_forced"]) == (2, True)
    assert (second["shoal.transition.gate_attempts"], "shoal.transition.gate_forced" in second) == (0, False)


# --- what happens beside

HAPPENED: list[tuple[Payload, str, dict[str, object]]] = [
    (Nudged("gate", Text.of("go on")), "shoal.nudge", {"shoal.reason": "gate"}),
    (MessageReceived(Text.of("hello")), "shoal.message", {"shoal.sender": "user"}),
    (RunPaused("needs setup"), "shoal.paused", {"shoal.reason": "needs setup"}),
    (RunResumed("user"), "shoal.resumed", {"shoal.reason": "user"}),
    (RunResumed("restart", "host-1"), "shoal.resumed", {"shoal.reason": "restart", "shoal.process": "host-1"}),
    (ModelChanged("p", "m", 9, "busy"), "shoal.model_changed", {"gen_ai.request.model": "m", "error.type": "busy"}),
    (BlueprintChanged("d", "b", ("stages.a",)), "shoal.blueprint_changed", {"shoal.changed": ("stages.a",)}),
    (EntriesEvicted("notes", (1, 2), 30, "budget"), "shoal.evicted", {"shoal.region": "notes", "shoal.entries": 2}),
    (RegionReset("notes", 30, "stage"), "shoal.reset", {"shoal.tokens": 30, "shoal.reason": "stage"}),
    (ContextCompacted("notes", (1, 2), (1,), Text.of("s"), 9, 50), "shoal.compacted", {"shoal.lane.bytes_saved": 50}),
    (VolatilityBroken("rules", 90), "shoal.volatility_broken", {"shoal.region": "rules", "shoal.tokens": 90}),
    (LayoutChanged("m", 1000, ()), "shoal.layout", {"shoal.window.tokens": 1000}),
    (SeedRefreshed("code", "files", (), (), ()), "shoal.seed_refreshed", {"shoal.region": "code"}),
]


@pytest.mark.parametrize(("payload", "name", "said"), HAPPENED)
def test_what_happens_in_a_stage_is_an_event_of_its_span(payload: Payload, name: str, said: dict[str, object]):
    story = begun()
    story.add(payload)
    story.leave()
    [event] = one(spans_of(story), "stage work").events
    assert event.name == name
    assert said.items() <= event.attributes.items()


def test_what_happens_between_stages_is_an_event_of_the_transition():
    story = begun()
    story.leave("work", "tell")
    story.add(RegionReset("notes", 30, "transform"))
    story.enter("tell")
    story.end()
    assert [event.name for event in moved(story).events] == ["shoal.reset"]


def test_of_too_many_events_the_first_are_kept_and_the_rest_is_counted():
    story = begun()
    story.add(*[RunPaused("again")] * 70)
    story.leave()
    stage = one(spans_of(story), "stage work")
    assert (len(stage.events), stage.attributes["shoal.dropped_events"]) == (64, 6)


def test_a_seed_that_was_resolved_is_no_event():
    story = begun()
    story.add(SeedResolved("code", "files", (SeedBlock("a", Text.of("x"), 1),)))
    story.leave()
    assert not one(spans_of(story), "stage work").events


def test_a_clock_that_goes_back_makes_no_span_of_negative_length():
    story = begun()
    story.at -= 3600
    story.answer(story.ask())
    story.leave()
    story.end()
    assert all(span.start_ns < span.end_ns for span in spans_of(story))


@given(st.floats(1.7e9, 1.8e9))
def test_a_time_is_the_same_before_and_after_the_journal_kept_it(at: float):
    def told(began: float) -> list[Span]:
        story = Story(began=began)
        story.spawn()
        story.at = began
        story.end()
        return spans_of(story)

    assert told(at) == told(round(at * 1e6) / 1e6)


def test_looking_at_what_is_open_ends_nothing():
    story = begun()
    story.ask()
    projection = Projection()
    seen = [projection.feed(event) or projection.unfinished() for event in story.events]
    story.answer(3)
    story.leave("work", "tell")
    story.enter("tell")
    story.end()
    spans = [span for event in story.events[3:] for span in projection.feed(event)]
    assert [len(shown) for shown in seen] == [1, 2, 3]
    assert spans == spans_of(story)


def test_a_transition_that_was_looked_at_before_its_cost_is_known_stays_as_it_was_shown():
    story = begun()
    story.leave("work", "tell")
    story.enter("tell")
    projection = Projection()
    for event in story.events:
        projection.feed(event)
    shown = one(projection.unfinished(), "transition work → tell")
    story.answer(story.ask())
    for event in story.events[5:]:
        projection.feed(event)
    assert (shown.status, "shoal.transition.cached_after" in shown.attributes) == ("ok", False)


def test_a_user_who_resumes_a_run_interrupts_nothing():
    story = begun()
    started = story.ask()
    story.add(RunPaused("wait"), RunResumed("user"))
    story.answer(started)
    assert "shoal.interrupted" not in one(spans_of(story), "chat m").attributes


# --- the run


def test_a_run_says_who_it_is():
    story = Story(CHILD)
    story.spawn("worker", parent="p", root="r", item="i-1")
    story.end("error", "it went wrong\n\nTraceback: the whole of it", flags={"gates_forced": 2, "left": ("a", "b")})
    [span] = spans_of(story)
    assert span.attributes["gen_ai.agent.name"] == "worker"
    assert span.attributes["gen_ai.agent.id"] == span.attributes["shoal.run_id"] == CHILD
    assert span.attributes["gen_ai.conversation.id"] == span.attributes["shoal.root"] == "r"
    assert (span.attributes["shoal.parent"], span.attributes["shoal.item"], span.attributes["shoal.depth"]) == (
        "p",
        "i-1",
        1,
    )
    assert (span.status, span.attributes["shoal.reason"]) == ("error", "it went wrong")
    assert span.attributes["shoal.flags"] == ("gates_forced=2", "left=a,b")


def test_a_title_is_content():
    story = begun()
    story.add(RunTitled("The secret", "lane"))
    story.end()
    assert "The secret" not in str(spans_of(story))
    assert one(spans_of(story, capture_content=True), "invoke_agent desk").attributes["shoal.title"] == "The secret"


def test_a_run_whose_child_has_no_known_cost_has_none_for_its_tree():
    story = begun()
    story.add(ChildSpawned(CHILD, "worker", item="i-1"))
    story.add(ChildEnded(CHILD, "complete", None), ChildEnded(CHILD, "complete", None, cost=Decimal(1)))
    story.end()
    run = one(spans_of(story), "invoke_agent desk").attributes
    assert run["shoal.children"] == 1
    assert "shoal.cost.subtree_usd" not in run
    assert one(spans_of(story), "spawn worker").attributes["shoal.item"] == "i-1"


def test_an_event_of_a_run_that_never_began_or_is_over_changes_nothing():
    late, unseen = begun(), Story(CHILD)
    late.end()
    late.leave()
    unseen.enter()
    unseen.leave()
    spans = spans_of(late, unseen)
    assert [span.name for span in spans] == ["stage work", "invoke_agent desk"]


def test_a_stage_that_is_left_without_having_been_entered_has_no_span():
    story = Story()
    story.spawn()
    story.leave()
    story.end()
    assert not named(spans_of(story), "stage work")


def test_a_summary_that_a_transition_waits_for_is_paid_by_it_also_when_it_ends_with_the_run():
    story = begun()
    story.leave("work", "tell")
    job = story.add(LaneStarted("compaction", "notes", (1,)))
    story.answer(story.ask("compaction", job), "compaction", cost=Decimal("0.5"))
    story.add(LaneCompleted("compaction", job, "notes"))
    story.end("cancelled")
    assert moved(story).attributes["shoal.cost.usd"] == 0.5
    assert moved(story).attributes["shoal.outcome"] == "cancelled"
