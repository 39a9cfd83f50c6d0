"""The tool that runs a shell line."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Mapping
from typing import Any

from shoal.providers import Text
from shoal.runtime.tools._environment import environment
from shoal.runtime.tools._process import Ended, run_line
from shoal.runtime.tools._schema import object_of, text_of
from shoal.runtime.tools._tool import Effects, Tool, ToolContext, ToolResult

SHELL = "shell"

_numbers = itertools.count(1)


def mark_of(run_id: str) -> str:
    """Return what the marks of everything that a run starts begin with."""
    return f"{run_id}."


async def run_in_shell(context: ToolContext, line: str) -> Ended:
    """Run *line* as the run that *context* belongs to, in its working directory."""
    shell = context.shell
    return await run_line(
        line,
        folder=context.workdir,
        environ=environment(os.environ, shell.allow_env_vars).values,
        mark=f"{mark_of(context.run_id)}{next(_numbers)}.",
        timeout_s=shell.timeout_s,
        most_bytes=shell.most_bytes,
        threads=shell.threads or context.threads,
    )


def failure_of(ended: Ended, timeout_s: float) -> str | None:
    """Return why a line came to nothing, half a sentence; `None` where it ended by itself with 0."""
    if ended.stopped == "failed":
        return f"could not be started: {ended.why}"
    if ended.stopped:
        return f"did not end within {timeout_s:g} s and was stopped"
    return f"ended with {_exit(ended)}" if ended.code else None


def shown(data: bytes, name: str) -> str:
    """Return what a stream gave as text; of bytes that are none only how many there are."""
    if b"\0" in data:
        return f"[{len(data):,} bytes of {name} are no text]"
    return data.decode("utf-8", "replace")


def _exit(ended: Ended) -> str:
    if ended.code is not None and ended.code < 0:
        return f"signal {-ended.code} ({signal.strsignal(-ended.code)})"
    return f"exit code {ended.code}"


async def _shell(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    ended = await run_in_shell(context, str(args["command"]))
    out = shown(ended.out, "standard output")
    err = shown(ended.err, "standard error")
    parts = [out.removesuffix("\n"), f"[standard error]\n{err.removesuffix(chr(10))}" if err else ""]
    text = "\n".join(part for part in parts if part) or "(no output)"
    notes = [
        f"[{left:,} more bytes of {name} were dropped]"
        for left, name in ((ended.out_left, "standard output"), (ended.err_left, "standard error"))
        if left
    ]
    if ended.stopped:
        failed = f"[error] the command {failure_of(ended, context.shell.timeout_s)}"
        said = failed if ended.stopped == "failed" else f"{failed}. What it printed until then:\n{text}"
        return ToolResult(Text.of(said), "\n".join(notes), is_error=True)
    return ToolResult.of(text, note="\n".join([*notes, f"[{_exit(ended)}]"]))


SHELL_TOOL = Tool(
    SHELL,
    "Run a command line in the working directory, in bash where there is one. It gets no input, and what it leaves "
    "running in the background ends with it.",
    object_of({"command": text_of("The command line.", minLength=1)}, "command"),
    _shell,
    permission="ask",
    effects=Effects(writes=True, network=True),
)
"""Runs a shell line; its alias is `bash`."""
