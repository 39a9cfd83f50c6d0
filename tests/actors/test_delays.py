"""Backoff between restarts, messages for later, and the timers below both."""

from __future__ import annotations

import math
from itertools import pairwise

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from hypothesis import given
from hypothesis import strategies as st
from troupe import Add, Adder, Crash, Troupe, Witness, one

from shoal.actors import Actor, Backoff, ChildSpec, Supervisor, running
from shoal.actors._ref import box_of
from shoal.actors._timers import Timers
from shoal.errors import ChildSpecInvalid, MailboxClosed, RestartsExhausted

pytestmark = pytest.mark.anyio


# --- backoff


async def test_restarts_in_a_row_wait_ever_longer_up_to_the_cap(troupe, witness):
    backoff = Backoff(initial=1.0, factor=3.0, cap=10.0, jitter=0.0)
    tree = Supervisor("app", max_restarts=None, backoff=backoff, children=troupe.children("a"))
    async with running(tree, observer=witness):
        for time in range(2, 6):
            troupe.crash("a")
            await witness.until("started", times=time)
    assert [event.delay_s for event in witness.seen("restarting")] == [1.0, 3.0, 9.0, 10.0]
    starts = [event.at for event in witness.seen("started")]
    assert [after - before for before, after in pairwise(starts)] == pytest.approx([1.0, 3.0, 9.0, 10.0], abs=0.01)


async def test_a_child_that_stayed_up_for_the_cap_begins_at_the_first_delay_again(troupe, witness):
    backoff = Backoff(initial=1.0, factor=2.0, cap=10.0, jitter=0.0)
    tree = Supervisor("app", max_restarts=None, backoff=backoff, children=troupe.children("a"))
    async with running(tree, observer=witness):
        for time, up_s in ((2, 0.0), (3, 9.0), (4, 10.5)):
            await anyio.sleep(up_s)
            troupe.crash("a")
            await witness.until("started", times=time)
    assert [event.attempt for event in witness.seen("restarting")] == [1, 2, 1]


async def test_restarts_with_a_delay_count_as_in_otp(troupe, witness):
    backoff = Backoff(initial=1.0, factor=1.0, cap=1.0, jitter=0.0)
    tree = Supervisor("app", max_restarts=2, within_s=5.0, backoff=backoff, children=troupe.children("a"))

    async def crash() -> None:
        async with running(tree, observer=witness):
            troupe.broken["a"] = 9
            troupe.crash("a")
            await anyio.sleep_forever()

    with pytest.raises(RestartsExhausted):
        await crash()
    assert len(witness.seen("restarting")) == 2


async def test_a_group_is_stopped_at_once_and_started_after_the_delay(troupe, witness):
    backoff = Backoff(initial=5.0, jitter=0.0)
    tree = Supervisor("app", strategy="rest_for_one", backoff=backoff, children=troupe.children("abc"))
    async with running(tree, observer=witness):
        troupe.take_log()
        troupe.crash("b")
        await witness.until("stopped", "c")
        await wait_all_tasks_blocked()
        assert troupe.take_log() == "-b -c"
        assert [child.state for child in tree.children()] == ["running", "restarting", "down"]
        await witness.until("started", "c", times=2)
        assert troupe.take_log() == "+b +c"
        assert [child.retry_in_s for child in tree.children()] == [None, None, None]


async def test_a_group_restart_takes_a_pending_retry_with_it(troupe, witness):
    children = [troupe.child("a"), troupe.child("b", restart="transient", backoff=Backoff(initial=10.0, jitter=0.0))]
    tree = Supervisor("app", strategy="one_for_all", max_restarts=9, children=children)
    async with running(tree, observer=witness):
        troupe.crash("b")
        await witness.until("restarting", "b")
        assert await tree.restart_child("a") == "a2"
        troupe.crash("a")
        await witness.until("started", "b", times=2)
        troupe.end("b")
        await anyio.sleep(20)
        assert [child.state for child in tree.children()] == ["running", "finished"]
    assert troupe.runs == {"a": 3, "b": 2}


async def test_a_child_terminated_while_its_group_stops_is_not_waited_for(troupe, witness):
    troupe.slow = {"c": 3.0}
    backoff = Backoff(initial=60.0, jitter=0.0)
    tree = Supervisor("app", strategy="one_for_all", backoff=backoff, children=troupe.children("abc"))
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        troupe.crash("a")
        restarting = await witness.until("restarting")
        tasks.start_soon(tree.terminate_child, "a")
        started = await witness.until("started", "c", times=2)
        assert started.at - restarting.at < 50
        assert [child.state for child in tree.children()] == ["stopped", "running", "running"]


