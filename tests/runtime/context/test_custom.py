"""Custom regions: what their scripts are asked, what is made of what they say, and what holds whatever they say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from windowkit import Held, kinds, stage, text_of

from shoal.blueprints import Region
from shoal.providers import Message, Text, ToolCall
from shoal.runtime.context import CONVERSATION, EntriesEvicted, EntryWritten, Misread, read_render

Function = Callable[[Any], Any]


def brain(**more: Any) -> Region:
    more.setdefault("max_tokens", 100)
    return Region("brain", kind="custom", script="brain.py", **more)


WORK = (stage(),)


def held(*others: Region, region: Region | None = None, stages: Any = WORK, **hooks: Function) -> Held:
    return Held(region or brain(), *others, stages=stages, scripts={"brain": hooks})


def asked(made: Held, hook: str) -> list[Any]:
    return [call.ctx for call in made.calls if call.hook == hook]


def saying(value: Any) -> Function:
    return lambda _ctx: value


# --- on_write


def test_on_write_is_given_the_region_and_the_entry():
    made = held()
    made.write("brain", text_of(10), key="k")
    assert asked(made, "on_write") == [
        {
            "region": {"name": "brain", "budget": 100, "current_tokens": 0, "entry_count": 0},
            "entry": {"content": text_of(10), "kind": "text", "tokens": 10, "key": "k"},
        }
    ]


@pytest.mark.parametrize("value", [None, True, {"action": "accept"}, {"action": "accept", "more": 1}])
def test_what_is_accepted_goes_in_as_it_is(value: Any):
    made = held(on_write=saying(value))
    made.write("brain", "as it is", key="k")
    assert [(entry.text, entry.key, entry.kind) for entry in made.entries("brain")] == [("as it is", "k", "text")]


@pytest.mark.parametrize("value", ["shorter", {"action": "accept", "content": "shorter"}])
def test_a_text_takes_the_place_of_the_entry_s_and_is_counted_anew(value: Any):
    made = held(on_write=saying(value))
    made.write("brain", text_of(50))
    [entry] = made.entries("brain")
    assert (entry.text, entry.tokens, entry.kind) == ("shorter", 2, "text")


def test_a_replaced_text_stands_in_the_event_alone():
    made = held(on_write=saying("shorter"))
    [(change, _)] = made.write("brain", text_of(50)).changes
    assert isinstance(change, EntryWritten)
    assert (change.cut, str(change.text)) == (0, "shorter")
    assert made.replayed().dump() == made.window.dump()


def test_a_replaced_text_of_a_draft_without_a_source_is_kept_whole():
    made = held(on_write=saying("shorter"))
    made.write("brain", text_of(50), sourced=False)
    assert made.texts("brain") == ["shorter"]
    assert made.replayed().dump() == made.window.dump()


def test_an_empty_text_is_a_text():
    made = held(on_write=saying(""))
    made.write("brain", "gone")
    assert made.texts("brain") == [""]


def test_a_key_takes_the_place_of_the_entry_s():
    made = held(on_write=saying({"action": "accept", "key": "other"}))
    made.write("brain", "text", key="k")
    assert [(entry.key, entry.text) for entry in made.entries("brain")] == [("other", "text")]


def test_text_and_key_may_both_be_replaced():
    made = held(on_write=saying({"action": "accept", "content": "new", "key": "other"}))
    made.write("brain", "text")
    assert [(entry.key, entry.text) for entry in made.entries("brain")] == [("other", "new")]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (False, "`brain` does not take it"),
        ({"action": "reject"}, "`brain` does not take it"),
        ({"action": "reject", "reason": "no  room\nfor it"}, "`brain` does not take it: no room for it"),
        ({"action": "reject", "reason": 7}, "`brain` does not take it"),
    ],
)
def test_a_refusal_of_the_model_s_write_stores_nothing_and_says_why(value: Any, why: str):
    made = held(on_write=saying(value))
    plan = made.write("brain", "text")
    assert (plan.outcome, plan.why, made.entries("brain")) == ("refused", why, [])


@pytest.mark.parametrize(
    "value",
    [
        {"action": "cancel"},
        {"action": "allow"},
        {"action": "retry"},
        {"action": "modify", "content": "other"},
        {"action": None},
        {},
        {"action": "accept", "content": 7},
        {"action": "accept", "key": 7},
        {"action": "accept", "key": " "},
        7,
        ["text"],
    ],
)
def test_nonsense_accepts_the_entry_unchanged(value: Any):
    made = held(on_write=saying(value))
    made.write("brain", "text", key="k")
    assert [(entry.text, entry.key) for entry in made.entries("brain")] == [("text", "k")]


def test_the_tool_says_that_a_script_refused_and_why():
    made = held(on_write=saying({"action": "reject", "reason": "say it shorter"}))
    answer = made.call("context_append", region="brain", content="text")
    assert answer.is_error
    assert answer.text == "[error] `brain` does not take it: say it shorter."


def test_a_key_shadows_what_it_held_before():
    made = held()
    made.call("context_write", region="brain", content="old", key="k")
    answer = made.call("context_write", region="brain", content="new", key="k")
    assert made.texts("brain") == ["old", "new"]
    assert answer.text.startswith("Shadowed key 'k' (1 entry).")


def test_a_write_without_a_key_takes_the_place_of_the_whole_region():
    made = held()
    made.call("context_append", region="brain", content="old")
    made.call("context_write", region="brain", content="new")
    assert made.texts("brain") == ["new"]


def test_a_refused_write_of_the_runtime_is_stored_unchanged():
    made = held(on_write=saying(False))
    made.write("brain", "a report", writer="framework")
    assert made.texts("brain") == ["a report"]


# --- on_overflow and the budget


def test_what_fits_to_the_token_asks_nothing_and_costs_nothing():
    made = held(on_overflow=saying([0]))
    made.write("brain", 60)
    made.write("brain", 40)
    assert (made.tokens("brain"), asked(made, "on_overflow")) == (100, [])


def test_one_token_more_asks_what_goes():
    made = held(on_overflow=saying([1]))
    made.write("brain", 30)
    made.write("brain", 30)
    made.write("brain", 41)
    [ctx] = asked(made, "on_overflow")
    assert (ctx["needed_tokens"], [entry["tokens"] for entry in ctx["entries"]]) == (1, [30, 30])
    assert made.ids("brain") == [1, 3]


def test_on_overflow_sees_shadowed_entries_too():
    made = held(on_overflow=saying([]))
    for text in ("one", "two"):
        made.write("brain", text_of(50, text), key="k")
    made.write("brain", 10)
    assert [entry["key"] for entry in asked(made, "on_overflow")[0]["entries"]] == ["k", "k"]


def test_what_a_script_does_not_free_goes_oldest_first_and_to_half():
    made = held(on_overflow=saying([2]))
    for tokens in (30, 30, 10, 20):
        made.write("brain", tokens)
    made.write("brain", 40)
    assert made.ids("brain") == [5]  # 40 of the 50 that are left after a shed


def test_a_script_that_frees_nothing_leaves_the_rule_of_temporary():
    made = Held(brain(), Region("same", max_tokens=100))
    for region in ("brain", "same"):
        for tokens in (30, 30, 20, 40, 10):
            made.write(region, tokens)
    assert made.ids("brain") == made.ids("same")


@pytest.mark.parametrize("answer", [None, "all", {"0": 1}, [3], [-1], [0, 9], [True], ["0"], [0.0], [None]])
def test_an_answer_with_one_bad_index_counts_as_none(answer: Any):
    made = held(on_overflow=saying(answer))
    for tokens in (40, 30, 20):
        made.write("brain", tokens)
    made.write("brain", 20)
    assert made.ids("brain") == [3, 4]


def test_an_index_that_is_named_twice_is_freed_once():
    made = held(on_overflow=saying([1, 1]))
    made.write("brain", 50)
    made.write("brain", 50)
    changes = [change for change, _ in made.write("brain", 10).changes]
    assert isinstance(changes[0], EntriesEvicted)
    assert (changes[0].entry_ids, changes[0].tokens) == ((2,), 50)


def test_an_entry_bigger_than_its_region_is_refused_and_no_script_is_asked():
    made = held(on_overflow=saying([0]))
    made.write("brain", 10)
    assert made.write("brain", 101).outcome == "refused"
    assert (made.ids("brain"), asked(made, "on_overflow")) == ([1], [])


def test_an_entry_that_a_script_makes_too_big_is_refused():
    made = held(on_write=saying(text_of(101)))
    plan = made.write("brain", 10)
    assert (plan.outcome, plan.over_tokens) == ("refused", 1)


def test_a_routed_result_is_cut_to_what_the_region_holds():
    made = held()
    plan = made.write("brain", 150, writer="routing")
    assert plan.cut
    assert made.tokens("brain") <= 100


def test_what_a_script_trims_of_a_routed_result_counts_as_cut():
    made = held(on_write=saying("first line"))
    plan = made.write("brain", 150, writer="routing")
    assert (plan.tokens, plan.of_tokens, plan.cut) == (3, 150, True)


def test_a_pinned_region_frees_what_its_script_says():
    made = held(region=brain(pinned=True), on_overflow=saying([0]))
    made.write("brain", 60)
    made.write("brain", 30)
    made.write("brain", 60)
    assert made.ids("brain") == [2, 3]


def test_a_pinned_region_refuses_what_its_script_makes_no_room_for_and_keeps_everything():
    made = held(region=brain(pinned=True), on_overflow=saying([1]))
    made.write("brain", 60)
    made.write("brain", 30)
    plan = made.write("brain", 60)
    assert (plan.outcome, made.ids("brain")) == ("refused", [1, 2])


def test_a_region_that_refuses_asks_no_script():
    made = held(region=brain(admission="reject"), on_overflow=saying([0]))
    made.write("brain", 60)
    assert made.write("brain", 60).outcome == "refused"
    assert asked(made, "on_overflow") == []


# --- pressure and layouts


def test_under_pressure_a_script_is_asked_behind_clearable_and_before_temporary():
    made = held(Region("scratch", kind="clearable"), Region("notes"), on_overflow=saying([1]))
    for region in ("scratch", "notes", "brain", "brain"):
        made.write(region, 20)
    changes, _ = made.press(30)
    assert [(c.region, c.entry_ids) for c in changes if isinstance(c, EntriesEvicted)] == [
        ("scratch", (1,)),
        ("brain", (2,)),
    ]
    assert asked(made, "on_overflow")[0]["needed_tokens"] == 10


def test_no_script_is_asked_where_clearable_gives_enough():
    made = held(Region("scratch", kind="clearable"))
    made.write("scratch", 20)
    made.write("brain", 20)
    made.press(20)
    assert asked(made, "on_overflow") == []


def test_what_a_script_does_not_give_under_pressure_goes_as_temporary():
    made = held(on_overflow=saying([2]))
    for _ in range(4):
        made.write("brain", 20)
    made.press(40)
    assert made.ids("brain") == [4]


@pytest.mark.parametrize("more", [{"pinned": True}, {"admission": "reject"}])
def test_pressure_takes_nothing_from_a_pinned_region_nor_from_one_that_refuses(more: Any):
    made = held(region=brain(**more), on_overflow=saying([0]))
    made.write("brain", 50)
    assert (made.press(50), made.calls[1:]) == (((), ()), [])


def test_pressure_asks_nothing_of_an_empty_region():
    made = held(on_overflow=saying([]))
    assert (made.press(50), made.calls) == (((), ()), [])


def test_a_smaller_budget_asks_the_script_what_goes():
    small = brain(max_tokens=50)
    made = held(stages=(stage(), stage("next", regions=(small,))), on_overflow=saying([1]))
    for tokens in (20, 40, 30):
        made.write("brain", tokens)
    made.enter("next")
    assert (made.ids("brain"), asked(made, "on_overflow")[0]["needed_tokens"]) == ([1, 3], 40)


def test_what_the_script_does_not_free_for_a_smaller_budget_goes_oldest_first():
    small = brain(max_tokens=50)
    made = held(stages=(stage(), stage("next", regions=(small,))))
    for tokens in (20, 40, 30):
        made.write("brain", tokens)
    made.enter("next")
    assert made.ids("brain") == [3]


def test_a_pinned_region_keeps_what_is_over_a_smaller_budget():
    small = brain(max_tokens=50, pinned=True)
    made = held(stages=(stage(), stage("next", regions=(small,))))
    made.write("brain", 80)
    assert kinds(made.enter("next")) == ["LayoutChanged"]
    assert made.ids("brain") == [1]


# --- render


def test_render_is_given_everything_of_its_contract():
    made = held(Region("notes"), render=saying(""))
    made.write("notes", 20)
    made.write("brain", "text", key="k")
    made.prompt()
    [ctx] = asked(made, "render")
    assert ctx == {
        "region": {"name": "brain", "budget": 100, "current_tokens": 1, "entry_count": 1},
        "entries": [
            {
                "content": "text",
                "tokens": 1,
                "timestamp": 4.0,
                "key": "k",
                "kind": "text",
                "parts": [{"mime_type": "text/plain", "text": "text"}],
            }
        ],
        "stage_name": "work",
        "stage_iterations": 0,
        "model": "model",
        "window": {"total_tokens": 21, "max_tokens": 10_000},
    }


def talked(made: Held) -> Held:
    made.say("look")
    made.turn("I look.", calls=["c1"], arguments='{"path": "a"}')
    made.answer("c1", "found")
    return made


def talk(**hooks: Function) -> Held:
    conversation = Region(CONVERSATION, kind="custom", script="talk.py", max_tokens=200)
    return Held(conversation, scripts={CONVERSATION: hooks})


def test_render_sees_turns_and_results_for_what_they_are():
    made = talked(talk(render=saying("")))
    made.prompt()
    [ctx] = asked(made, "render")
    said, turn, result = ctx["entries"]
    assert (said["kind"], turn["kind"], result["kind"]) == ("user_message", "assistant_turn", "tool_result")
    assert turn["tool_calls"] == [{"id": "c1", "name": "look", "arguments": {"path": "a"}}]
    assert (result["tool_call_id"], result["tool_name"], result["is_error"]) == ("c1", "look", False)


@pytest.mark.parametrize(("source", "shown"), [("", {}), ("{torn", "{torn"), ("[1]", [1])])
def test_arguments_that_are_no_object_are_shown_as_what_they_are(source: str, shown: Any):
    made = talk(render=saying(""))
    made.turn("", calls=["c1"], arguments=source)
    made.prompt()
    assert asked(made, "render")[0]["entries"][0]["tool_calls"][0]["arguments"] == shown


def test_a_summary_shows_as_text():
    made = held(render=saying(""))
    made.write("brain", 50)
    made.write("brain", 40)
    made.summarise("brain", (1,), "short")
    made.prompt()
    assert [entry["kind"] for entry in asked(made, "render")[0]["entries"]] == ["text", "text"]


def test_of_entries_that_share_a_key_render_sees_the_newest_where_the_first_stands():
    made = held(render=saying(""))
    for text, key in (("a1", "a"), ("x", None), ("b1", "b"), ("a2", "a"), ("y", None)):
        made.write("brain", text, key=key)
    made.prompt()
    assert [entry["content"] for entry in asked(made, "render")[0]["entries"]] == ["a2", "x", "b1", "y"]


def test_a_stored_part_is_shown_by_its_stand_in():
    made = held(render=saying(""))
    data = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\x0dIHDR" + (2).to_bytes(4, "big") + (3).to_bytes(4, "big")
    made.write("brain", "see", parts=(made.store(data, "hero.png"),))
    made.prompt()
    [entry] = asked(made, "render")[0]["entries"]
    stand_in = f"[image/png 2x3, {len(data)} bytes] hero.png"
    assert entry["content"] == f"see\n{stand_in}"
    assert entry["parts"] == [
        {"mime_type": "text/plain", "text": "see"},
        {
            "mime_type": "image/png",
            "name": "hero.png",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "width": 2,
            "height": 3,
            "tokens": 0,
            "stand_in": stand_in,
        },
    ]


def test_a_stored_part_that_is_text_shows_what_it_says():
    made = held(render=saying(""))
    made.write("brain", "", parts=(made.store(b"a note", "note.txt"),))
    made.prompt()
    [entry] = asked(made, "render")[0]["entries"]
    assert entry["parts"] == [{"mime_type": "text/plain", "name": "note.txt", "text": "a note"}]


def test_a_string_is_one_block_without_a_heading():
    made = held(render=saying("all of it"))
    assert made.blocks("brain") == ["all of it"]


@pytest.mark.parametrize("value", ["", {}, {"system": ""}, {"system": []}, {"system": ["", ""], "messages": []}])
def test_nothing_is_shown_where_nothing_is_returned(value: Any):
    made = held(render=saying(value))
    made.write("brain", "an entry")
    assert (made.blocks("brain"), made.talk()) == ([], [])


def test_a_list_is_a_block_each():
    made = held(render=saying({"system": ["one", "", "two"]}))
    assert made.blocks("brain") == ["one", "two"]


def test_an_empty_region_is_rendered_too():
    made = held(render=lambda ctx: f"{ctx['region']['entry_count']} entries")
    assert made.blocks("brain") == ["0 entries"]


def test_messages_come_before_the_conversation_wherever_the_region_stands():
    conversation = Region(CONVERSATION, kind="sliding_window")
    made = Held(
        conversation,
        Region("mail", kind="sliding_window"),
        brain(),
        scripts={"brain": {"render": saying({"messages": [{"role": "user", "content": "context"}]})}},
    )
    made.write("mail", "a letter")
    made.say("hello")
    assert made.talk() == [("user", "context"), ("user", "a letter"), ("user", "hello")]


def test_system_and_messages_may_both_be_shown():
    made = held(render=saying({"system": "rules", "messages": [{"role": "assistant", "content": "so"}]}))
    assert (made.blocks("brain"), made.talk()) == (["rules"], [("assistant", "so")])
    assert [(part.owner, part.section) for part in made.prompt().parts] == [
        ("brain", "system"),
        ("brain", "messages"),
    ]


CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "look", "arguments": {"a": 1}}]}
RESULT = {"role": "user", "content": "", "tool_results": [{"tool_call_id": "1", "content": "x", "is_error": True}]}


def rendered(*messages: Any) -> list[Message]:
    return list(read_render({"messages": list(messages)}).messages)


def test_calls_and_results_become_what_a_conversation_has():
    call, result = rendered(CALL, RESULT)
    assert call.calls == (ToolCall("1", "look", Text.of('{"a":1}')),)
    assert (result.role, result.text, result.call_id, result.is_error) == ("tool", "x", "1", True)


def test_arguments_may_be_given_as_their_source():
    call, _ = rendered({**CALL, "tool_calls": [{"id": "1", "name": "look", "arguments": "{torn"}]}, RESULT)
    assert str(call.calls[0].arguments) == "{torn"


def test_results_stand_in_front_of_what_is_said_beside_them():
    messages = rendered(CALL, {**RESULT, "content": "and now?"})
    assert [(message.role, message.text) for message in messages][1:] == [("tool", "x"), ("user", "and now?")]


@pytest.mark.parametrize(
    "messages",
    [
        [CALL],
        [RESULT],
        [RESULT, CALL],
        [CALL, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
        [{**CALL, "tool_calls": [{"id": "2", "name": "look"}]}, RESULT],
    ],
)
def test_a_call_or_a_result_without_its_other_half_is_left_out(messages: Any):
    assert rendered(*messages) == []


def test_what_is_said_beside_a_call_that_nothing_answers_stays():
    assert [m.text for m in rendered({**CALL, "content": "I look."}, {"role": "user", "content": "well?"})] == [
        "I look.",
        "well?",
    ]


def test_of_two_calls_under_one_id_the_first_counts():
    twice = {**CALL, "tool_calls": CALL["tool_calls"] * 2}
    messages = rendered(twice, RESULT, CALL, RESULT)
    assert [len(message.calls) for message in messages] == [1, 0]


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        ["text"],
        {"text": "x"},
        {"system": 7},
        {"system": [7]},
        {"messages": "x"},
        {"messages": ["x"]},
        {"messages": [{"role": "system", "content": "x"}]},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": [{"role": "user", "content": "x", "name": "y"}]},
        {"messages": [{**RESULT, "role": "assistant"}]},
        {"messages": [{**CALL, "role": "user"}]},
        {"messages": [{**CALL, "tool_calls": "x"}]},
        {"messages": [{**CALL, "tool_calls": ["x"]}]},
        {"messages": [{**CALL, "tool_calls": [{"id": "", "name": "look"}]}]},
        {"messages": [{**CALL, "tool_calls": [{"id": "1"}]}]},
        {"messages": [{**RESULT, "tool_results": [{"tool_call_id": "1", "content": 7}]}]},
        {"messages": [{**RESULT, "tool_results": [{"tool_call_id": "1", "is_error": "no"}]}]},
        {"messages": [{**RESULT, "tool_results": [{"content": "x"}]}]},
        {"system": "x" * 100, "other": 1},
    ],
)
def test_another_shape_is_none(value: Any):
    with pytest.raises(Misread, match=r"^[`a].*`"):
        read_render(value)


def test_where_a_script_shows_nothing_usable_the_entries_stand_under_the_heading():
    made = held(render=saying(7))
    made.write("brain", "one")
    made.write("brain", "two")
    assert made.blocks("brain") == ["## brain\none\n\ntwo"]


def test_a_render_above_the_budget_is_shown_whole():
    made = held(render=saying(text_of(500)))
    assert made.prompt().tokens == 500


def test_what_is_shown_and_not_what_is_held_is_measured():
    made = held(render=saying({"system": "abcd", "messages": [{"role": "user", "content": "efgh"}]}))
    made.write("brain", 50)
    assert (made.prompt().tokens, made.prompt().chars) == (2, 8)


def test_headings_of_others_are_escaped_and_its_own_is_left_alone():
    made = held(Region("notes"), render=saying("## brain\n## notes\n## else"))
    assert made.blocks("brain") == ["## brain\n\\## notes\n## else"]


def test_messages_are_never_altered():
    made = held(Region("notes"), render=saying({"messages": [{"role": "user", "content": "## notes"}]}))
    assert made.talk() == [("user", "## notes")]


def test_a_block_that_says_the_same_stays_the_same():
    made = held(render=saying({"system": ["same", "again"], "messages": [{"role": "user", "content": "x"}]}))
    before = made.prompt()
    made.write("brain", "an entry that it does not show")
    after = made.prompt()
    assert all(new is old for new, old in zip(after.system, before.system, strict=True))
    assert all(new is old for new, old in zip(after.messages, before.messages, strict=True))


def test_many_messages_are_cut_into_segments_that_never_part_a_call_from_its_result():
    spoken = [{"role": "user", "content": str(n)} for n in range(15)]
    made = held(render=saying({"messages": [*spoken, CALL, RESULT, {"role": "user", "content": "end"}]}))
    segments = made.prompt().messages
    assert [(len(segment.messages), segment.closed) for segment in segments] == [(17, True), (1, False)]


@pytest.mark.parametrize(
    ("more", "order"),
    [
        ({"pinned": True}, ["rules", "brain", "facts", "code", "notes"]),
        ({}, ["rules", "facts", "brain", "code", "notes"]),
        ({"volatility": "stable"}, ["brain", "rules", "facts", "code", "notes"]),
    ],
)
def test_a_custom_region_stands_with_pinned_or_with_compacting_ones(more: Any, order: list[str]):
    regions = (
        Region("rules", kind="pinned"),
        Region("facts", kind="hashmap"),
        brain(**more),
        Region("code", kind="compacting"),
        Region("notes"),
    )
    made = Held(*regions, scripts={"brain": {"render": saying("shown")}})
    for region in ("rules", "facts", "code", "notes"):
        made.write(region, "text", key="k")
    assert made.owners() == order


def test_at_the_tail_its_text_is_the_end_of_the_request():
    made = held(region=brain(placement="tail"), render=saying({"system": ["one", "two"]}))
    made.say("hello")
    assert (str(made.prompt().tail), made.blocks("brain")) == ("one\n\ntwo", [])


def test_the_model_reads_what_a_custom_region_holds_and_not_what_it_shows():
    made = held(render=saying("shown"))
    made.write("brain", "held")
    assert made.call("context_read", region="brain").text == "## brain\nheld"


# --- a custom conversation


def test_a_custom_conversation_ends_the_request():
    made = Held(
        Region(CONVERSATION, kind="custom", script="talk.py"),
        Region("mail", kind="sliding_window"),
        scripts={
            CONVERSATION: {
                "render": lambda ctx: {"messages": [{"role": "user", "content": e["content"]} for e in ctx["entries"]]}
            }
        },
    )
    made.say("hello")
    made.write("mail", "a letter")
    assert made.talk() == [("user", "a letter"), ("user", "hello")]


def test_a_script_cannot_delete_the_record_of_the_conversation():
    made = talked(talk(on_write=saying(False)))
    assert made.texts(CONVERSATION) == ["look", "I look.", "found"]


def test_a_replaced_turn_keeps_its_calls_and_a_replaced_result_its_call():
    made = talked(talk(on_write=lambda ctx: ctx["entry"]["kind"]))
    assert made.texts(CONVERSATION) == ["user_message", "assistant_turn", "tool_result"]
    turn, result = made.entries(CONVERSATION)[1:]
    assert (turn.message.calls[0].call_id, result.message.call_id) == ("c1", "c1")
    assert made.replayed().dump() == made.window.dump()


def test_an_index_is_widened_to_its_whole_turn():
    made = talked(talk(on_overflow=saying([2])))
    made.say(197)
    assert [entry.kind for entry in made.entries(CONVERSATION)] == ["user_message", "user_message"]


def test_a_turn_that_is_being_answered_is_not_freed():
    made = talk(on_overflow=saying([0, 1]))
    made.say(100)
    made.turn(80, calls=["c1"])
    made.answer("c1", 60)
    assert [entry.kind for entry in made.entries(CONVERSATION)] == ["assistant_turn", "tool_result"]


def test_a_turn_that_is_being_answered_cannot_be_released():
    made = talk()
    made.turn("", calls=["c1"])
    assert made.call("context_delete", region=CONVERSATION, id=1).is_error
    made.answer("c1")
    assert not made.call("context_delete", region=CONVERSATION, id=1).is_error


def test_the_newest_group_may_be_over_the_budget_and_says_so():
    made = talk()
    made.say("old")
    [*_, (written, _)] = made.say(300).changes
    assert isinstance(written, EntryWritten)
    assert (written.over_budget, made.ids(CONVERSATION)) == (True, [2])


@pytest.mark.parametrize("more", [{"pinned": True}, {"admission": "reject"}])
def test_a_conversation_that_drops_nothing_goes_over_its_budget(more: Any):
    made = Held(Region(CONVERSATION, kind="custom", script="talk.py", max_tokens=50, **more))
    made.say(40)
    [(written, _)] = made.say(40).changes
    assert isinstance(written, EntryWritten)
    assert (written.over_budget, made.ids(CONVERSATION)) == (True, [1, 2])


def test_pressure_keeps_the_newest_group_of_the_conversation():
    made = talk()
    made.say(100)
    made.say(90)
    made.press(500)
    assert made.ids(CONVERSATION) == [2]
