"""Restarts: restart types, strategies, budgets. The rules that people often get wrong have tests of their own."""

from __future__ import annotations

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from troupe import DEADLOCK_S, Add, Adder, ByHand, Crash, Troupe, Witness

from shoal.actors import Backoff, ChildSpec, Shutdown, SupervisionEvent, Supervisor, Worker, running
from shoal.errors import ChildRestarting, MailboxClosed, RestartsExhausted, SupervisorStopped

pytestmark = pytest.mark.anyio


# --- restart type and reason


@pytest.mark.parametrize("error", [None, Shutdown(), Shutdown("detail")])
async def test_trap_a_permanent_child_is_restarted_after_a_clean_exit_and_that_is_reported_as_an_error(
    troupe, witness, error
):
    async with running(Supervisor("app", children=troupe.children("a")), observer=witness):
        troupe.end("a", error)
        await witness.until("started", "a", times=2)
    (event,) = witness.seen("exited")
    assert (event.reason.clean, event.error) == (True, True)


async def test_a_permanent_child_is_restarted_after_a_crash(troupe, witness):
    async with running(Supervisor("app", children=troupe.children("a")), observer=witness):
        troupe.crash("a")
        await witness.until("started", "a", times=2)
    assert witness.seen("exited")[0].error


@pytest.mark.parametrize("error", [None, Shutdown(), Shutdown("detail")])
async def test_a_transient_child_keeps_its_spec_without_a_process_after_a_clean_exit(troupe, witness, error):
    async with running(Supervisor("app", children=troupe.children("a", restart="transient")), observer=witness) as tree:
        troupe.end("a", error)
        event = await witness.until("exited")
        await wait_all_tasks_blocked()
        assert [child.state for child in tree.children()] == ["finished"]
    assert not event.error


async def test_a_transient_child_is_restarted_after_a_crash(troupe, witness):
    async with running(Supervisor("app", children=troupe.children("a", restart="transient")), observer=witness):
        troupe.crash("a")
        await witness.until("started", "a", times=2)


@pytest.mark.parametrize(("error", "reported"), [(None, False), (Shutdown(), False), (ValueError("a"), True)])
async def test_a_temporary_child_is_removed_after_any_exit(troupe, witness, error, reported):
    async with running(Supervisor("app", children=troupe.children("a", restart="temporary")), observer=witness) as tree:
        troupe.end("a", error)
        event = await witness.until("exited")
        await wait_all_tasks_blocked()
        assert tree.children() == ()
    assert event.error is reported


async def test_an_exit_that_leads_to_no_restart_is_not_counted(troupe, witness):
    children = [troupe.child("a", restart="transient"), troupe.child("b", restart="temporary"), troupe.child("c")]
    async with running(Supervisor("app", max_restarts=1, children=children), observer=witness) as tree:
        troupe.end("a")
        troupe.crash("b")
        troupe.crash("c")
        await witness.until("started", "c", times=2)
        assert tree.status == "running"


# --- strategies


async def test_one_for_one_restarts_the_failed_child_alone_and_its_place_stays(troupe, witness):
    async with running(Supervisor("app", children=troupe.children("abc")), observer=witness) as tree:
        troupe.take_log()
        troupe.crash("b")
        await witness.until("started", "b", times=2)
        assert troupe.take_log() == "-b +b"
        assert [child.id for child in tree.children()] == ["a", "b", "c"]
    assert troupe.take_log() == "-c -b -a"


async def test_one_for_all_stops_the_others_in_reverse_and_starts_all_in_order(troupe, witness):
    tree = Supervisor("app", strategy="one_for_all", children=troupe.children("abc"))
    async with running(tree, observer=witness):
        troupe.take_log()
        troupe.crash("b")
        await witness.until("started", "c", times=2)
        assert troupe.take_log() == "-b -c -a +a +b +c"


