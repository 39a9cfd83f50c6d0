"""Chat completions as they are sent, whole and as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from shoal.testing.wire._brains import arguments_of
from shoal.testing.wire._delivery import Event
from shoal.testing.wire._faults import CallIds, CallIndexes, Fault, WholeCalls, found
from shoal.testing.wire._flavours import Flavour
from shoal.testing.wire._ledger import Row
from shoal.testing.wire._seal import digest
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._turns import Fitted
from shoal.testing.wire._values import Call, Raw, Text, Thinking

FINISHES = {
    "end": "stop",
    "tools": "tool_calls",
    "length": "length",
    "stop_sequence": "stop",
    "refusal": "stop",
    "pause": "stop",
    "window": "length",
    "filter": "content_filter",
}
DONE = Event("[DONE]")


@final
@dataclass(frozen=True, slots=True)
class Writing:
    """What a reply is written with.

    Args:
        reply_id: Its id.
        model: The model's name.
        created_s: When, in seconds since 1970.
        flavour: Whose server this is.
        delta_chars: How much text one chunk carries.
        faults: What is wrong with what stands in it.
    """

    reply_id: str
    model: str
    created_s: int
    flavour: Flavour
    delta_chars: int
    faults: Sequence[Fault]

    def head(self, kind: str) -> dict[str, Any]:
        """Return what every object of the reply begins with."""
        return {"id": self.reply_id, "object": kind, "created": self.created_s, "model": self.model}


def message(said: Fitted, writing: Writing) -> dict[str, Any]:
    """Return the message of a reply."""
    text = "".join(part.text for part in said.parts if isinstance(part, Text))
    refused = said.stop == "refusal"
    calls = tool_calls(said, writing)
    made: dict[str, Any] = {"role": "assistant", "content": None if refused or (calls and not text) else text}
    if writing.flavour.name in ("openai", "azure"):
        made |= {"refusal": text if refused else None, "annotations": []}
    elif refused:
        made["refusal"] = text
    thought = "".join(part.text for part in said.parts if isinstance(part, Thinking))
    if thought and writing.flavour.reasoning:
        made[writing.flavour.reasoning] = thought
    if thought and writing.flavour.name == "openrouter":
        made["reasoning_details"] = [details(thought)]
    if calls:
        made["tool_calls"] = calls
    for part in said.parts:
        if isinstance(part, Raw):
            made |= part.value
    return made


def details(thought: str) -> dict[str, Any]:
    """Return reasoning as a gateway wants it back."""
    signature = digest(thought)
    return {"type": "reasoning.text", "text": thought, "signature": signature, "format": "unknown", "index": 0}


def tool_calls(said: Fitted, writing: Writing) -> list[dict[str, Any]]:
    """Return the calls of a reply."""
    ids = found(writing.faults, CallIds)
    made: list[dict[str, Any]] = []
    for number, part in enumerate(said.calls):
        call: dict[str, Any] = {"id": _call_id(part, writing, 0 if ids and ids.kind == "same" else number)}
        if ids and ids.kind == "missing":
            call = {}
        made.append({**call, "type": "function", "function": {"name": part.name, "arguments": arguments_of(part)}})
    return made


def _call_id(part: Call, writing: Writing, number: int) -> str:
    made = digest(writing.reply_id, str(number))
    return part.call_id or (made[:9] if writing.flavour.call_id == "nine" else f"call_{made}")


def finish(said: Fitted, flavour: Flavour) -> str:
    """Return why a reply stops."""
    return flavour.tools_stop if said.stop == "tools" else FINISHES.get(said.stop, said.stop)


def usage(row: Row, flavour: Flavour) -> dict[str, Any]:
    """Return the usage of a reply."""
    told: dict[str, Any] = {
        "prompt_tokens": row.input,
        "completion_tokens": row.output,
        "total_tokens": row.input + row.output,
    }
    if flavour.cached_field:
        told["prompt_tokens_details"] = {"cached_tokens": row.read}
    if flavour.name in ("openai", "azure", "openrouter"):
        told["prompt_tokens_details"] |= {"cache_write_tokens": row.written, "audio_tokens": 0}
        told["completion_tokens_details"] = {
            "reasoning_tokens": row.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        }
    if flavour.name == "deepseek":
        told |= {"prompt_cache_hit_tokens": row.read, "prompt_cache_miss_tokens": row.input - row.read}
        told["completion_tokens_details"] = {"reasoning_tokens": row.reasoning}
    if flavour.name == "openrouter":
        told["cost"] = None if row.cost_usd is None else float(row.cost_usd)
    return told


def extras(row: Row, flavour: Flavour) -> dict[str, Any]:
    """Return what a server adds to the end of its reply."""
    match flavour.name:
        case "openai" | "azure":
            return {"service_tier": "default", "system_fingerprint": "fp_wire"}
        case "llama.cpp":
            counted = {"cache_n": row.read, "prompt_n": row.input - row.read, "predicted_n": row.output}
            times = dict.fromkeys(("prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second"), 1.0)
            return {"system_fingerprint": "b1-wire", "timings": {**counted, **times}}
        case _:
            return {}


def whole(said: Fitted, row: Row, writing: Writing) -> dict[str, Any]:
    """Return a whole reply."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": message(said, writing),
        "logprobs": None,
        "finish_reason": finish(said, writing.flavour),
    }
    if writing.flavour.name == "vllm":
        choice["stop_reason"] = None
    return {
        **writing.head("chat.completion"),
        "choices": [choice],
        "usage": usage(row, writing.flavour),
        **extras(row, writing.flavour),
    }


