"""A chat completion in no vendor's words."""

from __future__ import annotations

from shoal.testing.wire._json import Json
from shoal.testing.wire._openai._chat_request import Request, calls_of, parts_of
from shoal.testing.wire._values import Ask, Call, Offered, Result, Said


def ask_of(request: Request) -> Ask:
    """Return what the brain is asked."""
    names: dict[str, str] = {}
    return Ask(
        dialect="chat",
        model=request.model.name,
        said=tuple(said(message, names) for message in request.messages),
        tools=tuple(
            Offered(function["name"], function.get("description") or "", function.get("parameters") or {})
            for _, function in request.functions
        ),
        choice=request.choice,
        max_tokens=request.budget,
        number=0,
        body=request.body,
    )


def said(message: Json, names: dict[str, str]) -> Said:
    """Return one message; *names* of calls by their ids are noted, and used for results."""
    text = "\n".join(part["text"] for _, part in parts_of(message, "") if part["type"] == "text")
    match message["role"]:
        case "tool":
            call_id = message["tool_call_id"]
            return Said("user", results=(Result(call_id, names.get(call_id, ""), text),))
        case "assistant":
            calls = [call for call in calls_of(message) if call["type"] == "function"]
            names.update({call["id"]: call["function"]["name"] for call in calls})
            made = (Call(call["function"]["name"], call["function"]["arguments"], call["id"]) for call in calls)
            return Said("assistant", text, tuple(made))
        case role:
            return Said("user" if role == "user" else "system", text)
