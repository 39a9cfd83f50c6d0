"""Requests that are written here are, byte for byte, those of OpenTelemetry's own encoder."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shoal.observability import Link, Span, SpanEvent
from shoal.observability._otlp_wire import MOST_KEPT, SpanWriter
from shoal.observability._readable import readable
from shoal.observability._senders import MOST_REQUEST_BYTES, Readables, Requests, sender_of

RESOURCE = {"service.name": "shoal"}


def ids(digits: int) -> st.SearchStrategy[str]:
    return st.integers(1, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


TEXTS = st.text(max_size=300) | st.text(string.ascii_letters, max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300)
FLOATS = st.floats(allow_nan=False)
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    NUMBERS,
    FLOATS,
    st.lists(TEXTS, max_size=3).map(tuple),
    st.lists(NUMBERS, max_size=3).map(tuple),
    st.lists(FLOATS, max_size=3).map(tuple),
)
ATTRIBUTES = st.dictionaries(st.sampled_from(("a", "shoal.region.notes.tokens", "shoal.reason", "ö" * 90)), VALUES)
MOMENTS = st.integers(1, 2**63)
NAMES = st.text(min_size=1, max_size=200)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    parent_id = draw(st.none() | ids(16))
    return Span(
        draw(NAMES),
        draw(ids(32)),
        draw(ids(16)),
        parent_id,
        draw(st.sampled_from(("internal", "client"))),
        draw(MOMENTS),
        draw(MOMENTS),
        draw(st.sampled_from(("unset", "ok", "error"))),
        # What says why it failed is a text.
        {name: str(value) if name == "shoal.reason" else value for name, value in draw(ATTRIBUTES).items()},
        tuple(draw(st.lists(st.builds(SpanEvent, NAMES, MOMENTS, ATTRIBUTES), max_size=2))),
        tuple(draw(st.lists(st.builds(Link, ids(16), TEXTS), max_size=2))),
        "run",
        remote_parent=parent_id is not None and draw(st.booleans()),
    )


def plain(name: str = "a", value: str = "b", span_id: str = "0" * 15 + "1") -> Span:
    return Span(name, "1" * 32, span_id, None, "internal", 1, 2, "ok", {"text": value}, (), (), "run")


@given(st.lists(spans(), min_size=1, max_size=4))
def test_a_request_is_what_opentelemetrys_own_encoder_makes_of_the_same_spans(drawn: list[Span]):
    theirs = encode_spans([readable(span, Resource(RESOURCE)) for span in drawn])
    [(count, ours)] = SpanWriter(RESOURCE).requests(drawn, 2**30)
    assert count == len(drawn)
    assert ours == theirs.SerializeToString()


@given(st.lists(spans(), min_size=1, max_size=6), st.integers(0, 3000))
def test_requests_hold_every_span_once_and_are_no_larger_than_they_may_be(drawn: list[Span], most: int):
    requests = list(SpanWriter(RESOURCE).requests(drawn, most))
    read = [ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans for _, body in requests]
    assert [span.span_id.hex() for spans in read for span in spans] == [span.span_id for span in drawn]
    assert [len(spans) for spans in read] == [count for count, _ in requests]
    assert all(count == 1 or len(body) <= most + 100 for count, body in requests)


def test_no_spans_are_no_request():
    assert list(SpanWriter(RESOURCE).requests([], 100)) == []


def test_half_of_a_surrogate_pair_costs_one_letter_and_no_span():
    [(_, body)] = SpanWriter(RESOURCE).requests([plain(value="x\ud83d")], 2**20)
    [span] = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans
    assert span.attributes[0].value.string_value == "x?"


def test_what_is_kept_of_attributes_is_bounded():
    writer = SpanWriter(RESOURCE)
    for number in range(3 * MOST_KEPT):
        writer.span(plain(value=str(number)))
    assert len(writer._texts) <= MOST_KEPT
    for number in range(MOST_KEPT + 1):
        writer._attributes({f"key {number}": number, f"size {number}": 0.5})
    assert len(writer._keys) <= MOST_KEPT
    assert len(writer._floats) <= MOST_KEPT


# --- who is handed requests


def test_the_sdks_exporter_over_http_is_handed_requests_in_the_release_that_is_installed():
    """Fails where the SDK has moved what takes them: spans are sent all the same, and cost five times as much."""
    exporter = OTLPSpanExporter()
    assert isinstance(sender_of(exporter, Resource(RESOURCE)), Requests) == hasattr(exporter, "_client")
    exporter.shutdown()


def test_one_of_an_older_release_is_handed_spans():
    exporter = OTLPSpanExporter()
    exporter.__dict__.pop("_client", None)
    assert isinstance(sender_of(exporter, Resource(RESOURCE)), Readables)


def test_any_other_exporter_is_handed_spans():
    assert isinstance(sender_of(InMemorySpanExporter(), Resource(RESOURCE)), Readables)


@pytest.mark.parametrize("taken", [True, False])
def test_what_is_too_large_for_one_request_goes_in_several_and_each_is_counted_by_itself(taken: bool):
    posted: list[int] = []

    def post(count: int, _body: bytes) -> bool:
        posted.append(count)
        return taken or len(posted) > 1

    sender = Requests(InMemorySpanExporter(), Resource(RESOURCE), post)
    large = [plain(value="x" * (MOST_REQUEST_BYTES // 2)) for _ in range(3)]
    assert list(sender.send(large)) == ([1, 1, 1] if taken else [0, 1, 1])
    assert posted == [1, 1, 1]
    sender.shutdown()