def events(said: Fitted, row: Row, writing: Writing, *, with_usage: bool) -> Iterator[Event]:
    """Yield the stream of a reply."""
    flavour = writing.flavour
    head = writing.head("chat.completion.chunk")
    if flavour.opening == "filters":
        safe = {"hate": {"filtered": False, "severity": "safe"}}
        yield _chunk(
            {**head, "choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": safe}]}
        )
    made = message(said, writing)
    yield _chunk(_choice(head, {"role": "assistant", "content": None if flavour.opening == "null" else ""}))
    for delta in _deltas(made, writing):
        yield _chunk(_choice(head, delta))
    last = _choice(head, {}, finish(said, flavour))
    always = flavour.usage == "always"
    if always:
        last["usage"] = usage(row, flavour)
    yield _chunk(last | ({} if with_usage else extras(row, flavour)))
    if with_usage and not always:
        yield _chunk({**head, "choices": [], "usage": usage(row, flavour), **extras(row, flavour)})
    yield DONE


def _choice(head: Mapping[str, Any], delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {**head, "choices": [{"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": reason}]}


def _deltas(made: Mapping[str, Any], writing: Writing) -> Iterator[dict[str, Any]]:
    """Yield the message *made* in pieces: reasoning, text, calls, and whatever else stands in it."""
    size = writing.delta_chars
    texts = [field for field in (writing.flavour.reasoning, "content", "refusal") if field and made.get(field)]
    for field in texts:
        for start in range(0, len(made[field]), size):
            yield {field: made[field][start : start + size]}
    for number, call in enumerate(made.get("tool_calls") or []):
        yield from _call_deltas(call, number, writing)
    rest = {"role", "content", "refusal", "annotations", "tool_calls", writing.flavour.reasoning}
    for field in made:
        if field not in rest:
            yield {field: made[field]}


def _call_deltas(call: Mapping[str, Any], number: int, writing: Writing) -> Iterator[dict[str, Any]]:
    index = _index(number, writing)
    text = call["function"]["arguments"]
    if writing.flavour.whole_calls or found(writing.faults, WholeCalls) is not None:
        yield {"tool_calls": [{**index, **call}]}
        return
    begun = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
    yield {"tool_calls": [{**index, **begun}]}
    for start in range(0, len(text), writing.delta_chars):
        yield {"tool_calls": [{**index, "function": {"arguments": text[start : start + writing.delta_chars]}}]}


def _index(number: int, writing: Writing) -> dict[str, Any]:
    wrong = found(writing.faults, CallIndexes)
    match wrong.kind if wrong else "zero" if writing.flavour.one_index else "right":
        case "zero":
            return {"index": 0}
        case "null":
            return {"index": None}
        case "missing":
            return {}
        case _:
            return {"index": number}


def _chunk(value: Mapping[str, Any]) -> Event:
    return Event(compact(dict(value)))