async def test_rest_for_one_restarts_the_failed_child_and_those_after_it(troupe, witness):
    tree = Supervisor("app", strategy="rest_for_one", children=troupe.children("abcd"))
    async with running(tree, observer=witness):
        troupe.take_log()
        troupe.crash("b")
        await witness.until("started", "d", times=2)
        assert troupe.take_log() == "-b -d -c +b +c +d"


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_trap_a_group_restart_revives_a_transient_child_that_had_finished(troupe, witness, strategy):
    children = [troupe.child("a"), troupe.child("b", restart="transient")]
    async with running(Supervisor("app", strategy=strategy, children=children), observer=witness) as tree:
        troupe.end("b")
        await witness.until("exited", "b")
        troupe.crash("a")
        await witness.until("started", "b", times=2)
        assert [child.state for child in tree.children()] == ["running", "running"]


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_trap_a_group_restart_revives_a_child_that_was_terminated(troupe, witness, strategy):
    async with running(Supervisor("app", strategy=strategy, children=troupe.children("ab")), observer=witness) as tree:
        await tree.terminate_child("b")
        troupe.crash("a")
        await witness.until("started", "b", times=2)


async def test_a_temporary_bystander_is_stopped_and_removed_and_never_started_again(troupe, witness):
    children = [troupe.child("a"), troupe.child("b", restart="temporary"), troupe.child("c")]
    async with running(Supervisor("app", strategy="one_for_all", children=children), observer=witness) as tree:
        troupe.crash("a")
        await witness.until("started", "c", times=2)
        assert [child.id for child in tree.children()] == ["a", "c"]
    assert witness.kinds("b") == ["started", "stopped"]


async def test_a_temporary_bystander_ends_with_its_own_reason(troupe, witness):
    class Clumsy(Adder):
        async def on_stop(self, reason: object) -> None:
            raise OSError("oops")

    children = [troupe.child("a"), ChildSpec("one", Clumsy, restart="temporary")]
    async with running(Supervisor("app", strategy="one_for_all", children=children), observer=witness) as tree:
        monitor = tree.ref("one").monitor()
        troupe.crash("a")
        assert str((await monitor.wait()).reason) == "crashed: OSError('oops')"


async def test_a_supervisor_that_waits_for_its_restart_shows_who_gave_up(troupe, witness):
    inner = Supervisor("inner", max_restarts=0, children=troupe.children("ab"))
    tree = Supervisor("app", backoff=Backoff(), children=[inner])
    async with running(tree, observer=witness):
        troupe.crash("a")
        await witness.until("restarting", "inner")
        assert [child.state for child in inner.children()] == ["gave_up", "down"]
        assert inner.status == "gave_up"
        with pytest.raises(SupervisorStopped):
            await inner.terminate_child("a")
        await witness.until("started", "inner", times=2)
        assert inner.status == "running"


async def test_a_bystander_that_crashed_at_the_same_time_is_flushed_with_its_group(troupe, witness):
    tree = Supervisor("app", strategy="one_for_all", max_restarts=1, children=troupe.children("ab"))
    async with running(tree, observer=witness):
        troupe.crash("a")
        troupe.crash("b")
        await witness.until("started", "b", times=2)
        await wait_all_tasks_blocked()
        assert tree.status == "running"
    assert len(witness.seen("exited")) == 1
    assert len(witness.seen("restarting")) == 1


async def test_a_mailbox_outlives_the_restart_of_its_group(witness):
    class Fragile(Adder):
        async def on_start(self) -> None:
            if len(self.log) == 0:
                self.log.append("start")

    tree = Supervisor("app", strategy="one_for_all", children=[ChildSpec("one", Adder), ChildSpec("two", Fragile)])
    async with running(tree, observer=witness):
        one, two = tree.ref("one"), tree.ref("two")
        one.pause()
        one.send_nowait(Add(5))
        two.send_nowait(Crash())
        await witness.until("started", "two", times=2)
        one.resume()
        assert await one.ask(Add(1)) == 6
        assert tree.ref("one") is one


# --- the budget


