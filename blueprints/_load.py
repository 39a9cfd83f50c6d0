"""Loads, checks and writes blueprints."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path as Folder

from shoal.blueprints._canonical import canonical, from_canonical
from shoal.blueprints._codec import is_mapping, is_sequence
from shoal.blueprints._emit import emit
from shoal.blueprints._files import MAX_BYTES, PEER_SUFFIX, read_file
from shoal.blueprints._format import read, written
from shoal.blueprints._graph import check_graph
from shoal.blueprints._lints import lint
from shoal.blueprints._model import Blueprint, Finding
from shoal.blueprints._names import Names, check_shape
from shoal.blueprints._paths import check_paths
from shoal.blueprints._regions import check_regions
from shoal.blueprints._report import Report, findings, path_of, shown
from shoal.blueprints._stages import check_stages, check_top
from shoal.blueprints._toml import Document, Path, Syntax, parse
from shoal.errors import BlueprintInvalid

_DECIDE_THE_WAY = frozenset({"transitions", "mode", "merge_stage", "worker_stage", "allow_complete"})


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Blueprint:
    """Return the blueprint at *path*, a folder or a file.

    Args:
        path: A folder with `blueprint.toml` or `agent.leviath`, or such a file.
        max_bytes: A longer file is refused.

    Raises:
        BlueprintInvalid: With every finding, in the order of the file.
    """
    blueprint, found = check(path, max_bytes=max_bytes)
    return _usable(blueprint, found, str(path))


def check(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> tuple[Blueprint | None, tuple[Finding, ...]]:
    """Return the blueprint at *path*, or `None` where it has errors, and every finding in the order of the file."""
    source = read_file(path, max_bytes)
    if isinstance(source, Finding):
        return None, (source,)
    return _examine(source.text, source.file, source.folder)


def loads(
    text: str, *, file: str | os.PathLike[str] | None = None, folder: str | os.PathLike[str] | None = None
) -> Blueprint:
    """Return the blueprint that *text* is.

    Args:
        text: What a file would hold.
        file: Named in findings. One that ends in `.leviath` is read by the rules of that format.
        folder: The blueprint's own folder; `None` where there is none, and then nothing may lie in it.

    Raises:
        BlueprintInvalid: With every finding, in the order of the text.
    """
    name = None if file is None else os.fspath(file)
    blueprint, found = _examine(text, name, None if folder is None else Folder(folder))
    return _usable(blueprint, found, name or "the text")


def validate(blueprint: Blueprint) -> tuple[Finding, ...]:
    """Return what is wrong with a blueprint that was built in Python, and what is worth knowing about it.

    Beside the checks of a file this holds every value to what a file can say, so that each blueprint without errors
    can be written and read back.
    """
    report = Report()
    again = _read_back(blueprint, report)
    # Each step needs what the one before it makes sure of.
    if not report.failed:
        check_shape(Names(blueprint), report)
    if not report.failed:
        _check_same(blueprint, again, report)
    if not report.failed:
        _check_structure(Names(blueprint), report)
    if not report.failed:
        lint(Names(blueprint), report, lambda _path: True)
    return findings(report.problems)


_UNRESOLVED = frozenset(
    {"unknown-region", "unknown-stage", "duplicate-region", "duplicate-stage", "custom-without-script"}
)
"""What no run can go on with: a name that stands for nothing or for two things, a region that nothing keeps."""


def refuse_unusable(blueprint: Blueprint) -> None:
    """Refuse a blueprint that was built in Python and that no run can be made of.

    A name in it stands for nothing, or for two things; or a value is of another type, so that what a journal keeps of
    it could not be read again. It costs a small part of what `validate` does: whoever builds a blueprint in Python may
    want to run one that no file could hold.

    Raises:
        BlueprintInvalid: See above; names are among the findings, all of them.
    """
    try:
        from_canonical(canonical(blueprint))
    except (BlueprintInvalid, TypeError, ValueError, AttributeError) as error:
        raise BlueprintInvalid(
            f"the blueprint {blueprint.name!r} cannot be used: {error.__cause__ or error}"
        ) from error
    report, names = Report(), Names(blueprint)
    for path, region in names.regions():
        if region.budget is not None and not 0 < region.budget <= 1:
            place = ".".join(map(str, path)).removeprefix("context.")
            raise BlueprintInvalid(
                f"the blueprint {blueprint.name!r} cannot be used: `{place}.budget` is {region.budget!r}; give a share "
                "above 0 and at most 1, such as 0.2, or `max_tokens`"
            )
    if not blueprint.stages:
        raise BlueprintInvalid(f"the blueprint {blueprint.name!r} has no stage; give it one, such as `Stage('main')`")
    check_shape(names, report)
    _check_structure(names, report)
    wrong = [each for each in report.problems if each.id in _UNRESOLVED or each.path[2:] == ("mode",)]
    # What a mapping of `transforms` names is looked for when there is a child that it is for.
    found = [each for each in wrong if each.path[0] != "transforms"]
    if found:
        raise _invalid(f"the blueprint {blueprint.name!r} cannot run", findings(found))


def dumps(blueprint: Blueprint) -> str:
    """Return *blueprint* as the text of a `blueprint.toml`. Its folder is not part of it.

    Raises:
        BlueprintInvalid: A value is none that a file can hold.
    """
    report = Report()
    again = _read_back(blueprint, report)
    if not report.failed:
        _check_same(blueprint, again, report)
    if report.failed:
        raise _invalid("the blueprint cannot be written", findings(report.problems))
    return emit(written(blueprint))


def locate(path: str | os.PathLike[str], found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return *found* in the order of the file at *path*, each with file, line and column of its `key`.

    For checks that are made on a loaded blueprint. A finding that has a place already keeps it, and so does each one
    where the file can no longer be read.
    """
    source = read_file(path, MAX_BYTES)
    document = None if isinstance(source, Finding) else parse(source.text)
    if isinstance(source, Finding) or not isinstance(document, Document):
        return tuple(found)
    placed = [finding if finding.line else _placed(finding, source.file, document) for finding in found]
    return tuple(sorted(placed, key=lambda finding: (finding.line or 0, finding.column or 0)))


