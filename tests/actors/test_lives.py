"""Lives of actors: how they start and end, what they leave, and who is told."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from contextvars import ContextVar

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from troupe import Add, Adder, Crash, Hang, Nap, Witness, one

from shoal.actors import (
    Actor,
    Backoff,
    ChildSpec,
    Down,
    DynamicSupervisor,
    Reason,
    Ref,
    Registry,
    Supervisor,
    Worker,
    handles,
    running,
)
from shoal.errors import AskTimeout, MailboxClosed, NameTaken, StartFailed

pytestmark = pytest.mark.anyio

NAME: ContextVar[str] = ContextVar("name", default="none")


# --- the end of an actor


async def test_on_stop_is_told_why_the_actor_ends():
    log: list[object] = []
    async with running(one(lambda: Adder(log))) as tree:
        await tree.ref("one").send(Crash("boom"))
        await wait_all_tasks_blocked()
    assert log == ["start", "stop crashed: ValueError('boom')", "start", "stop shutdown"]


async def test_on_stop_has_shutdown_s_and_is_then_cut_short():
    log: list[object] = []
    witness = Witness()
    async with running(one(lambda: Adder(log, slow_stop_s=100.0), shutdown_s=3.0), observer=witness) as tree:
        before = anyio.current_time()
        await tree.terminate_child("one")
        took = anyio.current_time() - before
    assert took == pytest.approx(3.0, abs=0.01)
    assert log == ["start"]
    assert witness.seen("shutdown_error")[0].reason.kind == "killed"


async def test_on_stop_of_a_crashed_actor_has_shutdown_s_as_well():
    witness = Witness()
    async with running(one(lambda: Adder(slow_stop_s=100.0), shutdown_s=3.0), observer=witness) as tree:
        await tree.ref("one").send(Crash("boom"))
        event = await witness.until("exited")
        assert str(event.reason) == "crashed: ValueError('boom')"
        assert event.at - witness.seen("started")[0].at == pytest.approx(3.0, abs=0.01)


async def test_a_stop_returns_when_the_incarnation_has_ended():
    log: list[object] = []
    async with running(one(lambda: Adder(log, slow_stop_s=3.0), restart="temporary")) as tree:
        await tree.ref("one").stop()
        assert log == ["start", "stop normal"]


async def test_a_stop_during_on_stop_gives_it_no_more_time():
    witness = Witness()
    async with running(one(lambda: Adder(slow_stop_s=100.0), shutdown_s=5.0), observer=witness) as tree:
        before = anyio.current_time()
        await tree.ref("one").send(Crash("boom"))
        await anyio.sleep(3)
        await tree.terminate_child("one")
        assert anyio.current_time() - before == pytest.approx(5.0, abs=0.2)


async def test_an_asker_is_told_of_the_crash_before_on_stop_has_ended():
    async with running(one(lambda: Adder(slow_stop_s=3.0))) as tree:
        before = anyio.current_time()
        with pytest.raises(MailboxClosed):
            await tree.ref("one").ask(Crash("boom"))
        assert anyio.current_time() - before == pytest.approx(0.0, abs=0.2)


async def test_on_stop_of_an_actor_that_left_by_itself_is_cut_short_as_killed():
    class Slow(Actor):
        async def receive(self, message: object) -> None:
            self.stop()

        async def on_stop(self, reason: Reason) -> None:
            await anyio.sleep_forever()

    witness = Witness()
    async with running(one(Slow, restart="temporary", shutdown_s=1.0), observer=witness) as tree:
        await tree.ref("one").send("leave")
        assert (await witness.until("exited")).reason.kind == "killed"


async def test_on_stop_is_not_called_where_shutdown_s_is_0():
    log: list[str] = []

    class Prompt(Adder):
        async def on_stop(self, reason: Reason) -> None:
            log.append("stop")

    async with running(one(Prompt, shutdown_s=0)) as tree:
        await tree.ref("one").send(Crash("boom"))
        await wait_all_tasks_blocked()
    assert log == []


async def test_on_stop_is_waited_for_without_limit_where_shutdown_s_is_inf():
    log: list[object] = []
    async with running(one(lambda: Adder(log, slow_stop_s=1e6), shutdown_s=math.inf)) as tree:
        await tree.terminate_child("one")
    assert log == ["start", "stop shutdown"]


async def test_on_stop_is_not_called_where_the_start_failed():
    log: list[object] = []

    class Broken(Adder):
        async def on_start(self) -> None:
            raise OSError("no disk")

    with pytest.raises(StartFailed):
        async with running(one(lambda: Broken(log))):
            raise AssertionError("unreachable")
    assert log == []


async def test_an_on_stop_that_raises_is_a_crash():
    class Clumsy(Actor):
        async def on_stop(self, reason: Reason) -> None:
            raise OSError("oops")

    witness = Witness()
    async with running(one(Clumsy), observer=witness):
        pass
    assert str(witness.seen("shutdown_error")[0].reason) == "crashed: OSError('oops')"


async def test_a_crash_and_the_crash_of_on_stop_are_both_in_the_reason():
    class Clumsy(Adder):
        async def on_stop(self, reason: Reason) -> None:
            raise OSError("oops")

    witness = Witness()
    async with running(one(Clumsy), observer=witness) as tree:
        await tree.ref("one").send(Crash("boom"))
        event = await witness.until("exited")
    assert list(map(repr, event.reason.error.exceptions)) == ["ValueError('boom')", "OSError('oops')"]
    assert "oops" in event.reason.traceback()
    assert "boom" in event.reason.traceback()


async def test_a_receive_that_does_not_end_in_time_is_an_orphan_and_its_successor_gets_the_mail():
    log: list[object] = []
    witness = Witness()
    async with running(one(lambda: Adder(log), shutdown_s=2.0), observer=witness) as tree:
        ref = tree.ref("one")
        await ref.send(Hang(shielded_s=10.0))
        await wait_all_tasks_blocked()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ref.stop)
            orphaned = await witness.until("orphaned")
            assert orphaned.error
            assert await ref.ask(Add(1)) == 1
            assert [child.state for child in tree.children()] == ["running", "orphan"]
        assert orphaned.at - witness.seen("started")[0].at == pytest.approx(3.0, abs=0.2)
        await witness.until("orphan_ended")
        assert await ref.ask(Add(1)) == 2
        assert [child.state for child in tree.children()] == ["running"]
    assert log == ["start", "hang", "start", 1, 1, "stop shutdown"]


async def test_an_on_stop_that_does_not_end_leaves_an_orphan_too():
    class Stubborn(Adder):
        async def on_stop(self, reason: Reason) -> None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(20)

    witness = Witness()
    async with running(one(Stubborn, shutdown_s=1.0), observer=witness) as tree:
        await tree.ref("one").send(Crash("boom"))
        assert str((await witness.until("orphaned")).reason) == "crashed: ValueError('boom')"
        assert str((await witness.until("exited")).reason) == "crashed: ValueError('boom')"
        assert await tree.ref("one").ask(Add(1)) == 1


async def test_an_orphan_that_comes_back_does_not_disturb_its_successor():
    """It looks for letters just while the successor handles one; what is sent then must still be read."""
    witness = Witness()
    tree = one(Adder, shutdown_s=0)
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        ref = tree.ref("one")
        await ref.send(Nap(10.0, shielded=True))
        await wait_all_tasks_blocked()
        tasks.start_soon(ref.stop)
        await witness.until("started", times=2)
        await ref.send(Nap(20.0))
        await witness.until("orphan_ended")
        ref.send_nowait(Add(1))
        assert await ref.ask(Add(2), timeout_s=100.0) == 3


async def test_an_orphan_that_comes_back_leaves_an_idle_successor_its_wake_up_call():
    witness = Witness()
    tree = one(Adder, shutdown_s=0)
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        ref = tree.ref("one")
        await ref.send(Nap(10.0, shielded=True))
        await wait_all_tasks_blocked()
        tasks.start_soon(ref.stop)
        await witness.until("orphan_ended")
        assert await ref.ask(Add(2), timeout_s=100.0) == 2


@pytest.mark.parametrize(("restart", "handled"), [("permanent", [1]), ("temporary", [])])
async def test_an_orphan_that_comes_back_handles_nothing_that_waited_behind_its_message(witness, restart, handled):
    log: list[object] = []
    tree = one(lambda: Adder(log), shutdown_s=0, restart=restart)
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        ref = tree.ref("one")
        await ref.send(Nap(10.0, shielded=True))
        await wait_all_tasks_blocked()
        ref.send_nowait(Add(1))
        tasks.start_soon(ref.stop)
        await witness.until("orphan_ended")
    assert [entry for entry in log if isinstance(entry, int)] == handled


async def test_an_orphan_that_comes_back_leaves_its_successor_what_waits(witness):
    tree = one(Adder, shutdown_s=0)
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        ref = tree.ref("one")
        await ref.send(Nap(10.0, shielded=True))
        await wait_all_tasks_blocked()
        ref.send_nowait(Nap(20.0))
        ref.send_nowait(Add(1))
        tasks.start_soon(ref.stop)
        await witness.until("orphan_ended")
        assert await ref.ask(Add(2), timeout_s=100.0) == 3


async def test_an_ask_that_an_orphan_handles_ends_with_its_deadline_though_the_tree_is_over():
    async with anyio.create_task_group() as tasks:
        async with running(one(Adder, shutdown_s=0)) as tree:
            timed_out: list[float] = []
            ref = tree.ref("one")

            async def ask() -> None:
                with pytest.raises(AskTimeout):
                    await ref.ask(Hang(shielded_s=1000.0), timeout_s=50.0)
                timed_out.append(anyio.current_time())

            before = anyio.current_time()
            tasks.start_soon(ask)
            await wait_all_tasks_blocked()
        assert timed_out == [pytest.approx(before + 50.0, abs=0.2)]


async def test_timers_of_an_orphan_die_when_it_is_given_up():
    class Stubborn(Adder):
        @handles(Hang)
        async def hang(self, message: Hang) -> None:
            self.me.send_after(5.0, Add(100))
            await super().hang(message)

    witness = Witness()
    async with running(one(Stubborn, shutdown_s=0), observer=witness) as tree:
        ref = tree.ref("one")
        await ref.send(Hang(shielded_s=20.0))
        await wait_all_tasks_blocked()
        await ref.stop()
        await anyio.sleep(10)
        assert await ref.ask(Add(1)) == 1


async def test_a_stop_without_grace_is_a_normal_end_as_any_stop_is():
    async with running(one(Adder, restart="transient", shutdown_s=0)) as tree:
        await tree.ref("one").stop()
        await wait_all_tasks_blocked()
        assert [child.state for child in tree.children()] == ["finished"]


async def test_an_ask_whose_actor_was_interrupted_with_the_process_is_told():
    class Interrupted(Actor):
        async def receive(self, message: object) -> None:
            raise KeyboardInterrupt

    async def ask_in_vain(ref: Ref) -> None:
        with anyio.CancelScope(shield=True), pytest.raises(MailboxClosed) as caught:
            await ref.ask("x", timeout_s=1e6)
        told.append(type(caught.value.__cause__))

    told: list[type] = []
    tree = one(Interrupted)
    before = anyio.current_time()
    with pytest.raises(KeyboardInterrupt):
        async with running(tree):
            await ask_in_vain(tree.ref("one"))
    assert (told, anyio.current_time() - before) == ([KeyboardInterrupt], pytest.approx(0.0, abs=1.0))


# --- what it was cancelled by, what it raised


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancel_from_elsewhere_is_an_abnormal_end_and_the_tree_lives_on():
    tasks: list[asyncio.Task[None]] = []

    async def reachable() -> None:
        tasks.append(asyncio.current_task())
        await anyio.sleep_forever()

    witness = Witness()
    async with running(one(reachable, restart="transient"), observer=witness):
        await wait_all_tasks_blocked()
        tasks[0].cancel()
        assert (await witness.until("exited")).reason.kind == "crashed"
        await witness.until("started", times=2)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), BaseExceptionGroup("both", [KeyboardInterrupt()])]
)
async def test_an_error_that_is_meant_for_the_process_stops_the_tree_in_order_and_comes_out(error):
    log: list[object] = []

    async def interrupted() -> None:
        await anyio.sleep(1)
        raise error

    tree = Supervisor("app", children=[ChildSpec("one", lambda: Adder(log)), Worker("two", interrupted)])
    with pytest.raises(type(error)) as caught:
        async with running(tree):
            await anyio.sleep_forever()
    assert caught.value is error
    assert log == ["start", "stop shutdown"]


async def test_the_context_of_the_place_where_the_tree_was_started_holds_in_its_children():
    seen: list[str] = []

    class Curious(Actor):
        def __init__(self) -> None:
            seen.append(NAME.get())

    NAME.set("outside")
    async with running(DynamicSupervisor("app", template=ChildSpec("one", Curious))) as tree:
        NAME.set("later")
        await tree.start_child()
    assert seen == ["outside"]


async def test_a_factory_that_hands_out_the_same_actor_twice_fails_the_start():
    actor = Adder()
    witness = Witness()
    async with running(one(lambda: actor, backoff=Backoff()), observer=witness) as tree:
        await tree.ref("one").send(Crash())
        event = await witness.until("start_failed")
    assert "has run before; make a new one" in str(event.reason)


async def test_a_start_that_returns_neither_actor_nor_awaitable_fails():
    with pytest.raises(StartFailed, match="returned 7"):
        async with running(one(lambda: 7)):
            raise AssertionError("unreachable")


# --- monitors


async def test_a_monitor_is_told_once_of_the_end():
    async with running(one(Adder, restart="temporary")) as tree:
        ref = tree.ref("one")
        monitor = ref.monitor()
        await ref.stop()
        assert await monitor.wait() == Down(ref, Reason("normal"))
        assert await monitor.wait() == Down(ref, Reason("normal"))
        assert repr(monitor) == "<Monitor of '/app/one', down>"


async def test_a_restart_is_no_end_for_a_monitor():
    async with running(one(Adder)) as tree:
        monitor = tree.ref("one").monitor()
        await tree.ref("one").send(Crash())
        with anyio.move_on_after(100) as scope:
            await monitor.wait()
        assert scope.cancelled_caught


async def test_a_monitor_of_an_ended_actor_is_told_at_once():
    async with running(one(Adder, restart="temporary")) as tree:
        ref = tree.ref("one")
        await ref.stop()
        await ref.monitor().wait()
        assert (await ref.monitor().wait()).reason.kind == "normal"


async def test_all_that_wait_on_one_monitor_are_told():
    told: list[str] = []
    async with running(one(Adder, restart="temporary")) as tree:
        monitor = tree.ref("one").monitor()

        async def wait() -> None:
            told.append((await monitor.wait()).reason.kind)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await wait_all_tasks_blocked()
            tasks.start_soon(tree.ref("one").stop)
    assert told == ["normal", "normal"]


@pytest.mark.parametrize("make", [lambda spec: Supervisor("app", children=[spec]), lambda _: DynamicSupervisor("app")])
async def test_a_monitor_is_told_the_actors_own_reason_when_the_tree_stops(make):
    class Clumsy(Actor):
        async def on_stop(self, reason: Reason) -> None:
            raise OSError("oops")

    spec = ChildSpec("one", Clumsy)
    async with anyio.create_task_group() as tasks:
        reasons: list[str] = []

        async def watch(ref: Ref) -> None:
            reasons.append(str((await ref.monitor().wait()).reason))

        async with running(make(spec)) as tree:
            ref = tree.ref("one") if tree.children() else await tree.start_child(spec)
            tasks.start_soon(watch, ref)
            await wait_all_tasks_blocked()
    assert reasons == ["crashed: OSError('oops')"]


class Watcher(Actor):
    """Writes down the ends of those it was asked to watch."""

    def __init__(self, log: list[object]) -> None:
        self.log = log

    @handles(Down)
    async def down(self, message: Down) -> None:
        self.log.append(message.reason.kind)

    @handles(str)
    async def count(self, message: str) -> int:
        return len(self.log)

    @handles(tuple)
    async def watch(self, message: tuple) -> None:
        message[0].monitor(self.me)

    @handles(Crash)
    async def crash(self, message: Crash) -> None:
        raise ValueError


async def test_an_actor_that_watches_gets_the_end_as_a_message_even_where_its_mailbox_is_full():
    log: list[object] = []
    specs = [ChildSpec("one", Adder, restart="temporary"), ChildSpec("eye", lambda: Watcher(log), max_mail=1)]
    async with running(Supervisor("app", children=specs)) as tree:
        one, eye = tree.ref("one"), tree.ref("eye")
        await eye.ask((one,))
        eye.pause()
        eye.send_nowait("full")
        await one.stop()
        await one.monitor().wait()
        eye.resume()
        assert await eye.ask("how many") == 1
    assert log == ["normal"]


async def test_a_monitor_dies_with_the_incarnation_that_watches():
    log: list[object] = []
    specs = [ChildSpec("one", Adder, restart="temporary"), ChildSpec("eye", lambda: Watcher(log))]
    async with running(Supervisor("app", children=specs)) as tree:
        one, eye = tree.ref("one"), tree.ref("eye")
        await eye.ask((one,))
        with pytest.raises(MailboxClosed):
            await eye.ask(Crash())
        await one.stop()
        assert await eye.ask("how many") == 0


async def test_a_watcher_that_has_ended_is_told_nothing():
    specs = [ChildSpec("one", Adder, restart="temporary"), ChildSpec("eye", lambda: Watcher([]), restart="temporary")]
    async with running(Supervisor("app", children=specs)) as tree:
        one, eye = tree.ref("one"), tree.ref("eye")
        await eye.stop()
        await eye.monitor().wait()
        monitor = one.monitor(eye)
        await one.stop()
        assert (await monitor.wait()).reason.kind == "normal"


async def test_a_cancelled_monitor_is_told_nothing():
    async with running(one(Adder, restart="temporary")) as tree:
        ref = tree.ref("one")
        monitor = ref.monitor()
        assert monitor.cancel()
        assert not monitor.cancel()
        await ref.stop()
        await ref.monitor().wait()
        assert repr(monitor) == "<Monitor of '/app/one'>"


async def test_a_monitor_cancelled_after_the_end_was_too_late():
    async with running(one(Adder, restart="temporary")) as tree:
        ref = tree.ref("one")
        monitor = ref.monitor()
        await ref.stop()
        await monitor.wait()
        assert not monitor.cancel()


async def test_what_is_over_already_is_a_checkpoint_to_wait_for():
    async with running(one(Adder, restart="temporary")) as tree:
        ref = tree.ref("one")
        await ref.stop()
        await ref.monitor().wait()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await ref.monitor().wait()
        assert scope.cancelled_caught
        with anyio.CancelScope() as scope:
            scope.cancel()
            await ref.stop()
        assert scope.cancelled_caught
    with anyio.CancelScope() as scope:
        scope.cancel()
        await tree.wait()
    assert scope.cancelled_caught


async def test_a_monitor_that_has_done_its_work_or_was_cancelled_is_let_go():
    specs = [ChildSpec("one", Adder, restart="temporary"), ChildSpec("eye", lambda: Watcher([]))]
    async with running(Supervisor("app", children=specs)) as tree:
        one, eye = tree.ref("one"), tree.ref("eye")
        await eye.ask((one,))
        assert one.monitor(eye).cancel()
        assert len(tree._engine.records["eye"].life.owned) == 1
        await one.stop()
        await one.monitor().wait()
        assert len(tree._engine.records["eye"].life.owned) == 0


# --- names


async def test_a_name_leads_to_its_actor_and_is_free_again_after_the_end():
    names = Registry()
    async with running(one(Adder, restart="temporary")) as tree:
        ref = tree.ref("one")
        names.register("first", ref)
        assert (names.lookup("first"), "first" in names, len(names)) == (ref, True, 1)
        await ref.stop()
        await ref.monitor().wait()
        assert (names.lookup("first"), "first" in names, repr(names)) == (None, False, "<Registry of 0 names>")


async def test_a_restart_keeps_the_name_which_on_start_may_take_again():
    names = Registry()

    class Named(Adder):
        async def on_start(self) -> None:
            names.register("me", self.me)

    async with running(one(Named)) as tree:
        await tree.ref("one").send(Crash())
        assert await tree.ref("one").ask(Add(1)) == 1
        assert names.names() == ("me",)


async def test_a_name_is_given_to_one_actor_at_a_time():
    names = Registry()
    async with running(Supervisor("app", children=[ChildSpec("one", Adder), ChildSpec("two", Adder)])) as tree:
        names.register("first", tree.ref("one"))
        with pytest.raises(NameTaken, match="'first' is the name of '/app/one'"):
            names.register("first", tree.ref("two"))
        assert names.release("first")
        assert not names.release("first")
        names.register("first", tree.ref("two"))


async def test_a_released_name_stays_with_its_new_actor_when_the_old_one_ends():
    names = Registry()
    async with running(Supervisor("app", children=[ChildSpec("one", Adder), ChildSpec("two", Adder)])) as tree:
        names.register("first", tree.ref("one"))
        names.release("first")
        names.register("first", tree.ref("two"))
        await tree.terminate_child("one")
        assert names.lookup("first") is tree.ref("two")


async def test_names_are_listed_by_prefix_in_order():
    names = Registry()
    async with running(one(Adder)) as tree:
        for name in ("b/2", "a/1", "b/1"):
            names.register(name, tree.ref("one"))
        assert names.names("b/") == ("b/1", "b/2")
        assert names.names() == ("a/1", "b/1", "b/2")


async def test_an_ended_actor_gets_no_name():
    names = Registry()
    async with running(one(Adder)) as tree:
        ref = tree.ref("one")
        await tree.terminate_child("one")
        with pytest.raises(MailboxClosed):
            names.register("late", ref)
    assert len(names) == 0


# --- nothing is left


@pytest.mark.parametrize("end", [Ref.stop, lambda ref: ref.send(Crash("boom"))])
async def test_an_actor_that_ended_leaves_nothing(end):
    names = Registry()
    made: list[weakref.ref[Adder]] = []

    def make() -> Adder:
        actor = Adder()
        made.append(weakref.ref(actor))
        return actor

    async with running(DynamicSupervisor("app", template=ChildSpec("one", make, restart="temporary"))) as tree:
        ref = await tree.start_child()
        names.register("it", ref)
        ref.send_after(1e6, Add(1))
        monitor = ref.monitor()
        await end(ref)
        await monitor.wait()
        gone = weakref.ref(ref)
        assert (tree.children(), len(names), tree.count_children().specs) == ((), 0, 0)
        assert len(tree._engine.kernel.timers) == 0
        del ref, monitor
        await wait_all_tasks_blocked()
        gc.collect()
        assert made[0]() is None
        assert gone() is None
        assert len([task for task in anyio.get_running_tasks() if (task.name or "").startswith("/app/")]) == 0


async def test_a_tree_that_stopped_leaves_no_task():
    before = {task.id for task in anyio.get_running_tasks()}
    tree = Supervisor("app", children=[ChildSpec("one", Adder), Supervisor("sub", children=[ChildSpec("two", Adder)])])
    async with running(tree):
        pass
    assert {task.id for task in anyio.get_running_tasks()} == before
