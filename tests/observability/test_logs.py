"""Log lines of runs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
import structlog
from spankit import CHILD, LISTS, ROOT, Story, blueprint, one, played, spans_of

from shoal.blueprints import Blueprint, Observations, Region, Stage, load, resolve
from shoal.errors import JournalDamaged
from shoal.observability import Logs, logs, trace_of
from shoal.providers import Finish, Text
from shoal.runtime import Event, MemoryJournal, Program
from shoal.runtime._bundle import bundle_of
from shoal.runtime.context import ContextCompacted, PromptEpoch
from shoal.runtime.events import (
    BlueprintChanged,
    ChildEnded,
    ChildSpawned,
    GateBlocked,
    GateForced,
    InferenceCompleted,
    InferenceFailed,
    InferenceRetried,
    InferenceStarted,
    ItemRefused,
    LaneDegraded,
    MessageReceived,
    ModelChanged,
    Nudged,
    Payload,
    RunPaused,
    RunRestarted,
    RunResumed,
    ScriptFailed,
    ToolCallCompleted,
    VolatilityBroken,
)
from shoal.testing import ScriptedProvider, call

THEIRS, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(*stories: Story, level: Any = "debug", journal: MemoryJournal | None = None, after: int = 0) -> list[Any]:
    """Return the lines of the events of *stories* behind seq *after*, read back."""
    stream = io.StringIO()
    watching = logs(stream, level=level, history=journal)
    for story in stories:
        for event in story.events[after:]:
            watching(event)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def begun(**more: Any) -> Story:
    story = Story()
    story.spawn(**more)
    story.enter()
    return story


def kept_in(*stories: Story) -> MemoryJournal:
    journal = MemoryJournal()
    for story in stories:
        for event in story.events:
            journal.append(event)
    journal.close()
    return journal


def test_a_line_says_which_run_and_stage_and_leads_to_its_span():
    story = begun()
    story.leave(error="went\nwrong", reason="error")
    story.end("error", "because\nof this")
    spans = spans_of(story)
    stage, run = one(spans, "stage work"), one(spans, "invoke_agent desk")
    left, ended = [line for line in lines(story) if line["event"] in ("stage left", "run ended")]
    assert (left["stage"], left["span_id"], left["error"]) == ("work", stage.span_id, "went")
    assert (left["run_id"], left["trace_id"], left["level"]) == (ROOT, stage.trace_id, "warning")
    assert (ended["span_id"], ended["status"], ended["reason"]) == (run.span_id, "error", "because")
    assert "stage" not in ended


def test_a_line_of_a_request_leads_to_the_span_of_the_request():
    story = begun()
    first = story.ask()
    story.add(InferenceRetried("stage", first, 1, "ProviderBusy", "wait", 0.12345))
    story.answer(first, usage=(4, 3, 2, 1, 5, 2), cost=Decimal("0.0100"))
    second = story.ask()
    story.add(InferenceFailed("stage", second, "ProviderBusy", "no more"))
    story.leave()
    chats = [span.span_id for span in spans_of(story) if span.name == "chat m"]
    retried, answered, failed = [line for line in lines(story) if "inference" in line["event"]]
    assert [line["span_id"] for line in (retried, answered, failed)] == [chats[0], chats[0], chats[1]]
    assert (retried["attempt"], retried["delay_s"]) == (1, 0.123)
    assert (answered["input_tokens"], answered["cached_tokens"], answered["cost_usd"]) == (10, 3, "0.0100")
    assert (failed["error"], failed["message"]) == ("ProviderBusy", "no more")


def test_a_request_that_was_never_sent_leads_to_its_stage():
    story = begun()
    story.add(InferenceFailed("stage", 0, "ContextOverflow", "too much"))
    story.leave()
    [failed] = [line for line in lines(story) if line["event"] == "inference failed"]
    assert failed["span_id"] == one(spans_of(story), "stage work").span_id


def test_a_reply_budget_that_was_cut_is_a_warning_and_any_other_is_no_line():
    story = begun()
    story.add(InferenceStarted("stage", "scripted", "m", 1, 900, "d", 100, wanted_tokens=400))
    story.add(InferenceStarted("stage", "scripted", "m", 1, 900, "d", 100))
    [line] = [line for line in lines(story) if line["event"] == "reply budget cut"]
    assert (line["level"], line["reply_tokens"], line["wanted_tokens"]) == ("warning", 100, 400)


def answered(finish: Finish) -> InferenceCompleted:
    return InferenceCompleted("stage", 0, Text.of(""), (), (1, 0, 0, 0, 0, 0), None, (), finish)


SAID: list[tuple[Payload, str, str, dict[str, object]]] = [
    (
        VolatilityBroken("rules", 90),
        "a region declared `stable` keeps changing",
        "warning",
        {"region": "rules", "tokens": 90},
    ),
    (
        PromptEpoch("eviction", 9, 2),
        "prompt made anew",
        "debug",
        {"reason": "eviction", "tokens": 9, "thinking_dropped": 2},
    ),
    (RunPaused("needs setup"), "run paused", "warning", {"reason": "needs setup"}),
    (RunResumed("user"), "run resumed", "info", {"by": "user"}),
    (RunRestarted("Traceback\nKeyError: 1", 1), "run restarted", "error", {"error": "KeyError: 1", "attempt": 1}),
    (ChildSpawned(CHILD, "worker"), "child spawned", "debug", {"child": CHILD, "agent": "worker"}),
    (ChildEnded(CHILD, "error", None), "child ended", "debug", {"status": "error"}),
    (answered("refusal"), "inference completed", "warning", {"finish": "refusal"}),
    (answered("stop"), "inference completed", "debug", {"finish": "stop"}),
    (GateBlocked("tell", "require_regions", 2), "gate blocked", "info", {"target": "tell", "attempt": 2}),
    (GateForced("tell", "require_regions"), "gate forced", "warning", {"requirement": "require_regions"}),
    (ModelChanged("p", "m", 9, "busy"), "model changed", "warning", {"provider": "p", "reason": "busy"}),
    (BlueprintChanged("d", "b", ("budget", "stages.a")), "blueprint changed", "info", {"changed": "budget, stages.a"}),
    (ItemRefused(3, 0, "a", Text.of("the secret")), "item refused", "warning", {"item": "a"}),
    (MessageReceived(Text.of("the secret")), "message received", "info", {"sender": "user"}),
    (ToolCallCompleted(3, 0, Text.of("x")), "tool call completed", "debug", {"call": "call_3_0", "failed": False}),
    (ToolCallCompleted(3, 0, Text.of("x"), True, gate="schema"), "tool call completed", "debug", {"gate": "schema"}),
    (LaneDegraded("titling", 4, "", "nonsense", "'the secret'"), "lane degraded", "warning", {"reason": "nonsense"}),
    (LaneDegraded("titling", 4, "", "dropped"), "lane degraded", "debug", {"lane": "titling"}),
    (
        ScriptFailed("blueprint:b.py", "render", "raised", "'the secret'", "brain"),
        "script failed",
        "warning",
        {"script": "blueprint:b.py", "function": "render", "region": "brain", "reason": "raised"},
    ),
    (ContextCompacted("notes", (1, 2), (1,), Text.of("s"), 9, 5), "context compacted", "info", {"bytes_saved": 5}),
]


@pytest.mark.parametrize(("payload", "event", "level", "fields"), SAID)
def test_each_noteworthy_event_has_its_line(payload: Payload, event: str, level: str, fields: dict[str, object]):
    story = begun()
    story.add(payload)
    line = lines(story)[-1]
    assert (line["event"], line["level"], line["stage"], line["seq"]) == (event, level, "work", 3)
    assert fields.items() <= line.items()
    assert "secret" not in str(line)


def test_a_script_that_goes_on_failing_is_said_once_for_each_region_and_function():
    story = begun()
    for region, function in (("a", "render"), ("b", "render"), ("a", "render"), ("a", "on_write")):
        story.add(ScriptFailed("blueprint:b.py", function, "time", "", region))
    said = [(line["region"], line["function"]) for line in lines(story) if line["event"] == "script failed"]
    assert said == [("a", "render"), ("b", "render"), ("a", "on_write")]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Blueprint("bare", (Stage("work"),)), True),
        (Blueprint("written", (Stage("work"),), observations=Observations(profile="coding")), False),
        (Blueprint("laid-out", (Stage("work"),), regions=(Region("notes", max_tokens=100),)), False),
    ],
    ids=["bare", "written", "laid-out"],
)
def test_a_run_on_default_knobs_says_so_once_and_names_the_page(made: Blueprint, said: bool):
    program = Program(bundle_of(made, lambda name, base: load(resolve(name, base=base))))
    journal = MemoryJournal()
    journal.define("digest", program.definition)
    by_default = [line for line in lines(begun(), level="info", journal=journal) if "by default" in line["event"]]
    assert [(line["level"], line["docs"]) for line in by_default] == ([("info", "docs/windows.md")] if said else [])


def test_a_run_whose_definition_nobody_has_says_nothing_of_it():
    assert not [line for line in lines(begun(), journal=MemoryJournal()) if "by default" in line["event"]]


def test_what_nobody_looks_for_has_no_line():
    story = begun()
    story.add(Nudged("gate", Text.of("go on")))
    story.ask()
    assert [line["event"] for line in lines(story)] == ["run spawned", "stage entered"]


def test_only_what_is_as_grave_as_wanted_is_written():
    story = begun()
    story.add(RunPaused("wait"))
    assert [line["event"] for line in lines(story, level="warning")] == ["run paused"]


def test_a_child_says_whose_it_is_and_is_in_the_trace_of_its_parent():
    above, below = begun(trace=f"00-{THEIRS}-{PARENT}-01"), Story(CHILD)
    below.spawn("worker", parent=ROOT, item="i-1")
    child = lines(above, below)[-1]
    assert (child["trace_id"], child["parent"], child["item"]) == (THEIRS, ROOT, "i-1")


def test_a_child_whose_tree_was_not_seen_is_in_the_trace_that_its_root_joined():
    above, below = begun(trace=f"00-{THEIRS}-{PARENT}-01"), Story(CHILD)
    below.spawn("worker", parent=ROOT)
    below.enter()
    below.leave()
    line = lines(below, journal=kept_in(above, below), after=2)[0]
    assert (line["trace_id"], line["stage"]) == (THEIRS, "work")


def test_a_child_of_which_nothing_else_is_known_is_in_the_trace_of_its_root():
    below = Story(CHILD)
    below.spawn("worker", parent=ROOT)
    [line] = lines(below)
    assert line["trace_id"] == ROOT.replace("-", "")
    [line] = lines(below, journal=MemoryJournal())
    assert line["trace_id"] == ROOT.replace("-", "")


def test_a_run_that_was_not_seen_from_the_start_has_lines_that_say_what_is_known():
    story = begun()
    story.leave()
    story.end()
    first, *_, last = lines(story, after=2)
    assert (first["run_id"], "trace_id" in first, "stage" in first) == (ROOT, False, False)
    assert last["event"] == "run ended"


def test_a_journal_that_ends_before_the_event_says_what_it_knows():
    earlier, whole = begun(), begun()
    whole.leave()
    first = lines(whole, journal=kept_in(earlier), after=2)[0]
    assert (first["event"], first["stage"]) == ("transition", "work")


def test_a_child_of_a_run_that_was_not_seen_from_the_start_has_the_trace_of_its_root():
    above, below = begun(), Story(CHILD)
    above.leave()
    below.spawn("worker", parent=ROOT)
    stream = io.StringIO()
    watching = logs(stream)
    watching(above.events[-1])
    watching(below.events[0])
    assert json.loads(stream.getvalue().splitlines()[-1])["trace_id"] == ROOT.replace("-", "")


@pytest.mark.anyio
async def test_the_ids_of_lines_are_those_of_the_spans():
    stream = io.StringIO()
    made = blueprint(Stage("read", available_tools=LISTS))
    provider = ScriptedProvider(call("list_dir"), "read it", purposes={"titling": "A title"})
    journal, run_id = await played(made, provider, observers=[logs(stream, level="debug")])
    read = [json.loads(line) for line in stream.getvalue().splitlines()]
    spans = {span.span_id for span in trace_of(journal, run_id)}
    assert len(read) > 5
    assert {line["span_id"] for line in read} <= spans


def test_a_journal_that_is_damaged_costs_what_a_line_could_have_said_and_nothing_else():
    class Damaged(MemoryJournal):
        def read(self, run_id: str, *, after: int = 0) -> Iterator[Event]:
            yield from super().read(run_id)
            raise JournalDamaged("torn", run_id=run_id, seq=3)

    journal = Damaged()
    story = begun()
    for event in story.events[:2]:
        journal.append(event)
    journal.close()
    story.leave()
    stream = io.StringIO()
    watching = logs(stream, level="debug", history=journal)
    watching(story.events[2])
    assert json.loads(stream.getvalue())["stage"] == "work"
    assert watching.lost == 1


# --- where they go


def test_a_terminal_gets_lines_for_people():
    stream = Terminal()
    logs(stream)(begun().events[0])
    assert "run spawned" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(stream.getvalue())


def test_the_kind_of_lines_can_be_chosen():
    stream = Terminal()
    logs(stream, json=True)(begun().events[0])
    assert json.loads(stream.getvalue())["timestamp"] == "2026-01-01T00:00:00+00:00"
    plain = io.StringIO()
    logs(plain, json=False)(begun().events[0])
    assert "agent=desk" in plain.getvalue()


def test_lines_go_to_standard_error_by_default(capsys: pytest.CaptureFixture[str]):
    logs()(begun().events[0])
    captured = capsys.readouterr()
    assert (captured.out, json.loads(captured.err)["event"]) == ("", "run spawned")


def test_a_stream_that_is_closed_costs_lines_and_nothing_else():
    stream = io.StringIO()
    watching = logs(stream)
    stream.close()
    watching(begun().events[0])
    assert (watching.lost, repr(watching)) == (1, "<Logs of 1 runs>")


def test_nothing_of_logging_is_set_up_but_what_is_asked_for():
    before = (list(logging.root.handlers), logging.root.level, structlog.is_configured())
    logs(io.StringIO())(begun().events[0])
    assert (list(logging.root.handlers), logging.root.level, structlog.is_configured()) == before
    assert not logging.getLogger("shoal").handlers


def test_any_logger_that_has_a_log_may_take_the_lines():
    said: list[tuple[int, str, str]] = []

    class Mine:
        def log(self, level: int, event: str, **fields: Any) -> None:
            said.append((level, event, fields["run_id"]))

    Logs(Mine())(begun().events[0])
    assert said == [(logging.INFO, "run spawned", ROOT)]
