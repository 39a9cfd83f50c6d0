"""Whole runs to which everything happens that happens to runs: what holds for the trace of each, live and exported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from spankit import LISTS, Kept, blueprint, by_id, fanned, named, one, recomputed

import shoal
from shoal.blueprints import Blueprint, ModelChoice, ModelSettings, Nudge, Stage
from shoal.errors import ProviderRefused, ProviderUnavailable
from shoal.observability import Span, Telemetry, export_trace, trace_of
from shoal.providers import Provider, Request, StreamEvent
from shoal.runtime import Run, SqliteJournal, Swarm, virtual
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

TITLED = {"titling": "A title"}
QUIET = Nudge(enabled=False)
DAY_S = 86_400.0


class Bug:
    """A provider with a bug: its second request for a stage raises what no provider may raise."""

    def __init__(self, *replies: Any) -> None:
        self._inner = ScriptedProvider(*replies, purposes=TITLED)
        self.name, self.default_model = self._inner.name, self._inner.default_model
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        if request.purpose == "stage":
            self.asked += 1
            if self.asked == 2:
                raise RuntimeError("a bug")
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                yield event


def stages(**more: Any) -> Blueprint:
    return blueprint(
        Stage("read", available_tools=LISTS, nudge=QUIET), Stage("tell", transitions=(), nudge=QUIET), **more
    )


def candidates() -> Blueprint:
    """Return a blueprint whose only stage has two candidates for its model."""
    models = ModelSettings((ModelChoice("first"), ModelChoice("second")))
    return blueprint(Stage("tell", available_tools=(), model=models, nudge=QUIET))


ITEMS = [{"id": "a", "task": "one"}, {"id": "b", "task": "two"}]


@dataclass(frozen=True)
class Scenario:
    """What is run, and what happens to it."""

    made: Blueprint
    replies: tuple[Any, ...] = ("read it", "told")
    providers: tuple[Provider, ...] = ()
    cancels: bool = False
    pauses: bool = False
    ends: str = "complete"
    reasons: frozenset[str] = field(default_factory=frozenset)
    """Error classes that stand on some span."""


SCENARIOS = {
    "stages and tools": lambda: Scenario(stages(), (call("list_dir"), "read it", "told")),
    "a fan-out": lambda: Scenario(fanned(), (call("fan_out", items=ITEMS), "a says", "b says")),
    "a supervisor's restart": lambda: Scenario(
        stages(), providers=(Bug("read it", "told", "told"),), reasons=frozenset({"interrupted"})
    ),
    "a failover": lambda: Scenario(
        candidates(),
        providers=(
            ScriptedProvider(script=lambda _: ProviderRefused("not me"), name="first"),
            ScriptedProvider("told", name="second", purposes=TITLED),
        ),
        reasons=frozenset({"ProviderRefused"}),
    ),
    "attempts that are repeated": lambda: Scenario(stages(), (ProviderUnavailable("gone"), "read it", "told")),
    "a failure": lambda: Scenario(
        stages(), (ProviderRefused("no"),), ends="error", reasons=frozenset({"ProviderRefused", "error"})
    ),
    "a cancel": lambda: Scenario(
        stages(),
        ("read it", Say("late", delay_s=1e6)),
        cancels=True,
        ends="cancelled",
        reasons=frozenset({"cancelled"}),
    ),
    "a pause of a day": lambda: Scenario(stages(), (Say("read it", delay_s=5), "told"), pauses=True),
}


@dataclass(frozen=True)
class Played:
    """What came of it."""

    live: list[Span]
    exported: tuple[Span, ...]
    files: tuple[bytes, bytes]
    outcome: str


async def played(name: str, folder: Path) -> Played:
    scenario = SCENARIOS[name]()
    providers = scenario.providers or (ScriptedProvider(*scenario.replies, purposes=TITLED),)
    kept = Kept()
    journal = SqliteJournal(folder / "runs.db", durability="off")
    async with Swarm(providers, journal, [Telemetry(kept)], clock=virtual()) as swarm:
        run = await swarm.spawn(scenario.made, task="go")
        await happened(scenario, run)
        outcome = await run.result(wait_paused=True)
    files = export_trace(journal, run.run_id), export_trace(journal, run.run_id)
    whole = trace_of(journal, run.run_id)
    journal.close()
    return Played(kept.spans, whole, files, outcome.status)


async def happened(scenario: Scenario, run: Run) -> None:
    await anyio.sleep(1)
    if scenario.cancels:
        await run.cancel("nobody needs it")
    if scenario.pauses:
        await run.pause("the night")
        await anyio.sleep(DAY_S)
        await run.resume()


@pytest.fixture(params=SCENARIOS)
async def told(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: object) -> tuple[Scenario, Played]:
    """Each scenario, and what came of it."""
    return SCENARIOS[request.param](), await played(request.param, tmp_path)


async def test_every_span_is_closed_and_says_how_it_ended_and_why_where_it_failed(told: tuple[Scenario, Played]):
    scenario, run = told
    assert run.outcome == scenario.ends
    for span in run.exported:
        said = span.attributes
        assert said["shoal.outcome"] not in ("", "unfinished")
        assert span.status == ("error" if "error.type" in said else "ok")
        assert bool(said.get("shoal.reason")) or span.status == "ok"
    assert scenario.reasons <= {str(span.attributes.get("error.type")) for span in run.exported}


async def test_live_spans_are_the_exported_ones_and_two_exports_are_one(told: tuple[Scenario, Played]):
    _, run = told
    assert by_id(run.live) == by_id(run.exported)
    assert run.files[0] == run.files[1]


async def test_ids_follow_the_rule_and_every_span_but_the_root_hangs_below_another(told: tuple[Scenario, Played]):
    _, run = told
    here = {span.span_id for span in run.exported}
    assert [span.span_id for span in run.exported] == [recomputed(span) for span in run.exported]
    assert len(here) == len(run.exported)
    assert {span.parent_id for span in run.exported} <= {*here, None}
    assert [span.parent_id for span in run.exported].count(None) == 1
    assert len({span.trace_id for span in run.exported}) == 1


# --- what is particular to one


async def test_a_failover_shows_who_failed_and_who_answered(tmp_path: Path):
    run = await played("a failover", tmp_path)
    stage = one(run.exported, "stage tell")
    first, second = [span for span in run.exported if span.parent_id == stage.span_id]
    assert (first.attributes["gen_ai.provider.name"], first.status) == ("first", "error")
    assert (second.attributes["gen_ai.provider.name"], second.status) == ("second", "ok")
    [changed] = [event for event in stage.events if event.name == "shoal.model_changed"]
    assert changed.attributes["gen_ai.provider.name"] == "second"
    assert changed.attributes["error.type"] == "ProviderRefused"
    assert stage.status == "ok"


async def test_a_run_that_a_supervisor_restarted_is_one_trace_that_says_so(tmp_path: Path):
    run = await played("a supervisor's restart", tmp_path)
    asked = [span for span in run.exported if span.kind == "client" and span.attributes["shoal.purpose"] == "stage"]
    broken = one([span for span in asked if span.status == "error"], asked[0].name)
    again = [span for span in asked if span.links]
    assert broken.attributes["shoal.interrupted"] is True
    assert [link.span_id for span in again for link in span.links] == [broken.span_id]
    whole = one(run.exported, "invoke_agent desk")
    assert any("RuntimeError: a bug" in str(event.attributes) for span in run.exported for event in span.events)
    assert whole.status == "ok"
    assert len(named(run.exported, "stage tell")) == 1


async def test_a_pause_of_a_day_is_in_the_span_it_fell_in_and_in_no_other(tmp_path: Path):
    run = await played("a pause of a day", tmp_path)
    within = [span for span in run.exported if (span.end_ns - span.start_ns) / 1e9 > DAY_S - 10]
    assert {span.name for span in within} <= {"invoke_agent desk", "stage read", "transition read → tell"}
    noted = [event.name for span in run.exported for event in span.events]
    assert noted.count("shoal.paused") == noted.count("shoal.resumed") == 1


async def test_attempts_that_are_repeated_are_events_of_the_request(tmp_path: Path):
    run = await played("attempts that are repeated", tmp_path)
    [asked] = [span for span in run.exported if span.attributes.get("shoal.attempts")]
    assert (asked.status, [event.name for event in asked.events]) == ("ok", ["shoal.retry"])


async def test_a_run_that_is_spawned_under_a_users_span_hangs_below_it_live_and_exported(tmp_path: Path):
    kept, path = Kept(), tmp_path / "runs.db"
    provider = ScriptedProvider("read it", "told", purposes=TITLED)
    with TracerProvider().get_tracer("theirs").start_as_current_span("request") as theirs:
        async with shoal.Swarm([provider], journal=path, telemetry=Telemetry(kept), clock=virtual()) as swarm:
            run = await swarm.spawn(stages(), task="go")
            await run.result()
            whole = trace_of(swarm.journal, run.run_id)
    context = theirs.get_span_context()
    assert by_id(kept.spans) == by_id(whole)
    assert {span.trace_id for span in whole} == {f"{context.trace_id:032x}"}
    top = one(whole, "invoke_agent desk")
    assert (top.parent_id, top.remote_parent) == (f"{context.span_id:016x}", True)
