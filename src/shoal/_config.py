"""Where settings stand, and what they say of models: `shoal.toml` in the user's folder and in the working directory."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from shoal.errors import ConfigInvalid
from shoal.providers import ModelProfile, profiles_from

FILE = "shoal.toml"
_TABLES = (
    "models",
    "permissions",
    "safe_commands",
    "read_paths",
    "security",
    "journal",
    "providers",
    "limits",
    "pools",
    "lanes",
    "mcp",
    "memory",
    "telemetry",
)


def config_files(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> tuple[Path, ...]:
    """Return where settings are looked for: the user's file, then that of the working directory, which wins.

    Args:
        environ: The variables; `None` takes the process's.
        workdir: The working directory; `None` takes the process's.
    """
    variables = os.environ if environ is None else environ
    named = variables.get("XDG_CONFIG_HOME", "")
    here = (Path.cwd() if workdir is None else workdir) / FILE
    try:
        # A relative one is to be ignored: XDG Base Directory Specification 0.8.
        folder = Path(named) if named.startswith("/") else Path("~/.config").expanduser()
    except RuntimeError:
        return (here,)
    return (folder / "shoal" / FILE, here)


def model_profiles(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> Mapping[str, ModelProfile]:
    """Return what the settings say of models, laid over what ships, by model.

    Raises:
        ConfigInvalid: A file cannot be read, or says something that is of no use.
    """
    made: dict[str, ModelProfile] = {}
    for path in config_files(environ, workdir):
        rows = _table(path, "models")
        made |= profiles_from(rows, source=str(path), base=made)
    return made


def users_table(
    name: str, environ: Mapping[str, str] | None = None, workdir: Path | None = None
) -> tuple[Path | None, dict[str, Any]]:
    """Return the table *name* of the user's file, and that file; a working directory, maybe a stranger's, has no say.

    Args:
        name: The table.
        environ: The variables; `None` takes the process's.
        workdir: The working directory; `None` takes the process's.

    Returns:
        The file, `None` where the user has none, and the table, empty where that has none.

    Raises:
        ConfigInvalid: A file cannot be read, it is no table, or it stands in the working directory's file.
    """
    *users, here = config_files(environ, workdir)
    if name in settings_in(here):
        where = f"{str(users[0])!r}" if users else "the user's own settings"
        raise ConfigInvalid(f"{str(here)!r} lies in the working directory and has `[{name}]`; move it to {where}")
    for path in users:
        said: object = settings_in(path).get(name, {})
        if not isinstance(said, dict):
            raise ConfigInvalid(f"`{name}` in {str(path)!r} is no table; write `[{name}]`")
        return path, dict(cast("dict[str, Any]", said))
    return None, {}


def settings_in(path: Path) -> Mapping[str, Any]:
    """Return the tables of the file at *path*, by name; none where there is no such file.

    Raises:
        ConfigInvalid: It cannot be read, or has a table that means nothing.
    """
    try:
        read = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise ConfigInvalid(f"the settings in {str(path)!r} cannot be read ({exc}); mend the file") from exc
    for table in read:
        if table not in _TABLES:
            near = difflib.get_close_matches(table, _TABLES, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there is {', '.join(f'`[{one}]`' for one in _TABLES)}"
            raise ConfigInvalid(f"{str(path)!r} has the unknown table {table!r}; {hint}")
    return read


def _table(path: Path, name: str) -> Mapping[str, Mapping[str, Any]]:
    rows: object = settings_in(path).get(name, {})
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in cast("dict[str, Any]", rows).values()):
        raise ConfigInvalid(f'`{name}` in {str(path)!r} holds no tables; write `[{name}."NAME"]` and its keys below')
    return cast("Mapping[str, Mapping[str, Any]]", rows)
