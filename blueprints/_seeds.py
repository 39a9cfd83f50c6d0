"""The forms of a region's seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from shoal.blueprints._codec import BAD, Bad, Choice, Json, ListOf, Text, is_table, refuse
from shoal.blueprints._model import (
    CallerSeed,
    CommandSeed,
    FilesSeed,
    GlobSeed,
    LiteralSeed,
    ScriptSeed,
    ToolSeedCall,
    ToolsSeed,
)
from shoal.blueprints._record import Key, Record
from shoal.blueprints._report import Report, listed, shown
from shoal.blueprints._toml import Path

NOT_UNDERSTOOD = "region-seed-not-understood"

_CALL = Record(ToolSeedCall, Key("name", Text(), required=True), Key("args", Json()))


@final
class ToolCall:
    """A tool's name alone, or a table with `name` and `args`."""

    __slots__ = ()

    def read(self, value: object, path: Path, report: Report) -> object:
        """Return the call."""
        if isinstance(value, str) and value.strip():
            return ToolSeedCall(value)
        if is_table(value):
            return _CALL.read(value, path, report)
        return refuse(value, "a tool's name, or a table with `name` and `args`", path, report)

    def write(self, value: object) -> object:
        """Return the call, short where it has no arguments."""
        return value.name if isinstance(value, ToolSeedCall) and not value.args else _CALL.write(value)


_REFRESH = Key("refresh", Choice("once", "each_stage"))
_FORMS: Mapping[str, Record] = {
    # In this order the other runtime chooses where a table carries several.
    "glob": Record(GlobSeed, Key("glob", Text(), "pattern"), _REFRESH),
    "files": Record(FilesSeed, Key("files", ListOf(Text(), least=1), "paths"), _REFRESH),
    "literal": Record(LiteralSeed, Key("literal", Text(full=False), "text")),
    "rhai": Record(ScriptSeed, Key("rhai", Text(), "path"), _REFRESH),
    "script": Record(ScriptSeed, Key("script", Text(), "path"), _REFRESH),
    "command": Record(CommandSeed, Key("command", Text()), _REFRESH),
    "tool": Record(ToolsSeed, Key("tool", ListOf(ToolCall()), "calls"), _REFRESH),
    "tools": Record(ToolsSeed, Key("tools", ListOf(ToolCall(), least=1), "calls"), _REFRESH),
    "caller": Record(CallerSeed, Key("caller", Text(), "name")),
}
_WRITTEN: Mapping[type, str] = {
    GlobSeed: "glob",
    FilesSeed: "files",
    LiteralSeed: "literal",
    ScriptSeed: "script",
    CommandSeed: "command",
    ToolsSeed: "tools",
    CallerSeed: "caller",
}
_WANTS = (
    '`"task_input"`, `"input"`, a caller key in quotes, or a table with one of '
    f"{listed(form for form in _FORMS if form != 'rhai')}"
)


@final
class Seeds:
    """What a region starts with: text that names a caller's value, or a table with one of the forms."""

    __slots__ = ()

    def read(self, value: object, path: Path, report: Report) -> object:
        """Return the seed. A bad one leaves the region empty in the other runtime: there each problem is a warning."""
        since = len(report.problems)
        seed = self._read(value, path, report)
        report.soften(since)
        return seed

    def write(self, value: object) -> object:
        """Return the seed as a file holds it."""
        if value == CallerSeed("task"):
            return "task_input"
        form = _WRITTEN.get(type(value))
        return value if form is None else _FORMS[form].write(value)

    def _read(self, value: object, path: Path, report: Report) -> object:
        if isinstance(value, str) and value.strip():
            names = {"task_input": "task", "input": str(path[-2])}
            return CallerSeed(names.get(value, value))
        if not is_table(value):
            return refuse(value, _WANTS, path, report, id_=NOT_UNDERSTOOD)
        forms = [form for form in _FORMS if form in value]
        if not forms:
            return _not_understood(value, path, report)
        if len(forms) > 1:
            report.error(NOT_UNDERSTOOD, path, f"`seed` has {listed(forms)}; keep one of them")
        if forms[0] == "tool":
            value = {**value, "tool": [value["tool"]]}
        if forms[0] == "rhai" and not str(value["rhai"]).endswith(".rhai"):
            message = "`rhai` names a script in a language that is not run here; port it to Python and write `script`"
            report.warning("script-language", (*path, "rhai"), message)
        chosen = {name: inner for name, inner in value.items() if name not in forms[1:]}
        return _FORMS[forms[0]].read(chosen, path, report)


def _not_understood(table: Mapping[str, object], path: Path, report: Report) -> Bad:
    near = next((said for name in table if (said := report.near(name, _FORMS))), "")
    keys = f" with {listed(table)}" if table else ""
    report.error(NOT_UNDERSTOOD, path, f"`seed` is {shown(table)}{keys}{near}; write {_WANTS}")
    return BAD
