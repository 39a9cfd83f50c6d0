"""Mail: order, room, and what becomes of it when the actor ends."""

from __future__ import annotations

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from troupe import DEADLOCK_S, Add, Adder, Crash, Hang, Leave, Witness, one

from shoal.actors import Actor, handles, running
from shoal.errors import MailboxClosed, MailboxFull, UnhandledMessage

pytestmark = pytest.mark.anyio


async def test_mail_of_one_sender_is_handled_in_the_order_it_was_sent():
    log: list[object] = []
    async with running(one(lambda: Adder(log))) as tree:
        for number in range(200):
            await tree.ref("one").send(Add(number))
        await tree.ref("one").ask(Add(200))
    assert log[1:202] == list(range(201))


async def test_messages_are_handled_one_at_a_time():
    busy = 0
    most = 0

    class Slow(Actor):
        async def receive(self, message: object) -> None:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await anyio.sleep(1)
            busy -= 1

    async with running(one(Slow)) as tree, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(tree.ref("one").ask, "x")
    assert most == 1


async def test_send_waits_while_the_mailbox_is_full():
    async with running(one(Adder, max_mail=2)) as tree:
        ref = tree.ref("one")
        ref.pause()
        for number in range(2):
            await ref.send(Add(number))
        with anyio.move_on_after(10) as scope:
            await ref.send(Add(2))
        assert scope.cancelled_caught


async def test_a_send_that_was_cancelled_while_it_waited_is_not_delivered():
    log: list[object] = []
    async with running(one(lambda: Adder(log), max_mail=1)) as tree:
        ref = tree.ref("one")
        ref.pause()
        await ref.send(Add(1))
        with anyio.move_on_after(10):
            await ref.send(Add(2))
        ref.resume()
        await ref.ask(Add(3))
    assert log[1:3] == [1, 3]


async def test_those_who_wait_for_room_get_it_in_the_order_they_came():
    log: list[object] = []
    async with running(one(lambda: Adder(log), max_mail=1)) as tree:
        ref = tree.ref("one")
        ref.pause()
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(ref.send, Add(number))
                await wait_all_tasks_blocked()
            ref.resume()
        await ref.ask(Add(5))
    assert log[1:7] == list(range(6))


async def test_send_nowait_raises_where_there_is_no_room():
    async with running(one(Adder, max_mail=1)) as tree:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        with pytest.raises(MailboxFull, match="'/app/one' holds 1 letters") as caught:
            ref.send_nowait(Add(2))
    assert caught.value.path == "/app/one"
    assert caught.value.retryable


async def test_an_ended_actor_takes_no_mail():
    async with running(one(Adder)) as tree:
        ref = tree.ref("one")
        await tree.terminate_child("one")
        with pytest.raises(MailboxClosed, match="'/app/one' takes no mail"):
            await ref.send(Add(1))
        with pytest.raises(MailboxClosed):
            ref.send_nowait(Add(1))


async def test_a_closing_mailbox_tells_those_who_wait_for_room():
    async with running(one(Adder, max_mail=1)) as tree:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tree.terminate_child, "one")
            with pytest.raises(MailboxClosed):
                await ref.send(Add(2))


async def test_mail_that_nobody_will_read_is_reported_as_lost():
    witness = Witness()
    async with running(one(Adder), observer=witness) as tree:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        ref.send_nowait(Add(2))
        await tree.terminate_child("one")
    (event,) = witness.seen("mail_lost")
    assert (event.lost, event.error) == (2, True)


async def test_an_actor_cannot_wait_for_room_in_its_own_mailbox():
    class Chatty(Actor):
        async def receive(self, message: object) -> str:
            self.me.send_nowait("first")
            with pytest.raises(MailboxFull, match="cannot wait for itself"):
                await self.me.send("second")
            self.me.pause()
            return "refused"

    async with running(one(Chatty, max_mail=1)) as tree:
        assert await tree.ref("one").ask("go") == "refused"


