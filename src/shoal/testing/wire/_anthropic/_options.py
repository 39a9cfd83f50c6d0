"""What may be asked of a model: A1, A14 to A17, A20, A21."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from shoal.testing.wire._anthropic._request import RECENT_VERSION, Piece, Request
from shoal.testing.wire._models import EFFORTS
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._strict import OPTIONALS, STRICT_TOOLS, UNIONS, Budget, schema_problems

LEAST_BUDGET = 1024
FORCING = ("any", "tool")
SAMPLING: Mapping[str, tuple[Any, ...]] = {"temperature": (1, 1.0), "top_p": (1, 1.0, 0.99), "top_k": ()}
"""Sampling parameters, and the values that say nothing."""


def a1(request: Request) -> Iterator[Violation]:
    """Something to answer, and room for it."""
    if not request.messages:
        yield Violation("A1", "messages", "messages: at least one message is required")
    if request.counting:
        return
    asked, most = cast("int", request.body["max_tokens"]), request.model.max_output
    if asked < 0:
        yield Violation("A1", "max_tokens", "max_tokens: Input should be greater than or equal to 0")
    elif asked > most:
        what = f"{asked} > {most}, which is the maximum allowed number of output tokens for {request.model.name}"
        yield Violation("A1", "max_tokens", f"max_tokens: {what}")
    elif asked == 0 and (found := _no_warming(request)):
        yield Violation("A1", "max_tokens", f"max_tokens: 0 is not supported with {found}")


def _no_warming(request: Request) -> str | None:
    """Return what keeps the cache from being warmed without a reply."""
    config = cast("Mapping[str, Any]", request.body.get("output_config") or {})
    if request.body.get("stream"):
        return "`stream`"
    if request.thinking == "enabled":
        return "`thinking.type: enabled`"
    if config.get("format"):
        return "`output_config.format`"
    return f"`tool_choice.type: {request.choice['type']}`" if request.choice["type"] in FORCING else None


def a14(request: Request) -> Iterator[Violation]:
    """Thinking: the types that the model takes, its budget, what it goes together with."""
    asked = cast("Mapping[str, Any] | None", request.body.get("thinking"))
    kind, model = request.thinking, request.model
    if asked is not None and kind not in model.thinking:
        what = f'"thinking.type.{kind}" is not supported for this model. Use "thinking.type.{model.thinking[0]}".'
        yield Violation("A14", "thinking.type", what)
    elif kind == "enabled" and asked is not None:
        yield from _budget(request, cast("int", asked["budget_tokens"]))
        if request.choice["type"] in FORCING:
            yield Violation("A14", "tool_choice", "Thinking may not be enabled when tool_choice forces tool use.")
    elif kind == "disabled" and request.effort and EFFORTS.index(request.effort) > EFFORTS.index(model.disabled_upto):
        what = f"thinking cannot be disabled at effort {request.effort!r}; at most {model.disabled_upto!r}"
        yield Violation("A14", "thinking.type", what)


def _budget(request: Request, budget: int) -> Iterator[Violation]:
    if budget < LEAST_BUDGET:
        path = "thinking.enabled.budget_tokens"
        yield Violation("A14", path, f"{path}: Input should be greater than or equal to {LEAST_BUDGET}")
    elif not request.counting and budget >= request.body["max_tokens"] > 0:
        yield Violation("A14", "max_tokens", "`max_tokens` must be greater than `thinking.budget_tokens`.")


def a15(request: Request) -> Iterator[Violation]:
    """Tool choice: what the model takes, with tools, of a tool that is there."""
    choice = request.body.get("tool_choice")
    if not choice:
        return
    kind = choice["type"]
    if not request.tools:
        yield Violation("A15", "tool_choice", "tool_choice: may only be specified while providing tools.")
    elif kind in FORCING and not request.model.forced_tool:
        what = f"tool_choice.type: '{kind}' is not supported by {request.model.name}; use 'auto' or 'none'"
        yield Violation("A15", "tool_choice.type", what)
    elif kind == "tool" and choice["name"] not in {tool.get("name") for tool in request.tools}:
        what = f"Tool '{choice['name']}' not found in provided tools"
        yield Violation("A15", "tool_choice.name", what)


def a16(request: Request) -> Iterator[Violation]:
    """Sampling parameters, where the model or the version of the API has none."""
    recent = request.version == RECENT_VERSION
    for name, harmless in SAMPLING.items():
        value = request.body.get(name)
        if value is None or (request.model.sampling and not recent) or (value in harmless and not recent):
            continue
        what = "is not supported by this version of the API" if recent else f"is not supported by {request.model.name}"
        yield Violation("A16", name, f"{name}: {what}")


def a17(request: Request) -> Iterator[Violation]:
    """Schemas that the reply has to follow."""
    budget = Budget()
    config = cast("Mapping[str, Any]", request.body.get("output_config") or {})
    if config.get("format"):
        yield from _schema(config["format"]["schema"], "output_config.format.schema", budget)
    strict = [(number, tool) for number, tool in enumerate(request.tools) if tool.get("strict")]
    if len(strict) > STRICT_TOOLS:
        yield Violation("A17", "tools", f"tools: {len(strict)} strict tools; at most {STRICT_TOOLS}")
    for number, tool in strict:
        yield from _schema(tool["input_schema"], f"tools.{number}.custom.input_schema", budget)
    for what, used, most in (("optional parameters", budget.optional, OPTIONALS), ("unions", budget.unions, UNIONS)):
        if used > most:
            yield Violation("A17", "", f"Schemas have {used} {what} in total; at most {most}")


def _schema(schema: Mapping[str, Any], path: str, budget: Budget) -> Iterator[Violation]:
    for problem in schema_problems(schema, budget):
        where = ".".join((path, *problem.path))
        yield Violation("A17", where, f"{where}: {problem.what}")


def a20(request: Request, prompt_tokens: int) -> Iterator[Violation]:
    """The window. Called with what the prompt counts."""
    model = request.model
    if prompt_tokens > model.prompt_limit:
        what = f"prompt is too long: {prompt_tokens} tokens > {model.prompt_limit} maximum"
        yield Violation("A20", "", what)
        return
    asked = 0 if request.counting else cast("int", request.body["max_tokens"])
    if not model.clips and prompt_tokens + asked > model.window:
        yield Violation(
            "A20",
            "",
            f"input length and `max_tokens` exceed context limit: {prompt_tokens} + {asked} > {model.window}, "
            "decrease input length or `max_tokens` and try again",
        )


def a21(request: Request) -> Iterator[Violation]:
    """What the newer version of the API does not take."""
    if request.version != RECENT_VERSION:
        return
    for run in request.runs:
        for piece in run.pieces:
            if what := _gone(run.role, piece):
                yield Violation("A21", piece.path, f"{piece.path}: {what} since version {RECENT_VERSION}")


def _gone(role: str, piece: Piece) -> str | None:
    if role == "assistant" and piece.kind == "document":
        return "'document' blocks are not permitted in assistant messages"
    if role == "user" and piece.kind == "text" and piece.block.get("citations"):
        return "`citations` are not permitted on text blocks of user messages"
    return None
