"""Start and stop of a tree: order, failures, time limits, and what comes out at the top."""

from __future__ import annotations

import asyncio
import math
import random
import re

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from troupe import DEADLOCK_S, Add, Adder, Witness

from shoal.actors import Actor, ChildSpec, Ignore, LoopClock, Shutdown, Supervisor, Worker, running
from shoal.actors._running import _Top
from shoal.errors import RestartsExhausted, StartFailed, SupervisorError, SupervisorStopped

pytestmark = pytest.mark.anyio


# --- order


async def test_children_start_in_order_and_stop_in_reverse_order(troupe):
    async with running(Supervisor("app", children=troupe.children("abc"))):
        assert troupe.take_log() == "+a +b +c"
    assert troupe.take_log() == "-c -b -a"


async def test_nested_supervisors_start_and_stop_where_they_stand(troupe):
    inner = Supervisor("inner", children=troupe.children("bc"))
    async with running(Supervisor("app", children=[troupe.child("a"), inner, troupe.child("d")])):
        assert troupe.take_log() == "+a +b +c +d"
    assert troupe.take_log() == "-d -c -b -a"


async def test_each_child_is_ready_before_the_next_one_starts():
    log: list[str] = []

    class Slow(Actor):
        async def on_start(self) -> None:
            await anyio.sleep(5)
            log.append("ready")

    async def second() -> None:
        log.append("second")
        await anyio.sleep_forever()

    async with running(Supervisor("app", children=[ChildSpec("slow", Slow), Worker("second", second)])):
        await wait_all_tasks_blocked()
    assert log == ["ready", "second"]


async def test_a_function_with_task_status_is_ready_when_it_says_so():
    async def server(*, task_status: anyio.abc.TaskStatus[int]) -> None:
        await anyio.sleep(5)
        task_status.started(8080)
        await anyio.sleep_forever()

    async with running(Supervisor("app")) as tree:
        before = anyio.current_time()
        assert await tree.start_child(ChildSpec("server", server)) == 8080
        assert anyio.current_time() - before == pytest.approx(5.0, abs=0.01)


async def test_a_function_without_task_status_is_ready_when_its_task_first_runs():
    async def slow() -> None:
        await anyio.sleep(5)

    async with running(Supervisor("app")) as tree:
        before = anyio.current_time()
        assert await tree.start_child(Worker("slow", slow)) is None
        assert anyio.current_time() == pytest.approx(before, abs=0.01)


async def test_the_start_function_is_called_anew_for_each_restart(troupe):
    witness = Witness()
    async with running(Supervisor("app", children=troupe.children("a")), observer=witness):
        troupe.crash("a")
        await witness.until("started", "a", times=2)
    assert troupe.runs["a"] == 2


# --- a start that fails


async def test_a_failed_start_stops_those_already_started_in_reverse_and_fails_with_the_reason(troupe):
    troupe.broken["c"] = 1
    with pytest.raises(StartFailed, match="'/app/c' did not start") as caught:
        async with running(Supervisor("app", children=troupe.children("abcd"))):
            raise AssertionError("unreachable")
    assert troupe.take_log() == "+a +b !c -b -a"
    assert isinstance(caught.value.__cause__, OSError)
    assert (caught.value.supervisor, caught.value.child) == ("app", "c")


async def test_a_failed_start_is_no_restart_and_is_not_tried_again(troupe):
    troupe.broken["a"] = 1
    tree = Supervisor("app", max_restarts=None, children=troupe.children("a"))
    with pytest.raises(StartFailed):
        async with running(tree):
            raise AssertionError("unreachable")
    assert [event.kind for event in tree.history()] == ["start_failed"]


async def test_a_failed_start_of_a_nested_supervisor_fails_its_parent(troupe):
    troupe.broken["b"] = 1
    inner = Supervisor("inner", children=troupe.children("b"))
    with pytest.raises(StartFailed, match="'/app/inner' did not start") as caught:
        async with running(Supervisor("app", children=[troupe.child("a"), inner])):
            raise AssertionError("unreachable")
    assert troupe.take_log() == "+a !b -a"
    assert isinstance(caught.value.__cause__, StartFailed)
    assert isinstance(caught.value.__cause__.__cause__, OSError)


