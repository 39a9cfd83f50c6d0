"""Spans of live runs: what an observer hands on, and what never reaches a run."""

from __future__ import annotations

import logging

import anyio
import pytest
from spankit import CHILD, LISTS, ROOT, Kept, Story, blueprint, by_id, fanned, played, spans_of

from shoal.blueprints import Stage
from shoal.errors import JournalDamaged
from shoal.observability import Projection, Span, Telemetry, TelemetryStatistics, trace_of
from shoal.observability import _project as project
from shoal.observability._follow import MOST_OVER, Following
from shoal.runtime import Event, MemoryJournal, Swarm, virtual
from shoal.runtime.events import ChildEnded, ChildSpawned, RunPaused, RunTitled
from shoal.testing import ScriptedProvider, call

THEIRS, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TITLED = {"titling": "A title"}


def story(**more: object) -> Story:
    told = Story()
    told.spawn(**more)
    told.enter()
    told.answer(told.ask())
    told.leave()
    told.end()
    return told


def kept_in(*stories: Story) -> MemoryJournal:
    journal = MemoryJournal()
    for one in stories:
        for event in one.events:
            journal.append(event)
    journal.close()
    return journal


@pytest.mark.anyio
async def test_live_spans_are_those_that_the_journal_gives():
    kept = Kept()
    items = [{"id": "a", "task": "one"}, {"id": "b", "task": "two"}]
    provider = ScriptedProvider(call("fan_out", items=items), "a says", "b says", purposes=TITLED)
    journal, run_id = await played(fanned(), provider, observers=[Telemetry(kept)])
    assert len(kept.spans) > 10
    assert by_id(kept.spans) == by_id(trace_of(journal, run_id))


@pytest.mark.anyio
async def test_a_swarm_carries_it_as_an_observer_and_a_worker_beside():
    kept = Kept()
    telemetry = Telemetry(kept)
    made = blueprint(Stage("read", available_tools=LISTS))
    provider = ScriptedProvider(call("list_dir"), "read it", purposes=TITLED)
    beside = {"telemetry": telemetry.serve}
    async with Swarm([provider], observers=[telemetry], beside=beside, clock=virtual()) as swarm:
        run = await swarm.spawn(made, task="go")
        await run.result()
        assert "telemetry" in swarm.tree.render()
    await telemetry.aclose()
    assert kept.closed == 1
    assert {span.name for span in kept.spans} >= {"invoke_agent desk", "stage read", "execute_tool list_dir"}


@pytest.mark.anyio
async def test_it_is_flushed_when_the_swarm_stops():
    flushed: list[float] = []

    class Flushed(Kept):
        def flush(self, timeout_s: float) -> bool:
            flushed.append(timeout_s)
            return True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Telemetry(Flushed()).serve)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert flushed == [5.0]


@pytest.mark.anyio
async def test_closing_is_finished_also_by_a_task_that_is_cancelled():
    kept = Kept()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Telemetry(kept).aclose()
    assert kept.closed == 1


def fed(telemetry: Telemetry, *stories: Story) -> None:
    for told in stories:
        for event in told.events:
            telemetry(event)


def test_everything_is_counted():
    telemetry = Telemetry(Kept())
    fed(telemetry, story())
    assert telemetry.statistics() == TelemetryStatistics(spans=4, exported=4)
    assert repr(telemetry).startswith("<Telemetry 4 spans, <")


def test_spans_of_a_trace_that_is_not_recorded_go_nowhere():
    kept = Kept()
    telemetry = Telemetry(kept)
    fed(telemetry, story(trace=f"00-{THEIRS}-{PARENT}-00"))
    assert (kept.spans, telemetry.statistics().unsampled) == ([], 4)


def test_content_is_captured_where_it_is_wanted():
    kept = Kept()
    fed(Telemetry(kept, capture_content=True), story())
    assert "gen_ai.output.messages" in kept.spans[0].attributes


# --- runs that began before


def test_a_run_that_began_before_is_caught_up_with_and_what_ended_before_is_not_sent_again():
    told, kept = story(), Kept()
    telemetry = Telemetry(kept, history=kept_in(told))
    for event in told.events[4:]:
        telemetry(event)
    assert by_id(kept.spans) == by_id([span for span in spans_of(told) if span.name != "chat m"])


def test_a_run_that_began_before_is_left_out_where_there_is_no_journal():
    told, kept = story(), Kept()
    telemetry = Telemetry(kept)
    for event in told.events[2:]:
        telemetry(event)
    assert (kept.spans, telemetry.statistics().left_out) == ([], 1)


def test_a_run_that_the_journal_does_not_hold_changes_nothing():
    told, kept = story(), Kept()
    telemetry = Telemetry(kept, history=MemoryJournal())
    for event in told.events[2:]:
        telemetry(event)
    assert kept.spans == []


def test_an_event_that_was_caught_up_with_is_not_taken_twice():
    told, kept = story(), Kept()
    telemetry = Telemetry(kept, history=kept_in(told))
    telemetry(told.events[2])
    fed(telemetry, told)
    assert by_id(kept.spans) == by_id(spans_of(told))


