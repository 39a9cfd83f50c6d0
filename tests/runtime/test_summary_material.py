"""What a summary is made of."""

from __future__ import annotations

import pytest

from shoal.providers import Message, Text, ToolCall
from shoal.runtime._side import _shown
from shoal.runtime.context import Entry, EntryKind


def entry(kind: EntryKind, message: Message) -> Entry:
    return Entry(1, 1, kind, message, tokens=5, chars=len(message.text), created=0.0)


@pytest.mark.parametrize("kind", ["text", "summary"])
def test_what_nobody_said_is_shown_as_it_is(kind: EntryKind):
    assert _shown(entry(kind, Message("user", (Text.of("The pier is closed."),)))) == "The pier is closed."


def test_what_was_said_is_shown_with_who_said_it_and_the_calls_it_made():
    call = ToolCall("call_1_0", "look", Text.of("{}"))
    turn = Message("assistant", (Text.of("I look."),), (call,))
    assert _shown(entry("assistant_turn", turn)) == "assistant: I look.\n[call look {}]"
