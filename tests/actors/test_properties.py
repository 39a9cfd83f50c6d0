"""Whatever happens to a tree, these hold."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from hypothesis import given, settings
from hypothesis import strategies as st
from troupe import DEADLOCK_S, ByHand, Troupe, Witness

from shoal.actors import Actor, Backoff, ChildSpec, DynamicSupervisor, Registry, Shutdown, Supervisor, running
from shoal.actors._restarts import RestartWindow
from shoal.actors._rules import group
from shoal.errors import AskTimeout, ChildNotFound, MailboxClosed, RestartsExhausted, SupervisorError

pytestmark = pytest.mark.anyio

NAMES = "abcde"
strategies = st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"])
restarts = st.sampled_from(["permanent", "transient", "temporary"])


# --- budget arithmetic, against a model that was written from the rule and not from the code


def model_admits(times: list[int], max_restarts: int, within: int) -> list[bool]:
    """Return for each of *times* whether, itself included, at most so many of those up to it lie in its window."""
    return [
        sum(earlier >= now - within for earlier in times[: number + 1]) <= max_restarts
        for number, now in enumerate(times)
    ]


@given(
    gaps=st.lists(st.integers(0, 6), max_size=40),
    max_restarts=st.integers(0, 4),
    within=st.integers(1, 8),
)
def test_a_window_admits_what_the_rule_says(gaps, max_restarts, within):
    times = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    window = RestartWindow(max_restarts, within)
    assert [window.admit(now) for now in times] == model_admits(times, max_restarts, within)


@given(times=st.lists(st.floats(0, 100), max_size=50))
def test_a_window_without_a_limit_admits_everything_and_keeps_nothing(times):
    window = RestartWindow(None, 5.0)
    assert all(window.admit(now) for now in sorted(times))
    assert repr(window) == "<RestartWindow 0 of None in 5 s>"


@settings(max_examples=60)
@given(
    gaps=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    max_restarts=st.integers(0, 3),
    within=st.integers(1, 5),
    strategy=strategies,
    victims=st.lists(st.sampled_from("abc"), min_size=12, max_size=12),
)
async def test_a_tree_gives_up_with_exactly_the_failure_that_the_model_says(
    gaps, max_restarts, within, strategy, victims
):
    times = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    allowed = [*model_admits(times, max_restarts, within), False].index(False)
    clock, troupe, witness = ByHand(), Troupe(), Witness()
    tree = Supervisor(
        "app", strategy=strategy, max_restarts=max_restarts, within_s=float(within), children=troupe.children("abc")
    )
    with suppress(RestartsExhausted):
        async with running(tree, clock=clock, observer=witness):
            for now, victim in zip(times, victims, strict=False):
                clock.at = float(now)
                troupe.crash(victim)
                with anyio.fail_after(DEADLOCK_S):
                    await wait_all_tasks_blocked()
    assert len(witness.seen("restarting")) == allowed
    assert (tree.status == "gave_up") == (allowed < len(times))


# --- order


@given(strategy=strategies, failed=st.sampled_from(NAMES))
def test_a_group_is_a_run_of_the_start_order_that_holds_the_failed_child(strategy, failed):
    members = group(strategy, NAMES, failed)
    assert failed in members
    assert "".join(members) in NAMES


actions = st.one_of(
    st.tuples(st.just("crash"), st.sampled_from(NAMES)),
    st.tuples(st.just("end"), st.sampled_from(NAMES)),
    st.tuples(st.just("shutdown"), st.sampled_from(NAMES)),
    st.tuples(st.just("break"), st.sampled_from(NAMES)),
    st.tuples(st.just("terminate"), st.sampled_from(NAMES)),
    st.tuples(st.just("restart"), st.sampled_from(NAMES)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("start"), st.sampled_from(NAMES)),
    st.tuples(st.just("wait"), st.just("")),
)


async def act(tree: Supervisor, troupe: Troupe, what: str, name: str, restart: str) -> None:
    """Do one thing to a running tree; that it may be refused is part of the game."""
    with suppress(SupervisorError):
        match what:
            case "crash":
                troupe.crash(name)
            case "end":
                troupe.end(name)
            case "shutdown":
                troupe.end(name, Shutdown())
            case "break":
                troupe.broken[name] += 1
            case "terminate":
                await tree.terminate_child(name)
            case "restart":
                await tree.restart_child(name)
            case "delete":
                await tree.delete_child(name)
            case "start":
                await tree.start_child(troupe.child(name, restart=restart))
            case _:
                await wait_all_tasks_blocked()


@given(
    strategy=strategies,
    types=st.lists(restarts, min_size=5, max_size=5),
    deeds=st.lists(actions, max_size=14),
    delayed=st.booleans(),
)
async def test_no_two_of_one_child_ever_run_and_nothing_is_left_and_the_stop_is_in_reverse_order(
    strategy, types, deeds, delayed
):
    troupe = Troupe()
    tree = Supervisor(
        "app",
        strategy=strategy,
        max_restarts=None,
        backoff=Backoff(initial=3.0) if delayed else None,
        children=[troupe.child(name, restart=restart) for name, restart in zip(NAMES, types, strict=True)],
    )
    with anyio.fail_after(DEADLOCK_S):
        async with running(tree):
            assert troupe.take_log() == "+a +b +c +d +e"
            troupe.log = [f"+{name}" for name in NAMES]
            for (what, name), restart in zip(deeds, types * 3, strict=False):
                await act(tree, troupe, what, name, restart)
            await wait_all_tasks_blocked()
            running_now = [child.id for child in tree.children() if child.state == "running"]
            mark = len(troupe.log)
    check_alternating(troupe.log)
    assert troupe.log[mark:] == [f"-{name}" for name in reversed(running_now)]


def check_alternating(log: list[str]) -> None:
    """Every start of a child is followed by its end before it starts again, and all have ended."""
    up: set[str] = set()
    for entry in log:
        name = entry[1:]
        assert (name in up) == (entry[0] == "-")
        up ^= {name} if entry[0] in "+-" else set()
    assert up == set()


@given(strategy=strategies, victim=st.sampled_from(NAMES), count=st.integers(1, 3))
async def test_a_restart_stops_its_group_in_reverse_and_starts_it_in_order(strategy, victim, count):
    troupe, witness = Troupe(), Witness()
    tree = Supervisor("app", strategy=strategy, max_restarts=None, children=troupe.children(NAMES))
    members = group(strategy, NAMES, victim)
    async with running(tree, observer=witness):
        for time in range(count):
            troupe.take_log()
            troupe.crash(victim)
            await witness.until("started", members[-1], times=time + 2)
            stops = [f"-{name}" for name in reversed(members) if name != victim]
            assert troupe.take_log().split() == [f"-{victim}", *stops, *(f"+{name}" for name in members)]


# --- mail


class Keeper(Actor):
    """Keeps what it gets where it outlives it, and crashes when it is told to."""

    def __init__(self, got: list[tuple[int, int]]) -> None:
        self.got = got

    async def receive(self, message: tuple[int, int, bool]) -> int:
        sender, number, crash = message
        self.got.append((sender, number))
        if crash:
            raise ValueError(message)
        return number


@given(
    crashes=st.lists(st.lists(st.booleans(), max_size=8), min_size=1, max_size=4),
    room=st.integers(1, 5),
    strategy=st.sampled_from(["one_for_one", "one_for_all"]),
    asks=st.booleans(),
)
async def test_over_restarts_no_message_is_lost_or_doubled_and_each_sender_keeps_its_order(
    crashes, room, strategy, asks
):
    got: list[tuple[int, int]] = []
    children = [ChildSpec("keeper", lambda: Keeper(got), max_mail=room), Troupe().child("b")]
    tree = Supervisor("app", strategy=strategy, max_restarts=None, children=children)
    async with running(tree):
        ref = tree.ref("keeper")

        async def send_all(sender: int, plan: list[bool]) -> None:
            for number, crash in enumerate(plan):
                if asks:
                    with suppress(MailboxClosed):
                        await ref.ask((sender, number, crash))
                else:
                    await ref.send((sender, number, crash))

        with anyio.fail_after(DEADLOCK_S):
            async with anyio.create_task_group() as tasks:
                for sender, plan in enumerate(crashes):
                    tasks.start_soon(send_all, sender, plan)
            while len(ref_box(ref)):
                await wait_all_tasks_blocked()
            await wait_all_tasks_blocked()
    for sender, plan in enumerate(crashes):
        assert [number for who, number in got if who == sender] == list(range(len(plan)))


def ref_box(ref):
    return ref._box


@given(
    deeds=st.lists(
        st.tuples(st.sampled_from(["start", "ask", "crash", "stop", "terminate", "later", "watch"]), st.integers(0, 5)),
        max_size=20,
    ),
    restart=restarts,
)
async def test_when_a_dynamic_supervisor_is_empty_nothing_of_its_children_is_left(deeds, restart):
    got: list[tuple[int, int]] = []
    names = Registry()
    template = ChildSpec("keeper", lambda: Keeper(got), restart=restart)
    async with running(DynamicSupervisor("app", template=template, max_restarts=None)) as tree:
        for what, key in deeds:
            with suppress(SupervisorError, MailboxClosed, AskTimeout):
                match what:
                    case "start":
                        names.register(f"{key}", await tree.start_child(key=f"{key}"))
                    case "ask":
                        await tree.ref(f"{key}").ask((0, 0, False))
                    case "crash":
                        await tree.ref(f"{key}").send((0, 0, True))
                    case "stop":
                        await tree.ref(f"{key}").stop()
                    case "terminate":
                        await tree.terminate_child(f"{key}")
                    case "later":
                        tree.ref(f"{key}").send_after(1e6, (0, 0, False))
                    case _:
                        tree.ref(f"{key}").monitor()
        for child in tree.children():
            with suppress(ChildNotFound):  # it may have ended by itself meanwhile
                await tree.terminate_child(child.id)
        assert (tree.children(), len(names), len(tree._engine.kernel.timers)) == ((), 0, 0)
        with anyio.fail_after(DEADLOCK_S):
            while any((task.name or "").startswith("/app/") for task in anyio.get_running_tasks()):
                await anyio.lowlevel.checkpoint()
