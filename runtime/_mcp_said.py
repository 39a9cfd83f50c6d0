"""What MCP servers say: their tools, under names that models may use, and the results of calls."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal.providers import Text
from shoal.runtime._attachment import Attachment
from shoal.runtime.tools import Effects, ToolResult

if TYPE_CHECKING:
    import mcp
    from mcp import types

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


async def listed(client: mcp.Client) -> Sequence[types.Tool]:
    """Return the tools of a server, all pages of them."""
    found: list[types.Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found.extend(page.tools)
        cursor = page.next_cursor
        if not cursor:
            return found


async def called(name: str, args: dict[str, Any], timeout_s: float, client: mcp.Client) -> ToolResult:
    """Call a tool of a server, and return what it says."""
    result = await client.call_tool(name, args, read_timeout_seconds=timeout_s)
    said: list[str] = []
    parts: list[Attachment] = []
    for piece in result.content:
        text, part = read_piece(piece)
        said.extend([text] if text else [])
        parts.extend([part] if part else [])
    text = "\n".join(said)
    if result.is_error:
        return ToolResult.error(text or "the call failed, and the server does not say why")
    return ToolResult(Text.of(text), parts=tuple(parts))


def read_piece(piece: Any) -> tuple[str, Attachment | None]:
    """Return a piece of a result as text, or as a part."""
    match piece.type:
        case "text":
            return piece.text, None
        case "image" | "audio":
            return "", Attachment(base64.b64decode(piece.data), f"{piece.type}.{piece.mime_type.rpartition('/')[2]}")
        case "resource_link":
            return f"[{piece.name}]({piece.uri})", None
        case _:
            held = piece.resource
            text = getattr(held, "text", None)
            if text is not None:
                return text, None
            return "", Attachment(base64.b64decode(held.blob), str(held.uri).rpartition("/")[2])


def effects_of(hints: types.ToolAnnotations | None) -> Effects:
    """Return what a tool does to the world by the hints of its server; without any it writes, and reaches beyond."""
    if hints is None:
        return Effects(writes=True, network=True)
    reads = bool(hints.read_only_hint)
    idempotent = True if hints.idempotent_hint else None
    return Effects(reads, not reads, hints.open_world_hint is not False, idempotent=idempotent)


def legal(name: str) -> str:
    """Return *name* with `_` for each character that a tool's name may not have."""
    return _ILLEGAL.sub("_", name)


def legal_names(server: str, originals: Sequence[str]) -> Sequence[str]:
    """Return the names under which models call a server's tools; they are legal, short enough, and each its own."""
    taken: dict[str, None] = {}
    for original in originals:
        plain = legal(f"{server}__{original}")[:_LONGEST_NAME]
        name, count = plain, 1
        while name in taken:
            count += 1
            tail = f"_{count}"
            name = plain[: _LONGEST_NAME - len(tail)] + tail
        taken[name] = None
    return tuple(taken)
