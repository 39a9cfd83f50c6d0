"""The actor kernel: mailboxes, refs, supervisors. It knows nothing of language models."""

from shoal.actors._actor import Actor, handles
from shoal.actors._clock import Clock, LoopClock
from shoal.actors._dynamic import DynamicSupervisor
from shoal.actors._events import Observer, SupervisionEvent
from shoal.actors._reason import Ignore, Reason, Shutdown
from shoal.actors._ref import Down, Monitor, Question, Ref, Scheduled
from shoal.actors._registry import Registry
from shoal.actors._report import ChildInfo, Counts, WhichChild
from shoal.actors._restarts import Backoff
from shoal.actors._running import running
from shoal.actors._spec import Child, ChildSpec, Worker, check_childspecs
from shoal.actors._supervisor import Supervisor

__all__ = [
    "Actor",
    "Backoff",
    "Child",
    "ChildInfo",
    "ChildSpec",
    "Clock",
    "Counts",
    "Down",
    "DynamicSupervisor",
    "Ignore",
    "LoopClock",
    "Monitor",
    "Observer",
    "Question",
    "Reason",
    "Ref",
    "Registry",
    "Scheduled",
    "Shutdown",
    "SupervisionEvent",
    "Supervisor",
    "WhichChild",
    "Worker",
    "check_childspecs",
    "handles",
    "running",
]
