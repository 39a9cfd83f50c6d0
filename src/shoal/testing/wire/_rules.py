"""Rules and what breaks them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Violation:
    """Something that a vendor would refuse.

    Args:
        rule: Id of the rule: `A1`–`A21`, `O1`–`O13`, `R1`–`R8`, `G1`–`G10`; `codex` for what its transport does not
            take, `cachedContent` and `continuation` for what Gemini keeps, `window` for a prompt that is too long,
            `schema` for a wrong type or a missing field, `unknown` for a field that the vendor does not have,
            `unsimulated` for one that this server does not.
        path: Where, in the vendor's way of writing paths; empty for the whole request.
        message: What the vendor says.
        enforced: Whether the request is refused. Warnings, and rules that the test switched off, are only recorded.
    """

    rule: str
    path: str
    message: str
    enforced: bool = True

    def __str__(self) -> str:
        return f"{self.rule} {self.path}: {self.message}" if self.path else f"{self.rule}: {self.message}"


def warning(rule: str, path: str, message: str) -> Violation:
    """Return what vendors tolerate although it is a mistake."""
    return Violation(rule, path, message, enforced=False)


def judged(violations: Iterable[Violation], skip: frozenset[str]) -> tuple[Violation, ...]:
    """Return *violations* with those of rules in *skip* not enforced. What has no shape cannot be let pass."""
    skipped = skip - {"schema"}
    return tuple(replace(found, enforced=False) if found.rule in skipped else found for found in violations)
