"""Events: what the journal keeps of them is a public format, frozen by the sample beside this test."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyvalue import of
from hypothesis import given
from hypothesis import strategies as st

from shoal.providers import Text, Usage
from shoal.runtime.events import (
    KINDS,
    NUMBERS,
    EntryWritten,
    Event,
    InferenceCompleted,
    Nudged,
    RunPaused,
    RunTitled,
    StageEntered,
    decode,
    encode,
)

SAMPLE = [json.loads(line) for line in (Path(__file__).parent / "data/events.jsonl").read_text().splitlines()]
"""One row of every kind as the first version wrote it, and what it means by the names of its fields.

Rows are never changed: a field that is added later is added to a row of its own.
"""

named = pytest.mark.parametrize("sample", SAMPLE, ids=lambda sample: sample["kind"])
newest = pytest.mark.parametrize(
    "sample",
    [sample for sample in SAMPLE if len(sample["means"]) == len(KINDS[sample["number"]].__struct_fields__)],
    ids=lambda sample: sample["kind"],
)


def means(payload: Any) -> dict[str, Any]:
    return Event("r", 1, 0.0, payload).plain()["payload"]


def grew_from(now: Any, before: Any) -> bool:
    """Say whether *now* is *before* with nothing but fields appended, at any level, that hold nothing yet."""
    if isinstance(before, dict):
        known = all(name in now and grew_from(now[name], value) for name, value in before.items())
        return known and not any(now[name] for name in now.keys() - before.keys())
    if isinstance(before, list):
        pairs = zip(now, before, strict=False)
        return len(now) >= len(before) and all(grew_from(*pair) for pair in pairs) and not any(now[len(before) :])
    return bool(now == before)


@named
def test_a_row_that_was_written_once_means_the_same_for_ever(sample: dict[str, Any]):
    read = decode(sample["number"], sample["row"].encode())
    assert type(read).__name__ == sample["kind"]
    assert grew_from({name: means(read)[name] for name in sample["means"]}, sample["means"])


@named
def test_what_was_read_is_written_again_with_the_same_bytes(sample: dict[str, Any]):
    read = decode(sample["number"], sample["row"].encode())
    assert read is not None
    written, row = json.loads(encode(read)), json.loads(sample["row"])
    assert grew_from(written, row[: len(written)])
    assert decode(sample["number"], json.dumps(row[: len(written)]).encode()) == read


def test_fields_that_have_their_default_are_left_out_at_the_end_of_a_row_only():
    assert encode(EntryWritten("notes", 1, "text", 3)) == b'["notes",1,"text",3]'
    assert encode(EntryWritten("notes", 1, "text", 3, 7)) == b'["notes",1,"text",3,7]'
    assert encode(EntryWritten("notes", 1, "text", 3, key="")) == b'["notes",1,"text",3,0,-1,""]'


@pytest.mark.parametrize("said", ["", ",", ',"', ',""', "0", ",0", "[]", ",[]", "null", ",null"])
def test_a_text_that_looks_like_a_default_is_none(said: str):
    paused = RunPaused("x", said)
    assert decode(NUMBERS[RunPaused], encode(paused)) == paused


def test_the_sample_has_every_kind_with_every_field():
    fields = {kind.__name__: set(kind.__struct_fields__) for kind in NUMBERS}
    sampled: dict[str, set[str]] = {}
    for sample in SAMPLE:
        sampled.setdefault(sample["kind"], set()).update(sample["means"])
    assert sampled == fields


def test_no_number_is_given_twice():
    assert len(KINDS) == len(NUMBERS)
    assert {KINDS[number]: number for number in KINDS} == NUMBERS


@newest
def test_fields_that_a_newer_version_appended_are_passed_over(sample: dict[str, Any]):
    newer = f'{sample["row"][:-1]},"more",[1],{{"and": "more"}}]'
    assert decode(sample["number"], newer.encode()) == decode(sample["number"], sample["row"].encode())


@named
def test_fields_that_were_appended_are_not_missed_in_an_older_row(sample: dict[str, Any]):
    kind = KINDS[sample["number"]]
    needed = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    older = json.dumps(json.loads(sample["row"])[:needed])
    assert isinstance(decode(sample["number"], older.encode()), kind)


def test_a_kind_that_a_newer_version_added_is_not_known():
    assert decode(9_999, b"[1, 2]") is None


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_any_event_is_read_as_it_was_written(kind: type, data: st.DataObject):
    payload = data.draw(of(kind))
    assert decode(NUMBERS[kind], encode(payload)) == payload
    json.dumps(means(payload))  # plain values only


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"{}",
        b'["no_tool_call"]',
        b'["no_tool_call",7]',
        b'["no_tool_call",{"a":1}]',
        b'["no_tool_call","\xff"]',
        b'["no_tool_call","torn',
        b'["no_tool_call","text"]]',
    ],
)
def test_a_row_that_is_torn_cannot_be_decoded(data: bytes):
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decode(NUMBERS[Nudged], data)


def test_a_value_that_has_no_place_in_an_event_is_not_written():
    with pytest.raises(TypeError, match="object has no place in an event"):
        encode(RunTitled(object(), "lane"))  # type: ignore[arg-type]


def test_a_text_stands_in_a_row_as_it_is_held():
    text = Text.of('tabs\t, quotes “"” and é')
    assert text.quoted in encode(Nudged("gate", text))


def test_an_event_knows_its_kind_and_its_time_in_utc():
    event = Event("r", 1, 1_767_225_600.25, RunTitled("t", "lane"))
    assert event.kind == "RunTitled"
    assert event.time == dt.datetime(2026, 1, 1, microsecond=250_000, tzinfo=dt.UTC)


def test_people_read_an_event_by_the_names_of_its_fields():
    event = Event("r", 3, 1_767_225_600.0, RunPaused("budget", numbers={"spent": 1.5}))
    assert event.plain() == {
        "run_id": "r",
        "seq": 3,
        "at": "2026-01-01T00:00:00+00:00",
        "kind": "RunPaused",
        "payload": {"reason": "budget", "remedy": "", "numbers": {"spent": 1.5}},
    }


def test_what_was_billed_is_a_usage():
    reply = InferenceCompleted("stage", 1, Text.of(""), (), (5, 4, 3, 2, 10, 1), None, ())
    assert reply.billed == Usage(5, 4, 3, 2, 10, 1)


def test_events_cannot_be_changed():
    with pytest.raises(AttributeError):
        StageEntered("a", 1, "p", "m", 1).stage = "b"  # type: ignore[misc]