async def test_a_restart_more_than_the_budget_allows_gives_up_with_the_children_stopped_in_reverse(troupe):
    tree = Supervisor("app", max_restarts=1, children=troupe.children("abc"))
    with pytest.raises(RestartsExhausted):
        await crash_until_it_gives_up(tree, troupe, "b", every_s=1.0)
    assert troupe.take_log() == "+a +b +c -b +b -b -c -a"
    assert tree.status == "gave_up"


async def test_no_restart_at_all_is_allowed_where_max_restarts_is_0(troupe):
    tree = Supervisor("app", max_restarts=0, children=troupe.children("a"))
    with pytest.raises(RestartsExhausted):
        await crash_until_it_gives_up(tree, troupe, "a", every_s=1.0)
    assert troupe.runs["a"] == 1


async def test_otps_budget_holds_unless_told_otherwise(troupe):
    tree = Supervisor("app", children=troupe.children("a"))
    with pytest.raises(RestartsExhausted, match=r"more than 1 times within 5\.0 s"):
        await crash_until_it_gives_up(tree, troupe, "a", every_s=1.0)


async def test_trap_a_restart_exactly_as_old_as_the_window_still_counts(troupe):
    clock = ByHand()
    tree = Supervisor("app", max_restarts=1, within_s=5.0, children=troupe.children("a"))
    with pytest.raises(RestartsExhausted):
        await crash_at(tree, troupe, clock, [100.0, 105.0])


async def test_a_restart_older_than_the_window_is_forgotten(troupe):
    clock = ByHand()
    tree = Supervisor("app", max_restarts=1, within_s=5.0, children=troupe.children("a"))
    await crash_at(tree, troupe, clock, [100.0, 105.001, 110.002])
    assert troupe.runs["a"] == 4


async def test_the_budget_is_shared_by_all_children(troupe):
    tree = Supervisor("app", max_restarts=1, children=troupe.children("ab"))
    with pytest.raises(RestartsExhausted) as caught:
        await live(tree, lambda: (troupe.crash("a"), troupe.crash("b")))
    assert [event.kind for event in caught.value.history].count("restarting") == 1


async def test_trap_one_failure_is_one_entry_however_many_siblings_it_touches(troupe, witness):
    tree = Supervisor("app", strategy="one_for_all", max_restarts=2, children=troupe.children("abcdef"))
    async with running(tree, observer=witness):
        for time in (2, 3):
            troupe.crash("c")
            await witness.until("started", "f", times=time)
        assert tree.status == "running"


async def test_trap_each_retry_of_a_failed_restart_is_another_entry(troupe, witness):
    tree = Supervisor("app", max_restarts=3, children=troupe.children("a"))

    def fail() -> None:
        troupe.broken["a"] = 10
        troupe.crash("a")

    with pytest.raises(RestartsExhausted):
        await live(tree, fail, witness)
    assert len(witness.seen("restarting")) == 3
    assert [event.error for event in witness.seen("start_failed")] == [True, True, True]
    assert [event.attempt for event in witness.seen("restarting")] == [1, 2, 3]
    assert [type(event.reason.error) for event in witness.seen("restarting")] == [ValueError, OSError, OSError]


async def test_a_restart_that_fails_is_tried_again_without_delay(troupe, witness):
    async with running(Supervisor("app", max_restarts=5, children=troupe.children("a")), observer=witness):
        troupe.broken["a"] = 3
        troupe.crash("a")
        last = await witness.until("started", times=2)
    assert last.at == pytest.approx(witness.seen("exited")[0].at, abs=0.01)


async def test_max_restarts_of_none_is_without_limit(troupe, witness):
    async with running(Supervisor("app", max_restarts=None, children=troupe.children("a")), observer=witness):
        for time in range(2, 60):
            troupe.crash("a")
            await witness.until("started", times=time)


