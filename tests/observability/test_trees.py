"""The trees that whole runs give."""

from __future__ import annotations

import pytest
from spankit import LISTS, blueprint, fanned, named, one, parent_of, played, tree

from shoal.blueprints import Edge, Gate, Lanes, LaneSettings, Stage
from shoal.errors import ProviderRefused
from shoal.observability import trace_of
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio
TITLED = {"titling": "A title"}


async def test_requests_and_calls_hang_below_their_stage_and_stages_below_the_run():
    made = blueprint(Stage("read", available_tools=LISTS), Stage("tell"))
    provider = ScriptedProvider(call("list_dir"), "read it", "told", purposes=TITLED)
    spans = trace_of(*await played(made, provider))
    assert tree(spans) == [
        "invoke_agent desk",
        "  stage read",
        "    chat scripted-model",
        "    execute_tool list_dir",
        "    chat scripted-model",
        "  lane.titling",
        "    chat scripted-model",
        "  transition read → tell",
        "  stage tell",
        "    chat scripted-model",
        "  transition tell → (end)",
    ]


async def test_a_run_of_another_run_hangs_below_the_call_that_waits_for_it():
    items = [{"id": "a", "task": "one"}, {"id": "b", "task": "two"}]
    provider = ScriptedProvider(call("fan_out", items=items), "a says", "b says", purposes=TITLED)
    spans = trace_of(*await played(fanned(), provider))
    [call_span] = named(spans, "execute_tool fan_out")
    runs = named(spans, "invoke_agent desk")
    assert {span.attributes.get("shoal.item") for span in runs} == {None, "a", "b"}
    assert [parent_of(spans, run) for run in runs[1:]] == [call_span, call_span]
    assert [parent_of(spans, span) for span in named(spans, "spawn desk")] == [call_span, call_span]
    assert len({span.trace_id for span in spans}) == 1
    assert all(call_span.start_ns < run.start_ns < run.end_ns for run in runs[1:])


async def test_the_run_says_what_everything_below_it_cost():
    provider = ScriptedProvider(call("fan_out", items=[{"id": "a", "task": "one"}]), "a says", purposes=TITLED)
    spans = trace_of(*await played(fanned(), provider))
    above, below = named(spans, "invoke_agent desk")
    assert above.attributes["shoal.children"] == 1
    own = above.attributes["shoal.cost.usd"], below.attributes["shoal.cost.usd"]
    assert above.attributes["shoal.cost.subtree_usd"] == pytest.approx(sum(own))


async def test_a_summary_that_the_transition_waits_for_is_below_it_and_is_paid_by_it():
    edges = (Edge("tell", condition="always", transform="compact"),)
    made = blueprint(Stage("read", available_tools=LISTS, transitions=edges), Stage("tell", transitions=()))
    summary = "short"
    provider = ScriptedProvider(call("list_dir"), "x" * 4000, "told", purposes={**TITLED, "compaction": summary})
    spans = trace_of(*await played(made, provider))
    move = one(spans, "transition read → tell")
    lanes = named(spans, "lane.compaction")
    assert lanes
    assert {parent_of(spans, lane).span_id for lane in lanes} == {move.span_id}
    paid = sum(
        span.attributes["shoal.cost.usd"] for span in spans if span.attributes.get("shoal.purpose") == "compaction"
    )
    assert move.attributes["shoal.cost.usd"] == pytest.approx(paid)


async def test_a_transition_says_why_it_was_made_and_what_the_window_held_before_and_after():
    edges = (Edge("tell", condition="always", transform="clear"),)
    made = blueprint(Stage("read", available_tools=LISTS, transitions=edges), Stage("tell", transitions=()))
    provider = ScriptedProvider(call("list_dir"), "x" * 4000, "told", purposes=TITLED)
    move = one(trace_of(*await played(made, provider)), "transition read → tell")
    assert move.attributes["shoal.transition.condition"] == "always"
    assert move.attributes["shoal.transition.transform"] == "clear"
    moved = dict(
        zip(
            move.attributes["shoal.transition.regions"],
            zip(
                move.attributes["shoal.transition.tokens_before"],
                move.attributes["shoal.transition.tokens_after"],
                strict=True,
            ),
            strict=True,
        )
    )
    before, after = moved["conversation"]
    assert before > after


async def test_a_model_that_chose_the_edge_is_linked_from_the_transition():
    edges = (Edge("tell", condition="llm_choice"), Edge("read", condition="llm_choice"))
    made = blueprint(Stage("read", transitions=edges), Stage("tell", transitions=()))
    provider = ScriptedProvider("read it", "told", purposes={**TITLED, "routing": "tell"})
    spans = trace_of(*await played(made, provider))
    [question] = [span for span in spans if span.attributes.get("shoal.purpose") == "routing"]
    move = one(spans, "transition read → tell")
    assert [(link.span_id, link.kind) for link in move.links] == [(question.span_id, "routed_by")]
    assert parent_of(spans, question).name == "stage read"
    assert move.attributes["shoal.transition.by"] == "model"
    assert move.attributes["shoal.cost.usd"] == question.attributes["shoal.cost.usd"]


async def test_a_gate_that_held_is_counted_at_the_transition_it_held():
    gate = Gate(require_region_updated="notes", max_attempts=2)
    made = blueprint(
        Stage("read", available_tools=("context_append",), transitions=(Edge("tell", condition="always", gate=gate),)),
        Stage("tell", transitions=()),
    )
    provider = ScriptedProvider(
        call("list_dir"), "done", call("context_append", region="notes", content="x"), "done", "told", purposes=TITLED
    )
    spans = trace_of(*await played(made, provider))
    assert one(spans, "transition read → tell").attributes["shoal.transition.gate_attempts"] == 1
    [blocked] = [event for event in one(spans, "stage read").events if event.name == "shoal.gate_blocked"]
    assert blocked.attributes["shoal.requirement"] == "require_region_updated"


async def test_a_job_that_failed_says_so_and_the_run_is_none_the_worse():
    made = blueprint(Stage("read"), lanes=Lanes(titling=LaneSettings(retries=0)))
    provider = ScriptedProvider(Say("read it", delay_s=9), purposes={"titling": "nonsense\t" * 50})
    spans = trace_of(*await played(made, provider))
    lane = one(spans, "lane.titling")
    assert (lane.status, lane.attributes["shoal.outcome"]) == ("error", "degraded")
    assert lane.attributes["error.type"] == "nonsense"
    assert one(spans, "invoke_agent desk").status == "ok"


async def test_a_run_that_fails_says_why_on_every_span_that_failed_with_it():
    provider = ScriptedProvider(ProviderRefused("the vendor says no"), purposes=TITLED)
    spans = trace_of(*await played(blueprint(Stage("read")), provider))
    failed = {span.name: span.attributes.get("shoal.reason") for span in spans if span.status == "error"}
    assert set(failed) == {"chat scripted-model", "stage read", "transition read → (end)", "invoke_agent desk"}
    assert failed["invoke_agent desk"] == "the vendor says no"
    assert one(spans, "chat scripted-model").attributes["error.type"] == "ProviderRefused"


async def test_a_simulated_reply_says_so_up_to_its_run():
    provider = ScriptedProvider(Say("read it"), purposes=TITLED)
    spans = trace_of(*await played(blueprint(Stage("read")), provider))
    said = [span.name for span in spans if span.attributes.get("shoal.simulated")]
    assert {"invoke_agent desk", "stage read", "chat scripted-model"} <= set(said)
