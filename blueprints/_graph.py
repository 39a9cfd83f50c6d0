"""Where a run can go: stages that are never entered, runs that never end, loops without a limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.blueprints._model import Stage
from shoal.blueprints._names import SPECIAL, Names, ends
from shoal.blueprints._report import Report, listed
from shoal.blueprints._toml import Path


def check_graph(names: Names, report: Report) -> None:
    """Add stages that cannot be reached or left. Every name of a stage must be known to exist."""
    follows = {stage.name: names.follows(stage) for stage in names.blueprint.stages}
    entry = names.blueprint.entry
    workers = [
        stage.fan_out.worker_stage for stage in names.blueprint.stages if stage.fan_out and stage.fan_out.worker_stage
    ]
    from_entry = _reached([entry], follows)
    if not any(ends(names, names.stages[name]) for name in from_entry):
        message = f"from `{entry}` no path leads to a stage that ends the run; give one an empty `transitions` table"
        report.error("no-way-to-end", _path(entry), message, at="key")
    reached = from_entry | _reached(workers, follows)
    for stage in names.blueprint.stages:
        if stage.name not in reached:
            _report_unreached(stage, report)


def lint_graph(names: Names, report: Report) -> None:
    """Add what makes a run end early, late or in the wrong place."""
    follows = {stage.name: names.follows(stage) for stage in names.blueprint.stages}
    _lint_cycle(names, follows, report)
    owes = {stage.name for stage in names.blueprint.stages if stage.require_output}
    backwards = _reached(owes, _reversed(follows))
    for stage in names.blueprint.stages:
        _lint_dead_end(names, stage, report)
        if stage.allow_complete and not stage.require_output and stage.name in backwards:
            message = "the model may end the run here, before the stage that owes the output; drop `allow_complete`"
            report.warning("allow-complete-skips-output", (*_path(stage.name), "allow_complete"), message)


def _path(name: str) -> Path:
    return ("stages", name)


def _reached(start: Iterable[str], follows: Mapping[str, Iterable[str]]) -> set[str]:
    """Return *start* and every stage that can be entered from there."""
    reached: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += follows[name]
    return reached


def _reversed(follows: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    back: dict[str, list[str]] = {name: [] for name in follows}
    for name, targets in follows.items():
        for target in targets:
            back[target].append(name)
    return back


def _report_unreached(stage: Stage, report: Report) -> None:
    path = _path(stage.name)
    if stage.require_output:
        message = f"no edge leads to `{stage.name}`, which owes the output; add one"
        report.error("output-unreachable", path, message, at="key")
    else:
        message = f"no edge leads to `{stage.name}`; add one, or drop the stage"
        report.warning("unreachable-stage", path, message, at="key")


def _lint_cycle(names: Names, follows: Mapping[str, Iterable[str]], report: Report) -> None:
    """Add the first loop of several stages in which none has a limit of visits.

    Stages with a limit break every loop they are in, so they are left out; of the rest, stages that lead nowhere go
    until none is left, or only loops and what leads into them.
    """
    limited = {stage.name for stage in names.blueprint.stages if stage.max_revisits is not None}
    left = {
        name: {target for target in targets if target not in limited and target != name}
        for name, targets in follows.items()
        if name not in limited
    }
    back = _reversed(left)
    waiting = [name for name, targets in left.items() if not targets]
    while waiting:
        gone = waiting.pop()
        del left[gone]
        for name in back[gone]:
            left[name].discard(gone)
            if not left[name]:
                waiting.append(name)
    if left:
        loop = _walk(left)
        message = f"{listed(loop)} lead to one another without a limit; write `max_revisits` in one of them"
        report.warning("cycle-without-max-revisits", _path(loop[0]), message, at="key")


def _walk(left: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a loop among *left*, where each stage leads to another of them."""
    name, order = next(iter(left)), dict[str, int]()
    while name not in order:
        order[name] = len(order)
        name = min(left[name])
    return list(order)[order[name] :]


def _lint_dead_end(names: Names, stage: Stage, report: Report) -> None:
    edges = names.edges(stage)
    targets = [names.stages[edge.target] for edge in edges if edge.condition not in SPECIAL]
    escapes = any(edge.condition in {"dead_end", "error"} for edge in edges)
    if targets and not escapes and all(target.max_revisits is not None for target in targets):
        message = (
            f"every edge of `{stage.name}` leads to a stage with `max_revisits`: when these are spent the run fails; "
            "add an edge for `dead_end`"
        )
        report.warning("dead-end-possible", _path(stage.name), message, at="key")
