"""Spans over loopback with the real exporter: every one arrives, and a receiver in trouble troubles nobody."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import grpc
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from receiver import GrpcReceiver, Receiver
from spankit import LISTS, blueprint, burst, parsed

from shoal.blueprints import Nudge, Stage
from shoal.observability import Telemetry, export_trace, exporting, otlp, trace_of
from shoal.runtime import MemoryJournal, Swarm
from shoal.testing import ScriptedProvider, call

pytestmark = [pytest.mark.sockets, pytest.mark.anyio]


async def a_run(telemetry: Telemetry) -> tuple[MemoryJournal, str]:
    made = blueprint(Stage("read", available_tools=LISTS, nudge=Nudge(enabled=False)))
    provider = ScriptedProvider(call("list_dir"), "read it", purposes={"titling": "A title"})
    journal = MemoryJournal()
    async with Swarm([provider], journal, [telemetry], beside={"telemetry": telemetry.serve}) as swarm:
        with anyio.fail_after(15):
            run = await swarm.spawn(made, task="go")
            assert (await run.result()).status == "complete"
    return journal, run.run_id


async def test_a_live_run_arrives_as_the_journal_gives_it(receiver: Receiver):
    telemetry = otlp(receiver.url, service_name="newsroom")
    journal, run_id = await a_run(telemetry)
    await telemetry.aclose()
    sent = {(span.span_id.hex(), span.parent_span_id.hex(), span.name) for span in receiver.spans}
    assert sent == {(span.span_id, span.parent_id or "", span.name) for span in trace_of(journal, run_id)}
    assert receiver.services == {"newsroom"}


async def test_what_arrives_live_is_byte_for_byte_what_a_file_of_the_journal_holds(receiver: Receiver):
    telemetry = otlp(receiver.url)
    journal, run_id = await a_run(telemetry)
    await telemetry.aclose()
    [from_file] = parsed(export_trace(journal, run_id)).resource_spans
    live = {span.span_id: span.SerializeToString(deterministic=True) for span in receiver.spans}
    filed = {span.span_id: span.SerializeToString(deterministic=True) for span in from_file.scope_spans[0].spans}
    assert live == filed
    assert receiver.requests[0].resource_spans[0].resource == from_file.resource


async def test_a_burst_of_twenty_thousand_arrives_whole_and_none_is_lost_on_closing(receiver: Receiver):
    telemetry = otlp(receiver.url)
    burst(telemetry, spans=20_000)
    await telemetry.aclose()
    counted = telemetry.statistics()
    assert (counted.spans, counted.exported, counted.dropped, counted.failed) == (20_000, 20_000, 0, 0)
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans) == 20_000


async def test_a_burst_through_the_sdks_own_encoding_arrives_whole_too(receiver: Receiver):
    class Theirs(OTLPSpanExporter):
        pass

    telemetry = exporting(Theirs(f"{receiver.url}/v1/traces"))
    burst(telemetry, spans=20_000)
    await telemetry.aclose()
    assert telemetry.statistics().exported == 20_000
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans) == 20_000


@pytest.mark.wall_limit(60)
def test_the_child_of_a_fork_sends_what_it_makes_and_its_parent_what_waited(receiver: Receiver):
    program = Path(__file__).with_name("forking.py")
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    done = subprocess.run(
        [sys.executable, program], capture_output=True, env={**os.environ, **settings}, timeout=50, check=True
    )
    assert done.stderr == b""
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans) == 400


@pytest.mark.wall_limit(60)
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_ctrl_c_in_the_middle_of_a_burst_loses_none(receiver: Receiver, grpc_receiver: GrpcReceiver, protocol: str):
    taking = {"http/protobuf": receiver, "grpc": grpc_receiver}[protocol]
    program = Path(__file__).with_name("bursting.py")
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": taking.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        # Nothing is sent before the end.
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "65536",
    }
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **settings}
    ) as running:
        assert running.stdout is not None
        ready = running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=50)
    assert (ready, told.rstrip().endswith(b"KeyboardInterrupt")) == (b"20000 spans wait\n", True), told.decode()
    assert b"spans were" not in told
    assert len({span.span_id for span in taking.spans}) == len(taking.spans) == 20_000


async def test_headers_and_a_path_of_its_own_are_sent(receiver: Receiver):
    telemetry = otlp(f"{receiver.url}/v1/traces", {"authorization": "Bearer key"})
    await a_run(telemetry)
    await telemetry.aclose()
    assert receiver.spans
    assert receiver.headers[0]["authorization"] == "Bearer key"
    assert receiver.headers[0]["content-type"] == "application/x-protobuf"


async def test_the_variables_say_where_spans_go_and_under_which_name(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=desk")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "their-name")
    telemetry = otlp()
    await a_run(telemetry)
    await telemetry.aclose()
    assert receiver.services == {"their-name"}
    assert receiver.headers[0]["x-team"] == "desk"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return who logged something, us or the SDK; what the receiver logs of itself is its own business."""
    names = [record.name for record in caplog.records if record.levelno >= logging.WARNING]
    return [name for name in names if name.startswith(("shoal", "opentelemetry"))]


