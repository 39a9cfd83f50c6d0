"""What makes a transcript legal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import ask, assistant, messages, result, tool, user

from shoal.providers import Message, Text
from shoal.providers._legality import (
    NO_RESULT,
    Turn,
    arguments,
    call_id,
    leaves_open,
    legal,
    starts_answering,
    tool_name,
    tool_names,
)


def told(turns: list[Turn]) -> list[tuple[str, list[str]]]:
    return [(turn.message.text, [answer.result.text for answer in turn.answers]) for turn in turns]


def test_results_stand_behind_their_call_in_call_order():
    turns = legal([assistant("go", ask("a"), ask("b")), user("and?"), result("b", "B"), result("a", "A")])
    assert told(turns) == [("go", ["A", "B"]), ("and?", [])]


def test_a_call_without_a_result_gets_one_that_says_so():
    [turn] = legal([assistant("", ask("a"))])
    assert turn.answers[0].result.texts == (NO_RESULT,)
    assert turn.answers[0].result.is_error


def test_a_result_that_nobody_asked_for_is_dropped():
    assert told(legal([result("a"), user("hi")])) == [("hi", [])]


def test_a_second_result_of_one_call_is_dropped():
    assert told(legal([assistant("", ask("a")), result("a", "1"), result("a", "2")])) == [("", ["1"])]


def test_messages_that_say_nothing_are_dropped():
    assert told(legal([Message("assistant"), Message("user", (Text.of(""),)), user("hi")])) == [("hi", [])]


def test_a_result_belongs_to_the_nearest_turn_that_asked_for_its_id():
    turns = legal([assistant("one", ask("a")), assistant("two", ask("a")), result("a", "A")])
    assert told(turns) == [("one", [str(NO_RESULT)]), ("two", ["A"])]


def test_two_calls_of_one_id_in_a_turn_get_different_ids_and_a_result_each():
    [turn] = legal([assistant("", ask("a"), ask("a")), result("a", "1"), result("a", "2")])
    assert [answer.result.text for answer in turn.answers] == ["1", "2"]
    assert len({answer.key for answer in turn.answers}) == 2


@given(st.lists(messages(), max_size=12))
def test_every_call_has_one_result_whatever_the_messages(transcript: list[Message]):
    turns = legal(transcript)
    assert all([answer.call for answer in turn.answers] == list(turn.message.calls) for turn in turns)
    assert all(len({answer.key for answer in turn.answers}) == len(turn.answers) for turn in turns)
    assert all(turn.message.calls or turn.message.text.strip() for turn in turns)


@given(st.lists(messages(), max_size=12))
def test_what_was_said_is_kept_in_order(transcript: list[Message]):
    said = [message for message in transcript if message.role != "tool" and (message.calls or message.text.strip())]
    assert [turn.message for turn in legal(transcript)] == said


@given(st.lists(messages(), max_size=12))
def test_each_result_is_used_at_most_once(transcript: list[Message]):
    used = [answer.result for turn in legal(transcript) for answer in turn.answers]
    kept = [r for r in used if r.texts != (NO_RESULT,)]
    assert len({id(r) for r in kept}) == len(kept)


@pytest.mark.parametrize(
    ("transcript", "expected"),
    [
        ([], None),
        ([user("hi"), assistant("hello")], None),
        ([assistant("", ask("a"))], True),
        ([assistant("", ask("a"), ask("b")), result("b")], True),
        ([assistant("", ask("a")), result("a"), user("x")], False),
    ],
)
def test_open_calls_are_those_of_the_last_asking_turn_without_results(transcript: list[Message], expected: bool | None):
    assert leaves_open(transcript) is expected


def test_answering_starts_with_a_result():
    assert starts_answering([result("a")])
    assert not starts_answering([user("a")])
    assert not starts_answering([])


@pytest.mark.parametrize("source", ["{}", '{"a": [1, "x"]}', ' {"a":1} '])
def test_an_object_of_arguments_stays_the_same_text(source: str):
    text = Text.of(source)
    assert arguments(text) is text


@pytest.mark.parametrize(
    "source",
    [
        *("", "{", "[1]", '"x"', "NaN", '{"a": NaN}', "null", "[" * 100_000),
        *(r'{"x": "\ud800"', r'["\ud800"]', r'{"\ud800": NaN}'),
    ],
)
def test_arguments_that_are_no_object_become_an_empty_one(source: str):
    assert arguments(Text.of(source)).body == b"{}"


@pytest.mark.parametrize(("length", "exact"), [(40, False), (64, False), (9, True), (9, False)])
@given(keys=st.sets(st.text(max_size=80), max_size=50))
def test_ids_are_legal_different_and_the_same_each_time(length: int, exact: bool, keys: set[str]):
    ids = {key: call_id(key, length=length, exact=exact) for key in keys}
    pattern = f"[a-zA-Z0-9]{{{length}}}" if exact else f"[a-zA-Z0-9_-]{{1,{length}}}"
    assert all(re.fullmatch(pattern, made) for made in ids.values())
    assert len(set(ids.values())) == len(keys)
    assert ids == {key: call_id(key, length=length, exact=exact) for key in keys}


def test_an_id_that_the_vendor_takes_stays():
    assert call_id("call_abc-1", length=40, exact=False) == "call_abc-1"


def test_an_id_that_looks_like_a_mapped_one_is_mapped_too():
    long = call_id("x" * 50, length=40, exact=False)
    assert call_id(long, length=40, exact=False) != long


@given(names=st.sets(st.text(max_size=90), max_size=30))
def test_tool_names_are_legal_and_different(names: set[str]):
    made = {tool_name(name) for name in names}
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in made)
    assert len(made) == len(names)


def test_a_legal_name_stays_and_others_say_what_they_were():
    assert tool_name("read_file") == "read_file"
    assert tool_name("server.tool").startswith("server_tool_")


def test_names_lead_back_to_their_tools_and_a_second_of_one_name_is_left_out():
    one, two, other = tool("a.b"), tool("a.b", b"{}"), tool("c")
    assert tool_names([one, two, other]) == {tool_name("a.b"): one, "c": other}
