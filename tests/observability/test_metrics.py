"""Metrics: what runs used by whom, what is busy and what waits, over OTLP and for a Prometheus."""

from __future__ import annotations

import logging
import sys
import threading
import urllib.request
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
import grpc
import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult, MetricsData
from receiver import GrpcReceiver, Receiver

import shoal
from shoal.blueprints import Blueprint, CallerSeed, Nudge, Region, Stage
from shoal.errors import ConfigInvalid, ProviderRefused
from shoal.observability import Metrics, metrics_otlp, prometheus
from shoal.observability._factories import Protocol
from shoal.observability._metric_exporter import CountingMetrics
from shoal.providers import Usage
from shoal.runtime import Event, MemoryJournal, SqliteJournal, Swarm, virtual
from shoal.runtime.events import InferenceCompleted, LaneDegraded
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

TASK = Region("task", kind="pinned", max_tokens=500, seed=CallerSeed("task"), volatility="stable")
TALK = Region("conversation", kind="sliding_window", max_tokens=4000, max_items=None)
QUIET = Nudge(enabled=False)
TWO = Blueprint("two", (Stage("a", nudge=QUIET), Stage("b", nudge=QUIET)), regions=(TASK, TALK))


class Read:
    """Metrics into memory, and what was measured by name."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.metrics = Metrics(MeterProvider([self._reader], shutdown_on_exit=False))

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        found = [] if data is None else [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        return [point for metric in found if metric.name == name for point in metric.data.data_points]

    def one(self, name: str, **attributes: str) -> Any:
        wanted = attributes.items()
        (point,) = [p for p in self.points(name) if wanted <= dict(p.attributes).items()]
        return point


def scripted(*replies: Any, **more: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"}, **more)


async def measured(*replies: Any) -> tuple[Read, list[Event]]:
    """Run `TWO` once, and return what was measured and its events."""
    read, journal = Read(), MemoryJournal()
    async with Swarm([scripted(*replies)], journal, [read.metrics], clock=virtual()) as swarm:
        read.metrics.watch(swarm)
        run = await swarm.spawn(TWO, task="x")
        await run.result()
        return read, list(journal.read(run.run_id))


ONE = Say("one", usage=Usage(100, 300, 0, 0, 7), delay_s=2)


async def test_tokens_are_measured_by_kind():
    read, events = await measured(ONE, Say("two", usage=Usage(10, 0, 0, 0, 3)))
    done = [event.payload for event in events if isinstance(event.payload, InferenceCompleted)]
    sent = read.one("gen_ai.client.token.usage", **{"gen_ai.token.type": "input"})
    said = read.one("gen_ai.client.token.usage", **{"gen_ai.token.type": "output"})
    assert (sent.count, sent.sum) == (3, sum(sum(each.usage[:4]) for each in done))
    assert said.sum == sum(each.usage[4] for each in done)
    assert dict(sent.attributes)["gen_ai.agent.name"] == "two"


async def test_the_time_of_requests_is_measured():
    read, _ = await measured(ONE, "two")
    assert read.one("gen_ai.client.operation.duration").sum == pytest.approx(2, abs=0.1)


async def test_cost_is_counted_by_stage_and_region():
    read, events = await measured(ONE, "two")
    done = [event.payload for event in events if isinstance(event.payload, InferenceCompleted)]
    total = sum((each.cost or Decimal(0) for each in done), Decimal(0))
    assert sum(point.value for point in read.points("shoal.cost")) == pytest.approx(float(total))
    assert read.one("shoal.cost", **{"shoal.stage": "a", "shoal.region": "task"}).value > 0


async def test_the_share_that_came_from_a_cache_is_measured():
    read, _ = await measured(ONE, "two")
    assert read.one("shoal.cache.hit_ratio", **{"shoal.stage": "a"}).max == 0.75


async def test_how_full_a_region_is_is_measured_against_its_budget():
    read, _ = await measured("one", "two")
    point = read.one("shoal.region.fill", **{"shoal.stage": "b", "shoal.region": "conversation"})
    assert 0 < point.max < 0.1
    assert not [p for p in read.points("shoal.region.fill") if dict(p.attributes)["shoal.region"] == "overhead"]


async def test_a_request_that_failed_is_forgotten():
    read, journal = Read(), MemoryJournal()
    failing = scripted(ProviderRefused("no"))
    async with Swarm([failing], journal, [read.metrics], clock=virtual()) as swarm:
        await (await swarm.spawn(TWO, task="x")).result()
    assert read.points("gen_ai.client.operation.duration") == []
    assert read.metrics.faults == 0


async def test_jobs_that_gave_their_fallback_are_counted():
    read = Read()
    for reason in ("timeout", "dropped"):
        read.metrics(Event("r", 1, 1.0, LaneDegraded("titling", 1, "", reason, "why")))
    assert read.one("shoal.lane.degraded", **{"shoal.reason": "dropped"}).value == 1
    assert [dict(p.attributes)["shoal.reason"] for p in read.points("shoal.lane.failed")] == ["timeout"]


async def test_runs_pools_and_lanes_are_shown_as_they_stand():
    read = Read()
    late = Say("late", delay_s=50)
    async with Swarm([scripted(late, late)], MemoryJournal(), clock=virtual()) as swarm:
        read.metrics.watch(swarm)
        await swarm.spawn(TWO, task="x")
        paused = await swarm.spawn(TWO, task="y")
        await anyio.sleep(5)
        await paused.pause()
        assert read.one("shoal.runs", **{"shoal.agent": "two", "shoal.state": "running"}).value == 1
        assert read.one("shoal.runs", **{"shoal.state": "paused"}).value == 1
        assert read.one("shoal.pool.busy", **{"shoal.pool": "scripted"}).value == 2
        assert read.one("shoal.lane.queued", **{"shoal.lane": "titling"}).value == 0


async def test_restarts_are_counted_by_supervisor():
    read = Read()
    crashes = [ValueError("boom"), "one", "two"]

    def play(request: Any) -> Any:
        reply = "A title" if request.purpose == "titling" else crashes.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async with Swarm([ScriptedProvider(script=play)], MemoryJournal(), clock=virtual()) as swarm:
        read.metrics.watch(swarm)
        await (await swarm.spawn(TWO, task="x")).result()
        (point,) = read.points("shoal.actor.restarts")
        assert (point.value, dict(point.attributes)) == (1, {"shoal.supervisor": "/swarm/runs"})


async def test_an_event_that_cannot_be_measured_is_counted_and_nothing_else_happens():
    read = Read()
    read.metrics._runs = None  # type: ignore[assignment]
    async with Swarm([scripted("one", "two")], MemoryJournal(), [read.metrics], clock=virtual()) as swarm:
        outcome = await (await swarm.spawn(TWO, task="x")).result()
    assert outcome.output == "two"
    assert read.metrics.faults > 3


async def test_a_request_that_was_sent_before_anybody_measured_is_left_out():
    _, events = await measured("one", "two")
    late = Read()
    for event in events:
        if isinstance(event.payload, InferenceCompleted):
            late.metrics(event)
    assert late.points("gen_ai.client.token.usage") == []
    assert late.metrics.faults == 0


async def test_commits_of_a_journal_are_measured(tmp_path: Path):
    read = Read()
    async with shoal.Swarm([scripted("one", "two")], journal=tmp_path / "runs.db", metrics=read.metrics) as swarm:
        await (await swarm.spawn(TWO, task="x")).result()
    assert sum(point.count for point in read.points("shoal.journal.commit.duration")) > 2


async def test_a_journal_of_ones_own_is_left_as_it_was(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db")
    async with shoal.Swarm([scripted()], journal=journal, metrics=Read().metrics):
        assert journal.on_commit is not None
    assert journal.on_commit is None
    journal.close()


# --- ways out


@pytest.mark.sockets
async def test_a_prometheus_fetches_them():
    metrics = prometheus(port=0)
    port = metrics.port
    async with shoal.Swarm([scripted("one", "two")], metrics=metrics) as swarm:
        await (await swarm.spawn(TWO, task="x")).result()
        page = await anyio.to_thread.run_sync(_fetch, f"http://127.0.0.1:{port}/metrics")
    assert 'gen_ai_client_token_usage_count{gen_ai_agent_name="two"' in page.replace("_total", "")
    assert "shoal_pool_busy" in page


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.sockets
async def test_a_port_that_is_taken_is_named():
    metrics = prometheus(port=0)
    with pytest.raises(
        ConfigInvalid, match=rf"nothing can listen on 127\.0\.0\.1:{metrics.port}: .*; name another port"
    ):
        prometheus(port=metrics.port or 0)
    metrics.close()


async def test_metrics_that_are_none_are_refused():
    with pytest.raises(ConfigInvalid, match="`metrics` is 'statsd'; name `otlp`"):
        async with shoal.Swarm([scripted()], metrics="statsd"):  # type: ignore[arg-type]
            pass


async def test_a_place_that_is_none_is_refused():
    with pytest.raises(ConfigInvalid, match="nothing can be sent to 'here'"):
        metrics_otlp("here")
    with pytest.raises(ConfigInvalid, match="nothing can be sent to 'here'"):
        metrics_otlp("here", protocol="grpc")


@pytest.fixture(params=["http/protobuf", "grpc"])
def taking(request: pytest.FixtureRequest) -> Receiver | GrpcReceiver:
    """A receiver of either protocol."""
    name = "grpc_receiver" if request.param == "grpc" else "receiver"
    found: Receiver | GrpcReceiver = request.getfixturevalue(name)
    return found


def spoken(taking: Receiver | GrpcReceiver) -> Protocol:
    return "grpc" if isinstance(taking, GrpcReceiver) else "http/protobuf"


def arrived(taking: Receiver | GrpcReceiver) -> dict[str, Any]:
    """Return the newest figures that *taking* was sent, by name."""
    return {
        metric.name: metric
        for request in taking.metrics
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


async def used(metrics: Metrics | Literal["otlp"]) -> None:
    """Run `TWO` once in a swarm that is measured."""
    async with shoal.Swarm([scripted("one", "two")], metrics=metrics) as swarm:
        with anyio.fail_after(15):
            assert (await (await swarm.spawn(TWO, task="x")).result()).status == "complete"


@pytest.mark.sockets
async def test_all_figures_reach_a_real_receiver_at_the_latest_when_the_swarm_closes(taking: Receiver | GrpcReceiver):
    metrics = metrics_otlp(taking.url, {"x-team": "desk"}, protocol=spoken(taking), every_s=3600)
    await used(metrics)
    found = arrived(taking)
    assert {"gen_ai.client.token.usage", "gen_ai.client.operation.duration", "shoal.cost"} <= set(found)
    assert {"shoal.pool.busy", "shoal.pool.queued", "shoal.pool.wait", "shoal.lane.queued"} <= set(found)
    sent = found["gen_ai.client.token.usage"].histogram.data_points
    assert (
        sum(point.count for point in sent) >= 4
    )  # in and out of the two requests of the stages; titling may come to nothing
    assert metrics.failed == 0


@pytest.mark.sockets
async def test_the_variables_say_where_metrics_go_and_how(
    taking: Receiver | GrpcReceiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", taking.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", spoken(taking))
    await used("otlp")
    assert "shoal.pool.busy" in arrived(taking)


@pytest.mark.sockets
async def test_headers_go_with_metrics(receiver: Receiver, grpc_receiver: GrpcReceiver):
    await used(metrics_otlp(receiver.url, {"x-team": "desk"}))
    await used(metrics_otlp(grpc_receiver.url, {"x-team": "desk"}, protocol="grpc"))
    assert [receiver.headers[0]["x-team"], grpc_receiver.metadata[0]["x-team"]] == ["desk", "desk"]


@pytest.mark.sockets
async def test_a_receiver_of_metrics_that_answers_errors_troubles_no_run_and_is_told_of_once(
    taking: Receiver | GrpcReceiver, caplog: pytest.LogCaptureFixture
):
    taking.refuses, taking.status = grpc.StatusCode.INVALID_ARGUMENT, 400
    metrics = metrics_otlp(taking.url, protocol=spoken(taking), every_s=0.02)
    await used(metrics)
    assert metrics.failed >= 1
    assert not taking.metrics
    told = [record.getMessage() for record in caplog.records if record.name.startswith(("shoal", "opentelemetry"))]
    assert [text.partition(":")[0] for text in told] == ["metrics could not be exported"], told


@pytest.mark.sockets
async def test_a_receiver_of_metrics_that_is_not_there_is_told_of_once(caplog: pytest.LogCaptureFixture):
    metrics = metrics_otlp("http://127.0.0.1:9", timeout_s=0.2)
    await used(metrics)
    assert (metrics.failed, len(caplog.records)) == (1, 1)


def test_a_defect_of_an_exporter_of_metrics_is_counted_like_any_failure(caplog: pytest.LogCaptureFixture):
    class Faulty(OTLPMetricExporter):
        def export(self, *_given: Any, **_more: Any) -> MetricExportResult:
            raise ZeroDivisionError

    counting = CountingMetrics(Faulty())
    results = {counting.export(MetricsData(())) for _ in range(2)}
    assert (results, counting.failed, len(caplog.records)) == ({MetricExportResult.FAILURE}, 2, 1)
    assert "ZeroDivisionError" in caplog.records[0].getMessage()
    assert counting.force_flush()
    counting.shutdown()


@pytest.mark.sockets
def test_what_an_export_says_that_is_given_up_stays_with_us(caplog: pytest.LogCaptureFixture):
    begun, go = threading.Event(), threading.Event()

    class Slow(OTLPMetricExporter):
        def export(self, *_given: Any, **_more: Any) -> MetricExportResult:
            begun.set()
            go.wait(10)
            logging.getLogger("opentelemetry.exporter.otlp.proto.http.metric_exporter").error("given up")
            return MetricExportResult.FAILURE

    counting = CountingMetrics(Slow())
    export = threading.Thread(target=counting.export, args=(MetricsData(()),))
    export.start()
    begun.wait(10)
    counting.shutdown()
    go.set()
    export.join()
    assert [record.name for record in caplog.records] == ["shoal.observability"]
    assert not logging.getLogger("opentelemetry.exporter.otlp.proto.http.metric_exporter").filters


async def test_how_busy_a_swarm_is_may_be_asked_in_another_thread_while_runs_come_and_go():
    """Exporters ask in a thread of their own: what changes meanwhile must not end what they do."""
    over = threading.Event()
    between, asked = sys.getswitchinterval(), 0

    def ask(swarm: Swarm) -> int:
        times = 0
        while not over.is_set():
            swarm.statistics()
            times += 1
        return times

    async with Swarm([scripted(*["said"] * 200)], MemoryJournal(), clock=virtual()) as swarm:
        sys.setswitchinterval(1e-6)
        try:
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    nonlocal asked
                    asked = await anyio.to_thread.run_sync(ask, swarm)

                tasks.start_soon(watch)
                for _ in range(100):
                    await (await swarm.spawn(TWO, task="x")).result()
                over.set()
        finally:
            over.set()
            sys.setswitchinterval(between)
    assert asked
