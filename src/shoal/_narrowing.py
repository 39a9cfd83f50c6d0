"""Limits, pools and lanes of the settings: the user's, which those of the working directory narrow and never widen."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, final

import msgspec

from shoal._config import config_files, settings_in
from shoal.blueprints import Lanes, LaneSettings, ModelChoice
from shoal.errors import ConfigInvalid
from shoal.runtime import Limits
from shoal.runtime.scripts import ScriptLimits

_NEVER = "never"


# --- limits


def limits_from(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> Limits:
    """Return the limits that the settings give.

    Args:
        environ: The variables; `None` takes the process's.
        workdir: The working directory; `None` takes the process's.

    Raises:
        ConfigInvalid: A file cannot be read, says what is of no use, or would widen what it may only narrow.
    """
    *users, here = config_files(environ, workdir)
    limits = Limits()
    for path in users:
        limits = _laid_over(limits, path)
    narrowed = _laid_over(limits, here)
    wider = [key for key, before, after in _differing(limits, narrowed) if before is not None and _above(after, before)]
    if wider:
        _refuse(here, users, [f"limits.{key}" for key in wider])
    return narrowed


def _laid_over(limits: Limits, path: Path) -> Limits:
    said = _table(path, "limits")
    scripts = said.pop("scripts", {})
    if not isinstance(scripts, dict):
        raise ConfigInvalid(f"`limits.scripts` in {str(path)!r} is no table; write `[limits.scripts]`")
    changes = {key: _number(path, f"limits.{key}", value, Limits, key) for key, value in said.items()}
    inner = cast("dict[str, Any]", scripts)
    below = {key: _number(path, f"limits.scripts.{key}", value, ScriptLimits, key) for key, value in inner.items()}
    if below:
        changes["scripts"] = dataclasses.replace(limits.scripts, **below)
    return dataclasses.replace(limits, **changes)


def _number(path: Path, where: str, value: object, kind: type[Limits | ScriptLimits], key: str) -> Any:
    """Return *value* as the field *key* of *kind* holds it.

    Raises:
        ConfigInvalid: There is no such field, or it cannot hold that.
    """
    known = {field.name: field.type for field in dataclasses.fields(kind) if field.name != "scripts"}
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"there is {', '.join(f'`{name}`' for name in known)}"
        raise ConfigInvalid(f"{str(path)!r} has the unknown key `{where}`; {hint}")
    if value == _NEVER and key in Limits.MAY_BE_NONE:
        return None
    whole = str(known[key]) == "int"
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    least = 0 if key in Limits.MAY_BE_ZERO else None
    if not number or not (value >= 0 if least == 0 else value > 0):  # type: ignore[operator]  # a number
        what = f"a {'whole ' if whole else ''}number{', 0 or more' if least == 0 else ' above 0'}"
        never = f', or "{_NEVER}"' if key in Limits.MAY_BE_NONE else ""
        raise ConfigInvalid(f"`{where}` in {str(path)!r} is {value!r}; write {what}{never}")
    return value


def _differing(before: Limits, after: Limits) -> Iterator[tuple[str, Any, Any]]:
    for kind, prefix, one, other in (
        (Limits, "", before, after),
        (ScriptLimits, "scripts.", before.scripts, after.scripts),
    ):
        for field in dataclasses.fields(kind):
            if field.name != "scripts":
                yield f"{prefix}{field.name}", getattr(one, field.name), getattr(other, field.name)


def _above(after: Any, before: Any) -> bool:
    return after is None or after > before


# --- pools


def pools_from(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> Mapping[str, int]:
    """Return the pools that the settings give: most requests in flight by provider, or by `provider:model`.

    Raises:
        ConfigInvalid: A file cannot be read, says what is of no use, or would widen what it may only narrow.
    """
    *users, here = config_files(environ, workdir)
    own: dict[str, int] = {}
    for path in users:
        own |= _pools(path)
    local = _pools(here)
    usual = limits_from(environ, workdir)
    wider = [
        name
        for name, most in local.items()
        if most > own.get(name, usual.tool_calls if name == "tools" else usual.inferences)
    ]
    if wider:
        _refuse(here, users, [f"pools.{name}" for name in wider])
    return own | local


def _pools(path: Path) -> dict[str, int]:
    said = _table(path, "pools")
    for name, most in said.items():
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise ConfigInvalid(f"`pools.{name}` in {str(path)!r} is {most!r}; write a whole number, 1 or more")
    return said


# --- lanes


@final
class _Lane(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str | None = None
    max_tokens: int | None = None
    timeout_s: float | None = None
    retries: int | None = None
    temperature: float | None = None
    prompt: str | None = None


@final
class _Refresh(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timeout_s: float | None = None
    retries: int | None = None


@final
class _Lanes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    compaction: _Lane = _Lane()
    titling: _Lane = _Lane()
    refresh: _Refresh = _Refresh()


def lanes_from(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> Lanes:
    """Return what the settings say of lanes; the working directory's word counts over the user's, key by key.

    Raises:
        ConfigInvalid: A file cannot be read, or says what is of no use.
    """
    merged: dict[str, dict[str, Any]] = {}
    for path in config_files(environ, workdir):
        said = _table(path, "lanes")
        try:
            msgspec.convert(said, _Lanes)
        except msgspec.ValidationError as exc:
            raise ConfigInvalid(f"`[lanes]` in {str(path)!r} is of no use: {exc}; mend the file") from exc
        for lane, keys in said.items():
            merged[lane] = {**merged.get(lane, {}), **keys}
            _check_lane(path, lane, merged[lane])
    return Lanes(**{lane: _settings(keys) for lane, keys in merged.items()})


def _check_lane(path: Path, lane: str, said: Mapping[str, Any]) -> None:
    least = {"max_tokens": 1, "retries": 0}
    for key, value in said.items():
        if (key in least and value < least[key]) or (key == "timeout_s" and value <= 0):
            raise ConfigInvalid(f"`lanes.{lane}.{key}` in {str(path)!r} is {value!r}, which lets nothing through")


def _settings(said: Mapping[str, Any]) -> LaneSettings:
    choice = ModelChoice.of(str(said["model"])) if said.get("model") else None
    rest: dict[str, Any] = {key: value for key, value in said.items() if key != "model"}
    return LaneSettings(choice, **rest)


# --- files


def _table(path: Path, name: str) -> dict[str, Any]:
    said: object = settings_in(path).get(name, {})
    if not isinstance(said, dict):
        raise ConfigInvalid(f"`{name}` in {str(path)!r} is no table; write `[{name}]`")
    return dict(cast("dict[str, Any]", said))


def _refuse(here: Path, users: list[Path], keys: list[str]) -> None:
    where = f"{str(users[0])!r}" if users else "the user's own settings"
    listed = ", ".join(f"`{key}`" for key in keys)
    raise ConfigInvalid(
        f"{str(here)!r} lies in the working directory, which may only narrow limits, and widens {listed}; move it to "
        f"{where}, or take it out"
    )
