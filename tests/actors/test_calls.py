"""What can be asked of a running supervisor about its children."""

from __future__ import annotations

import math

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from troupe import DEADLOCK_S, Add, Adder, Witness

from shoal.actors import Actor, Backoff, ChildSpec, Counts, Monitor, Supervisor, Worker, running
from shoal.errors import (
    AlreadyPresent,
    AlreadyStarted,
    ChildNotFound,
    ChildRunning,
    ChildSpecInvalid,
    MailboxClosed,
    StartFailed,
    SupervisorStopped,
)

pytestmark = pytest.mark.anyio


class Stuck(Actor):
    """Never comes up."""

    async def on_start(self) -> None:
        await anyio.sleep_forever()


# --- start_child


async def test_start_child_appends_at_the_end_of_the_start_order(troupe):
    async with running(Supervisor("app", children=troupe.children("ab"))) as tree:
        assert await tree.start_child(troupe.child("c")) == "c1"
    assert troupe.take_log() == "+a +b +c -c -b -a"


async def test_start_child_returns_the_ref_of_an_actor_and_a_supervisor_itself():
    inner = Supervisor("inner")
    async with running(Supervisor("app")) as tree:
        ref = await tree.start_child(ChildSpec("one", Adder))
        assert ref is tree.ref("one")
        assert await tree.start_child(inner) is inner


async def test_start_child_refuses_an_id_that_runs_or_restarts(troupe):
    witness = Witness()
    tree = Supervisor("app", max_restarts=None, children=troupe.children("a"), backoff=Backoff())
    async with running(tree, observer=witness):
        with pytest.raises(AlreadyStarted, match="'/app/a' is running"):
            await tree.start_child(troupe.child("a"))
        troupe.crash("a")
        await witness.until("restarting")
        with pytest.raises(AlreadyStarted, match="'/app/a' is restarting"):
            await tree.start_child(troupe.child("a"))


async def test_start_child_refuses_an_id_that_is_there_without_a_process(troupe):
    async with running(Supervisor("app", children=troupe.children("a"))) as tree:
        await tree.terminate_child("a")
        with pytest.raises(AlreadyPresent, match="'/app/a' is there and stopped"):
            await tree.start_child(troupe.child("a"))


async def test_start_child_does_not_keep_the_spec_of_a_start_that_failed(troupe):
    troupe.broken["a"] = 1
    async with running(Supervisor("app")) as tree:
        with pytest.raises(StartFailed) as caught:
            await tree.start_child(troupe.child("a"))
        assert isinstance(caught.value.__cause__, OSError)
        assert tree.history()[-1].error
        assert tree.children() == ()
        assert await tree.start_child(troupe.child("a")) == "a1"


async def test_an_actor_that_failed_to_start_ends_with_that_for_those_who_know_it_already():
    told: list[str] = []

    class Broken(Adder):
        async def on_start(self) -> None:
            watched.append(self.me.monitor())
            raise OSError("no disk")

    watched: list[Monitor] = []
    async with running(Supervisor("app")) as tree:
        with pytest.raises(StartFailed):
            await tree.start_child(ChildSpec("one", Broken))
        told.append(str((await watched[0].wait()).reason))
    assert told == ["crashed: OSError('no disk')"]


async def test_a_supervisor_that_runs_elsewhere_cannot_be_started_as_a_child():
    inner = Supervisor("inner")
    async with running(Supervisor("app", children=[inner])) as tree:
        with pytest.raises(StartFailed) as caught:
            await tree.start_child(ChildSpec("again", inner))
        assert "already runs as '/app/inner'" in str(caught.value.__cause__)
        assert inner.status == "running"


async def test_start_child_checks_the_spec_before_anything_starts(troupe):
    async with running(Supervisor("app")) as tree:
        with pytest.raises(ChildSpecInvalid, match="significant"):
            await tree.start_child(troupe.child("a", restart="temporary", significant=True))
    assert troupe.take_log() == ""


