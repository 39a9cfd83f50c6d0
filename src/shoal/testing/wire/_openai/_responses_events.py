"""The stream of a response, event by event."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, final

from shoal.testing.wire._delivery import Event
from shoal.testing.wire._json import Json
from shoal.testing.wire._openai._responses_reply import begun
from shoal.testing.wire._tokens import compact

ENDS = {"completed": "completed", "incomplete": "incomplete"}


@final
class Stream:
    """Numbers the events of one response.

    Args:
        response: The whole response.
        delta_chars: How much text one event carries.
    """

    def __init__(self, response: Json, delta_chars: int) -> None:
        self._response = response
        self._size = delta_chars
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"<Stream {self._response['id']}>"

    def events(self) -> Iterator[Event]:
        """Yield every event, in order."""
        yield self._event("response.created", response=begun(self._response))
        yield self._event("response.in_progress", response=begun(self._response))
        for index, item in enumerate(self._response["output"]):
            yield from self._item(index, item)
        end = ENDS.get(self._response["status"], "failed")
        yield self._event(f"response.{end}", response=self._response)

    def _event(self, kind: str, **fields: Any) -> Event:
        return Event(compact({"type": kind, "sequence_number": next(self._numbers), **fields}), kind)

    def _item(self, index: int, item: Mapping[str, Any]) -> Iterator[Event]:
        yield self._event("response.output_item.added", output_index=index, item=_opened(item))
        at = {"item_id": item.get("id"), "output_index": index}
        match item["type"]:
            case "message":
                for place, part in enumerate(item["content"]):
                    yield from self._part({**at, "content_index": place}, part)
            case "function_call":
                text = item["arguments"]
                for piece in self._pieces(text):
                    yield self._event("response.function_call_arguments.delta", **at, delta=piece)
                yield self._event("response.function_call_arguments.done", **at, name=item["name"], arguments=text)
            case "reasoning":
                for place, part in enumerate(item["summary"]):
                    yield from self._summary({**at, "summary_index": place}, part)
            case _:
                pass
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _part(self, at: Json, part: Json) -> Iterator[Event]:
        kind = "output_text" if part["type"] == "output_text" else "refusal"
        field = "text" if kind == "output_text" else "refusal"
        extra: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        yield self._event("response.content_part.added", **at, part={**part, field: ""})
        for piece in self._pieces(part[field]):
            yield self._event(f"response.{kind}.delta", **at, delta=piece, **extra)
        yield self._event(f"response.{kind}.done", **at, **{field: part[field]}, **extra)
        yield self._event("response.content_part.done", **at, part=part)

    def _summary(self, at: Json, part: Json) -> Iterator[Event]:
        yield self._event("response.reasoning_summary_part.added", **at, part={**part, "text": ""})
        for piece in self._pieces(part["text"]):
            yield self._event("response.reasoning_summary_text.delta", **at, delta=piece)
        yield self._event("response.reasoning_summary_text.done", **at, text=part["text"])
        yield self._event("response.reasoning_summary_part.done", **at, part=part)

    def _pieces(self, text: str) -> list[str]:
        return [text[start : start + self._size] for start in range(0, len(text), self._size)]


def _opened(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return *item* as it is when it begins."""
    opened = {**item, "status": "in_progress"}
    match item["type"]:
        case "message":
            return {**opened, "content": []}
        case "function_call":
            return {**opened, "arguments": ""}
        case "reasoning":
            return {**{key: item[key] for key in item if key != "encrypted_content"}, "summary": []}
        case _:
            return dict(item)
