"""Settings of telemetry: arguments, variables, and what they may not say."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from spankit import Story

from shoal.errors import ConfigInvalid
from shoal.observability import exporting, metrics_otlp, otlp, prometheus
from shoal.observability._factories import captures_content, resource_of, traces_url

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

pytestmark = pytest.mark.sockets


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://host/otlp/v1/traces", "https://host/otlp/v1/traces"),
    ],
)
def test_an_endpoint_without_a_path_gets_that_of_otlp(given: str, url: str):
    assert traces_url(given) == url


@pytest.mark.parametrize("given", ["127.0.0.1:4318", "localhost", "grpc://host:4317", "http://", ""])
def test_an_endpoint_that_is_no_url_is_refused(given: str):
    with pytest.raises(ConfigInvalid, match="give a URL such as"):
        otlp(given)


@pytest.mark.parametrize("said", ["SPAN_ONLY", "span_and_event", "true"])
def test_content_can_be_asked_for_by_the_environment(said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CAPTURE, said)
    assert captures_content()


@pytest.mark.parametrize("said", ["", "NO_CONTENT", "EVENT_ONLY", "false"])
def test_content_stays_out_where_the_environment_does_not_ask_for_it_in_spans(
    said: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(CAPTURE, said)
    assert not captures_content()


def test_content_that_is_asked_for_in_words_of_no_meaning_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CAPTURE, "some")
    with pytest.raises(ConfigInvalid, match="'some'; set it to `SPAN_ONLY`"):
        otlp("http://127.0.0.1:1")


def test_an_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CAPTURE, "some")
    otlp("http://127.0.0.1:1", capture_content=False).close()


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_another_protocol_is_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "http/json")
    with pytest.raises(ConfigInvalid, match=f"`{name}` is 'http/json'; set it to `http/protobuf` or `grpc`"):
        otlp()


def test_grpc_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    monkeypatch.delitem(sys.modules, "shoal.observability._grpc", raising=False)
    with pytest.raises(ConfigInvalid, match=r"install `shoal\[grpc\]`"):
        otlp(protocol="grpc")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.metric_exporter", None)
    with pytest.raises(ConfigInvalid, match=r"install `shoal\[grpc\]`"):
        metrics_otlp(protocol="grpc")


def test_a_prometheus_endpoint_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigInvalid, match=r"install `shoal\[prometheus\]`"):
        prometheus(port=0)


def test_the_protocol_that_is_spoken_may_be_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    otlp("http://127.0.0.1:1").close()


@pytest.mark.parametrize(
    ("given", "variables", "service"),
    [
        (None, {}, "shoal"),
        (None, {"OTEL_SERVICE_NAME": "theirs"}, "theirs"),
        (None, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs,team=desk"}, "theirs"),
        ("ours", {"OTEL_SERVICE_NAME": "theirs"}, "ours"),
    ],
)
def test_the_service_has_the_nearest_name(
    given: str | None, variables: dict[str, str], service: str, monkeypatch: pytest.MonkeyPatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert resource_of(given).attributes["service.name"] == service


def test_the_queue_has_the_size_that_the_variables_say(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    telemetry = exporting(InMemorySpanExporter())
    assert telemetry._sink._queue_spans == 2  # type: ignore[attr-defined]
    story = Story()
    story.spawn()
    story.end()
    for event in story.events:
        telemetry(event)
    telemetry.close()
    assert telemetry.statistics().exported == 1


@pytest.mark.parametrize("numbers", [{"queue_spans": -1}, {"batch_spans": -1}, {"every_s": -1.0}])
def test_numbers_that_are_not_above_nothing_are_refused(numbers: dict[str, int]):
    with pytest.raises(ConfigInvalid, match="give numbers above 0"):
        exporting(InMemorySpanExporter(), **numbers)  # type: ignore[arg-type]


def test_a_variable_that_is_no_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    with pytest.raises(ConfigInvalid, match="`OTEL_BSP_MAX_QUEUE_SIZE` is 'many'; set it to a number"):
        exporting(InMemorySpanExporter())