async def test_trap_giving_up_is_a_clean_end_so_a_transient_supervisor_is_not_restarted(troupe, witness):
    inner = Supervisor("inner", max_restarts=0, children=troupe.children("a"))
    spec = ChildSpec("inner", inner, restart="transient")
    async with running(Supervisor("app", children=[spec]), observer=witness) as tree:
        troupe.crash("a")
        event = await witness.until("exited", "inner")
        await wait_all_tasks_blocked()
        assert [child.state for child in tree.children()] == ["finished"]
    assert (event.reason.kind, event.reason.clean, event.error) == ("shutdown", True, False)
    assert isinstance(event.reason.error, RestartsExhausted)


async def test_giving_up_restarts_a_permanent_supervisor_from_its_original_spec(troupe, witness):
    inner = Supervisor("inner", max_restarts=0, children=troupe.children("ab"))
    async with running(Supervisor("app", children=[inner]), observer=witness):
        await inner.start_child(troupe.child("c"))
        await inner.terminate_child("b")
        troupe.take_log()
        troupe.crash("a")
        await witness.until("started", "inner", times=2)
        assert troupe.take_log() == "-a -c +a +b"
        assert [child.id for child in inner.children()] == ["a", "b"]


async def test_giving_up_goes_up_until_a_supervisor_can_bear_it(troupe):
    inner = Supervisor("inner", max_restarts=1, children=troupe.children("a"))
    tree = Supervisor("app", max_restarts=1, children=[inner])
    with pytest.raises(RestartsExhausted) as caught:
        await crash_until_it_gives_up(tree, troupe, "a", every_s=0.5)
    assert troupe.runs["a"] == 4
    assert (caught.value.supervisor, caught.value.__cause__.supervisor) == ("app", "inner")


async def test_a_ref_and_its_mail_outlive_the_restart_of_a_supervisor(troupe, witness):
    inner = Supervisor("inner", max_restarts=0, children=[ChildSpec("one", Adder), troupe.child("a")])
    async with running(Supervisor("app", children=[inner]), observer=witness):
        ref = inner.ref("one")
        ref.pause()
        ref.send_nowait(Add(2))
        troupe.crash("a")
        await witness.until("started", "inner", times=2)
        ref.resume()
        assert await ref.ask(Add(1)) == 3
        assert inner.ref("one") is ref


async def test_a_child_that_was_deleted_comes_back_with_its_supervisor_under_a_new_ref(troupe, witness):
    inner = Supervisor("inner", max_restarts=0, children=[ChildSpec("one", Adder), troupe.child("a")])
    async with running(Supervisor("app", children=[inner]), observer=witness):
        before = inner.ref("one")
        await inner.terminate_child("one")
        await inner.delete_child("one")
        troupe.crash("a")
        await witness.until("started", "inner", times=2)
        assert await inner.ref("one").ask(Add(1)) == 1
        assert inner.ref("one") is not before


async def test_a_ref_of_a_child_added_later_ends_with_the_supervisor(troupe, witness):
    inner = Supervisor("inner", max_restarts=0, children=troupe.children("a"))
    async with running(Supervisor("app", children=[inner]), observer=witness):
        ref = await inner.start_child(ChildSpec("one", Adder))
        troupe.crash("a")
        await witness.until("started", "inner", times=2)
        with pytest.raises(MailboxClosed):
            await ref.ask(Add(1))


async def test_a_ref_ends_where_its_supervisor_will_not_be_started_again(troupe, witness):
    inner = Supervisor("inner", max_restarts=0, children=[ChildSpec("one", Adder), troupe.child("a")])
    async with running(Supervisor("app", children=[ChildSpec("inner", inner, restart="transient")])):
        monitor = inner.ref("one").monitor()
        troupe.crash("a")
        with anyio.fail_after(DEADLOCK_S):
            assert (await monitor.wait()).reason.kind == "shutdown"


# --- a group restart that fails half-way


async def test_trap_the_children_after_a_failed_one_stay_down_until_the_retry(troupe, witness):
    tree = Supervisor("app", strategy="rest_for_one", max_restarts=5, children=troupe.children("abcd"))
    async with running(tree, observer=witness):
        troupe.take_log()
        troupe.broken["c"] = 1
        troupe.crash("b")
        await witness.until("started", "d", times=2)
        # The retry runs the strategy again from the child that failed to start: `b` is not touched by it.
        assert troupe.take_log() == "-b -d -c +b !c +c +d"


