"""Progress on screen: lines for pipes, a view for terminals."""

from __future__ import annotations

import io
from collections.abc import Mapping

import anyio
import pytest
from front_story import Story, replied, spawned
from rich.console import Console

from shoal.cli._print import ago, line, seconds, spent, tokens, usd
from shoal.cli._screen import REFRESH_S, Lines, LiveView, NoScreen, chosen
from shoal.providers import Usage
from shoal.runtime.events import (
    ChildSpawned,
    InferenceFailed,
    InferenceRetried,
    LaneDegraded,
    Payload,
    RunEnded,
    RunPaused,
    RunRestarted,
    RunResumed,
    RunTitled,
    StageEntered,
)

ENTERED = StageEntered("survey", 1, "offline", "m", 8000)


class Printed(list[str]):
    """Lines that were printed."""

    def __init__(self, story: Story) -> None:
        super().__init__()
        self.lines = Lines(story.progress, self.append)


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def printed(story: Story) -> Printed:
    return Printed(story)


def family(story: Story, count: int) -> Story:
    story.tell("root", spawned(), ENTERED)
    for number in range(count):
        story.tell("root", ChildSpawned(f"c{number}", "reader"))
        story.tell(f"c{number}", spawned("reader", "root", f"{number}.md"), ENTERED)
    return story


# --- lines


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (ENTERED, "lead enters stage survey on offline:m"),
        (StageEntered("survey", 2, "offline", "m", 1), "lead enters stage survey on offline:m, visit 2"),
        (RunTitled("A title", "lane"), "lead is titled 'A title'"),
        (RunPaused("needs setup", "set the key"), "lead is paused: needs setup"),
        (RunResumed("user"), "lead goes on"),
        (RunRestarted("Traceback\n  line\nKeyError: 'x'\n", 1), "lead crashed and is restarted: KeyError: 'x'"),
        (
            InferenceRetried("stage", 1, 2, "ProviderBusy", "wait", 14.6),
            "lead asks again in 15 s, attempt 2 failed: ProviderBusy: wait",
        ),
        (InferenceFailed("stage", 1, "ProviderRefused", "no"), "lead got no reply: ProviderRefused: no"),
        (LaneDegraded("compaction", 1, "file", "timeout"), "lead goes on without compaction of file: timeout"),
        (LaneDegraded("titling", 1, "", "nonsense"), "lead goes on without titling: nonsense"),
        (RunEnded("complete", "it is done"), "lead ends complete (0 in, 0 out, $0)"),
        (RunEnded("error", "it is broken"), "lead ends error (0 in, 0 out, $0): it is broken"),
    ],
)
def test_what_a_person_wants_to_know_is_a_line(story: Story, printed: Printed, payload: Payload, expected: str):
    story.tell("root", spawned(), payload)
    printed.lines.close()
    assert printed == ["lead begins as run root: a task", expected]


def test_a_task_without_words_is_left_out(story: Story, printed: Printed):
    import msgspec

    story.tell("root", msgspec.structs.replace(spawned(), task=None))
    printed.lines.close()
    assert printed == ["lead begins as run root"]


def test_of_children_only_ends_and_troubles_are_told_with_a_count(story: Story, printed: Printed):
    family(story, 2).tell("c1", replied(), RunEnded("complete", ""))
    printed.lines.close()
    assert printed[2:] == ["reader 1.md ends complete (15 in (5 cached), 3 out, $0.5) [1 of 2]"]


def test_what_happens_inside_is_no_line(story: Story, printed: Printed):
    story.tell("root", spawned(), replied())
    printed.lines.close()
    assert len(printed) == 1


def test_a_line_stays_one_line(story: Story, printed: Printed):
    story.tell("root", spawned(), ChildSpawned("a", "reader"))
    story.tell("a", spawned("reader", "root", "two\nlines \x1b[31m.md"), RunEnded("complete", ""))
    printed.lines.close()
    assert printed[1].startswith("reader two\\nlines \\x1b[31m.md ends complete")


def test_lines_that_nobody_reads_end_the_printing_and_nothing_else(story: Story):
    def gone(_text: str) -> None:
        raise BrokenPipeError

    lines = Lines(story.progress, gone)
    story.tell("root", spawned(), ENTERED)
    lines.close()
    story.tell("root", RunEnded("complete", ""))
    lines.close()
    assert story.progress.runs["root"].over


