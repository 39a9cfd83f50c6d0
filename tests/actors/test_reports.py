"""What a supervisor shows of itself."""

from __future__ import annotations

import gc
import weakref

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from troupe import Adder, Crash

import shoal.actors
from shoal.actors import Backoff, ChildSpec, DynamicSupervisor, Reason, SupervisionEvent, Supervisor, Worker, running
from shoal.errors import StartFailed

pytestmark = pytest.mark.anyio


async def test_an_event_says_what_happened_to_whom_when_and_why(troupe, witness):
    tree = Supervisor("app", backoff=Backoff(initial=2.0, jitter=0.0), children=troupe.children("a"))
    async with running(tree, observer=witness):
        before = anyio.current_time()
        troupe.crash("a")
        event = await witness.until("restarting")
    assert event == SupervisionEvent(
        at=event.at, kind="restarting", supervisor="/app", child="a", reason=event.reason, attempt=1, delay_s=2.0
    )
    assert event.at == pytest.approx(before, abs=0.01)
    assert str(event) == f"{event.at:.3f} /app/a restarting, attempt 1 in 2 s, crashed: ValueError('a')"


def test_an_event_reads_as_one_line():
    event = SupervisionEvent(at=1.5, kind="started", supervisor="/app", child="a")
    assert str(event) == "1.500 /app/a started"


async def test_the_history_has_what_the_observer_was_told(troupe, witness):
    tree = Supervisor("app", children=troupe.children("a"))
    async with running(tree, observer=witness):
        troupe.crash("a")
        await witness.until("started", times=2)
    assert list(tree.history()) == witness.events
    assert [event.kind for event in tree.history()] == ["started", "exited", "restarting", "started", "stopped"]


async def test_the_history_keeps_the_newest_200_events(troupe, witness):
    tree = DynamicSupervisor("app")
    async with running(tree, observer=witness):
        for number in range(150):
            await tree.start_child(troupe.child(f"n{number}", restart="temporary"))
            await tree.terminate_child(f"n{number}")
    assert list(tree.history()) == witness.events[-200:]


async def test_the_history_goes_on_over_a_restart_of_its_supervisor(troupe, witness):
    inner = Supervisor("inner", max_restarts=0, children=troupe.children("a"))
    async with running(Supervisor("app", children=[inner]), observer=witness):
        troupe.crash("a")
        await witness.until("started", "inner", times=2)
        assert [event.kind for event in inner.history()] == ["started", "exited", "gave_up", "started"]


@pytest.mark.parametrize("options", [{}, {"max_restarts": 0}, {"restart": "temporary"}])
async def test_a_traceback_is_kept_as_text_and_the_frames_are_let_go(witness, options):
    made: list[weakref.ref[Adder]] = []

    def make() -> Adder:
        actor = Adder()
        made.append(weakref.ref(actor))
        return actor

    tree = Supervisor("app", children=[ChildSpec("one", make, **options)])
    async with running(tree, observer=witness):
        tree.ref("one").send_nowait(Crash("boom"))
        await witness.until("exited")
        await wait_all_tasks_blocked()
        gc.collect()
        assert made[0]() is None
    event = witness.seen("exited")[0]
    assert "raise ValueError(message.text)" in event.reason.traceback()
    assert repr(event.reason.error) == "ValueError('boom')"
    assert event.reason.error.__traceback__ is None


async def test_the_history_keeps_no_frames_of_a_start_that_failed(witness):
    made: list[weakref.ref[Adder]] = []

    class Broken(Adder):
        async def on_start(self) -> None:
            made.append(weakref.ref(self))
            raise OSError("no disk") from ExceptionGroup("both", [ValueError("x")])

    async with running(DynamicSupervisor("app")) as tree:
        with pytest.raises(StartFailed) as caught:
            await tree.start_child(ChildSpec("one", Broken))
        assert caught.value.__cause__.__traceback__ is not None
        del caught
        (event,) = tree.history()
        gc.collect()
        assert made[0]() is None
    assert str(event.reason) == "crashed: \"OSError('no disk')\""
    assert "no disk" in event.reason.traceback()


async def test_the_history_keeps_no_frames_of_a_stop_that_went_wrong():
    made: list[weakref.ref[Adder]] = []

    class Clumsy(Adder):
        async def on_stop(self, reason: Reason) -> None:
            made.append(weakref.ref(self))
            raise OSError("oops")

    async with running(Supervisor("app", children=[ChildSpec("one", Clumsy)])) as tree:
        await tree.terminate_child("one")
        await wait_all_tasks_blocked()
        gc.collect()
        assert made[0]() is None


