"""Lanes: supervised side work for runs, with a width, that may fail without hurting one.

A lane is a supervisor of its own with two children: the desk, which hands out jobs, and the jobs, each a supervised
task. Jobs of one run keep their order, runs are served in turn, and the width bounds them all. Whatever happens to a
job, to the desk or to the lane, every job answers once: it is done, or it is degraded.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import final

import anyio

from shoal.actors import Backoff, Child, ChildSpec, DynamicSupervisor, Supervisor, Worker
from shoal.runtime.events import Lane

WIDTHS: dict[Lane, int] = {"compaction": 4, "titling": 2, "refresh": 8}
"""How many jobs of a lane run at once."""

_MOST_BACKOFF_S = 60.0


@final
class JobFailed(Exception):
    """A job's attempt came to nothing.

    Args:
        reason: One word, as `LaneDegraded` says it.
        error: What went wrong.
        final: Another attempt would end the same way.
        bytes_saved: Of `not_smaller`: what the summary would have saved.
    """

    def __init__(self, reason: str, error: str, *, final: bool = False, bytes_saved: int = 0) -> None:
        super().__init__(error)
        self.reason = reason
        self.error = error
        self.final = final
        self.bytes_saved = bytes_saved


@final
class Job:
    """One piece of side work.

    Args:
        run_id: The run it is for.
        job_id: Seq of its `LaneStarted`.
        work: Does it; on return it is done.
        degrade: Called with reason, error and bytes saved where it comes to nothing.
        timeout_s: Seconds for one attempt.
        retries: Further attempts after the first, 0 or more.
    """

    __slots__ = ("_answered", "_scope", "degrade", "job_id", "retries", "run_id", "timeout_s", "work")

    def __init__(
        self,
        run_id: str,
        job_id: int,
        work: Callable[[], Awaitable[None]],
        degrade: Callable[[str, str, int], None],
        timeout_s: float,
        retries: int,
    ) -> None:
        self.run_id = run_id
        self.job_id = job_id
        self.work = work
        self.degrade = degrade
        self.timeout_s = timeout_s
        self.retries = retries
        self._answered = False
        self._scope: anyio.CancelScope | None = None

    def __repr__(self) -> str:
        return f"<Job {self.job_id} of {self.run_id}>"

    def give_up(self, reason: str, error: str = "", bytes_saved: int = 0) -> None:
        """Degrade the job, unless it has answered."""
        if not self._answered:
            self._answered = True
            self.degrade(reason, error, bytes_saved)

    def forget(self) -> None:
        """Keep the job from answering, and stop it: nobody waits for it any more."""
        self._answered = True
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """Do the work, again where an attempt fails; answers once, also when it is cut short."""
        if self._answered:
            return
        self._scope = anyio.CancelScope()
        try:
            with self._scope:
                failed = await self._attempts()
                if failed is not None:
                    self.give_up(failed.reason, failed.error, failed.bytes_saved)
                self._answered = True
        finally:
            self.give_up("lane_down", "the lane was stopped")

    async def _attempts(self) -> JobFailed | None:
        failed: JobFailed | None = None
        for _ in range(self.retries + 1):
            failed = await self._attempt()
            if failed is None or failed.final:
                break
        return failed

    async def _attempt(self) -> JobFailed | None:
        try:
            with anyio.move_on_after(self.timeout_s) as scope:
                await self.work()
        except JobFailed as failed:
            return failed
        except Exception as exc:  # noqa: BLE001 - side work must not take anything down, whatever it raises
            return JobFailed("crashed", f"{type(exc).__name__}: {exc}")
        return JobFailed("timeout", f"no answer within {self.timeout_s:g} s") if scope.cancelled_caught else None


def sheltered(name: str, *children: Child) -> Supervisor:
    """Return a supervisor that restarts what fails below it, ever more slowly, and never fails upward."""
    backoff = Backoff(initial=0.1, factor=2.0, cap=_MOST_BACKOFF_S)
    return Supervisor(name, strategy="rest_for_one", max_restarts=None, backoff=backoff, children=children)


@final
class LaneDesk:
    """One lane: what waits, what runs, and the supervisors that run it.

    Args:
        lane: Its name.
        width: Most jobs at once.
    """

    def __init__(self, lane: Lane, width: int) -> None:
        self.lane: Lane = lane
        self.width = width
        self._queue: OrderedDict[str, deque[Job]] = OrderedDict()
        self._running: dict[str, Job] = {}
        """The job of each run that is under way: one a run, so that a run's jobs keep their order."""
        self._wake: anyio.Event | None = None
        """Tells the desk that there may be something to hand out; `None` while the lane is down."""
        self._jobs = DynamicSupervisor("jobs")
        self.tree = sheltered(lane, self._jobs, Worker("desk", self.serve))
        """The lane as a supervisor."""
        self._numbers = 0

    def __repr__(self) -> str:
        down = "" if self._wake is not None else ", down"
        return f"<Lane {self.lane} {self.running}/{self.width} running, {self.queued} queued{down}>"

    @property
    def queued(self) -> int:
        """How many jobs wait."""
        # Copied first, in one step: exporters of metrics ask in a thread of their own.
        return sum(len(jobs) for jobs in tuple(self._queue.values()))

    @property
    def running(self) -> int:
        """How many jobs are under way."""
        return len(self._running)

    def submit(self, job: Job) -> None:
        """Take *job*; a lane that is down degrades it at once."""
        if self._wake is None:
            job.give_up("lane_down", "the lane is down")
            return
        self._queue.setdefault(job.run_id, deque()).append(job)
        self._wake.set()

    def drop(self, run_id: str) -> None:
        """Forget what waits for a run that ended, and stop what runs for it."""
        for job in self._queue.pop(run_id, ()):
            job.forget()
        running = self._running.get(run_id)
        if running is not None:
            running.forget()

    async def serve(self) -> None:
        """Hand out jobs until cancelled; whatever is then left is degraded."""
        try:
            while True:
                self._wake = anyio.Event()
                job = self._next()
                if job is None:
                    await self._wake.wait()
                else:
                    await self._start(job)
        finally:
            self._wake = None
            left = [job for jobs in self._queue.values() for job in jobs]
            self._queue.clear()
            with contextlib.ExitStack() as answers:  # each is answered, also where answering another fails
                for job in left:
                    answers.callback(job.give_up, "lane_down", "the lane was stopped")

    def _next(self) -> Job | None:
        """Return the oldest job of the run that waited longest among those with nothing under way."""
        if len(self._running) >= self.width:
            return None
        run_id = next((run_id for run_id in self._queue if run_id not in self._running), None)
        if run_id is None:
            return None
        jobs = self._queue.pop(run_id)
        job = jobs.popleft()
        if jobs:
            self._queue[run_id] = jobs
        return job

    async def _start(self, job: Job) -> None:
        self._running[job.run_id] = job
        self._numbers += 1

        async def run() -> None:
            try:
                await job.run()
            finally:
                self._over(job)
                if self._wake is not None:
                    self._wake.set()

        try:
            await self._jobs.start_child(ChildSpec(f"{self._numbers}", run, restart="temporary", shutdown_s=1.0))
        except BaseException:
            # Not started, or not known to be: the job must answer all the same.
            self._over(job)
            job.give_up("lane_down", "the lane was stopped")
            job.forget()
            raise

    def _over(self, job: Job) -> None:
        if self._running.get(job.run_id) is job:
            del self._running[job.run_id]
