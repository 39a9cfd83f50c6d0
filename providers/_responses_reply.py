"""OpenAI Responses answers, read event by event into one reply."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import msgspec

from shoal.errors import ProviderError
from shoal.providers._calls import distinct, tool_call
from shoal.providers._events import cut, decoded, made, part_of
from shoal.providers._json import as_count, as_list, as_object, as_text
from shoal.providers._refusals import Asked, refusal, request_id
from shoal.providers._sse import Event
from shoal.providers._states import Reader, called_piece, said_piece
from shoal.providers._text import Text
from shoal.providers._values import Completed, Finish, ReasoningDelta, Reply, TextDelta, ToolCall, Usage

_CUT = ("cancelled", "failed", "incomplete")
_FAILED = frozenset({"cancelled", "failed", "in_progress", "queued"})
_INCOMPLETE: Mapping[str, Finish] = {"content_filter": "refusal", "max_output_tokens": "length"}


@final
class _Response(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    incomplete_details: dict[str, Any] | None = None


@final
class _Event(msgspec.Struct):
    type: str = ""
    response: _Response | None = None
    output_index: int = 0
    item: msgspec.Raw = msgspec.Raw()
    delta: Any = None
    arguments: str | None = None
    # of an error
    error: Any = None
    code: Any = None
    message: Any = None
    # of a whole response, from a server that does not stream
    object: str | None = None


_event = msgspec.json.Decoder(_Event, strict=False)
_response = msgspec.json.Decoder(_Response, strict=False)


@final
class _Item:
    """An output item in the making."""

    __slots__ = ("pieces", "raw", "start", "whole")

    def __init__(self, raw: bytes, start: Mapping[str, Any]) -> None:
        self.raw = raw
        self.start = start
        self.whole = False
        self.pieces: list[str] = []  # of the text, or of the arguments

    def close(self, raw: bytes, start: Mapping[str, Any]) -> None:
        self.raw, self.start, self.whole = raw, start, True

    @property
    def kind(self) -> str:
        return as_text(self.start.get("type"))

    @property
    def text(self) -> str:
        parts = [as_object(part) for part in as_list(self.start.get("content"))]
        said = "".join([as_text(part.get("text")) + as_text(part.get("refusal")) for part in parts])
        return said if self.whole or said else "".join(self.pieces)

    @property
    def refused(self) -> bool:
        return any(as_object(part).get("type") == "refusal" for part in as_list(self.start.get("content")))

    @property
    def source(self) -> str:
        return as_text(self.start.get("arguments")) or "".join(self.pieces)

    @property
    def thought(self) -> str:
        parts = [*as_list(self.start.get("summary")), *as_list(self.start.get("content"))]
        return "".join([as_text(as_object(part).get("text")) for part in parts]) or "".join(self.pieces)


@final
class ResponsesReply:
    """One reply in the making; feed it each event.

    Args:
        asked: Who was asked, for errors.
        headers: The answer's headers, by lower-case name.
        names: Our name of each tool, by the name that was sent.
        reader: Who can read what has to come back.
        limit_tokens: Of a server that calls a reply at its limit complete: that limit; `None` for other servers.
    """

    def __init__(
        self,
        asked: Asked,
        *,
        headers: Mapping[str, str],
        names: Mapping[str, str],
        reader: Reader,
        limit_tokens: int | None = None,
    ) -> None:
        self.ended = False
        self._asked = asked
        self._headers = headers
        self._names = names
        self._reader = reader
        self._limit_tokens = limit_tokens
        self._items: dict[int, _Item] = {}
        self._last = _Response()
        self._refused = False
        self._cut_short = False

    def __repr__(self) -> str:
        return f"<ResponsesReply of {self._asked.model}, {len(self._items)} items>"

    def feed(self, event: Event) -> Iterator[TextDelta | ReasoningDelta]:
        """Take one event (or a whole response) and yield what it says.

        Raises:
            ProviderError: The event is an error, in the leaf that its type names.
            ProviderUnavailable: It is no event of this API at all.
        """
        if event.data.strip() == b"[DONE]":  # some gateways send it
            return
        said = decoded(_event, event.data, self._asked, **self._context())
        kind = said.type or event.name
        match kind:
            case "response.output_item.added" | "response.output_item.done" if bytes(said.item)[:1] == b"{":
                self._take_item(said.output_index, said.item, done=kind.endswith("done"))
            case "response.output_text.delta":
                yield from self._said(said, "message")
            case "response.refusal.delta":
                self._refused = True
                yield from self._said(said, "message")
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._item(said.output_index, "reasoning").pieces.append(as_text(said.delta))
                if as_text(said.delta):
                    yield ReasoningDelta(as_text(said.delta))
            case "response.function_call_arguments.delta":
                self._item(said.output_index, "function_call").pieces.append(as_text(said.delta))
            case "response.function_call_arguments.done":
                self._item(said.output_index, "function_call").pieces = [said.arguments or ""]
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                ended = said.response or _Response()
                self._end(ended, ended.status if ended.status in _CUT else kind.rpartition(".")[2])
            case _ if said.object == "response":
                whole = decoded(_response, event.data, self._asked, **self._context())
                self._end(whole, whole.status or "completed")
                for item in self._items.values():
                    if item.kind == "message" and item.text:
                        yield TextDelta(item.text)
            case _ if kind == "error" or said.error is not None:
                raise self._error(
                    said.error if said.error is not None else {"code": said.code, "message": said.message}
                )
            case "response.created" | "response.in_progress":
                self._last = said.response or self._last
            case _:  # parts that begin and end, and what later versions add
                pass

    def _said(self, said: _Event, kind: str) -> Iterator[TextDelta]:
        text = as_text(said.delta)
        self._item(said.output_index, kind).pieces.append(text)
        if text:
            yield TextDelta(text)

    def _item(self, index: int, kind: str) -> _Item:
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _Item(b"", {"type": kind})
        return item

    def _take_item(self, index: int, raw: msgspec.Raw, *, done: bool) -> None:
        data, start = part_of(raw, self._asked, **self._context())
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _Item(data, start)
        if done:
            item.close(data, start)

    def _end(self, response: _Response, how: str) -> None:
        self._last = response
        if how in _FAILED or response.error:
            raise self._error(response.error or {})
        for index, raw in enumerate(response.output or ()):
            if not self._items.get(index, _UNSEEN).whole and bytes(raw)[:1] == b"{":
                self._take_item(index, raw, done=True)
        self._cut_short = how == "incomplete"
        self.ended = True

    def _error(self, error: Any) -> ProviderError:
        return refusal(self._asked, {"error": error}, status=200, headers=self._headers)

    def _context(self) -> dict[str, Any]:
        return self._asked.context(request_id=request_id(self._headers) or self._last.id, status=200)

    # --- the end

    def completed(self, *, prompt_bytes: int) -> Completed:
        """Return the whole reply.

        Args:
            prompt_bytes: Size of the request, for an estimate where the server counts nothing.

        Raises:
            ProviderUnavailable: The stream was cut.
        """
        if not self.ended:
            raise cut(self._asked, request_id=request_id(self._headers) or self._last.id)
        items = [self._items[index] for index in sorted(self._items)]
        reply = self._reply(items)
        counted = self._last.usage or {}
        usage = usage_of(counted)
        if not counted:
            written = len(reply.text) + len(reply.reasoning.encode()) + sum([len(c.arguments) for c in reply.calls])
            usage = Usage(uncached=math.ceil(prompt_bytes / 4), output=math.ceil(written / 4))
        return Completed(
            reply,
            usage,
            "tool_calls" if reply.calls else self._finish(items, usage),
            self._last.model or self._asked.model,
            request_id(self._headers) or self._last.id,
            estimated=not counted,
        )

    def _finish(self, items: Sequence[_Item], usage: Usage) -> Finish:
        if self._refused or any(item.refused for item in items):
            return "refusal"
        if self._cut_short:
            return _INCOMPLETE.get(as_text((self._last.incomplete_details or {}).get("reason")), "stop")
        at_limit = self._limit_tokens is not None and usage.output >= self._limit_tokens
        return "length" if at_limit else "stop"

    def _reply(self, items: Sequence[_Item]) -> Reply:
        texts: list[str] = []
        asked: list[_Item] = []
        layout: list[bytes] = []
        parts: list[bytes] = []
        whole = 0  # length of the layout up to its last item that may end a turn
        opaque = False
        for item in items:
            if item.kind == "message":
                if not item.text.strip():
                    continue
                texts.append(item.text)
                layout.append(said_piece(len(Text.of(item.text).body), as_text(item.start.get("phase"))))
            elif item.kind == "function_call":
                layout.append(called_piece(len(asked)))
                asked.append(item)
            elif item.kind == "image_generation_call":
                result = as_text(item.start.get("result"))
                parts += [made(result, self._asked, **self._context())] if result else []
                continue
            else:
                # Without its encrypted content nobody could read a reasoning item that was not stored.
                if item.whole and (item.kind != "reasoning" or item.start.get("encrypted_content")):
                    layout.append(item.raw)
                    opaque = True
                continue
            whole = len(layout)
        noted = any(item.start.get("phase") for item in items)
        state = self._reader.seal(b"[" + b",".join(layout[:whole]) + b"]") if (opaque or noted) and whole else None
        thoughts = "".join([item.thought for item in items if item.kind == "reasoning"])
        return Reply(Text.of("".join(texts)), self._calls(asked), thoughts, state, tuple(parts))

    def _calls(self, items: Sequence[_Item]) -> tuple[ToolCall, ...]:
        ids = distinct([as_text(item.start.get("call_id")) or as_text(item.start.get("id")) for item in items])
        names = [as_text(item.start.get("name")) for item in items]
        return tuple(
            [
                tool_call(id_, self._names.get(name, name), item.source)
                for id_, name, item in zip(ids, names, items, strict=True)
            ]
        )


_UNSEEN = _Item(b"", {})


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Return the vendor's counters as disjoint buckets.

    Args:
        usage: The `usage` object; its input tokens include what was read from and written to a cache.
    """
    details = as_object(usage.get("input_tokens_details"))
    total = as_count(usage.get("input_tokens"))
    read = min(as_count(details.get("cached_tokens")), total)
    written = min(as_count(details.get("cache_write_tokens")), total - read)
    long = min(as_count(as_object(details.get("cache_write_tokens_details")).get("ttl_12h_tokens")), written)
    output = as_count(usage.get("output_tokens"))
    reasoning = as_count(as_object(usage.get("output_tokens_details")).get("reasoning_tokens"))
    return Usage(total - read - written, read, written - long, long, output, min(reasoning, output))