def test_an_event_that_comes_late_for_a_run_that_is_over_changes_nothing():
    told, kept = story(), Kept()
    telemetry = Telemetry(kept, history=kept_in(told))
    fed(telemetry, told)
    telemetry(Event(ROOT, len(told.events) + 1, told.at, RunTitled("late", "lane")))
    assert len(kept.spans) == 4


def test_an_event_that_comes_late_for_a_run_long_over_is_looked_up_and_sends_nothing_again():
    told, kept = story(), Kept()
    telemetry = Telemetry(kept, history=kept_in(told))
    fed(telemetry, told)
    for number in range(MOST_OVER):
        run = Story(f"run-{number}")
        run.spawn(root=f"run-{number}")
        run.end()
        fed(telemetry, run)
    sent = len(kept.spans)
    telemetry(Event(ROOT, len(told.events) + 1, told.at, RunTitled("late", "lane")))
    assert len(kept.spans) == sent


def family() -> tuple[Story, Story]:
    above, below = Story(), Story(CHILD)
    above.spawn(trace=f"00-{THEIRS}-{PARENT}-01")
    above.add(ChildSpawned(CHILD, "worker"))
    below.spawn("worker", parent=ROOT)
    below.end()
    above.add(ChildEnded(CHILD, "complete", None))
    above.end()
    return above, below


def test_the_parent_of_a_run_that_began_before_is_caught_up_with_first():
    above, below = family()
    kept = Kept()
    telemetry = Telemetry(kept, history=kept_in(above, below))
    for event in (below.events[1], above.events[2], above.events[3]):
        telemetry(event)
    child = next(span for span in kept.spans if span.name == "invoke_agent worker")
    assert (child.trace_id, child.parent_id) == (THEIRS, spans_of(above)[-1].span_id)


def test_a_parent_that_is_followed_already_is_not_read_again():
    above, below = family()
    read: list[str] = []

    journal = kept_in(above, below)
    telemetry = Telemetry(Kept(), history=Counted(journal, read))
    for event in (*above.events[:2], below.events[1]):
        telemetry(event)
    assert read == [CHILD]


class Counted:
    """A reader that notes what is read."""

    def __init__(self, journal: MemoryJournal, read: list[str]) -> None:
        self._journal = journal
        self._read = read
        self.runs, self.find, self.definition = journal.runs, journal.find, journal.definition

    def read(self, run_id: str, *, after: int = 0):
        self._read.append(run_id)
        return self._journal.read(run_id, after=after)


# --- faults


class Broken(Kept):
    """A sink that cannot take a span of a stage."""

    def emit(self, span: Span) -> None:
        if span.name == "stage work":
            raise LookupError("no such stage")
        super().emit(span)


def test_a_fault_costs_the_spans_of_one_run_and_is_told_once(caplog: pytest.LogCaptureFixture):
    telemetry = Telemetry(Broken())
    other = Story(CHILD)
    other.spawn(root=CHILD)
    other.enter()
    other.leave()
    other.end()
    with caplog.at_level(logging.WARNING):
        fed(telemetry, story(), other)
    [record] = caplog.records
    assert record.name == "shoal.observability"
    assert "is left out of telemetry from event 6 (StageLeft) on" in record.getMessage()
    assert record.exc_info is not None
    counted = telemetry.statistics()
    assert (counted.faults, counted.left_out, counted.exported) == (2, 2, 1)


@pytest.mark.anyio
async def test_a_fault_does_not_reach_the_run():
    made = blueprint(Stage("work"))
    provider = ScriptedProvider("read it", purposes=TITLED)
    journal, run_id = await played(made, provider, observers=[Telemetry(Broken())])
    assert journal.find(run_id).status == "complete"


def test_a_journal_that_cannot_be_read_costs_the_run_that_is_read(caplog: pytest.LogCaptureFixture):
    class Damaged(MemoryJournal):
        def read(self, run_id: str, *, after: int = 0):
            raise JournalDamaged("torn", run_id=run_id, seq=1)

    kept = Kept()
    telemetry = Telemetry(kept, history=Damaged())
    for event in story().events[2:]:
        telemetry(event)
    assert (telemetry.statistics().faults, len(caplog.records)) == (1, 1)


def test_what_follows_runs_shows_how_many():
    taken: list[tuple[int, bool]] = []
    following = Following(lambda event, replayed: taken.append((event.seq, replayed)), None)
    told = Story()
    told.spawn()
    told.add(RunPaused("wait"))
    for event in told.events:
        following(event)
    assert (repr(following), taken) == ("<Following 1 runs, 0 left out>", [(1, False), (2, False)])


def test_children_that_were_announced_and_never_begin_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(project, "MOST_BIRTHS", 1)
    above, below = Story(), Story(CHILD)
    above.spawn()
    above.add(ChildSpawned(CHILD, "worker"), ChildSpawned("another", "worker"))
    below.spawn("worker", parent=ROOT)
    below.end()
    [child] = [span for span in spans_of(above, below) if span.name == "invoke_agent worker"]
    assert child.parent_id is None


def test_a_projection_shows_how_many_runs_are_open():
    projection = Projection()
    projection.feed(story().events[0])
    assert repr(projection) == "<Projection 1 runs open>"
