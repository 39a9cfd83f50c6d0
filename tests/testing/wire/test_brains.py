"""What stands in for the model."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wirekit import Desk, assistant, message, result, tool, use, user

from shoal.testing import wire
from shoal.testing.wire._turns import part_tokens


def ask(*said: wire.Said, tools: tuple[wire.Offered, ...] = (), choice: str = "auto") -> wire.Ask:
    return wire.Ask("chat", "m", said or (wire.Said("user", "hi"),), tools, choice, None, 0, {})


# --- scripts


def test_a_script_plays_its_turns_in_order():
    script = wire.Script("a", ("b", wire.call("f", x=1)), wire.turn("c", stop="length"), wire.Failure(529))
    played = [script(ask()) for _ in range(4)]
    assert played == [
        wire.Turn((wire.Text("a"),)),
        wire.Turn((wire.Text("b"), wire.Call("f", {"x": 1}))),
        wire.Turn((wire.Text("c"),), stop="length"),
        wire.Failure(529),
    ]
    assert repr(script) == "<Script 4 of 4 turns played>"


def test_a_script_that_is_over_says_so():
    with pytest.raises(wire.ScriptEnded, match="request 1 for 'm' found a script of 0 turns"):
        wire.Script()(ask())


def test_a_script_can_end_in_a_turn_for_all_others():
    script = wire.Script("a", last=wire.think("b"))
    assert [script(ask()) for _ in range(3)][1:] == [wire.Turn((wire.Thinking("b"),))] * 2


def test_each_conversation_can_have_a_brain_of_its_own():
    brain = wire.Cast({"cod": wire.Script("c"), "eel": wire.Script("e")}, otherwise=wire.Script("o"))
    told = [brain(ask(wire.Said("system", "you"), wire.Said("user", word))) for word in ("an eel", "a cod", "a ray")]
    assert [turn.parts[0].text for turn in told if isinstance(turn, wire.Turn)] == ["e", "c", "o"]  # type: ignore[union-attr]
    assert repr(brain) == "<Cast cod, eel>"


def test_a_conversation_that_nobody_was_cast_for_fails():
    with pytest.raises(wire.ScriptEnded, match="pass `otherwise`"):
        wire.Cast({"cod": wire.Script("c")})(ask())


def test_a_brain_can_be_a_function_of_the_request():
    def until_three(asked: wire.Ask) -> wire.Turn:
        return wire.turn("enough") if len(asked.calls) >= 3 else wire.turn(wire.call("f", x=len(asked.calls)))

    desk = Desk(until_three)
    messages: list[Any] = [user("go")]
    while (content := desk.anthropic(message(*messages, tools=[tool()])).json["content"])[0]["type"] == "tool_use":
        messages += [assistant(*content), user(result(content[0]["id"]))]
    assert [exchange.ask.number for exchange in desk.world.journal if exchange.ask] == [0, 0, 0, 0]
    assert (content[0]["text"], len(messages)) == ("enough", 7)


def test_the_brain_is_told_how_often_it_was_asked():
    numbers: list[int] = []

    def count(asked: wire.Ask) -> wire.Turn:
        numbers.append(asked.number)
        return wire.turn()

    desk = Desk(count)
    for _ in range(3):
        desk.anthropic(message())
    assert numbers == [0, 1, 2]


def test_an_ask_shows_what_brains_decide_on():
    said = (
        wire.Said("system", "s"), wire.Said("user", "first"), wire.Said("assistant", calls=(wire.Call("f"),)),
        wire.Said("user", results=(wire.Result("1", "f", "r"),)), wire.Said("user", "then"),
    )  # fmt: skip
    asked = ask(*said)
    assert (asked.system, asked.task, asked.text) == ("s", "first", "then")
    assert (asked.calls, asked.results) == ((wire.Call("f"),), (wire.Result("1", "f", "r"),))


def test_an_ask_without_a_user_has_no_task():
    assert (ask(wire.Said("system", "s")).task, ask(wire.Said("system", "s")).text) == ("", "")


def test_results_are_those_of_the_newest_turn():
    old = (wire.Said("user", results=(wire.Result("1", "", "r"),)), wire.Said("assistant", "so"))
    assert ask(*old, wire.Said("user", "more")).results == ()
    assert ask().results == ()


# --- fuzz

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5},
        "count": {"type": "integer", "minimum": 1, "maximum": 3},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "kind": {"enum": ["a", "b"]},
        "fixed": {"const": 7},
        "flag": {"type": "boolean"},
        "nothing": {"type": "null"},
        "maybe": {"type": ["integer", "null"]},
        "list": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "tree": {"$ref": "#/$defs/tree"},
        "plain": {"properties": {"x": {"type": "integer"}}},
        "free": {},
    },
    "required": ["name", "count", "share", "kind", "fixed", "flag", "nothing", "maybe", "list", "any", "tree", "plain"],
    "$defs": {
        "tree": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {
                        "left": {"$ref": "#/$defs/tree"},
                        "right": {"type": "array", "items": {"type": "null"}},
                    },
                    "required": ["left"],
                },
                {"type": "integer"},
            ]
        }
    },
}
TOOLS = (wire.Offered("f", "", SCHEMA), wire.Offered("g", "", {"type": "object"}))


@given(seed=st.integers(0, 10_000))
def test_made_up_arguments_fit_their_schema(seed: int):
    turn = wire.Fuzz(seed)(ask(tools=TOOLS, choice="f"))
    assert turn.calls
    for call in turn.calls:
        jsonschema_rs.validator_for(SCHEMA).validate(call.arguments)


def test_arguments_are_an_object_even_without_a_schema():
    turn = wire.Fuzz()(ask(tools=(wire.Offered("f", "", {}),), choice="f"))
    assert [call.arguments for call in turn.calls] == [{}] * len(turn.calls) != []


@given(seed=st.integers(0, 10_000))
def test_the_same_is_made_up_for_the_same_request(seed: int):
    assert wire.Fuzz(seed)(ask(tools=TOOLS)) == wire.Fuzz(seed)(ask(tools=TOOLS))


def test_another_seed_makes_up_something_else():
    assert len({repr(wire.Fuzz(seed)(ask(tools=TOOLS))) for seed in range(20)}) > 10


def test_made_up_work_ends():
    desk = Desk(wire.Fuzz(3, steps=4, odd=0.0))
    messages: list[Any] = [user("go")]
    while True:
        got = desk.anthropic(message(*messages, tools=[tool()], model="claude-opus-5-5"))
        assert got.rules == []
        content = got.json["content"]
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        messages += [assistant(*content), user(*[result(call) for call in calls])]
        if not calls:
            break
    assert len(messages) == 11


def test_no_tool_is_called_where_none_may_be():
    turns = [wire.Fuzz(seed, odd=0.5)(ask(tools=TOOLS, choice="none")) for seed in range(50)]
    assert not any(turn.calls for turn in turns)
    assert {turn.stop for turn in turns} == {None, "end", "length"}


def test_a_tool_that_must_be_called_is_called_to_the_end():
    said = (wire.Said("user", "x"), *[wire.Said("assistant", calls=(wire.Call("g"),))] * 9)
    assert {call.name for call in wire.Fuzz(1)(ask(*said, tools=TOOLS, choice="g")).calls} == {"g"}


# --- what turns weigh


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (wire.Text("x" * 9), 3), (wire.Thinking("x" * 8), 2), (wire.Call("f", {"x": 1}), 3), (wire.Call("f", "{}"), 2),
        (wire.Raw({"a": 1}), 2),
    ],
)  # fmt: skip
def test_a_part_counts_what_is_sent_of_it(part: wire.Part, tokens: int):
    assert part_tokens(part) == tokens


def test_the_kit_is_as_the_rules_want_it():
    assert Desk().anthropic(message(user("hi"), assistant(use()), user(result()))).rules == []


def test_a_tool_that_describes_no_arguments_is_called_with_none():
    offered = (wire.Offered("bare", "", {}),)
    made = [wire.Fuzz(seed)(ask(tools=offered)) for seed in range(20)]
    assert {repr(call.arguments) for turn in made if isinstance(turn, wire.Turn) for call in turn.calls} == {"{}"}
