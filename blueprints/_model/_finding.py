"""Findings: what is wrong, or worth knowing, about a blueprint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing, about a blueprint.

    Args:
        id: Stable name of the check.
        severity: `error` fails the load, `warning` fails only where warnings are denied, `note` never fails.
        message: What is wrong and what to write instead.
        file: The file; `None` for a blueprint built in Python.
        line: 1 or more; `None` where there is no place.
        column: 1 or more; `None` where there is no place.
        key: Path of the key, such as `stages.review.model`.
    """

    id: str
    severity: Literal["error", "warning", "note"]
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        where = f"{place}: " if place else ""
        what = f" ({self.key})" if self.key else ""
        return f"{where}{self.severity}: {self.message}{what} [{self.id}]"