async def test_a_start_goes_on_when_its_caller_is_cancelled():
    async def slow(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        await anyio.sleep(5)
        task_status.started()
        await anyio.sleep_forever()

    witness = Witness()
    async with running(Supervisor("app"), observer=witness) as tree:
        with anyio.move_on_after(1):
            await tree.start_child(ChildSpec("slow", slow))
        await witness.until("started", "slow")


async def test_a_call_whose_caller_was_cancelled_before_its_turn_is_not_served(troupe):
    async with running(Supervisor("app")) as tree, anyio.create_task_group() as tasks:
        tasks.start_soon(start_in_vain, tree)
        await wait_all_tasks_blocked()
        with anyio.move_on_after(1):
            await tree.start_child(troupe.child("a"))
        await tree.terminate_child("stuck")
        await tree.start_child(troupe.child("b"))
        assert [child.id for child in tree.children()] == ["b"]


async def test_a_start_that_hangs_is_ended_by_terminate_child():
    async with running(Supervisor("app")) as tree, anyio.create_task_group() as tasks:
        tasks.start_soon(start_in_vain, tree)
        await wait_all_tasks_blocked()
        assert [child.state for child in tree.children()] == ["starting"]
        with anyio.fail_after(DEADLOCK_S):
            await tree.terminate_child("stuck")
        assert tree.children() == ()


async def test_terminate_child_waits_for_the_end_of_a_start_that_it_cut():
    async def slow_to_give_up(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2)

    async with running(Supervisor("app")) as tree, anyio.create_task_group() as tasks:
        tasks.start_soon(start_in_vain, tree, ChildSpec("stuck", slow_to_give_up))
        await wait_all_tasks_blocked()
        before = anyio.current_time()
        await tree.terminate_child("stuck")
        assert anyio.current_time() - before == pytest.approx(2.0, abs=0.2)


async def test_a_child_may_have_itself_terminated():
    tree = Supervisor("app")

    class Tired(Actor):
        async def receive(self, message: object) -> None:
            await tree.terminate_child(self.me)

    async with running(tree):
        ref = await tree.start_child(ChildSpec("tired", Tired))
        with pytest.raises(MailboxClosed):
            await ref.ask("enough", timeout_s=100.0)
        assert (await ref.monitor().wait()).reason.kind == "shutdown"


async def test_a_start_of_the_tree_that_hangs_goes_on_without_the_child_that_is_terminated(troupe):
    tree = Supervisor("app", children=[ChildSpec("stuck", Stuck), troupe.child("a")])

    async def unstick() -> None:
        await wait_all_tasks_blocked()
        await tree.terminate_child("stuck")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(unstick)
        async with running(tree):
            assert [child.state for child in tree.children()] == ["stopped", "running"]


async def test_a_call_in_a_slow_start_of_the_tree_is_answered_between_its_steps(troupe):
    class Slow(Actor):
        async def on_start(self) -> None:
            await anyio.sleep(5)

    tree = Supervisor(
        "app", children=[ChildSpec("s", Slow), troupe.child("a"), ChildSpec("t", Slow), troupe.child("b")]
    )
    served: list[str] = []

    async def call() -> None:
        await wait_all_tasks_blocked()
        await tree.terminate_child("b")
        served.extend(child.state for child in tree.children()[2:])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        async with running(tree):
            assert troupe.take_log() == "+a"
    assert served == ["down", "stopped"]


async def test_calls_during_a_group_restart_are_answered_between_its_steps_and_obeyed(troupe):
    witness = Witness()
    troupe.slow = {"c": 3.0}
    tree = Supervisor("app", strategy="one_for_all", children=troupe.children("abcd"))
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        troupe.take_log()
        troupe.crash("d")
        await witness.until("restarting")
        tasks.start_soon(tree.terminate_child, "b")
        await witness.until("started", "d", times=2)
        assert [child.state for child in tree.children()] == ["running", "stopped", "running", "running"]
    assert witness.kinds("b") == ["started", "stopped"]


async def test_calls_while_a_group_is_started_are_answered_between_its_steps(troupe):
    class Slow(Adder):
        async def on_start(self) -> None:
            await anyio.sleep(5)

    witness = Witness()
    tree = Supervisor("app", strategy="one_for_all", children=[ChildSpec("slow", Slow), *troupe.children("ab")])
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        troupe.crash("b")
        await witness.until("stopped", "slow")
        await wait_all_tasks_blocked()
        tasks.start_soon(tree.terminate_child, "b")
        await witness.until("started", "a", times=2)
        await wait_all_tasks_blocked()
        assert [child.state for child in tree.children()] == ["running", "running", "stopped"]
    assert troupe.runs == {"a": 2, "b": 1}


async def test_a_child_deleted_during_a_group_restart_is_not_started_again(troupe):
    witness = Witness()
    troupe.slow = {"a": 3.0}
    tree = Supervisor("app", strategy="one_for_all", children=troupe.children("abc"))
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        troupe.crash("c")
        await witness.until("stopped", "b")
        tasks.start_soon(tree.delete_child, "b")
        await witness.until("started", "c", times=2)
        assert [child.id for child in tree.children()] == ["a", "c"]


# --- terminate_child


async def test_terminate_child_keeps_the_spec_without_a_process_and_may_be_called_again(troupe):
    async with running(Supervisor("app", children=troupe.children("a"))) as tree:
        for _ in range(2):
            await tree.terminate_child("a")
            assert [child.state for child in tree.children()] == ["stopped"]


async def test_terminate_child_removes_a_temporary_child(troupe):
    async with running(Supervisor("app", children=troupe.children("a", restart="temporary"))) as tree:
        await tree.terminate_child("a")
        assert tree.children() == ()


async def test_terminate_child_takes_the_ref_of_an_actor():
    async with running(Supervisor("app", children=[ChildSpec("one", Adder)])) as tree:
        ref = tree.ref("one")
        await tree.terminate_child(ref)
        with pytest.raises(MailboxClosed):
            await ref.ask(Add(1))
        with pytest.raises(ChildNotFound, match="has no child <Ref '/app/one'"):
            await tree.terminate_child(ref)


async def test_terminate_child_calls_off_a_restart_that_is_still_to_come(troupe):
    witness = Witness()
    async with running(Supervisor("app", children=troupe.children("a"), backoff=Backoff()), observer=witness) as tree:
        troupe.crash("a")
        await witness.until("restarting")
        await tree.terminate_child("a")
        await anyio.sleep(1000)
        assert [child.state for child in tree.children()] == ["stopped"]
    assert troupe.runs["a"] == 1


async def test_terminate_child_calls_off_the_next_try_where_it_comes_between_two():
    tries: list[float] = []

    async def slow_to_fail(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        tries.append(anyio.current_time())
        if len(tries) > 1:
            await anyio.sleep(1)
            raise OSError
        task_status.started()

    async def slow(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        await anyio.sleep(5)
        task_status.started()
        await anyio.sleep_forever()

    witness = Witness()
    tree = Supervisor("app", max_restarts=None, children=[ChildSpec("a", slow_to_fail)])
    async with running(tree, observer=witness), anyio.create_task_group() as tasks:
        await witness.until("restarting")
        # It is read after the first try failed, and holds up the second; the next call then waits behind that.
        tasks.start_soon(tree.start_child, ChildSpec("slow", slow))
        await witness.until("start_failed")
        await anyio.sleep(1)
        await tree.terminate_child("a")
        assert [child.state for child in tree.children()] == ["stopped", "running"]
        await anyio.sleep(10)
    assert len(tries) == 3


async def test_terminate_child_of_an_unknown_child_names_those_there_are(troupe):
    async with running(Supervisor("app", children=troupe.children("ab"))) as tree:
        with pytest.raises(ChildNotFound, match="'/app' has no child 'x'; it has 'a', 'b'") as caught:
            await tree.terminate_child("x")
    assert (caught.value.supervisor, caught.value.child) == ("app", "x")


async def test_a_child_that_was_terminated_takes_a_new_ref_when_it_is_started_again():
    async with running(Supervisor("app", children=[ChildSpec("one", Adder)])) as tree:
        before = tree.ref("one")
        await tree.terminate_child("one")
        after = await tree.restart_child("one")
        assert after is not before
        assert await after.ask(Add(1)) == 1


async def test_terminating_a_supervisor_ends_what_is_below_it_for_good(troupe):
    inner = Supervisor("inner", children=[ChildSpec("one", Adder)])
    async with running(Supervisor("app", children=[inner])) as tree:
        monitor = inner.ref("one").monitor()
        await tree.terminate_child("inner")
        assert (await monitor.wait()).reason.kind == "shutdown"
        assert (await inner.wait()).kind == "shutdown"
        assert await tree.restart_child("inner") is inner
        assert await inner.ref("one").ask(Add(1)) == 1


# --- restart_child, delete_child


async def test_restart_child_starts_what_has_no_process_and_is_not_counted(troupe):
    async with running(Supervisor("app", max_restarts=0, children=troupe.children("a"))) as tree:
        for number in (2, 3, 4):
            await tree.terminate_child("a")
            assert await tree.restart_child("a") == f"a{number}"
        assert tree.status == "running"


async def test_restart_child_refuses_a_child_that_runs_and_one_that_is_not_there(troupe):
    async with running(Supervisor("app", children=troupe.children("a"))) as tree:
        with pytest.raises(ChildRunning, match="'/app/a' is running"):
            await tree.restart_child("a")
        with pytest.raises(ChildNotFound):
            await tree.restart_child("x")


async def test_restart_child_keeps_the_spec_of_a_start_that_failed(troupe):
    async with running(Supervisor("app", children=troupe.children("a"))) as tree:
        await tree.terminate_child("a")
        troupe.broken["a"] = 1
        with pytest.raises(StartFailed):
            await tree.restart_child("a")
        assert [child.state for child in tree.children()] == ["stopped"]
        assert await tree.restart_child("a") == "a2"


async def test_delete_child_forgets_what_has_no_process(troupe):
    async with running(Supervisor("app", children=troupe.children("ab"))) as tree:
        await tree.terminate_child("a")
        await tree.delete_child("a")
        assert [child.id for child in tree.children()] == ["b"]
        with pytest.raises(ChildRunning):
            await tree.delete_child("b")
        with pytest.raises(ChildNotFound):
            await tree.delete_child("a")


async def test_a_call_at_a_supervisor_that_is_stopping_is_refused(troupe):
    troupe.slow = {"a": 3.0}
    tree = Supervisor("app", children=troupe.children("a"))

    async def late() -> None:
        await anyio.sleep(1)
        with pytest.raises(SupervisorStopped):
            await tree.start_child(troupe.child("b"))

    async with anyio.create_task_group() as tasks, running(tree):
        tasks.start_soon(late)
        await wait_all_tasks_blocked()
    assert troupe.take_log() == "+a -a"


async def test_calls_that_wait_when_the_supervisor_stops_are_refused(troupe):
    refused = 0

    async def wait(tree: Supervisor, spec: ChildSpec) -> None:
        nonlocal refused
        with pytest.raises(SupervisorStopped, match="'/app' ends or has ended"):
            await tree.start_child(spec)
        refused += 1

    async with anyio.create_task_group() as tasks, running(Supervisor("app")) as tree:
        # The first is being served, the second waits for its turn.
        tasks.start_soon(wait, tree, ChildSpec("stuck", Stuck))
        await wait_all_tasks_blocked()
        tasks.start_soon(wait, tree, troupe.child("a"))
        await wait_all_tasks_blocked()
    assert refused == 2


async def test_letters_of_retries_are_dropped_when_the_supervisor_stops(troupe):
    """A retry whose delay ends while a group is stopped waits on the desk; the stop sweeps it away."""
    witness = Witness()
    tree = Supervisor("app", max_restarts=None, children=troupe.children("ab"), backoff=Backoff(initial=1, jitter=0))
    troupe.slow = {"b": 10.0}
    async with running(tree, observer=witness):
        troupe.crash("a")
        await witness.until("restarting")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tree.terminate_child, "b")
            await anyio.sleep(2)
            tasks.cancel_scope.cancel()
    assert troupe.runs["a"] == 1


# --- looking


async def test_which_children_gives_id_handle_and_type_in_start_order(troupe):
    inner = Supervisor("inner")
    children = [
        ChildSpec("one", Adder),
        Worker("beat", anyio.sleep_forever),
        inner,
        troupe.child("a", backoff=Backoff()),
    ]
    witness = Witness()
    async with running(Supervisor("app", children=children), observer=witness) as tree:
        await tree.start_child(troupe.child("b"))
        await tree.terminate_child("b")
        troupe.crash("a")
        await witness.until("restarting")
        assert tree.which_children() == (
            ("one", tree.ref("one"), "worker"),
            ("beat", "running", "worker"),
            ("inner", inner, "supervisor"),
            ("a", "restarting", "worker"),
            ("b", None, "worker"),
        )


async def test_count_children_counts_specs_processes_supervisors_and_workers(troupe):
    children = [ChildSpec("one", Adder), Supervisor("inner"), troupe.child("a")]
    async with running(Supervisor("app", children=children)) as tree:
        await tree.terminate_child("a")
        assert tree.count_children() == Counts(specs=3, active=2, supervisors=1, workers=2)


async def test_get_childspec_gives_the_spec_with_every_default_filled_in(troupe):
    children = [troupe.child("a", max_restarts=3), Supervisor("inner"), troupe.child("b", shutdown_s=0)]
    async with running(Supervisor("app", children=children)) as tree:
        specs = [tree.get_childspec(child.id) for child in tree.children()]
        assert [(spec.shutdown_s, spec.within_s, spec.restart) for spec in specs] == [
            (5.0, 5.0, "permanent"),
            (math.inf, None, "permanent"),
            (0, None, "permanent"),
        ]
        with pytest.raises(ChildNotFound):
            tree.get_childspec("x")


async def test_only_an_actor_that_has_come_up_has_a_ref(troupe):
    async with running(Supervisor("app", children=[troupe.child("a"), ChildSpec("one", Adder)])) as tree:
        assert tree.ref("one").path == "/app/one"
        with pytest.raises(ChildNotFound, match="'/app/a' is a worker and running"):
            tree.ref("a")
        await tree.terminate_child("one")
        with pytest.raises(ChildNotFound, match="'/app/one' is a worker and stopped"):
            tree.ref("one")
        with pytest.raises(ChildNotFound, match="'/app' has no child 'x'"):
            tree.ref("x")


async def start_in_vain(tree: Supervisor, spec: ChildSpec | None = None) -> None:
    with pytest.raises(StartFailed, match="'/app/stuck' was terminated while it started"):
        await tree.start_child(spec or ChildSpec("stuck", Stuck))
