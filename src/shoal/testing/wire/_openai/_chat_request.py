"""A request for a chat completion, taken apart for the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast, final

from shoal.testing.wire._flavours import Flavour
from shoal.testing.wire._json import Json
from shoal.testing.wire._models import Model


@final
@dataclass(frozen=True, slots=True)
class Request:
    """What the rules look at.

    Args:
        body: The request; it has its shape, but for fields that only some servers know.
        model: What the model can do.
        flavour: Whose server this is.
    """

    body: Json
    model: Model
    flavour: Flavour

    @property
    def messages(self) -> Sequence[Json]:
        """The messages."""
        return cast("Sequence[Json]", self.body["messages"])

    @property
    def tools(self) -> Sequence[Json]:
        """The tools; empty if there are none."""
        return cast("Sequence[Json]", self.body.get("tools") or [])

    @property
    def functions(self) -> Sequence[tuple[str, Json]]:
        """The functions among the tools, each with its path."""
        return [
            (f"tools[{number}].function", tool["function"])
            for number, tool in enumerate(self.tools)
            if tool["type"] == "function"
        ]

    @property
    def budget(self) -> int | None:
        """Longest reply; `None` if it sets no limit."""
        return self.body.get("max_completion_tokens") or self.body.get("max_tokens")

    @property
    def choice(self) -> str:
        """`auto`, `any`, `none`, or the name of the function that must be called."""
        return choice_of(self.body.get("tool_choice"))


def choice_of(choice: Any) -> str:
    """Return a tool choice in no vendor's words."""
    match choice:
        case None | "auto":
            return "auto"
        case "required":
            return "any"
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return name
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode}} | {"type": "allowed_tools", "mode": mode}:
            return choice_of(mode)
        case _:
            return "none" if choice == "none" else "auto"


def parts_of(message: Json, path: str) -> list[tuple[str, Json]]:
    """Return the content of *message* as parts with their paths; a string is one text part."""
    content = message.get("content")
    if content is None:
        return []
    if isinstance(content, str):
        return [(f"{path}.content", {"type": "text", "text": content})]
    return [(f"{path}.content[{number}]", part) for number, part in enumerate(cast("list[Json]", content))]


def calls_of(message: Json) -> Sequence[Json]:
    """Return the tool calls of *message*."""
    return cast("Sequence[Json]", message.get("tool_calls") or [])
