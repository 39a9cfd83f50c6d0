"""What becomes of a model's answer, as the situation of its call says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """The answer is read as a choice: one JSON object from the menu that the question lists."""

    @property
    def line(self) -> str:
        """What the model is told."""
        return "it is read as a choice, so answer with exactly one JSON object of the menu and nothing else."


@final
@dataclass(frozen=True, slots=True)
class Deliverable:
    """The answer becomes an artifact that somebody uses.

    Args:
        artifact: What it becomes, such as `report.md`.
        consumer: Who uses it.
    """

    artifact: str
    consumer: str

    @property
    def line(self) -> str:
        """What the model is told."""
        return f"it becomes `{self.artifact}`, which {self.consumer} uses."


@final
@dataclass(frozen=True, slots=True)
class PassedTo:
    """The answer is handed to another function.

    Args:
        function: The function.
        parameter: The parameter of it that takes the answer; empty where there is none to name.
    """

    function: str
    parameter: str = ""

    @property
    def line(self) -> str:
        """What the model is told."""
        return f"it is passed to `{self.function}`" + (f" as its `{self.parameter}`." if self.parameter else ".")


Contract: TypeAlias = Decision | Deliverable | PassedTo
