"""The gates between a model's call and its effect: visibility, schema, permission, in this order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast, final

import jsonschema_rs
import msgspec

from shoal.blueprints import Permission, tool_name
from shoal.runtime.tools._tool import Tool

Gate: TypeAlias = Literal["visibility", "schema", "permission"]

_MOST_VIOLATIONS = 10
_validators: dict[bytes, jsonschema_rs.Validator | None] = {}


@final
class Verdict(msgspec.Struct, frozen=True):
    """How a call fares at the gates.

    Args:
        tool: The tool; `None` where the stage has none of that name.
        args: Its arguments; empty where they could not be read.
        gate: The gate that stops the call; `None` lets it pass.
        said: Of a call that is stopped: what the model reads.
        asks: The call needs somebody's approval.
    """

    tool: Tool | None
    args: Mapping[str, Any] = {}
    gate: Gate | None = None
    said: str = ""
    asks: bool = False


def judge(tools: Mapping[str, Tool], name: str, arguments: str, permission: Mapping[str, Permission]) -> Verdict:
    """Say how a call of *name* with the JSON source *arguments* fares.

    Args:
        tools: The stage's tools, by name.
        name: The tool, as the model wrote it; an alias is understood.
        arguments: The JSON source of its arguments; empty counts as an empty object.
        permission: What each tool may do in this stage.
    """
    tool = tools.get(tool_name(name))
    if tool is None:
        offered = ", ".join(f"`{other}`" for other in sorted(tools)) or "no tool"
        return Verdict(None, gate="visibility", said=f"[unavailable] this stage has no tool {name!r}; it has {offered}")
    try:
        parsed: object = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as exc:
        return Verdict(tool, gate="schema", said=f"[error] the arguments of `{tool.name}` are not JSON: {exc}")
    if not isinstance(parsed, dict):
        return Verdict(tool, gate="schema", said=f"[error] the arguments of `{tool.name}` must be a JSON object")
    args = cast("dict[str, Any]", parsed)
    violations = _violations(tool, args)
    if violations:
        listed = "\n".join(f"- {violation}" for violation in violations)
        return Verdict(tool, args, "schema", f"[error] the arguments of `{tool.name}` break its schema:\n{listed}")
    match permission.get(tool.name, tool.permission):
        case "deny":
            return Verdict(tool, args, "permission", f"[denied] `{tool.name}` may not be called here")
        case "ask":
            return Verdict(tool, args, asks=True)
        case "allow":
            return Verdict(tool, args)


def _violations(tool: Tool, args: Mapping[str, Any]) -> list[str]:
    validator = _validator(tool)
    if validator is None or validator.is_valid(args):
        return []
    found: list[str] = []
    for error in validator.iter_errors(args):
        path = "/".join(str(part) for part in error.instance_path)
        found.append(f"{path}: {error.message}" if path else str(error.message))
        if len(found) == _MOST_VIOLATIONS:
            break
    return found


def _validator(tool: Tool) -> jsonschema_rs.Validator | None:
    """Return the compiled schema of *tool*; `None` for one that cannot be compiled, which is then not checked."""
    key = tool.spec.schema
    if key not in _validators:
        try:
            _validators[key] = jsonschema_rs.validator_for(dict(tool.schema), registry=None, retriever=_elsewhere)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
            _validators[key] = None
    return _validators[key]


def checkable(tool: Tool) -> bool:
    """Say whether the schema of *tool* can be compiled; one that cannot is a warning, and not checked."""
    return _validator(tool) is not None


def _elsewhere(uri: str) -> Any:
    """Refuse a reference to another document: a schema must not make us read one."""
    raise ValueError(f"a schema may not refer to {uri!r}; put the definition into it")
