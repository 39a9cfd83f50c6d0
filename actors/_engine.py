"""A running supervisor: one task that starts, watches, restarts and stops its children, and answers calls in between.

Mail is read in this order: a stop (it cancels whatever the task waits for), then children that ended, then letters,
which are calls and the supervisor's own retries, first come first served. A slow start or stop of a group answers the
calls that came meanwhile after each of its steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, final

from shoal.actors._actor import TURNS
from shoal.actors._child import ChildLife
from shoal.actors._desk import Call, Desk
from shoal.actors._events import EventKind, SupervisionEvent
from shoal.actors._kernel import Kernel
from shoal.actors._life import Life, Nested, is_ignore
from shoal.actors._mailbox import CURRENT
from shoal.actors._plan import Idle, Plan, Record, Retry
from shoal.actors._reason import SHUTDOWN, Reason, crash, drop_frames
from shoal.actors._ref import Ref
from shoal.actors._report import Book
from shoal.actors._restarts import RestartWindow
from shoal.actors._rules import ends_supervisor, group, is_error, is_shutdown_error, verdict
from shoal.actors._spec import ChildSpec
from shoal.errors import RestartsExhausted, StartFailed, SupervisorError, SupervisorStopped


@final
class Engine:
    """One life of a supervisor, from the inside.

    Args:
        plan: What it was built with.
        book: Its history.
        kernel: What the tree shares.
        life: Its task.
        before: The engine of its last life, whose mailboxes this one takes over; `None` for none.
    """

    def __init__(self, plan: Plan, book: Book, kernel: Kernel, life: Life, before: Engine | None) -> None:
        self.plan = plan
        self.life: Life | None = life
        self.path = life.path
        self.kernel = kernel
        self.records: dict[str, Record] = {}
        self.window = RestartWindow(plan.max_restarts, plan.within_s)
        self.done: Reason | None = None
        self.desk = Desk(kernel.new_event, self.stopped_error)
        self._book = book
        self._own = life
        for spec in plan.children:
            self.add(spec, before.hand_over(spec) if before is not None else None)

    def __repr__(self) -> str:
        return f"<Engine {self.path!r}, {len(self.records)} children>"

    # --- the task

    async def run(self) -> None:
        """Start the children, then serve until there is a reason to end."""
        for record in tuple(self.records.values()):
            if self._waits(record):
                reason = await self.start(record)
                if reason is not None:
                    raise self.start_error(record, reason) from reason.error
                await self.desk.answer_calls()
        self._own.ready(None)
        desk = self.desk
        while self.done is None:
            # As many as there are now: a child that ends again and again does not keep the letters waiting for ever.
            for turn in range(1, len(desk.exits) + 1):
                await self._exited(desk.exits.popleft())
                if self.done is not None:
                    return
                if turn % TURNS == 0:
                    await self.kernel.checkpoint()
            if desk.letters:
                await self._read(desk.letters.popleft())
            elif not desk.exits:
                await desk.wait()

    async def stop_all(self) -> None:
        """Stop the children, last started first; those of a dynamic supervisor are all told at once."""
        self.desk.close()
        if self.plan.dynamic:
            for record in self.records.values():
                if record.life is not None:
                    record.life.end(SHUTDOWN)
        for record in reversed(tuple(self.records.values())):
            await self.stop(record)

    async def kill_all(self) -> None:
        """Kill what children are left, all at once, and wait for them as long as each may take to die."""
        for record in self.records.values():
            if record.life is not None:
                record.life.kill()
        for record in tuple(self.records.values()):
            await self.stop(record)

    def finish(self) -> None:
        """Close what was added at run time: only what the plan names can come back."""
        named = {spec.id: spec for spec in self.plan.children}
        for record in tuple(self.records.values()):
            if named.get(record.spec.id) is not record.spec:
                self.remove(record, record.last)

    def hand_over(self, spec: ChildSpec) -> Ref | None:
        """Give away the handle of the child of *spec*, whose mailbox then goes on in the next life."""
        record = self.records.get(spec.id)
        if record is None or record.spec is not spec:
            return None
        ref, record.ref = record.ref, None
        return ref

    def gone(self) -> None:
        """Close the rest: the supervisor will not be started again."""
        for record in self.records.values():
            self.close(record, record.last)

    # --- what its children tell it

    def ended(self, life: Life) -> None:
        """Read about it later, unless a step that waits for it sees it first."""
        self.desk.exit(life)

    def orphaned(self, life: Life) -> None:
        """Go on without it, and keep it listed."""
        record = self.records[life.child_id]
        self._book.orphans[life] = record.info(self.kernel.now())
        self.tell("orphaned", record.spec.id, life.reason, error=True)
        self.ended(life)

    def orphan_ended(self, life: Life) -> None:
        """List it no more."""
        info = self._book.orphans.pop(life)
        self.tell("orphan_ended", info.id)

    # --- calls

    async def call(self, op: Callable[[Engine], Awaitable[Any]]) -> Any:
        """Have the supervisor do *op* when it gets to it, and return what that returns.

        Raises:
            SupervisorStopped: It ends, or has ended.
            SupervisorError: The caller is a child that starts or stops, which the supervisor waits for.
        """
        self._refuse_from_within()
        return await self.desk.call(partial(op, self))

    def _refuse_from_within(self) -> None:
        """Raise where the caller is something that this supervisor waits for: both would wait for ever."""
        current = CURRENT.get()
        while isinstance(current, Life):
            if current.boss is self and current.state in {"starting", "stopping"}:
                raise SupervisorError(
                    f"{current.path!r} calls its supervisor while it is {current.state}, which waits for just that; "
                    "call later, for instance on a message that it sends to itself",
                    supervisor=self.plan.name,
                    child=current.child_id,
                )
            current = current.boss.life if current.boss is not None else None

    def cut_start(self, child_id: str) -> bool:
        """End a start that is still going on, so that the call that ends the child is not held up by it."""
        record = self.records.get(child_id)
        if record is None or record.life is None or record.life.state != "starting":
            return False
        record.idle = "stopped"
        record.life.end(SHUTDOWN)
        return True

    def stopped_error(self) -> SupervisorStopped:
        """Return the error for calls that come too late."""
        return SupervisorStopped(
            f"supervisor {self.path!r} ends or has ended; start it again before it is called", supervisor=self.plan.name
        )

    # --- steps

    def add(self, spec: ChildSpec, ref: Ref | None = None) -> Record:
        """Put *spec* at the end of the start order."""
        record = self.records[spec.id] = Record(spec, f"{self.path}/{spec.id}", ref)
        return record

    async def start(self, record: Record) -> Reason | None:
        """Start *record* and wait until it is up.

        Returns:
            Why it did not come up; `None` where it did, had nothing to do, or was terminated meanwhile.
        """
        record.idle = "down"
        try:
            life = self._born(record)
        except StartFailed as exc:
            record.reason = crash(exc)
            return record.reason
        record.life = life
        self.kernel.tasks.start_soon(life.run, name=life.path)
        await life.settled()
        if isinstance(life, ChildLife):
            record.ref = life.ref
        if record.terminated:
            await self.stop(record)
            return None
        if life.up_at is not None:
            record.restarts += 1
            self.tell("started", record.spec.id)
            return None
        record.life = None
        record.reason = life.reason
        if is_ignore(life.reason):
            self.tell("ignored", record.spec.id)
            self.retire(record, "ignored", life.reason)
            return None
        return life.reason

    async def stop(self, record: Record) -> None:
        """Stop *record* by its shutdown rule, and call off a restart of it that is still to come."""
        record.drop_retry()
        life = record.life
        if life is not None:
            life.end(SHUTDOWN)
            await life.over()
            record.life = None
            record.reason = reason = life.reason
            wrong = is_shutdown_error(record.spec.restart, reason, brutal=record.spec.grace_s <= 0)
            self.tell("shutdown_error" if wrong else "stopped", record.spec.id, reason, error=wrong)
            drop_frames(reason.error)

    def retire(self, record: Record, idle: Idle, reason: Reason) -> None:
        """End *record* for good: it keeps its spec without a process, where it keeps anything."""
        if record.spec.restart == "temporary" or self.plan.dynamic:
            self.remove(record, reason)
        else:
            record.idle = idle
            self.close(record, reason)

    def remove(self, record: Record, reason: Reason) -> None:
        """Forget *record*, which has no process."""
        del self.records[record.spec.id]
        self.close(record, reason)

    def close(self, record: Record, reason: Reason) -> None:
        """End *record* for good: nobody will read its mailbox any more, or start it again."""
        start = record.spec.start
        if isinstance(start, Nested) and self._book.nested.get(start) == record.spec.id:
            # Not where it did not start because it runs elsewhere.
            del self._book.nested[start]
            start.gone(reason)
        lost = record.close(reason)
        if lost:
            self.tell("mail_lost", record.spec.id, reason, error=True, lost=lost)

    def start_error(self, record: Record, reason: Reason) -> StartFailed:
        """Tell that a child did not come up, and return the error for it."""
        self.tell("start_failed", record.spec.id, reason, error=True, raised=True)
        if isinstance(reason.error, StartFailed):
            below = str(reason.error)
            why = below if below.startswith(f"{record.path!r} ") else f"{record.path!r} did not start, since {below}"
        else:
            why = f"{record.path!r} did not start ({reason.placed()}); mend what it raised, which `__cause__` holds"
        return StartFailed(
            why,
            supervisor=self.plan.name,
            child=record.spec.id,
        )

    # --- ends and restarts

    async def _exited(self, life: Life) -> None:
        record = self.records.get(life.child_id)
        if record is None or record.life is not life:
            return  # the supervisor stopped it meanwhile: no restart, no count, no auto-shutdown
        assert life.up_at is not None
        reason = record.reason = life.reason
        record.life = None
        restart = record.spec.restart
        if is_ignore(reason) and record.ref is None and not record.spec.takes_status:
            # A plain function is up as soon as it runs, so it cannot raise `Ignore` any earlier.
            self.tell("ignored", record.spec.id)
            self.retire(record, "ignored", reason)
            return
        self.tell("exited", record.spec.id, reason, error=is_error(restart, reason))
        if verdict(restart, reason) == "restart":
            if self.kernel.now() - life.up_at >= self._steady_s(record):
                record.attempt = 0
            await self._again(record, reason)
        else:
            drop_frames(reason.error)
            self.retire(record, "finished", reason)
            self._end_with(record)

    async def _again(self, record: Record, reason: Reason) -> None:
        """Count one failure of *record*, and start its group again or give up."""
        record.attempt += 1
        window = self.window if record.window is None else record.window
        if not window.admit(self.kernel.now()):
            self._give_up(record, reason)
            return
        drop_frames(reason.error)
        backoff = record.spec.backoff or self.plan.backoff
        delay_s = backoff.delay_s(record.attempt, self.kernel.draw) if backoff is not None else 0.0
        self.tell("restarting", record.spec.id, reason, attempt=record.attempt, delay_s=delay_s)
        members = self._group(record)
        await self._stop_group(members)
        if delay_s and self._waits(record):
            self._retry(record, delay_s)
        else:
            await self._start_group(members)

    async def _stop_group(self, members: Sequence[Record]) -> None:
        for member in members:
            if member.life is None:
                # Whatever it did not run for, it is started with its group; a call that comes from now on is obeyed.
                member.drop_retry()
                member.idle = "down"
        for member in reversed(members):
            if member.life is not None:
                await self.stop(member)
                if member.spec.restart == "temporary":
                    self.remove(member, member.last)
                await self.desk.answer_calls()

    async def _start_group(self, members: Sequence[Record]) -> None:
        for member in members:
            if member.idle == "restarting":
                return  # its own retry starts it, and those after it
            if self._waits(member):
                reason = await self.start(member)
                if reason is not None:
                    # The rest stays down; the retry runs the strategy again, from this child.
                    self.tell("start_failed", member.spec.id, reason, attempt=member.attempt, error=True)
                    self._retry(member, None)
                    return
                await self.desk.answer_calls()

    def _give_up(self, record: Record, reason: Reason) -> None:
        self.tell("gave_up", record.spec.id, reason, attempt=record.attempt, error=True)
        if record.window is not None:
            drop_frames(reason.error)
            self.retire(record, "gave_up", reason)
            self._end_with(record)
            return
        record.idle = "gave_up"
        error = RestartsExhausted(
            f"supervisor {self.path!r} gave up: {record.spec.id!r} was to be started again more than "
            f"{self.plan.max_restarts!r} times within {self.plan.within_s!r} s; {_last_end(reason)}. Mend the cause, "
            "or set `max_restarts`, `within_s` or a `backoff` that fit it",
            supervisor=self.plan.name,
            child=record.spec.id,
            history=tuple(self._book.history),
        )
        error.__cause__ = reason.error
        self.done = Reason("shutdown", error=error)

    def _end_with(self, record: Record) -> None:
        """End the supervisor, where the end of *record* by itself is to."""
        if not record.spec.significant:
            return
        others = (other for other in self.records.values() if other.spec.significant and other is not record)
        if ends_supervisor(self.plan.auto_shutdown, others_up=any(other.active for other in others)):
            self.tell("auto_shutdown", record.spec.id)
            self.done = SHUTDOWN

    def _retry(self, record: Record, delay_s: float | None) -> None:
        """Have *record* tried again: after *delay_s*, or (`None`) as soon as the letters before it are read."""
        record.idle = "restarting"
        retry = record.retry = Retry(self.desk.post, record, begun=delay_s is not None)
        if delay_s is None:
            retry.due()
        else:
            retry.at = self.kernel.now() + delay_s
            retry.table = self.kernel.timers.add(delay_s, retry)

    async def _read(self, letter: Call | Retry) -> None:
        if isinstance(letter, Call):
            await self.desk.answer(letter)
            return
        record = letter.record
        if record.retry is not letter:
            return  # it was terminated, or started with its group
        record.retry = None
        record.idle = "down"
        members = self._group(record)
        if letter.begun:
            await self._start_group(members)
            return
        await self._again(record, record.last)
        if self.done is None:
            # Where it ended alone, those that are down because it did not start go on without it.
            await self._start_group(members)

    # --- small things

    def _waits(self, record: Record) -> bool:
        """Say whether *record* is to be started; a call may have stopped, started or deleted it meanwhile."""
        return record.life is None and record.idle == "down" and self.records.get(record.spec.id) is record

    def _group(self, record: Record) -> list[Record]:
        return [self.records[child_id] for child_id in group(self.plan.strategy, self.records, record.spec.id)]

    def _steady_s(self, record: Record) -> float:
        """Return how long *record* has to be up for its next failure to be the first in a row again, in seconds."""
        backoff = record.spec.backoff or self.plan.backoff
        if backoff is not None:
            return backoff.cap
        return (self.window if record.window is None else record.window).within_s

    def _born(self, record: Record) -> Life:
        start = record.spec.start
        if isinstance(start, Nested):
            life = start.born(self.kernel, self, record.path, record.spec.id, record.spec.grace_s)
            self._book.nested[start] = record.spec.id
            return life
        return ChildLife(self.kernel, self, record.path, record.spec, record.ref)

    def tell(
        self,
        kind: EventKind,
        child_id: str,
        reason: Reason | None = None,
        *,
        attempt: int = 0,
        delay_s: float = 0.0,
        error: bool = False,
        lost: int = 0,
        raised: bool = False,
    ) -> None:
        """Write down what happened to a child, and hand it to the observer.

        Args:
            kind: What happened.
            child_id: To whom.
            reason: Why it ended or did not start.
            attempt: Which restart in a row this is.
            delay_s: Seconds until it.
            error: Whether it is to be reported as an error.
            lost: Messages that nobody will read.
            raised: Whether somebody is raised the error, with frames that the history must not keep.
        """
        event = SupervisionEvent(
            self.kernel.now(), kind, self.path, child_id, reason, attempt, delay_s, error=error, lost=lost
        )
        kept = event if reason is None or not raised else replace(event, reason=reason.without_error())
        self._book.history.append(kept)
        self.kernel.observe(event)


def _last_end(reason: Reason) -> str:
    """Say how a child that was restarted too often ended last."""
    if isinstance(reason.error, RestartsExhausted):
        return "it gave up itself, as `__cause__` says"
    return f"its last end: {reason.placed()}"
