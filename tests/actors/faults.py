"""Faults that a supervisor could have: each breaks one rule of OTP, and the simulation has to notice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shoal.actors import Reason, _calls, _engine
from shoal.actors._engine import Engine
from shoal.actors._plan import Record, Retry
from shoal.actors._restarts import RestartWindow

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]
ENDLESS = RestartWindow(None, 1.0)


def around(patch: Patch, owner: Any, name: str, made: Callable[[Any], Any]) -> None:
    """Replace what *owner* has under *name* by what *made* makes of it."""
    patch.setattr(owner, name, made(getattr(owner, name)))


# --- what the reference page marks as often got wrong


def a_permanent_child_stays_down_after_a_clean_end(patch: Patch) -> None:
    def made(original: Any) -> Any:
        return lambda restart, reason: "keep" if restart == "permanent" and reason.clean else original(restart, reason)

    around(patch, _engine, "verdict", made)


def the_clean_end_of_a_permanent_child_is_no_error(patch: Patch) -> None:
    patch.setattr(_engine, "is_error", lambda _restart, reason: not reason.clean)


def a_group_restart_leaves_out_whoever_did_not_run(patch: Patch) -> None:
    def made(original: Any) -> Any:
        async def stop_group(engine: Engine, members: list[Record]) -> None:
            idle = {member: member.idle for member in members if member.life is None}
            failed = {member for member in idle if idle[member] in {"down", "restarting"}}
            await original(engine, members)
            for member in idle.keys() - failed:
                member.idle = idle[member]

        return stop_group

    around(patch, Engine, "_stop_group", made)


def each_sibling_of_a_group_restart_counts(patch: Patch) -> None:
    def made(original: Any) -> Any:
        async def again(engine: Engine, record: Record, reason: Reason) -> None:
            for _ in engine._group(record)[1:]:
                engine.window.admit(engine.kernel.now())
            await original(engine, record, reason)

        return again

    around(patch, Engine, "_again", made)


def a_retry_does_not_count(patch: Patch) -> None:
    around(patch, Engine, "_read", lambda original: _retrying(original, lambda _engine, record: _uncounted(record)))


def giving_up_is_a_crash(patch: Patch) -> None:
    def made(original: Any) -> Any:
        def give_up(engine: Engine, record: Record, reason: Reason) -> None:
            original(engine, record, reason)
            assert engine.done is not None
            engine.done = Reason("crashed", error=engine.done.error)

        return give_up

    around(patch, Engine, "_give_up", made)


MARKED: dict[str, tuple[Fault, ...]] = {
    "a permanent child is started again after a clean end, and that is an error": (
        a_permanent_child_stays_down_after_a_clean_end,
        the_clean_end_of_a_permanent_child_is_no_error,
    ),
    "a group restart starts every spec that is kept": (a_group_restart_leaves_out_whoever_did_not_run,),
    "one failure is one entry": (each_sibling_of_a_group_restart_counts,),
    "each retry is another entry": (a_retry_does_not_count,),
    "giving up is a clean end": (giving_up_is_a_crash,),
}
"""The points that the reference page marks, each with the faults that break it."""


# --- what else the page says


def an_entry_at_the_edge_of_the_window_is_dropped(patch: Patch) -> None:
    def made(original: Any) -> Any:
        def admit(window: RestartWindow, now: float) -> bool:
            while window._times and window._times[0] <= now - window.within_s:
                window._times.popleft()
            return bool(original(window, now))

        return admit

    around(patch, RestartWindow, "admit", made)


def one_restart_too_many_is_allowed(patch: Patch) -> None:
    def made(original: Any) -> Any:
        def admit(window: RestartWindow, now: float) -> bool:
            original(window, now)
            return window.max_restarts is None or len(window._times) <= window.max_restarts + 1

        return admit

    around(patch, RestartWindow, "admit", made)


def a_terminated_child_counts_for_auto_shutdown(patch: Patch) -> None:
    def made(original: Any) -> Any:
        async def terminate(engine: Engine, child_id: str) -> None:
            record = _calls.find(engine, child_id)
            await original(engine, child_id)
            engine._end_with(record)

        return terminate

    around(patch, _calls, "terminate_child", made)


def a_child_stopped_with_its_group_counts_for_auto_shutdown(patch: Patch) -> None:
    def made(original: Any) -> Any:
        async def stop_group(engine: Engine, members: list[Record]) -> None:
            await original(engine, members)
            for member in members:
                if member.spec.restart == "temporary":
                    engine._end_with(member)

        return stop_group

    around(patch, Engine, "_stop_group", made)


def all_significant_waits_for_one_only(patch: Patch) -> None:
    patch.setattr(_engine, "ends_supervisor", lambda auto_shutdown, *, others_up: auto_shutdown != "never")


def any_significant_waits_for_all(patch: Patch) -> None:
    patch.setattr(_engine, "ends_supervisor", lambda auto, *, others_up: auto != "never" and not others_up)


def a_call_to_restart_a_child_counts(patch: Patch) -> None:
    def made(original: Any) -> Any:
        async def restart(engine: Engine, child_id: str) -> Any:
            engine.window.admit(engine.kernel.now())
            return await original(engine, child_id)

        return restart

    around(patch, _calls, "restart_child", made)


def a_temporary_child_is_started_again_with_its_group(patch: Patch) -> None:
    def made(original: Any) -> Any:
        async def stop_group(engine: Engine, members: list[Record]) -> None:
            await original(engine, members)
            for member in members:
                engine.records.setdefault(member.spec.id, member)

        return stop_group

    around(patch, Engine, "_stop_group", made)


def a_group_is_stopped_in_start_order(patch: Patch) -> None:
    def made(original: Any) -> Any:
        return lambda engine, members: original(engine, members[::-1])

    around(patch, Engine, "_stop_group", made)


def a_group_is_started_in_reverse_order(patch: Patch) -> None:
    def made(original: Any) -> Any:
        return lambda engine, members: original(engine, members[::-1])

    around(patch, Engine, "_start_group", made)


def rest_for_one_drags_everybody_along(patch: Patch) -> None:
    def made(original: Any) -> Any:
        return lambda strategy, ids, failed: original(strategy.replace("rest_for_one", "one_for_all"), ids, failed)

    around(patch, _engine, "group", made)


def one_for_all_leaves_those_before_alone(patch: Patch) -> None:
    def made(original: Any) -> Any:
        return lambda strategy, ids, failed: original(strategy.replace("one_for_all", "rest_for_one"), ids, failed)

    around(patch, _engine, "group", made)


def a_retry_starts_its_child_alone(patch: Patch) -> None:
    def alone(engine: Engine, record: Record) -> Callable[[], None]:
        engine.__dict__["_group"] = lambda _record: [record]
        return lambda: engine.__dict__.pop("_group", None)

    around(patch, Engine, "_read", lambda original: _retrying(original, alone))


def an_end_that_the_supervisor_asked_for_is_read_as_one_by_itself(patch: Patch) -> None:
    def made(original: Any) -> Any:
        async def exited(engine: Engine, life: Any) -> None:
            record = engine.records.get(life.child_id)
            if record is not None and record.life is None and life.reason.kind == "crashed" and life.up_at is not None:
                record.life = life
            await original(engine, life)

        return exited

    around(patch, Engine, "_exited", made)


def children_of_a_restarted_supervisor_stay_deleted(patch: Patch) -> None:
    def made(original: Any) -> Any:
        def init(engine: Engine, plan: Any, book: Any, kernel: Any, life: Any, before: Engine | None) -> None:
            original(engine, plan, book, kernel, life, before)
            for child_id in tuple(engine.records):
                if before is not None and child_id not in before.records:
                    del engine.records[child_id]

        return init

    around(patch, Engine, "__init__", made)


def a_child_that_did_not_start_is_kept(patch: Patch) -> None:
    def made(original: Any) -> Any:
        def kept(engine: Engine, record: Record, reason: Reason) -> None:
            if record.restarts >= 0 or engine.plan.dynamic:
                original(engine, record, reason)

        return kept

    around(patch, Engine, "remove", made)


OTHERS: tuple[Fault, ...] = (
    an_entry_at_the_edge_of_the_window_is_dropped,
    one_restart_too_many_is_allowed,
    a_terminated_child_counts_for_auto_shutdown,
    a_child_stopped_with_its_group_counts_for_auto_shutdown,
    all_significant_waits_for_one_only,
    any_significant_waits_for_all,
    a_call_to_restart_a_child_counts,
    a_temporary_child_is_started_again_with_its_group,
    a_group_is_stopped_in_start_order,
    a_group_is_started_in_reverse_order,
    rest_for_one_drags_everybody_along,
    one_for_all_leaves_those_before_alone,
    a_retry_starts_its_child_alone,
    an_end_that_the_supervisor_asked_for_is_read_as_one_by_itself,
    children_of_a_restarted_supervisor_stay_deleted,
    a_child_that_did_not_start_is_kept,
)


def _retrying(
    original: Callable[[Engine, Any], Awaitable[None]], begin: Callable[[Engine, Record], Callable[[], object]]
) -> Callable[[Engine, Any], Awaitable[None]]:
    """Return *original* with *begin* called before each retry, and what that returns called after it."""

    async def read(engine: Engine, letter: Any) -> None:
        end = begin(engine, letter.record) if isinstance(letter, Retry) else None
        try:
            await original(engine, letter)
        finally:
            if end is not None:
                end()

    return read


def _uncounted(record: Record) -> Callable[[], None]:
    record.window = ENDLESS

    def end() -> None:
        record.window = None

    return end
