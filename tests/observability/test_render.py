"""A trace as text."""

from __future__ import annotations

from decimal import Decimal

import pytest
from spankit import CHILD, ROOT, Story

from shoal.observability import render_trace, trace_of
from shoal.providers import Text
from shoal.runtime import MemoryJournal
from shoal.runtime.events import (
    ChildEnded,
    ChildSpawned,
    LaneDegraded,
    LaneStarted,
    RunResumed,
    ToolCallCompleted,
    ToolCallStarted,
)


def drawn(*stories: Story) -> str:
    journal = MemoryJournal()
    for story in stories:
        for event in story.events:
            journal.append(event)
    journal.close()
    return render_trace(trace_of(journal, ROOT))


def begun() -> Story:
    story = Story()
    story.spawn()
    story.enter()
    return story


def row(text: str, name: str) -> str:
    [line] = [line for line in text.splitlines() if name in line]
    return line


def test_a_trace_is_drawn_as_a_tree_with_what_each_span_took_and_cost():
    above, below = begun(), Story(CHILD)
    reply = above.answer(above.ask(), calls=("fan_out",), usage=(1200, 0, 0, 0, 34, 0), simulated=True)
    above.add(ToolCallStarted(reply, 0), ChildSpawned(CHILD, "worker", reply, 0, "i-1", waited=True))
    below.at = above.at
    below.spawn("worker", parent=ROOT, waited=True, item="i-1")
    below.end("error", "it went wrong")
    above.add(ChildEnded(CHILD, "error", None))
    above.add(ToolCallCompleted(reply, 0, Text.of("1 failed")))
    above.leave()
    above.end()
    assert (
        drawn(above, below)
        == """\
span                             time     in  out  cost USD
invoke_agent desk             10.00 s  1,200   34      0.01
├─ stage work                  8.00 s  1,200   34      0.01
│  ├─ chat m                   1.00 s  1,200   34      0.01  simulated
│  └─ execute_tool fan_out     3.00 s
│     ├─ spawn worker               -
│     └─ invoke_agent worker   1.00 s      0    0         0  item i-1, error: it went wrong
└─ transition work → (end)     2.00 s"""
    )


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "-"), (0.000_25, "250 µs"), (0.0123, "12.3 ms"), (9.876, "9.88 s"), (3723.0, "62 min 03 s")],
)
def test_a_duration_is_shown_in_the_unit_that_fits_it(seconds: float, shown: str):
    story = Story()
    story.spawn()
    story.at += seconds - 1
    story.end()
    assert f" {shown} " in row(drawn(story), "invoke_agent")


def test_a_cost_is_shown_to_its_last_digit():
    story = begun()
    story.answer(story.ask(), cost=Decimal("0.0000123"))
    story.end()
    assert "0.0000123" in row(drawn(story), "chat m")


def test_what_is_not_over_says_so():
    story = begun()
    story.ask()
    assert row(drawn(story), "chat m").endswith("unfinished")
    assert row(drawn(story), "invoke_agent").endswith("unfinished")


def test_what_was_interrupted_and_went_well_says_so():
    story = begun()
    reply = story.answer(story.ask(), calls=("look",))
    story.add(ToolCallStarted(reply, 0), RunResumed("restart"), ToolCallCompleted(reply, 0, Text.of("x")))
    assert row(drawn(story), "execute_tool look").endswith("  interrupted")


def test_what_was_interrupted_and_came_to_nothing_says_so_once():
    story = begun()
    story.ask()
    story.add(RunResumed("restart"))
    line = row(drawn(story), "chat m")
    assert line.endswith("interrupted: the process died before the reply was recorded")


def test_a_reason_that_says_no_more_than_the_outcome_is_not_repeated():
    story = begun()
    job = story.add(LaneStarted("titling"))
    story.add(LaneDegraded("titling", job, "", "degraded"))
    assert row(drawn(story), "lane.titling").endswith("  degraded")


def test_a_name_that_is_too_long_is_cut():
    story = Story()
    story.spawn("x" * 150)
    assert len(row(drawn(story), "invoke_agent").split("  ")[0]) == 72


def test_no_spans_are_no_lines_but_the_heading():
    assert render_trace(()).split() == ["span", "time", "in", "out", "cost", "USD"]
