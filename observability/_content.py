"""Prompts and outputs as attributes, for users who turned that on: bounded, and as one JSON text each.

Source: OpenTelemetry semantic conventions for generative AI, JSON schemas of input and output messages.
"""

from __future__ import annotations

from collections import deque
from typing import Any, final

import msgspec

from shoal.observability._spans import clip
from shoal.runtime.events import CallMade, InferenceCompleted

MOST_CONTENT_CHARS = 8_192
"""Longest text of one message."""
MOST_MESSAGES = 16
"""Most messages of one request; the newest stay."""

_encode = msgspec.json.Encoder().encode


@final
class Heard:
    """What came to a run since its last request: the rest of the prompt was in the requests before."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: deque[dict[str, Any]] = deque(maxlen=MOST_MESSAGES)

    def say(self, text: object) -> None:
        """Add something that was said to the model."""
        self._messages.append({"role": "user", "parts": [{"type": "text", "content": content(text)}]})

    def answer(self, call_id: str, text: object) -> None:
        """Add the result of a call."""
        part = {"type": "tool_call_response", "id": call_id, "response": content(text)}
        self._messages.append({"role": "tool", "parts": [part]})

    def take(self) -> str:
        """Return what was added since, as JSON, and forget it."""
        said = _encode(list(self._messages)).decode()
        self._messages.clear()
        return said


def content(text: object) -> str:
    """Return *text* cut to what one message may hold."""
    return clip(str(text), MOST_CONTENT_CHARS)


def output(completed: InferenceCompleted, call_ids: list[str]) -> str:
    """Return the reply as JSON; *call_ids* are the ids of its calls, in order."""
    parts: list[dict[str, str]] = []
    if completed.reasoning:
        parts.append({"type": "reasoning", "content": content(completed.reasoning)})
    if completed.text:
        parts.append({"type": "text", "content": content(completed.text)})
    parts.extend(_call(call_id, made) for call_id, made in zip(call_ids, completed.calls, strict=True))
    return _encode([{"role": "assistant", "parts": parts, "finish_reason": completed.finish}]).decode()


def _call(call_id: str, made: CallMade) -> dict[str, str]:
    return {"type": "tool_call", "id": call_id, "name": made.name, "arguments": content(made.arguments)}
