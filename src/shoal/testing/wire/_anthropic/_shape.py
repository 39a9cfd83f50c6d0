"""What the shape of a body says, in the vendor's words, and fields that need a beta header (A21)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from shoal.testing.wire._rules import Violation
from shoal.testing.wire._shape import Problem, shape

BETAS: Mapping[str, str] = {
    "billing_policy": "user-profiles-billing-2026-10-01",
    "block_binding": "thinking-binding-controls-2026-08-01",
    "clear_at": "mid-conversation-system-clear-at-2026-08-21",
    "compaction": "compact-2026-09-04",
    "context_management": "context-management-2025-06-27",
    "fallback_credit_token": "fallback-credit-2026-07-01",
    "fallbacks": "server-side-fallback-2026-07-01",
    "mcp_servers": "mcp-client-2026-09-15",
    "task_budget": "task-budgets-2026-03-13",
    "thread": "message-threads-2026-08-12",
}
"""Fields that are known only with a header, and with which."""

SIMULATED = frozenset({"block_binding", "clear_at"})
"""Those of them that this server acts on."""

VALUES: Mapping[str, tuple[Any, ...]] = {"clear_at": (None, "next_user_message", "never")}

WORDS = {
    "str": "a valid string",
    "int": "a valid integer",
    "num": "a valid number",
    "bool": "a valid boolean",
    "list": "a valid list",
    "object": "a valid dictionary",
    "null": "null",
}
_A1 = frozenset({"model", "max_tokens", "messages"})


def shape_violations(body: Any, betas: frozenset[str], *, counting: bool) -> Iterator[Violation]:
    """Yield what is wrong with the shape of *body*, in its order."""
    known = shape("anthropic")
    if not isinstance(body, dict):
        yield Violation("schema", "", "Input should be a valid dictionary")
        return
    for problem in known.problems(body, known.other if counting else None):
        yield from _violation(problem, cast("dict[str, Any]", body), betas)


def _violation(problem: Problem, body: Mapping[str, Any], betas: frozenset[str]) -> Iterator[Violation]:
    last = problem.keys[-1]
    if problem.kind == "unknown" and last in BETAS:
        yield from _beta(problem, str(last), betas)
        return
    path = dotted(problem.path)
    yield Violation(_rule(problem, body), path, _message(problem, path))


def _beta(problem: Problem, field: str, betas: frozenset[str]) -> Iterator[Violation]:
    path = dotted(problem.path)
    if BETAS[field] not in betas:
        yield Violation("A21", path, f"{path}: Extra inputs are not permitted")
    elif field not in SIMULATED:
        yield Violation("unsimulated", path, f"{path}: this server does not simulate `{field}`")
    elif field in VALUES and problem.got not in VALUES[field]:
        yield Violation("schema", path, f"{path}: Input should be 'next_user_message' or 'never'")


def _rule(problem: Problem, body: Mapping[str, Any]) -> str:
    keys = problem.keys
    if "cache_control" in keys:
        return "A9"
    match problem.kind, keys:
        case "missing", (str(field),) if field in _A1:
            return "A1"
        case "unknown", _:
            return "unknown"
        case _, (*_, "input"):
            return "A7"
        case "value", (*_, "source", "media_type"):
            return "A18"
        case "value", ("messages", int(number), "content", *_) if body["messages"][number].get("role") == "system":
            return "A12"
        case _:
            return "schema"


def _message(problem: Problem, path: str) -> str:
    match problem.kind:
        case "missing":
            what = "Field required"
        case "unknown":
            what = "Extra inputs are not permitted"
        case "type":
            what = f"Input should be {' or '.join(WORDS.get(word, word) for word in problem.wanted)}"
        case _:
            wanted = [f"'{word}'" for word in problem.wanted]
            what = f"Input should be {', '.join(wanted[:-1])}{' or ' if wanted[1:] else ''}{wanted[-1]}"
    return f"{path}: {what}"


def dotted(path: tuple[str | int, ...]) -> str:
    """Return *path* as the vendor writes it."""
    return ".".join(str(step) for step in path)
