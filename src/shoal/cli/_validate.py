"""`shoal validate`: everything that is wrong with a blueprint, at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shoal.blueprints import Blueprint, Finding, check, resolve
from shoal.cli._places import JsonOption
from shoal.cli._print import line, print_json, say
from shoal.errors import BlueprintInvalid

DENIED = 1
ERRORS = 2


def command(
    path: Annotated[str, Parameter(help="A blueprint's folder or file, or a name of the library.")],
    /,
    *,
    deny_warnings: Annotated[bool, Parameter(negative="", help="Let warnings fail too.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Check a blueprint and the workers inside its folder."""
    try:
        found = tuple(findings_at(resolve(path), set()))
    except BlueprintInvalid as error:
        found = error.findings
    if as_json:
        print_json({"findings": [dataclasses.asdict(finding) for finding in found]})
    else:
        for finding in found:
            say(line(str(finding)))
        say(_verdict(path, found))
    severities = {finding.severity for finding in found}
    if "error" in severities:
        return ERRORS
    return DENIED if deny_warnings and "warning" in severities else 0


def findings_at(path: Path, seen: set[Path]) -> Iterator[Finding]:
    """Yield what is wrong with the blueprint at *path* and with those in its folder that its stages name as workers."""
    if path in seen:
        return
    seen.add(path)
    blueprint, found = check(path)
    yield from found
    if blueprint is None:
        return
    for worker in _workers(blueprint):
        try:
            inside = resolve(worker, base=blueprint.folder)
        except BlueprintInvalid as error:
            yield from error.findings
        else:
            yield from findings_at(inside, seen)


def _workers(blueprint: Blueprint) -> list[str]:
    named = [stage.fan_out.worker_agent for stage in blueprint.stages if stage.fan_out is not None]
    return [name for name in dict.fromkeys(named) if name is not None]


def _verdict(path: str, found: tuple[Finding, ...]) -> str:
    counts = {word: sum(f.severity == word for f in found) for word in ("error", "warning", "note")}
    said = ", ".join(f"{count} {word}{'s' if count != 1 else ''}" for word, count in counts.items() if count)
    return f"{line(path)}: {said or 'nothing to complain about'}"
