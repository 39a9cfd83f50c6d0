"""An Anthropic request in no vendor's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from shoal.testing.wire._anthropic._request import Request, blocks
from shoal.testing.wire._values import Ask, Call, Offered, Result, Said


def ask_of(request: Request) -> Ask:
    """Return what the brain is asked."""
    system = tuple(Said("system", piece.block["text"]) for piece in request.system())
    tools = tuple(
        Offered(tool["name"], tool.get("description") or "", tool["input_schema"])
        for tool in request.tools
        if "input_schema" in tool
    )
    choice = request.choice
    names: dict[str, str] = {}
    return Ask(
        dialect="anthropic",
        model=request.model.name,
        said=(*system, *(said(message, number, names) for number, message in enumerate(request.messages))),
        tools=tools,
        choice=choice["name"] if choice["type"] == "tool" else choice["type"],
        max_tokens=cast("int", request.body["max_tokens"]),
        number=0,
        body=request.body,
    )


def said(message: Mapping[str, Any], number: int, names: dict[str, str]) -> Said:
    """Return one message; *names* of calls by their ids are noted, and used for results."""
    found = [block for _, block in blocks(message["content"], f"messages.{number}")]
    names.update({block["id"]: block["name"] for block in found if block["type"] == "tool_use"})
    return Said(
        role=message["role"],
        text="\n".join(block["text"] for block in found if block["type"] == "text"),
        calls=tuple(Call(block["name"], block["input"], block["id"]) for block in found if block["type"] == "tool_use"),
        results=tuple(_result(block, names) for block in found if block["type"] == "tool_result"),
    )


def _result(block: Mapping[str, Any], names: Mapping[str, str]) -> Result:
    found = [inner for _, inner in blocks(block.get("content") or "", "")]
    text = "\n".join(inner["text"] for inner in found if inner["type"] == "text")
    use_id = block["tool_use_id"]
    return Result(use_id, names.get(use_id, ""), text, bool(block.get("is_error")))
