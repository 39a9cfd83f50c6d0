"""The view of a conversation: results masked in steps, turns forgotten, a stage that begins afresh."""

from __future__ import annotations

from typing import Any

import pytest
from windowkit import Held, stage, text_of

from shoal.blueprints import Observations, Region, StageContext
from shoal.providers import Text, ToolCall
from shoal.runtime.context import CONVERSATION, Edges

TASK = Region("task", kind="pinned")


def held(**knobs: Any) -> Held:
    knobs = {"observation_window": 2, "mask_step": 1, **knobs}
    return Held(TASK, observations=Observations(**knobs))


def turns(made: Held, count: int, *, arguments: str = '{"path": "a.txt"}', result: str = "x" * 100) -> Held:
    """Have the model call a tool *count* times, one call a turn."""
    for _ in range(count):
        number = made.state(CONVERSATION).next_id
        made.turn(f"turn {number}", calls=[f"c{number}"], arguments=arguments)
        made.answer(f"c{number}", result)
    return made


def results(made: Held) -> list[str]:
    return [text for role, text in made.talk() if role == "tool"]


MASK = '[masked: look("a.txt") → ok, 100 chars]'


@pytest.mark.parametrize(("count", "masked"), [(2, 0), (3, 1), (5, 3)])
def test_results_of_turns_older_than_the_window_are_masked(count: int, masked: int):
    assert results(turns(held(), count)) == [MASK] * masked + ["x" * 100] * min(2, count)


def test_what_is_masked_is_still_there():
    made = turns(held(), 4)
    assert made.texts(CONVERSATION)[1] == "x" * 100
    assert made.replayed().dump() == made.window.dump()


@pytest.mark.parametrize(("count", "masked"), [(4, 0), (5, 3), (7, 3), (8, 6)])
def test_the_edge_moves_several_turns_at_once(count: int, masked: int):
    assert results(turns(held(mask_step=3), count)).count(MASK) == masked


def test_between_two_steps_all_in_front_stays_as_it_is():
    made = turns(held(mask_step=4), 7)
    before = made.prompt()
    turns(made, 2)
    said = [message for segment in made.prompt().messages for message in segment.messages]
    sent = [message for segment in before.messages for message in segment.messages]
    assert [message.digest for message in said[: len(sent)]] == [message.digest for message in sent]


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        ("{}", "look()"),
        ("{torn", "look()"),
        ("[1]", "look()"),
        ('{"n": 3}', 'look("3")'),
        ('{"a": "two\\nlines"}', 'look("two lines")'),
        ('{"a": "' + "y" * 60 + '"}', f'look("{"y" * 39}…")'),
        ('{"a": null, "b": "c"}', "look()"),
    ],
)
def test_a_mask_says_which_call_it_was(arguments: str, called: str):
    assert results(turns(held(), 3, arguments=arguments))[0] == f"[masked: {called} → ok, 100 chars]"


def test_a_mask_says_that_the_call_had_failed_by_its_flag():
    made = held()
    made.turn("", calls=["c1"])
    message = made.entries(CONVERSATION)[0].message
    assert message.calls == (ToolCall("c1", "look", Text.of("{}")),)
    failing = made.draft("", kind="tool_result", message=_failed("c1", "ok ok ok " * 20))
    made._record(failing, joins=True)
    assert results(turns(made, 2))[0] == "[masked: look() → error, 180 chars]"


def _failed(call_id: str, text: str) -> Any:
    from shoal.providers import Message

    return Message("tool", (Text.of(text),), call_id=call_id, tool_name="look", is_error=True)


def test_a_result_that_says_less_than_its_mask_stays():
    assert results(turns(held(), 3, result="short"))[0] == "short"


def test_turns_without_calls_count_too():
    made = turns(held(), 1)
    made.turn("thinking")
    made.turn("more of it")
    assert results(made) == [MASK]


def test_older_turns_are_left_out_without_a_trace_and_what_was_said_to_the_model_stays():
    made = held(forget_after_turns=2)
    made.say("the task")
    turns(made, 4)
    assert [role for role, _ in made.talk()] == ["user", "assistant", "tool", "assistant", "tool"]
    assert len(made.entries(CONVERSATION)) == 9


