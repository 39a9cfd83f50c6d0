"""What is written is counted once: by the model's vocabulary where that is at hand, and by its bytes otherwise."""

from __future__ import annotations

import pytest
from windowkit import Held

from shoal.blueprints import Region
from shoal.providers import Message, Text, TextCounter, ToolCall, counter
from shoal.runtime.context import EntryWritten

WORDS = TextCounter("words", lambda text: len(str(text).split()))


def counting(by: TextCounter = WORDS, **region: int) -> Held:
    held = Held(Region("notes", **region))  # type: ignore[arg-type]
    held.window.counter = by
    return held


def test_an_entry_costs_what_the_vocabulary_says():
    held = counting()
    held.write("notes", "five words of no length")
    assert [(made.tokens, made.counted) for made in held.changes(EntryWritten)] == [(5, "words")]


def test_a_turn_costs_what_it_calls_too():
    held = counting()
    held.turn("I look", calls=["call_1"], arguments='{"a": 1}')
    assert [(made.tokens, made.counted) for made in held.changes(EntryWritten)] == [(2 + 2 + 1, "words")]


def test_a_text_too_long_to_be_counted_is_estimated():
    held = counting(max_tokens=20_000)
    held.write("notes", 8_192)
    held.write("notes", 8_193)
    assert [made.counted for made in held.changes(EntryWritten)] == ["words", "estimate"]


def test_a_counter_without_a_vocabulary_leaves_the_estimate():
    held = counting(counter("estimate"))
    held.write("notes", 10)
    assert [(made.tokens, made.counted) for made in held.changes(EntryWritten)] == [(10, "estimate")]


def test_what_is_cut_is_estimated():
    held = counting(max_tokens=60)
    held.write("notes", "a b " * 100, writer="routing")
    [made] = held.changes(EntryWritten)
    assert (made.counted, made.tokens <= 60) == ("estimate", True)


def test_nothing_costs_nothing():
    held = counting()
    held.write("notes", " ")
    assert held.tokens("notes") == 1


def test_another_counter_changes_no_entry():
    held = counting()
    held.write("notes", "five words of no length")
    held.window.counter = None
    assert held.replayed().dump() == held.window.dump()
    assert held.tokens("notes") == 5


@pytest.mark.parametrize("arguments", ["{}", '{"a": 1}'])
def test_counted_calls_hold_their_name_and_arguments(arguments: str):
    held = counting()
    call = ToolCall("c", "look", Text.of(arguments))
    held.window.plan_write("conversation", held.draft("", message=Message("assistant", (), (call,))))
    held.turn(calls=["c"], arguments=arguments)
    assert held.tokens("conversation") == 1 + len(arguments.split())
