"""The actor kernel: mailboxes, refs, supervisors. It knows nothing of language models."""

from shoal.actors._actor import Actor, handles
from shoal.actors._clock import Clock, LoopClock
from shoal.actors._events import Observer, SupervisionEvent
from shoal.actors._reason import Ignore, Reason, Shutdown
from shoal.actors._ref import Down, Monitor, Question, Ref, Scheduled
from shoal.actors._registry import Registry

__all__ = [
    "Actor",
    "Clock",
    "Down",
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
    "handles",
]
