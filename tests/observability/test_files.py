"""Traces as files: their shape, golden with counted ids, and read back by what others read them with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from spankit import CHILD, ROOT, Story, parsed, share, spans_of

from shoal.errors import ConfigInvalid, RunNotFound
from shoal.observability import Span, export_trace, trace_of
from shoal.observability._jaeger import _listed
from shoal.providers import Text
from shoal.runtime import MemoryJournal
from shoal.runtime.events import (
    ChildEnded,
    ChildSpawned,
    InferenceRetried,
    RunPaused,
    ToolCallCompleted,
    ToolCallStarted,
)

GOLDEN = Path(__file__).parent / "data"
THEIRS, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def journal(**more: Any) -> MemoryJournal:
    """Return the journal of a run with one of everything that a file has to say."""
    above, below = Story(), Story(CHILD)
    above.spawn(**more)
    above.enter()
    started = above.ask()
    above.add(InferenceRetried("stage", started, 1, "ProviderBusy", "wait", 0.25))
    reply = above.answer(started, calls=("fan_out",), shares=(share("task", 4, "0.003"), share("notes", 6, "0.007")))
    above.add(ToolCallStarted(reply, 0), ChildSpawned(CHILD, "worker", reply, 0, "i-1", waited=True))
    below.at = above.at
    below.spawn("worker", parent=ROOT, waited=True, item="i-1")
    below.end("error", "it went wrong")
    above.add(ChildEnded(CHILD, "error", None))
    above.add(ToolCallCompleted(reply, 0, Text.of("1 failed")))
    above.add(RunPaused("for a while"))
    above.leave("work", "tell")
    above.enter("tell")
    above.answer(above.ask(), simulated=True)
    kept = MemoryJournal()
    for event in (*above.events, *below.events):
        kept.append(event)
    kept.close()
    return kept


def counted(text: str) -> str:
    """Return *text* with each id replaced by its number."""
    known: dict[str, str] = {}
    return re.sub(
        r'"([0-9a-f]{16}|[0-9a-f]{32})"', lambda m: f'"{known.setdefault(m[1], f"id-{len(known) + 1}")}"', text
    )


def read(form: Any, **more: Any) -> Any:
    return json.loads(export_trace(journal(**more), ROOT, form))


@pytest.mark.parametrize("form", ["otlp-json", "jaeger"])
def test_a_file_looks_as_it_did(form: Any):
    shown = counted(json.dumps(read(form), indent=1, ensure_ascii=False)) + "\n"
    assert shown == (GOLDEN / f"trace.{form}.json").read_text("utf-8")


@pytest.mark.parametrize("form", ["otlp-json", "jaeger"])
def test_exporting_twice_gives_the_same_bytes(form: Any):
    kept = journal()
    assert export_trace(kept, ROOT, form) == export_trace(kept, ROOT, form)


# --- OTLP


def plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    got = getattr(value, kind)
    return tuple(plain(item) for item in got.values) if kind == "array_value" else got


def test_what_a_collector_reads_is_what_was_projected():
    kept = journal()
    [resource] = parsed(export_trace(kept, ROOT)).resource_spans
    [scope] = resource.scope_spans
    assert {pair.key: plain(pair.value) for pair in resource.resource.attributes} == {"service.name": "shoal"}
    assert scope.scope.name == "shoal.observability"
    for ours, theirs in zip(trace_of(kept, ROOT), scope.spans, strict=True):
        assert theirs.name == ours.name
        assert (theirs.trace_id.hex(), theirs.span_id.hex()) == (ours.trace_id, ours.span_id)
        assert theirs.parent_span_id.hex() == (ours.parent_id or "")
        assert (theirs.start_time_unix_nano, theirs.end_time_unix_nano) == (ours.start_ns, ours.end_ns)
        assert {pair.key: plain(pair.value) for pair in theirs.attributes} == dict(ours.attributes)
        assert [(event.name, event.time_unix_nano) for event in theirs.events] == [
            (e.name, e.at_ns) for e in ours.events
        ]
        assert [link.span_id.hex() for link in theirs.links] == [link.span_id for link in ours.links]
        assert theirs.status.code == {"unset": 0, "ok": 1, "error": 2}[ours.status]


def test_only_an_error_has_a_message_in_its_status():
    [resource] = parsed(export_trace(journal(), ROOT)).resource_spans
    messages = {span.status.message for span in resource.scope_spans[0].spans if span.status.code != 2}
    failed = [span.status.message for span in resource.scope_spans[0].spans if span.status.code == 2]
    assert (messages, failed) == ({""}, ["it went wrong"])


def test_numbers_of_64_bits_are_strings_and_ids_are_hex():
    span = read("otlp-json")["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert re.fullmatch(r"[0-9a-f]{32}", span["traceId"])
    assert re.fullmatch(r"[0-9a-f]{16}", span["spanId"])
    assert isinstance(span["startTimeUnixNano"], str)
    values = {pair["key"]: pair["value"] for pair in span["attributes"]}
    assert values["shoal.seq"] == {"intValue": "1"}
    assert values["shoal.simulated"] == {"boolValue": True}


def test_a_span_that_joined_a_trace_says_that_its_parent_is_elsewhere():
    spans = read("otlp-json", trace=f"00-{THEIRS}-{PARENT}-01")["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (spans[0]["parentSpanId"], spans[0]["flags"], spans[1]["flags"]) == (PARENT, 0x300, 0x100)


# --- Jaeger


def test_jaeger_finds_every_reference_and_process_and_type_that_a_file_names():
    [trace] = read("jaeger")["data"]
    here = {span["spanID"] for span in trace["spans"]}
    assert re.fullmatch(r"[0-9a-f]{32}", trace["traceID"])
    assert {span["traceID"] for span in trace["spans"]} == {trace["traceID"]}
    assert {reference["spanID"] for span in trace["spans"] for reference in span["references"]} <= here
    assert {span["processID"] for span in trace["spans"]} == set(trace["processes"])
    tags = [
        tag for span in trace["spans"] for tag in (*span["tags"], *(f for log in span["logs"] for f in log["fields"]))
    ]
    types = {"string": str, "bool": bool, "int64": int, "float64": float}
    assert all(type(tag["value"]) is types[tag["type"]] for tag in tags)
    assert all(type(span[key]) is int for span in trace["spans"] for key in ("startTime", "duration"))


def test_jaeger_is_told_the_tree_and_the_links():
    [trace] = read("jaeger")["data"]
    names = {span["spanID"]: span["operationName"] for span in trace["spans"]}
    told = {
        (span["operationName"], reference["refType"], names[reference["spanID"]])
        for span in trace["spans"]
        for reference in span["references"]
    }
    assert ("invoke_agent worker", "CHILD_OF", "execute_tool fan_out") in told
    assert ("stage work", "CHILD_OF", "invoke_agent desk") in told


def test_jaeger_marks_errors():
    [trace] = read("jaeger")["data"]
    marked = {
        span["operationName"]: {tag["key"]: tag["value"] for tag in span["tags"]}
        for span in trace["spans"]
        if any(tag["key"] == "error" for tag in span["tags"])
    }
    assert set(marked) == {"invoke_agent worker"}
    assert marked["invoke_agent worker"]["otel.status_description"] == "it went wrong"


def test_jaeger_is_told_of_no_parent_that_is_not_in_the_file():
    [trace] = read("jaeger", trace=f"00-{THEIRS}-{PARENT}-00")["data"]
    assert (trace["traceID"], trace["spans"][0]["references"], trace["spans"][0]["flags"]) == (THEIRS, [], 0)


def test_the_name_under_which_a_trace_is_listed_can_be_chosen():
    kept = journal()
    [trace] = json.loads(export_trace(kept, ROOT, "jaeger", service_name="newsroom"))["data"]
    assert trace["processes"]["p1"]["serviceName"] == "newsroom"


# --- what cannot be written


def test_a_format_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(ConfigInvalid, match="'zipkin'; name one of `otlp-json`, `jaeger`"):
        export_trace(journal(), ROOT, "zipkin")  # type: ignore[arg-type]


def test_a_run_that_is_not_known_is_refused():
    with pytest.raises(RunNotFound):
        export_trace(journal(), "nobody")


def test_a_run_is_found_by_the_beginning_of_its_id():
    assert export_trace(journal(), CHILD) == export_trace(journal(), ROOT)


def test_links_are_in_both_files():
    story = Story()
    story.spawn()
    story.enter()
    story.answer(story.ask("routing"), "routing")
    story.leave("work", "tell")
    story.end()
    kept = MemoryJournal()
    for event in story.events:
        kept.append(event)
    kept.close()
    linked: list[Span] = [span for span in spans_of(story) if span.links]
    assert [span.name for span in linked] == ["transition work → tell"]
    [resource] = parsed(export_trace(kept, ROOT)).resource_spans
    [link] = [link for span in resource.scope_spans[0].spans for link in span.links]
    assert plain(link.attributes[0].value) == "routed_by"
    [trace] = json.loads(export_trace(kept, ROOT, "jaeger"))["data"]
    follows = [r["spanID"] for span in trace["spans"] for r in span["references"] if r["refType"] == "FOLLOWS_FROM"]
    assert follows == [linked[0].links[0].span_id]


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (9e-6, "0.000009"),
        (1e-6, "0.000001"),
        (9.99e-7, "9.99e-7"),
        (1e-300, "1e-300"),
        (1e20, "100000000000000000000"),
        (1.25e22, "1.25e+22"),
        (0.000162, "0.000162"),
    ],
)
def test_numbers_in_lists_are_written_as_jaeger_itself_writes_them(number: float, written: str):
    assert _listed(number) == written
