"""Thinking that comes back: whole, unchanged and in order (A10), behind what it was thought about (A11).

A thinking block is sealed with its own text, its place in its turn, the model, a digest of everything in front of it
but the other thinking blocks, and the seal of the thinking block before it. So removing all thinking from the front
leaves the rest valid, and removing one from the middle does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, final

from shoal.testing.wire._anthropic._pairs import spoken, uses_of
from shoal.testing.wire._anthropic._request import THINKING, Piece, Request, Run, canonical
from shoal.testing.wire._rules import Violation, warning
from shoal.testing.wire._seal import Seals, digest
from shoal.testing.wire._tokens import compact

UNREADABLE = "Invalid `signature` in `thinking` block"
CHANGED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)


@final
@dataclass(slots=True)
class Prefix:
    """A running digest of what stands in front of a block, and the seal of the last thinking block there."""

    digest: str
    previous: str | None = None

    def add(self, role: str, block: Mapping[str, Any]) -> None:
        """Add a block that is no thinking."""
        self.digest = digest(self.digest, role, canonical(block))


@final
@dataclass(frozen=True, slots=True)
class Thought:
    """A thinking block that came back, and what its seal says; `None` if it is not this server's or not its own."""

    piece: Piece
    latest: bool
    facts: Mapping[str, Any] | None
    bound: bool


@final
@dataclass(slots=True)
class Bindings:
    """What became of the thinking in a request.

    Args:
        thoughts: Every thinking block, in order.
        prefix: What stands in front of the reply.
        dropped: Paths of blocks that the model does not see, each with the reason.
        allowed: Paths of blocks whose prefix changed and that it sees all the same.
    """

    thoughts: list[Thought] = field(default_factory=list[Thought])
    prefix: Prefix = field(default_factory=lambda: Prefix(""))
    dropped: dict[str, str] = field(default_factory=dict[str, str])
    allowed: dict[str, str] = field(default_factory=dict[str, str])


def seal(
    seals: Seals,
    block: Mapping[str, Any],
    *,
    tokens: int,
    model: str,
    turn: str,
    place: tuple[int, int],
    prefix: Prefix,
) -> str:
    """Return the seal of a new thinking block.

    Args:
        seals: Makes it.
        block: The block as it is sent, without its seal.
        tokens: What it counts, even if it is not shown.
        model: Who thought it.
        turn: Id of the message.
        place: Its number among the thinking blocks of the turn, and how many there are.
        prefix: What stands in front of it.
    """
    return seals.stamp(
        {
            "model": model,
            "turn": turn,
            "number": place[0],
            "of": place[1],
            "shown": digest(cast("str", block.get("thinking", ""))),
            "tokens": tokens,
            "prefix": prefix.digest,
            "previous": prefix.previous,
        }
    )


def sealed_in(block: Mapping[str, Any]) -> str:
    """Return the opaque string of a thinking block."""
    return cast("str", block["signature"] if block["type"] == "thinking" else block["data"])


def bindings(request: Request) -> Bindings:
    """Read the thinking of *request* and decide which of it the model sees."""
    front = [*(compact(tool) for tool in _bare(request.tools)), *(canonical(piece.block) for piece in request.system())]
    made = Bindings(prefix=Prefix(digest("start", *front)))
    turns = spoken(request)
    latest = next((run for run in reversed(turns) if run.role == "assistant"), None)
    for run in request.runs:
        for piece in run.pieces:
            if piece.kind in THINKING:
                _take(request, made, piece, latest=run is latest)
            else:
                made.prefix.add(run.role, piece.block)
    return made


def _bare(tools: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in tool.items() if key != "cache_control"} for tool in tools]


def _take(request: Request, made: Bindings, piece: Piece, *, latest: bool) -> None:
    facts = request.seals.read(sealed_in(piece.block))
    if facts is None or digest(cast("str", piece.block.get("thinking", ""))) != facts["shown"]:
        made.thoughts.append(Thought(piece, latest, None, bound=False))
        return
    before = made.prefix.previous
    bound = facts["prefix"] == made.prefix.digest and before in (None, facts["previous"])
    made.thoughts.append(Thought(piece, latest, facts, bound))
    made.prefix.previous = digest(sealed_in(piece.block))
    if facts["model"] != request.model.name:
        # Older models see it and bill it, though they make nothing of it.
        if request.model.preserved:
            made.dropped[piece.path] = "model_binding_mismatch"
    elif request.model.preserved and not bound:
        match binding(request):
            case "drop_block":
                made.dropped[piece.path] = "prefix_binding_mismatch"
            case "allow":
                made.allowed[piece.path] = "prefix_binding_mismatch"
            case _:
                pass


def binding(request: Request) -> str:
    """Return what happens to a block whose prefix changed: `error`, `drop_block` or `allow`."""
    thinking = cast("Mapping[str, Any]", request.body.get("thinking") or {})
    asked = cast("Mapping[str, Any]", thinking.get("block_binding") or {}).get("prefix_mismatch_behavior")
    return cast("str", asked or request.binding)


def a10(request: Request, made: Bindings) -> Iterator[Violation]:
    """Thinking is unchanged; that of the latest turn is all there, in its order."""
    for thought in made.thoughts:
        path = thought.piece.path
        if thought.facts is None and (thought.latest or not request.model.preserved):
            ours = request.seals.read(sealed_in(thought.piece.block)) is not None
            yield Violation("A10", path, f"{path}: {CHANGED if thought.latest and ours else UNREADABLE}")
        elif thought.facts is not None and thought.facts["model"] != request.model.name:
            made_by = thought.facts["model"]
            yield warning("A10", path, f"{path}: thinking of {made_by} is of no use to {request.model.name}")
    latest = next((run for run in reversed(spoken(request)) if run.role == "assistant"), None)
    if latest is not None:
        yield from _complete(request, made, latest)


def _complete(request: Request, made: Bindings, latest: Run) -> Iterator[Violation]:
    """Yield what is missing from the latest turn, or out of its order."""
    numbers: dict[str, list[int]] = {}
    whole: dict[str, int] = {}
    for thought in made.thoughts:
        if thought.latest and thought.facts is not None:
            numbers.setdefault(thought.facts["turn"], []).append(thought.facts["number"])
            whole[thought.facts["turn"]] = thought.facts["of"]
    path = f"messages.{latest.last}"
    if any(found != list(range(whole[turn])) for turn, found in numbers.items()):
        yield Violation("A10", path, f"{path}: {CHANGED}")
    thinks = request.thinking != "disabled"
    owed = any(request.memory.thoughts.get(use) for use in uses_of(latest))
    if thinks and owed and not any(piece.kind in THINKING for piece in latest.pieces):
        what = "Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final "
        yield Violation("A10", path, f"{path}: {what}`assistant` message must start with a thinking block.")


def a11(request: Request, made: Bindings) -> Iterator[Violation]:
    """On models that preserve thinking, nothing in front of a thinking block has changed."""
    if not request.model.preserved:
        return
    for thought in made.thoughts:
        path = thought.piece.path
        if thought.facts is None and not thought.latest:
            yield Violation("A11", path, f"{path}: {UNREADABLE}")
        elif thought.facts is None or thought.bound or thought.facts["model"] != request.model.name:
            continue
        elif path in made.dropped or path in made.allowed:
            yield warning("A11", path, f"{path}: what stands in front of this thinking has changed")
        else:
            yield Violation("A11", path, f"{path}: {UNREADABLE}")
