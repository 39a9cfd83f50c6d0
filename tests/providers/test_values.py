"""The values that rooms share."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import ask, assistant, block, request, result, segment, tool, tools, user

from shoal.providers import (
    EMPTY,
    SERVERS,
    Message,
    Request,
    Segment,
    Text,
    ToolSet,
    Usage,
    chat_encoder,
    digest,
    join,
)


@given(text=st.text())
def test_a_text_comes_back_as_it_was_but_for_lone_surrogates(text: str):
    assert str(Text.of(text)) == "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= c <= "\udfff" else c for c in text)


def test_a_lone_surrogate_is_replaced():
    assert str(Text.of("a\ud800b")) == "a\N{REPLACEMENT CHARACTER}b"


@given(pieces=st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_joined_are_the_text(pieces: list[str]):
    assert join(tuple(Text.of(piece) for piece in pieces)) == "".join(pieces)


def test_equal_texts_are_equal_and_have_one_digest():
    one, same, other = Text.of("a"), Text.of("a"), Text.of("b")
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "a"
    assert one.digest == one.digest == same.digest != other.digest


def test_a_text_knows_its_encoded_length_and_form():
    text = Text.of('"')
    assert (len(text), text.quoted, repr(text)) == (2, b'"\\""', "Text('\"')")
    assert not EMPTY


def test_a_digest_tells_how_pieces_were_cut():
    assert digest(b"ab", b"c") != digest(b"a", b"bc")


def test_messages_differ_in_all_that_they_say():
    said = [
        user("a"),
        user("b"),
        assistant("a"),
        assistant("a", ask("1")),
        assistant("a", ask("2")),
        assistant("a", ask("1", "find")),
        assistant("a", ask("1", arguments='{"x":1}')),
        assistant("a", msgspec.structs.replace(ask("1"), vendor_id="toolu_1")),
        result("1", "a"),
        result("2", "a"),
        result("1", "a", is_error=True),
    ]
    assert len({message.digest for message in said}) == len(said)
    assert user("a").digest == user("a").digest


def test_a_message_has_a_number_of_its_own_and_keeps_it():
    said = user("a")
    assert said.number == said.number
    assert len({said.number, user("a").number, msgspec.structs.replace(said, call_id="x").number}) == 3


def test_parts_keep_their_digest():
    part = segment(user("a"))
    assert part.digest is part.digest
    assert block("a").digest != block("b").digest
    assert tools(tool()).digest != tools(tool("find")).digest == tools(tool("find")).digest


def test_a_request_is_known_by_everything_that_is_sent():
    base = {"system": (block("s"),), "tools": tools(tool())}
    said = [
        request(user("a"), **base),
        request(user("b"), **base),
        request(user("a"), **{**base, "system": ()}),
        request(user("a"), **{**base, "tools": ToolSet()}),
        request(user("a"), **base, tail=Text.of("t")),
        request(user("a"), **base, model="other"),
    ]
    assert len({one.digest for one in said}) == len(said)


def test_texts_of_parts_are_their_pieces_joined():
    assert (user("a").text, block("b").text) == ("a", "b")


def test_usages_add_up_bucket_by_bucket():
    total = Usage(1, 2, 3, 4, 5, 6) + Usage(10, 20, 30, 40, 50, 60)
    assert total == Usage(11, 22, 33, 44, 55, 66)
    assert total.input == 110


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (segment(user("a")), {"messages": (user("b"),)}),
        (block("a"), {"texts": (Text.of("b"),)}),
        (tools(tool("a")), {"specs": (tool("b"),)}),
    ],
)
def test_a_changed_part_has_another_digest(part: Any, change: dict[str, Any]):
    before = part.digest
    assert msgspec.structs.replace(part, **change).digest != before


def test_a_part_that_was_made_from_another_keeps_nothing_of_what_was_made_of_that():
    said = Message("user", (Text.of("a"),))
    chat_encoder(SERVERS["generic"]).encode(Request("m", messages=(Segment("c", (said,), 1),)))
    other = msgspec.structs.replace(said, texts=(Text.of("b"),))
    assert other.digest == Message("user", (Text.of("b"),)).digest != said.digest
    assert b'"b"' in bytes(chat_encoder(SERVERS["generic"]).encode(Request("m", messages=(Segment("c", (other,), 1),))))
