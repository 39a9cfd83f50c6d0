"""Who may call what: the first of launch flags, stage, blueprint, the user's configuration, the tool's default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import final

from shoal.blueprints import Blueprint, Permission, Stage, tool_name
from shoal.errors import ConfigInvalid
from shoal.runtime.tools._grants import Grants
from shoal.runtime.tools._line_gate import LineRules
from shoal.runtime.tools._shell import SHELL
from shoal.runtime.tools._tool import Tool
from shoal.runtime.tools._writing import WRITE_FILE_TOOL

_STRICTNESS: Mapping[Permission, int] = {"allow": 0, "ask": 1, "deny": 2}


@final
@dataclass(frozen=True, slots=True)
class Permissions:
    """What the user allows.

    Args:
        launch: Permissions given at the spawn, by tool; they lift `ask`, never a `deny`.
        user: Permissions of the user's configuration, by tool.
        grants: What the user grants beyond permissions.
        launch_rest: Permission given at the spawn to every tool that *launch* does not name; `None` for none.
        folder: Permissions of the working directory's settings, by tool. They only tighten, as a blueprint's do.

    Raises:
        ConfigInvalid: One of them is no permission.
    """

    launch: Mapping[str, Permission] = field(default_factory=dict[str, Permission])
    user: Mapping[str, Permission] = field(default_factory=dict[str, Permission])
    grants: Grants = field(default_factory=Grants)
    launch_rest: Permission | None = None
    folder: Mapping[str, Permission] = field(default_factory=dict[str, Permission])

    def __post_init__(self) -> None:
        rest = {} if self.launch_rest is None else {"launch_rest": self.launch_rest}
        for name, value in chain.from_iterable(said.items() for said in (self.launch, rest, self.user, self.folder)):
            if value not in _STRICTNESS:
                words = ", ".join(f"`{word}`" for word in _STRICTNESS)
                raise ConfigInvalid(f"the permission of `{name}` is {value!r}; give one of {words}")

    def of(self, tool: Tool, stage: Stage, blueprint: Blueprint) -> Permission:
        """Return the permission of *tool* in *stage*. Blueprints and folders may only tighten; `deny` is final."""
        own = _named(self.user, tool.name) or tool.permission
        ceiling = max(own, _named(self.folder, tool.name) or own, key=_STRICTNESS.__getitem__)
        asked = _named(stage.tool_permissions, tool.name) or _named(blueprint.tool_permissions, tool.name) or ceiling
        settled = max(ceiling, asked, key=_STRICTNESS.__getitem__)
        launched = _named(self.launch, tool.name) or self.launch_rest
        if launched is not None and settled != "deny":
            return launched
        return "allow" if settled == "ask" and self._listed(tool, blueprint) else settled

    def _listed(self, tool: Tool, blueprint: Blueprint) -> bool:
        """Say whether *blueprint* lists *tool* as safe, and may; of the shell each line counts for itself."""
        listed = self.grants.allow_blueprint_commands and tool.name != SHELL
        return listed and tool.name in map(tool_name, blueprint.safe_tools)

    def lines(self, stage: Stage, blueprint: Blueprint, workdir: Path) -> LineRules:
        """Return what decides about shell lines in *stage*.

        Args:
            stage: The stage.
            blueprint: Its blueprint.
            workdir: The run's working directory, a real path.
        """
        own = blueprint.safe_shell if self.grants.allow_blueprint_commands else ()
        safe = frozenset((*self.grants.safe_commands, *own))
        return LineRules(safe, self.grants.allow_looking, self.of(WRITE_FILE_TOOL, stage, blueprint), workdir)


def _named(rules: Mapping[str, Permission], name: str) -> Permission | None:
    return next((rule for other, rule in rules.items() if tool_name(other) == name), None)
