"""What may be asked of a model: names, settings that agree with each other, forms, and what this server does not do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from shoal.testing.wire._gemini._errors import snaked
from shoal.testing.wire._gemini._request import CALL, RESPONSE, Request, standard
from shoal.testing.wire._json import arr
from shoal.testing.wire._rules import Violation

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]*")
STOPS = 5
RANGES: Mapping[str, tuple[float, float]] = {"temperature": (0, 2), "topP": (0, 1), "candidateCount": (1, 8)}
NAMING_MODES = ("ANY", "VALIDATED")
FORMS = ("responseSchema", "responseJsonSchema")


def unsimulated(request: Request) -> Iterator[Violation]:
    """Name what the vendor has and this server has not."""
    for path, tool in request.tools:
        for name in tool:
            if name != "functionDeclarations":
                yield Violation("unsimulated", path, f"this server does not simulate '{name}'")
    generation = request.generation
    for name in ("responseLogprobs", "speechConfig", "responseFormat"):
        if generation.get(name):
            yield Violation("unsimulated", "generation_config", f"this server does not simulate '{name}'")
    if (generation.get("candidateCount") or 1) > 1:
        yield Violation("unsimulated", "generation_config.candidate_count", "this server gives one candidate")
    if set(arr(generation.get("responseModalities"))) - {"TEXT"}:
        yield Violation("unsimulated", "generation_config.response_modalities", "this server answers in text")


def g6(request: Request) -> Iterator[Violation]:
    """Names of functions: how they look, how long they are, each once."""
    most = 128 if request.model.signatures else 64
    seen: set[str] = set()
    for path, function in request.functions:
        name = function.get("name") or ""
        yield from _name(name, f"{path}.name", most)
        if name in seen:
            yield Violation("G6", path, f"Duplicate function declaration found: {name}")
        seen.add(name)
    for turn in request.contents:
        for piece in (*turn.of(CALL), *turn.of(RESPONSE)):
            if name := piece.held.get("name"):
                yield from _name(name, f"{piece.path}.{snaked(piece.kind)}.name", most)


def _name(name: str, path: str, most: int) -> Iterator[Violation]:
    if not NAME.fullmatch(name) or len(name) > most:
        what = (
            "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
            f"underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of {most}."
        )
        yield Violation("G6", path, f"* GenerateContentRequest.{path}: {what}")


def g8(request: Request) -> Iterator[Violation]:
    """Settings agree with each other and with the model."""
    yield from _thinking(request)
    yield from _calling(request)
    generation = request.generation
    for name, (low, high) in RANGES.items():
        value = generation.get(name)
        if value is not None and not low <= value <= high:
            what = f"it has a {name} value of {value} but the supported range is from {low} to {high}."
            yield Violation("G8", f"generation_config.{snaked(name)}", f"Unable to submit request because {what}")
    asked, most = generation.get("maxOutputTokens"), request.model.max_output
    if asked is not None and not 0 < asked <= most:
        what = f"a maxOutputTokens value of {asked} but the supported range is from 1 to {most}"
        yield Violation("G8", "generation_config.max_output_tokens", f"Unable to submit request because it has {what}.")
    if len(arr(generation.get("stopSequences"))) > STOPS:
        what = f"The number of stop sequences must be at most {STOPS}."
        yield Violation("G8", "generation_config.stop_sequences", f"Unable to submit request: {what}")


def _thinking(request: Request) -> Iterator[Violation]:
    level = request.thinking.get("thinkingLevel")
    path = "generation_config.thinking_config"
    if level is not None and request.thinking.get("thinkingBudget") is not None:
        yield Violation("G8", path, "You can only set only one of thinking budget and thinking level.")
    if level is not None and not request.model.signatures:
        yield Violation("G8", path, "Thinking level is not supported for this model.")


def _calling(request: Request) -> Iterator[Violation]:
    path = "tool_config.function_calling_config"
    allowed = arr(request.calling.get("allowedFunctionNames"))
    if request.calling and not request.functions:
        yield Violation("G8", path, "Function calling config is set without function_declarations.")
    if allowed and request.calling.get("mode") not in NAMING_MODES:
        what = "Please set allowed_function_names only when function calling mode is ANY or VALIDATED."
        yield Violation("G8", f"{path}.allowed_function_names", what)
    declared = {function.get("name") for _, function in request.functions}
    for name in allowed:
        if name not in declared:
            what = f"allowed_function_names has '{name}', which is not declared."
            yield Violation("G8", f"{path}.allowed_function_names", what)


def g9(request: Request) -> Iterator[Violation]:
    """A form for the reply is for models that take it, with or without tools."""
    generation = request.generation
    forms = [name for name in FORMS if generation.get(name) is not None]
    mime = generation.get("responseMimeType") or "text/plain"
    path = "generation_config.response_mime_type"
    if len(forms) > 1:
        yield Violation("G9", "generation_config", f"only one of {FORMS[0]} and {FORMS[1]} may be set.")
    if forms and mime == "text/plain":
        what = f"{snaked(forms[0])} is only supported with response_mime_type 'application/json'."
        yield Violation("G9", path, what)
    if mime not in ("text/plain", "application/json", "text/x.enum"):
        what = "allowed mimetypes are `text/plain`, `application/json`, and `text/x.enum`."
        yield Violation("G9", path, f"* GenerateContentRequest.{path}: {what}")
    if mime == "application/json" and request.functions and not request.model.schema_with_tools:
        what = "Function calling with a response mime type: 'application/json' is unsupported"
        yield Violation("G9", path, what)


def continuation(request: Request) -> Iterator[Violation]:
    """A reply is only continued from where this server stopped it."""
    token = request.body.get("continuationToken")
    facts = request.seals.read(standard(token)) if token is not None else {"continues": request.model.name}
    if facts is None or facts.get("continues") != request.model.name:
        yield Violation("continuation", "continuation_token", "The continuation token is not valid.")
