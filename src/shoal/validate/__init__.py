"""Checks of a blueprint that need to know models, tools or scripts; the structural ones live in `shoal.blueprints`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.blueprints import Blueprint, Finding
from shoal.providers import Provider
from shoal.runtime.scripts import Sandbox
from shoal.runtime.tools import Permissions
from shoal.validate._caching import check_caching
from shoal.validate._grants import check_commands, check_people, check_read_paths, check_tool_names
from shoal.validate._models import (
    Named,
    check_budgets,
    check_default,
    check_models,
    check_reach,
    largest,
    named_models,
    resolved_budgets,
)
from shoal.validate._scripts import check_schemas, check_scripts, check_tools

__all__ = ["Named", "examine", "largest", "named_models", "resolved_budgets"]


async def examine(
    blueprint: Blueprint,
    *,
    providers: Sequence[Provider] = (),
    permissions: Permissions | None = None,
    tools: Sequence[str] = (),
    workdir: Path | None = None,
    default_model: str | None = None,
) -> tuple[Finding, ...]:
    """Return what is worth knowing about a loaded blueprint before it runs: scripts, schemas, tools, models, costs.

    Each finding names the key that it is about; `shoal.blueprints.locate` gives it line and column.

    Args:
        blueprint: The blueprint, without structural errors.
        providers: Who serves models here; empty where nobody knows.
        permissions: What its user allows.
        tools: Names of the tools that are given in code.
        workdir: What relative paths are relative to; `None` is the current folder.
        default_model: What its user prefers, as `provider` or `provider:model`; `None` for nothing.
    """
    found: list[Finding] = []
    sandbox = Sandbox()
    try:
        found += [finding async for finding in check_scripts(blueprint, sandbox)]
        shipped, findings = await check_tools(blueprint, sandbox)
        found += findings
    finally:
        sandbox.close()
    models = named_models(blueprint, providers)
    windows = [named.profile.window_tokens for named in models if named.profile is not None]
    found += check_schemas(blueprint)
    found += check_tool_names(blueprint, shipped | frozenset(tools))
    found += check_commands(blueprint)
    found += check_read_paths(blueprint, permissions or Permissions(), (workdir or Path()).resolve())
    found += check_people(blueprint)
    found += check_models(models)
    found += check_reach(blueprint, providers)
    found += check_default(blueprint, providers, default_model)
    found += check_budgets(blueprint, models)
    found += check_caching(blueprint, min(windows, default=largest().window_tokens))
    return tuple(found)
