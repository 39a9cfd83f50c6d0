"""Anthropic Messages answers, read event by event into one reply."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, final

import msgspec

from shoal.providers._calls import distinct, tool_call
from shoal.providers._events import cut, decoded, part_of
from shoal.providers._json import as_count, as_object, as_text
from shoal.providers._refusals import Asked, refusal, request_id
from shoal.providers._sse import Event
from shoal.providers._states import Reader, called_piece, said_piece
from shoal.providers._text import Text
from shoal.providers._values import Completed, Finish, ReasoningDelta, Reply, TextDelta, ToolCall, Usage

_FINISH: Mapping[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


@final
class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: dict[str, Any] | None = None
    content_block: msgspec.Raw = msgspec.Raw()
    delta: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    # of a whole message, from a server that does not stream
    content: list[msgspec.Raw] | None = None
    model: str | None = None
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None


_event = msgspec.json.Decoder(_Event, strict=False)
_object = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


@final
class _Block:
    """A content block in the making."""

    __slots__ = ("json", "raw", "signature", "start", "text", "thinking")

    def __init__(self, raw: bytes, start: Mapping[str, Any]) -> None:
        self.raw = raw
        self.start = start
        self.text = [as_text(self.start.get("text"))]
        self.thinking = [as_text(self.start.get("thinking"))]
        self.signature = [as_text(self.start.get("signature"))]
        self.json: list[str] = []

    @property
    def kind(self) -> str:
        return as_text(self.start.get("type"))

    @property
    def source(self) -> str:
        """The arguments of a call as the model wrote them; whole at the start from some gateways."""
        streamed = "".join(self.json)
        whole = as_object(self.start.get("input"))
        return streamed if streamed.strip() or not whole else _encode(whole).decode()

    def opaque(self) -> bytes | None:
        """Return the block as it is sent back; `None` where it is not whole."""
        if self.kind == "thinking":
            signature = "".join(self.signature)
            thought = {"type": "thinking", "thinking": "".join(self.thinking), "signature": signature}
            return _encode(thought) if signature else None
        if not self.json:
            return self.raw
        try:
            return _encode({**self.start, "input": _object("".join(self.json))})
        except (RecursionError, msgspec.MsgspecError):
            return None


@final
class MessagesReply:
    """One reply in the making; feed it each event.

    Args:
        asked: Who was asked, for errors.
        headers: The answer's headers, by lower-case name.
        names: Our name of each tool, by the name that was sent.
        reader: Who can read what has to come back.
    """

    def __init__(self, asked: Asked, *, headers: Mapping[str, str], names: Mapping[str, str], reader: Reader) -> None:
        self.ended = False
        self._asked = asked
        self._headers = headers
        self._names = names
        self._reader = reader
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._id: str | None = None
        self._stop = ""
        self._details: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"<MessagesReply of {self._asked.model}, {len(self._blocks)} blocks>"

    def feed(self, event: Event) -> Iterator[TextDelta | ReasoningDelta]:
        """Take one event (or a whole message) and yield what it says.

        Raises:
            ProviderError: The event is an error, in the leaf that its type names.
            ProviderUnavailable: It is no event of this API at all.
        """
        said = decoded(_event, event.data, self._asked, **self._context())
        match said.type:
            case "message_start":
                message = said.message or {}
                self._model = as_text(message.get("model"))
                self._id = as_text(message.get("id")) or None
                self._count(as_object(message.get("usage")))
            case "content_block_start" if bytes(said.content_block)[:1] == b"{":
                yield from self._begin(said.index, said.content_block)
            case "content_block_delta":
                yield from self._grow(said.index, said.delta or {})
            case "message_delta":
                self._finish(said.delta or {})
                self._count(said.usage or {})
            case "message_stop":
                self.ended = True
            case "message":
                self._model = said.model or ""
                for index, block in enumerate(said.content or ()):
                    yield from self._begin(index, block)
                self._finish({"stop_reason": said.stop_reason, "stop_details": said.stop_details})
                self._count(said.usage or {})
                self.ended = True
            case _ if said.type == "error" or said.error is not None:
                raise refusal(self._asked, {"error": said.error or {}}, status=200, headers=self._headers)
            case _:  # pings, the ends of blocks, and what later versions add
                pass

    def _begin(self, index: int, raw: msgspec.Raw) -> Iterator[TextDelta | ReasoningDelta]:
        block = self._blocks[index] = _Block(*part_of(raw, self._asked, **self._context()))
        yield from _said("".join(block.text), "".join(block.thinking))

    def _grow(self, index: int, delta: Mapping[str, Any]) -> Iterator[TextDelta | ReasoningDelta]:
        kind = as_text(delta.get("type"))
        block = self._blocks.get(index)
        if block is None:  # seen from llama.cpp: the start of a text got lost
            made = "thinking" if kind == "thinking_delta" else "text"
            block = self._blocks[index] = _Block(b"", {"type": made})
        text, thought = as_text(delta.get("text")), as_text(delta.get("thinking"))
        match kind:
            case "text_delta":
                block.text.append(text)
            case "thinking_delta":
                block.thinking.append(thought)
            case "signature_delta":
                block.signature.append(as_text(delta.get("signature")))
            case "input_json_delta":
                block.json.append(as_text(delta.get("partial_json")))
            case _:  # citations, and what later versions add
                return
        yield from _said(text, thought)

    def _context(self) -> dict[str, Any]:
        return self._asked.context(request_id=request_id(self._headers) or self._id, status=200)

    def _finish(self, delta: Mapping[str, Any]) -> None:
        self._stop = as_text(delta.get("stop_reason")) or self._stop
        self._details = as_object(delta.get("stop_details")) or self._details

    def _count(self, usage: Mapping[str, Any]) -> None:
        # A later counter replaces an earlier one: they are totals, not increments.
        self._usage.update({name: value for name, value in usage.items() if value is not None})

    # --- the end

    def completed(self, *, prompt_bytes: int) -> Completed:
        """Return the whole reply.

        Args:
            prompt_bytes: Size of the request, for an estimate where the server counts nothing.

        Raises:
            ProviderUnavailable: The stream was cut.
        """
        if not self.ended:
            raise cut(self._asked, request_id=request_id(self._headers) or self._id)
        finish: Finish = _FINISH.get(self._stop, "stop")
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        # What was said before a refusal is to be thrown away.
        reply = self._refused() if finish == "refusal" else self._reply(blocks)
        usage = usage_of(self._usage)
        if not self._usage:
            written = sum(len("".join(block.text + block.thinking + block.json).encode()) for block in blocks)
            usage = Usage(uncached=math.ceil(prompt_bytes / 4), output=math.ceil(written / 4))
        return Completed(
            reply,
            usage,
            "tool_calls" if reply.calls else finish,
            self._model or self._asked.model,
            request_id(self._headers) or self._id,
            estimated=not self._usage,
        )

    def _refused(self) -> Reply:
        return Reply(Text.of(as_text(self._details.get("explanation"))))

    def _reply(self, blocks: list[_Block]) -> Reply:
        texts: list[str] = []
        layout: list[bytes] = []
        asked: list[_Block] = []
        whole = 0  # length of the layout up to its last piece that may end a turn
        opaque = False
        for block in blocks:
            if block.kind == "text":
                text = "".join(block.text)
                if not text.strip():
                    continue
                texts.append(text)
                layout.append(said_piece(len(Text.of(text).body)))
            elif block.kind == "tool_use":
                layout.append(called_piece(len(asked)))
                asked.append(block)
            else:
                kept = block.opaque()
                if kept is not None:
                    layout.append(kept)
                    opaque = True
                continue
            whole = len(layout)
        reasoning = "".join(["".join(block.thinking) for block in blocks if block.kind == "thinking"])
        state = self._reader.seal(b"[" + b",".join(layout[:whole]) + b"]") if opaque and whole else None
        return Reply(Text.of("".join(texts)), self._calls(asked), reasoning, state)

    def _calls(self, blocks: list[_Block]) -> tuple[ToolCall, ...]:
        ids = distinct([as_text(block.start.get("id")) for block in blocks])
        names = [as_text(block.start.get("name")) for block in blocks]
        return tuple(
            [
                tool_call(id_, self._names.get(name, name), block.source)
                for id_, name, block in zip(ids, names, blocks, strict=True)
            ]
        )


def _said(text: str, thought: str) -> Iterator[TextDelta | ReasoningDelta]:
    if thought:
        yield ReasoningDelta(thought)
    if text:
        yield TextDelta(text)


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Return the vendor's counters as disjoint buckets.

    Args:
        usage: The `usage` object; its input tokens leave out what was read from and written to a cache.
    """
    created = as_object(usage.get("cache_creation"))
    written = as_count(usage.get("cache_creation_input_tokens"))
    long = as_count(created.get("ephemeral_1h_input_tokens"))
    short = as_count(created.get("ephemeral_5m_input_tokens"))
    output = as_count(usage.get("output_tokens"))
    thought = as_count(as_object(usage.get("output_tokens_details")).get("thinking_tokens"))
    return Usage(
        as_count(usage.get("input_tokens")),
        as_count(usage.get("cache_read_input_tokens")),
        max(written - long, short),
        long,
        output,
        min(thought, output),
    )
