"""Prompts and outputs as attributes, for users who turned that on: bounded, and as one JSON text each.

Source: OpenTelemetry semantic conventions for generative AI, JSON schemas of input and output messages.
"""

from __future__ import annotations

from collections import deque
from typing import Any, final

import msgspec

from shoal.observability._redact import Redactor
from shoal.observability._spans import clip
from shoal.runtime.events import CallMade, InferenceCompleted

MOST_CONTENT_CHARS = 8_192
"""Longest text of one message."""
MOST_MESSAGES = 16
"""Most messages of one request; the newest stay."""

_LONGEST_SECRET = 8_192

_encode = msgspec.json.Encoder().encode


@final
class Heard:
    """What came to a run since its last request: the rest of the prompt was in the requests before.

    Args:
        redact: Strikes secrets out.
    """

    __slots__ = ("_messages", "_redact")

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._messages: deque[dict[str, Any]] = deque(maxlen=MOST_MESSAGES)

    def say(self, text: object) -> None:
        """Add something that was said to the model."""
        self._messages.append({"role": "user", "parts": [{"type": "text", "content": content(text, self._redact)}]})

    def answer(self, call_id: str, text: object) -> None:
        """Add the result of a call."""
        part = {"type": "tool_call_response", "id": call_id, "response": content(text, self._redact)}
        self._messages.append({"role": "tool", "parts": [part]})

    def take(self) -> str:
        """Return what was added since, as JSON, and forget it."""
        said = _encode(list(self._messages)).decode()
        self._messages.clear()
        return said


def call_id(source: int, index: int) -> str:
    """Return the id that the runtime gives call *index* of the reply *source*."""
    return f"call_{source}_{index}"


def content(text: object, redact: Redactor) -> str:
    """Return *text* without secrets and cut to what one message may hold."""
    # Struck out before it is cut, since half a secret looks like none; and not all of a text that is far too long.
    return clip(redact(str(text)[: MOST_CONTENT_CHARS + _LONGEST_SECRET]), MOST_CONTENT_CHARS)


def output(completed: InferenceCompleted, seq: int, redact: Redactor) -> str:
    """Return the reply *seq* as JSON."""
    parts: list[dict[str, str]] = []
    if completed.reasoning:
        parts.append({"type": "reasoning", "content": content(completed.reasoning, redact)})
    if completed.text:
        parts.append({"type": "text", "content": content(completed.text, redact)})
    parts.extend(_call(call_id(seq, index), made, redact) for index, made in enumerate(completed.calls))
    return _encode([{"role": "assistant", "parts": parts, "finish_reason": completed.finish}]).decode()


def _call(its_id: str, made: CallMade, redact: Redactor) -> dict[str, str]:
    return {"type": "tool_call", "id": its_id, "name": made.name, "arguments": content(made.arguments, redact)}
