"""The gates between a model's call and its effect: visibility, schema, permission, in this order."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias, cast, final

import jsonschema_rs
import msgspec

from shoal.blueprints import Permission, tool_name
from shoal.runtime.tools._tool import Tool
from shoal.runtime.tools._window import LOAD_TOOLS

Gate: TypeAlias = Literal["visibility", "schema", "permission"]

_MOST_VIOLATIONS = 10
_VIOLATION_CHARS = 300
_MOST_CHARS = 100
_HALF = re.compile("[\ud800-\udfff]")


@final
class Verdict(msgspec.Struct, frozen=True):
    """How a call fares at the gates.

    Args:
        tool: The tool; `None` where the stage has none of that name.
        args: Its arguments; empty where they could not be read.
        gate: The gate that stops the call; `None` lets it pass.
        said: Of a call that is stopped: what the model reads. Of one that asks: what needs approval, where that is not
            simply the tool.
        asks: The call needs somebody's approval.
        keys: What an approval is kept under, where it is to hold for more than this call; empty where it cannot.
    """

    tool: Tool | None
    args: Mapping[str, Any] = {}
    gate: Gate | None = None
    said: str = ""
    asks: bool = False
    keys: tuple[str, ...] = ()


def judge(
    tools: Mapping[str, Tool],
    name: str,
    arguments: str,
    permission: Mapping[str, Permission],
    deferred: Collection[str] = (),
) -> Verdict:
    """Say how a call of *name* with the JSON source *arguments* fares.

    Args:
        tools: The stage's tools, by name.
        name: The tool, as the model wrote it; an alias is understood.
        arguments: The JSON source of its arguments; empty counts as an empty object.
        permission: What each tool may do in this stage.
        deferred: Names of the tools that the stage can load.
    """
    tool = tools.get(tool_name(name))
    if tool is None and tool_name(name) in deferred:
        said = f"[unavailable] `{name}` is not loaded; call `{LOAD_TOOLS}` with its name, and then it"
        return Verdict(None, gate="visibility", said=said)
    if tool is None:
        offered = ", ".join(f"`{other}`" for other in sorted(tools)) or "no tool"
        asked = name if len(name) <= _MOST_CHARS else f"{name[:_MOST_CHARS]}…"
        return Verdict(
            None, gate="visibility", said=f"[unavailable] this stage has no tool {asked!r}; it has {offered}"
        )
    try:
        parsed = parse_json(arguments or "{}")
    except (ValueError, RecursionError) as exc:
        return Verdict(tool, gate="schema", said=f"[error] the arguments of `{tool.name}` are not JSON: {exc}")
    if not isinstance(parsed, dict):
        return Verdict(tool, gate="schema", said=f"[error] the arguments of `{tool.name}` must be a JSON object")
    args = cast("dict[str, Any]", parsed)
    found = violations(tool.spec.schema, args)
    if found:
        listed = "\n".join(f"- {violation}" for violation in found)
        return Verdict(tool, args, "schema", f"[error] the arguments of `{tool.name}` break its schema:\n{listed}")
    allowed = permission.get(tool.name, tool.permission)
    if allowed == "deny":
        return Verdict(tool, args, "permission", f"[denied] `{tool.name}` may not be called here")
    return Verdict(tool, args, asks=allowed == "ask", keys=(tool.name,))


def violations(schema: bytes, value: object) -> list[str]:
    """Say where *value* breaks *schema*, at most 10 places; a schema that cannot be compiled is not checked.

    Args:
        schema: JSON source of the schema.
        value: What `parse_json` gave.
    """
    validator, _ = compiled(schema)
    if validator is None or validator.is_valid(value):
        return []
    try:
        return [_said(error) for error in itertools.islice(validator.iter_errors(value), _MOST_VIOLATIONS)]
    except ValueError:
        return ["it is nested too deeply to say more"]


def _said(error: jsonschema_rs.ValidationError) -> str:
    path = "/".join(str(part) for part in error.instance_path)
    said = f"{path}: {error.message}" if path else str(error.message)
    # A message quotes what it is about, which may be a whole file.
    return said if len(said) <= _VIOLATION_CHARS else f"{said[:_VIOLATION_CHARS]}…"


@functools.lru_cache(maxsize=1024)
def compiled(schema: bytes) -> tuple[jsonschema_rs.Validator | None, str]:
    """Return the JSON *schema* compiled; `None`, and why, for one that cannot be: what it describes is not checked."""
    try:
        return jsonschema_rs.validator_for(json.loads(schema), registry=None, retriever=_elsewhere), ""
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
        return None, str(exc).partition("\n")[0]


def _elsewhere(uri: str) -> Any:
    """Refuse a reference to another document: a schema must not make us read one."""
    raise ValueError(f"a schema may not refer to {uri!r}; put the definition into it")


def _no_number(name: str) -> Any:
    raise ValueError(f"JSON has no number {name}")


_decoder = json.JSONDecoder(parse_constant=_no_number)


def parse_json(source: str) -> object:
    """Return the value that *source* is, with U+FFFD for each half of a character.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested more deeply than anybody means.
    """
    parsed: object = _decoder.decode(source)
    return _whole(parsed) if "\\u" in source else parsed


def _whole(value: object) -> object:
    """Return *value* with U+FFFD for each half of a character, which JSON can say and nobody can write."""
    if isinstance(value, str):
        return _HALF.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_whole(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in cast("dict[str, object]", value).items()}
    return value
