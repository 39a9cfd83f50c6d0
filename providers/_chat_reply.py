"""Chat Completions answers, read chunk by chunk into one reply."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, final

import msgspec

from shoal.errors import ProviderUnavailable
from shoal.providers._calls import CallAssembler, CallDelta
from shoal.providers._chat_messages import API
from shoal.providers._events import cut, decoded, made
from shoal.providers._json import as_count, as_list, as_object, as_text
from shoal.providers._refusals import Asked, refusal, request_id
from shoal.providers._sse import Event
from shoal.providers._states import Reader
from shoal.providers._text import Text
from shoal.providers._values import (
    Completed,
    Finish,
    ProviderState,
    ReasoningDelta,
    Reply,
    TextDelta,
    Usage,
)

ReasoningField = Literal["reasoning_content", "reasoning_details"]

_FINISH: Mapping[str, Finish] = {
    "content_filter": "refusal",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
}
_APPENDED = frozenset({"data", "summary", "text"})
_CUT = frozenset({"abort", "aborted", "error", "insufficient_system_resource"})


@final
class _Delta(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    tool_calls: list[CallDelta] | None = None
    images: list[dict[str, Any]] | None = None


@final
class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


@final
class _Chunk(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None
    message: str | None = None
    type: str | None = None
    code: int | str | None = None


_chunk = msgspec.json.Decoder(_Chunk, strict=False)


@final
class _Details:
    """Details of what a model thought, put together from their pieces: those of one index and type are one.

    Texts are appended, the rest is replaced.
    """

    def __init__(self) -> None:
        self._all: list[dict[str, Any]] = []
        self._known: dict[tuple[int | str, str], int] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}

    def add(self, piece: Mapping[str, Any]) -> None:
        """Take one piece."""
        index = piece.get("index")
        key = (index, as_text(piece.get("type"))) if isinstance(index, int | str) else None
        at = len(self._all) if key is None else self._known.setdefault(key, len(self._all))
        if at == len(self._all):
            self._all.append({})
        for name, value in piece.items():
            texts = self._texts.get((at, name))
            if isinstance(value, str) and texts is not None:
                texts.append(value)
            elif value is not None or name not in self._all[at]:
                self._all[at][name] = value
                self._texts.pop((at, name), None)
                if isinstance(value, str) and name in _APPENDED:
                    self._texts[at, name] = [value]

    def joined(self) -> list[dict[str, Any]]:
        """Return the details, in the order in which they began."""
        for (at, name), texts in self._texts.items():
            self._all[at][name] = "".join(texts)
        return self._all


@final
class ChatReply:
    """One reply in the making; feed it the data of each event.

    Args:
        asked: Who was asked, for errors.
        headers: The answer's headers, by lower-case name.
        names: Our name of each tool, by the name that was sent.
        reasoning_field: The field that has to come back; `None` keeps none.
        ends_with: `done` where a stream ends in `[DONE]`, `finish` where a finish reason is all there is.
    """

    def __init__(
        self,
        asked: Asked,
        *,
        headers: Mapping[str, str],
        names: Mapping[str, str],
        reasoning_field: ReasoningField | None = None,
        ends_with: Literal["done", "finish"] = "done",
    ) -> None:
        self.ended = False
        self.finish_reason: str | None = None
        self._ends_with = ends_with
        self._asked = asked
        self._headers = headers
        self._names = names
        self._reasoning_field: ReasoningField | None = reasoning_field
        self._calls = CallAssembler()
        self._text: list[str] = []
        self._made: list[bytes] = []
        self._reasoning: list[str] = []
        self._details = _Details()
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._refused = False
        self._answered = False
        self._id: str | None = None
        self._model = ""

    def __repr__(self) -> str:
        return f"<ChatReply of {self._asked.model}, finish {self.finish_reason}>"

    def feed(self, event: Event) -> Iterator[TextDelta | ReasoningDelta]:
        """Take one chunk (or a whole completion) and yield what it says.

        Raises:
            ProviderError: The chunk is an error, in the leaf that its type names.
            ProviderUnavailable: It is no chunk at all.
        """
        if event.data.strip() == b"[DONE]":
            self.ended = True
            return
        chunk = decoded(_chunk, event.data, self._asked, **self._context())
        if chunk.error is not None or chunk.object == "error":
            error = chunk.error or {"message": chunk.message, "type": chunk.type, "code": chunk.code}
            raise refusal(self._asked, {"error": error}, status=200, headers=self._headers)
        self._id = self._id or chunk.id
        self._model = self._model or chunk.model or ""
        # A later counter replaces an earlier one: they are totals, not increments.
        self._usage.update({name: value for name, value in (chunk.usage or {}).items() if value is not None})
        self._timings.update(chunk.timings or {})
        for choice in (chunk.choices or [])[:1]:
            self._answered = True
            self.ended = self.ended or (choice.message is not None and choice.delta is None)
            self.finish_reason = choice.finish_reason or self.finish_reason
            yield from self._take(choice.delta or choice.message or _Delta())

    def _take(self, delta: _Delta) -> Iterator[TextDelta | ReasoningDelta]:
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._reasoning.append(thought)
            yield ReasoningDelta(thought)
        if self._reasoning_field == "reasoning_details":
            for detail in delta.reasoning_details or ():
                self._details.add(detail)
        self._refused = self._refused or bool(delta.refusal)
        said = _content(delta.content) + (delta.refusal or "")
        if said:
            self._text.append(said)
            yield TextDelta(said)
        for call in delta.tool_calls or ():
            self._calls.add(call)
        for image in delta.images or ():
            head, _, data = as_text(as_object(image.get("image_url")).get("url")).partition(",")
            if head.startswith("data:") and head.endswith(";base64"):  # one behind an address is not fetched
                self._made.append(made(data, self._asked, **self._context()))

    # --- the end

    def completed(self, *, prompt_bytes: int) -> Completed:
        """Return the whole reply.

        Args:
            prompt_bytes: Size of the request, for an estimate where the server counts nothing.

        Raises:
            ProviderUnavailable: The server gave up in the middle, or the stream was cut.
        """
        # A gateway that lost its server ends a stream as if there had been one.
        ended = self.ended and (self._answered or bool(self._usage))
        if not ended and (self._ends_with == "done" or self.finish_reason is None):
            raise cut(self._asked, request_id=request_id(self._headers) or self._id)
        if self.finish_reason in _CUT:
            raise ProviderUnavailable(
                f"{self._asked.provider}: the reply ended with `{self.finish_reason}`; try again", **self._context()
            )
        calls = tuple(
            [msgspec.structs.replace(call, name=self._names.get(call.name, call.name)) for call in self._calls.calls()]
        )
        text = Text.of("".join(self._text))
        finish: Finish = "refusal" if self._refused else _FINISH.get(self.finish_reason or "", "stop")
        usage = usage_of(self._usage, self._timings)
        if not self._usage:
            written = len(text) + sum(len(call.arguments) for call in calls) + len("".join(self._reasoning).encode())
            usage = Usage(uncached=math.ceil(prompt_bytes / 4), output=math.ceil(written / 4))
        return Completed(
            Reply(text, calls, "".join(self._reasoning), self._state(), tuple(self._made)),
            usage,
            "tool_calls" if calls else finish,
            self._model or self._asked.model,
            request_id(self._headers) or self._id,
            estimated=not self._usage,
        )

    def _state(self) -> ProviderState | None:
        joined = self._reasoning_field == "reasoning_details"
        value: object = self._details.joined() if joined else "".join(self._reasoning)
        if self._reasoning_field is None or not value:
            return None
        return Reader(self._asked.provider, self._asked.model, API).seal(msgspec.json.encode(value))

    def _context(self) -> dict[str, Any]:
        return self._asked.context(request_id=request_id(self._headers) or self._id, status=200)


def usage_of(usage: Mapping[str, Any], timings: Mapping[str, Any] | None = None) -> Usage:
    """Return the vendor's counters as disjoint buckets.

    Args:
        usage: The `usage` object; its prompt tokens include what was read from and written to a cache.
        timings: llama.cpp's timings, which know of the cache where the usage does not.
    """
    details = as_object(usage.get("prompt_tokens_details"))
    prompt = as_count(usage.get("prompt_tokens"))
    said = (details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), as_object(timings).get("cache_n"))
    read = min(next((as_count(count) for count in said if count is not None), 0), prompt)
    written = min(as_count(details.get("cache_write_tokens")), prompt - read)
    output = as_count(usage.get("completion_tokens"))
    reasoning = as_count(as_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    if reasoning and as_count(usage.get("total_tokens")) == prompt + output + reasoning:
        output += reasoning  # some vendors count reasoning beside the completion instead of within it
    return Usage(prompt - read - written, read, written, output=output, reasoning=min(reasoning, output))


def _content(content: str | list[Any] | None) -> str:
    """Return the text of *content*, which some servers send as a list of parts."""
    if isinstance(content, str):
        return content
    return "".join([as_text(as_object(part).get("text")) for part in as_list(content)])