async def test_a_failed_start_deep_in_a_tree_is_told_in_one_sentence_with_its_place(troupe):
    troupe.broken["b"] = 1
    inner = Supervisor("inner", children=troupe.children("b"))
    with pytest.raises(StartFailed) as caught:
        async with running(Supervisor("app", children=[inner])):
            raise AssertionError("unreachable")
    first = r"'/app/inner' did not start, since '/app/inner/b' did not start"
    assert re.match(rf"{first} \(crashed: OSError\(.*\) in '\w+', .*\.py:\d+\)", str(caught.value))
    assert str(caught.value).count("mend what it raised") == 1


async def test_a_start_that_makes_nothing_is_told_of_once():
    def nothing() -> None: ...

    with pytest.raises(StartFailed) as caught:
        async with running(Supervisor("app", children=[ChildSpec("one", nothing)])):  # type: ignore[arg-type]
            raise AssertionError("unreachable")
    assert str(caught.value).startswith("'/app/one' has a `start` that returned None; give an actor class")


async def test_a_function_that_returns_before_it_is_ready_failed_to_start():
    async def forgetful(*, task_status: anyio.abc.TaskStatus[None]) -> None: ...

    with pytest.raises(StartFailed, match=r"returned before it called `task_status.started\(\)`"):
        async with running(Supervisor("app", children=[ChildSpec("one", forgetful)])):
            raise AssertionError("unreachable")