async def test_trap_one_for_all_stops_and_starts_everything_again_for_a_retry(troupe, witness):
    tree = Supervisor("app", strategy="one_for_all", max_restarts=5, children=troupe.children("abc"))
    async with running(tree, observer=witness):
        troupe.take_log()
        troupe.broken["c"] = 1
        troupe.crash("b")
        await witness.until("started", "c", times=2)
        assert troupe.take_log() == "-b -c -a +a +b !c -b -a +a +b +c"


async def test_stop_overtakes_a_pending_retry(troupe, witness):
    tree = Supervisor("app", max_restarts=None, children=troupe.children("ab"))
    with anyio.fail_after(DEADLOCK_S):
        async with running(tree, observer=witness):
            troupe.broken["a"] = 10**9
            troupe.crash("a")
            await witness.until("start_failed", times=5)
    assert troupe.take_log().endswith("-b")


async def test_calls_are_served_between_the_tries(troupe, witness):
    tree = Supervisor("app", max_restarts=None, children=troupe.children("a"))
    async with running(tree, observer=witness):
        troupe.broken["a"] = 10**9
        troupe.crash("a")
        await witness.until("start_failed", times=3)
        with pytest.raises(ChildRestarting, match="waits for its next try"):
            await tree.restart_child("a")
        with pytest.raises(ChildRestarting):
            await tree.delete_child("a")
        assert await tree.start_child(troupe.child("b")) == "b1"
        await tree.terminate_child("a")
        assert [child.state for child in tree.children()] == ["stopped", "running"]


