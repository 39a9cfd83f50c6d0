"""What can be asked of a running supervisor about its children, one call at a time and in its own task.

Source: the reference page of OTP's `supervisor` (OTP 27).
"""

from __future__ import annotations

from typing import Any

from shoal.actors._engine import Engine
from shoal.actors._life import Nested
from shoal.actors._plan import Record
from shoal.actors._reason import SHUTDOWN
from shoal.actors._spec import ChildSpec
from shoal.errors import (
    AlreadyPresent,
    AlreadyStarted,
    ChildNotFound,
    ChildRestarting,
    ChildRunning,
    StartFailed,
    TooManyChildren,
)


async def start_child(engine: Engine, spec: ChildSpec) -> Any:
    """Add *spec* at the end of the start order and start it; see `Supervisor.start_child`."""
    name, there = engine.plan.name, engine.records.get(spec.id)
    if there is not None and there.active:
        why = f"{there.path!r} is {there.state}; take another id, or terminate it first"
        raise AlreadyStarted(why, supervisor=name, child=spec.id)
    if there is not None:
        why = f"{there.path!r} is there and {there.state}; `restart_child` it, or `delete_child` it first"
        raise AlreadyPresent(why, supervisor=name, child=spec.id)
    most = engine.plan.max_children
    if most is not None and len(engine.records) >= most:
        why = (
            f"supervisor {engine.path!r} has its {most!r} children; wait for one to end, or set a larger `max_children`"
        )
        raise TooManyChildren(why, supervisor=name, child=spec.id)
    record = engine.add(spec)
    try:
        return await _start(engine, record)
    except StartFailed:
        engine.remove(record, record.last)
        raise


async def restart_child(engine: Engine, child_id: str) -> Any:
    """Start a child that has no process; see `Supervisor.restart_child`."""
    return await _start(engine, _idle(engine, child_id))


async def terminate_child(engine: Engine, child_id: str) -> None:
    """Stop a child; see `Supervisor.terminate_child`."""
    record = find(engine, child_id)
    await engine.stop(record)
    engine.retire(record, "stopped", SHUTDOWN)


async def delete_child(engine: Engine, child_id: str) -> None:
    """Forget a child that has no process; see `Supervisor.delete_child`."""
    engine.remove(_idle(engine, child_id), SHUTDOWN)


def find(engine: Engine, child_id: str) -> Record:
    """Return the child of that id.

    Raises:
        ChildNotFound: There is none.
    """
    record = engine.records.get(child_id)
    if record is None:
        known = ", ".join(map(repr, list(engine.records)[:10])) or "none"
        why = f"supervisor {engine.path!r} has no child {child_id!r}; it has {known}"
        raise ChildNotFound(why, supervisor=engine.plan.name, child=child_id)
    return record


def _idle(engine: Engine, child_id: str) -> Record:
    record = find(engine, child_id)
    if record.life is not None:
        why = f"{record.path!r} is {record.state}; `terminate_child` it first"
        raise ChildRunning(why, supervisor=engine.plan.name, child=child_id)
    if record.idle == "restarting":
        why = f"{record.path!r} waits for its next try; wait for it, or `terminate_child` it first"
        raise ChildRestarting(why, supervisor=engine.plan.name, child=child_id)
    return record


async def _start(engine: Engine, record: Record) -> Any:
    """Start *record*, and return its handle or its info."""
    reason = await engine.start(record)
    if reason is not None:
        record.idle = "stopped"
        raise engine.start_error(record, reason) from reason.error
    if record.terminated:
        why = f"{record.path!r} was terminated while it started; start it again where it is still wanted"
        raise StartFailed(why, supervisor=engine.plan.name, child=record.spec.id)
    if isinstance(record.spec.start, Nested):
        return record.spec.start
    return None if record.life is None else record.life.info
