"""OpenAI's errors: their shape, their words, and how it writes paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.testing.wire._delivery import Event
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._shape import Path, Problem
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._values import Failure

TYPES: Mapping[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", None),
    404: ("invalid_request_error", "model_not_found"),
    409: ("conflict_error", None),
    422: ("invalid_request_error", None),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    501: ("invalid_request_error", "not_simulated"),
    503: ("server_error", "overloaded"),
}
"""Type and code for each status."""

_WORDS = {
    "str": "a string",
    "int": "an integer",
    "num": "a decimal",
    "bool": "a boolean",
    "list": "an array",
    "object": "an object",
    "null": "null",
}


def bracketed(path: Path) -> str:
    """Return *path* as the vendor writes it: `messages[0].content`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def problem_message(problem: Problem) -> str:
    """Return what the vendor says of *problem*."""
    path = bracketed(problem.keys)
    match problem.kind:
        case "missing":
            return f"Missing required parameter: '{path}'."
        case "unknown":
            return f"Unknown parameter: '{path}'."
        case "value":
            wanted = ", ".join(f"'{value}'" for value in problem.wanted)
            return f"Invalid value: '{problem.got}'. Supported values are: {wanted}."
        case _:
            null_last = sorted(problem.wanted, key=lambda word: word == "null")
            wanted = " or ".join(_WORDS.get(word, word) for word in null_last)
            return f"Invalid type for '{path}': expected {wanted}, but got {_kind(problem.got)} instead."


def _kind(value: Any) -> str:
    names = {bool: "bool", int: "int", float: "num", str: "str", list: "list", dict: "object", type(None): "null"}
    return _WORDS[names[type(value)]]


CODES = {
    "missing": "missing_required_parameter",
    "unknown": "unknown_parameter",
    "value": "invalid_value",
    "type": "invalid_type",
}


def error_object(failure: Failure) -> dict[str, Any]:
    """Return the error object of *failure*. Its kind is the vendor's code; `details` may say `param` and more."""
    kind, code = TYPES.get(failure.status, ("server_error", None))
    code = failure.kind or code
    if code == "insufficient_quota":
        kind = code
    message = failure.message or f"Error {failure.status}: {code or kind}"
    return {"message": message, "type": kind, "param": None, "code": code, **failure.details}


def failed(kind: str | None, what: str) -> Event:
    """Return an error in the middle of a stream of chunks."""
    error = {"message": what, "type": "server_error", "param": None, "code": kind or "overloaded"}
    return Event(compact({"error": error}))


def refused(violation: Violation, *, code: str | None = None) -> Failure:
    """Return the error for *violation*."""
    status = 501 if violation.rule == "unsimulated" else 400
    return Failure(status, code, violation.message, details={"param": violation.path or None})
