"""Contents, calls and their responses: G1 to G3."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.testing.wire._gemini._errors import snaked
from shoal.testing.wire._gemini._request import CALL, RESPONSE, SIGNATURE, Piece, Request, Turn
from shoal.testing.wire._json import obj
from shoal.testing.wire._rules import Violation

ROLES = ("user", "model")
BODY = "* GenerateContentRequest"
CALLS_BEHIND = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
RESPONSES_BEHIND = "Please ensure that function response turn comes immediately after a function call turn."
AS_MANY = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)


def g1(request: Request) -> Iterator[Violation]:
    """There are contents, each of somebody, each with parts, each part with one thing in it."""
    if not request.contents:
        yield Violation("G1", "contents", f"{BODY}.contents: contents is not specified")
    for turn in request.contents:
        if turn.role not in ROLES:
            yield Violation("G1", f"{turn.path}.role", "Please use a valid role: user, model.")
        if not turn.pieces:
            yield Violation("G1", f"{turn.path}.parts", f"{BODY}.{turn.path}.parts: contents.parts must not be empty.")
        elif all(_says_nothing(piece) for piece in turn.pieces):
            what = "Unable to submit request because it must have a text parameter. Add a text parameter and try again."
            yield Violation("G1", turn.path, what)
        yield from (found for piece in turn.pieces for found in _one_thing(piece))
    for piece in request.system:
        yield from _one_thing(piece)
        if piece.kind not in ("", "text"):
            yield Violation("G1", piece.path, f"{BODY}.{piece.path}: system instruction only supports text.")


def _says_nothing(piece: Piece) -> bool:
    return piece.kinds == ["text"] and not piece.held and SIGNATURE not in piece.part


def _one_thing(piece: Piece) -> Iterator[Violation]:
    kinds = piece.kinds
    if not kinds:
        what = f"{BODY}.{piece.path}.data: required oneof field 'data' must have one initialized field"
        yield Violation("G1", f"{piece.path}.data", what)
    elif len(kinds) > 1:
        what = f"oneof field 'data' is already set. Cannot set '{snaked(kinds[1])}'"
        yield Violation("G1", piece.path, f"Invalid value at '{piece.path}' (oneof), {what}")


def g2(request: Request) -> Iterator[Violation]:
    """Calls stand behind a turn of the user, and right behind them as many responses, in one content."""
    contents = request.contents
    for number, turn in enumerate(contents):
        before = contents[number - 1] if number else None
        after = contents[number + 1] if number + 1 < len(contents) else None
        if calls := turn.of(CALL):
            if turn.role != "model" or before is None or before.role != "user":
                yield Violation("G2", turn.path, CALLS_BEHIND)
            if len(calls) != (len(after.of(RESPONSE)) if after else 0):
                yield Violation("G2", turn.path, AS_MANY)
        if turn.of(RESPONSE) and (turn.role != "user" or before is None or not before.of(CALL)):
            yield Violation("G2", turn.path, RESPONSES_BEHIND)


def g3(request: Request) -> Iterator[Violation]:
    """A response has the name and the id of its call, and is an object."""
    contents = request.contents
    for number, turn in enumerate(contents):
        for piece in (*turn.of(CALL), *turn.of(RESPONSE)):
            yield from _named(piece)
        if number + 1 < len(contents):
            yield from _paired(turn, contents[number + 1])


def _named(piece: Piece) -> Iterator[Violation]:
    held = obj(piece.held)
    path = f"{piece.path}.{snaked(piece.kind)}"
    if not held.get("name"):
        yield Violation("G3", f"{path}.name", f"{BODY}.{path}.name: Name cannot be empty.")
    if piece.kind == RESPONSE and held.get("response") is None:
        yield Violation("G3", f"{path}.response", f"{BODY}.{path}.response: response is required.")


def _paired(calling: Turn, answering: Turn) -> Iterator[Violation]:
    """Hold each response against its call: the one of its id, or without ids the one at its place."""
    responses = answering.of(RESPONSE)
    by_id = {piece.held["id"]: piece for piece in responses if piece.held.get("id")}
    for place, call in enumerate(calling.of(CALL)):
        call_id = call.held.get("id")
        found = by_id.get(call_id) if call_id else responses[place] if place < len(responses) else None
        if found is None:
            if place < len(responses):
                what = f"no function response has the id '{call_id}' of function call '{call.held.get('name')}'."
                yield Violation("G3", responses[place].path, f"{BODY}.{responses[place].path}: {what}")
        elif found.held.get("name") != call.held.get("name"):
            what = f"function response '{found.held.get('name')}' answers function call '{call.held.get('name')}'."
            yield Violation("G3", found.path, f"{BODY}.{found.path}: {what}")
