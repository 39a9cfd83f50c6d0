"""Summaries and titles taken from a text itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.providers._extract import extract, summarise, title, words_of

MARKDOWN = """\
# The harbour

[![build](https://x/y.png)](https://x)

The harbour was built in 1850 and rebuilt after the great storm. It serves forty **fishing boats** today.

```
pier --open
```

- The *north pier* is closed for repairs
  until the end of the year.
- See [the map](https://example.org/map) for the piers of the harbour.

| pier | boats |
|------|-------|
| east | 12    |
"""

SOURCE = '''\
import os
from x import (
    y,
)

# The lock guards the table of piers while a boat moves.
LOCK = make_lock()


def moor(boat, pier):
    """Moor a boat at a pier and note the time.

    Args:
        boat: The boat that asks.
    """
    if pier is None:
        return None
    return pier.table[boat]
'''

LOG = "".join(
    f"2026-01-01 10:00:{second:02} INFO worker {second} handled request in {second} ms\n" for second in range(60)
)


def test_prose_is_taken_without_its_markup():
    said = extract(MARKDOWN, 3)
    assert "fishing boats" in extract(MARKDOWN, 9)
    assert "the map for the piers" in extract(MARKDOWN, 9)
    assert not any(mark in extract(MARKDOWN, 9) for mark in ("#", "**", "](", "```", "|--", "pier --open |"))
    assert len(said.splitlines()) == 3


def test_an_item_is_taken_with_the_lines_that_it_goes_on_in():
    assert "The *north pier* is closed for repairs until the end of the year." in extract(MARKDOWN, 9).splitlines()


def test_sentences_stand_in_the_order_of_the_text():
    text = "Boats came early. Storms broke the old pier of the harbour. The harbour has a new pier. Fog stayed away."
    lines = extract(text, 3).splitlines()
    assert len(lines) == 3
    assert [text.find(line) for line in lines] == sorted(text.find(line) for line in lines)


def test_source_code_is_known_by_what_people_wrote_in_it():
    lines = extract(SOURCE, 3).splitlines()
    assert "The lock guards the table of piers while a boat moves." in lines
    assert "Moor a boat at a pier and note the time." in lines
    assert not any("import" in line or "return" in line for line in lines)


def test_a_log_gives_its_failures_before_its_routine():
    log = LOG + "2026-01-01 10:01:07 ERROR worker 7 lost its connection to the database\n" + LOG
    assert "ERROR worker 7 lost its connection" in extract(log, 1)


def test_lines_that_differ_in_numbers_only_are_said_once():
    assert len(extract(LOG, 9).splitlines()) == 1


def test_two_sentences_that_say_the_same_are_not_both_taken():
    text = "The old harbour serves forty boats. The old harbour serves forty ships boats. Storms broke the pier twice."
    assert len(extract(text, 2).splitlines()) == 2
    assert "Storms" in extract(text, 2)


@pytest.mark.parametrize("text", ["", "# Title\n", "```\n---\n", "the of and"])
def test_a_text_that_says_nothing_gives_nothing(text: str):
    assert extract(text, 3) == ""


@given(text=st.text(), sentences=st.integers(1, 5))
def test_an_extract_has_no_more_lines_than_asked_for_and_is_the_same_each_time(text: str, sentences: int):
    said = extract(text, sentences)
    assert len(said.split("\n")) <= sentences
    assert extract(text, sentences) == said


@given(text=st.text(min_size=2), max_tokens=st.integers(1, 50))
def test_a_summary_is_shorter_than_the_text_and_within_the_limit(text: str, max_tokens: int):
    said = summarise(text, max_tokens)
    assert len(said.encode("utf-8", "surrogatepass")) < len(text.encode("utf-8", "surrogatepass"))
    assert len(said.encode()) <= 4 * max_tokens


def test_a_summary_of_prose_is_made_of_its_sentences():
    said = summarise(MARKDOWN, 30)
    assert said
    assert all(line in " ".join(MARKDOWN.replace("**", "").split()) for line in said.splitlines())


def test_a_text_of_one_sentence_is_cut_at_a_word():
    assert summarise("one two three four", 2) == "one two"


def test_a_short_first_sentence_is_the_title():
    assert title("Summarise the notes in this folder. Be brief.") == "Summarise the notes in this folder"


def test_a_long_task_is_titled_by_its_key_phrases():
    task = (
        "Please read all of the meeting notes in the shared folder and then write one report that lists every open "
        "decision of the harbour board, who owns it and the date by which it has to be made"
    )
    assert title(task) == "Meeting notes, shared folder, open decision, harbour board"


def test_capitals_of_key_phrases_are_kept():
    task = "Please look at all that the Harbour Board of Trieste has had to say about it in each of the years " * 2
    assert title(task).startswith("Harbour Board")


@pytest.mark.parametrize("text", ["", "...", "\n\n"])
def test_a_task_that_says_nothing_is_untitled(text: str):
    assert title(text) == "Untitled"


@given(text=st.text())
def test_a_title_is_one_short_line_that_is_not_empty(text: str):
    made = title(text)
    assert 0 < len(made) <= 80
    assert len(made.splitlines()) == 1


def test_words_are_compared_without_case_plural_and_filler():
    assert words_of("The Boats_of the harbour's piers") == {"boat", "harbour", "pier"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "The file 'pkg/__init__.py' holds `__version__` and more.",
            "The file 'pkg/__init__.py' holds `__version__` and more.",
        ),
        ("It serves __forty fishing boats__ today.", "It serves forty fishing boats today."),
    ],
)
def test_names_keep_their_underscores_and_emphasis_goes(text: str, said: str):
    assert extract(text, 1) == said
