"""The permission gate of shell lines: what of a line is granted, and what it would write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import anyio
import anyio.to_thread
import msgspec

from shoal.blueprints import Permission
from shoal.runtime.tools._gates import Verdict
from shoal.runtime.tools._lines import Line, read_line
from shoal.runtime.tools._looking import folders_of, looking
from shoal.runtime.tools._shell import SHELL
from shoal.runtime.tools._words import Unreadable
from shoal.runtime.tools._writing import belongs_to_git


@final
@dataclass(frozen=True, slots=True)
class LineRules:
    """What decides about shell lines in one stage.

    Args:
        safe: Keys that are granted.
        allow_looking: Programs that only look need no grant, while they stay in the working directory.
        writing: What `write_file` may do; a redirection that writes may do no more.
        workdir: The working directory, a real path.
    """

    safe: frozenset[str]
    allow_looking: bool
    writing: Permission
    workdir: Path


async def with_line(verdict: Verdict, rules: LineRules, threads: anyio.CapacityLimiter) -> Verdict:
    """Return *verdict* on a call, with what its command line says where it is one of the shell.

    Args:
        verdict: How the call fares by its tool's permission.
        rules: What decides about lines.
        threads: Limits the threads that look at links.
    """
    if verdict.tool is None or verdict.tool.name != SHELL or verdict.gate is not None:
        return verdict
    return await anyio.to_thread.run_sync(judge_line, verdict, rules, limiter=threads)


def judge_line(verdict: Verdict, rules: LineRules) -> Verdict:
    """Return *verdict*, which lets a shell line pass or asks for it, with what the line says; call it in a thread."""
    try:
        line = read_line(str(verdict.args["command"]))
        refused = _refused_write(line, rules)
    except Unreadable as exc:
        # What cannot be read cannot be granted either, for longer than this call.
        said = f"`{SHELL}` needs somebody's approval for this line: {exc}" if verdict.asks else ""
        return msgspec.structs.replace(verdict, keys=(), said=said)
    if refused:
        return Verdict(verdict.tool, verdict.args, "permission", f"[denied] the line writes {refused}")
    missing = tuple(dict.fromkeys(_missing(line, rules, all_of_it=verdict.asks)))
    listed = ", ".join(f"`{key}`" for key in missing)
    said = f"`{SHELL}` needs somebody's approval for {listed}" if missing else ""
    return Verdict(verdict.tool, verdict.args, said=said, asks=bool(missing), keys=missing)


def _refused_write(line: Line, rules: LineRules) -> str:
    """Return what of a line's writing nobody can allow; empty for nothing.

    Raises:
        Unreadable: It is not certain where it writes.
    """
    if not line.writes:
        return ""
    folders = folders_of(line, rules.workdir)
    if folders is None:
        raise Unreadable("it writes a file in a folder that it does not name")
    for path in line.writes:
        for real in ((folder / path).resolve() for folder in folders):
            if rules.workdir not in real.parents:
                return f"{path!r}, which leads outside the working directory"
            if belongs_to_git(real.relative_to(rules.workdir)):
                return f"{path!r}, which belongs to git itself, and is left to it"
    return f"{line.writes[0]!r}, and files may not be written here" if rules.writing == "deny" else ""


def _missing(line: Line, rules: LineRules, *, all_of_it: bool) -> Iterator[str]:
    """Yield the keys of *line* that are not granted; only those of files where the rest is allowed anyway."""
    if all_of_it:
        free = looking(line, rules.workdir) if rules.allow_looking else frozenset[int]()
        for index, step in enumerate(line.steps):
            # The last key of a command is its program; those in front of it set variables for it.
            needed = step.keys[:-1] if index in free and step.program else step.keys
            yield from (key for key in needed if key not in rules.safe)
    if rules.writing != "allow":
        yield from (key for key in line.write_keys if key not in rules.safe)
