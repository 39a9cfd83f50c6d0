"""What Gemini reads of a request, block by block."""

from __future__ import annotations

from shoal.testing.wire._gemini._media import media_tokens
from shoal.testing.wire._gemini._request import CALL, RESPONSE, Piece, Request
from shoal.testing.wire._json import obj
from shoal.testing.wire._prompt import Block, Prompt
from shoal.testing.wire._tokens import compact, count, utf8

MEDIA = ("inlineData", "fileData")


def prompt(request: Request, scope: str) -> Prompt:
    """Return what *request* makes the model read. What it thought aloud before is not read again."""
    blocks = [_block(piece, "system", "") for piece in request.system]
    for path, function in request.functions:
        text = compact(function)
        blocks.append(Block(path, "tools", utf8(text), count(text)))
    for field in ("responseSchema", "responseJsonSchema"):
        if field in request.generation:
            text = compact(request.generation[field])
            blocks.append(Block(f"generation_config.{field}", "format", utf8(text), count(text)))
    for turn in request.contents:
        blocks += [_block(piece, "contents", turn.role) for piece in turn.pieces if not piece.part.get("thought")]
    return Prompt(request.model.name, scope, tuple(blocks))


def _block(piece: Piece, tier: str, role: str) -> Block:
    frame = f"{role} {piece.kind} {piece.signature or ''}".encode()
    if piece.kind == "text":
        return Block(piece.path, tier, utf8(piece.held), count(piece.held), frame)
    return Block(piece.path, tier, utf8(compact(piece.held)), _tokens(piece), frame)


def _tokens(piece: Piece) -> int:
    held = obj(piece.held)
    if piece.kind in MEDIA:
        return media_tokens(piece)
    if piece.kind in (CALL, RESPONSE):
        given = obj(held.get("args" if piece.kind == CALL else "response"))
        return count(held.get("name") or "") + count(compact(given)) + media_tokens(piece)
    return count(compact(held))