def with_a_slow_last(troupe: Troupe) -> Supervisor:
    """Return a tree in which the stop of `d` takes longer than the delay of `a`."""
    troupe.slow = {"d": 15.0}
    children = [
        troupe.child("a", backoff=Backoff(initial=10.0, jitter=0.0)),
        troupe.child("c"),
        troupe.child("d", shutdown_s=30.0),
    ]
    return Supervisor("app", strategy="rest_for_one", max_restarts=9, children=children)


async def test_a_retry_that_comes_due_while_a_group_is_stopped_is_done_after_that(troupe, witness):
    tree = with_a_slow_last(troupe)
    async with running(tree, observer=witness):
        await all_down_but_the_rest(tree, troupe, witness)
        troupe.crash("c")
        await witness.until("started", "a", times=2)
        assert [child.state for child in tree.children()] == ["running", "running", "running"]
    assert [event.child for event in witness.seen("started")][-3:] == ["c", "d", "a"]


async def test_a_retry_that_comes_due_while_a_group_is_stopped_is_obsolete_once_its_child_was_terminated(
    troupe, witness
):
    tree = with_a_slow_last(troupe)
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        await all_down_but_the_rest(tree, troupe, witness)
        troupe.crash("c")
        await anyio.sleep(12)
        tasks.start_soon(tree.terminate_child, "a")
        await witness.until("started", "d", times=3)
        await anyio.sleep(20)
        assert [child.state for child in tree.children()] == ["stopped", "running", "running"]
    assert troupe.runs == {"a": 1, "c": 3, "d": 3}


async def test_a_retry_leaves_those_alone_that_were_started_by_hand_meanwhile(troupe, witness):
    children = [troupe.child("a", backoff=Backoff(initial=10.0, jitter=0.0)), troupe.child("c"), troupe.child("d")]
    tree = Supervisor("app", strategy="rest_for_one", max_restarts=9, children=children)
    async with running(tree, observer=witness):
        await all_down_but_the_rest(tree, troupe, witness)
        await witness.until("started", "a", times=2)
        await wait_all_tasks_blocked()
        assert [child.state for child in tree.children()] == ["running", "running", "running"]
    assert troupe.runs == {"a": 2, "c": 2, "d": 2}


async def all_down_but_the_rest(tree: Supervisor, troupe: Troupe, witness: Witness) -> None:
    """Have `a` wait for its retry, and start those after it by hand."""
    troupe.slow, slow = {}, troupe.slow
    troupe.crash("a")
    await witness.until("restarting", "a")
    for name in "cd":
        await witness.until("stopped", name)
    for name in "cd":
        await tree.restart_child(name)
    troupe.slow = slow


