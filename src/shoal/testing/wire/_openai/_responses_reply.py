"""Responses as they are sent: their items, and the object around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from shoal.testing.wire._brains import arguments_of
from shoal.testing.wire._faults import CallIds, Fault, found
from shoal.testing.wire._flavours import FlavourName
from shoal.testing.wire._json import Json, obj
from shoal.testing.wire._ledger import Row
from shoal.testing.wire._openai._responses_request import ENCRYPTED, Request
from shoal.testing.wire._openai._responses_rules import fingerprint
from shoal.testing.wire._seal import Seals, digest
from shoal.testing.wire._turns import Fitted, part_tokens
from shoal.testing.wire._values import Call, Part, Text, Thinking

LONG_ID = 70
"""How long ids of calls are that come through the transport that keeps nothing: longer than it takes back."""

INCOMPLETE = {"length": "max_output_tokens", "window": "max_output_tokens", "filter": "content_filter"}
CUT = frozenset({"max_output_tokens", "max_messages", "content_filter", "steered"})
DONE = frozenset({"end", "tools", "stop_sequence", "pause", "refusal", "completed"})


@final
@dataclass(frozen=True, slots=True)
class Writing:
    """What a reply is written with.

    Args:
        response_id: Its id.
        request: What it answers.
        seals: Seals the reasoning.
        created_s: When, in seconds since 1970.
        delta_chars: How much text one event carries.
        faults: What is wrong with what stands in it.
    """

    response_id: str
    request: Request
    seals: Seals
    created_s: int
    delta_chars: int
    faults: Sequence[Fault]

    @property
    def encrypts(self) -> bool:
        """Whether reasoning is given encrypted."""
        return ENCRYPTED in (self.request.body.get("include") or ())

    def item_id(self, prefix: str, number: int) -> str:
        """Return the id of the item of that number."""
        return f"{prefix}_{digest(self.response_id, str(number))}"


@final
@dataclass(frozen=True, slots=True)
class Output:
    """An item of a reply.

    Args:
        item: The item.
        reasoning: Id of the reasoning item in front of it; `None` if there is none.
        tokens: What it counts, as far as that does not show.
    """

    item: dict[str, Any]
    reasoning: str | None
    tokens: int


def outputs(said: Fitted, writing: Writing) -> list[Output]:
    """Return the items of a reply. Reasoning is kept from models that do none."""
    thinks = writing.request.model.reasoning
    parts = [part for part in said.parts if thinks or not isinstance(part, Thinking)]
    made: list[Output] = []
    led: str | None = None
    for number, part in enumerate(parts):
        item = _item(part, number, said, writing)
        made.append(Output(item, None if isinstance(part, Thinking) else led, part_tokens(part)))
        led = item["id"] if isinstance(part, Thinking) else led
    for place, output in enumerate(made):
        if output.item["type"] == "reasoning" and writing.encrypts:
            follower = made[place + 1].item if place + 1 < len(made) else None
            output.item["encrypted_content"] = _seal(output, follower, writing)
    return made


def _item(part: Part, number: int, said: Fitted, writing: Writing) -> dict[str, Any]:
    match part:
        case Text(text):
            plain: Json = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            held: Json = {"type": "refusal", "refusal": text} if said.stop == "refusal" else plain
            head = {"id": writing.item_id("msg", number), "type": "message", "status": "completed"}
            return {**head, "role": "assistant", "content": [held]}
        case Thinking(text, redacted):
            shown = bool(obj(writing.request.body.get("reasoning")).get("summary")) and not redacted
            summary = [{"type": "summary_text", "text": text}] if shown else []
            return {"id": writing.item_id("rs", number), "type": "reasoning", "summary": summary}
        case Call():
            call_id = _call_id(part, number, writing)
            head = {"id": writing.item_id("fc", number), "type": "function_call", "status": "completed"}
            return {**head, **call_id, "name": part.name, "arguments": arguments_of(part)}
        case _:
            return dict(part.value)


def _call_id(part: Call, number: int, writing: Writing) -> dict[str, str]:
    ids = found(writing.faults, CallIds)
    if ids and ids.kind == "missing":
        return {"call_id": ""}
    made = f"call_{digest(writing.response_id, 'call', '0' if ids else str(number))}"
    return {"call_id": part.call_id or (made.ljust(LONG_ID, "0") if writing.request.codex else made)}


def _seal(output: Output, follower: Json | None, writing: Writing) -> str:
    return writing.seals.stamp(
        {
            "id": output.item["id"],
            "summary": [part["text"] for part in output.item["summary"]],
            "follower": None if follower is None else fingerprint(follower),
            "model": writing.request.model.name,
            "key": digest(writing.request.key),
            "tokens": output.tokens,
        }
    )


def usage(row: Row) -> dict[str, Any]:
    """Return the usage of a reply."""
    return {
        "input_tokens": row.input,
        "input_tokens_details": {
            "cached_tokens": row.read,
            "cache_write_tokens": row.written,
            "cache_write_tokens_details": {
                "ttl_30m_tokens": row.writes.get("30m", 0),
                "ttl_12h_tokens": row.writes.get("12h", 0),
            },
        },
        "output_tokens": row.output,
        "output_tokens_details": {"reasoning_tokens": row.reasoning},
        "total_tokens": row.input + row.output,
    }


def ending(said: Fitted, server: FlavourName = "openai") -> dict[str, Any]:
    """Return how a reply ends: its status, and why it is not complete, which a llama.cpp server does not tell."""
    reason = INCOMPLETE.get(said.stop, said.stop)
    if reason in CUT and server != "llama.cpp":
        return {"status": "incomplete", "incomplete_details": {"reason": reason}, "error": None}
    if said.stop in DONE or reason in CUT:
        return {"status": "completed", "incomplete_details": None, "error": None}
    if said.stop == "cancelled":
        return {"status": "cancelled", "incomplete_details": None, "error": None}
    code = "server_error" if said.stop == "failed" else said.stop
    error = {"code": code, "message": said.detail or "The model failed to generate a response."}
    return {"status": "failed", "incomplete_details": None, "error": error}


def whole(said: Fitted, made: Sequence[Output], row: Row, writing: Writing) -> dict[str, Any]:
    """Return a whole reply."""
    body = writing.request.body
    ended = ending(said, writing.request.flavour.name)
    items = [output.item for output in made]
    if ended["status"] == "incomplete" and items and "status" in items[-1]:
        items[-1] = {**items[-1], "status": "incomplete"}
    return {
        "id": writing.response_id,
        "object": "response",
        "created_at": writing.created_s,
        "completed_at": writing.created_s if ended["status"] == "completed" else None,
        **ended,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": writing.request.model.name,
        "output": items,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "service_tier": "default",
        "store": writing.request.stores,
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": list(writing.request.tools),
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": usage(row),
        "user": None,
    }


def begun(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return *response* as it is when it begins."""
    empty: Json = {"output": [], "usage": None, "error": None, "incomplete_details": None, "completed_at": None}
    return {**response, **empty, "status": "in_progress"}
