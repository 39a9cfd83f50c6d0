"""A request to Gemini, taken apart for the rules: contents, their parts, and what stands in a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

from shoal.testing.wire._json import Json, arr, obj
from shoal.testing.wire._models import Model
from shoal.testing.wire._seal import Seals

DATA = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
"""What a part can hold, one at a time."""

_URL_SAFE = str.maketrans("-_", "+/")
CALL, RESPONSE = "functionCall", "functionResponse"
SIGNATURE = "thoughtSignature"


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """One part and where it stands."""

    path: str
    part: Json

    @property
    def kinds(self) -> list[str]:
        """The fields in which it holds something."""
        return [field for field in DATA if self.part.get(field) is not None]

    @property
    def kind(self) -> str:
        """What it holds; empty if nothing."""
        return next(iter(self.kinds), "")

    @property
    def held(self) -> Any:
        """The call, response, text or blob itself."""
        return self.part.get(self.kind)

    @property
    def signature(self) -> str | None:
        """What came with it of the model's reasoning; `None` if nothing did."""
        return self.part.get(SIGNATURE)


@final
@dataclass(frozen=True, slots=True)
class Turn:
    """One content."""

    path: str
    role: str
    pieces: tuple[Piece, ...]

    def of(self, kind: str) -> list[Piece]:
        """Return the pieces that hold *kind*."""
        return [piece for piece in self.pieces if kind in piece.kinds]


@final
@dataclass(frozen=True, slots=True)
class Request:
    """What the rules look at.

    Args:
        body: The request; it has its shape.
        model: What the model can do.
        seals: Reads what the server sealed.
        size: Bytes of the request.
        cached: What stands in the cached content that it names; empty if it names none.
        contents: What was said: in the cached content, and in the request.
    """

    body: Json
    model: Model
    seals: Seals
    size: int
    cached: Json
    contents: tuple[Turn, ...]

    @property
    def generation(self) -> Json:
        """The generation config."""
        return obj(self.body.get("generationConfig"))

    @property
    def thinking(self) -> Json:
        """The thinking config."""
        return obj(self.generation.get("thinkingConfig"))

    @property
    def tools(self) -> list[tuple[str, Json]]:
        """The tools, each with its path; those of the cached content first."""
        return [
            (f"tools[{number}]", tool)
            for holder in (self.cached, self.body)
            for number, tool in enumerate(arr(holder.get("tools")))
        ]

    @property
    def functions(self) -> list[tuple[str, Json]]:
        """The functions that may be called, each with its path."""
        return [
            (f"{path}.function_declarations[{number}]", declared)
            for path, tool in self.tools
            for number, declared in enumerate(arr(tool.get("functionDeclarations")))
        ]

    @property
    def calling(self) -> Json:
        """How functions may be called."""
        config = obj(self.body.get("toolConfig") or self.cached.get("toolConfig"))
        return obj(config.get("functionCallingConfig"))

    @property
    def system(self) -> list[Piece]:
        """The parts of the system instruction."""
        given = self.body.get("systemInstruction") or self.cached.get("systemInstruction")
        return list(pieces_of(obj(given), "system_instruction"))


def standard(text: str) -> str:
    """Return base64 in the standard alphabet, padded: the vendor takes that of URLs as well, and no padding."""
    plain = text.translate(_URL_SAFE).rstrip("=")
    return plain + "=" * (-len(plain) % 4)


def pieces_of(content: Json, path: str) -> Iterator[Piece]:
    """Yield the parts of *content*."""
    for number, part in enumerate(arr(content.get("parts"))):
        yield Piece(f"{path}.parts[{number}]", part)


def turns_of(contents: Sequence[Any], path: str) -> tuple[Turn, ...]:
    """Return *contents* with their paths; a content that does not say whose it is, is the user's."""
    return tuple(_turn(content, f"{path}[{number}]") for number, content in enumerate(contents))


def _turn(content: Json, path: str) -> Turn:
    return Turn(path, cast("str", content.get("role") or "user"), tuple(pieces_of(content, path)))
