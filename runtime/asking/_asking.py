"""A call of a model by an agentic function, under way, and who may serve it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from shoal.blueprints import ModelChoice, ModelSettings
from shoal.runtime._asked import Asked
from shoal.runtime._faults import fault_of
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime._running import Running
from shoal.runtime.events import StepRecorded


@final
@dataclass(slots=True)
class Asking:
    """A call that is under way in this life.

    Args:
        running: The life.
        frame: Seq of the frame.
        number: Number of the call in it.
        asked: What is asked.
        digest: What stands for that.
        tried: Who could not serve it.
    """

    running: Running
    frame: int
    number: int
    asked: Asked
    digest: str
    tried: list[str] = field(default_factory=list[str])

    @property
    def live(self) -> Live:
        """The run."""
        return self.running.live

    def fail(self, error: Exception) -> None:
        """Journal that the call failed."""
        self.running.emit(StepRecorded(self.frame, self.number, "failed", self.digest, None, *fault_of(error)))


def candidates(asking: Asking) -> list[Serving]:
    """Return who may serve the call and was not tried, best first."""
    live = asking.live
    choices = tuple([ModelChoice.of(name) for name in asking.asked.models])
    # An order that stands in code is meant.
    settings = ModelSettings(choices, allow_user_default=not choices)
    found = live.host.serving(settings, live.state.made_by.model, live.state.made_by.default_model)
    return [each for each in found if each.label not in asking.tried]
