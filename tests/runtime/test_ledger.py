"""The ledger: its totals are the sum of the journal's usages, however they are cut."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from anyvalue import of
from hypothesis import given
from hypothesis import strategies as st

from shoal.providers import Text, Usage
from shoal.runtime import Event, Ledger, Tally, ledger_of, plain_usage
from shoal.runtime.context import Share
from shoal.runtime.events import (
    InferenceCompleted,
    InferenceStarted,
    Payload,
    RunEnded,
    RunPaused,
    RunResumed,
    RunTitled,
    StageEntered,
    StageLeft,
    ToolCallCompleted,
    TransitionChosen,
)
from shoal.runtime.ledger import BEFORE_STAGES


def events(*payloads: Payload | tuple[float, Payload], run_id: str = "r") -> list[Event]:
    """Return *payloads* as the events of a run, each at its second."""
    timed = [each if isinstance(each, tuple) else (0.0, each) for each in payloads]
    return [Event(run_id, seq, at, payload) for seq, (at, payload) in enumerate(timed, 1)]


def entered(stage: str, visit: int = 1) -> StageEntered:
    return StageEntered(stage, visit, "p", "m", 8_000)


def left(stage: str) -> StageLeft:
    return StageLeft(stage, 1, "done", 1)


def billed(
    usage: tuple[int, ...] = (10, 0, 0, 0, 5, 0),
    cost: str | None = "0.5",
    *shares: Share,
    purpose: Any = "stage",
) -> InferenceCompleted:
    amount = None if cost is None else Decimal(cost)
    return InferenceCompleted(purpose, 1, Text.of("x"), (), usage, amount, shares)


def asked(chars: int, purpose: Any = "stage") -> InferenceStarted:
    return InferenceStarted(purpose, "p", "m", chars, 1, "digest")


# --- totals

USAGES = st.tuples(*[st.integers(0, 1000)] * 5, st.just(0))
COSTS = st.none() | st.decimals(0, 10, places=4).map(str)
STEPS = st.one_of(
    st.builds(billed, USAGES, COSTS, purpose=st.sampled_from(["stage", "routing", "compaction", "titling"])),
    st.builds(entered, st.sampled_from("ab")),
    st.builds(left, st.sampled_from("ab")),
    st.builds(TransitionChosen, st.sampled_from("ab"), st.sampled_from("ab"), st.just("always")),
    of(ToolCallCompleted),
)


def added(tallies: Sequence[Tally]) -> tuple[Usage, Decimal | None, int]:
    total = Tally()
    for each in tallies:
        total.add(each.usage, each.cost, each.calls)
    return total.usage, total.cost, total.calls


@given(runs=st.lists(st.lists(STEPS, max_size=12), max_size=3))
def test_totals_are_the_sum_of_all_usages_however_they_are_cut(runs: list[list[Payload]]):
    every = [event for number, run in enumerate(runs) for event in events(*run, run_id=f"run-{number}")]
    bills = [event.payload for event in every if isinstance(event.payload, InferenceCompleted)]
    costs = [bill.cost for bill in bills]
    whole = (
        sum((bill.billed for bill in bills), Usage()),
        None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0)),
        len(bills),
    )
    ledger = ledger_of(every)
    rows = list(ledger.stages.values())
    assert (ledger.total.usage, ledger.total.cost, ledger.total.calls) == whole
    assert added(rows) == whole
    assert added([tally for row in rows for tally in row.by_purpose.values()]) == whole


@given(runs=st.lists(st.lists(STEPS, max_size=6), max_size=3), data=st.data())
def test_events_of_several_runs_may_be_mixed(runs: list[list[Payload]], data: st.DataObject):
    apart = [events(*run, run_id=f"run-{number}") for number, run in enumerate(runs)]
    turns = data.draw(st.permutations([number for number, run in enumerate(apart) for _ in run]))
    readers = [iter(run) for run in apart]
    mixed = [next(readers[number]) for number in turns]
    one, other = ledger_of(event for run in apart for event in run), ledger_of(mixed)
    assert one.total == other.total
    assert {name: row.usage for name, row in one.stages.items()} == {n: row.usage for n, row in other.stages.items()}


def test_a_cost_that_is_not_known_leaves_the_sum_unknown():
    ledger = ledger_of(events(entered("a"), billed(cost="1"), billed(cost=None), billed(cost="2")))
    assert (ledger.total.cost, ledger.stages["a"].cost) == (None, None)
    assert ledger.total.usage == Usage(30, 0, 0, 0, 15, 0)


def test_what_happens_before_any_stage_has_a_row_of_its_own():
    ledger = ledger_of(events(billed(purpose="titling"), entered("a"), billed()))
    assert {name: row.calls for name, row in ledger.stages.items()} == {BEFORE_STAGES: 1, "a": 1}


def test_purposes_are_told_apart():
    bills = [billed(purpose=purpose) for purpose in ("stage", "compaction", "routing", "stage")]
    ledger = ledger_of(events(entered("a"), *bills))
    assert {name: t.calls for name, t in ledger.stages["a"].by_purpose.items()} == {
        "stage": 2,
        "compaction": 1,
        "routing": 1,
    }


# --- stages


def test_visits_calls_and_tools_are_counted_by_stage():
    called = ToolCallCompleted(1, 0, Text.of(""))
    ledger = ledger_of(events(entered("a"), called, called, left("a"), entered("b"), called, entered("a", 2)))
    assert {name: (row.visits, row.tool_calls) for name, row in ledger.stages.items()} == {"a": (2, 2), "b": (1, 1)}


def test_the_size_of_each_request_of_a_stage_is_kept_in_order():
    ledger = ledger_of(events(entered("a"), asked(100), asked(7, "compaction"), asked(300), asked(200)))
    assert ledger.stages["a"].chars == [100, 300, 200]


@pytest.mark.parametrize(
    ("timed", "seconds"),
    [
        ([(10, entered("a")), (25, left("a"))], 15),
        ([(10, entered("a")), (25, left("a")), (90, entered("a")), (95, left("a"))], 20),
        ([(10, entered("a")), (30, RunEnded("cancelled", ""))], 20),
        ([(10, entered("a")), (30, left("a")), (99, RunEnded("complete", ""))], 20),
        ([(10, entered("a")), (20, RunPaused("x")), (500, RunResumed("user")), (507, left("a"))], 17),
        ([(10, entered("a")), (20, RunTitled("t", "task")), (900, RunResumed("restart")), (907, left("a"))], 17),
        ([(10, entered("a")), (20, left("a")), (900, RunResumed("restart")), (950, RunEnded("complete", ""))], 10),
        ([(10, entered("a")), (20, RunPaused("x"))], 10),
    ],
)
def test_time_in_a_stage_leaves_out_pauses_and_the_time_in_which_no_process_ran(timed: list[Any], seconds: float):
    assert ledger_of(events(*timed)).stages["a"].seconds == seconds


# --- regions


def test_regions_have_the_shares_of_their_stage():
    first = billed((30, 0, 0, 0, 5, 0), "3", Share("task", 10, cost=Decimal(1)), Share("notes", 20, cost=Decimal(2)))
    second = billed((40, 0, 0, 0, 5, 0), "4", Share("task", 10, cost=Decimal(1)), Share("notes", 5, cache_read=25))
    rows = ledger_of(events(entered("a"), first, second)).stages["a"].regions
    assert {name: (row.usage.uncached, row.calls, row.high_water_tokens) for name, row in rows.items()} == {
        "task": (20, 2, 10),
        "notes": (25, 2, 30),
    }
    assert (rows["task"].cost, rows["notes"].cost) == (Decimal(2), None)


# --- transitions


def chosen(source: str, target: str | None) -> TransitionChosen:
    return TransitionChosen(source, target, "llm_choice", "model")


def test_a_transition_costs_what_choosing_and_summarising_for_it_cost():
    ledger = ledger_of(
        events(
            entered("a"),
            billed(),
            billed(cost="0.25", purpose="routing"),
            chosen("a", "b"),
            billed(cost="0.125", purpose="compaction"),
            left("a"),
            entered("b"),
            billed(),
            billed(cost="9", purpose="compaction"),
            chosen("b", None),
        )
    )
    first, last = ledger.transitions
    assert (first.source, first.target, first.cost) == ("a", "b", Decimal("0.375"))
    assert (last.source, last.target, last.cost) == ("b", None, Decimal(0))


@pytest.mark.parametrize("purpose", ["routing", "compaction"])
def test_the_cost_of_a_transition_is_unknown_where_a_part_of_it_is(purpose: str):
    unknown = billed(cost=None, purpose=purpose)
    order = [unknown, chosen("a", "b")] if purpose == "routing" else [chosen("a", "b"), unknown]
    assert ledger_of(events(entered("a"), *order)).transitions[0].cost is None


def test_a_transition_says_what_it_lost_of_the_cache():
    ledger = ledger_of(
        events(
            entered("a"),
            billed((10, 600, 300, 100, 5, 0)),
            chosen("a", "b"),
            entered("b"),
            billed((50, 200, 700, 0, 5, 0)),
            billed((1, 950, 0, 0, 5, 0)),
        )
    )
    (row,) = ledger.transitions
    assert (row.cached_before, row.cached_after, row.uncached_after, row.cache_tokens_lost) == (1000, 200, 750, 800)


def test_a_transition_says_what_each_region_lost():
    before = (Share("task", 0, 50, 0, 0), Share("talk", 10, 20, 15, 5), Share("reply.text", output=5))
    after = (Share("task", 0, 50, 0, 0), Share("plan", 30, 0, 0, 0), Share("talk", 40, 10, 0, 0))
    ledger = ledger_of(
        events(
            entered("a"),
            billed((10, 70, 15, 5, 5, 0), "0", *before),
            chosen("a", "b"),
            entered("b"),
            billed((70, 60, 0, 0, 5, 0), "0", *after),
        )
    )
    moves = ledger.transitions[0].regions
    assert {name: (move.tokens_before, move.tokens_after) for name, move in moves.items()} == {
        "task": (50, 50),
        "talk": (50, 50),
        "plan": (0, 30),
    }
    assert {name: move.cache_tokens_lost for name, move in moves.items()} == {"task": 0, "talk": 30, "plan": 0}


def test_a_transition_that_gains_lost_nothing():
    ledger = ledger_of(events(entered("a"), billed(), chosen("a", "b"), entered("b"), billed((0, 99, 0, 0, 1, 0))))
    assert ledger.transitions[0].cache_tokens_lost == 0


# --- what people see

WHOLE = events(
    entered("a"),
    asked(40),
    billed((10, 60, 20, 10, 5, 2), "1.50", Share("task", 10, 60, 20, 10, 0, Decimal("1.50"))),
    chosen("a", "b"),
    left("a"),
    entered("b"),
    billed((1, 0, 0, 0, 1, 0), None),
)


def test_plain_values_are_what_json_holds():
    plain = json.loads(json.dumps(ledger_of(WHOLE).plain()))
    usage = {"uncached": 10, "cache_read": 60, "cache_write": 30, "output": 5, "reasoning": 2}
    stage = plain["stages"][0]
    assert (stage["stage"], stage["usage"], stage["cost_usd"], stage["cache_hit_ratio"]) == ("a", usage, "1.50", 0.6)
    assert stage["regions"][0]["region"] == "task"
    assert (stage["approx_context_chars"], stage["purposes"]["stage"]["calls"]) == ([40], 1)
    assert (plain["total"]["cost_usd"], plain["stages"][1]["cost_usd"]) == (None, None)
    assert plain["transitions"][0] == {
        "from": "a",
        "to": "b",
        "condition": "llm_choice",
        "cost_usd": "0",
        "cache_tokens_lost": 90,
        "cached_before": 90,
        "cached_after": 0,
        "uncached_after": 1,
        "regions": [
            {
                "region": "task",
                "tokens_before": 100,
                "tokens_after": 0,
                "cached_before": 90,
                "cached_after": 0,
                "cache_tokens_lost": 90,
            }
        ],
    }


def test_writes_of_every_lifetime_are_one_number():
    assert plain_usage(Usage(1, 2, 3, 4, 5, 6))["cache_write"] == 7


def test_nothing_sent_has_no_hit_ratio():
    assert (Tally().cache_hit_ratio, Tally().plain()["cache_hit_ratio"]) == (None, None)


def test_a_table_has_a_row_a_stage_and_under_it_a_row_a_region():
    lines = ledger_of(WHOLE).table().splitlines()
    assert [line.split()[0] for line in lines] == ["stage", "a", "task", "b", "total"]
    assert lines[1].split() == ["a", "1", "100", "60", "30", "5", "1.5"]
    assert lines[2].split() == ["task", "1", "100", "60", "30", "0", "1.5", "100"]
    assert lines[4].split() == ["total", "2", "101", "60", "30", "6", "?"]
    assert len({len(line) for line in lines}) == 1


def test_a_notebook_shows_the_table_as_one_of_its_own():
    shown = ledger_of(WHOLE)._repr_html_()
    assert shown.startswith("<table><thead><tr><th>stage / region</th><th>calls</th>")
    assert shown.count("<tr>") == 5
    assert "<td>60</td><td>30</td><td>5</td><td>1.5</td>" in shown


def test_a_name_cannot_break_out_of_what_a_notebook_shows():
    shown = ledger_of(events(entered("<script>"), billed()))._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_rows_of_regions_add_up_to_the_row_of_all_in_csv():
    rows = read(ledger_of(WHOLE).csv())
    regions = [row for row in rows if row["region"]]
    [whole] = [row for row in rows if not row["stage"]]
    assert [(row["stage"], row["region"]) for row in rows] == [("", ""), ("a", ""), ("a", "task"), ("b", "")]
    assert (whole["calls"], whole["input"], whole["cost_usd"]) == ("2", "101", "")
    assert {name: regions[0][name] for name in ("uncached", "cache_read", "cache_write", "high_water_tokens")} == {
        "uncached": "10",
        "cache_read": "60",
        "cache_write": "30",
        "high_water_tokens": "100",
    }
    assert [row["visits"] for row in rows] == ["", "1", "", "1"]


def test_transitions_are_csv_with_a_row_each_and_a_row_a_region():
    first, region = read(ledger_of(WHOLE).transitions_csv())
    assert (first["transition"], first["from"], first["to"], first["condition"]) == ("1", "a", "b", "llm_choice")
    assert (first["region"], first["cache_tokens_lost"], first["uncached_after"], first["cost_usd"]) == (
        "",
        "90",
        "1",
        "0",
    )
    assert (region["transition"], region["region"], region["tokens_before"], region["cost_usd"]) == (
        "1",
        "task",
        "100",
        "",
    )


@pytest.mark.parametrize("name", ["=1+1", "@here", "+1", "-1", "\tx"])
def test_no_spreadsheet_takes_a_name_for_a_formula(name: str):
    assert [row["stage"] for row in read(ledger_of(events(entered(name), billed())).csv())] == ["", f"'{name}"]


def test_a_budget_stands_with_the_region_that_has_it():
    ledger = ledger_of(WHOLE)
    for stage, region, tokens in (("a", "task", 50), ("a", "task", 40), ("a", "other", 1), ("nowhere", "task", 1)):
        ledger.limit(stage, region, tokens)
    assert ledger.stages["a"].regions["task"].budget_tokens == 50
    assert ledger.plain()["stages"][0]["regions"][0]["budget_tokens"] == 50
    assert ledger.table().splitlines()[2].split()[-2:] == ["100", "50"]


def test_a_round_cost_is_written_out():
    assert " 200 " in ledger_of(events(entered("a"), billed(cost="200"))).table()


def test_a_ledger_shows_what_it_holds():
    assert repr(ledger_of(events(entered("a"), billed()))) == "<Ledger 10 in, 5 out, 0.5 USD, 1 stages>"
    assert repr(ledger_of(WHOLE)) == "<Ledger 101 in, 6 out, unknown cost, 2 stages>"
    assert repr(Ledger()) == "<Ledger 0 in, 0 out, 0 USD, 0 stages>"