async def test_mail_waits_for_the_next_incarnation_and_the_message_that_crashed_does_not_come_back():
    log: list[object] = []
    async with running(one(lambda: Adder(log))) as tree:
        ref = tree.ref("one")
        ref.pause()
        for message in (Add(1), Crash(), Add(2)):
            await ref.send(message)
        ref.resume()
        assert await ref.ask(Add(4)) == 6
    assert log[:6] == ["start", 1, "stop crashed: ValueError('told to')", "start", 2, 4]


async def test_a_message_comes_back_first_where_that_was_asked_for():
    failures = iter([True, False])
    log: list[str] = []

    class Shaky(Actor):
        async def receive(self, message: str) -> str:
            log.append(message)
            if next(failures):
                raise ValueError(message)
            return message.upper()

    async with running(one(Shaky, redeliver=True)) as tree:
        assert await tree.ref("one").ask("again") == "AGAIN"
    assert log == ["again", "again"]


async def test_an_actor_yields_to_the_others_after_64_messages():
    handled = 0

    class Greedy(Actor):
        async def receive(self, message: object) -> None:
            nonlocal handled
            handled += 1

    async with running(one(Greedy)) as tree:
        ref = tree.ref("one")
        for _ in range(200):
            ref.send_nowait("x")
        while not handled:
            await checkpoint()
        # trio may run the actor twice before it comes back here.
        assert handled in {64, 128}


async def test_a_message_goes_to_the_method_marked_for_exactly_its_type():
    class Base(Actor):
        @handles(int, str)
        async def plain(self, message: object) -> str:
            return f"plain {message}"

    class Derived(Base):
        async def plain(self, message: object) -> str:
            return f"derived {message}"

        @handles(float)
        async def real(self, message: float) -> str:
            return f"real {message}"

        @handles(str)
        async def text(self, message: str) -> str:
            return f"text {message}"

    async with running(one(Derived)) as tree:
        replies = [await tree.ref("one").ask(message) for message in (1, "a", 0.5)]
    assert replies == ["derived 1", "text a", "real 0.5"]


@pytest.mark.parametrize("message", [True, None])
async def test_an_unhandled_type_is_an_error_that_names_actor_and_type(message):
    witness = Witness()

    class Picky(Actor):
        @handles(int, bytes)
        async def number(self, message: int | bytes) -> None: ...

    async with running(one(Picky), observer=witness) as tree:
        await tree.ref("one").send(message)
        event = await witness.until("exited")
    assert isinstance(event.reason.error, UnhandledMessage)
    assert event.reason.error.path == "/app/one"
    assert f"takes no {type(message).__name__!r}, it takes `bytes`, `int`;" in str(event.reason.error)


def test_two_methods_for_one_type_are_refused():
    with pytest.raises(TypeError, match="twice"):

        class Torn(Actor):
            @handles(int)
            async def one(self, message: int) -> None: ...

            @handles(int)
            async def two(self, message: int) -> None: ...


@pytest.mark.parametrize("types", [(), (int,)])
def test_only_async_methods_with_types_can_be_marked(types):
    async def good(self, message: object) -> None: ...

    def bad(self, message: object) -> None: ...

    with pytest.raises(TypeError, match="`handles` marks an `async def`"):
        handles(*types)(bad if types else good)


# --- system messages


async def test_a_stop_overtakes_ordinary_mail():
    log: list[object] = []
    async with running(one(lambda: Adder(log), restart="temporary")) as tree:
        ref = tree.ref("one")
        ref.send_nowait(Add(1))
        await ref.stop()
    assert log == ["start", "stop normal"]


async def test_a_stop_interrupts_the_message_at_hand():
    log: list[object] = []
    async with running(one(lambda: Adder(log), restart="temporary")) as tree:
        ref = tree.ref("one")
        await ref.send(Hang())
        await wait_all_tasks_blocked()
        with anyio.fail_after(DEADLOCK_S):
            await ref.stop()
    assert log == ["start", "hang", "stop normal"]


