"""What may be asked of a model: R4 to R8, what Chat Completions have as well, and the transport that keeps nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shoal.testing.wire._json import obj
from shoal.testing.wire._openai._chat_options import SAMPLING, format_problems, metadata_problems
from shoal.testing.wire._openai._chat_rules import FUNCTIONS, NAME, NAME_CHARS, too_long
from shoal.testing.wire._openai._errors import CODES, bracketed, problem_message
from shoal.testing.wire._openai._responses_request import Item, Request, parts_of
from shoal.testing.wire._openai._schemas import strict_problems
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._shape import Problem, shape

LEAST_OUTPUT = 16
TEXT_CHARS = 10_485_760
IMAGE_CHARS = 20_971_520
FILE_CHARS = 73_400_320
UNSIMULATED = ("background", "conversation", "prompt", "context_management")
CODEX_REFUSES = (
    "background",
    "max_output_tokens",
    "metadata",
    "previous_response_id",
    "prompt_cache_options",
    "safety_identifier",
    "temperature",
    "top_p",
    "truncation",
)


def shape_violations(body: Any, *, counting: bool) -> list[tuple[Violation, str]]:
    """Return what is wrong with the shape of *body*, each with the vendor's code."""
    if not isinstance(body, dict):
        return [(Violation("schema", "", "The body must be a JSON object."), CODES["type"])]
    known = shape("responses")
    found = known.problems(body, known.other if counting else None)
    made = [
        (Violation(_rule(problem), bracketed(problem.keys), problem_message(problem)), CODES[problem.kind])
        for problem in found
    ]
    for name in ("model", "input"):
        if not obj(body).get(name) and not (name == "input" and obj(body).get("previous_response_id")):
            what = f"Missing required parameter: '{name}'."
            made.append((Violation("schema", name, what), CODES["missing"]))
    return made


def _rule(problem: Problem) -> str:
    if problem.keys[:1] == ("tools",):
        return "R6"
    return "unknown" if problem.kind == "unknown" else "schema"


def unsimulated(request: Request) -> Iterator[Violation]:
    """Name what the vendor has and this server has not."""
    for name in UNSIMULATED:
        if request.body.get(name) and not (name == "conversation" and request.body.get("previous_response_id")):
            yield Violation("unsimulated", name, f"this server does not simulate '{name}'")
    if request.body.get("truncation") == "auto":
        yield Violation("unsimulated", "truncation", "this server does not simulate 'truncation: auto'")


def r4(request: Request) -> Iterator[Violation]:
    """A request goes on from a response, or stands in a conversation."""
    body = request.body
    if body.get("previous_response_id") and body.get("conversation"):
        both = "'previous_response_id' and 'conversation'"
        what = f"Mutually exclusive parameters: {both}. Ensure you are only providing one of them."
        yield Violation("R4", "previous_response_id", what)
        return
    previous = body.get("previous_response_id")
    if previous is not None:
        known = request.memory.responses.get(previous)
        if known is None or not known.stored:
            yield Violation("R4", "previous_response_id", f"Previous response with id '{previous}' not found.")


def r5(request: Request) -> Iterator[Violation]:
    """A reply has room for something, and no more than the model can say."""
    asked = request.body.get("max_output_tokens")
    if asked is None:
        return
    if asked < LEAST_OUTPUT:
        what = f"integer below minimum value. Expected a value >= {LEAST_OUTPUT}, but got {asked} instead."
        yield Violation("R5", "max_output_tokens", f"Invalid 'max_output_tokens': {what}")
    elif asked > request.model.max_output:
        what = f"This model supports at most {request.model.max_output} completion tokens"
        yield Violation("R5", "max_output_tokens", f"max_output_tokens is too large: {asked}. {what}.")


