"""Lanes: side work that keeps its order, is shared out fairly, and answers exactly once whatever fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from shoal.actors import Supervisor, Worker, running
from shoal.runtime import WIDTHS, JobFailed
from shoal.runtime._lanes import Job, LaneDesk, sheltered

pytestmark = pytest.mark.anyio

Work = Callable[[], Awaitable[None]]


class Book:
    """Jobs, and what became of each."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.done: list[str] = []
        self.degraded: list[tuple[str, str, str, int]] = []
        self.names: list[str] = []

    def job(self, run_id: str, work: Work | float = 1.0, *, timeout_s: float = 60.0, retries: int = 0) -> Job:
        """Return a job of *run_id* that works for so many seconds, or does *work*."""
        name = f"{run_id}{len(self.names) + 1}"
        self.names.append(name)

        async def do() -> None:
            self.began.append(name)
            await (anyio.sleep(work) if isinstance(work, int | float) else work())
            self.done.append(name)

        def degrade(reason: str, error: str, bytes_saved: int) -> None:
            self.degraded.append((name, reason, error, bytes_saved))

        return Job(run_id, len(self.names), do, degrade, timeout_s, retries)

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Name and reason of each job that came to nothing, sorted."""
        return sorted((name, reason) for name, reason, _, _ in self.degraded)

    @property
    def answers(self) -> Counter[str]:
        """How often each job answered."""
        return Counter([*self.done, *(name for name, *_ in self.degraded)])


@asynccontextmanager
async def lane(width: int = 2) -> AsyncIterator[LaneDesk]:
    """Run a lane while the block runs."""
    desk = LaneDesk("compaction", width)
    with anyio.fail_after(3600):
        async with running(desk.tree):
            await wait_all_tasks_blocked()
            yield desk


async def idle(desk: LaneDesk) -> None:
    """Give *desk* all the time it needs, and check that it has nothing left to do."""
    await anyio.sleep(900)
    assert repr(desk).endswith(f" 0/{desk.width} running, 0 queued>")


def submit(desk: LaneDesk, *jobs: Job) -> None:
    for job in jobs:
        desk.submit(job)


# --- order


async def test_jobs_of_one_run_keep_their_order_and_never_run_at_once():
    book = Book()
    most = 0

    async def work() -> None:
        nonlocal most
        most = max(most, len(book.began) - len(book.done))
        await anyio.sleep(1)

    async with lane(4) as desk:
        submit(desk, *[book.job("a", work) for _ in range(5)])
        await idle(desk)
    assert (book.done, most) == (["a1", "a2", "a3", "a4", "a5"], 1)


async def test_runs_are_served_in_turn():
    book = Book()
    async with lane(1) as desk:
        submit(desk, *[book.job(run_id) for run_id in "aaabc"])
        await idle(desk)
    assert book.began == ["a1", "b4", "c5", "a2", "a3"]


async def test_no_more_jobs_run_at_once_than_the_lane_is_wide():
    book = Book()
    async with lane(3) as desk:
        submit(desk, *[book.job(f"run{number}-", 5) for number in range(10)])
        await wait_all_tasks_blocked()
        assert (len(book.began), repr(desk)) == (3, "<Lane compaction 3/3 running, 7 queued>")
        await idle(desk)
    assert len(book.done) == 10


async def test_a_run_that_is_busy_does_not_hold_up_the_others():
    book = Book()
    async with lane(2) as desk:
        submit(desk, book.job("a", 100), book.job("a", 1), book.job("b", 1), book.job("c", 1))
        await anyio.sleep(10)
        assert book.done == ["b3", "c4"]


def test_each_lane_has_its_width():
    assert WIDTHS == {"compaction": 4, "titling": 2, "refresh": 8}


# --- attempts


async def test_a_job_that_takes_too_long_is_given_up():
    book = Book()
    async with lane() as desk:
        submit(desk, book.job("a", 100, timeout_s=30), book.job("a"))
        await idle(desk)
    assert book.degraded == [("a1", "timeout", "no answer within 30 s", 0)]
    assert book.done == ["a2"]


async def test_a_timeout_inside_the_work_is_not_the_jobs():
    book = Book()

    async def work() -> None:
        with anyio.fail_after(1):
            await anyio.sleep(5)

    async with lane() as desk:
        submit(desk, book.job("a", work))
        await idle(desk)
    assert [reason for _, reason in book.reasons] == ["crashed"]


@pytest.mark.parametrize(("failures", "attempts", "done"), [(0, 1, True), (2, 3, True), (3, 3, False)])
async def test_an_attempt_that_fails_is_made_again_as_often_as_the_job_may(failures: int, attempts: int, done: bool):
    book = Book()

    async def work() -> None:
        if len(book.began) <= failures:
            raise ZeroDivisionError("no luck")

    async with lane() as desk:
        submit(desk, book.job("a", work, retries=2))
        await idle(desk)
    assert (len(book.began), bool(book.done)) == (attempts, done)
    assert book.degraded == ([] if done else [("a1", "crashed", "ZeroDivisionError: no luck", 0)])


async def test_an_attempt_that_timed_out_is_made_again():
    book = Book()
    async with lane() as desk:
        submit(desk, book.job("a", 100, timeout_s=10, retries=1))
        await idle(desk)
    assert (book.began, book.reasons) == (["a1", "a1"], [("a1", "timeout")])


async def test_a_failure_that_is_final_is_not_tried_again():
    book = Book()

    async def work() -> None:
        raise JobFailed("not_smaller", "it is longer", final=True, bytes_saved=-7)

    async with lane() as desk:
        submit(desk, book.job("a", work, retries=5))
        await idle(desk)
    assert (book.began, book.degraded) == (["a1"], [("a1", "not_smaller", "it is longer", -7)])


async def test_the_last_failure_is_the_one_that_is_told():
    book = Book()

    async def work() -> None:
        raise JobFailed("blank" if len(book.began) == 1 else "provider", f"attempt {len(book.began)}")

    async with lane() as desk:
        submit(desk, book.job("a", work, retries=1))
        await idle(desk)
    assert book.degraded == [("a1", "provider", "attempt 2", 0)]


# --- runs that are gone


async def test_what_waits_for_a_run_that_is_gone_is_forgotten():
    book = Book()
    async with lane(1) as desk:
        submit(desk, book.job("a", 10), book.job("b"), book.job("b"), book.job("c"))
        await wait_all_tasks_blocked()
        desk.drop("b")
        await idle(desk)
    assert (book.done, book.degraded) == (["a1", "c4"], [])


async def test_what_runs_for_a_run_that_is_gone_is_stopped_and_makes_room():
    book = Book()
    async with lane(1) as desk:
        submit(desk, book.job("a", 1_000, retries=3), book.job("b"))
        await wait_all_tasks_blocked()
        desk.drop("a")
        await anyio.sleep(2)
        assert (book.began, book.done, book.degraded) == (["a1", "b2"], ["b2"], [])


async def test_dropping_a_run_that_has_no_job_is_fine():
    async with lane() as desk:
        desk.drop("nobody")


async def test_a_run_that_was_dropped_may_order_jobs_again():
    book = Book()
    async with lane(1) as desk:
        submit(desk, book.job("a", 1_000))
        await wait_all_tasks_blocked()
        desk.drop("a")
        submit(desk, book.job("a"))
        await idle(desk)
    assert (book.done, book.degraded) == (["a2"], [])


async def test_a_job_that_is_forgotten_before_it_began_does_nothing():
    book = Book()
    job = book.job("a")
    job.forget()
    await job.run()
    assert (book.began, book.degraded, repr(job)) == ([], [], "<Job 1 of a>")


# --- crashes


async def test_a_lane_that_is_down_answers_at_once():
    book = Book()
    desk = LaneDesk("titling", 2)
    desk.submit(book.job("a"))
    assert book.degraded == [("a1", "lane_down", "the lane is down", 0)]
    assert repr(desk) == "<Lane titling 0/2 running, 0 queued, down>"


async def test_a_lane_that_is_stopped_answers_for_what_runs_and_what_waits():
    book = Book()
    async with lane(1) as desk:
        submit(desk, *[book.job(run_id, 1_000) for run_id in "aabc"])
        await wait_all_tasks_blocked()
    assert book.reasons == [("a1", "lane_down"), ("a2", "lane_down"), ("b3", "lane_down"), ("c4", "lane_down")]


async def test_answering_for_one_job_may_fail_without_the_others_being_forgotten():
    book = Book()

    def cannot(reason: str, error: str, bytes_saved: int) -> None:
        raise ZeroDivisionError("the journal is full")

    desk = LaneDesk("compaction", 1)
    async with running(desk.tree):
        await wait_all_tasks_blocked()
        submit(desk, book.job("a", 1_000), Job("b", 9, checkpoint, cannot, 1.0, 0), book.job("c"), book.job("d"))
        await wait_all_tasks_blocked()
    assert book.reasons == [("a1", "lane_down"), ("c2", "lane_down"), ("d3", "lane_down")]


@pytest.mark.parametrize("passes", range(8))
async def test_a_lane_that_is_stopped_while_it_starts_a_job_answers_for_it(passes: int):
    book = Book()
    desk = LaneDesk("compaction", 1)
    async with running(desk.tree):
        await wait_all_tasks_blocked()
        submit(desk, book.job("a", 1_000), book.job("a", 1_000))
        for _ in range(passes):
            await checkpoint()
    assert book.reasons == [("a1", "lane_down"), ("a2", "lane_down")]
    assert repr(desk) == "<Lane compaction 0/1 running, 0 queued, down>"


class Broken(OSError):
    """What a lane may be hit by."""


async def crash_desk(desk: LaneDesk) -> None:
    """Let the desk itself fail the next time it looks for work."""
    real = desk._next

    def fail() -> Job | None:
        desk._next = real  # type: ignore[method-assign]
        raise Broken

    desk._next = fail  # type: ignore[method-assign]
    assert desk._wake is not None
    desk._wake.set()
    await wait_all_tasks_blocked()


async def test_a_desk_that_crashes_answers_for_what_waits_and_what_runs_goes_on():
    book = Book()
    async with lane(1) as desk:
        submit(desk, book.job("a", 50), book.job("b"), book.job("c"))
        await wait_all_tasks_blocked()
        await crash_desk(desk)
        assert book.reasons == [("b2", "lane_down"), ("c3", "lane_down")]
        await anyio.sleep(100)
    assert book.done == ["a1"]


async def test_a_desk_that_crashed_comes_back():
    book = Book()
    async with lane(1) as desk:
        await crash_desk(desk)
        await anyio.sleep(1)
        submit(desk, book.job("a"))
        await idle(desk)
    assert (book.done, book.degraded) == (["a1"], [])


async def test_a_crash_of_the_jobs_supervisor_answers_for_every_job_and_the_lane_comes_back():
    book = Book()
    async with lane(2) as desk:
        submit(desk, book.job("a", 1_000), book.job("b", 1_000), book.job("c"))
        await wait_all_tasks_blocked()
        await desk.tree.terminate_child("jobs")
        await wait_all_tasks_blocked()
        assert book.reasons[:2] == [("a1", "lane_down"), ("b2", "lane_down")]
        submit(desk, book.job("d"))
        await wait_all_tasks_blocked()
        assert ("d4", "lane_down") in book.reasons
        await desk.tree.restart_child("jobs")
        await anyio.sleep(5)
        submit(desk, book.job("e"))
        await idle(desk)
    assert book.done[-1] == "e5"
    assert set(book.answers.values()) == {1}


async def test_a_job_that_cannot_be_stopped_in_time_has_answered_all_the_same():
    book = Book()

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(30)

    async with lane(1) as desk:
        submit(desk, book.job("a", stubborn))
        await wait_all_tasks_blocked()
    assert set(book.answers.values()) == {1}


async def test_lanes_never_fail_upward():
    crashes = 0

    async def crash() -> None:
        nonlocal crashes
        crashes += 1
        raise Broken

    shelter = sheltered("lane", Worker("always", crash))
    async with running(Supervisor("side", children=[shelter])) as side:
        await anyio.sleep(3600)
        assert (side.status, shelter.status) == ("running", "running")
    # Ever more slowly: 0.1, 0.2, 0.4 … s up to once a minute.
    assert 60 < crashes < 80


PLANS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "submit", "submit", "drop", "crash", "wait"]),
        st.sampled_from("abc"),
        st.sampled_from([0, 1, 3, 40]),
        st.sampled_from(["done", "fail", "final"]),
    ),
    max_size=14,
)


@given(width=st.integers(1, 3), plan=PLANS)
async def test_every_job_answers_exactly_once_whatever_happens(width: int, plan: Sequence[tuple[str, str, int, str]]):
    book = Book()
    dropped: set[str] = set()
    busy: Counter[str] = Counter()

    def work(run_id: str, seconds: int, end: str) -> Work:
        async def do() -> None:
            busy[run_id] += 1
            assert busy[run_id] == 1
            assert sum(busy.values()) <= width
            try:
                await anyio.sleep(seconds)
                if end != "done":
                    raise JobFailed("provider", "down", final=end == "final")
            finally:
                busy[run_id] -= 1

        return do

    async with lane(width) as desk:
        for step, run_id, seconds, end in plan:
            match step:
                case "submit":
                    desk.submit(book.job(run_id, work(run_id, seconds, end), timeout_s=20, retries=1))
                case "drop":
                    dropped.update(name for name in book.names if name[0] == run_id and not book.answers[name])
                    desk.drop(run_id)
                case "crash":
                    if desk._wake is not None and not desk._wake.is_set():
                        await crash_desk(desk)
                case _:
                    await anyio.sleep(seconds)
        await idle(desk)
    assert {name for name in book.names if book.answers[name] != 1} <= dropped
    # What was dropped may be just done, and then nobody reads it.
    assert not dropped & {name for name, *_ in book.degraded}
