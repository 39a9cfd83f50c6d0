"""`shoal validate`: everything that is wrong with a blueprint, at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import anyio
from cyclopts import Parameter

from shoal._environment import providers_from
from shoal._granted import permissions_from
from shoal._serving import default_model_from
from shoal.blueprints import Blueprint, Finding, check, locate, resolve
from shoal.cli._places import JsonOption
from shoal.cli._print import line, print_json, print_table, say
from shoal.errors import BlueprintInvalid
from shoal.validate import examine, named_models, resolved_budgets

DENIED = 1
ERRORS = 2


def command(
    path: Annotated[str, Parameter(help="A blueprint's folder or file, or a name of the library.")],
    /,
    *,
    deny_warnings: Annotated[bool, Parameter(negative="", help="Let warnings fail too.")] = False,
    tool: Annotated[
        tuple[str, ...], Parameter(negative="", help="A function that code gives at the spawn; may be repeated.")
    ] = (),
    as_json: JsonOption = False,
) -> int:
    """Check a blueprint and the workers inside its folder."""
    budgets: Budgets = {}
    try:
        real = resolve(path)
        found = tuple(findings_at(real, set(), tool))
        budgets = _budgets(real)
    except BlueprintInvalid as error:
        found = error.findings
    if as_json:
        print_json({"findings": [dataclasses.asdict(finding) for finding in found], "budgets": budgets})
    else:
        for finding in found:
            say(line(str(finding)))
        _show(budgets)
        say(_verdict(path, found))
    severities = {finding.severity for finding in found}
    if "error" in severities:
        return ERRORS
    return DENIED if deny_warnings and "warning" in severities else 0


def findings_at(path: Path, seen: set[Path], tools: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield what is wrong with the blueprint at *path* and with those in its folder that its stages name as workers.

    Args:
        path: The blueprint.
        seen: The blueprints that were looked at; this adds to them.
        tools: Functions that code gives at the spawn.
    """
    if path in seen:
        return
    seen.add(path)
    blueprint, found = check(path)
    if blueprint is None:
        yield from found
        return
    serving = providers_from()
    more = anyio.run(
        lambda: examine(
            blueprint,
            providers=serving,
            permissions=permissions_from(),
            tools=tools,
            default_model=default_model_from(serving),
        )
    )
    yield from locate(path, (*found, *more))
    for worker in _workers(blueprint):
        try:
            inside = resolve(worker, base=blueprint.folder)
        except BlueprintInvalid as error:
            yield from error.findings
        else:
            yield from findings_at(inside, seen, tools)


Budgets: TypeAlias = Mapping[str, Mapping[str, int]]
"""Tokens by model, by region."""


def _budgets(path: Path) -> Budgets:
    """Return what the budgets of the blueprint at *path* come to; nothing where it has errors."""
    blueprint, _ = check(path)
    return {} if blueprint is None else resolved_budgets(blueprint, named_models(blueprint, providers_from()))


def _show(budgets: Budgets) -> None:
    models = list(dict.fromkeys(model for row in budgets.values() for model in row))
    if models:
        rows = [(line(region), *(str(row[model]) for model in models)) for region, row in budgets.items()]
        print_table(("region", *map(line, models)), rows, right=models)


def _workers(blueprint: Blueprint) -> list[str]:
    named = [stage.fan_out.worker_agent for stage in blueprint.stages if stage.fan_out is not None]
    return [name for name in dict.fromkeys(named) if name is not None]


def _verdict(path: str, found: tuple[Finding, ...]) -> str:
    counts = {word: sum(f.severity == word for f in found) for word in ("error", "warning", "note")}
    said = ", ".join(f"{count} {word}{'s' if count != 1 else ''}" for word, count in counts.items() if count)
    return f"{line(path)}: {said or 'nothing to complain about'}"
