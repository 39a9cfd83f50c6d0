"""Messages, calls and their results: O1 to O7."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from shoal.testing.wire._json import Json, obj
from shoal.testing.wire._openai._chat_request import Request, calls_of
from shoal.testing.wire._openai._errors import bracketed, problem_message
from shoal.testing.wire._rules import Violation, warning
from shoal.testing.wire._shape import Problem, shape

NAME = re.compile(r"[a-zA-Z0-9_-]+")
NINE = re.compile(r"[a-zA-Z0-9]{9}")
FUNCTIONS = 128
NAME_CHARS = 64


def shape_violations(body: Any, echo: str | None) -> list[tuple[Violation, str]]:
    """Return what is wrong with the shape of *body*, each with the problem's kind.

    Args:
        body: The JSON that came.
        echo: A field of assistant messages that OpenAI does not have.
    """
    if not isinstance(body, dict):
        return [(Violation("schema", "", "The body must be a JSON object."), "type")]
    return [
        (Violation(_rule(problem, obj(body)), bracketed(problem.keys), problem_message(problem)), problem.kind)
        for problem in shape("chat").problems(body)
        if not (problem.kind == "unknown" and problem.keys[::2] == ("messages", echo))
    ]


def _rule(problem: Problem, body: Json) -> str:
    match problem.kind, problem.keys:
        case "missing", ("model" | "messages",):
            return "O1"
        case _, ("messages", int(), "role"):
            return "O1"
        case "unknown", _:
            return "unknown"
        case _, (*_, "tool_calls", int(), "function", "arguments"):
            return "O4"
        case _, ("messages", int(number), "content", *_) if body["messages"][number].get("role") == "tool":
            return "O6"
        case _:
            return "schema"


def o1(request: Request) -> Iterator[Violation]:
    """There is something to answer."""
    if not request.messages:
        what = "Expected an array with minimum length 1, but got an empty array instead."
        yield Violation("O1", "messages", f"Invalid 'messages': empty array. {what}")


def o2(request: Request) -> Iterator[Violation]:
    """A tool message answers a call of the assistant message before it, once."""
    open_ids: list[str] = []
    calling = False
    for number, message in enumerate(request.messages):
        path = f"messages.[{number}].role"
        if message["role"] != "tool":
            open_ids = [call["id"] for call in calls_of(message)]
            calling = bool(open_ids)
        elif not calling:
            what = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
            yield Violation("O2", path, f"Invalid parameter: {what}")
        elif message["tool_call_id"] not in open_ids:
            what = f"'tool_call_id' of '{message['tool_call_id']}' not found in 'tool_calls' of previous message."
            yield Violation("O2", path, f"Invalid parameter: {what}")
        else:
            open_ids.remove(message["tool_call_id"])


def o3(request: Request) -> Iterator[Violation]:
    """Each call is answered before anything else is said."""
    messages = request.messages
    for number, message in enumerate(messages):
        if not calls_of(message):
            continue
        answered: set[str] = set()
        for later in messages[number + 1 :]:
            if later["role"] != "tool":
                break
            answered.add(later["tool_call_id"])
        missing = [call["id"] for call in calls_of(message) if call["id"] not in answered]
        if missing:
            what = (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(missing)}"
            )
            yield Violation("O3", f"messages.[{number}].role", what)


def o4(request: Request) -> Iterator[Violation]:
    """Arguments are the text of a JSON object, never an empty one."""
    for number, message in enumerate(request.messages):
        for place, call in enumerate(calls_of(message)):
            if call["type"] != "function":
                continue
            path = f"messages[{number}].tool_calls[{place}].function.arguments"
            text = call["function"]["arguments"]
            if not text.strip():
                yield Violation(
                    "O4", path, f"Invalid '{path}': empty string. Send '{{}}' for a call without arguments."
                )
            elif not _is_object(text):
                found = Violation if request.flavour.empty_arguments == 500 else warning
                yield found("O4", path, f"Failed to parse tool call arguments as JSON: {path} is no object")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def o5(request: Request) -> Iterator[Violation]:
    """Content is there, unless there are calls or a refusal; no list is empty."""
    for number, message in enumerate(request.messages):
        path = f"messages[{number}]"
        if message.get("content") == []:
            yield Violation("O5", f"{path}.content", f"Invalid '{path}.content': empty array.")
        if message.get("tool_calls") == []:
            what = "empty array. Expected an array with minimum length 1, but got an empty array instead."
            yield Violation("O5", f"{path}.tool_calls", f"Invalid '{path}.tool_calls': {what}")
        if message.get("content") is None and not any(message.get(key) for key in ("tool_calls", "refusal", "audio")):
            yield Violation("O5", f"{path}.content", "Invalid value for 'content': expected a string, got null.")


def o7(request: Request) -> Iterator[Violation]:
    """Names of functions, how many there are, and ids of calls."""
    if len(request.functions) > FUNCTIONS:
        what = f"Expected an array with maximum length {FUNCTIONS}, but got an array with length {len(request.tools)}"
        yield Violation("O7", "tools", f"Invalid 'tools': array too long. {what} instead.")
    for path, function in request.functions:
        yield from _name(function["name"], f"{path}.name")
    for number, message in enumerate(request.messages):
        for place, call in enumerate(calls_of(message)):
            path = f"messages[{number}].tool_calls[{place}]"
            yield from _id(request, call["id"], f"{path}.id")
            if call["type"] == "function":
                yield from _name(call["function"]["name"], f"{path}.function.name")


def _name(name: str, path: str) -> Iterator[Violation]:
    if not NAME.fullmatch(name):
        what = f"Expected a string that matches the pattern '^{NAME.pattern}$'."
        yield Violation("O7", path, f"Invalid '{path}': string does not match pattern. {what}")
    elif len(name) > NAME_CHARS:
        yield Violation("O7", path, too_long(path, name, NAME_CHARS))


def _id(request: Request, call_id: str, path: str) -> Iterator[Violation]:
    if request.flavour.call_id == "nine":
        if not NINE.fullmatch(call_id):
            what = f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
            yield Violation("O7", path, what)
    elif not 0 < len(call_id) <= request.flavour.id_limit:
        yield Violation("O7", path, too_long(path, call_id, request.flavour.id_limit))


def too_long(path: str, text: str, most: int) -> str:
    """Return what is said of a string that is too long, or empty."""
    if not text:
        return f"Invalid '{path}': empty string. Expected a string with minimum length 1."
    return (
        f"Invalid '{path}': string too long. Expected a string with maximum length {most}, "
        f"but got a string with length {len(text)} instead."
    )
