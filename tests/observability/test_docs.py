"""The pages on observability and Jaeger: their examples run, and what they name is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from receiver import Receiver
from spankit import blueprint, one, played

from shoal.blueprints import Stage
from shoal.observability import names, trace_of
from shoal.observability._spans import MOST_CHARS, MOST_EVENTS, MOST_NAME_CHARS, MOST_REGIONS
from shoal.providers import offline
from shoal.testing import ScriptedProvider

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "observability.md").read_text("utf-8")
JAEGER = (DOCS / "jaeger.md").read_text("utf-8")


def run(page: str) -> None:
    for number, source in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        exec(compile(source, f"example {number}", "exec"), {"__name__": "example"})


@pytest.mark.sockets
def test_the_examples_run_in_their_order_and_the_spans_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: Receiver
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    run(PAGE.replace("http://127.0.0.1:4318", receiver.url))
    run(JAEGER)
    assert "invoke_agent digest" in {span.name for span in receiver.spans}
    assert (tmp_path / "trace.json").stat().st_size > 1000


def named() -> set[str]:
    return {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}


def test_every_name_stands_on_the_page():
    constants = named() - {names.SCOPE, names.REGION_PREFIX}
    missing = {value for value in constants if f"`{value}`" not in PAGE}
    assert missing == set()


def test_every_name_of_ours_on_the_pages_is_there():
    constants = named()
    said = set(re.findall(r"`(shoal\.[a-z_.]+[a-z])[`=]", PAGE + JAEGER))
    modules = {"shoal.observability", "shoal.observability.names"}
    assert said - constants - modules == set()


def test_the_limits_on_the_page_are_those_that_hold():
    assert f"cut to {MOST_CHARS} characters, names of spans to {MOST_NAME_CHARS}" in PAGE
    assert f"at most {MOST_EVENTS} events" in PAGE
    assert f"for the {MOST_REGIONS} dearest" in PAGE


@pytest.mark.anyio
async def test_the_trace_on_the_page_has_the_shape_that_such_a_run_has(tmp_path: Path):
    for name in ("boats.md", "harbour.md"):
        (tmp_path / name).write_text(
            f"# {name}\n\nThe boats wait outside of the harbour. The pier is closed.\n", "utf-8"
        )
    journal, run_id = await played("digest", offline(), task="What lies here?", workdir=tmp_path)
    drawn = [line for line in JAEGER.splitlines() if re.search(r"─ |invoke_agent digest  ", line)]
    shown = [re.sub(r"^[\s│├└─]+", "", line).split("  ")[0] for line in drawn]
    assert sorted(shown) == sorted(span.name for span in trace_of(journal, run_id))


def test_the_file_beside_the_page_is_the_trace_on_the_page():
    [trace] = json.loads((DOCS / "digest.jaeger.json").read_text("utf-8"))["data"]
    drawn = [line for line in JAEGER.splitlines() if re.search(r"─ |invoke_agent digest  ", line)]
    shown = [re.sub(r"^[\s│├└─]+", "", line).split("  ")[0] for line in drawn]
    assert sorted(span["operationName"] for span in trace["spans"]) == sorted(shown)
    [top] = [span for span in trace["spans"] if span["operationName"] == "invoke_agent digest"]
    took, sent = re.search(r"invoke_agent digest +([\d.]+) ms +([\d,]+)", JAEGER).groups()  # type: ignore[union-attr]
    assert f"{top['duration'] / 1000:.1f}" == took
    assert {tag["value"] for tag in top["tags"] if tag["key"] == "gen_ai.usage.input_tokens"} == {
        int(sent.replace(",", ""))
    }


@pytest.mark.anyio
async def test_a_trace_has_the_tags_that_the_page_searches_for():
    provider = ScriptedProvider("read it", purposes={"titling": "A title"})
    stage = one(trace_of(*await played(blueprint(Stage("read")), provider)), "stage read")
    searched = set(re.findall(r"^\| `([a-z_.]+)=", JAEGER, re.MULTILINE))
    assert {"shoal.run_id", "shoal.cost.top_region", "shoal.cost.band", "shoal.outcome"} <= searched
    assert {"shoal.run_id", "shoal.cost.top_region", "shoal.cost.band", "shoal.outcome"} <= set(stage.attributes)