@pytest.mark.anyio
async def test_lines_are_printed_as_things_happen(story: Story, printed: Printed):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(printed.lines.serve)
        story.tell("root", spawned())
        await anyio.sleep(REFRESH_S * 2)
        assert len(printed) == 1
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_no_screen_waits_and_shows_nothing():
    with anyio.move_on_after(5) as scope:
        await NoScreen().serve()
    NoScreen().close()
    assert scope.cancelled_caught


# --- the live view


def drawn(story: Story, height: int = 30, fill: Mapping[str, tuple[int, int]] | None = None) -> str:
    view = LiveView(story.progress, lambda _run: fill or {})
    console = Console(file=io.StringIO(), width=140)
    console.print(view.draw(height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_view_shows_runs_with_stage_fill_tokens_and_cost(story: Story):
    family(story, 1).tell("root", RunTitled("A title", "lane"), replied())
    said = drawn(story, fill={"notes": (950, 1000), "task": (10, 1000)})
    lead, reader = said.splitlines()[1:3]
    assert "lead  A title" in lead
    assert "survey" in lead
    assert "█ notes 95%  ▁ task 1%" in lead
    assert lead.split()[-2:] == ["18", "0.5"]
    assert reader.startswith("  reader 0.md")
    assert "0 of 2 runs over, 15 in (5 cached), 3 out, $0.5" in said


def test_a_run_that_is_over_or_paused_shows_that_in_place_of_its_stage(story: Story):
    family(story, 2).tell("c0", RunEnded("error", "broken"))
    story.tell("c1", RunPaused("needs setup"))
    said = drawn(story, fill={"notes": (1, 10)})
    assert "error" in said.splitlines()[2]
    assert "notes" not in said.splitlines()[2]
    assert "paused" in said.splitlines()[3]


def test_a_run_without_a_stage_is_starting_and_an_unknown_price_is_a_question_mark(story: Story):
    story.tell("root", spawned(), replied(None))
    assert "starting" in drawn(story)
    assert drawn(story).splitlines()[1].split()[-1] == "?"


def test_a_large_swarm_is_cut_to_the_screen_and_the_rest_is_counted(story: Story):
    family(story, 40)
    for number in range(10):
        story.tell(f"c{number}", RunEnded("complete", ""))
    said = drawn(story, height=14)
    assert len(said.splitlines()) <= 14
    assert "… 35 more: 25 running, 10 complete" in said or "… 35 more: 10 complete, 25 running" in said


def test_those_that_are_at_work_are_shown_before_those_that_are_over(story: Story):
    family(story, 6)
    for number in range(4):
        story.tell(f"c{number}", RunEnded("complete", ""))
    assert [run.run_id for run, _ in chosen(story.progress, 3)] == ["root", "c4", "c5"]
    assert len(chosen(story.progress, 5)) == 5


def test_nothing_is_shown_before_the_first_run(story: Story):
    assert chosen(story.progress, 5) == []
    assert "0 of 0 runs over" in drawn(story)


# --- figures


def test_figures_are_short():
    assert [tokens(n) for n in (0, 9_999, 10_000, 999_999, 1_500_000)] == ["0", "9999", "10k", "1000k", "1.5M"]
    assert [seconds(s) for s in (0.002, 1.26, 59.9, 61.5)] == ["2 ms", "1.3 s", "59.9 s", "1 min 1 s"]
    assert seconds(3725) == "1 h 2 min"
    assert (ago(100.0, 103.0), ago(100.0, 90.0)) == ("3.0 s ago", "0 ms ago")
    assert usd(None) == "?"
    assert spent(Usage(1, 0, 0, 0, 2), None) == "1 in, 2 out, ?"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\nc", "a\\tb\\nc"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("right\u202eleft", "right\\u202eleft"),
        ("lone \udc80", "lone \\udc80"),
        ("Grüße, 世界", "Grüße, 世界"),
    ],
)
def test_a_line_has_no_control_characters(text: str, expected: str):
    assert line(text) == expected


def test_a_line_is_cut_with_a_mark():
    assert line("x" * 10, 5) == "xxxx…"
