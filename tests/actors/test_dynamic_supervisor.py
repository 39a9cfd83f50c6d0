"""Supervisors whose children come and go."""

from __future__ import annotations

import math

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from troupe import Adder, Crash

from shoal.actors import Actor, Backoff, ChildSpec, DynamicSupervisor, Question, Supervisor, running
from shoal.errors import (
    AlreadyStarted,
    ChildNotFound,
    ChildSpecInvalid,
    MailboxClosed,
    RestartsExhausted,
    StartFailed,
    SupervisorError,
    TooManyChildren,
)

pytestmark = pytest.mark.anyio


class Greet(Question[str]):
    """Asks for a greeting."""


class Greeter(Actor):
    """Greets with what it was made with."""

    def __init__(self, word: str = "hello", name: str = "you") -> None:
        self.text = f"{word} {name}"

    async def receive(self, message: object) -> str:
        match message:
            case Greet():
                return self.text
            case _:
                raise ValueError(message)


# --- many templates


async def test_nothing_is_started_at_init(troupe):
    async with running(DynamicSupervisor("app")) as tree:
        assert tree.children() == ()


async def test_children_come_with_their_own_specs_under_their_ids(troupe):
    inner = Supervisor("inner", children=troupe.children("x"))
    async with running(DynamicSupervisor("app")) as tree:
        assert await tree.start_child(troupe.child("a")) == "a1"
        assert await tree.start_child(ChildSpec("one", Adder)) is tree.ref("one")
        assert await tree.start_child(inner) is inner
        assert [child.id for child in tree.children()] == ["a", "one", "inner"]


async def test_a_failure_restarts_that_child_alone(troupe, witness):
    async with running(DynamicSupervisor("app"), observer=witness) as tree:
        await tree.start_child(troupe.child("a"))
        await tree.start_child(troupe.child("b"))
        troupe.crash("a")
        await witness.until("started", "a", times=2)
    assert troupe.runs == {"a": 2, "b": 1}


@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_a_child_that_ended_for_good_leaves_nothing_and_its_key_is_free(troupe, witness, restart):
    async with running(DynamicSupervisor("app"), observer=witness) as tree:
        await tree.start_child(troupe.child("a", restart=restart))
        troupe.end("a")
        await witness.until("exited")
        await wait_all_tasks_blocked()
        assert tree.children() == ()
        assert await tree.start_child(troupe.child("a")) == "a2"


async def test_a_terminated_child_leaves_nothing(troupe):
    async with running(DynamicSupervisor("app")) as tree:
        ref = await tree.start_child(ChildSpec("one", Adder))
        await tree.terminate_child(ref)
        assert tree.children() == ()
        with pytest.raises(ChildNotFound):
            await tree.terminate_child("one")


async def test_a_child_that_gave_up_leaves_nothing(troupe, witness):
    async with running(DynamicSupervisor("app"), observer=witness) as tree:
        ref = await tree.start_child(ChildSpec("one", Adder, max_restarts=0))
        ref.send_nowait(Crash())
        await witness.until("gave_up")
        assert (await ref.monitor().wait()).reason.kind == "crashed"
        assert tree.children() == ()


async def test_the_keys_of_live_children_are_taken(troupe):
    async with running(DynamicSupervisor("app")) as tree:
        await tree.start_child(troupe.child("a"))
        with pytest.raises(AlreadyStarted):
            await tree.start_child(troupe.child("a"))


async def test_max_children_is_the_most_there_are_at_once(troupe):
    async with running(DynamicSupervisor("app", max_children=2)) as tree:
        await tree.start_child(troupe.child("a"))
        await tree.start_child(troupe.child("b"))
        with pytest.raises(TooManyChildren, match="'/app' has its 2 children"):
            await tree.start_child(troupe.child("c"))
        await tree.terminate_child("a")
        await tree.start_child(troupe.child("c"))


async def test_a_start_that_failed_takes_no_place(troupe):
    troupe.broken["a"] = 1
    async with running(DynamicSupervisor("app", max_children=1)) as tree:
        with pytest.raises(StartFailed):
            await tree.start_child(troupe.child("a"))
        await tree.start_child(troupe.child("a"))


async def test_all_children_are_told_at_once_and_each_has_its_own_time(troupe):
    troupe.slow = {"a": 3.0, "b": 4.0, "c": 60.0}
    async with running(DynamicSupervisor("app")) as tree:
        for name in "abc":
            await tree.start_child(troupe.child(name, shutdown_s=math.inf if name == "c" else 10.0))
        before = anyio.current_time()
    assert anyio.current_time() - before == pytest.approx(60.0, abs=0.01)
    assert troupe.take_log() == "+a +b +c -a -b -c"


async def test_too_many_restarts_of_all_children_together_end_it(troupe):
    async def crash_both(tree: DynamicSupervisor) -> None:
        async with running(tree):
            for name in "ab":
                await tree.start_child(troupe.child(name))
                troupe.crash(name)
            await anyio.sleep_forever()

    with pytest.raises(RestartsExhausted):
        await crash_both(DynamicSupervisor("app", max_restarts=1))


