"""Jobs that lanes do for the run."""

from __future__ import annotations

from shoal.runtime.context import CONVERSATION
from shoal.runtime.events import Event, LaneCompleted, LaneDegraded, LaneStarted
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._visit import Job


def on_job_started(state: RunRecord, event: Event, payload: LaneStarted) -> None:
    state.jobs[event.seq] = Job(event.seq, payload)


def on_job_ended(state: RunRecord, event: Event, payload: LaneCompleted | LaneDegraded) -> None:
    job = state.jobs.pop(payload.job, None)
    if isinstance(payload, LaneDegraded) and payload.reason == "not_smaller" and payload.region == CONVERSATION:
        held = state.view.states[CONVERSATION]
        state.in_vain = 0 if held.view is None else held.view.edges(held).turns
    if job is not None and payload.lane == "refresh" and state.visit is not None:
        state.visit.refreshed |= {job.started.region}
