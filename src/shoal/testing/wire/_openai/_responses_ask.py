"""A response that is asked for, in no vendor's words."""

from __future__ import annotations

from shoal.testing.wire._openai._responses_request import Item, Request, text_of
from shoal.testing.wire._values import Ask, Call, Offered, Result, Said


def ask_of(request: Request) -> Ask:
    """Return what the brain is asked. What the model says in several items is one message."""
    said: list[Said] = []
    if instructions := request.body.get("instructions"):
        said.append(Said("system", instructions))
    names: dict[str, str] = {}
    for item in request.items:
        made = _said(item, names)
        if made is None:
            continue
        if said and said[-1].role == made.role == "assistant":
            before = said.pop()
            text = "\n".join(part for part in (before.text, made.text) if part)
            made = Said("assistant", text, before.calls + made.calls)
        said.append(made)
    return Ask(
        dialect="responses",
        model=request.model.name,
        said=tuple(said),
        tools=tuple(
            Offered(tool["name"], tool.get("description") or "", tool.get("parameters") or {})
            for _, tool in request.functions
        ),
        choice=request.choice,
        max_tokens=request.body.get("max_output_tokens"),
        number=0,
        body=request.body,
    )


def _said(item: Item, names: dict[str, str]) -> Said | None:
    value = item.value
    match item.kind:
        case "message":
            role = value["role"] if value["role"] in ("user", "assistant") else "system"
            return Said(role, text_of(value["content"]))
        case "function_call" | "custom_tool_call":
            names[value["call_id"]] = value["name"]
            given = value.get("arguments", value.get("input"))
            return Said("assistant", calls=(Call(value["name"], given, value["call_id"]),))
        case "function_call_output" | "custom_tool_call_output":
            call_id = value["call_id"]
            return Said("user", results=(Result(call_id, names.get(call_id, ""), text_of(value["output"])),))
        case _:
            return None
