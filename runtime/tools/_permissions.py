"""Who may call what: the first of launch flags, stage, blueprint, the user's configuration, the tool's default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from shoal.blueprints import Blueprint, Permission, Stage, tool_name
from shoal.runtime.tools._tool import Tool

_STRICTNESS: Mapping[Permission, int] = {"allow": 0, "ask": 1, "deny": 2}


@final
@dataclass(frozen=True, slots=True)
class Permissions:
    """What the user allows.

    Args:
        launch: Permissions given at the spawn, by tool; they lift `ask`, never a `deny`.
        user: Permissions of the user's configuration, by tool.
    """

    launch: Mapping[str, Permission] = field(default_factory=dict[str, Permission])
    user: Mapping[str, Permission] = field(default_factory=dict[str, Permission])

    def of(self, tool: Tool, stage: Stage, blueprint: Blueprint) -> Permission:
        """Return the permission of *tool* in *stage*. A blueprint may only tighten; `deny` is final."""
        ceiling = _named(self.user, tool.name) or tool.permission
        asked = _named(stage.tool_permissions, tool.name) or _named(blueprint.tool_permissions, tool.name) or ceiling
        settled = max(ceiling, asked, key=_STRICTNESS.__getitem__)
        launched = _named(self.launch, tool.name)
        if launched is None or settled == "deny":
            return settled
        return launched


def _named(rules: Mapping[str, Permission], name: str) -> Permission | None:
    return next((rule for other, rule in rules.items() if tool_name(other) == name), None)
