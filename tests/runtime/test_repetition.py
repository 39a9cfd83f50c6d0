"""Calls that repeat: the model is told once a time, and getting on forgets what was counted."""

from __future__ import annotations

from typing import Any

import pytest
from runkit import blueprint, bodies, messages, payloads, run_once, stage

from shoal.blueprints import Blueprint, Nudge, Repetition
from shoal.runtime import tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio


@tool(reads=True)
async def look(at: str) -> str:
    """Look at something."""
    return at


@tool
async def poke(at: str) -> str:
    """Poke something."""
    return at


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError("no")


def made(**settings: Any) -> Blueprint:
    tools = ("look", "poke", "fail", "context_append")
    return blueprint(stage(available_tools=tools, nudge=Nudge(enabled=False)), repetition=Repetition(**settings))


async def notes(calls: list[Any], **settings: Any) -> list[str]:
    """Return what the model was told of its repeating while it made *calls*, one a turn."""
    provider = ScriptedProvider(*calls, "done", purposes={"titling": "A title"})
    _, events = await run_once(made(**settings), provider, tools=(look, poke, fail))
    return [str(p.text) for p in payloads(events, "Nudged") if p.reason == "repetition"]


SAME = (
    "[System] `poke` was called 3 times with the same arguments. Its result is in front of you; "
    "use it, or try something else."
)


async def test_the_third_call_with_the_same_arguments_is_noted():
    assert await notes([call("poke", at="a")] * 2) == []
    assert await notes([call("poke", at="a")] * 3) == [SAME]


async def test_the_note_stands_behind_the_result_and_comes_once_a_time():
    provider = ScriptedProvider(*[call("poke", at="a")] * 6, "done", purposes={"titling": "A title"})
    await run_once(made(), provider, tools=(look, poke, fail))
    told = [[text for role, text in messages(body) if "[System]" in text] for body in bodies(provider)]
    assert [len(said) for said in told] == [0, 0, 0, 1, 1, 1, 2]
    assert messages(bodies(provider)[3])[-2:] == [("tool", "a"), ("user", SAME)]


async def test_other_arguments_are_another_call():
    assert await notes([call("poke", at=letter) for letter in "abcabc"]) == []


async def test_calls_of_one_turn_count_each():
    assert await notes([Say(calls=(call("poke", at="a"),) * 3)]) == [SAME]


async def test_a_call_that_fails_counts_too():
    assert len(await notes([call("fail")] * 3)) == 1


async def test_a_call_that_nobody_has_counts_too():
    assert len(await notes([call("nothing")] * 3)) == 1


async def test_nothing_but_looking_is_noted():
    looks = [call("look", at=str(number)) for number in range(10)]
    assert await notes(looks[:9]) == []
    assert await notes(looks) == [
        "[System] The last 10 calls only looked at something. Write down what you know, and act on it."
    ]


async def test_what_is_no_looking_ends_the_streak():
    looks = [call("look", at=str(number)) for number in range(18)]
    assert await notes([*looks[:9], call("poke", at="a"), *looks[9:]]) == []


async def test_getting_on_forgets_what_was_counted():
    write = call("context_append", region="notes", content="n")
    assert await notes([call("poke", at="a"), call("poke", at="a"), write, call("poke", at="a")]) == []


async def test_a_write_that_fails_is_no_progress():
    write = call("context_append", region="nowhere", content="n")
    assert len(await notes([write] * 3)) == 1


async def test_both_thresholds_can_be_set():
    assert len(await notes([call("poke", at="a")] * 2, max_repeat_calls=2)) == 1
    assert len(await notes([call("look", at="a"), call("look", at="b")], max_readonly_streak=2)) == 1


async def test_switched_off_nothing_is_said():
    assert await notes([call("look", at="a")] * 12, enabled=False) == []


async def test_what_is_counted_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.runtime.state._repetition._MOST_KNOWN", 2)
    assert await notes([call("poke", at=letter) for letter in "aabcda"]) == []