async def test_the_frames_of_a_group_and_of_all_that_led_to_it_are_let_go(witness):
    async def fail() -> None:
        try:
            async with anyio.create_task_group():
                raise ValueError("inner")
        except ExceptionGroup as group:
            group.exceptions[0].__context__ = group  # a ring
            raise OSError("outer") from group

    async with running(Supervisor("app", children=[Worker("one", fail, restart="temporary")]), observer=witness):
        event = await witness.until("exited")
        await wait_all_tasks_blocked()
    group = event.reason.error.__cause__
    assert (group.__traceback__, group.exceptions[0].__traceback__) == (None, None)


def test_a_reason_reads_as_what_it_says():
    assert [
        str(Reason("normal")),
        str(Reason("shutdown", detail="later")),
        str(Reason("crashed", error=OSError("x"))),
    ] == [
        "normal",
        "shutdown: 'later'",
        "crashed: OSError('x')",
    ]
    assert Reason("normal").traceback() == ""
    assert Reason("killed").without_error() == Reason("killed")


async def test_children_tells_how_each_child_is(troupe, witness):
    inner = Supervisor("inner")
    children = [ChildSpec("one", Adder), troupe.child("a"), inner]
    async with running(Supervisor("app", children=children), observer=witness) as tree:
        troupe.crash("a")
        await witness.until("started", "a", times=2)
        await anyio.sleep(3)
        one, a, below = tree.children()
    assert (one.kind, one.ref.path, one.restarts, one.reason, one.restart) == (
        "actor",
        "/app/one",
        0,
        None,
        "permanent",
    )
    assert (a.kind, a.ref, a.restarts, str(a.reason)) == ("worker", None, 1, "crashed: ValueError('a')")
    assert a.up_s == pytest.approx(3.0, abs=0.2)
    assert (below.kind, below.supervisor) == ("supervisor", inner)


def test_children_of_a_tree_that_does_not_run_are_down():
    inner = Supervisor("inner")
    tree = Supervisor("app", children=[ChildSpec("one", Adder), inner])
    assert [(child.id, child.state, child.supervisor) for child in tree.children()] == [
        ("one", "down", None),
        ("inner", "down", inner),
    ]


async def test_render_draws_the_tree_with_nested_supervisors_and_what_happened(troupe, witness):
    inner = Supervisor("workers", strategy="rest_for_one", max_restarts=None, children=troupe.children("xy"))
    children = [
        ChildSpec("lead", Adder),
        inner,
        troupe.child("beat", restart="transient", backoff=Backoff(initial=8.0, jitter=0.0)),
        troupe.child("done", restart="temporary"),
    ]
    async with running(
        Supervisor("research", max_restarts=3, within_s=60.0, children=children), observer=witness
    ) as tree:
        for time in (2, 3):
            tree.ref("lead").send_nowait(Crash())
            await witness.until("started", "lead", times=time)
        troupe.crash("beat")
        await witness.until("restarting", "beat")
        assert tree.render().splitlines() == [
            "research  one_for_one  running  3 restarts in 60 s",
            "├─ lead  actor  permanent  running  2 restarts  last end crashed: ValueError('told to')",
            "├─ workers  supervisor  permanent  running",
            "│  ├─ x  worker  permanent  running",
            "│  └─ y  worker  permanent  running",
            "├─ beat  worker  transient  restarting  in 8 s  last end crashed: ValueError('beat')",
            "└─ done  worker  temporary  running",
        ]


def test_render_draws_a_tree_that_does_not_run():
    tree = Supervisor("app", max_restarts=None, children=[DynamicSupervisor("runs"), ChildSpec("one", Adder)])
    assert tree.render() == (
        "app  one_for_one  down  any number of restarts in 5 s\n"
        "├─ runs  supervisor  permanent  down\n"
        "└─ one  worker  permanent  down"
    )


async def test_what_is_inside_shows_its_state_too(troupe):
    async with running(Supervisor("app", children=[ChildSpec("one", Adder), troupe.child("a")])) as tree:
        engine = tree._engine
        record = engine.records["one"]
        shown = [repr(each) for each in (tree, engine, engine.desk, engine.window, tree._book, record, record.life)]
        assert shown == [
            "<Supervisor 'app' running, 2 children>",
            "<Engine '/app', 2 children>",
            "<Desk with 0 exits and 0 letters>",
            "<RestartWindow 0 of 1 in 5 s>",
            "<Book of 2 events, 0 orphans>",
            "<Record '/app/one' running>",
            "<ChildLife '/app/one' running>",
        ]
        assert repr(record.life.box) == "<Mailbox '/app/one' open, 0 of 1000>"
        assert repr(engine.kernel) == "<Kernel <Timers 0 waiting in 0 tables>>"


def test_the_public_names_are_sorted_and_there():
    assert shoal.actors.__all__ == sorted(shoal.actors.__all__)
    assert all(hasattr(shoal.actors, name) for name in shoal.actors.__all__)
