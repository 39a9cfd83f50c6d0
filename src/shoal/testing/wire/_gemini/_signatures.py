"""Thought signatures: what the model thought in front of a call comes back at that call. G4 and G5."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from shoal.testing.wire._gemini._request import CALL, RESPONSE, SIGNATURE, Piece, Request, standard
from shoal.testing.wire._json import Json, arr, obj
from shoal.testing.wire._models import Model
from shoal.testing.wire._rules import Violation, warning
from shoal.testing.wire._seal import Seals, digest
from shoal.testing.wire._tokens import compact

PLACEHOLDERS = frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"})
"""What stands for the signature of a call that this vendor's model did not make."""

_ENCODED = frozenset(base64.b64encode(text.encode()).decode() for text in PLACEHOLDERS)


def g4(request: Request) -> Iterator[Violation]:
    """In the current turn the first call of each step has its signature; each signature stands where it was given."""
    if not request.model.signatures:
        return
    start = turn_start(request)
    for number, turn in enumerate(request.contents):
        calls = turn.of(CALL)
        if number > start and calls and calls[0].signature is None:
            first = calls[0]
            what = (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `{first.held.get('name')}`, position {number + 1}."
            )
            yield Violation("G4", first.path, what)
        for piece in turn.pieces:
            if wrong := _wrong(piece, request):
                strict = number > start and piece.kind == CALL
                yield (Violation if strict else warning)("G4", f"{piece.path}.thought_signature", wrong)


def turn_start(request: Request) -> int:
    """Return where the user last said something that is no response: the position of the content; -1 for nowhere."""
    said = (
        number
        for number, turn in enumerate(request.contents)
        if turn.role == "user" and any(piece.kind != RESPONSE for piece in turn.pieces)
    )
    return max(said, default=-1)


def _wrong(piece: Piece, request: Request) -> str | None:
    """Return what is wrong with the signature of *piece*; `None` if nothing is."""
    signature = piece.signature
    if signature is None or is_placeholder(signature):
        return None
    facts = request.seals.read(standard(signature))
    if facts is None:
        return "Thought signature is not valid"
    if facts["model"] != request.model.name:
        return f"Thought signature is not valid: it was made by {facts['model']}"
    if facts["part"] != fingerprint(piece.part):
        return "Corrupted thought signature."
    return None


def g5(request: Request) -> Iterator[Violation]:
    """A placeholder stands at the first call of a content only."""
    if not request.model.signatures:
        return
    for turn in request.contents:
        calls = turn.of(CALL)
        for piece in turn.pieces:
            if is_placeholder(piece.signature or "") and (not calls or piece is not calls[0]):
                what = "Thought signature is not valid: a placeholder is taken at the first function call only"
                yield Violation("G5", f"{piece.path}.thought_signature", what)


def is_placeholder(signature: str) -> bool:
    """Say whether *signature* stands for one; clients that hold it as bytes send it in base64."""
    return signature in PLACEHOLDERS or standard(signature) in _ENCODED


def signed(part: Json, model: Model, seals: Seals) -> dict[str, Any]:
    """Return *part* with its signature."""
    return {**part, SIGNATURE: seals.stamp({"model": model.name, "part": fingerprint(part)})}


def fingerprint(part: Json) -> str:
    """Return what *part* is known by: its text, or its call without the id, in whatever order its arguments stand."""
    if call := part.get(CALL):
        return digest("call", str(call.get("name")), compact(_plain(call.get("args") or {})))
    return digest("part", compact(_plain({key: part[key] for key in part if key != SIGNATURE})))


def _plain(value: Any) -> Any:
    """Return JSON in one way of writing it: keys in order, whole numbers without a fraction."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in sorted(obj(value).items())}
    if isinstance(value, list):
        return [_plain(inner) for inner in arr(value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value