async def test_children_after_one_that_waits_for_its_retry_are_not_started_before_it(troupe, witness):
    """`a` gives up alone while `b` waits: what is down after `b` comes up with `b`, not before it."""
    hurry = [False]

    async def slow_to_fail(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        if hurry[0]:
            await anyio.sleep(5)
            raise OSError("a")
        task_status.started()
        await anyio.sleep_forever()

    async def crash_at_once() -> None:
        if hurry[0]:
            hurry[0] = False
            raise OSError("b")
        await anyio.sleep_forever()

    children = [
        troupe.child("x"),
        ChildSpec("a", slow_to_fail, max_restarts=0),
        ChildSpec("b", crash_at_once, backoff=Backoff(initial=10.0, jitter=0.0)),
        troupe.child("c"),
    ]
    tree = Supervisor("app", strategy="rest_for_one", max_restarts=9, children=children)
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        hurry[0] = True
        troupe.crash("x")
        await witness.until("started", "x", times=2)
        await anyio.sleep(1)
        tasks.start_soon(tree.restart_child, "b")
        await witness.until("gave_up", "a")
        await wait_all_tasks_blocked()
        assert [child.state for child in tree.children()] == ["running", "gave_up", "restarting", "down"]
        await witness.until("started", "c", times=2)
    order = [event.child for event in witness.seen("started")]
    assert order == ["x", "a", "b", "c", "x", "b", "b", "c"]


async def test_a_stop_overtakes_a_delay(troupe, witness):
    tree = Supervisor("app", backoff=Backoff(initial=1000.0, cap=1000.0), children=troupe.children("a"))
    before = anyio.current_time()
    async with running(tree, observer=witness):
        troupe.crash("a")
        await witness.until("restarting")
        assert tree.children()[0].retry_in_s == pytest.approx(950.0, abs=51.0)
    assert anyio.current_time() - before < 1.0


async def test_a_childs_own_backoff_comes_before_its_supervisors(troupe, witness):
    children = [troupe.child("a", backoff=Backoff(initial=2.0, jitter=0.0)), troupe.child("b")]
    tree = Supervisor("app", max_restarts=9, backoff=Backoff(initial=1.0, jitter=0.0), children=children)
    async with running(tree, observer=witness):
        troupe.crash("a")
        troupe.crash("b")
        await witness.until("started", "b", times=2)
    assert {event.child: event.delay_s for event in witness.seen("restarting")} == {"a": 2.0, "b": 1.0}


async def test_jitter_comes_from_the_random_source_that_was_given(troupe, witness):
    tree = Supervisor("app", backoff=Backoff(initial=8.0, jitter=0.5), children=troupe.children("a"))
    async with running(tree, observer=witness, draw=lambda: 0.5):
        troupe.crash("a")
        assert (await witness.until("restarting")).delay_s == 6.0


@given(
    attempt=st.integers(1, 5000),
    initial=st.floats(0.001, 10),
    factor=st.floats(1, 10),
    more=st.floats(0, 100),
    jitter=st.floats(0, 1),
    drawn=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_never_exceeds_its_cap_and_never_shrinks_by_more_than_jitter(
    attempt, initial, factor, more, jitter, drawn
):
    backoff = Backoff(initial, factor, initial + more, jitter)
    full = Backoff(initial, factor, initial + more, 0.0).delay_s(attempt, lambda: drawn)
    assert min(initial, full) <= full <= initial + more
    assert full * (1 - jitter) <= backoff.delay_s(attempt, lambda: drawn) <= full


@pytest.mark.parametrize(
    "numbers",
    [{"initial": 0}, {"initial": 61}, {"cap": math.inf}, {"factor": 0.5}, {"factor": math.inf}, {"jitter": 1.5}],
)
def test_a_backoff_with_a_number_out_of_range_is_refused(numbers):
    with pytest.raises(ChildSpecInvalid, match="has a number out of range"):
        Backoff(**numbers)


# --- send_after


async def test_send_after_delivers_when_its_time_has_come():
    log: list[object] = []
    async with running(one(lambda: Adder(log))) as tree:
        handle = tree.ref("one").send_after(10.0, Add(7))
        await anyio.sleep(9)
        assert log == ["start"]
        await anyio.sleep(2)
        assert log == ["start", 7]
        assert not handle.cancel()
        assert repr(handle) == "<Scheduled Add(number=7) to '/app/one', over>"


async def test_a_cancelled_send_after_is_not_sent():
    log: list[object] = []
    async with running(one(lambda: Adder(log))) as tree:
        handle = tree.ref("one").send_after(10.0, Add(7))
        assert repr(handle) == "<Scheduled Add(number=7) to '/app/one'>"
        assert handle.cancel()
        assert not handle.cancel()
        await anyio.sleep(20)
    assert log == ["start", "stop shutdown"]


class Alarm(Actor):
    """Sends itself a message for later, and counts those that come."""

    def __init__(self, rung: list[str]) -> None:
        self.rung = rung

    async def receive(self, message: object) -> None:
        match message:
            case float():
                self.me.send_after(message, "ring")
            case "ring":
                self.rung.append("ring")
            case Crash():
                raise ValueError


async def test_send_after_dies_with_the_incarnation_that_sent_it():
    rung: list[str] = []
    async with running(one(lambda: Alarm(rung))) as tree:
        ref = tree.ref("one")
        await ref.ask(10.0)
        with pytest.raises(MailboxClosed):
            await ref.ask(Crash())
        await ref.ask(30.0)
        await anyio.sleep(20)
        assert rung == []
        await anyio.sleep(20)
        assert rung == ["ring"]


@pytest.mark.parametrize("wait_s", [0.0, 20.0])
async def test_a_send_after_that_is_over_is_let_go(wait_s):
    async with running(one(lambda: Alarm([]))) as tree:
        ref = tree.ref("one")
        await ref.ask(10.0)
        await anyio.sleep(wait_s)
        mine = tree._engine.records["one"].life.owned
        for timer in tuple(mine):
            timer.cancel()
        assert (len(mine), len(box_of(ref).incoming), len(tree._engine.kernel.timers)) == (0, 0, 0)


async def test_all_timers_of_an_actor_die_with_its_incarnation():
    rung: list[str] = []
    async with running(one(lambda: Alarm(rung))) as tree:
        ref = tree.ref("one")
        for delay_s in (10.0, 20.0):
            await ref.ask(delay_s)
        with pytest.raises(MailboxClosed):
            await ref.ask(Crash())
        await anyio.sleep(30)
    assert rung == []


async def test_send_after_to_an_actor_that_ends_meanwhile_is_forgotten():
    async with running(one(Adder, restart="temporary")) as tree:
        ref = tree.ref("one")
        handle = ref.send_after(10.0, Add(7))
        await ref.stop()
        await ref.monitor().wait()
        assert not handle.cancel()
        with pytest.raises(MailboxClosed):
            ref.send_after(1.0, Add(1))
        await anyio.sleep(20)


async def test_send_after_to_a_full_mailbox_waits_for_room_like_any_sender():
    log: list[object] = []
    async with running(one(lambda: Adder(log), max_mail=1)) as tree:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        ref.send_after(5.0, Add(2))
        await anyio.sleep(10)
        ref.resume()
        assert await ref.ask(Add(3)) == 6
    assert log[1:4] == [1, 2, 3]


@pytest.mark.parametrize("delay_s", [-1.0, math.inf, math.nan])
async def test_a_delay_is_a_finite_number(delay_s):
    async with running(one(Adder)) as tree:
        with pytest.raises(ValueError, match="give a finite number"):
            tree.ref("one").send_after(delay_s, Add(1))


# --- timers


class Hand:
    """A clock that is set by hand; who sleeps on it wakes when that is done, a little too early."""

    def __init__(self) -> None:
        self.at = 0.0
        self.naps: list[float] = []
        self._moved = anyio.Event()

    def now(self) -> float:
        return self.at

    async def sleep(self, delay_s: float, /) -> None:
        self.naps.append(delay_s)
        await self._moved.wait()

    async def move(self, at: float) -> None:
        self.at = at - 1e-9
        moved, self._moved = self._moved, anyio.Event()
        moved.set()
        await wait_all_tasks_blocked()


class Bell:
    """Something that can be due."""

    def __init__(self, rung: list[str], name: str) -> None:
        self.rung = rung
        self.name = name

    def due(self) -> None:
        self.rung.append(self.name)


async def test_entries_come_due_in_the_order_of_their_times_whatever_their_delays():
    clock = Hand()
    timers = Timers(clock)
    rung: list[str] = []
    for name, delay_s in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        timers.add(delay_s, Bell(rung, name))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        await wait_all_tasks_blocked()
        await clock.move(2.5)
        assert rung == ["a", "b"]
        await clock.move(3.0)
        tasks.cancel_scope.cancel()
    assert rung == ["a", "b", "c"]


async def test_an_entry_that_is_due_sooner_wakes_the_task_early():
    clock = Hand()
    timers = Timers(clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        await wait_all_tasks_blocked()
        timers.add(50.0, Bell([], "late"))
        await wait_all_tasks_blocked()
        timers.add(5.0, Bell([], "soon"))
        await wait_all_tasks_blocked()
        timers.add(70.0, Bell([], "later"))
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert clock.naps == [50.0, 5.0]


async def test_an_entry_that_was_taken_out_is_not_due_and_its_table_goes_in_time():
    clock = Hand()
    timers = Timers(clock)
    rung: list[str] = []
    first, second = Bell(rung, "first"), Bell(rung, "second")
    table = timers.add(1.0, first)
    clock.at = 0.5
    assert timers.add(1.0, second) is table
    del table[first]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        await wait_all_tasks_blocked()
        await clock.move(1.0)
        assert rung == []
        await clock.move(1.5)
        assert rung == ["second"]
        tasks.cancel_scope.cancel()
    assert repr(timers) == "<Timers 0 waiting in 0 tables>"


@given(delays=st.lists(st.floats(0.001, 1000), min_size=100, max_size=300, unique=True), kept=st.integers(0, 40))
def test_tables_of_delays_that_nobody_comes_back_to_are_swept(delays, kept):
    timers = Timers(Hand())
    for delay_s in delays:
        bell = Bell([], "x")
        table = timers.add(delay_s, bell)
        if len(timers) > kept:
            del table[bell]
    assert len(timers) == kept
    assert len(timers._tables) <= 64 + 2 * kept