async def test_a_pause_overtakes_ordinary_mail():
    log: list[object] = []
    async with running(one(lambda: Adder(log))) as tree:
        ref = tree.ref("one")
        ref.send_nowait(Add(1))
        ref.pause()
        await anyio.sleep(10)
        assert log == ["start"]
        ref.resume()
        assert await ref.ask(Add(1)) == 2


async def test_a_pause_during_a_message_holds_back_the_next_one():
    log: list[object] = []

    class Shy(Actor):
        async def receive(self, message: object) -> None:
            log.append(message)
            self.me.pause()

    async with running(one(Shy)) as tree:
        ref = tree.ref("one")
        ref.send_nowait(1)
        ref.send_nowait(2)
        await wait_all_tasks_blocked()
        assert log == [1]
        ref.resume()
        await wait_all_tasks_blocked()
    assert log == [1, 2]


async def test_a_paused_actor_can_be_stopped():
    async with running(one(Adder, restart="temporary")) as tree:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        await wait_all_tasks_blocked()
        with anyio.fail_after(DEADLOCK_S):
            await ref.stop()
            assert (await ref.monitor().wait()).reason.kind == "normal"


async def test_an_actor_that_was_told_to_stop_reads_no_more_when_it_is_resumed():
    log: list[object] = []
    async with running(one(lambda: Adder(log), restart="temporary")) as tree, anyio.create_task_group() as tasks:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        await wait_all_tasks_blocked()
        ref.resume()
        tree._engine.records["one"].life.quit()
        ref.resume()
        tasks.start_soon(ref.stop)
    assert log == ["start", "stop normal"]


async def test_an_actor_that_leaves_reads_no_more_when_it_is_resumed():
    log: list[object] = []

    class Leaver(Actor):
        async def receive(self, message: object) -> None:
            log.append(message)
            self.stop()
            self.me.resume()

    async with running(one(Leaver, restart="temporary")) as tree:
        ref = tree.ref("one")
        ref.send_nowait(1)
        ref.send_nowait(2)
        await ref.monitor().wait()
    assert log == [1]


async def test_an_actor_stays_paused_over_a_restart():
    log: list[object] = []
    witness = Witness()
    async with running(one(lambda: Adder(log)), observer=witness) as tree:
        ref = tree.ref("one")
        ref.pause()
        ref.send_nowait(Add(1))
        await ref.stop()
        await witness.until("started", times=2)
        await wait_all_tasks_blocked()
        assert log == ["start", "stop normal", "start"]
        ref.resume()
        assert await ref.ask(Add(1)) == 2


async def test_an_actor_ends_by_itself_after_the_message_at_hand_is_answered():
    log: list[object] = []
    async with running(one(lambda: Adder(log), restart="transient")) as tree:
        ref = tree.ref("one")
        monitor = ref.monitor()
        assert await ref.ask(Leave()) == "bye"
        down = await monitor.wait()
    assert str(down.reason) == "normal"
    assert log == ["start", "stop normal"]


async def test_an_idle_actor_can_be_told_to_leave_from_a_task_of_its_own():
    class Watched(Actor):
        async def on_start(self) -> None:
            self.ended = anyio.Event()

    made: list[Watched] = []

    def make() -> Watched:
        made.append(Watched())
        return made[-1]

    async with running(one(make, restart="temporary")) as tree:
        monitor = tree.ref("one").monitor()
        await wait_all_tasks_blocked()
        made[0].stop()
        with anyio.fail_after(DEADLOCK_S):
            assert (await monitor.wait()).reason.kind == "normal"


async def test_a_ref_shows_where_it_points_and_what_waits_there():
    async with running(one(Adder, restart="temporary")) as tree:
        ref = tree.ref("one")
        assert repr(ref) == "<Ref '/app/one' open, 0 letters>"
        ref.pause()
        ref.send_nowait(Add(1))
        assert repr(ref) == "<Ref '/app/one' paused, 1 letters>"
        await ref.stop()
    assert repr(ref) == "<Ref '/app/one' ended (normal)>"
