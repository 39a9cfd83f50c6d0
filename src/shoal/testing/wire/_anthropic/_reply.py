"""Messages as Anthropic sends them, whole and as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from shoal.testing.wire._anthropic._binding import Prefix, seal
from shoal.testing.wire._anthropic._request import canonical
from shoal.testing.wire._brains import arguments_of, object_of
from shoal.testing.wire._delivery import Event
from shoal.testing.wire._faults import CallIds, Fault, found
from shoal.testing.wire._ledger import Row
from shoal.testing.wire._seal import Seals, digest
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._turns import Fitted, part_tokens
from shoal.testing.wire._values import Call, Text, Thinking

STOPS = {
    "end": "end_turn",
    "tools": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause": "pause_turn",
    "window": "model_context_window_exceeded",
}
CATEGORIES = frozenset({"cyber", "bio", "frontier_llm", "reasoning_extraction", "general_harms"})
PING = Event('{"type":"ping"}', "ping")


@final
@dataclass(frozen=True, slots=True)
class Writing:
    """What a reply is written with.

    Args:
        message_id: Its id.
        model: The model's name.
        seals: Seals the thinking.
        prefix: What stands in front of the reply.
        thinks: Whether thinking is sent at all.
        hidden: Whether its text is left out.
        delta_chars: How much text one event carries.
        faults: What is wrong with what stands in it.
    """

    message_id: str
    model: str
    seals: Seals
    prefix: Prefix
    thinks: bool
    hidden: bool
    delta_chars: int
    faults: Sequence[Fault]


def content(said: Fitted, writing: Writing) -> list[dict[str, Any]]:
    """Return the blocks of a reply."""
    parts = [part for part in said.parts if writing.thinks or not isinstance(part, Thinking)]
    thoughts = sum(isinstance(part, Thinking) for part in parts)
    ids = found(writing.faults, CallIds)
    prefix, made, thought = Prefix(writing.prefix.digest, writing.prefix.previous), list[dict[str, Any]](), 0
    for number, part in enumerate(parts):
        match part:
            case Text(text):
                block: dict[str, Any] = {"type": "text", "text": text}
            case Thinking():
                block = _thinking(part, writing, prefix, (thought, thoughts))
                thought += 1
            case Call():
                block = {"type": "tool_use", "id": _call_id(part, writing, number, ids), "name": part.name}
                block["input"] = object_of(part)
                if ids and ids.kind == "missing":
                    del block["id"]
            case _:
                block = dict(part.value)
        made.append(block)
        if not isinstance(part, Thinking):
            prefix.add("assistant", block)
    return made


def _call_id(part: Call, writing: Writing, number: int, ids: CallIds | None) -> str:
    place = "same" if ids and ids.kind == "same" else number
    return part.call_id or f"toolu_{digest(writing.message_id, str(place))}"


def _thinking(part: Thinking, writing: Writing, prefix: Prefix, place: tuple[int, int]) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "redacted_thinking"}
    if not part.redacted:
        block = {"type": "thinking", "thinking": "" if writing.hidden else part.text}
    sealed = seal(
        writing.seals,
        block,
        tokens=part_tokens(part),
        model=writing.model,
        turn=writing.message_id,
        place=place,
        prefix=prefix,
    )
    prefix.previous = digest(sealed)
    return {**block, ("data" if part.redacted else "signature"): sealed}


def usage(row: Row) -> dict[str, Any]:
    """Return the usage of a whole reply."""
    return {
        "input_tokens": row.uncached,
        "cache_creation_input_tokens": row.written,
        "cache_read_input_tokens": row.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": row.writes.get("5m", 0),
            "ephemeral_1h_input_tokens": row.writes.get("1h", 0),
        },
        "output_tokens": row.output,
        "output_tokens_details": {"thinking_tokens": row.reasoning},
        "server_tool_use": None,
        "service_tier": "standard",
        "inference_geo": "global",
        "speed": "standard",
    }


def ending(said: Fitted) -> dict[str, Any]:
    """Return why a reply stops."""
    reason = STOPS.get(said.stop, said.stop)
    details = None
    if reason == "refusal":
        known = said.detail in CATEGORIES
        details = {
            "type": "refusal",
            "category": said.detail if known else None,
            "explanation": None if known else said.detail,
        }
    return {
        "stop_reason": reason,
        "stop_sequence": said.detail if reason == "stop_sequence" else None,
        "stop_details": details,
    }


def message(said: Fitted, blocks: Sequence[Mapping[str, Any]], row: Row, writing: Writing) -> dict[str, Any]:
    """Return a whole reply."""
    return {
        "id": writing.message_id,
        "type": "message",
        "role": "assistant",
        "model": writing.model,
        "content": list(blocks),
        **ending(said),
        "usage": usage(row),
        "container": None,
        "diagnostics": None,
    }


def events(
    said: Fitted, blocks: Sequence[Mapping[str, Any]], whole: Mapping[str, Any], writing: Writing
) -> Iterator[Event]:
    """Yield the stream of a reply that as a whole is *whole*."""
    counted = whole["usage"]
    open_ended = {"stop_reason": None, "stop_sequence": None, "stop_details": None}
    begun: dict[str, Any] = {
        **whole,
        **open_ended,
        "content": [],
        "usage": {**counted, "output_tokens": min(1, counted["output_tokens"])},
    }
    yield _event("message_start", message=begun)
    raw_arguments = [arguments_of(call) for call in said.calls]
    for number, block in enumerate(blocks):
        yield _event("content_block_start", index=number, content_block=_started(block))
        arguments = raw_arguments.pop(0) if block["type"] == "tool_use" and raw_arguments else ""
        for delta in _deltas(block, arguments, writing.delta_chars):
            yield _event("content_block_delta", index=number, delta=delta)
        yield _event("content_block_stop", index=number)
    final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    told = {key: counted[key] for key in (*final, "output_tokens_details", "server_tool_use")}
    yield _event("message_delta", delta={**ending(said), "container": None}, usage=told)
    yield _event("message_stop")


def _started(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return *block* as it begins: what streams is not yet there."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "tool_use" | "server_tool_use":
            return {**block, "input": {}}
        case _:
            return dict(block)


def _deltas(block: Mapping[str, Any], arguments: str, size: int) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            for piece in pieces(block["text"], size):
                yield {"type": "text_delta", "text": piece}
        case "thinking":
            for piece in pieces(block["thinking"], size):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use":
            text = arguments or compact(block["input"])
            yield {"type": "input_json_delta", "partial_json": ""}
            # A tool without arguments gets no more than that.
            for piece in pieces("" if text == "{}" else text, size):
                yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            pass


def pieces(text: str, size: int) -> list[str]:
    """Return *text* in pieces of *size* characters; none if it is empty."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def remembered(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return what a turn of *blocks* is remembered by."""
    return "\n".join(canonical(block) for block in blocks)


def _event(kind: str, **fields: Any) -> Event:
    return Event(json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":")), kind)
