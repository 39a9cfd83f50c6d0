"""What may be asked of a model: O8 to O13, and what this server does not do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from shoal.testing.wire._json import Json, arr, obj
from shoal.testing.wire._models import Model
from shoal.testing.wire._openai._chat_request import Request, parts_of
from shoal.testing.wire._openai._schemas import strict_problems
from shoal.testing.wire._rules import Violation, warning

FORMAT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_logprobs": (0, 20),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "n": (1, 128),
}
STOPS = 4
PAIRS, KEY_CHARS, VALUE_CHARS = 16, 64, 512
SAMPLING: Mapping[str, float] = {"temperature": 1, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0}
UNSIMULATED = ("audio", "functions", "function_call", "web_search_options")


def unsimulated(request: Request) -> Iterator[Violation]:
    """Name what the vendor has and this server has not."""
    for name in UNSIMULATED:
        if request.body.get(name):
            yield Violation("unsimulated", name, f"this server does not simulate '{name}'")
    if (request.body.get("n") or 1) > 1:
        yield Violation("unsimulated", "n", "this server gives one choice")
    if request.body.get("logprobs"):
        yield Violation("unsimulated", "logprobs", "this server does not simulate 'logprobs'")


def o8(request: Request) -> Iterator[Violation]:
    """A choice of tools is for tools, and of one that is there."""
    body = request.body
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and not request.tools:
            what = f"'{name}' is only allowed when 'tools' are specified."
            yield Violation("O8", name, f"Invalid value for '{name}': {what}")
    named = request.choice not in ("auto", "any", "none")
    if named and request.tools and request.choice not in {function["name"] for _, function in request.functions}:
        what = f"Tool choice '{request.choice}' not found in 'tools' parameter."
        yield Violation("O8", "tool_choice", what)


def o9(request: Request) -> Iterator[Violation]:
    """Numbers within their ranges, lists within their lengths."""
    body = request.body
    for name, (low, high) in RANGES.items():
        value = body.get(name)
        if value is not None and not low <= value <= high:
            wanted = f"above maximum value. Expected a value <= {high}" if value > high else ""
            wanted = wanted or f"below minimum value. Expected a value >= {low}"
            yield Violation("O9", name, f"Invalid '{name}': decimal {wanted}, but got {value} instead.")
    stop = arr(body.get("stop"))
    if not isinstance(stop, str) and len(stop) > STOPS:
        what = f"Expected an array with maximum length {STOPS}, but got an array with length {len(stop)} instead."
        yield Violation("O9", "stop", f"Invalid 'stop': array too long. {what}")
    if request.budget is not None and request.budget > request.model.max_output:
        most = request.model.max_output
        what = f"This model supports at most {most} completion tokens, whereas you provided {request.budget}."
        yield Violation("O9", "max_completion_tokens", f"max_tokens is too large: {request.budget}. {what}")
    yield from metadata_problems(obj(body.get("metadata")))


def metadata_problems(pairs: Json) -> Iterator[Violation]:
    if len(pairs) > PAIRS:
        yield Violation("O9", "metadata", f"Invalid 'metadata': too many properties: {len(pairs)} > {PAIRS}.")
    for key, value in pairs.items():
        if len(key) > KEY_CHARS or len(value) > VALUE_CHARS:
            what = f"at most {KEY_CHARS} characters for a key and {VALUE_CHARS} for a value"
            yield Violation("O9", f"metadata.{key}", f"Invalid 'metadata.{key}': string too long; {what}.")


def o10(request: Request) -> Iterator[Violation]:
    """Reasoning models have parameters of their own."""
    body = request.body
    if not request.model.reasoning:
        if body.get("reasoning_effort") and request.model.vendor == "openai":
            yield Violation("O10", "reasoning_effort", _unsupported("reasoning_effort", ""))
        return
    if body.get("max_tokens") is not None:
        yield Violation("O10", "max_tokens", _unsupported("max_tokens", " Use 'max_completion_tokens' instead."))
    if body.get("stop") is not None:
        yield Violation("O10", "stop", _unsupported("stop", ""))
    for name, default in SAMPLING.items():
        value = body.get(name)
        if value is not None and value != default:
            what = f"does not support {value} with this model. Only the default ({default}) value is supported."
            yield Violation("O10", name, f"Unsupported value: '{name}' {what}")
    for number, message in enumerate(request.messages):
        if message["role"] == "system":
            path = f"messages[{number}].role"
            yield warning("O10", path, f"{path}: 'system' is converted to 'developer' for this model")


def _unsupported(name: str, instead: str) -> str:
    return f"Unsupported parameter: '{name}' is not supported with this model.{instead}"


def o11(request: Request) -> Iterator[Violation]:
    """Schemas of formats and functions."""
    wanted = obj(request.body.get("response_format"))
    if wanted.get("type") == "json_object" and "json" not in _texts(request).lower():
        what = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
        yield Violation("O11", "messages", what)
    if wanted.get("type") == "json_schema":
        yield from format_problems("O11", wanted["json_schema"], "response_format", "response_format.json_schema.name")
    for path, function in request.functions:
        if function.get("strict"):
            for what in strict_problems(obj(function.get("parameters"))):
                yield Violation(
                    "O11", f"{path}.parameters", f"Invalid schema for function '{function['name']}': {what}"
                )


def format_problems(rule: str, wanted: Json, what: str, path: str) -> Iterator[Violation]:
    """Yield what is wrong with a JSON Schema that a reply has to follow."""
    if not FORMAT_NAME.fullmatch(wanted["name"]):
        pattern = f"Expected a string that matches the pattern '^{FORMAT_NAME.pattern}$'."
        yield Violation(rule, path, f"Invalid '{path}': string does not match pattern. {pattern}")
    if wanted.get("strict"):
        for problem in strict_problems(obj(wanted.get("schema"))):
            yield Violation(rule, what, f"Invalid schema for {what} '{wanted['name']}': {problem}")


def _texts(request: Request) -> str:
    return "\n".join(
        part["text"] for message in request.messages for _, part in parts_of(message, "") if part["type"] == "text"
    )


def o12(request: Request) -> Iterator[Violation]:
    """Options of streams are for streams."""
    if request.body.get("stream_options") is not None and not request.body.get("stream"):
        what = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield Violation("O12", "stream_options", what)


def o13(request: Request) -> Iterator[Violation]:
    """Breakpoints are for models that cache at breakpoints."""
    if request.model.breakpoints:
        return
    if request.body.get("prompt_cache_options"):
        yield Violation("O13", "prompt_cache_options", _unsupported("prompt_cache_options", ""))
    for number, message in enumerate(request.messages):
        for path, part in parts_of(message, f"messages[{number}]"):
            if part.get("prompt_cache_breakpoint"):
                yield Violation("O13", path, _unsupported(f"{path}.prompt_cache_breakpoint", ""))


def too_long_prompt(model: Model, tokens: int, budget: int | None) -> Violation | None:
    """Return what is said of a prompt that does not fit; `None` if it does."""
    if tokens <= model.prompt_limit:
        return None
    asked = f" ({tokens} in the messages, {budget} in the completion)" if budget else ""
    return Violation(
        "window",
        "messages",
        f"This model's maximum context length is {model.prompt_limit} tokens. However, you requested {tokens} tokens"
        f"{asked}. Please reduce the length of the messages or completion.",
    )
