"""Where the seeds of a run come from: its folder, its caller, its scripts, tools and commands behind their gates."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import anyio.to_thread

from shoal.blueprints import CommandSeed, Permission, Seed, Stage, ToolsSeed, tool_name
from shoal.errors import ConfigInvalid
from shoal.providers import Text
from shoal.runtime._attachment import Given
from shoal.runtime._host import Host
from shoal.runtime._live import Live
from shoal.runtime._seed_files import OWN_FOLDER
from shoal.runtime._seeds import CallTool, RunCommand, RunScript, SeedFailed, Sources
from shoal.runtime.events import RunSpawned
from shoal.runtime.program import Program
from shoal.runtime.scripts import Plain, Script, ScriptError
from shoal.runtime.tools import (
    SHELL,
    SHELL_TOOL,
    Tool,
    ToolContext,
    ToolResult,
    Verdict,
    failure_of,
    judge,
    judge_line,
    run_in_shell,
    shown,
    with_line,
)

ENTRY = "seed"
"""The function of a script that gives a region's text."""


@final
@dataclass(frozen=True, slots=True)
class Moment:
    """When seeds are resolved.

    Args:
        stage: The stage that is entered.
        visit: The how-manieth visit of it this is, from 1.
        at: Unix seconds.
        seq: Seq of the event that orders it; 0 at the spawn.
    """

    stage: Stage
    visit: int
    at: float
    seq: int


def sources(
    host: Host,
    program: Program,
    context: ToolContext,
    made: RunSpawned,
    moment: Moment,
    scripts: Mapping[str, Script] | None = None,
    *,
    given: Mapping[str, Given] | None = None,
) -> Sources:
    """Return where the seeds of a run come from.

    Args:
        host: The services it lives with.
        program: What it is made of.
        context: What its tools work with.
        made: How it was spawned.
        moment: When they are resolved.
        scripts: The scripts that its seeds were given before, by path; `None` at the spawn.
        given: The caller's values with their parts; `None` after the spawn.
    """
    caller = dict(made.seeds) if made.task is None else {**dict(made.seeds), "task": made.task}
    return Sources(
        program.blueprint,
        context.workdir,
        caller,
        _tools(host, program, context, moment.stage),
        host.threads,
        host.limits.seed_bytes,
        host.limits.list_entries,
        _commands(host, program, context, moment.stage, in_fan_out=made.item is not None),
        _scripts(host, context.run_id, caller, moment),
        context.also,
        {**_in_code(host), **(scripts or {})},
        at_spawn=scripts is None,
        given=given or {},
        part_bytes=host.limits.part_bytes,
    )


def _in_code(host: Host) -> Mapping[str, Script]:
    """Return the functions of the program that stand in the place of scripts, by the paths that a seed may write."""
    known = host.sandbox.every_trusted
    return {**known, **{f"{OWN_FOLDER}{path}": script for path, script in known.items()}}


def sources_of(live: Live, job_id: int) -> Sources:
    """Return where the seeds of a live run come from when the job *job_id* resolves them again."""
    state = live.state
    visit = state.visit
    assert visit is not None  # a job belongs to a visit
    made = state.made_by
    scripts = {path: live.script(path) for path, _ in made.scripts}
    moment = Moment(state.stage.stage, visit.number, live.host.clock.unix(), job_id)
    return sources(live.host, state.program, live.context, made, moment, scripts)


def repeatable(seed: Seed | None, program: Program) -> bool:
    """Say whether a seed may be resolved again after it was cut short, without anything happening twice."""
    if isinstance(seed, ToolsSeed):
        known = _known(program)
        tools = [known.get(tool_name(call.name)) for call in seed.calls]
        return all(tool is None or tool.effects.repeatable for tool in tools)
    return not isinstance(seed, CommandSeed)


# --- tools


def _known(program: Program) -> Mapping[str, Tool]:
    """Return the tools that a seed may call: any that reaches outside."""
    return program.outside


