"""Calls and their results: no request may hold one without the other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.providers import Message, ToolCall


def paired(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return *messages* without calls that nothing answers right behind them, and without answers to no such call.

    Of calls under one id the first counts. A message of which nothing is left goes too.
    """
    kept: list[Message] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        if message.role == "tool":
            continue  # it comes with the turn that asked for it, or not at all
        answers = _answers_behind(messages, at)
        calls: list[ToolCall] = []
        for call in message.calls:
            if call.call_id in answers and call.call_id not in seen:
                seen.add(call.call_id)
                calls.append(call)
        if len(calls) < len(message.calls):
            message = msgspec.structs.replace(message, calls=tuple(calls), _digest=b"", _wire=None)  # noqa: PLW2901
        if message.texts or calls:
            kept += [message, *(answers[call.call_id] for call in calls)]
    return tuple(kept)


def _answers_behind(messages: Sequence[Message], at: int) -> dict[str, Message]:
    """Return the results that stand right behind message *at*, by the call that they answer; the first of each."""
    answers: dict[str, Message] = {}
    for message in messages[at + 1 :]:
        if message.role != "tool":
            break
        answers.setdefault(message.call_id, message)
    return answers
