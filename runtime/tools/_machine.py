"""The built-in tools that look at the time, the machine, the environment and the run itself."""

from __future__ import annotations

import datetime as dt
import json
import locale
import os
import platform
import shutil
from collections.abc import Mapping
from typing import Any

import anyio.to_thread

from shoal.runtime.tools._environment import environment
from shoal.runtime.tools._process import shell_path
from shoal.runtime.tools._schema import object_of, text_of
from shoal.runtime.tools._tool import Effects, Tool, ToolContext, ToolResult

_READS = Effects(reads=True)
_MOST_VALUE_CHARS = 2_000
_GIB = 1024**3


def _listed(values: Mapping[str, object]) -> ToolResult:
    return ToolResult.of("\n".join(f"{name}: {value}" for name, value in values.items()))


async def _current_time(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    now = dt.datetime.fromtimestamp(context.now(), dt.UTC)
    here = now.astimezone()
    return _listed(
        {
            "utc": now.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "local": here.isoformat(timespec="seconds"),
            "weekday": f"{here:%A}",
            "time zone": here.tzname() or "unknown",
            "unix": int(context.now()),
        }
    )


async def _system_info(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    def look() -> dict[str, object]:
        disk = shutil.disk_usage(context.workdir)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return {
            "system": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "processors": os.cpu_count() or "unknown",
            "memory": f"{memory / _GIB:.1f} GiB",
            "free disk in the working directory": f"{disk.free / _GIB:.1f} of {disk.total / _GIB:.1f} GiB",
            "python": platform.python_version(),
            "shell": shell_path(environment(os.environ).values["PATH"]),
        }

    try:
        return _listed(await anyio.to_thread.run_sync(look, limiter=context.threads))
    except OSError as exc:
        return ToolResult.error(f"the machine cannot be looked at: {exc.strerror}")


async def _locale_info(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    here = dt.datetime.fromtimestamp(context.now(), dt.UTC).astimezone()
    said = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "C")
    return _listed(
        {
            "language": said.partition(".")[0],
            "encoding": locale.getpreferredencoding(do_setlocale=False),
            "time zone": here.tzname() or "unknown",
            "utc offset": f"{here:%z}",
        }
    )


async def _environment_info(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    found = environment(os.environ, context.shell.allow_env_vars)
    lines = [f"{name}={_value(value)}" for name, value in found.values.items()]
    withheld = [f"{name} (set; its value is withheld)" for name in found.withheld]
    return ToolResult.of("\n".join([*lines, *withheld]))


def _value(value: str) -> str:
    """Return a value on one line, and not endless."""
    text = value.encode("utf-8", "replace").decode()
    shown = text if text.isprintable() else json.dumps(text, ensure_ascii=False)
    return shown if len(shown) <= _MOST_VALUE_CHARS else f"{shown[:_MOST_VALUE_CHARS]}… ({len(text):,} characters)"


async def _runtime_info(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    facts = context.facts
    return _listed(
        {
            "run": context.run_id,
            "blueprint": f"{facts.blueprint} {facts.version}",
            "parent": facts.parent or "none",
            "depth": facts.depth,
            "levels of children that it may have": facts.children_deeper,
            "somebody is there to ask": "no" if facts.unattended else "yes",
            "working directory": context.workdir,
            "seconds that a command may take": f"{context.shell.timeout_s:g}",
        }
    )


async def _which_command(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    command = str(args["command"])
    folders = environment(os.environ).values["PATH"]

    def find() -> str | None:
        return None if "/" in command or "\0" in command else shutil.which(command, path=folders)

    found = await anyio.to_thread.run_sync(find, limiter=context.threads)
    return ToolResult.of(found or f"there is no command {command!r}")


MACHINE_TOOLS = (
    Tool("current_time", "Say what time it is, here and in UTC.", object_of({}), _current_time, effects=_READS),
    Tool("system_info", "Say which machine and operating system this is.", object_of({}), _system_info, effects=_READS),
    Tool(
        "locale_info",
        "Say which language, encoding and time zone this system has.",
        object_of({}),
        _locale_info,
        effects=_READS,
    ),
    Tool(
        "environment_info",
        "List the environment variables that commands get; values that look like credentials are withheld.",
        object_of({}),
        _environment_info,
        effects=_READS,
    ),
    Tool(
        "runtime_info",
        "Say what is known of this run: its id, its blueprint, whether somebody can be asked.",
        object_of({}),
        _runtime_info,
        effects=_READS,
    ),
    Tool(
        "which_command",
        "Say where a command is installed, or that it is not.",
        object_of({"command": text_of("Its name.", minLength=1)}, "command"),
        _which_command,
        effects=_READS,
    ),
)
"""Tools that look at the machine and at the run."""
