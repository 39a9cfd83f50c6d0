"""Requests of a conversation that grows: what was sent before is not looked at again, and the bytes are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from providers_parts import PNG, ask, assistant, block, messages, request, result, segment, tool, tools, user

from shoal.providers import SERVERS, Message, Request, Segment, Text, ToolSet, blob, chat_encoder, shipped_profile
from shoal.providers._conversation import FEW
from shoal.providers._gemini import GeminiEncoder
from shoal.providers._messages import MessagesEncoder
from shoal.providers._responses import ResponsesEncoder
from shoal.providers._sent import Heads

PLAIN = replace(shipped_profile("claude-opus-5-5"), cache="none")


def encoders() -> dict[str, Callable[[Request], bytes]]:
    messages_encoder = MessagesEncoder("p", PLAIN)
    responses, gemini = ResponsesEncoder("p", PLAIN), GeminiEncoder("p", PLAIN)
    chat = chat_encoder(SERVERS["openai"], profile=replace(PLAIN, window_tokens=id(messages_encoder)))
    return {
        "messages": lambda asked: bytes(messages_encoder.encode(asked).body),
        "responses": lambda asked: bytes(responses.encode(asked).body),
        "gemini": lambda asked: bytes(gemini.encode(asked).body),
        "chat": lambda asked: bytes(chat.encode(asked)),
    }


@pytest.mark.parametrize("name", ["messages", "responses", "gemini", "chat"])
@example(said=[assistant("", ask("c"), ask("c")), user("x"), result("c"), user("y"), result("c")], steps=[3])
@example(said=[assistant("", ask("c")), user("x"), assistant("a"), user("y"), result("c")], steps=[3])
@example(said=[user("hello"), Message("system", (Text.of("hello"),))], steps=[1])
@example(said=[user("hello"), Message("system", (Text.of("hello"),)), user("x")], steps=[1, 1])
@example(said=[assistant("a"), assistant("b"), user("x")], steps=[1, 1])
@example(said=[user("a"), user(" "), user("x")], steps=[1, 1])
@given(said=st.lists(messages(), min_size=1, max_size=14), steps=st.lists(st.integers(1, 4), max_size=12))
def test_a_request_that_grew_has_the_bytes_of_one_made_anew(name: str, said: list[Message], steps: list[int]):
    grown = encoders()[name]
    count = 0
    for step in [*steps, len(said)]:
        count = min(len(said), count + step)
        asked = Request("m", messages=(segment(*said[:count]),))
        assert grown(asked) == encoders()[name](Request("m", messages=(segment(*map(copy, said[:count])),)))


@pytest.mark.parametrize("name", ["messages", "responses", "gemini", "chat"])
@given(said=st.lists(messages(), min_size=2, max_size=9), other=messages(), at=st.integers(1, 8), lost=st.booleans())
def test_what_changed_in_the_middle_changes_what_is_sent(
    name: str, said: list[Message], other: Message, at: int, *, lost: bool
):
    encode = encoders()[name]
    encode(Request("m", messages=(segment(*said),)))
    edited = [*said[: at % len(said)], *([] if lost else [other]), *said[at % len(said) + 1 :]] or [other]
    anew = encoders()[name](Request("m", messages=(segment(*map(copy, edited)),)))
    assert encode(Request("m", messages=(segment(*edited),))) == anew


MARKERS = {
    "messages": b',"cache_control":{"type":"ephemeral"}',
    "responses": b',"prompt_cache_breakpoint":{"mode":"explicit"}',
}


def marking() -> dict[str, Callable[[Request], bytes]]:
    claude = replace(PLAIN, cache="markers", min_cacheable_tokens=0)
    gpt = replace(shipped_profile("gpt-6.1-sol"), min_cacheable_tokens=0)
    one, other = MessagesEncoder("p", claude), ResponsesEncoder("p", gpt)
    return {
        "messages": lambda asked: bytes(one.encode(asked).body),
        "responses": lambda asked: bytes(other.encode(asked).body),
    }


@pytest.mark.parametrize("name", MARKERS)
@given(said=st.lists(messages(), min_size=1, max_size=14), steps=st.lists(st.integers(1, 3), max_size=12))
def test_markers_in_what_grew_change_nothing_else(name: str, said: list[Message], steps: list[int]):
    grown = marking()[name]
    system = (block("s" * 400, volatility="stable"),)
    count = 0
    for step in [*steps, len(said)]:
        count = min(len(said), count + step)
        body = grown(Request("m", system, (segment(*said[:count]),), run_id="r"))
        anew = marking()[name](Request("m", system, (segment(*map(copy, said[:count])),)))
        assert body.replace(MARKERS[name], b"") == anew.replace(MARKERS[name], b"")
        assert body.count(MARKERS[name]) <= 4


def copy(message: Message) -> Message:
    return Message(
        message.role,
        message.texts,
        message.calls,
        message.call_id,
        message.tool_name,
        message.is_error,
        message.state,
        message.blobs,
        message.turn_scoped,
    )


TURNS = [message for n in range(4 * FEW + 4) for message in (assistant("a", ask(f"c{n}")), result(f"c{n}"))]


def growing(encoder: MessagesEncoder, *said: Message) -> list[Any]:
    return encoder._conversation.whole((segment(*said),), tailed=False)


def test_what_was_encoded_before_is_the_same_object():
    encoder = MessagesEncoder("p", PLAIN)
    first = growing(encoder, user("x"))
    second = growing(encoder, user("x"), *TURNS[:2])
    assert first[0] is not second[0]  # another message, though it says the same
    opening = user("x")
    parts = growing(encoder, opening)
    more = growing(encoder, opening, *TURNS[:2])
    assert [part is more[at] for at, part in enumerate(parts)] == [True]
    assert len(more) == 2


def test_a_few_parts_become_one_and_a_few_of_those_become_one_again():
    encoder, opening = MessagesEncoder("p", PLAIN), user("x")
    counts = [len(growing(encoder, opening, *TURNS[: 2 * n])) for n in range(4 * FEW + 2)]
    assert counts[: 2 * FEW] == [1, 2, 3, 4, 2, 3, 4, 5]
    assert max(counts) == 2 * FEW - 1
    assert counts[4 * FEW :] == [2, 3]


def test_a_result_that_comes_late_is_put_where_it_belongs():
    encoder, opening = MessagesEncoder("p", PLAIN), user("x")
    asked = assistant("", ask("c"))
    growing(encoder, opening, asked)
    late = growing(encoder, opening, asked, result("c", "late"))
    assert b"late" in b"".join([leaf for part in late for leaf in part.leaves])


def test_an_open_segment_keeps_what_it_became():
    encoder = MessagesEncoder("p", PLAIN)
    kept = segment(user("x"))
    assert encoder._conversation.segment(kept) is encoder._conversation.spoken((kept,))[0]
    other = segment(user("x"))
    assert encoder._conversation.spoken((other,))[0] is encoder._conversation.segment(other)


def test_a_segment_of_nothing_says_nothing():
    encoder = MessagesEncoder("p", PLAIN)
    blank = Segment("r", (user(" "),), 1)
    assert encoder._conversation.spoken((blank,)) == []
    assert len(growing(encoder, user(" "), user("x"))) == 1


def test_what_takes_no_marker_leaves_it_far_behind():
    gpt = replace(shipped_profile("gpt-6.1-sol"), min_cacheable_tokens=0)
    chat = chat_encoder(SERVERS["openai"], profile=gpt)
    said = [user("the first question"), assistant("a", ask("c")), result("c"), user("the second question")]
    for n in range(5):
        said += [assistant("a", ask(f"c{n}")), result(f"c{n}")]
        body = bytes(chat.encode(Request("m", messages=(segment(*said),), tail=Text.of("now"), run_id="r")))
        marked = b'"text":"the second question"' + MARKERS["responses"]
        assert (body.count(MARKERS["responses"]), body.count(marked)) == (1, 1)


def test_of_several_parts_far_behind_the_last_that_takes_a_marker_has_it():
    gpt = replace(shipped_profile("gpt-6.1-sol"), min_cacheable_tokens=0)
    chat, said = chat_encoder(SERVERS["openai"], profile=gpt), list[Message]()
    for n in range(3):
        said += [user(f"question {n}"), assistant("a", ask(f"c{n}")), result(f"c{n}")]
        chat.encode(Request("m", messages=(segment(*said),), run_id="r"))
    for n in range(3, 6):
        said += [assistant("a", ask(f"c{n}")), result(f"c{n}")]
        body = bytes(chat.encode(Request("m", messages=(segment(*said),), tail=Text.of("now"), run_id="r")))
    assert body.count(MARKERS["responses"]) == 1
    assert b'"text":"question 2"' + MARKERS["responses"] in body


def test_of_several_segments_far_behind_the_last_that_takes_a_marker_has_it():
    gpt = replace(shipped_profile("gpt-6.1-sol"), min_cacheable_tokens=0)
    chat = chat_encoder(SERVERS["openai"], profile=gpt)
    old = [segment(user(f"question {n}"), assistant("a", ask("c")), result("c"), closed=True) for n in range(2)]
    said = [segment(assistant("a", ask(f"c{n}")), result(f"c{n}"), closed=n < 1) for n in range(2)]
    asked = Request("m", messages=(*old, *said), tail=Text.of("now"), run_id="r")
    assert b'"text":"question 1"' + MARKERS["responses"] in bytes(chat.encode(asked))


def test_a_system_message_leads_no_answer_that_says_nothing():
    encoder = MessagesEncoder("p", replace(shipped_profile("claude-opus-5-5"), cache="none"))
    told = Message("system", (Text.of("Be brief."),))
    for silence in ((assistant(),), (assistant(" "), assistant())):
        said = (segment(user("x"), told), segment(*silence), segment(user("y")))
        made = [
            message["role"]
            for message in json.loads(bytes(encoder.encode(Request("m", messages=said)).body))["messages"]
        ]
        assert made == ["user"]


def test_stored_parts_count_where_parts_became_one():
    claude = shipped_profile("claude-opus-5-5")
    encoder, said = MessagesEncoder("p", claude), [user("x")]
    for n in range(FEW + 1):
        said.append(Message("user", (Text.of(f"{n}"),), blobs=(blob(PNG, f"{n}.png"),)))
        parts = growing(encoder, *said)
    assert [(part.blobs, part.side_px) for part in parts] == [(FEW, 64), (1, 64)]
    anew = MessagesEncoder("p", claude).encode(Request("m", messages=(segment(*map(copy, said)),)))
    assert bytes(encoder.encode(Request("m", messages=(segment(*said),))).body) == bytes(anew.body)


# --- what is made once


def test_settings_are_made_once_for_all_that_ask_the_same():
    heads, made = Heads(most=2), iter(range(9))
    offered = object()

    def head(tools: object = offered, **settings: Any) -> bytes:
        return heads.of(request(user("x"), **settings), tools, None, lambda *_: b"%d" % next(made))

    assert (head(), head(), head(temperature=0.5), head(options={"a": [1]})) == (b"0", b"0", b"1", b"2")
    assert head(options={"a": [1]}) == b"2"
    assert head(object()) == b"3"
    assert repr(heads) == "<Heads, 2 of them>"


def test_the_front_of_a_request_is_made_once_while_it_is_the_same():
    encoder = MessagesEncoder("p", replace(shipped_profile("claude-opus-5-5"), min_cacheable_tokens=0))
    offered: ToolSet = tools(tool())
    system = (block("s" * 400, volatility="stable"), block("r" * 400))

    def front(run_id: str = "r") -> Any:
        asked = request(user("x"), system=system, tools=offered, run_id=run_id)
        sent = encoder.encode(asked)
        return sent.body.fragments[1]

    assert front() is front()
    assert front("") is not front("")


def test_what_gemini_is_told_first_is_made_once_while_it_is_the_same():
    encoder = GeminiEncoder("p", PLAIN)
    asked = request(user("x"), system=(block("s"),), tools=tools(tool()), run_id="r")
    first, second = (encoder.encode(asked).body.fragments[1] for _ in range(2))
    assert first is second
