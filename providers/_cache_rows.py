"""Requests as caches see them, read from the bodies that are sent.

A body is what counts: whoever made it, what stands in it is what a cache compares. Text costs a token for four bytes,
rounded up block by block, which is a guess for any real vocabulary and the same guess for every request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, final

import msgspec

from shoal.providers._json import as_list, as_object, as_text
from shoal.providers._values import digest

BYTES_PER_TOKEN = 4
IMAGE_TOKENS = 1600
DOCUMENT_TOKENS = 2000

Api: TypeAlias = Literal["messages", "responses", "chat", "gemini"]
Json: TypeAlias = Mapping[str, Any]

_SHORT = {"messages": "5m", "chat": "30m", "responses": "30m", "gemini": ""}


@final
class Piece(msgspec.Struct, frozen=True, gc=False):
    """One block of a request.

    Args:
        section: The part of the request that it stands in, as the vendor orders them.
        frame: Who says it, and in which kind of block: compared as a whole.
        data: What it says: compared byte for byte. Markers are no part of it.
        tokens: What it costs, 0 or more.
        marker: The lifetime that a marker on it asks for; empty without one.
        counts: It takes up a place of a look-back.
        ends: A message ends with it.
    """

    section: str
    frame: bytes
    data: bytes
    tokens: int
    marker: str = ""
    counts: bool = True
    ends: bool = False


@final
class Row(msgspec.Struct, frozen=True):
    """A request as a cache sees it.

    Args:
        model: The model.
        pieces: Its blocks, in the order in which the cache sees them.
        tiers: What else has to be the same from a section on, by the section.
        key: Its cache key; empty for none.
        explicit: The vendor marks nothing by itself.
        lifetime: What a marker asks for that names no lifetime, and a mark of the vendor's own.
    """

    model: str
    pieces: tuple[Piece, ...]
    tiers: Mapping[str, str] = {}
    key: str = ""
    explicit: bool = False
    lifetime: str = ""

    @property
    def tokens(self) -> int:
        """What all of it costs."""
        return sum([piece.tokens for piece in self.pieces])

    def upto(self) -> list[int]:
        """Return what everything up to the end of each piece costs."""
        total = 0
        upto: list[int] = []
        for piece in self.pieces:
            total += piece.tokens
            upto.append(total)
        return upto

    def chain(self) -> list[bytes]:
        """Return 16 bytes for each piece that stand for everything up to its end."""
        key = digest(self.model.encode("utf-8", "surrogatepass"), self.key.encode("utf-8", "surrogatepass"))
        keys: list[bytes] = []
        section = ""
        for piece in self.pieces:
            if piece.section != section:
                section = piece.section
                key = digest(key, section.encode(), self.tiers.get(section, "").encode("utf-8", "surrogatepass"))
            key = digest(key, piece.frame, piece.data)
            keys.append(key)
        return keys


def row_of(api: Api, body: bytes | Json, *, model: str = "") -> Row:
    """Return the request *body* as a cache sees it.

    Args:
        api: The API that it is sent to.
        body: The JSON body, or what it decodes to.
        model: The model, where the body does not name it.
    """
    read: Json = as_object(msgspec.json.decode(body)) if isinstance(body, bytes) else body
    pieces = [*_PIECES[api](read)]
    options = as_object(read.get("prompt_cache_options"))
    row = Row(
        as_text(read.get("model")) or model,
        tuple(_marked_at_end(pieces, as_object(read.get("cache_control")))),
        _tiers(api, read, pieces),
        as_text(read.get("prompt_cache_key")),
        options.get("mode") == "explicit",
        as_text(options.get("ttl")) or _SHORT[api],
    )
    named = [msgspec.structs.replace(p, marker=row.lifetime) if p.marker == "default" else p for p in row.pieces]
    return msgspec.structs.replace(row, pieces=tuple(named))


# --- Anthropic Messages


def _messages(body: Json) -> Iterator[Piece]:
    for tool in as_list(body.get("tools")):
        said = {key: tool[key] for key in ("name", "description", "input_schema") if key in tool}
        yield Piece("tools", b"", _compact(_bare(tool)), _count(_compact(said)), _ttl(tool))
    system = body.get("system")
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else as_list(system):
        yield _block("system", "", block)
    for message in as_list(body.get("messages")):
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content):
            yield _block("messages", as_text(message["role"]), block)


def _block(section: str, role: str, block: Json) -> Piece:
    marker = _ttl(block) or next((_ttl(inner) for inner in _inner(block) if _ttl(inner)), "")
    return Piece(section, role.encode(), _compact(_bare(block)), _block_tokens(block), marker)


def _inner(block: Json) -> list[Json]:
    return [as_object(inner) for inner in as_list(block.get("content"))]


def _block_tokens(block: Json) -> int:
    match block.get("type"):
        case "text":
            return _count(as_text(block.get("text")))
        case "tool_use":
            return _count(as_text(block.get("name"))) + _count(_compact(block.get("input")))
        case "tool_result":
            content = block.get("content")
            return _count(content) if isinstance(content, str) else sum(map(_block_tokens, _inner(block)))
        case "thinking":
            return _count(as_text(block.get("thinking")))
        case "image":
            return IMAGE_TOKENS
        case "document":
            return DOCUMENT_TOKENS
        case _:
            return _count(_compact(_bare(block)))


def _bare(block: Json) -> Json:
    kept = {key: value for key, value in sorted(block.items()) if key not in _MARKS}
    if isinstance(kept.get("content"), list):
        kept["content"] = [_bare(as_object(inner)) for inner in kept["content"]]
    return kept


def _marked_at_end(pieces: Sequence[Piece], control: Json) -> Sequence[Piece]:
    """Return *pieces* with the marker of the whole request on the last of them that takes one."""
    if not control:
        return pieces
    made = [*pieces]
    for at in range(len(made) - 1, -1, -1):
        if not made[at].data.startswith(_THOUGHT):
            if not made[at].marker:
                made[at] = msgspec.structs.replace(made[at], marker=_ttl({"cache_control": control}))
            break
    return made


# --- OpenAI


def _chat(body: Json) -> Iterator[Piece]:
    yield from _openai_tools(body, as_object(body.get("response_format")))
    for message in as_list(body.get("messages")):
        yield from _ended([*_chat_message(message)])


def _chat_message(message: Json) -> Iterator[Piece]:
    role, content = as_text(message["role"]), message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    for part in parts:
        yield _part(role, as_object(part))
    for field in ("reasoning_content", "reasoning", "refusal"):
        if message.get(field):
            text = as_text(message[field])
            yield Piece("messages", f"{role} {field}".encode(), _utf8(text), _count(text))
    for call in as_list(message.get("tool_calls")):
        asked = as_object(as_object(call).get("function"))
        tokens = _count(as_text(asked.get("name"))) + _count(as_text(asked.get("arguments")))
        yield Piece("messages", f"{role} call".encode(), _compact(asked), tokens)


def _responses(body: Json) -> Iterator[Piece]:
    yield from _openai_tools(body, as_object(as_object(body.get("text")).get("format")))
    if instructions := as_text(body.get("instructions")):
        yield Piece("instructions", b"", _utf8(instructions), _count(instructions))
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)
    for item in items:
        yield from _ended([*_item(as_object(item))])


def _item(item: Json) -> Iterator[Piece]:
    kind = as_text(item.get("type")) or "message"
    if kind == "message":
        for part in _text_or_parts(item.get("content")):
            yield _part(as_text(item.get("role")), part)
    elif kind == "function_call":
        name, given = as_text(item.get("name")), as_text(item.get("arguments"))
        yield Piece("messages", b"call", _compact([item.get("call_id"), name, given]), _count(name) + _count(given))
    elif kind == "function_call_output":
        for part in _text_or_parts(item.get("output")):
            yield msgspec.structs.replace(_part("output", part), marker="")  # taken, and without effect
    elif kind == "reasoning":
        yield Piece("messages", b"reasoning", _compact(item), _count(_compact(item.get("summary"))))
    else:
        yield Piece("messages", kind.encode(), _compact(item), _count(_compact(item)))


def _openai_tools(body: Json, form: Json) -> Iterator[Piece]:
    for tool in as_list(body.get("tools")):
        text = _compact(tool)
        yield Piece("tools", b"", text, _count(text))
    if form.get("type") == "json_schema":
        text = _compact(form)
        yield Piece("format", b"", text, _count(text))


def _text_or_parts(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [as_object(part) for part in as_list(content)]


def _part(role: str, part: Json) -> Piece:
    kind = as_text(part.get("type")).removeprefix("input_").removeprefix("output_")
    frame = f"{role} {kind}".encode()
    if kind in ("text", "refusal"):
        text = as_text(part.get("text") or part.get("refusal"))
        return Piece("messages", frame, _utf8(text), _count(text), _ttl(part))
    tokens = IMAGE_TOKENS if kind.startswith("image") else DOCUMENT_TOKENS
    return Piece("messages", frame, _compact(_bare(part)), tokens, _ttl(part))


def _ended(pieces: list[Piece]) -> list[Piece]:
    return [*pieces[:-1], *[msgspec.structs.replace(piece, ends=True) for piece in pieces[-1:]]]


# --- Gemini


def _gemini(body: Json) -> Iterator[Piece]:
    for part in as_list(as_object(body.get("systemInstruction")).get("parts")):
        yield _gemini_part("system", "", as_object(part))
    for tool in as_list(body.get("tools")):
        for declared in as_list(as_object(tool).get("functionDeclarations")):
            text = _compact(declared)
            yield Piece("tools", b"", text, _count(text))
    if schema := as_object(as_object(body.get("generationConfig")).get("responseJsonSchema")):
        yield Piece("format", b"", _compact(schema), _count(_compact(schema)))
    for content in as_list(body.get("contents")):
        for part in as_list(content.get("parts")):
            yield _gemini_part("contents", as_text(content.get("role")) or "user", as_object(part))


def _gemini_part(section: str, role: str, part: Json) -> Piece:
    if "text" in part:
        text = as_text(part["text"])
        return Piece(section, f"{role} text".encode(), _utf8(text), _count(text))
    [(kind, held), *_] = [(key, value) for key, value in part.items() if key != "thoughtSignature"] or [("", {})]
    signed = as_text(part.get("thoughtSignature"))
    tokens = _count(_compact(held))
    if kind in ("functionCall", "functionResponse"):
        given = as_object(as_object(held).get("args" if kind == "functionCall" else "response"))
        tokens = _count(as_text(as_object(held).get("name"))) + _count(_compact(given))
    elif kind == "inlineData":
        tokens = IMAGE_TOKENS
    return Piece(section, f"{role} {kind} {signed}".encode(), _compact(held), tokens)


# --- what all share


def _tiers(api: Api, body: Json, pieces: Sequence[Piece]) -> dict[str, str]:
    """Return what has to be the same besides the blocks, by the section from which on it matters."""
    if api == "messages":
        choice = as_object(body.get("tool_choice"))
        thinks = [body.get("thinking"), as_object(body.get("output_config")).get("effort")]
        images = any(b'"type":"image"' in piece.data for piece in pieces)
        chosen = [choice.get("type") or "auto", choice.get("name"), bool(choice.get("disable_parallel_tool_use"))]
        speed = as_text(body.get("speed")) or "standard"
        return {"system": speed, "messages": json.dumps([chosen, images, thinks], sort_keys=True)}
    if api == "gemini":
        return {}
    effort = body.get("reasoning_effort") or as_object(body.get("reasoning")).get("effort")
    verbosity = body.get("verbosity") or as_object(body.get("text")).get("verbosity")
    first = pieces[0].section if pieces else ""
    return {first: json.dumps([effort, verbosity, body.get("service_tier") or "auto"])}


def _ttl(block: Json) -> str:
    if block.get("cache_control"):
        return as_text(as_object(block["cache_control"]).get("ttl")) or "5m"
    if "prompt_cache_breakpoint" in block:
        return as_text(as_object(block["prompt_cache_breakpoint"]).get("ttl")) or "default"
    return ""


def _compact(value: object) -> bytes:
    return _utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _count(text: str | bytes) -> int:
    return -(-len(text if isinstance(text, bytes) else _utf8(text)) // BYTES_PER_TOKEN)


_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_THOUGHT = (b'{"signature":', b'{"thinking":', b'{"data":')
_PIECES = {"messages": _messages, "responses": _responses, "chat": _chat, "gemini": _gemini}
