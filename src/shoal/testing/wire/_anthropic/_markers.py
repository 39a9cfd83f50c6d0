"""Cache markers: how many, where, in which order (A9), and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast, final

from shoal.testing.wire._anthropic._request import THINKING, Piece, Request, inner_blocks
from shoal.testing.wire._rules import Violation

MOST = 4


@final
@dataclass(frozen=True, slots=True)
class Marker:
    """A marker: the block that it stands on, and how long it asks for."""

    path: str
    ttl: str


def ttl_of(control: Mapping[str, Any] | None) -> str | None:
    """Return how long *control* asks for; `None` if there is none."""
    return None if control is None else cast("str", control.get("ttl") or "5m")


def places(request: Request) -> list[Piece]:
    """Return every block that the cache knows, in its order: tools, system, messages."""
    tools = [Piece(f"tools.{number}", -1, {"type": "tool", **tool}) for number, tool in enumerate(request.tools)]
    return [*tools, *request.system(), *request.pieces]


def may_carry(piece: Piece) -> bool:
    """Say whether a marker may stand on *piece*."""
    return piece.kind not in THINKING and not (piece.kind == "text" and not piece.block["text"])


def explicit(request: Request) -> list[Marker]:
    """Return the markers that stand on blocks. One inside of a tool result counts as one on the whole result."""
    found: list[Marker] = []
    for place in places(request):
        for piece in inner_blocks(place):
            if ttl := ttl_of(piece.block.get("cache_control")):
                found.append(Marker(place.path, ttl))  # noqa: PERF401 - a comprehension over three levels reads worse
    return found


def automatic(request: Request) -> Marker | None:
    """Return where the top-level marker comes to stand; `None` if there is none, or if it changes nothing."""
    ttl = ttl_of(request.body.get("cache_control"))
    target = next((piece for piece in reversed(places(request)) if may_carry(piece)), None)
    if ttl is None or target is None or ttl_of(target.block.get("cache_control")):
        return None
    return Marker(target.path, ttl)


def markers(request: Request) -> dict[str, str]:
    """Return how long each marked block asks for, by its path. The longer of two that meet on one block counts."""
    made: dict[str, str] = {}
    extra = automatic(request)
    for marker in [*explicit(request), *([extra] if extra else [])]:
        made[marker.path] = "1h" if "1h" in (marker.ttl, made.get(marker.path)) else marker.ttl
    return made


def a9(request: Request) -> Iterator[Violation]:
    """At most four markers, none on an empty text, longer ones first, no quarrel with the top-level one."""
    found, extra = explicit(request), automatic(request)
    if len(found) + bool(extra) > MOST:
        what = f"A maximum of {MOST} blocks with cache_control may be provided. Found {len(found) + bool(extra)}."
        yield Violation("A9", "", what)
    yield from _unmarkable(request)
    yield from _order([*found, *([extra] if extra else [])])
    yield from _quarrel(request)


def _unmarkable(request: Request) -> Iterator[Violation]:
    for place in places(request):
        for piece in inner_blocks(place):
            if not piece.block.get("cache_control"):
                continue
            path = f"{piece.path}.{piece.kind}.cache_control"
            if piece.kind == "text" and not piece.block["text"]:
                yield Violation("A9", path, f"{path}: cache_control cannot be set for empty text blocks")
            elif piece is not place and place.kind != "tool_result":
                yield Violation("A9", path, f"{path}: mark the {place.kind!r} block that holds it instead")


def _order(found: list[Marker]) -> Iterator[Violation]:
    short = False
    for marker in found:
        if marker.ttl == "1h" and short:
            path = f"{marker.path}.cache_control.ttl"
            yield Violation(
                "A9",
                path,
                f"{path}: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that "
                "blocks are processed in the following order: `tools`, `system`, `messages`.",
            )
            return
        short = short or marker.ttl == "5m"


def _quarrel(request: Request) -> Iterator[Violation]:
    """Yield what is wrong if the block that the top-level marker is meant for has another lifetime."""
    ttl = ttl_of(request.body.get("cache_control"))
    target = next((piece for piece in reversed(places(request)) if may_carry(piece)), None)
    there = ttl_of(target.block.get("cache_control")) if target else None
    if ttl and there and ttl != there:
        what = f"ttl='{ttl}' does not agree with ttl='{there}' on the last cacheable block"
        yield Violation("A9", "cache_control.ttl", f"cache_control.ttl: {what}")
