"""Asks: an answer, or an error that says which; never a hang."""

from __future__ import annotations

import math
from contextlib import suppress

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from hypothesis import given
from hypothesis import strategies as st
from troupe import DEADLOCK_S, Add, Adder, Crash, Hang, one

from shoal.actors import Actor, running
from shoal.actors._mailbox import Asked
from shoal.actors._ref import box_of
from shoal.errors import AskedSelf, AskTimeout, ChildNotFound, MailboxClosed

pytestmark = pytest.mark.anyio


async def test_an_ask_returns_what_receive_returns():
    async with running(one(Adder)) as tree:
        answer: int = await tree.ref("one").ask(Add(2))
    assert answer == 2


async def test_a_deadline_is_let_go_with_the_answer():
    async with running(one(Adder)) as tree:
        await tree.ref("one").ask(Add(2), timeout_s=1e6)
        assert len(tree._engine.kernel.timers) == 0


async def test_an_ask_without_an_answer_in_time_raises():
    async with running(one(Adder)) as tree:
        before = anyio.current_time()
        with pytest.raises(AskTimeout, match=r"'/app/one' did not answer 'Hang' within 3\.0 s") as caught:
            await tree.ref("one").ask(Hang(), timeout_s=3.0)
        assert anyio.current_time() - before == pytest.approx(3.0, abs=0.01)
    assert (caught.value.path, caught.value.timeout_s, caught.value.retryable) == ("/app/one", 3.0, True)


async def test_an_ask_has_five_seconds_unless_told_otherwise():
    async with running(one(Adder)) as tree:
        before = anyio.current_time()
        with pytest.raises(AskTimeout):
            await tree.ref("one").ask(Hang())
        assert anyio.current_time() - before == pytest.approx(5.0, abs=0.01)


async def test_a_message_whose_asker_gave_up_is_still_handled_and_its_answer_dropped():
    async with running(one(Adder)) as tree:
        ref = tree.ref("one")
        ref.pause()
        with pytest.raises(AskTimeout):
            await ref.ask(Add(1), timeout_s=1.0)
        ref.resume()
        assert await ref.ask(Add(1)) == 2


async def test_of_an_answer_and_an_error_at_the_same_moment_the_first_holds():
    async with running(one(Adder)) as tree:
        box = box_of(tree.ref("one"))
        answered, late = Asked(box, Add(1), 1.0), Asked(box, Add(1), 1.0)
        answered.answer(7)
        answered.due()
        late.due()
        late.answer(7)
    assert (answered.reply, answered.error) == (7, None)
    assert (late.reply, type(late.error)) == (None, AskTimeout)


async def test_waiting_for_room_counts_for_the_deadline_and_the_message_is_then_not_delivered():
    async with running(one(Adder, max_mail=1)) as tree:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        with pytest.raises(AskTimeout):
            await ref.ask(Add(10), timeout_s=1.0)
        ref.resume()
        assert await ref.ask(Add(1)) == 2


async def test_an_ask_that_waits_for_room_is_answered_once_there_is_some():
    async with running(one(Adder, max_mail=1)) as tree:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ref.ask, Add(1))
            await wait_all_tasks_blocked()
            ref.resume()
        assert await ref.ask(Add(1)) == 3


async def test_an_ask_that_is_cancelled_while_it_waits_for_room_is_not_delivered():
    async with running(one(Adder, max_mail=1)) as tree:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ref.ask, Add(10))
            tasks.start_soon(ref.ask, Add(20))
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        ref.resume()
        assert await ref.ask(Add(1)) == 2


async def test_an_ask_that_crashes_its_actor_gets_mailbox_closed_from_the_error():
    async with running(one(Adder)) as tree:
        with pytest.raises(MailboxClosed, match="'/app/one' ended while it handled 'Crash'") as caught:
            await tree.ref("one").ask(Crash("boom"))
    assert repr(caught.value.__cause__) == "ValueError('boom')"


async def test_an_ask_that_a_stop_interrupts_gets_mailbox_closed():
    async with running(one(Adder)) as tree, anyio.create_task_group() as tasks:
        ref = tree.ref("one")
        tasks.start_soon(after_a_while, ref.stop)
        with pytest.raises(MailboxClosed, match="normal"):
            await ref.ask(Hang(), timeout_s=100.0)


