"""Replies of Gemini as they are sent, whole and as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

from shoal.testing.wire._delivery import Event
from shoal.testing.wire._faults import CallIds, Fault, found
from shoal.testing.wire._gemini._signatures import signed
from shoal.testing.wire._ledger import Row
from shoal.testing.wire._models import Model
from shoal.testing.wire._seal import Seals, digest
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._turns import Fitted
from shoal.testing.wire._values import Call, Part, Text, Thinking

FINISHES = {
    "end": "STOP",
    "tools": "STOP",
    "length": "MAX_TOKENS",
    "stop_sequence": "STOP",
    "refusal": "SAFETY",
    "pause": "CONTINUATION",
    "window": "MAX_TOKENS",
    "filter": "SAFETY",
}
CUT = ("length", "window")


@final
@dataclass(frozen=True, slots=True)
class Writing:
    """What a reply is written with.

    Args:
        response_id: Its id.
        model: The model's facts.
        seals: Makes signatures.
        thoughts: What the model thinks is shown.
        delta_chars: How much text one event carries.
        faults: What is wrong with what stands in it.
    """

    response_id: str
    model: Model
    seals: Seals
    thoughts: bool
    delta_chars: int
    faults: Sequence[Fault]


def whole(said: Fitted, row: Row, writing: Writing) -> dict[str, Any]:
    """Return a whole reply."""
    if said.stop == "refusal" and not said.parts:
        return _blocked(said, row, writing)
    parts = _parts(said, writing)
    if writing.model.signatures and parts and not said.calls and "text" in parts[-1]:
        parts[-1] = signed(parts[-1], writing.model, writing.seals)
    return _response(_candidate(parts, said, writing), usage(row), writing)


def events(said: Fitted, row: Row, writing: Writing) -> Iterator[Event]:
    """Yield the stream of a reply: each event is a reply with what is new, and nothing comes behind the last."""
    if said.stop == "refusal" and not said.parts:
        yield _event(_blocked(said, row, writing))
        return
    parts = [piece for part in _parts(said, writing) for piece in _pieces(part, writing.delta_chars)]
    if writing.model.signatures and parts and not said.calls and "text" in parts[-1]:
        # The text has gone out already: its signature follows at a text of its own, which is empty.
        parts.append(signed({"text": ""}, writing.model, writing.seals))
    for part in parts[:-1]:
        yield _event(_response({"content": _content([part]), "index": 0}, usage(row, final=False), writing))
    yield _event(_response(_candidate(parts[-1:], said, writing), usage(row), writing))


def _event(value: Mapping[str, Any]) -> Event:
    return Event(compact(dict(value)))


def _pieces(part: dict[str, Any], size: int) -> list[dict[str, Any]]:
    text = part.get("text")
    if not isinstance(text, str):
        return [part]
    return [{**part, "text": text[start : start + size]} for start in range(0, len(text), size)]


def _parts(said: Fitted, writing: Writing) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    calls = 0
    for number, part in enumerate(said.parts):
        made = _part(part, number, writing)
        if made is None:
            continue
        if "functionCall" in made:
            made = signed(made, writing.model, writing.seals) if writing.model.signatures and not calls else made
            calls += 1
        parts.append(made)
    return parts


def _part(part: Part, number: int, writing: Writing) -> dict[str, Any] | None:
    """Return *part* as it is sent; `None` for what is not: empty texts, hidden thoughts, calls that are none."""
    match part:
        case Text(text):
            return {"text": text} if text else None
        case Thinking(text, redacted):
            return {"text": text, "thought": True} if text and writing.thoughts and not redacted else None
        case Call():
            args = _args(part)
            if args is None:
                return None
            return {"functionCall": {**_call_id(part, number, writing), "name": part.name, "args": args}}
        case _:
            return dict(part.value)


def _args(call: Call) -> dict[str, Any] | None:
    """Return the arguments of *call*; `None` if they are no object."""
    if not isinstance(call.arguments, str):
        return dict(call.arguments)
    try:
        value: object = json.loads(call.arguments)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _call_id(call: Call, number: int, writing: Writing) -> dict[str, str]:
    """Return the id of *call*, which older models do not give."""
    ids = found(writing.faults, CallIds)
    if (ids and ids.kind == "missing") or not (writing.model.signatures or call.call_id):
        return {}
    return {"id": call.call_id or digest(writing.response_id, "call", "0" if ids else str(number))[:8]}


def _candidate(parts: Sequence[Mapping[str, Any]], said: Fitted, writing: Writing) -> dict[str, Any]:
    reason, told = _finish(said)
    made: dict[str, Any] = {"content": _content(parts), "finishReason": reason, "index": 0}
    if told is not None:
        made["finishMessage"] = told
    if reason == "CONTINUATION":
        made["continuationToken"] = writing.seals.stamp({"continues": writing.model.name})
    return made


def _content(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of a candidate, which has no parts if the model said nothing."""
    return {"parts": list(parts), "role": "model"} if parts else {"role": "model"}


def _finish(said: Fitted) -> tuple[str, str | None]:
    broken = next((call for call in said.calls if _args(call) is None), None)
    if broken is not None and said.stop not in CUT:
        return "MALFORMED_FUNCTION_CALL", f"Malformed function call: {broken.name}({broken.arguments})"
    return FINISHES.get(said.stop, said.stop), None if said.stop == "stop_sequence" else said.detail


def _blocked(said: Fitted, row: Row, writing: Writing) -> dict[str, Any]:
    """Return what there is instead of a candidate where the prompt itself was refused."""
    counted = {"promptTokenCount": row.input, "totalTokenCount": row.input}
    made = _response(None, counted, writing)
    return {"promptFeedback": {"blockReason": said.detail or "SAFETY"}, **made}


def _response(candidate: Mapping[str, Any] | None, counted: Mapping[str, int], writing: Writing) -> dict[str, Any]:
    return {
        **({} if candidate is None else {"candidates": [dict(candidate)]}),
        "usageMetadata": dict(counted),
        "modelVersion": writing.model.name,
        "responseId": writing.response_id,
    }


def usage(row: Row, *, final: bool = True) -> dict[str, int]:
    """Return the usage of a reply; what is 0 is left out, and what is not known yet before the end."""
    said = row.output - row.reasoning if final else 0
    thought = row.reasoning if final else 0
    counted = {
        "promptTokenCount": row.input,
        "candidatesTokenCount": said,
        "cachedContentTokenCount": row.read,
        "thoughtsTokenCount": thought,
        "totalTokenCount": row.input + said + thought,
    }
    return {name: tokens for name, tokens in counted.items() if tokens}