def _placed(finding: Finding, file: str, document: Document) -> Finding:
    line, column = document.place(path_of(finding.key or ""))
    return dataclasses.replace(finding, file=file, line=line, column=column)


# --- checks


def _examine(text: str, file: str | None, folder: Folder | None) -> tuple[Blueprint | None, tuple[Finding, ...]]:
    document = parse(text)
    if isinstance(document, Syntax):
        return None, (Finding(document.id, "error", document.message, file, document.line, document.column),)
    report = Report(peer=file is not None and file.endswith(PEER_SUFFIX))
    blueprint = read(document.data, report, folder)
    report.spoil()
    names = Names(blueprint)
    _check_structure(names, report)
    if not report.failed:
        lint(names, report, document.spots.__contains__)
    found = findings(report.problems, file=file, document=document)
    return None if report.failed else blueprint, found


def _check_structure(names: Names, report: Report) -> None:
    check_regions(names, report)
    check_paths(names, report)
    check_stages(names, report)
    check_top(names.blueprint, report)
    if _ways_are_known(names, report):
        check_graph(names, report)


def _ways_are_known(names: Names, report: Report) -> bool:
    """Say whether the ways through the stages are those that were meant: no target is missing or unreadable."""
    targets = [names.blueprint.entry, *(name for stage in names.blueprint.stages for name in names.follows(stage))]
    workers = [stage.fan_out.worker_stage for stage in names.blueprint.stages if stage.fan_out]
    named = {name for name in (*targets, *workers) if name is not None}
    return named <= names.stages.keys() and not report.spoiled_where(_is_about_the_way)


def _is_about_the_way(path: Path) -> bool:
    return path[:1] == ("stages",) and (len(path) < 3 or path[2] in _DECIDE_THE_WAY)


def _read_back(blueprint: Blueprint, report: Report) -> Blueprint:
    """Return what a file of *blueprint* would give back. Values that no file can hold are problems."""
    return read(written(blueprint), report, blueprint.folder)


def _check_same(blueprint: Blueprint, again: Blueprint, report: Report) -> None:
    if differs := _difference(blueprint, again, ()):
        path, mine, read_back = differs
        message = f"`{path[-1]}` is {shown(mine)}, which a file would give back as {shown(read_back)}; write that"
        report.error("not-in-a-file", path, message)


def _difference(mine: object, other: object, path: Path) -> tuple[Path, object, object] | None:
    """Return the path of the first part in which two values differ, with both parts; `None` where they are equal."""
    if mine == other:
        return None
    pairs = _parts(mine, other)
    for step, one, another in pairs:
        if found := _difference(one, another, (*path, step)):
            return found
    return path, mine, other


def _parts(mine: object, other: object) -> list[tuple[str | int, object, object]]:
    """Return the parts of two values of one shape, side by side; none for single values and for other shapes."""
    if is_mapping(mine) and is_mapping(other) and mine.keys() == other.keys():
        return [(name, inner, other[name]) for name, inner in mine.items()]
    same = type(mine) is type(other)
    if same and dataclasses.is_dataclass(mine):
        names = [field.name for field in dataclasses.fields(mine)]
        return [(name, getattr(mine, name), getattr(other, name)) for name in names]
    if same and is_sequence(mine) and is_sequence(other) and len(mine) == len(other):
        pairs = enumerate(zip(mine, other, strict=True))
        return [(getattr(one, "name", getattr(one, "target", index)), one, two) for index, (one, two) in pairs]
    return []


# --- errors


def _usable(blueprint: Blueprint | None, found: tuple[Finding, ...], what: str) -> Blueprint:
    if blueprint is None:
        raise _invalid(f"{what} is no usable blueprint", found)
    return blueprint


def _invalid(what: str, found: tuple[Finding, ...]) -> BlueprintInvalid:
    lines = "\n".join(f"  {finding}" for finding in found)
    return BlueprintInvalid(f"{what}; mend what follows:\n{lines}", findings=found)
