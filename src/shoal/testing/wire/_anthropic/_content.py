"""What stands in blocks: names, ids and inputs (A7), text (A8), images (A18), documents (A19)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from shoal.testing.wire import _media
from shoal.testing.wire._anthropic._request import Piece, Request, inner_blocks
from shoal.testing.wire._rules import Violation

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID = re.compile(r"[a-zA-Z0-9_-]+")
IMAGE_BYTES = 10 * 1024 * 1024
IMAGE_SIDE = 8000
IMAGE_SIDE_OF_MANY = 2000
MANY_IMAGES = 20
SHORT_WINDOW = 200_000
IMAGES = 600
IMAGES_OF_SHORT = 100
PAGES = 600
PAGES_OF_SHORT = 100
LONG_WINDOW = 1_000_000


def a7(request: Request) -> Iterator[Violation]:
    """Names of tools, their schemas, what a tool use carries."""
    seen: set[str] = set()
    for number, tool in enumerate(request.tools):
        if tool.get("type") not in (None, "custom"):
            continue
        path = f"tools.{number}.custom"
        name = cast("str", tool["name"])
        yield from _pattern(NAME, name, f"{path}.name")
        if name in seen:
            yield Violation("A7", f"{path}.name", "tools: Tool names must be unique.")
        seen.add(name)
        if tool["input_schema"].get("type") != "object":
            yield Violation("A7", f"{path}.input_schema.type", f"{path}.input_schema.type: Input should be 'object'")
    for piece in request.pieces:
        path = f"{piece.path}.{piece.kind}"
        match piece.kind:
            case "tool_use":
                yield from _pattern(ID, cast("str", piece.block["id"]), f"{path}.id")
                yield from _pattern(NAME, cast("str", piece.block["name"]), f"{path}.name")
            case "tool_result":
                yield from _pattern(ID, cast("str", piece.block["tool_use_id"]), f"{path}.tool_use_id")
            case _:
                pass


def _pattern(pattern: re.Pattern[str], value: str, path: str) -> Iterator[Violation]:
    if not pattern.fullmatch(value):
        yield Violation("A7", path, f"{path}: String should match pattern '^{pattern.pattern}$'")


def a8(request: Request) -> Iterator[Violation]:
    """No empty text, no empty message but a last one of the assistant's, no blanks at the end of that."""
    for piece in [*request.system(), *_all(request)]:
        text = piece.block.get("text") if piece.kind == "text" else None
        if text is None or piece.block.get("cache_control"):  # a marker on it is another matter: A9
            continue
        where = piece.path.partition(".")[0]
        if not text:
            yield Violation("A8", piece.path, f"{where}: text content blocks must be non-empty")
        elif not text.strip():
            yield Violation("A8", piece.path, f"{where}: text content blocks must contain non-whitespace text")
    yield from _empty_messages(request)
    last = request.runs[-1]
    if last.role == "assistant" and last.pieces and last.pieces[-1].kind == "text":
        text = cast("str", last.pieces[-1].block["text"])
        if text.strip() and text != text.rstrip():
            path = last.pieces[-1].path
            yield Violation("A8", path, "messages: final assistant content cannot end with trailing whitespace")


def _empty_messages(request: Request) -> Iterator[Violation]:
    for number, message in enumerate(request.messages):
        last = number == len(request.messages) - 1 and message["role"] == "assistant"
        if message["content"] == [] and not last:
            what = "all messages must have non-empty content except for the optional final assistant message"
            yield Violation("A8", f"messages.{number}", f"messages.{number}: {what}")


def a18(request: Request) -> Iterator[Violation]:
    """Images: how many, how large, of which type."""
    images = [piece for piece in _all(request) if piece.kind == "image"]
    most = IMAGES_OF_SHORT if request.model.window <= SHORT_WINDOW else IMAGES
    if len(images) > most:
        yield Violation("A18", "messages", f"messages: too many images: {len(images)} > {most}")
    longest = IMAGE_SIDE_OF_MANY if len(images) > MANY_IMAGES else IMAGE_SIDE
    for piece in images:
        source = cast("Mapping[str, Any]", piece.block["source"])
        if source["type"] == "base64":
            yield from _image(source, f"{piece.path}.image.source", longest)


def _image(source: Mapping[str, Any], path: str, longest: int) -> Iterator[Violation]:
    data = cast("str", source["data"])
    if len(data) > IMAGE_BYTES:
        what = f"image exceeds 10 MB maximum: {len(data)} bytes > {IMAGE_BYTES} bytes"
        yield Violation("A18", path, f"{path}.base64: {what}")
        return
    raw = _media.decoded(data)
    if raw is None:
        yield Violation("A18", path, f"{path}.base64.data: Input should be valid base64")
        return
    image = _media.image(raw)
    if image is None:
        yield Violation("A18", path, f"{path}: Could not process image")
    elif image.media_type != source["media_type"]:
        what = f"Image does not match the provided media type {source['media_type']}"
        yield Violation("A18", path, f"{path}.base64.media_type: {what}")
    elif max(image.width, image.height) > longest:
        what = f"At least one of the image dimensions exceed max allowed size: {longest} pixels"
        yield Violation("A18", path, f"{path}.base64.data: {what}")


def a19(request: Request) -> Iterator[Violation]:
    """Documents: readable, and not too long."""
    most = PAGES if request.model.window >= LONG_WINDOW else PAGES_OF_SHORT
    for piece in _all(request):
        source = cast("Mapping[str, Any]", piece.block["source"] if piece.kind == "document" else {})
        if source.get("media_type") != "application/pdf":
            continue
        path = f"{piece.path}.document.source.base64.data"
        pdf = _media.pdf(_media.decoded(cast("str", source["data"])) or b"")
        if pdf is None:
            yield Violation("A19", path, f"{path}: The PDF specified was not valid.")
        elif pdf.encrypted:
            yield Violation("A19", path, f"{path}: The PDF specified is password protected.")
        elif pdf.pages > most:
            yield Violation("A19", path, f"{path}: A maximum of {most} PDF pages may be provided.")


def _all(request: Request) -> list[Piece]:
    return [inner for piece in request.pieces for inner in inner_blocks(piece)]
