"""Gemini answers, read chunk by chunk into one reply."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import msgspec

from shoal.errors import ProviderRefused, ProviderUnavailable
from shoal.providers._calls import distinct, tool_call
from shoal.providers._events import cut, decoded, made, part_of
from shoal.providers._json import as_count, as_object, as_text
from shoal.providers._refusals import Asked, refusal, request_id
from shoal.providers._sse import Event
from shoal.providers._states import Reader, called_piece, made_piece, said_piece
from shoal.providers._text import Text
from shoal.providers._values import Completed, Finish, ReasoningDelta, Reply, TextDelta, ToolCall, Usage

_FINISH: Mapping[str, Finish] = {
    "BLOCKLIST": "refusal",
    "ESCALATION": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
    "IMAGE_SAFETY": "refusal",
    "LANGUAGE": "refusal",
    "MAX_TOKENS": "length",
    "MODEL_ARMOR": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "PUP_LIMITED_DISABLED": "refusal",
    "RECITATION": "refusal",
    "SAFETY": "refusal",
    "SPII": "refusal",
}
_FAILED = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS", "UNEXPECTED_TOOL_CALL"})
_UNSET = "_UNSPECIFIED"
_REFUSED = frozenset({"CONTINUATION", "MISSING_THOUGHT_SIGNATURE"})


@final
class _Content(msgspec.Struct):
    parts: list[msgspec.Raw] | None = None


@final
class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


@final
class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: dict[str, Any] | None = None
    usage_metadata: dict[str, Any] | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


@final
class _FunctionCall(msgspec.Struct):
    name: str = ""
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


@final
class _InlineData(msgspec.Struct, rename="camel"):
    data: str = ""


@final
class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str = ""
    function_call: _FunctionCall | None = None
    inline_data: _InlineData | None = None


_chunk = msgspec.json.Decoder(_Chunk, strict=False)
_chunks = msgspec.json.Decoder(list[_Chunk], strict=False)
_part = msgspec.json.Decoder(_Part, strict=False)


@final
class GeminiReply:
    """One reply in the making; feed it each chunk.

    Args:
        asked: Who was asked, for errors.
        headers: The answer's headers, by lower-case name.
        names: Our name of each tool, by the name that was sent.
        reader: Who can read the signatures that have to come back.
    """

    ended = False
    """The API sends no mark at the end: everything is read, and a reason to finish is what makes a reply whole."""

    def __init__(self, asked: Asked, *, headers: Mapping[str, str], names: Mapping[str, str], reader: Reader) -> None:
        self._asked = asked
        self._headers = headers
        self._names = names
        self._reader = reader
        self._texts: list[list[str]] = []  # pieces of each text; one that was signed takes no more
        self._thoughts: list[str] = []
        self._calls: list[_FunctionCall] = []
        self._made: list[bytes] = []
        self._layout: list[tuple[str, int, str] | bytes] = []
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._id: str | None = None
        self._finish = ""
        self._said = ""

    def __repr__(self) -> str:
        return f"<GeminiReply of {self._asked.model}, finish {self._finish or None}>"

    def feed(self, event: Event) -> Iterator[TextDelta | ReasoningDelta]:
        """Take one chunk (or a whole answer) and yield what it says.

        Raises:
            ProviderError: The chunk is an error, in the leaf that its type names.
            ProviderUnavailable: It is no chunk of this API at all.
        """
        if event.data.strip() == b"[DONE]":  # some gateways send it
            return
        if event.data.lstrip()[:1] == b"[":
            chunks = decoded(_chunks, event.data, self._asked, **self._context())
        else:
            chunks = [decoded(_chunk, event.data, self._asked, **self._context())]
        for chunk in chunks:
            if chunk.error is not None:
                raise refusal(self._asked, {"error": chunk.error}, status=200, headers=self._headers)
            yield from self._take(chunk)

    def _take(self, chunk: _Chunk) -> Iterator[TextDelta | ReasoningDelta]:
        self._model = chunk.model_version or self._model
        self._id = chunk.response_id or self._id
        # A later counter replaces an earlier one: they are totals, not increments.
        self._usage.update({name: value for name, value in (chunk.usage_metadata or {}).items() if value is not None})
        blocked = as_text((chunk.prompt_feedback or {}).get("blockReason"))
        self._finish = "SAFETY" if blocked and not blocked.endswith(_UNSET) else self._finish
        for candidate in (chunk.candidates or [])[:1]:
            if candidate.finish_reason and not candidate.finish_reason.endswith(_UNSET):
                self._finish = candidate.finish_reason
            self._said = candidate.finish_message or self._said
            for raw in (candidate.content.parts if candidate.content else None) or ():
                yield from self._take_part(raw)

    def _take_part(self, raw: msgspec.Raw) -> Iterator[TextDelta | ReasoningDelta]:
        part = decoded(_part, bytes(raw), self._asked, **self._context())
        if part.function_call is not None:
            self._layout.append(("call", len(self._calls), part.thought_signature))
            self._calls.append(part.function_call)
        elif part.inline_data is not None:
            self._take_data(part.inline_data.data, part)
        elif part.thought:
            if part.text:
                self._thoughts.append(part.text)
                yield ReasoningDelta(part.text)
            if part.thought_signature:
                self._keep(raw)
        elif part.text is None or (not part.text and part.thought_signature):
            self._keep(raw)
        elif part.text:
            self._take_text(part.text, part.thought_signature)
            yield TextDelta(part.text)

    def _keep(self, raw: msgspec.Raw) -> None:
        """Keep a part that goes back as it came."""
        self._layout.append(part_of(raw, self._asked, **self._context())[0])

    def _take_data(self, data: str, part: _Part) -> None:
        """Take what the model made; sketches that it made while it thought are not part of its answer."""
        if part.thought:
            return
        self._layout.append(("made", len(self._made), part.thought_signature))
        self._made.append(made(data, self._asked, **self._context()))

    def _take_text(self, text: str, signature: str) -> None:
        last = self._layout[-1] if self._layout else b""
        if not signature and isinstance(last, tuple) and last[0] == "text" and not last[2]:
            self._texts[last[1]].append(text)
            return
        self._layout.append(("text", len(self._texts), signature))
        self._texts.append([text])

    # --- the end

    def completed(self, *, prompt_bytes: int) -> Completed:
        """Return the whole reply.

        Args:
            prompt_bytes: Size of the request, for an estimate where the server counts nothing.

        Raises:
            ProviderUnavailable: The stream was cut, or the model's own calls were no calls.
            ProviderRefused: The model asks for what it would not get a second time either.
        """
        if not self._finish:
            raise cut(self._asked, request_id=request_id(self._headers) or self._id)
        said = f" ({self._asked.clean(self._said)})" if self._said else ""
        if self._finish in _FAILED:
            why = f"{self._asked.provider}: the reply ended with `{self._finish}`{said}; try again"
            raise ProviderUnavailable(why, **self._context())
        if self._finish in _REFUSED:
            why = f"{self._asked.provider}: the reply ended with `{self._finish}`{said}; change the request"
            raise ProviderRefused(why, **self._context())
        texts = ["".join(pieces) for pieces in self._texts]
        thoughts = "".join(self._thoughts)
        reply = Reply(Text.of("".join(texts)), self._made_calls(), thoughts, self._state(texts), tuple(self._made))
        usage = usage_of(self._usage)
        if not self._usage:
            written = len(reply.text) + len(reply.reasoning.encode()) + sum([len(c.arguments) for c in reply.calls])
            usage = Usage(uncached=math.ceil(prompt_bytes / 4), output=math.ceil(written / 4))
        return Completed(
            reply,
            usage,
            "tool_calls" if reply.calls else _FINISH.get(self._finish, "stop"),
            self._model or self._asked.model,
            request_id(self._headers) or self._id,
            estimated=not self._usage,
        )

    def _state(self, texts: Sequence[str]) -> Any:
        """Return what has to come back; `None` where nothing was signed or unknown, and no call had an id."""
        notable = any(isinstance(part, bytes) or part[2] for part in self._layout) or any(c.id for c in self._calls)
        if not notable or not (self._calls or self._made or "".join(texts).strip()):
            return None
        layout: list[bytes] = []
        for part in self._layout:
            if isinstance(part, bytes):
                layout.append(part)
                continue
            kind, index, signature = part
            if kind == "call":
                layout.append(called_piece(index, signature, named=bool(self._calls[index].id)))
            elif kind == "made":
                layout.append(made_piece(index, signature))
            else:
                layout.append(said_piece(len(Text.of(texts[index]).body), signature))
        return self._reader.seal(b"[" + b",".join(layout) + b"]")

    def _made_calls(self) -> tuple[ToolCall, ...]:
        ids = distinct([call.id or "" for call in self._calls])
        return tuple(
            [
                tool_call(id_, self._names.get(call.name, call.name), bytes(call.args).decode("utf-8", "replace"))
                for id_, call in zip(ids, self._calls, strict=True)
            ]
        )

    def _context(self) -> dict[str, Any]:
        return self._asked.context(request_id=request_id(self._headers) or self._id, status=200)


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Return the vendor's counters as disjoint buckets.

    Args:
        usage: The `usageMetadata` object; its prompt tokens include what was read from a cache, its candidate tokens
            leave out what the model thought.
    """
    prompt = as_count(usage.get("promptTokenCount")) + as_count(usage.get("toolUsePromptTokenCount"))
    read = min(as_count(usage.get("cachedContentTokenCount")), prompt)
    thought = as_count(usage.get("thoughtsTokenCount"))
    said = as_count(as_object(usage).get("candidatesTokenCount"))
    return Usage(prompt - read, read, output=said + thought, reasoning=thought)
