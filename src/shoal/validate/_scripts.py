"""Scripts and schemas: what would refuse the spawn is said before, with its place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import anyio.to_thread

from shoal.blueprints import Blueprint, Finding
from shoal.errors import ConfigInvalid, SpawnRefused, ToolInvalid
from shoal.runtime.scripts import Sandbox, Script, ScriptError
from shoal.runtime.shipped import RUN, ToolFile, Use, read_script, script_tool, tool_files, uses_of
from shoal.runtime.tools import BUILT_IN, compiled, schema_bytes
from shoal.validate._finding import Findings, error, warning


async def check_scripts(blueprint: Blueprint, sandbox: Sandbox) -> AsyncIterator[Finding]:
    """Yield what is wrong with the scripts that *blueprint* names; a missing file is said by the loader."""
    for use in uses_of(blueprint):
        try:
            script = await anyio.to_thread.run_sync(read_script, blueprint, use)
        except SpawnRefused as refused:
            if (blueprint.folder is None) or (blueprint.folder / use.path).is_file():
                yield error("script-invalid", use.key, str(refused))
            continue
        found = await _looked_at(script, use, sandbox)
        if found is not None:
            yield replace(found, file=_shown(blueprint, use.path)) if found.line else found


async def check_tools(blueprint: Blueprint, sandbox: Sandbox) -> tuple[frozenset[str], list[Finding]]:
    """Return the names of the tools that *blueprint* ships, and what is wrong with them.

    A broken one that no stage lists hurts nobody and is a warning.
    """
    listed = {name for stage in blueprint.stages for name in stage.available_tools}
    taken: dict[str, str] = dict.fromkeys(BUILT_IN, "a built-in one")
    found: list[Finding] = []
    names: set[str] = set()
    for file in await anyio.to_thread.run_sync(tool_files, blueprint.folder):
        own, finding = _declared(file, taken)
        names |= own
        if finding is None:
            use = Use(file.path, file.path, RUN)
            finding = await _looked_at(Script(file.path, file.source), use, sandbox)
        if finding is not None:
            harmless = finding.severity == "error" and not own & listed
            severity = "warning" if harmless else finding.severity
            found.append(replace(finding, severity=severity, file=_shown(blueprint, file.path), key=None))
    return frozenset(names), found


def _declared(file: ToolFile, taken: dict[str, str]) -> tuple[set[str], Finding | None]:
    """Return the names under which a stage may mean the tool of *file*, and what is wrong with its own words."""
    try:
        made = script_tool(file)
    except ToolInvalid as invalid:
        return {file.stem}, error("tool-invalid", file.path, str(invalid))
    if made.name in taken:
        said = f"{file.path!r} calls its tool `{made.name}`, as {taken[made.name]} is called; rename it"
        return {made.name, file.stem}, error("tool-invalid", file.path, said)
    taken[made.name] = repr(file.path)
    _, why = compiled(made.spec.schema)
    said = f"the schema of {file.path!r} cannot be compiled, so its arguments are not checked: {why}"
    return {made.name}, warning("schema-invalid", file.path, said) if why else None


async def _looked_at(script: Script, use: Use, sandbox: Sandbox) -> Finding | None:
    try:
        known = await sandbox.defines(script, (use.needs,))
    except ScriptError as exc:
        return Finding("script-invalid", "error", str(exc), None, exc.line, exc.column, use.key)
    except ConfigInvalid as exc:
        return Finding("script-unchecked", "warning", str(exc), key=use.key)
    if known:
        return None
    return error("script-invalid", use.key, f"{use.path!r} defines no function `{use.needs}`; write it")


def _shown(blueprint: Blueprint, path: str) -> str:
    return path if blueprint.folder is None else str(blueprint.folder / path)


def check_schemas(blueprint: Blueprint) -> Findings:
    """Yield the schemas of answers that are none."""
    outputs = [("agent.output", blueprint.output), *((f"stages.{s.name}.output", s.output) for s in blueprint.stages)]
    for key, output in outputs:
        if output is not None and output.schema:
            _, why = compiled(schema_bytes(output.schema))
            if why:
                yield error("schema-invalid", f"{key}.schema", f"the schema cannot be compiled: {why}")
