"""What the model reads of a request, block by block, as the cache sees it and as it is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from shoal.testing.wire import _media
from shoal.testing.wire._anthropic._binding import Bindings, sealed_in
from shoal.testing.wire._anthropic._markers import markers
from shoal.testing.wire._anthropic._request import THINKING, Piece, Request, canonical
from shoal.testing.wire._models import Model
from shoal.testing.wire._prompt import Block, Prompt
from shoal.testing.wire._seal import Seals
from shoal.testing.wire._settings import CacheSwitches
from shoal.testing.wire._tokens import compact, count, utf8

PATCH_PIXELS = 28
PAGE_TOKENS = 2000
"""What a page of a PDF counts. The vendor counts its text and its picture; this is an assumption."""

_DEFINES = ("name", "description", "input_schema")


def prompt(request: Request, made: Bindings, scope: str, switches: CacheSwitches) -> Prompt:
    """Return what *request* makes the model read; *made* says which thinking it does not see."""
    marked = markers(request)
    found: list[Block] = []
    for number, tool in enumerate(request.tools):
        path, bare = f"tools.{number}", {key: tool[key] for key in tool if key != "cache_control"}
        found.append(Block(path, "tools", utf8(compact(bare)), tool_tokens(tool), marker=marked.get(path)))
    found += [_block(request, piece, "system", marked) for piece in request.system()]
    for role, piece in visible(request, made):
        block = _block(request, piece, "messages", marked, role)
        counts = switches.thinking_counts or piece.kind not in THINKING
        found.append(block if counts else replace(block, place=False))
    return Prompt(request.model.name, scope, tuple(found), tiers(request, switches))


def _block(request: Request, piece: Piece, tier: str, marked: Mapping[str, str], role: str = "") -> Block:
    return Block(
        path=piece.path,
        tier=tier,
        data=utf8(canonical(piece.block)),
        tokens=tokens(piece.block, request.model, request.seals),
        frame=role.encode(),
        marker=marked.get(piece.path),
    )


def visible(request: Request, made: Bindings) -> list[tuple[str, Piece]]:
    """Return the blocks of the messages that the model sees, each with its role."""
    spoken = [number for number, run in enumerate(request.runs) if run.role == "user"]
    asked = [number for number in spoken if any(piece.kind != "tool_result" for piece in request.runs[number].pieces)]
    turn_from = max(asked, default=-1)
    found: list[tuple[str, Piece]] = []
    for number, run in enumerate(request.runs):
        if run.role == "system" and _cleared(request, run.first) and any(later > number for later in spoken):
            continue
        forgotten = request.thinking == "disabled" or (not request.model.keeps and number < turn_from)
        for piece in run.pieces:
            if piece.kind in THINKING and (forgotten or piece.path in made.dropped):
                continue
            found.append((run.role, piece))
    return found


def _cleared(request: Request, message: int) -> bool:
    return request.messages[message].get("clear_at") == "next_user_message"


def tiers(request: Request, switches: CacheSwitches) -> dict[str, str]:
    """Return what, besides its blocks, each part of the prompt is found by."""
    body, choice = request.body, request.choice
    asked = cast("Mapping[str, Any]", body.get("thinking") or {})
    thinking = compact([request.thinking, asked.get("budget_tokens"), request.effort or request.model.effort])
    searches = [tool["type"] for tool in request.tools if str(tool.get("type", "")).startswith("web_")]
    cites = any(piece.block.get("citations") for piece in request.pieces if piece.kind == "document")
    images = any(piece.kind == "image" for piece in request.pieces)
    chosen = [choice["type"], choice.get("name"), bool(choice.get("disable_parallel_tool_use"))]
    return {
        "tools": thinking if switches.thinking_in_tools else "",
        "system": compact([searches, cites, body.get("speed") or "standard"])
        + (thinking if switches.thinking_in_system else ""),
        "messages": compact([chosen, images]) + thinking,
    }


def tool_tokens(tool: Mapping[str, Any]) -> int:
    """Return what the definition of a tool counts: its name, description and schema, as JSON."""
    custom = tool.get("type") in (None, "custom")
    return count(compact({key: tool[key] for key in tool if (key in _DEFINES if custom else key != "cache_control")}))


def tokens(block: Mapping[str, Any], model: Model, seals: Seals) -> int:
    """Return what *block* counts."""
    match block["type"]:
        case "text":
            return count(block["text"])
        case "tool_use":
            return count(block["name"]) + count(compact(block["input"]))
        case "tool_result":
            content = block.get("content") or ""
            return count(content) if isinstance(content, str) else sum(tokens(inner, model, seals) for inner in content)
        case "thinking" | "redacted_thinking":
            facts = seals.read(sealed_in(block))
            return count(str(block.get("thinking", ""))) if facts is None else cast("int", facts["tokens"])
        case "image":
            return image_tokens(block["source"], model)
        case "document":
            return _document_tokens(block["source"])
        case _:
            return count(canonical(block))


def image_tokens(source: Mapping[str, Any], model: Model) -> int:
    """Return what an image counts: its patches of 28 pixels once scaled down; the most, if its size is unknown."""
    image = _media.image(_media.decoded(source["data"]) or b"") if source["type"] == "base64" else None
    if image is None:
        return model.image_tokens
    scale = min(1.0, model.image_edge / max(image.width, image.height, 1))
    width, height = int(image.width * scale), int(image.height * scale)
    return min(model.image_tokens, -(-width // PATCH_PIXELS) * -(-height // PATCH_PIXELS))


def _document_tokens(source: Mapping[str, Any]) -> int:
    match source["type"]:
        case "base64":
            pdf = _media.pdf(_media.decoded(source["data"]) or b"")
            return PAGE_TOKENS * (pdf.pages if pdf else 1)
        case "text":
            return count(source["data"])
        case "content":
            return count(compact(source["content"]))
        case _:
            return PAGE_TOKENS
