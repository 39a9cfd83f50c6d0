"""A request to Gemini in no vendor's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.testing.wire._gemini._request import CALL, RESPONSE, Piece, Request, Turn
from shoal.testing.wire._json import Json, arr, obj
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._values import Ask, Call, Offered, Result, Said


def ask_of(request: Request) -> Ask:
    """Return what the brain is asked."""
    said = [Said("system", _text(request.system))] if request.system else []
    return Ask(
        dialect="gemini",
        model=request.model.name,
        said=(*said, *(_said(turn, place) for place, turn in enumerate(request.contents))),
        tools=tuple(
            Offered(declared.get("name") or "", declared.get("description") or "", _schema(declared))
            for _, declared in request.functions
        ),
        choice=_choice(request.calling),
        max_tokens=request.generation.get("maxOutputTokens"),
        number=0,
        body=request.body,
    )


def _schema(declared: Json) -> Mapping[str, Any]:
    return obj(declared.get("parameters") or declared.get("parametersJsonSchema"))


def _choice(calling: Json) -> str:
    allowed = arr(calling.get("allowedFunctionNames"))
    match calling.get("mode"):
        case "ANY" if len(allowed) == 1:
            return str(allowed[0])
        case "ANY":
            return "any"
        case "NONE":
            return "none"
        case _:
            return "auto"


def _said(turn: Turn, place: int) -> Said:
    return Said(
        "assistant" if turn.role == "model" else "user",
        _text(turn.pieces),
        tuple(
            Call(call.held.get("name") or "", obj(call.held.get("args")), _id(call, place, number))
            for number, call in enumerate(turn.of(CALL))
        ),
        tuple(
            _result(response.held, _id(response, place - 1, number))
            for number, response in enumerate(turn.of(RESPONSE))
        ),
    )


def _id(piece: Piece, place: int, number: int) -> str:
    """Return the id of a call or response; where it has none, the place of the call: its content, and which it is."""
    return str(piece.held.get("id") or f"{place}.{number}")


def _text(pieces: tuple[Piece, ...] | list[Piece]) -> str:
    shown = [piece.held for piece in pieces if piece.kind == "text" and not piece.part.get("thought")]
    return "\n".join(text for text in shown if text)


def _result(held: Json, call_id: str) -> Result:
    """Return a response; `output` and `error` are what clients wrap a text in."""
    given = obj(held.get("response"))
    wrapped = next((given[key] for key in ("error", "output") if set(given) == {key}), given)
    text = wrapped if isinstance(wrapped, str) else compact(wrapped)
    return Result(call_id, held.get("name") or "", text, is_error="error" in given)
