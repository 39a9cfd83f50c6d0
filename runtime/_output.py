"""The answer of a run: checked, recorded, and shown in `final_output`."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Container, Mapping
from typing import Any
from xml.etree import ElementTree as ET

import anyio.to_thread
import tomli

from shoal.blueprints import OutputSpec
from shoal.providers import Message, Text
from shoal.runtime._live import Live
from shoal.runtime._own_scripts import VALIDATE, own_path
from shoal.runtime._paths import PathRefused, open_inside
from shoal.runtime._scripting import call_script
from shoal.runtime.context import FINAL_OUTPUT, Draft, cut_to, estimate
from shoal.runtime.events import OutputSubmitted, ScriptFailed
from shoal.runtime.tools import ToolResult, parse_json, schema_bytes, violations


def output_spec(live: Live) -> OutputSpec:
    """Return what the current stage's answer has to look like."""
    return live.state.stage.output


async def submit(live: Live, source: int, index: int, args: Mapping[str, Any]) -> ToolResult:
    """Check and record an answer; a bad one never takes the place of a good one.

    Args:
        live: The run.
        source: Seq of the reply.
        index: Number of the call.
        args: The call's arguments, already checked against its schema.
    """
    content = str(args["content"])
    spec = output_spec(live)
    problem = problem_of(content, spec, live.state.program.stages)
    if problem is not None:
        return ToolResult.error(problem)
    refusal = await _refusal(live, spec, content)
    if refusal:
        return ToolResult.error(refusal)
    artifacts = tuple(str(path) for path in args.get("artifacts", ()))
    for path in artifacts:
        try:
            await anyio.to_thread.run_sync(_check_artifact, live, path, limiter=live.host.threads)
        except PathRefused as refused:
            return ToolResult.error(f"the artifact {refused}; nothing was submitted")
    kept = _kept_chars(content, live.host.limits.output_bytes)
    live.emit(OutputSubmitted(source, index, live.state.stage.name, spec.format, kept, artifacts))
    _mirror(live, source, index, Text.of(content if kept is None else content[:kept]), kept)
    cut = "" if kept is None else f" It was longer than {live.host.limits.output_bytes} bytes and was cut."
    return ToolResult.of(f"Submitted.{cut}")


async def _refusal(live: Live, spec: OutputSpec, content: str) -> str:
    """Return why the answer's validator refuses *content*; empty where it takes it, has none, or it is broken."""
    if spec.validator is None:
        return ""
    path = own_path(spec.validator)
    returned = await call_script(live, path, VALIDATE, content)
    if returned is None or returned.value is None:
        return ""
    if isinstance(returned.value, str):
        return returned.value
    kind = type(returned.value).__name__
    said = f"`{VALIDATE}` returned {kind!r}; return nothing where the answer is good, and a text that says why not"
    live.emit(ScriptFailed(path, VALIDATE, "misread", said))
    return ""


def problem_of(content: str, spec: OutputSpec, stages: Container[str]) -> str | None:
    """Say what is wrong with *content* as an answer, for the model; `None` where it is one.

    Args:
        content: The answer.
        spec: What it has to look like.
        stages: Names of the run's stages: a model that hands one in has mistaken what it was asked.
    """
    if not content.strip():
        return "`content` is empty; submit the whole answer in it"
    if content.strip() in stages:
        return f"{content.strip()!r} is the name of a stage, not an answer; submit the whole answer in `content`"
    parsed: object = None
    kind = (spec.format or "").lower()
    parse = _PARSERS.get(kind)
    if parse is not None:
        try:
            parsed = parse(content)
        except (ValueError, ET.ParseError, csv.Error, RecursionError) as exc:
            return f"the answer has to be {kind} and cannot be read as such: {exc}"
    if spec.schema is None:
        return None
    if kind != "json":
        try:
            parsed = parse_json(content)
        except (ValueError, RecursionError) as exc:
            return f"the answer has to match a schema, and is not JSON: {exc}"
    found = violations(schema_bytes(spec.schema), parsed)
    return f"the answer breaks its schema: {'; '.join(found)}" if found else None


def _csv(content: str) -> object:
    rows = list(csv.reader(io.StringIO(content), strict=True))
    widths = {len(row) for row in rows if row}
    if len(widths) > 1:
        raise ValueError(f"its rows have {min(widths)} to {max(widths)} columns")
    return rows


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "json": parse_json,
    "xml": ET.fromstring,
    "toml": tomli.loads,
    "csv": _csv,
}


def _check_artifact(live: Live, path: str) -> None:
    os.close(open_inside(live.context.workdir, path))


def _kept_chars(content: str, most_bytes: int) -> int | None:
    data = content.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return None
    return len(data[:most_bytes].decode("utf-8", "ignore"))


def _mirror(live: Live, source: int, index: int, content: Text, kept: int | None) -> None:
    """Show the answer in `final_output`, in place of an earlier one and cut to what the region holds.

    Args:
        live: The run.
        source: Seq of the reply.
        index: Number of the call.
        content: The answer, as far as it counts.
        kept: How many characters of what the call holds that is; `None` for all of them.
    """
    state = live.state.view.states[FINAL_OUTPUT]
    whole = Message("user", (content,))
    cost = estimate(whole)
    budget = state.limits.estimated(live.state.view.ratio).budget
    draft = Draft("text", whole, cost, source, index, cut=kept)
    if cost > budget:
        shorter = cut_to(whole, cost, budget)
        draft = Draft("text", shorter.message, shorter.tokens, source, index, cut=shorter.chars, text=shorter.marker)
    replaces = [entry.entry_id for entry in state.all_entries()]
    plan = live.state.view.plan_write(FINAL_OUTPUT, draft, replaces=replaces)
    live.change(plan.changes)
