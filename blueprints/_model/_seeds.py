"""Seeds: what a region holds before the first request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from shoal.blueprints._model._fields import empty

Refresh: TypeAlias = Literal["once", "each_stage"]


@final
@dataclass(frozen=True, slots=True)
class CallerSeed:
    """The caller's value of *name*; `task` is what `--task` gives."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class LiteralSeed:
    """This text."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class FilesSeed:
    """These files, in order. A path that starts with `blueprint:` lies in the blueprint's own folder."""

    paths: tuple[str, ...]
    refresh: Refresh = "once"


@final
@dataclass(frozen=True, slots=True)
class GlobSeed:
    """Every file that matches, in sorted order."""

    pattern: str
    refresh: Refresh = "once"


@final
@dataclass(frozen=True, slots=True)
class CommandSeed:
    """The standard output of a shell command."""

    command: str
    refresh: Refresh = "once"


@final
@dataclass(frozen=True, slots=True)
class ScriptSeed:
    """What a sandboxed script returns."""

    path: str
    refresh: Refresh = "once"


@final
@dataclass(frozen=True, slots=True)
class ToolSeedCall:
    """One tool call of a seed: *name* as the agent would spell it."""

    name: str
    args: Mapping[str, Any] = field(default_factory=empty)


@final
@dataclass(frozen=True, slots=True)
class ToolsSeed:
    """The results of these calls, in order, each an entry of its own."""

    calls: tuple[ToolSeedCall, ...]
    refresh: Refresh = "once"


Seed: TypeAlias = CallerSeed | LiteralSeed | FilesSeed | GlobSeed | CommandSeed | ScriptSeed | ToolsSeed
