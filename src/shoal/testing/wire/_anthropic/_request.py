"""A request to Anthropic, taken apart for the rules: blocks with their paths, and messages of one role as one run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, final

from shoal.testing.wire._models import Model
from shoal.testing.wire._seal import Seals
from shoal.testing.wire._tokens import compact

RECENT_VERSION = "2026-10-21"
VERSIONS = ("2023-06-01", RECENT_VERSION)
THINKING = ("thinking", "redacted_thinking")
RESULTS_OF_SERVER = "_tool_result"


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """One content block and where it stands."""

    path: str
    message: int
    block: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The block's type."""
        return cast("str", self.block["type"])


@final
@dataclass(frozen=True, slots=True)
class Run:
    """Messages of one role that stand next to each other, which the vendor merges."""

    role: str
    first: int
    last: int
    pieces: tuple[Piece, ...]

    def of(self, kind: str) -> list[Piece]:
        """Return the pieces of one type."""
        return [piece for piece in self.pieces if piece.kind == kind]


@final
@dataclass(slots=True)
class Memory:
    """What the server remembers of its replies.

    Args:
        thoughts: How many thinking blocks the turn of a tool use had, by the tool use's id.
        paused: Contents of replies that stopped with `pause_turn`, which may be sent back as they are.
    """

    thoughts: dict[str, int] = field(default_factory=dict[str, int])
    paused: set[str] = field(default_factory=set[str])


@final
@dataclass(frozen=True, slots=True)
class Request:
    """What the rules look at.

    Args:
        body: The request; it has its shape.
        model: What the model can do.
        version: The `anthropic-version` header.
        betas: The names in the `anthropic-beta` header.
        seals: Reads what the server sealed.
        memory: What the server remembers.
        counting: It is only counted, not answered.
        binding: What happens to a thinking block whose prefix changed, unless the request says.
    """

    body: Mapping[str, Any]
    model: Model
    version: str
    betas: frozenset[str]
    seals: Seals
    memory: Memory
    counting: bool = False
    binding: str = "error"
    runs: tuple[Run, ...] = ()

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The messages."""
        return cast("list[Mapping[str, Any]]", self.body["messages"])

    @property
    def tools(self) -> list[Mapping[str, Any]]:
        """The tools; empty if there are none."""
        return cast("list[Mapping[str, Any]]", self.body.get("tools") or [])

    @property
    def pieces(self) -> list[Piece]:
        """Every block of every message."""
        return [piece for run in self.runs for piece in run.pieces]

    @property
    def thinking(self) -> str:
        """The type of thinking that is in force."""
        asked = cast("Mapping[str, Any]", self.body.get("thinking") or {})
        return cast("str", asked.get("type") or (self.model.thinking or ("disabled",))[0])

    @property
    def effort(self) -> str | None:
        """The effort that was asked for; `None` for the model's own."""
        return cast("Mapping[str, Any]", self.body.get("output_config") or {}).get("effort")

    @property
    def choice(self) -> Mapping[str, Any]:
        """How tools may be chosen."""
        return cast("Mapping[str, Any]", self.body.get("tool_choice") or {"type": "auto"})

    def system(self) -> list[Piece]:
        """Return the blocks of the system prompt."""
        return [Piece(path, -1, block) for path, block in blocks(self.body.get("system") or [], "system")]


def blocks(content: Any, path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return *content*, a string or a list of blocks, as blocks with their paths."""
    if isinstance(content, str):
        return [(path, {"type": "text", "text": content})]
    return [(f"{path}.{number}", block) for number, block in enumerate(cast("list[Mapping[str, Any]]", content))]


def runs_of(messages: list[Mapping[str, Any]]) -> tuple[Run, ...]:
    """Return *messages* with neighbours of one role, `user` or `assistant`, merged."""
    runs: list[Run] = []
    for number, message in enumerate(messages):
        found = blocks(message["content"], f"messages.{number}.content")
        pieces = tuple(Piece(path, number, block) for path, block in found)
        if runs and runs[-1].role == message["role"] != "system":
            before = runs[-1]
            runs[-1] = Run(before.role, before.first, number, before.pieces + pieces)
        else:
            runs.append(Run(message["role"], number, number, pieces))
    return tuple(runs)


def canonical(block: Mapping[str, Any]) -> str:
    """Return *block* as the vendor compares it: without markers and empty fields, a tool's input byte for byte."""
    kept = {
        key: value
        for key, value in sorted(block.items())
        if value is not None and key != "cache_control" and (key, value) != ("caller", {"type": "direct"})
    }
    if isinstance(kept.get("content"), list):
        kept["content"] = [json.loads(canonical(inner)) for inner in kept["content"]]
    return compact(kept)


def inner_blocks(piece: Piece) -> Iterator[Piece]:
    """Yield *piece* and the blocks inside of it: those of a tool result, a search result, a document."""
    yield piece
    source = cast("Mapping[str, Any]", piece.block["source"] if piece.kind == "document" else {})
    for path, held in ((f"{piece.path}.content", piece.block), (f"{piece.path}.source.content", source)):
        if isinstance(held.get("content"), list):
            for inner_path, block in blocks(held["content"], path):
                yield from inner_blocks(Piece(inner_path, piece.message, block))
