"""Paths that a blueprint names: its own scripts, files in its own folder, and what it asks to read elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shoal.blueprints._model import Blueprint, FilesSeed, GlobSeed, Region, ScriptSeed
from shoal.blueprints._names import Names
from shoal.blueprints._report import Report, shown
from shoal.blueprints._toml import Path

PREFIX = "blueprint:"
"""Marks a path that lies in the blueprint's own folder."""

_BROAD = frozenset(
    {"", "/", "~", "~/", "..", "glob:/*", "glob:/**", "glob:~/*", "glob:~/**", "regex:^/.*", "regex:/.*"}
)


def check_paths(names: Names, report: Report) -> None:
    """Add what is wrong with the paths of a blueprint."""
    blueprint = names.blueprint
    for path, region in names.regions():
        for key, text in _own_files(region):
            _check_own(blueprint, (*path, *key), text, report)
        if isinstance(region.seed, ScriptSeed):
            _check_language((*path, "seed", "script"), region.seed.path, report)
        if region.kind == "custom" and region.script is not None:
            _check_script(blueprint, (*path, "script"), region.script, report, fatal=True)
    for path, text in _scripts(blueprint):
        _check_script(blueprint, path, text, report)
    for stage in blueprint.stages:
        worker = stage.fan_out.worker_agent if stage.fan_out else None
        if worker is not None and worker.startswith(PREFIX):
            _check_own(blueprint, ("stages", stage.name, "worker_agent"), worker, report)
    for index, entry in enumerate(blueprint.read_paths):
        _check_read_path(("read_paths", "allow", index), entry, report)


def is_inside(relative: str) -> bool:
    """Say whether *relative* stays inside the folder that it is relative to, by its spelling."""
    depth = 0
    for part in relative.split("/"):
        depth += {"": 0, ".": 0, "..": -1}.get(part, 1)
        if depth < 0:
            return False
    return bool(relative) and not relative.startswith(("/", "~"))


def _own_files(region: Region) -> Iterator[tuple[Path, str]]:
    """Yield the paths with the prefix that the seed of *region* names."""
    match region.seed:
        case FilesSeed(paths):
            named: list[tuple[Path, str]] = [(("seed", "files", index), text) for index, text in enumerate(paths)]
        case GlobSeed(pattern):
            named = [(("seed", "glob"), pattern)]
        case ScriptSeed(text):
            named = [(("seed", "script"), text)]
        case _:
            named = []
    yield from ((path, text) for path, text in named if text.startswith(PREFIX))


def _scripts(blueprint: Blueprint) -> Iterator[tuple[Path, str]]:
    """Yield the hooks and validators."""
    if blueprint.output is not None and blueprint.output.validator is not None:
        yield ("agent", "output", "validator"), blueprint.output.validator
    for stage in blueprint.stages:
        if stage.output is not None and stage.output.validator is not None:
            yield ("stages", stage.name, "output", "validator"), stage.output.validator
        for hook, text in stage.hooks.items():
            yield ("stages", stage.name, "hooks", hook), text


def _check_own(blueprint: Blueprint, path: Path, text: str, report: Report) -> None:
    if blueprint.folder is None:
        message = f"{shown(text)} lies in the blueprint's own folder, and there is none; give `folder`"
        report.error("path-without-folder", path, message)
    if not is_inside(text.removeprefix(PREFIX)):
        _refuse_outside(path, text, report)


def _check_script(blueprint: Blueprint, path: Path, text: str, report: Report, *, fatal: bool = False) -> None:
    """Check one script; a *fatal* one cannot be left out."""
    if text.startswith(PREFIX):
        message = (
            f"{shown(text)} has the prefix `{PREFIX}`; a script lies in the blueprint's folder anyway: leave it out"
        )
        report.error("path-outside-folder", path, message)
    elif not is_inside(text):
        _refuse_outside(path, text, report)
    elif not text.endswith(".py"):
        _check_language(path, text, report, fatal=fatal)
    elif blueprint.folder is not None and not (blueprint.folder / text).is_file():
        report.error("script-missing", path, f"there is no file {shown(text)} in {str(blueprint.folder)!r}; write it")


def _check_language(path: Path, text: str, report: Report, *, fatal: bool = False) -> None:
    if text.endswith(".py"):
        return
    message = f"{shown(text)} is no Python; scripts are Python here: port it and name a file that ends in `.py`"
    add = report.error if fatal else report.warning
    add("script-language", path, message)


def _refuse_outside(path: Path, text: str, report: Report) -> None:
    message = f"{shown(text)} leaves the blueprint's folder; put the file inside and name it from there"
    report.error("path-outside-folder", path, message)


def _check_read_path(path: Path, entry: str, report: Report) -> None:
    """Check one entry: a path whose whole subtree is meant, or a pattern after `glob:` or `regex:`."""
    wrong = read_path_problem(entry)
    if wrong:
        report.error("read-path-invalid", path, f"{shown(entry)} {wrong}")
    elif entry.rstrip("/") in _BROAD or entry in _BROAD:
        message = f"{shown(entry)} asks to read nearly everything; name the folders that are needed"
        report.warning("broad-read-path", path, message)


def read_path_problem(entry: str) -> str:
    """Return what is wrong with *entry* as a path to read, to be said behind it; empty if nothing is."""
    form, _, pattern = entry.partition(":") if entry.startswith(("glob:", "regex:")) else ("", "", entry)
    return _wrong_regex(pattern) if form == "regex" else _wrong_place(pattern)


def _wrong_regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"is no regular expression ({error}); mend it"
    return "" if pattern.startswith(("/", "^/")) else "matches whole paths, which begin with `/`; begin it so"


def _wrong_place(pattern: str) -> str:
    if not pattern.strip():
        return "names nothing; write a path"
    if pattern.startswith("~") and not pattern.startswith("~/") and pattern != "~":
        return "names another user's home; write `~/` or an absolute path"
    parts = pattern.split("/")
    leading = 0
    while leading < len(parts) and parts[leading] in {".", ".."}:
        leading += 1
    if any(part in {".", ".."} for part in parts[leading:]):
        return "has `.` or `..` behind a name; they may only lead a relative path"
    return ""
