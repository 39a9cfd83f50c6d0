"""Spans in a real Jaeger, where its binary is: `SHOAL_JAEGER` is the path of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spankit import LISTS, blueprint, fanned, played

from shoal.blueprints import Nudge, Stage
from shoal.observability import Span, export_trace, otlp, trace_of
from shoal.runtime import MemoryJournal
from shoal.testing import ScriptedProvider, call

BINARY = os.environ.get("SHOAL_JAEGER", "")
TITLED = {"titling": "A title"}

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.anyio,
    pytest.mark.wall_limit(60),
    pytest.mark.skipif(not BINARY, reason="`SHOAL_JAEGER` names no binary"),
]

CONFIG = """\
service:
  extensions: [jaeger_storage, jaeger_query]
  telemetry:
    metrics: {{level: none}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}
extensions:
  jaeger_storage:
    backends:
      kept: {{memory: {{max_traces: 1000}}}}
  jaeger_query:
    storage: {{traces: kept}}
    http: {{endpoint: "127.0.0.1:{query}"}}
    grpc: {{endpoint: "127.0.0.1:{grpc}"}}
receivers:
  otlp:
    protocols:
      http: {{endpoint: "127.0.0.1:{otlp}"}}
exporters:
  jaeger_storage_exporter: {{trace_storage: kept}}
"""


class Jaeger:
    """A Jaeger that runs, and ways to ask it."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.otlp = f"http://127.0.0.1:{ports['otlp']}"
        self._api = f"http://127.0.0.1:{ports['query']}/api"

    def ask(self, path: str, data: bytes | None = None) -> Any:
        request = urllib.request.Request(f"{self._api}/{path}", data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)["data"]

    def send(self, body: bytes) -> None:
        request = urllib.request.Request(f"{self.otlp}/v1/traces", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 200

    def trace(self, trace_id: str, spans: int) -> list[dict[str, Any]]:
        def whole() -> list[dict[str, Any]] | None:
            found = self.ask(f"traces/{trace_id}")[0]["spans"]
            return found if len(found) == spans else None

        return until(whole)

    def search(self, **tags: str) -> list[str]:
        asked = {"service": "shoal", "limit": "20", "tags": json.dumps(tags), "lookback": "custom"}
        window = {"start": str(10**15), "end": str(4 * 10**15)}
        return [trace["traceID"] for trace in self.ask(f"traces?{urllib.parse.urlencode({**asked, **window})}")]


def until(ask: Callable[[], Any]) -> Any:
    """Ask again, until there is an answer, as long as the test may take."""
    while True:
        try:
            answer = ask()
        except OSError:
            answer = None
        if answer is not None:
            return answer
        time.sleep(0.05)


def free_ports(*names: str) -> dict[str, int]:
    taken = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
    ports = {name: server.getsockname()[1] for name, server in taken.items()}
    for server in taken.values():
        server.close()
    return ports


@pytest.fixture(scope="module")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    folder: Path = tmp_path_factory.mktemp("jaeger")
    ports = free_ports("otlp", "query", "grpc")
    (folder / "config.yaml").write_text(CONFIG.format(**ports), "utf-8")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([BINARY, "--config", str(folder / "config.yaml")], stdout=log, stderr=log)
        running = Jaeger(ports)
        until(lambda: running.ask("services") or [])
        yield running
        process.terminate()
        process.wait()


async def exported(jaeger: Jaeger) -> tuple[MemoryJournal, str, tuple[Span, ...]]:
    """Run a tree whose spans are exported live, and return its journal, its id and its spans."""
    telemetry = otlp(jaeger.otlp)
    items = [{"id": "a", "task": "one"}, {"id": "b", "task": "two"}]
    provider = ScriptedProvider(call("fan_out", items=items), "a says", "b says", purposes=TITLED)
    journal, run_id = await played(fanned(), provider, observers=[telemetry])
    await telemetry.aclose()
    return journal, run_id, trace_of(journal, run_id)


async def test_jaeger_shows_the_tree_that_the_journal_gives_and_finds_no_fault_with_it(jaeger: Jaeger):
    _, _, spans = await exported(jaeger)
    shown = jaeger.trace(spans[0].trace_id, len(spans))
    parents = {
        span["spanID"]: [r["spanID"] for r in span["references"] if r["refType"] == "CHILD_OF"] for span in shown
    }
    assert parents == {span.span_id: [span.parent_id] if span.parent_id else [] for span in spans}
    assert {span["operationName"] for span in shown} == {span.name for span in spans}
    assert [span["warnings"] for span in shown if span["warnings"]] == []


async def test_jaeger_finds_a_run_by_its_dearest_region_and_by_its_band(jaeger: Jaeger):
    _, _, spans = await exported(jaeger)
    run = spans[0].attributes
    jaeger.trace(spans[0].trace_id, len(spans))
    wanted = {name: str(run[name]) for name in ("shoal.cost.top_region", "shoal.cost.band", "shoal.run_id")}
    assert jaeger.search(**wanted) == [spans[0].trace_id]


async def test_jaeger_converts_the_file_of_a_trace_as_its_page_does_on_upload(jaeger: Jaeger):
    made = blueprint(Stage("read", available_tools=LISTS, nudge=Nudge(enabled=False)), Stage("tell"))
    journal, run_id = await played(made, ScriptedProvider(call("list_dir"), "read it", "told", purposes=TITLED))
    [theirs] = jaeger.ask("transform", export_trace(journal, run_id, "otlp-json"))
    [ours] = json.loads(export_trace(journal, run_id, "jaeger"))["data"]

    def shape(trace: dict[str, Any]) -> set[tuple[Any, ...]]:
        return {
            (s["traceID"], s["spanID"], s["operationName"], s["startTime"], s["duration"], len(s["references"]))
            for s in trace["spans"]
        }

    def tags(trace: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {s["spanID"]: {tag["key"]: (tag["type"], tag["value"]) for tag in s["tags"]} for s in trace["spans"]}

    assert shape(theirs) == shape(ours)
    for span_id, mine in tags(ours).items():
        read = tags(theirs)[span_id]
        assert {key: value for key, value in mine.items() if key != "otel.scope.name"}.items() <= read.items()


async def test_a_trace_that_is_sent_twice_is_shown_once(jaeger: Jaeger):
    journal, run_id, spans = await exported(jaeger)
    jaeger.trace(spans[0].trace_id, len(spans))
    jaeger.send(export_trace(journal, run_id, "otlp-json"))
    _, _, later = await exported(jaeger)
    jaeger.trace(later[0].trace_id, len(later))
    shown = jaeger.ask(f"traces/{spans[0].trace_id}")[0]["spans"]
    assert sorted(span["spanID"] for span in shown) == sorted(span.span_id for span in spans)
