"""Gemini's errors: their shape, their words, and how it writes paths."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from shoal.testing.wire._delivery import Event
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._shape import Path, Problem
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._values import Failure

STATUSES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
CODES: Mapping[str, int] = {name: status for status, name in STATUSES.items()}
_TYPES = {
    "str": "TYPE_STRING",
    "int": "TYPE_INT32",
    "num": "TYPE_DOUBLE",
    "bool": "TYPE_BOOL",
    "object": "TYPE_MESSAGE",
    "list": "TYPE_MESSAGE",
}
NOT_CACHED = "CachedContent not found (or permission denied)"
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_RPC = "type.googleapis.com/google.rpc."


def snaked(name: str) -> str:
    """Return *name* as it stands in the vendor's messages: `functionCall` is `function_call` there."""
    return _HUMP.sub("_", name).lower()


def where(path: Path) -> str:
    """Return *path* as the vendor writes it: `contents[0].parts[1].function_call`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{snaked(step)}" for step in path)
    return "".join(steps).removeprefix(".")


def problem_message(problem: Problem) -> str:
    """Return what the vendor says of *problem*."""
    path = where(problem.keys)
    match problem.kind:
        case "missing":
            return f"* GenerateContentRequest.{path}: {path} is not specified"
        case "unknown":
            at = where(problem.keys[:-1])
            told = f" at '{at}'" if at else ""
            return f'Invalid JSON payload received. Unknown name "{problem.keys[-1]}"{told}: Cannot find field.'
        case "value":
            return f"Invalid value at '{path}' (TYPE_ENUM), {json.dumps(problem.got)}"
        case _:
            kind = _TYPES.get(problem.wanted[0], "TYPE_MESSAGE")
            return f"Invalid value at '{path}' ({kind}), {json.dumps(problem.got)}"


def error_object(failure: Failure) -> dict[str, Any]:
    """Return the error object of *failure*. Its kind is the vendor's status."""
    status = failure.kind or STATUSES.get(failure.status, "UNKNOWN")
    error: dict[str, Any] = {"code": failure.status, "message": failure.message or status, "status": status}
    if failure.retry_after is not None and failure.retry_after.isdecimal():
        error["details"] = [{"@type": f"{_RPC}RetryInfo", "retryDelay": f"{failure.retry_after}s"}]
    return {**error, **failure.details}


def failed(kind: str | None, what: str) -> Event:
    """Return an error in the middle of a stream."""
    status = kind or "UNAVAILABLE"
    return Event(compact({"error": {"code": CODES.get(status, 500), "message": what, "status": status}}))


def refused(violation: Violation) -> Failure:
    """Return the error for *violation*."""
    if violation.rule == "unsimulated":
        return Failure(501, None, violation.message)
    if violation.message == NOT_CACHED:
        return Failure(403, None, violation.message)
    told = [{"field": violation.path, "description": violation.message}]
    details = [{"@type": f"{_RPC}BadRequest", "fieldViolations": told}]
    return Failure(400, None, violation.message, details={"details": details} if violation.path else {})


def bad_key(reason: str) -> dict[str, Any]:
    """Return the details of an error about an API key."""
    about = {"@type": f"{_RPC}ErrorInfo", "reason": reason, "domain": "googleapis.com"}
    return {"details": [about]}
