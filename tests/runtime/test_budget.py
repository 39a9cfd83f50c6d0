"""Budgets: the worst case is set aside first, whoever asks, and a limit that is reached stops the whole subtree."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from runkit import TALK, TASK, blueprint, bodies, edge, events_of, kinds, payloads, stage, swarm_of

from shoal.blueprints import Blueprint, Budget, FanOut, ModelChoice, ModelSettings, Region, Stage
from shoal.errors import ConfigInvalid, RunIsPaused, SpawnRefused
from shoal.providers import Price, Request, Usage
from shoal.runtime import BudgetGiven, Event, SqliteJournal
from shoal.runtime._orders import budget_of
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

DOLLAR = Price(Decimal(1_000_000), Decimal(1_000_000), source="one USD a token")


def scripted(*replies: Any, **more: Any) -> ScriptedProvider:
    more.setdefault("purposes", {"titling": "A title"})
    more.setdefault("max_output_tokens", 100)
    return ScriptedProvider(*replies, **more)


def billed(tokens: int, text: str = "go on") -> Say:
    """Return a reply that is billed *tokens* of input and none of output."""
    return Say(text, usage=Usage(uncached=tokens))


def steps(count: int, **budget: Any) -> Blueprint:
    """Return a blueprint of *count* stages, one request each, with a budget."""
    names = [f"s{number}" for number in range(count)]
    stages = tuple(stage(name, available_tools=()) for name in names)
    return blueprint(*stages, budget=Budget(**budget))


def spent(events: list[Event]) -> int:
    return sum(sum(payload.usage[:5]) for payload in payloads(events, "InferenceCompleted"))


# --- one run


@pytest.mark.parametrize(("said", "means"), [(0.1, "0.1"), (2, "2"), ("2.50", "2.50"), (Decimal("0.3"), "0.3")])
def test_dollars_are_the_decimal_that_they_are_written_as(said: Any, means: str):
    given = budget_of(BudgetGiven(max_cost_usd=said))
    assert given is not None
    assert str(given.max_cost_usd) == means


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_cost_usd": "much"}, "`max_cost_usd` of the budget is 'much'; give dollars, 0 or more"),
        ({"max_cost_usd": True}, "`max_cost_usd` of the budget is True"),
        ({"max_cost_usd": -1}, r"is Decimal\('-1'\); give dollars"),
        ({"max_cost_usd": float("nan")}, r"is Decimal\('NaN'\); give dollars"),
        ({"max_cost_usd": Decimal("sNaN")}, r"is Decimal\('sNaN'\); give dollars"),
        ({"max_wall_s": 10**400}, "give seconds above 0"),
        ({"max_tokens": 0}, "`max_tokens` of the budget is 0; give a whole number, 1 or more"),
        ({"max_tokens": 1.5}, "is 1.5; give a whole number"),
        ({"max_wall_s": 0}, "is 0; give seconds above 0"),
        ({"max_wall_s": float("inf")}, "is inf; give seconds above 0, or `None` for no such limit"),
    ],
)
async def test_a_limit_that_is_none_is_refused_before_anything_runs(limits: dict[str, Any], said: str):
    async with swarm_of(scripted("never")) as swarm:
        with pytest.raises(ConfigInvalid, match=said):
            await swarm.spawn(steps(1), task="x", budget=BudgetGiven(**limits))
        assert swarm.runs() == []


async def test_a_limit_that_is_none_is_refused_where_a_run_would_go_on_with_it():
    async with swarm_of(scripted(Say("x", delay_s=600.0))) as swarm:
        run = await swarm.spawn(steps(1), task="x")
        await run.pause()
        with pytest.raises(ConfigInvalid, match="`max_tokens` of the budget is -3"):
            await run.resume(budget=BudgetGiven(max_tokens=-3))
        assert run.status == "paused"


async def test_a_run_within_its_budget_notices_nothing():
    async with swarm_of(scripted(billed(50), billed(50))) as swarm:
        run = await swarm.spawn(steps(2, max_tokens=10_000), task="x")
        assert (await run.result()).status == "complete"
        assert "BudgetReached" not in kinds(events_of(swarm, run))


async def test_a_run_that_reaches_its_budget_pauses_with_the_numbers():
    async with swarm_of(scripted(billed(900), "never")) as swarm:
        run = await swarm.spawn(steps(2, max_tokens=1000), task="x")
        with pytest.raises(RunIsPaused, match=r"its budget is reached: \d+ of `max_tokens` = 1000 are used") as caught:
            await run.result()
        raised = f"raise it with `shoal resume {run.run_id} --max-tokens N`"
        assert caught.value.remedy == f"{raised}, or let replies be shorter (`max_tokens` of the stage's model)"
        assert caught.value.numbers["limit"] == "max_tokens"
        (reached,) = payloads(events_of(swarm, run), "BudgetReached")
        assert (reached.most, int(reached.spent) >= 900) == ("1000", True)


async def test_nothing_is_sent_that_could_go_beyond_the_budget():
    provider = scripted(billed(900), "never")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(steps(2, max_tokens=1000), task="x")
        with pytest.raises(RunIsPaused):
            await run.result()
        assert len(bodies(provider)) == 1
        assert kinds(events_of(swarm, run), "InferenceStarted").count("InferenceStarted") <= 2


async def test_a_budget_counts_the_reply_that_may_come():
    """A reply may take 100 tokens here, so a limit of 100 leaves nothing for a prompt."""
    async with swarm_of(scripted("never")) as swarm:
        run = await swarm.spawn(steps(1, max_tokens=100), task="x")
        with pytest.raises(RunIsPaused):
            await run.result()


async def test_a_raised_budget_lets_a_run_go_on():
    async with swarm_of(scripted(billed(900), "done")) as swarm:
        run = await swarm.spawn(steps(2, max_tokens=1000), task="x")
        with pytest.raises(RunIsPaused):
            await run.result()
        await run.resume(budget=BudgetGiven(max_tokens=5000))
        assert (await run.result()).output == "done"
        assert swarm.state(run.run_id).budget.max_tokens == 5000


async def test_a_run_that_is_resumed_without_more_pauses_again():
    async with swarm_of(scripted(billed(900), "never")) as swarm:
        run = await swarm.spawn(steps(2, max_tokens=1000), task="x")
        for _ in range(2):
            with pytest.raises(RunIsPaused):
                await run.result()
            await run.resume()
            await anyio.sleep(1)
        with pytest.raises(RunIsPaused):
            await run.result()
        assert len(payloads(events_of(swarm, run), "BudgetReached")) == 3


async def test_a_budget_of_the_spawn_takes_the_place_of_the_blueprints():
    async with swarm_of(scripted(billed(900), "never")) as swarm:
        run = await swarm.spawn(steps(2, max_tokens=10_000), task="x", budget=BudgetGiven(max_tokens=1000))
        with pytest.raises(RunIsPaused, match="`max_tokens` = 1000"):
            await run.result()


async def test_a_run_that_is_to_finish_ends_with_what_it_has():
    async with swarm_of(scripted(billed(900, "half of it"), "never")) as swarm:
        run = await swarm.spawn(steps(2, max_tokens=1000, on_budget="finish"), task="x")
        outcome = await run.result()
        assert (outcome.status, outcome.output) == ("complete", "half of it")
        assert outcome.flags["budget_reached"] == 1
        assert outcome.reason.startswith("its budget is reached")


# --- money


async def test_a_budget_in_usd_counts_what_requests_cost():
    provider = scripted(billed(900), "never", price=DOLLAR)
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(steps(2, max_cost_usd=Decimal(1000)), task="x")
        with pytest.raises(RunIsPaused, match="`max_cost_usd` = 1000 are used"):
            await run.result()


async def test_the_worst_case_of_a_prompt_is_that_all_of_it_is_written_to_a_cache():
    dear = Price(Decimal(0), Decimal(0), cache_write=Decimal(1_000_000), source="writes only")
    async with swarm_of(scripted("never", price=dear)) as swarm:
        run = await swarm.spawn(steps(1, max_cost_usd=Decimal(1)), task="x")
        with pytest.raises(RunIsPaused):
            await run.result()


async def test_a_budget_in_usd_refuses_a_model_without_a_price():
    async with swarm_of(scripted(price=None)) as swarm:
        with pytest.raises(
            SpawnRefused, match=r'scripted:scripted-model; give it in `\[models."scripted-model"\] price`'
        ):
            await swarm.spawn(steps(1, max_cost_usd=Decimal(1)), task="x")
        assert swarm.runs() == []


async def test_a_budget_in_usd_may_ignore_a_price_that_nobody_knows():
    async with swarm_of(scripted("done", price=None)) as swarm:
        run = await swarm.spawn(steps(1, max_cost_usd=Decimal(1), unknown_price="ignore"), task="x")
        assert (await run.result()).output == "done"


async def test_a_budget_in_tokens_needs_no_price():
    async with swarm_of(scripted("done", price=None)) as swarm:
        run = await swarm.spawn(steps(1, max_tokens=10_000), task="x")
        assert (await run.result()).output == "done"


# --- time


async def test_a_budget_of_time_counts_how_long_a_run_was_running():
    async with swarm_of(scripted(Say("one", delay_s=50), "never")) as swarm:
        run = await swarm.spawn(steps(2, max_wall_s=40.0), task="x")
        with pytest.raises(RunIsPaused, match=r"it ran 50\.\d s of `max_wall_s` = 40"):
            await run.result()


async def test_a_budget_of_time_does_not_count_pauses():
    async with swarm_of(scripted(Say("one", delay_s=10), "two")) as swarm:
        run = await swarm.spawn(steps(2, max_wall_s=40.0), task="x")
        await run.pause()
        await anyio.sleep(500)
        await run.resume()
        assert (await run.result()).output == "two"


# --- everything below


def fan(budget: Budget, width: int = 0) -> Blueprint:
    worker = Stage("read", available_tools=(), allow_as_worker=True)
    lead = Stage(
        "split",
        mode="fan_out",
        available_tools=("fan_out",),
        transitions=(edge("merge"),),
        fan_out=FanOut(worker_stage="read", max_workers=width),
    )
    merge = stage("merge", available_tools=(), transitions=())
    regions = (TASK, Region("notes", kind="pinned", max_tokens=500), TALK)
    return Blueprint("fan", (lead, merge, worker), regions=regions, budget=budget)


class Costly:
    """Replies for a fan-out of thirty: each worker is billed what it may cost at most, and the most at once is kept."""

    def __init__(self, items: int) -> None:
        self.items = [{"id": str(number), "task": "read"} for number in range(items)]
        self.worked = 0

    def __call__(self, request: Request) -> Any:
        if any(spec.name == "fan_out" for spec in request.tools.specs):
            return Say(calls=(call("fan_out", items=self.items),), usage=Usage(uncached=10))
        self.worked += 1
        return Say("found", delay_s=5, usage=Usage(uncached=1, output=100))


async def test_thirty_children_at_once_do_not_go_beyond_a_budget():
    costly = Costly(30)
    provider = ScriptedProvider(script=costly, max_output_tokens=100, purposes={"titling": "T"})
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(fan(Budget(max_tokens=2000)), task="x")
        with pytest.raises(RunIsPaused):
            await run.result()
        rows = swarm.journal.runs()
        used = sum(spent(list(swarm.journal.read(row.run_id))) for row in rows)
        assert used <= 2000
        assert 4 <= costly.worked < 30
        assert {row.status for row in rows} <= {"paused", "complete"}


async def test_a_request_waits_while_only_the_worst_cases_of_others_stand_in_its_way():
    """Each worker may cost 100 and more, and costs 10: all fit one behind the other, not all at once."""

    def reply(request: Request) -> Any:
        if any(spec.name == "fan_out" for spec in request.tools.specs):
            items = [{"id": str(number), "task": "read"} for number in range(8)]
            return Say(calls=(call("fan_out", items=items),), usage=Usage(uncached=10))
        return Say("found", delay_s=5, usage=Usage(uncached=10))

    provider = ScriptedProvider(script=reply, max_output_tokens=100, purposes={"titling": "T"})
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(fan(Budget(max_tokens=1500)), task="x")
        assert (await run.result()).status == "complete"


async def test_a_paused_subtree_goes_on_together_with_more_budget():
    provider = ScriptedProvider(script=Costly(30), max_output_tokens=100, purposes={"titling": "T"})
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(fan(Budget(max_tokens=2000)), task="x")
        with pytest.raises(RunIsPaused):
            await run.result()
        await run.resume(budget=BudgetGiven(max_tokens=100_000))
        assert (await run.result()).status == "complete"
        assert {row.status for row in swarm.journal.runs()} == {"complete"}


async def test_a_run_that_finishes_at_its_budget_ends_its_children():
    provider = ScriptedProvider(script=Costly(30), max_output_tokens=100, purposes={"titling": "T"})
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(fan(Budget(max_tokens=2000, on_budget="finish"), width=30), task="x")
        assert (await run.result()).status == "complete"
        await anyio.sleep(1)
        assert {row.status for row in swarm.journal.runs()} == {"complete", "cancelled"}


async def test_a_detached_child_is_not_under_its_parents_budget():
    async with swarm_of(scripted(Say("one", delay_s=100), billed(5000, "done"))) as swarm:
        run = await swarm.spawn(steps(1, max_tokens=1000), task="x")
        await anyio.sleep(1)
        child = await run.spawn(steps(1), task="x", detached=True)
        assert (await child.result()).output == "done"
        assert (await run.result()).output == "one"


async def test_a_child_under_a_budget_in_usd_needs_a_price_too():
    async with swarm_of(scripted(Say("one", delay_s=100)), scripted(name="free", price=None)) as swarm:
        run = await swarm.spawn(steps(1, max_cost_usd=Decimal(100)), task="x")
        await anyio.sleep(1)
        unpriced = blueprint(stage(available_tools=()), model=ModelSettings((ModelChoice("free"),)))
        with pytest.raises(SpawnRefused, match="nobody knows the price of free:scripted-model"):
            await run.spawn(unpriced, task="x")
        await run.cancel()


# --- lanes, and after a death


async def test_a_title_that_the_budget_does_not_take_is_given_up_and_the_run_goes_on():
    """The title's request may cost 512 tokens and more; the stage's own has the rest."""
    provider = scripted(Say("done", delay_s=10, usage=Usage(uncached=10)), max_output_tokens=600)
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(steps(1, max_tokens=700), task="x")
        assert (await run.result()).output == "done"
        assert "TITLE" not in str(run.title)
    assert len(bodies(provider, "titling")) == 0


async def test_what_was_spent_before_a_death_still_counts(tmp_path: Path):
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path)
    async with swarm_of(scripted(billed(900), Say("never", delay_s=500)), journal=journal) as swarm:
        run = await swarm.spawn(steps(3, max_tokens=1200), task="x")
        await anyio.sleep(100)
    journal.close()
    journal = SqliteJournal(path)
    async with swarm_of(scripted(billed(200), "never"), journal=journal) as swarm:
        again = await swarm.resume_tree(run.run_id)
        with pytest.raises(RunIsPaused, match=r"its budget is reached: 1[01]\d\d of `max_tokens` = 1200"):
            await again.result()
    journal.close()