def nowhere() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


async def test_a_receiver_that_is_not_there_troubles_no_run(caplog: pytest.LogCaptureFixture):
    telemetry = otlp(nowhere(), timeout_s=0.2)
    with caplog.at_level(logging.WARNING):
        await a_run(telemetry)
        await telemetry.aclose(timeout_s=1)
    counted = telemetry.statistics()
    assert (counted.exported, counted.failed + counted.waiting) == (0, counted.spans)
    assert told(caplog) == ["shoal.observability"]


@pytest.mark.parametrize("status", [400, 503])
async def test_a_receiver_that_answers_errors_troubles_no_run(
    receiver: Receiver, status: int, caplog: pytest.LogCaptureFixture
):
    receiver.status = status
    telemetry = otlp(receiver.url, timeout_s=0.2)
    await a_run(telemetry)
    await telemetry.aclose(timeout_s=10)
    counted = telemetry.statistics()
    assert (counted.exported, counted.failed) == (0, counted.spans)
    assert told(caplog) == ["shoal.observability"]


async def test_a_receiver_that_hangs_troubles_no_run(receiver: Receiver):
    receiver.hold = threading.Event()
    telemetry = otlp(receiver.url, timeout_s=0.3)
    await a_run(telemetry)
    await telemetry.aclose(timeout_s=0.2)
    assert telemetry.statistics().exported == 0


async def test_a_receiver_that_comes_back_gets_what_comes_then(receiver: Receiver):
    receiver.status = 400
    telemetry = otlp(receiver.url, timeout_s=0.2)
    await a_run(telemetry)
    await telemetry.flush()
    lost = telemetry.statistics().failed
    receiver.status = 200
    await a_run(telemetry)
    await telemetry.aclose()
    counted = telemetry.statistics()
    assert (counted.failed, counted.exported) == (lost, counted.spans - lost)
    assert len(receiver.spans) == counted.exported > 0


# --- over gRPC


async def test_a_live_run_arrives_over_grpc_too(grpc_receiver: GrpcReceiver):
    telemetry = otlp(grpc_receiver.url, {"x-tenant": "news"}, protocol="grpc")
    journal, run_id = await a_run(telemetry)
    await telemetry.aclose()
    sent = {(span.span_id.hex(), span.name) for span in grpc_receiver.spans}
    assert sent == {(span.span_id, span.name) for span in trace_of(journal, run_id)}
    assert grpc_receiver.metadata[0]["x-tenant"] == "news"


async def test_a_variable_may_ask_for_grpc(grpc_receiver: GrpcReceiver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", grpc_receiver.url)
    telemetry = otlp()
    journal, run_id = await a_run(telemetry)
    await telemetry.aclose()
    assert len(grpc_receiver.spans) == len(list(trace_of(journal, run_id)))


async def test_a_burst_over_grpc_arrives_whole_and_none_is_lost_on_closing(grpc_receiver: GrpcReceiver):
    telemetry = otlp(grpc_receiver.url, protocol="grpc")
    burst(telemetry, spans=20_000)
    await telemetry.aclose()
    counted = telemetry.statistics()
    assert (counted.spans, counted.exported, counted.dropped, counted.failed) == (20_000, 20_000, 0, 0)
    assert len({span.span_id for span in grpc_receiver.spans}) == len(grpc_receiver.spans) == 20_000


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE])
async def test_a_receiver_over_grpc_that_answers_errors_troubles_no_run_and_is_told_of_once(
    grpc_receiver: GrpcReceiver, code: grpc.StatusCode, caplog: pytest.LogCaptureFixture
):
    grpc_receiver.refuses = code
    telemetry = otlp(grpc_receiver.url, protocol="grpc", timeout_s=0.2)
    await a_run(telemetry)
    await telemetry.aclose(timeout_s=10)
    counted = telemetry.statistics()
    assert (counted.exported, counted.failed) == (0, counted.spans)
    assert told(caplog) == ["shoal.observability"]


async def test_a_receiver_over_grpc_that_is_not_there_troubles_no_run(caplog: pytest.LogCaptureFixture):
    telemetry = otlp(nowhere(), protocol="grpc", timeout_s=0.2)
    await a_run(telemetry)
    await telemetry.aclose(timeout_s=1)
    counted = telemetry.statistics()
    assert (counted.exported, counted.failed + counted.waiting) == (0, counted.spans)
    assert told(caplog) == ["shoal.observability"]


async def test_a_receiver_over_grpc_that_hangs_troubles_no_run(grpc_receiver: GrpcReceiver):
    grpc_receiver.hold = threading.Event()
    telemetry = otlp(grpc_receiver.url, protocol="grpc", timeout_s=0.3)
    await a_run(telemetry)
    await telemetry.aclose(timeout_s=0.2)
    assert telemetry.statistics().exported == 0
