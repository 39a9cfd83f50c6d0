"""How long a text is, said without reading it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.providers import Text

HARD = st.text(st.sampled_from('ab"\\\n\t\x00\x1f/é\u2028😀u')) | st.text()


@given(HARD)
def test_any_text_has_its_length_in_characters_and_in_bytes(said: str):
    assert Text.of(said).measured == (len(said), len(said.encode()))


@given(HARD)
def test_any_text_is_read_back_as_it_was(said: str):
    assert str(Text.of(said)) == said


@given(HARD, HARD)
def test_a_text_made_of_two_is_as_long_as_both(first: str, second: str):
    joined = Text(Text.of(first).body + Text.of(second).body)
    assert joined.measured == (len(first + second), len((first + second).encode()))


@pytest.mark.parametrize("body", [rb"\u00e9", rb"a\\u00e9", rb"\/", rb"\\\u0041\\"])
def test_a_body_that_a_vendor_escaped_otherwise_is_measured_as_it_reads(body: bytes):
    text = Text(body)
    assert text.measured == (len(str(text)), len(str(text).encode()))


def test_half_a_character_in_a_vendors_body_can_still_be_read():
    assert str(Text(rb"a\ud83d")) == "a\ud83d"