@pytest.mark.parametrize("call", ["restart_child", "delete_child"])
@pytest.mark.parametrize("template", [None, ChildSpec("one", Greeter)])
async def test_calls_for_children_without_a_process_are_refused(call, template):
    async with running(DynamicSupervisor("app", template=template)) as tree:
        with pytest.raises(SupervisorError, match=f"so `{call}` has none"):
            await getattr(tree, call)("one")


@pytest.mark.parametrize(("child", "key"), [((), None), ((1, 2), None), ((ChildSpec("one", Adder),), "two")])
async def test_without_a_template_exactly_one_spec_is_taken(child, key):
    async with running(DynamicSupervisor("app")) as tree:
        with pytest.raises(ChildSpecInvalid, match="has no template"):
            await tree.start_child(*child, key=key)


async def test_its_children_end_with_it_when_it_is_restarted(troupe, witness):
    dynamic = DynamicSupervisor("dyn", max_restarts=0)
    async with running(Supervisor("app", children=[dynamic]), observer=witness):
        ref = await dynamic.start_child(ChildSpec("one", Adder))
        await dynamic.start_child(troupe.child("a"))
        troupe.crash("a")
        await witness.until("started", "dyn", times=2)
        assert dynamic.children() == ()
        with pytest.raises(MailboxClosed):
            await ref.send("x")


# --- one template


async def test_each_child_is_made_from_the_template_with_arguments_of_its_own(troupe):
    async with running(DynamicSupervisor("app", template=ChildSpec("greeter", Greeter))) as tree:
        plain = await tree.start_child()
        mine = await tree.start_child("bye", "me")
        assert [await plain.ask(Greet()), await mine.ask(Greet())] == ["hello you", "bye me"]
        assert [ref.path for ref in (plain, mine)] == ["/app/greeter-1", "/app/greeter-2"]


async def test_a_restart_calls_the_template_with_the_original_arguments(witness):
    async with running(DynamicSupervisor("app", template=ChildSpec("greeter", Greeter)), observer=witness) as tree:
        ref = await tree.start_child("bye", "me")
        ref.send_nowait("crash")
        await witness.until("started", times=2)
        assert await ref.ask(Greet()) == "bye me"


async def test_arguments_reach_a_function_that_takes_task_status(troupe):
    template = ChildSpec("fn", troupe.play)
    async with running(DynamicSupervisor("app", template=template)) as tree:
        assert await tree.start_child("a") == "a1"


async def test_a_child_of_a_template_may_have_a_key(troupe):
    template = ChildSpec("greeter", Greeter)
    async with running(DynamicSupervisor("app", template=template)) as tree:
        await tree.start_child(key="first")
        await tree.start_child(key="greeter-1")
        await tree.start_child()
        assert [child.id for child in tree.children()] == ["first", "greeter-1", "greeter-2"]
        with pytest.raises(AlreadyStarted):
            await tree.start_child(key="first")
        with pytest.raises(ChildSpecInvalid):
            await tree.start_child(key="a/b")


async def test_the_children_of_a_template_share_one_deadline(troupe):
    names = "abcdef"
    troupe.slow = dict.fromkeys(names, 100.0)
    async with running(DynamicSupervisor("dyn", template=ChildSpec("fn", troupe.play, shutdown_s=5.0))) as tree:
        for name in names:
            await tree.start_child(name)
        before = anyio.current_time()
    orphaned = [event for event in tree.history() if event.kind == "orphaned"]
    assert len(orphaned) == 6
    assert {round(event.at - before, 1) for event in orphaned} == {6.0}


def test_a_template_that_is_a_supervisor_is_refused():
    with pytest.raises(ChildSpecInvalid, match="of which there is one"):
        DynamicSupervisor("app", template=ChildSpec("x", Supervisor("x")))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_children": 0}, "`max_children` is 0"),
        ({"max_restarts": -1}, "`max_restarts` is -1"),
        ({"within_s": 0.0}, "`within_s` is 0.0"),
        ({"auto_shutdown": "sometimes"}, "`auto_shutdown` is 'sometimes'"),
        ({"template": ChildSpec("one", Adder, restart="temporary", significant=True)}, "significant"),
    ],
)
def test_a_dynamic_supervisor_that_could_not_be_started_is_refused(options, problem):
    with pytest.raises(ChildSpecInvalid, match=problem):
        DynamicSupervisor("app", **options)


async def test_a_dynamic_supervisor_has_backoff_and_auto_shutdown_like_any_other(troupe, witness):
    tree = DynamicSupervisor("app", backoff=Backoff(initial=7, jitter=0), auto_shutdown="any_significant")
    async with running(tree, observer=witness):
        await tree.start_child(troupe.child("a"))
        troupe.crash("a")
        assert (await witness.until("restarting")).delay_s == 7
        await tree.start_child(troupe.child("b", restart="temporary", significant=True))
        troupe.end("b")
        assert (await tree.wait()).kind == "shutdown"