def _tools(host: Host, program: Program, context: ToolContext, stage: Stage) -> CallTool:
    """Return what calls a tool for a seed; one that needs asking counts as forbidden."""
    blueprint = program.blueprint

    async def call(name: str, args: Mapping[str, Any]) -> ToolResult:
        if tool_name(name) == SHELL and not host.permissions.grants.allow_seed_commands:
            return ToolResult.error("seeds may run no commands here (`allow_seed_commands`, `--no-seed-commands`)")
        tools = _known(program)
        permissions: dict[str, Permission] = {
            each: host.permissions.of(tool, stage, blueprint) for each, tool in tools.items()
        }
        rules = host.permissions.lines(stage, blueprint, context.workdir)
        verdict = await with_line(judge(tools, name, json.dumps(dict(args)), permissions), rules, host.threads)
        if verdict.asks:
            said = verdict.said or f"`{name}` needs somebody's approval"
            return ToolResult.error(f"{said}, and nobody is there to ask before a run begins")
        if verdict.tool is None or verdict.tool.call is None or verdict.gate is not None:
            return ToolResult.error(verdict.said.removeprefix("[error] "))
        async with host.pools.get("tools").slot(context.run_id):
            try:
                return await verdict.tool.call(context, verdict.args)
            except Exception as exc:  # noqa: BLE001 - a seed whose tool fails is left out, whatever the tool raises
                return ToolResult.error(f"{type(exc).__name__}: {exc}")

    return call


# --- commands


def _commands(host: Host, program: Program, context: ToolContext, stage: Stage, *, in_fan_out: bool) -> RunCommand:
    """Return what runs a command for a seed, where the user granted everything that its line does."""
    blueprint = program.blueprint

    async def run(command: str) -> str:
        if not host.permissions.grants.allow_seed_commands:
            raise SeedFailed("is not run: seeds may run no commands here (`allow_seed_commands`, `--no-seed-commands`)")
        if in_fan_out:
            raise SeedFailed("is not run: the workers of a fan-out run no commands as seeds")
        if host.permissions.of(SHELL_TOOL, stage, blueprint) == "deny":
            raise SeedFailed(f"is not run: `{SHELL}` may not be called here")
        # An agent may look around by itself. What runs before anybody has seen the blueprint at work has to be named.
        rules = dataclasses.replace(host.permissions.lines(stage, blueprint, context.workdir), allow_looking=False)
        asked = Verdict(SHELL_TOOL, {"command": command}, asks=True)
        verdict = await anyio.to_thread.run_sync(judge_line, asked, rules, limiter=host.threads)
        if verdict.asks or verdict.gate is not None:
            raise SeedFailed(f"is not run: {_withheld(verdict)}")
        async with host.pools.get("tools").slot(context.run_id):
            ended = await run_in_shell(context, command)
        failure = failure_of(ended, context.shell.timeout_s)
        if failure is not None:
            tail = shown(ended.err, "standard error").strip().rpartition("\n")[2]
            raise SeedFailed(f"{failure}: {tail}" if tail else failure)
        if b"\0" in ended.out:
            raise SeedFailed("printed what is no text")
        left = f"\n[{ended.out_left:,} more bytes were dropped]" if ended.out_left else ""
        return f"{shown(ended.out, 'standard output')}{left}"

    return run


def _withheld(verdict: Verdict) -> str:
    if verdict.gate is not None:
        return verdict.said.removeprefix("[denied] ")
    listed = ", ".join(f"`{key}`" for key in verdict.keys)
    if not listed:
        return f"it cannot be granted ({verdict.said.partition(': ')[2]})"
    return f"the user's `safe_commands` do not grant {listed}"


# --- scripts


def _scripts(host: Host, run_id: str, caller: Mapping[str, Text], moment: Moment) -> RunScript:
    """Return what runs a script for a seed."""

    async def run(script: Script, region: str) -> str:
        given: Plain = {
            "region": region,
            "stage": moment.stage.name,
            "visit": moment.visit,
            "task": str(caller["task"]) if "task" in caller else None,
            "seeds": {name: str(value) for name, value in caller.items() if name != "task"},
        }
        chance = zlib.crc32(f"{run_id} {moment.seq} {region}".encode())
        try:
            if not await host.sandbox.defines(script, (ENTRY,)):
                raise SeedFailed(f"`{script.path}` defines no function `{ENTRY}`; write `def {ENTRY}(ctx):` into it")
            result = await host.sandbox.call(script, ENTRY, given, at=moment.at, seed=chance)
        except (ScriptError, ConfigInvalid) as exc:
            raise SeedFailed(str(exc)) from exc
        if not isinstance(result, str):
            raise SeedFailed(f"`{ENTRY}` of `{script.path}` gives {type(result).__name__!r}; return text")
        return result

    return run