async def test_a_closing_mailbox_answers_what_is_left_in_it():
    async with running(one(Adder, max_mail=1)) as tree, anyio.create_task_group() as tasks:
        ref = tree.ref("one")
        ref.pause()
        tasks.start_soon(after_a_while, tree.terminate_child, "one")
        closed = 0
        async with anyio.create_task_group() as askers:

            async def ask() -> None:
                nonlocal closed
                with pytest.raises(MailboxClosed):
                    await ref.ask(Add(1), timeout_s=100.0)
                closed += 1

            for _ in range(3):
                askers.start_soon(ask)
    assert closed == 3


async def test_asking_an_ended_actor_raises_at_once():
    async with running(one(Adder)) as tree:
        ref = tree.ref("one")
        await tree.terminate_child("one")
        with pytest.raises(MailboxClosed):
            await ref.ask(Add(1))


async def test_an_ask_waits_over_a_restart_for_the_next_incarnation():
    async with running(one(Adder)) as tree:
        ref = tree.ref("one")
        ref.send_nowait(Crash())
        assert await ref.ask(Add(1)) == 1


async def test_asking_oneself_raises_at_once():
    class Selfish(Actor):
        async def receive(self, message: object) -> str:
            with pytest.raises(AskedSelf, match="'/app/one' asked itself 'str'"):
                await self.me.ask("again")
            return "refused"

    async with running(one(Selfish)) as tree:
        assert await tree.ref("one").ask("go") == "refused"


async def test_asking_oneself_from_a_task_of_the_message_at_hand_raises_as_well():
    class Selfish(Actor):
        async def receive(self, message: object) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.me.ask, "again")

    async with running(one(Selfish)) as tree:
        with pytest.raises(MailboxClosed) as caught:
            await tree.ref("one").ask("go")
    assert isinstance(caught.value.__cause__.exceptions[0], AskedSelf)


async def test_an_actor_cannot_wait_for_its_own_end():
    class Selfish(Actor):
        async def receive(self, message: object) -> str:
            with pytest.raises(AskedSelf, match=r"call `self.stop\(\)`"):
                await self.me.stop()
            return "refused"

    async with running(one(Selfish)) as tree:
        assert await tree.ref("one").ask("go") == "refused"


@pytest.mark.parametrize("timeout_s", [-1.0, math.inf, math.nan])
async def test_a_deadline_is_a_finite_number(timeout_s):
    async with running(one(Adder)) as tree:
        with pytest.raises(ValueError, match="give a finite number, 0 or more"):
            await tree.ref("one").ask(Add(1), timeout_s=timeout_s)


async def test_a_deadline_of_no_time_at_all_is_over_when_the_loop_gets_to_it():
    async with running(one(Adder)) as tree:
        with pytest.raises(AskTimeout):
            await tree.ref("one").ask(Hang(), timeout_s=0.0)


async def test_asks_with_many_different_deadlines_each_get_their_own():
    late: list[float] = []

    async with running(one(Adder, max_mail=500)) as tree:
        ref = tree.ref("one")
        ref.pause()

        async def ask(timeout_s: float) -> None:
            with pytest.raises(AskTimeout):
                await ref.ask(Add(1), timeout_s=timeout_s)
            late.append(timeout_s)

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(ask, 10.0 + (number * 37 % 200) / 100)
    assert late == sorted(late)


@given(
    steps=st.lists(
        st.sampled_from(["add", "crash", "hang", "stop", "terminate", "pause", "resume"]), min_size=1, max_size=12
    ),
    restart=st.sampled_from(["permanent", "transient", "temporary"]),
    room=st.integers(1, 4),
)
async def test_an_ask_always_ends(steps, restart, room):
    tree = one(Adder, restart=restart, max_mail=room)
    async with running(tree), anyio.create_task_group() as tasks:
        ref = tree.ref("one")

        async def ask(message: object) -> None:
            with suppress(AskTimeout, MailboxClosed):
                await ref.ask(message, timeout_s=2.0)

        async def terminate() -> None:
            with suppress(ChildNotFound):
                await tree.terminate_child("one")

        do = {
            "add": lambda: tasks.start_soon(ask, Add(1)),
            "crash": lambda: tasks.start_soon(ask, Crash()),
            "hang": lambda: tasks.start_soon(ask, Hang()),
            "stop": lambda: tasks.start_soon(ref.stop),
            "terminate": lambda: tasks.start_soon(terminate),
            "pause": ref.pause,
            "resume": ref.resume,
        }
        with anyio.fail_after(DEADLOCK_S):
            for step in steps:
                do[step]()
                await anyio.lowlevel.checkpoint()


async def after_a_while(what, *arguments) -> None:
    await wait_all_tasks_blocked()
    await what(*arguments)