def r6(request: Request) -> Iterator[Violation]:
    """Tools are flat, and named as functions are."""
    if len(request.functions) > FUNCTIONS:
        what = f"Expected an array with maximum length {FUNCTIONS}, but got an array with length {len(request.tools)}"
        yield Violation("R6", "tools", f"Invalid 'tools': array too long. {what} instead.")
    for path, function in request.functions:
        name = function["name"]
        if not NAME.fullmatch(name):
            what = f"Expected a string that matches the pattern '^{NAME.pattern}$'."
            yield Violation("R6", f"{path}.name", f"Invalid '{path}.name': string does not match pattern. {what}")
        elif len(name) > NAME_CHARS:
            yield Violation("R6", f"{path}.name", too_long(f"{path}.name", name, NAME_CHARS))
    named = request.choice not in ("auto", "any", "none")
    if named and request.choice not in {function["name"] for _, function in request.functions}:
        yield Violation("R6", "tool_choice", f"Tool choice '{request.choice}' not found in 'tools' parameter.")


LIMITS: Mapping[str, int] = {"text": TEXT_CHARS, "image_url": IMAGE_CHARS, "file_data": FILE_CHARS}


def r7(request: Request) -> Iterator[Violation]:
    """Texts, images and files have their limits."""
    for item in request.own_items:
        for field in ("content", "output"):
            held = item.value.get(field)
            if field == "output" and isinstance(held, str) and len(held) > TEXT_CHARS:
                yield Violation("R7", f"{item.path}.output", too_long(f"{item.path}.output", held, TEXT_CHARS))
            for path, part in parts_of(held, f"{item.path}.{field}") if not isinstance(held, str) else ():
                for name, most in LIMITS.items():
                    if len(part.get(name) or "") > most:
                        yield Violation("R7", f"{path}.{name}", too_long(f"{path}.{name}", part[name], most))


def r8(request: Request) -> Iterator[Violation]:
    """Schemas that a reply or a call has to follow."""
    if request.format.get("type") == "json_schema":
        yield from format_problems("R8", request.format, "text.format", "text.format.name")
    for path, function in request.functions:
        if function.get("strict"):
            for what in strict_problems(obj(function.get("parameters"))):
                message = f"Invalid schema for function '{function['name']}': {what}"
                yield Violation("R8", f"{path}.parameters", message)


def shared(request: Request) -> Iterator[Violation]:
    """Yield what Chat Completions refuse as well: O9, O10, O12, O13."""
    body, model = request.body, request.model
    yield from metadata_problems(obj(body.get("metadata")))
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if model.reasoning and value is not None and value != SAMPLING[name]:
            what = f"Unsupported parameter: '{name}' is not supported with this model."
            yield Violation("O10", name, what)
    if body.get("reasoning") and not model.reasoning:
        yield Violation("O10", "reasoning", "Unsupported parameter: 'reasoning' is not supported with this model.")
    if body.get("stream_options") is not None and not body.get("stream"):
        yield Violation(
            "O12", "stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        )
    if not model.breakpoints:
        yield from _breakpoints(request)


def _breakpoints(request: Request) -> Iterator[Violation]:
    what = "is not supported with this model."
    if request.body.get("prompt_cache_options"):
        yield Violation("O13", "prompt_cache_options", f"Unsupported parameter: 'prompt_cache_options' {what}")
    for item in request.own_items:
        for path in _marked(item):
            yield Violation("O13", path, f"Unsupported parameter: '{path}.prompt_cache_breakpoint' {what}")


def _marked(item: Item) -> list[str]:
    """Return the paths of the parts of *item* that have a breakpoint."""
    held = [(field, item.value.get(field)) for field in ("content", "output")]
    parts = [part for field, value in held for part in parts_of(value, f"{item.path}.{field}")]
    return [path for path, part in parts if part.get("prompt_cache_breakpoint")]


def codex(request: Request) -> Iterator[Violation]:
    """What the transport asks for that keeps nothing."""
    if not request.codex:
        return
    body = request.body
    for name, wanted, what in (
        ("store", False, "Store must be set to false"),
        ("stream", True, "Stream must be set to true"),
    ):
        if body.get(name) is not wanted:
            yield Violation("codex", name, what)
    if not body.get("instructions"):
        yield Violation("codex", "instructions", "Instructions are required")
    for name in CODEX_REFUSES:
        if body.get(name) is not None:
            yield Violation("codex", name, f"Unsupported parameter: {name}")
    for item in request.own_items:
        for path in _marked(item):
            yield Violation("codex", path, "Unsupported parameter: prompt_cache_breakpoint")
