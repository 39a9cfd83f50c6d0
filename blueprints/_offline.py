"""What must hold for a stage's steps for the offline provider."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from shoal.blueprints._codec import is_list, is_mapping
from shoal.blueprints._model import OfflineStep, Stage
from shoal.blueprints._names import Names, check_region
from shoal.blueprints._report import Report, listed, shown
from shoal.blueprints._toml import Path

_ACTIONS = ("call", "extract", "say", "route")
_COMPANIONS: Mapping[str, tuple[str, ...]] = {"call": ("args", "for_each", "pages"), "extract": ("sentences", "into")}
_NAMED = re.compile(r"(?P<kind>result|region|extract)\((?P<inside>[^()]*)\)")
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}")
_UNSET = OfflineStep()


def check_offline(names: Names, path: Path, stage: Stage, report: Report) -> None:
    """Add what is wrong with the policy of *stage*, which stands at *path*."""
    # The steps that a later one may name, by the number that it has to write.
    calls: dict[str, OfflineStep] = {}
    for index, step in enumerate(stage.offline or ()):
        here = (*path, "offline", "policy", index)
        _check_action(here, step, report)
        _check_tools(names, here, stage, step, report)
        _check_route(names, here, stage, step, report)
        if step.extract is not None:
            check_region(names, (*here, "extract"), step.extract, report)
        if step.for_each is not None:
            _check_source(names, (*here, "for_each"), step.for_each, calls, report)
        for key, text in _templates(step):
            words = {"task"} if step.for_each is None else {"task", "item"}
            _check_template(names, (*here, *key), text, words, calls, report)
        if step.call is not None or step.into is not None:
            calls[str(index + 1)] = step


def _check_action(path: Path, step: OfflineStep, report: Report) -> None:
    actions = [key for key in _ACTIONS if getattr(step, key) is not None]
    if len(actions) != 1:
        message = f"a step has exactly one of {listed(_ACTIONS)}; this one has {listed(actions)}"
        report.error("offline-step", path, message, about=[(*path, key) for key in _ACTIONS])
        return
    for action, keys in _COMPANIONS.items():
        for key in keys:
            if action not in actions and getattr(step, key) != getattr(_UNSET, key):
                message = f"`{key}` belongs to `{action}`, and this step is `{actions[0]}`; leave it out"
                report.error("offline-step", (*path, key), message, at="key")


def _check_tools(names: Names, path: Path, stage: Stage, step: OfflineStep, report: Report) -> None:
    for key in ("call", "into"):
        name = getattr(step, key)
        # Which tools are deferred is known at the spawn; the one that loads them is there where some are.
        if name is not None and name != "load_tools" and not names.has_tool(stage, name):
            message = f"the stage has no tool {shown(name)}; add it to `available_tools`"
            report.error("offline-unknown-tool", (*path, key), message, about=[(*path[:2], "available_tools")])


def _check_route(names: Names, path: Path, stage: Stage, step: OfflineStep, report: Report) -> None:
    targets = [edge.target for edge in names.edges(stage)]
    if step.route is not None and step.route not in {"overlap", *targets}:
        near = report.near(step.route, targets)
        message = f"no edge leads to {shown(step.route)}{near}; write `overlap` or one of {listed(targets)}"
        report.error("offline-unknown-route", (*path, "route"), message, about=[(*path[:2], "transitions")])


def _check_source(names: Names, path: Path, source: str, calls: Mapping[str, OfflineStep], report: Report) -> None:
    match = _NAMED.fullmatch(source)
    if match is None or match["kind"] == "extract":
        message = f"`for_each` is {shown(source)}; write `result(STEP)` or `region(NAME)`"
        report.error("offline-source", path, message)
    else:
        _check_named(names, path, match, calls, report)


def _check_named(
    names: Names, path: Path, match: re.Match[str], calls: Mapping[str, OfflineStep], report: Report
) -> None:
    """Check that a step or a region that is named in text is there."""
    inside = match["inside"].strip()
    if match["kind"] == "result":
        _check_step(path, inside, calls, report)
        return
    region, _, count = inside.partition(",")
    check_region(names, path, region.strip(), report)
    if match["kind"] == "extract" and not (count.strip().isdecimal() and int(count) >= 1):
        message = f"`extract({inside})` says no number of sentences; write `extract(REGION, N)`"
        report.error("offline-source", path, message)


def _check_step(path: Path, step: str, calls: Mapping[str, OfflineStep], report: Report) -> None:
    if step not in calls:
        message = f"`result({step})` is no earlier call; write its number, counted from 1: {listed(calls)}"
        report.error("offline-source", path, message)


# --- templates


def _templates(step: OfflineStep) -> Iterator[tuple[Path, str]]:
    """Yield every text of *step* that may have placeholders, with its path inside the step."""
    if step.say is not None:
        yield ("say",), step.say
    yield from _texts(("args",), step.args)


def _texts(path: Path, value: object) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif is_mapping(value):
        for name, inner in value.items():
            yield from _texts((*path, name), inner)
    elif is_list(value):
        for index, inner in enumerate(value):
            yield from _texts((*path, index), inner)


def _check_template(
    names: Names, path: Path, text: str, words: Iterable[str], calls: Mapping[str, OfflineStep], report: Report
) -> None:
    for match in _PLACEHOLDER.finditer(text):
        if match["name"] is None:  # a doubled brace
            continue
        name = match["name"].strip()
        if name in words:
            continue
        named = _NAMED.fullmatch(name)
        if named is not None:
            _check_named(names, path, named, calls, report)
            continue
        known = [*(f"{{{word}}}" for word in sorted(words)), "{region(NAME)}", "{result(STEP)}", "{extract(NAME, N)}"]
        message = f"`{{{name}}}` is no placeholder here; there are {listed(known)}, and a brace itself is written twice"
        report.error("offline-placeholder", path, message)
