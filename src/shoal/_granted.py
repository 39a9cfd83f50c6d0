"""What the settings grant: permissions, safe commands, paths to read. Those of the working directory grant nothing.

A folder may come from a stranger, as a blueprint may: its `shoal.toml` may tighten what its user allows, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import msgspec

from shoal._config import config_files, settings_in
from shoal.blueprints import Permission, tool_name
from shoal.errors import ConfigInvalid
from shoal.runtime import Grants, Permissions


@final
class _SafeCommands(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shell: tuple[str, ...] = ()
    allow_looking: bool | None = None
    allow_blueprint: bool | None = None


@final
class _ReadPaths(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allow: tuple[str, ...] = ()


@final
class _Security(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allow_seed_commands: bool | None = None
    allow_env_vars: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@final
class _Said(msgspec.Struct, frozen=True):
    """What one file says; what else stands in it is for others to read."""

    permissions: dict[str, Permission] = {}
    safe_commands: _SafeCommands = _SafeCommands()
    read_paths: _ReadPaths = _ReadPaths()
    security: _Security = _Security()


def permissions_from(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> Permissions:
    """Return what the settings allow: the user's grant, those of the working directory only tighten.

    Args:
        environ: The variables; `None` takes the process's.
        workdir: The working directory; `None` takes the process's.

    Raises:
        ConfigInvalid: A file cannot be read, says what is of no use, or grants what it may not.
    """
    *users, here = config_files(environ, workdir)
    own = _said(users[0]) if users else _Said()
    local = _said(here)
    wider = tuple(_wider(local))
    if wider:
        where = f"{str(users[0])!r}" if users else "the user's own settings"
        listed = ", ".join(f"`{key}`" for key in wider)
        raise ConfigInvalid(
            f"{str(here)!r} lies in the working directory, which grants nothing, and says {listed}; "
            f"move it to {where}, or take it out"
        )
    seeds = (own.security.allow_seed_commands, local.security.allow_seed_commands)
    looking = (own.safe_commands.allow_looking, local.safe_commands.allow_looking)
    try:
        grants = Grants(
            safe_commands=own.safe_commands.shell,
            allow_looking=False not in looking,
            allow_blueprint_commands=own.safe_commands.allow_blueprint is True,
            allow_seed_commands=False not in seeds,
            read_paths=own.read_paths.allow,
            allow_env_vars=own.security.allow_env_vars,
        )
    except ConfigInvalid as exc:
        raise ConfigInvalid(f"the settings in {str(users[0])!r} are of no use: {exc}") from exc
    return Permissions(user=_named(own), grants=grants, folder=_named(local))


def secret_names(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> tuple[str, ...]:
    """Return the variables that the settings say hold secrets; a working directory may name some, too.

    Args:
        environ: The variables; `None` takes the process's.
        workdir: The working directory; `None` takes the process's.

    Raises:
        ConfigInvalid: A file cannot be read, or says what is of no use.
    """
    named = [name for path in config_files(environ, workdir) for name in _said(path).security.secrets]
    return tuple(dict.fromkeys(named))


def _said(path: Path) -> _Said:
    try:
        return msgspec.convert(settings_in(path), _Said)
    except msgspec.ValidationError as exc:
        raise ConfigInvalid(f"the settings in {str(path)!r} are of no use: {exc}; mend the file") from exc


def _named(said: _Said) -> dict[str, Permission]:
    return {tool_name(name): permission for name, permission in said.permissions.items()}


def _wider(said: _Said) -> Iterator[str]:
    """Yield what a file of the working directory says and may not."""
    yield from (f"permissions.{name}" for name, permission in said.permissions.items() if permission == "allow")
    granting: Mapping[str, Any] = {
        "safe_commands.shell": said.safe_commands.shell,
        "safe_commands.allow_looking": said.safe_commands.allow_looking,
        "safe_commands.allow_blueprint": said.safe_commands.allow_blueprint,
        "read_paths.allow": said.read_paths.allow,
        "security.allow_seed_commands": said.security.allow_seed_commands,
        "security.allow_env_vars": said.security.allow_env_vars,
    }
    yield from (key for key, granted in granting.items() if granted)