async def test_a_function_that_says_twice_that_it_is_ready_is_told_so():
    async def eager(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        task_status.started()

    witness = Witness()
    async with running(Supervisor("app", children=[ChildSpec("one", eager, restart="temporary")]), observer=witness):
        event = await witness.until("exited")
    assert "called twice" in str(event.reason)


async def test_one_supervisor_cannot_run_in_two_places():
    shared = Supervisor("shared")
    specs = [ChildSpec("one", shared), ChildSpec("two", shared)]
    with pytest.raises(StartFailed) as caught:
        async with running(Supervisor("app", children=specs)):
            raise AssertionError("unreachable")
    assert "already runs as '/app/one'" in str(caught.value.__cause__)


async def test_a_tree_that_runs_cannot_be_run_again():
    async with running(Supervisor("app")) as tree:
        with pytest.raises(StartFailed, match="already runs as '/app'"):
            async with running(tree):
                raise AssertionError("unreachable")


# --- ignore


class Idler(Actor):
    """Has nothing to do."""

    async def on_start(self) -> None:
        raise Ignore


async def no_status() -> None:
    raise Ignore


async def with_status(*, task_status: anyio.abc.TaskStatus[None]) -> None:
    raise Ignore


@pytest.mark.parametrize("start", [Idler, no_status, with_status])
async def test_a_child_that_ignores_keeps_its_spec_without_a_process(start):
    witness = Witness()
    tree = Supervisor("app", children=[ChildSpec("one", start, restart="transient"), ChildSpec("two", Adder)])
    async with running(tree, observer=witness):
        await witness.until("ignored", "one")
        assert [child.state for child in tree.children()] == ["ignored", "running"]
        assert tree.count_children()[:2] == (2, 1)


@pytest.mark.parametrize("start", [Idler, no_status, with_status])
async def test_a_temporary_child_that_ignores_is_dropped(start):
    witness = Witness()
    tree = Supervisor("app", children=[ChildSpec("one", start, restart="temporary")])
    async with running(tree, observer=witness):
        await witness.until("ignored", "one")
        assert tree.children() == ()


async def test_ignore_after_the_child_was_ready_is_a_crash():
    async def late(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        raise Ignore

    witness = Witness()
    async with running(Supervisor("app", children=[ChildSpec("one", late, restart="temporary")]), observer=witness):
        assert (await witness.until("exited")).reason.kind == "crashed"


# --- stopping one child


async def test_each_child_has_its_own_time_to_stop(troupe):
    troupe.slow = {"a": 3.0, "b": 4.0}
    tree = Supervisor("app", children=troupe.children("ab", shutdown_s=5.0))
    async with running(tree):
        before = anyio.current_time()
    assert anyio.current_time() - before == pytest.approx(7.0, abs=0.01)
    assert [event.kind for event in tree.history()][2:] == ["stopped", "stopped"]


async def test_a_child_past_its_time_is_killed_and_past_one_second_more_an_orphan(troupe):
    troupe.slow = {"a": 20.0}
    witness = Witness()
    async with running(Supervisor("app", children=troupe.children("a", shutdown_s=5.0)), observer=witness) as tree:
        before = anyio.current_time()
        await tree.terminate_child("a")
        assert anyio.current_time() - before == pytest.approx(6.0, abs=0.01)
        assert [child.state for child in tree.children()] == ["stopped", "orphan"]
        assert witness.kinds("a") == ["started", "orphaned", "shutdown_error"]
        assert witness.seen("shutdown_error")[0].reason.kind == "killed"
        await witness.until("orphan_ended")
        assert [child.state for child in tree.children()] == ["stopped"]


async def test_brutal_is_to_cancel_without_grace_and_to_wait_one_second(troupe):
    troupe.slow = {"a": 20.0}
    async with running(Supervisor("app", children=troupe.children("a", shutdown_s=0))) as tree:
        before = anyio.current_time()
        await tree.terminate_child("a")
        assert anyio.current_time() - before == pytest.approx(1.0, abs=0.01)


async def test_a_child_killed_in_time_is_no_error_where_brutal_was_asked_for(troupe):
    witness = Witness()
    tree = Supervisor("app", children=[Worker("a", anyio.sleep_forever, shutdown_s=0)])
    async with running(tree, observer=witness):
        await tree.terminate_child("a")
    assert witness.kinds("a") == ["started", "stopped"]
    assert witness.seen("stopped")[0].reason.kind == "killed"


async def test_leaving_waits_for_orphans_so_that_no_task_is_left(troupe):
    troupe.slow = {"a": 20.0}
    before = anyio.current_time()
    async with running(Supervisor("app", children=troupe.children("a", shutdown_s=5.0))):
        pass
    assert anyio.current_time() - before == pytest.approx(20.0, abs=0.01)


@pytest.mark.parametrize(
    ("restart", "error", "kind"),
    [
        ("permanent", None, "shutdown_error"),
        ("transient", None, "stopped"),
        ("permanent", Shutdown("later"), "shutdown_error"),
        ("transient", Shutdown("later"), "stopped"),
        ("permanent", Shutdown(), "stopped"),
        ("transient", OSError("disk"), "shutdown_error"),
    ],
)
async def test_a_child_that_ends_otherwise_than_asked_while_it_is_stopped_is_reported(restart, error, kind):
    async def stubborn() -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if error is not None:
                raise error from None

    witness = Witness()
    async with running(Supervisor("app", children=[Worker("one", stubborn, restart=restart)]), observer=witness):
        await wait_all_tasks_blocked()
    assert witness.kinds("one") == ["started", kind]


async def test_a_supervisor_has_no_limit_for_its_stop_unless_told_otherwise(troupe):
    troupe.slow = {"a": 1e6}
    inner = Supervisor("inner", children=troupe.children("a", shutdown_s=math.inf))
    async with running(Supervisor("app", children=[inner])) as tree:
        assert tree.get_childspec("inner").shutdown_s == math.inf
    assert troupe.take_log() == "+a -a"


async def test_a_killed_supervisor_kills_its_children_all_at_once_and_ends_within_their_second(troupe):
    troupe.slow = {"a": 50.0, "b": 60.0}
    deep = Supervisor("deep", children=troupe.children("b", shutdown_s=math.inf))
    inner = Supervisor("inner", children=[troupe.child("a", shutdown_s=math.inf), deep])
    witness = Witness()
    async with running(Supervisor("app", children=[ChildSpec("x", inner, shutdown_s=2.0)]), observer=witness) as tree:
        before = anyio.current_time()
        await tree.terminate_child("x")
        assert anyio.current_time() - before == pytest.approx(3.0, abs=0.2)
        assert witness.seen("shutdown_error", "x")[0].reason.kind == "killed"
        assert {event.supervisor for event in witness.seen("orphaned")} == {"/app/x", "/app/x/deep"}


async def test_a_brutally_stopped_supervisor_takes_its_children_with_it(troupe):
    troupe.slow = {"a": 3.0, "b": 3.0}
    inner = Supervisor("inner", children=troupe.children("ab"))
    async with running(Supervisor("app", children=[ChildSpec("x", inner, shutdown_s=0)])) as tree:
        before = anyio.current_time()
        await tree.terminate_child("x")
        assert anyio.current_time() - before == pytest.approx(1.0, abs=0.2)
        assert [child.state for child in inner.children()] == ["down", "down", "orphan", "orphan"]
        assert inner.status == "down"
    assert sorted(troupe.take_log().split()) == ["+a", "+b", "-a", "-b"]


async def test_a_supervisor_that_hangs_in_its_start_can_be_stopped():
    log: list[str] = []

    class Stuck(Actor):
        async def on_start(self) -> None:
            log.append("begins")
            await anyio.sleep_forever()

    inner = Supervisor("inner", children=[ChildSpec("one", Adder), ChildSpec("stuck", Stuck)])
    with anyio.move_on_after(10):
        async with running(Supervisor("app", children=[inner])):
            log.append("unreachable")
    assert log == ["begins"]


async def test_a_tree_whose_caller_is_cancelled_already_starts_nothing(troupe):
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with running(Supervisor("app", children=troupe.children("a"))):
            raise AssertionError("unreachable")
    assert scope.cancelled_caught
    assert troupe.take_log() == ""


# --- the top


async def test_a_cancelled_body_stops_the_tree_in_order(troupe):
    troupe.slow = {"a": 2.0}
    with anyio.move_on_after(10) as scope:
        async with running(Supervisor("app", children=troupe.children("ab"))):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert troupe.take_log() == "+a +b -b -a"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancel_of_the_callers_task_stops_the_tree_in_order(troupe):
    """As Ctrl-C does under `asyncio.run`."""
    troupe.slow = {"a": 2.0}

    async def main() -> None:
        async with running(Supervisor("app", children=troupe.children("ab"))):
            await anyio.sleep_forever()

    task = asyncio.get_running_loop().create_task(main())
    await wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert troupe.take_log() == "+a +b -b -a"


async def test_a_tree_told_to_stop_before_its_task_ran_starts_nothing(troupe):
    top = _Top(Supervisor("app", children=troupe.children("a")), math.inf)
    top.stop()
    with anyio.fail_after(DEADLOCK_S):
        await top.serve(None, random.random, None)
    assert (top.started, top.up.is_set(), top.failure()) == (False, True, None)
    assert troupe.take_log() == ""


async def test_an_error_of_the_body_stops_the_tree_and_comes_out_as_it_is(troupe):
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with running(Supervisor("app", children=troupe.children("a"))):
            raise error
    assert caught.value is error
    assert troupe.take_log() == "+a -a"


async def test_a_group_that_the_body_raises_comes_out_as_it_is(troupe):
    group = BaseExceptionGroup("of a task group of the body", [KeyboardInterrupt()])
    with pytest.raises(BaseExceptionGroup) as caught:
        async with running(Supervisor("app", children=troupe.children("a"))):
            raise group
    assert caught.value is group
    assert troupe.take_log() == "+a -a"


async def test_a_cancel_in_a_group_of_the_body_reaches_its_scope(troupe):
    with anyio.CancelScope() as scope:
        async with running(Supervisor("app", children=troupe.children("a"))):
            scope.cancel()
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class() as cancelled:
                raise BaseExceptionGroup("the body's", [cancelled]) from None
    assert scope.cancelled_caught
    assert troupe.take_log() == "+a -a"


async def test_a_tree_that_gave_up_cancels_the_body_and_raises_with_the_history(troupe):
    tree = Supervisor("app", max_restarts=0, children=troupe.children("a"))
    with pytest.raises(RestartsExhausted, match="supervisor '/app' gave up: 'a'") as caught:
        await live(tree, lambda: troupe.crash("a"), anyio.sleep_forever)
    assert (caught.value.supervisor, caught.value.child) == ("app", "a")
    assert [event.kind for event in caught.value.history] == ["started", "exited", "gave_up"]
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_tree_that_gave_up_says_where_its_child_crashed_last():
    async def flaky() -> None:
        raise OSError("no luck")

    with pytest.raises(RestartsExhausted) as caught:
        async with running(Supervisor("app", max_restarts=0, children=[Worker("flaky", flaky)])):
            await anyio.sleep_forever()
    line = flaky.__code__.co_firstlineno + 1
    assert f"its last end: crashed: OSError('no luck') in 'flaky', {__file__}:{line}. Mend" in str(caught.value)


async def test_a_supervisor_that_gave_up_because_one_below_did_does_not_repeat_it(troupe):
    inner = Supervisor("inner", max_restarts=0, children=troupe.children("a"))
    with pytest.raises(RestartsExhausted, match="it gave up itself, as `__cause__` says") as caught:
        await live(Supervisor("app", max_restarts=0, children=[inner]), lambda: troupe.crash("a"), anyio.sleep_forever)
    assert "'/app/inner' gave up: 'a'" in str(caught.value.__cause__)


async def test_the_error_of_the_body_is_kept_beside_the_failure_of_the_tree(troupe):
    tree = Supervisor("app", max_restarts=0, children=troupe.children("a"))

    async def outlive() -> None:
        with anyio.CancelScope(shield=True), pytest.raises(RestartsExhausted):
            await tree.wait()
        raise ValueError("mine")

    with pytest.raises(RestartsExhausted) as caught:
        await live(tree, lambda: troupe.crash("a"), outlive)
    assert caught.value.__notes__ == ["the body of `running` raised as well: ValueError('mine')"]


async def test_what_wait_raises_in_the_body_comes_out_once(troupe):
    tree = Supervisor("app", max_restarts=0, children=troupe.children("a"))

    async def outlive() -> None:
        with anyio.CancelScope(shield=True):
            await tree.wait()

    with pytest.raises(RestartsExhausted) as caught:
        await live(tree, lambda: troupe.crash("a"), outlive)
    assert not hasattr(caught.value, "__notes__")


async def test_an_observer_that_raises_ends_the_tree_and_its_error_comes_out(troupe):
    def observer(event: object) -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        async with running(Supervisor("app", children=troupe.children("ab")), observer=observer):
            await anyio.sleep_forever()
    assert troupe.take_log() in {"+a -a", "+a +b -b -a"}


async def test_a_tree_has_shutdown_s_to_stop_and_is_then_killed(troupe):
    troupe.slow = {"a": 10.0, "b": 10.0}
    before = anyio.current_time()
    async with running(Supervisor("app", children=troupe.children("ab", shutdown_s=math.inf)), shutdown_s=4.0):
        pass
    # Told at 4 s, both are orphans at 5 s; leaving waits for them all the same: the second was told to end at 4 s.
    assert anyio.current_time() - before == pytest.approx(14.0, abs=0.01)


async def test_a_tree_may_run_again(troupe):
    tree = Supervisor("app", children=troupe.children("a"))
    for _ in range(2):
        async with running(tree):
            assert troupe.take_log() == "+a"
        assert troupe.take_log() == "-a"
    assert [event.kind for event in tree.history()] == ["started", "stopped"]


async def test_wait_returns_why_the_tree_ended(troupe):
    tree = Supervisor("app", children=troupe.children("a"))
    with pytest.raises(SupervisorStopped):
        await tree.wait()
    async with anyio.create_task_group() as tasks:
        ends: list[object] = []

        async def wait() -> None:
            ends.append((await tree.wait()).kind)

        async with running(tree):
            tasks.start_soon(wait)
            await wait_all_tasks_blocked()
    assert (await tree.wait()).kind == "shutdown"
    assert ends == ["shutdown"]


async def test_wait_raises_where_the_tree_gave_up(troupe):
    inner = Supervisor("inner", max_restarts=0, children=troupe.children("a"))
    async with running(Supervisor("app", children=[ChildSpec("inner", inner, restart="temporary")])):
        troupe.crash("a")
        with anyio.fail_after(DEADLOCK_S), pytest.raises(RestartsExhausted):
            await inner.wait()
        assert inner.status == "gave_up"


async def test_status_says_what_a_supervisor_does(troupe):
    troupe.slow = {"a": 2.0}
    tree = Supervisor("app", children=troupe.children("a"))
    seen = [tree.status]

    async def look() -> None:
        seen.append(tree.status)
        await anyio.sleep(1.0)
        seen.append(tree.status)

    async with anyio.create_task_group() as tasks, running(tree):
        tasks.start_soon(look)
        await wait_all_tasks_blocked()
    assert [*seen, tree.status] == ["down", "running", "stopping", "down"]


async def test_a_supervisor_that_does_not_run_says_so():
    tree = Supervisor("app", children=[ChildSpec("one", Adder)])
    for call in (tree.which_children, tree.count_children, lambda: tree.ref("one"), lambda: tree.get_childspec("one")):
        with pytest.raises(SupervisorStopped, match="'app' does not run"):
            call()
    with pytest.raises(SupervisorStopped):
        await tree.start_child(ChildSpec("two", Adder))


async def test_a_child_that_ends_in_the_second_after_it_was_killed_is_no_orphan_later(troupe, witness):
    troupe.slow = {"a": 2.5}
    inner = Supervisor("inner", children=troupe.children("a", shutdown_s=5.0))
    async with running(Supervisor("app", children=[ChildSpec("x", inner, shutdown_s=2.0)]), observer=witness) as tree:
        before = anyio.current_time()
        await tree.terminate_child("x")
        assert anyio.current_time() - before == pytest.approx(2.5, abs=0.2)
        await anyio.sleep(10)
    assert witness.kinds("a") == ["started", "shutdown_error"]


async def test_a_killed_supervisor_waits_no_longer_for_a_child_that_it_was_killing_already(troupe):
    troupe.slow = {"b": 50.0}
    children = [troupe.child("a", restart="transient"), troupe.child("b", shutdown_s=0)]
    inner = Supervisor("inner", children=children)
    async with running(Supervisor("app", children=[ChildSpec("x", inner, shutdown_s=0.5)])) as tree:
        troupe.end("a")
        await wait_all_tasks_blocked()
        before = anyio.current_time()
        await tree.terminate_child("x")
        assert anyio.current_time() - before == pytest.approx(1.0, abs=0.2)


async def test_all_that_wait_for_a_tree_are_told(troupe):
    ends: list[str] = []
    tree = Supervisor("app", children=troupe.children("a"))

    async def wait() -> None:
        ends.append((await tree.wait()).kind)

    async with anyio.create_task_group() as tasks, running(tree):
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await wait_all_tasks_blocked()
    assert ends == ["shutdown", "shutdown"]


class Broken:
    """A clock that fails when somebody sleeps on it."""

    def now(self) -> float:
        return 0.0

    async def sleep(self, delay_s: float, /) -> None:
        raise OSError("no time")


async def test_a_clock_that_fails_tears_the_tree_down_and_its_error_comes_out(troupe):
    async def ask(tree: Supervisor) -> None:
        async with running(tree, clock=Broken()):
            await tree.ref("one").ask(Add(1))
            await anyio.sleep_forever()

    tree = Supervisor("app", children=[ChildSpec("one", Adder), troupe.child("a")])
    with anyio.fail_after(DEADLOCK_S), pytest.raises(OSError, match="no time"):
        await ask(tree)
    assert troupe.take_log() == "+a -a"
    async with running(tree):
        assert await tree.ref("one").ask(Add(1)) == 1


class Simulated:
    """A clock that runs a thousand times faster than the loop's."""

    def __init__(self) -> None:
        self._loop = LoopClock()

    def now(self) -> float:
        return self._loop.now() * 1000

    async def sleep(self, delay_s: float, /) -> None:
        await self._loop.sleep(delay_s / 1000)


async def test_deadlines_and_delays_take_their_time_from_the_clock_that_was_given(troupe):
    troupe.slow = {"a": 20.0}
    before = anyio.current_time()
    async with running(Supervisor("app", children=troupe.children("a", shutdown_s=500.0)), clock=Simulated()) as tree:
        await tree.terminate_child("a")
        assert anyio.current_time() - before == pytest.approx(0.501, abs=0.01)


async def test_a_child_that_starts_cannot_call_the_supervisor_that_waits_for_it():
    tree = Supervisor("app")
    refused: list[str] = []

    class Caller(Actor):
        async def on_start(self) -> None:
            with pytest.raises(SupervisorError, match="calls its supervisor while it is starting") as caught:
                await tree.start_child(ChildSpec("two", Adder))
            refused.append(caught.value.child)

    inner = Supervisor("inner", children=[ChildSpec("caller", Caller)])
    async with running(tree):
        await tree.start_child(inner)
        await tree.start_child(ChildSpec("direct", Caller))
    assert refused == ["inner", "direct"]


async def test_a_child_that_is_up_can_call_its_supervisor():
    tree = Supervisor("app")

    class Caller(Actor):
        async def receive(self, message: object) -> int:
            ref = await tree.start_child(ChildSpec("two", Adder))
            return await ref.ask(Add(2))

    async with running(tree):
        caller = await tree.start_child(ChildSpec("caller", Caller))
        assert await caller.ask("go") == 2


async def live(tree: Supervisor, act, then) -> None:
    """Run *tree* with a body that does *act* and *then*."""
    async with running(tree):
        act()
        await then()