async def test_the_exits_of_children_are_read_before_calls(troupe, witness):
    async def slow(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        await anyio.sleep(5)
        task_status.started()

    tree = Supervisor("app", children=troupe.children("a"))
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        tasks.start_soon(tree.start_child, Worker("slow", slow, restart="temporary"))
        await wait_all_tasks_blocked()
        tasks.start_soon(tree.start_child, troupe.child("b"))
        await wait_all_tasks_blocked()
        troupe.crash("a")
        await witness.until("started", "b")
    kinds = [(event.kind, event.child) for event in witness.events]
    assert kinds.index(("started", "slow")) < kinds.index(("exited", "a")) < kinds.index(("started", "b"))


async def test_a_child_that_crashes_all_the_time_does_not_keep_calls_waiting(witness):
    async def crash() -> None:
        raise ValueError

    tree = Supervisor("app", max_restarts=None, children=[Worker("loop", crash)])
    async with running(tree, observer=witness):
        await witness.until("restarting", times=3)
        ref = await tree.start_child(ChildSpec("one", Adder))
        assert await ref.ask(Add(1)) == 1


async def test_many_exits_at_once_let_the_others_have_their_turn(troupe):
    names = [f"n{number}" for number in range(300)]
    turns: list[int] = [0]
    seen: list[int] = []

    async def tick() -> None:
        while True:
            turns[0] += 1
            await checkpoint()

    def observe(event: SupervisionEvent) -> None:
        if event.kind == "exited":
            seen.append(turns[0])

    children = [troupe.child(name, restart="temporary") for name in names]
    async with running(Supervisor("app", children=children), observer=observe) as tree:
        for name in names:
            troupe.crash(name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            while tree.children():
                await checkpoint()
            tasks.cancel_scope.cancel()
    # A loop may give the supervisor two turns between two of the others'.
    assert 64 <= max(seen.count(turn) for turn in set(seen)) <= 2 * 64


async def test_a_failure_is_the_first_in_a_row_again_after_a_window_of_quiet(troupe):
    clock, witness = ByHand(), Witness()
    tree = Supervisor("app", max_restarts=None, within_s=5.0, children=troupe.children("a"))
    async with running(tree, clock=clock, observer=witness):
        for number, time in enumerate((0.0, 5.0, 9.9, 14.9)):
            clock.at = time
            troupe.crash("a")
            await witness.until("started", "a", times=number + 2)
    assert [event.attempt for event in witness.seen("restarting")] == [1, 1, 2, 1]


# --- a budget of its own


async def test_a_child_with_a_budget_of_its_own_ends_alone_and_does_not_count_for_its_siblings(troupe, witness):
    children = [troupe.child("a", max_restarts=2, within_s=10.0), troupe.child("b")]
    async with running(Supervisor("app", max_restarts=0, children=children), observer=witness) as tree:
        for time in (2, 3):
            troupe.crash("a")
            await witness.until("started", "a", times=time)
        troupe.crash("a")
        event = await witness.until("gave_up", "a")
        await wait_all_tasks_blocked()
        assert [child.state for child in tree.children()] == ["gave_up", "running"]
    assert (event.attempt, event.error) == (3, True)


async def test_a_child_that_gave_up_may_be_started_by_hand(troupe, witness):
    children = [troupe.child("a", max_restarts=0)]
    async with running(Supervisor("app", children=children), observer=witness) as tree:
        troupe.crash("a")
        await witness.until("gave_up", "a")
        assert await tree.restart_child("a") == "a2"


async def test_a_child_that_gives_up_in_a_group_restart_lets_the_rest_of_it_go_on(troupe, witness):
    children = [troupe.child("a"), troupe.child("b", max_restarts=0), troupe.child("c")]
    async with running(Supervisor("app", strategy="one_for_all", children=children), observer=witness) as tree:
        troupe.take_log()
        troupe.broken["b"] = 1
        troupe.crash("a")
        await witness.until("started", "c", times=2)
        assert [child.state for child in tree.children()] == ["running", "gave_up", "running"]
        assert troupe.take_log() == "-a -c -b +a !b +c"


async def test_an_actor_that_gave_up_takes_no_mail(witness):
    tree = Supervisor("app", children=[ChildSpec("one", Adder, max_restarts=0)])
    async with running(tree, observer=witness):
        ref = tree.ref("one")
        with pytest.raises(MailboxClosed):
            await ref.ask(Crash())
        assert str((await ref.monitor().wait()).reason) == "crashed: ValueError('told to')"


async def test_a_supervisor_that_crashes_itself_leaves_no_child_behind(witness):
    log: list[object] = []
    inner = Supervisor("inner", children=[ChildSpec("one", lambda: Adder(log))])
    async with running(Supervisor("app", children=[inner]), observer=witness):
        inner._engine._exited = None  # a bug
        await inner.ref("one").stop()
        assert (await witness.until("exited", "inner")).reason.kind == "crashed"
        await witness.until("started", "inner", times=2)
    assert log == ["start", "stop normal", "start", "stop shutdown"]


async def test_a_supervisor_whose_stop_crashes_kills_its_children(witness):
    async def bug() -> None:
        raise OSError("bug")

    log: list[object] = []
    inner = Supervisor("inner", children=[ChildSpec("one", lambda: Adder(log))])
    async with running(Supervisor("app", children=[inner]), observer=witness) as tree:
        inner._engine.stop_all = bug
        await tree.terminate_child("inner")
        assert str(witness.seen("shutdown_error", "inner")[0].reason) == "crashed: OSError('bug')"
    assert log == ["start"]


# --- helpers


async def live(tree: Supervisor, act, observer=None) -> None:
    async with running(tree, observer=observer):
        act()
        await anyio.sleep_forever()


async def crash_until_it_gives_up(tree: Supervisor, troupe: Troupe, name: str, every_s: float) -> None:
    async with running(tree):
        while True:
            troupe.crash(name)
            await anyio.sleep(every_s)


async def crash_at(tree: Supervisor, troupe: Troupe, clock: ByHand, times: list[float]) -> None:
    witness = Witness()
    async with running(tree, clock=clock, observer=witness):
        for number, time in enumerate(times):
            clock.at = time
            troupe.crash("a")
            await witness.until("started", "a", times=number + 2)