def test_what_is_seen_is_what_is_measured():
    made = turns(held(), 6)
    prompt = made.prompt()
    said = [message for segment in prompt.messages for message in segment.messages]
    calls = [call for message in said for call in message.calls]
    assert prompt.chars == sum(len(m.text) for m in said) + sum(len(str(call.arguments)) for call in calls)
    assert prompt.tokens == sum(segment.tokens for segment in prompt.messages)


def test_what_is_compacted_first_is_all_in_front_of_the_newest_turn_that_is_not_masked():
    made = held()
    made.say("the task")
    turns(made, 4)
    view = made.state(CONVERSATION).view
    assert view.compactable(made.state(CONVERSATION)) == (1, 2, 3, 4, 5)
    assert view.edges(made.state(CONVERSATION)) == Edges(4, 6, 0)


def test_nothing_is_compacted_while_nothing_is_masked():
    made = turns(held(), 2)
    assert made.state(CONVERSATION).view.compactable(made.state(CONVERSATION)) == ()


def test_what_is_left_of_compacted_turns_says_what_it_is():
    made = turns(held(), 4)
    made.summarise(CONVERSATION, made.ids(CONVERSATION)[:4], "two files were read")
    assert made.talk()[0] == ("user", "[compacted history]\ntwo files were read")
    assert len(results(made)) == 2


def test_knobs_of_a_stage_are_merged_over_the_blueprint_s():
    one = stage("one")
    other = stage("two")
    other = type(other)("two", context=StageContext(observations=Observations(mask_step=3)))
    made = Held(TASK, stages=(one, other), observations=Observations(observation_window=2, mask_step=1))
    turns(made, 4)
    assert results(made).count(MASK) == 2
    made.enter("two")
    assert results(made).count(MASK) == 0


def test_a_layout_without_knobs_leaves_results_alone():
    made = turns(Held(TASK), 12)
    assert made.state(CONVERSATION).view is None
    assert MASK not in results(made)


def test_without_any_layout_the_coding_profile_holds():
    made = turns(Held(), 25)
    assert results(made).count(MASK) == 10


@pytest.mark.parametrize(("written", "budget"), [({}, 10_000), ({"max_tokens": 300}, 300), ({"budget": 0.5}, 5_000)])
def test_under_knobs_a_conversation_has_a_budget_only_where_one_is_written(written: Any, budget: int):
    talk = Region(CONVERSATION, kind="sliding_window", max_items=None, **written)
    made = Held(TASK, talk, observations=Observations())
    assert made.state(CONVERSATION).limits.budget == budget
    assert Held(TASK, observations=Observations()).state(CONVERSATION).limits.budget == 10_000


# --- a stage that begins afresh

FRESH = (stage("one"), type(stage())("two", context=StageContext(mode="fresh")), stage("three"))


def afresh() -> Held:
    made = Held(TASK, stages=FRESH)
    made.say("the task")
    turns(made, 1)
    made.enter("two")
    return made


def test_a_fresh_stage_sees_only_what_comes_after_its_entry():
    made = afresh()
    assert made.talk() == []
    turns(made, 1)
    assert [role for role, _ in made.talk()] == ["assistant", "tool"]


def test_other_stages_still_see_all_of_it():
    made = turns(afresh(), 1)
    made.enter("three")
    assert [role for role, _ in made.talk()] == ["user", "assistant", "tool", "assistant", "tool"]


def test_entered_again_it_begins_again():
    made = turns(afresh(), 1)
    made.enter("two")
    assert made.talk() == []
    assert made.replayed().dump() == made.window.dump()


def test_a_summary_of_what_came_before_stays_hidden_and_one_of_its_own_is_seen():
    made = turns(afresh(), 3)
    made.summarise(CONVERSATION, made.ids(CONVERSATION)[:3], "before")
    assert "before" not in str(made.talk())
    made.summarise(CONVERSATION, made.ids(CONVERSATION)[1:3], "its own")
    assert made.talk()[0] == ("user", "its own")


def test_a_view_says_what_it_shows():
    assert repr(afresh().state(CONVERSATION).view).startswith("<View since ")


def test_long_histories_are_shown_in_segments_that_keep_their_bytes():
    made = turns(held(mask_step=20, observation_window=5), 60, result=text_of(40))
    before = made.prompt().messages
    turns(made, 1)
    after = made.prompt().messages
    assert len(before) > 5
    assert [new is old for new, old in zip(after, before[:-1], strict=False)][: len(before) - 1] == [True] * (
        len(before) - 1
    )
