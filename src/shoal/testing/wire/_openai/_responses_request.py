"""A request for a response, taken apart for the rules, with what was said in the responses that it goes on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, final

from shoal.testing.wire._flavours import Flavour
from shoal.testing.wire._json import Json, arr, obj
from shoal.testing.wire._models import Model
from shoal.testing.wire._openai._chat_request import choice_of
from shoal.testing.wire._prompt import Prompt
from shoal.testing.wire._seal import Seals

ENCRYPTED = "reasoning.encrypted_content"
CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")


@final
@dataclass(frozen=True, slots=True)
class Known:
    """What the server remembers of an item that it sent.

    Args:
        value: The item.
        response_id: The response that it was part of.
        reasoning: Id of the reasoning item in front of it; `None` if there was none.
        stored: It can be referred to by its id.
    """

    value: Json
    response_id: str
    reasoning: str | None
    stored: bool


@final
@dataclass(frozen=True, slots=True)
class Stored:
    """What the server remembers of a response.

    Args:
        response: The response.
        items: Everything that was said up to its end.
        stored: It can be gone on from.
        prompt: What it made the model read.
        cached: Tokens of it that a later request could have read.
        body: The request.
    """

    response: Json
    items: tuple[Json, ...]
    stored: bool
    prompt: Prompt
    cached: int
    body: Json


@final
@dataclass(slots=True)
class Memory:
    """Items and responses that the server sent, by their ids."""

    items: dict[str, Known] = field(default_factory=dict[str, Known])
    responses: dict[str, Stored] = field(default_factory=dict[str, Stored])

    def kept(self, item_id: str | None) -> Known | None:
        """Return the item that can be referred to by *item_id*; `None` if none can."""
        known = self.items.get(item_id or "")
        return known if known is not None and known.stored else None

    def resolved(self, item: Item) -> Item:
        """Return *item*, or what it refers to; a reference that leads nowhere stays as it is."""
        if item.kind != "item_reference":
            return item
        known = self.kept(item.item_id)
        return Item(item.path, item.value if known is None else known.value, item.item_id)


@final
@dataclass(frozen=True, slots=True)
class Item:
    """One item of the conversation and where it stands.

    Args:
        path: Where.
        value: The item; where the input only refers to one, what it refers to.
        reference: The id by which it is referred to; `None` if the item itself was sent.
    """

    path: str
    value: Json
    reference: str | None = None

    @property
    def kind(self) -> str:
        """Its type; a message and a reference may leave it out."""
        known = self.value.get("type")
        return cast("str", known or ("message" if "role" in self.value else "item_reference"))

    @property
    def item_id(self) -> str | None:
        """Its id; `None` if it has none."""
        return self.value.get("id")

    @property
    def by_model(self) -> bool:
        """Whether the model said it: everything but messages of others and what answers a call."""
        if self.kind == "message":
            return self.value.get("role") == "assistant"
        return not self.kind.endswith(("_output", "_approval_response"))


@final
@dataclass(frozen=True, slots=True)
class Request:
    """What the rules look at.

    Args:
        body: The request; it has its shape.
        model: What the model can do.
        flavour: Whose server this is.
        key: The API key.
        items: Everything that was said: in responses before, and in the input; references are resolved.
        own: How many of *items*, from the end, stand in the request itself.
        memory: What the server remembers.
        seals: Reads what the server sealed.
        codex: It came through the transport that keeps nothing.
        counting: It is only counted, not answered.
    """

    body: Json
    model: Model
    flavour: Flavour
    key: str
    items: tuple[Item, ...]
    own: int
    memory: Memory
    seals: Seals
    codex: bool = False
    counting: bool = False

    @property
    def tools(self) -> Sequence[Json]:
        """The tools; empty if there are none."""
        return arr(self.body.get("tools"))

    @property
    def functions(self) -> Sequence[tuple[str, Json]]:
        """The functions among the tools, each with its path."""
        return [(f"tools[{number}]", tool) for number, tool in enumerate(self.tools) if tool["type"] == "function"]

    @property
    def choice(self) -> str:
        """`auto`, `any`, `none`, or the name of the function that must be called."""
        return choice_of(self.body.get("tool_choice"))

    @property
    def stores(self) -> bool:
        """Whether the response is kept."""
        return self.body.get("store") is not False

    @property
    def format(self) -> Json:
        """The form that the reply has to have."""
        return obj(obj(self.body.get("text")).get("format"))

    @property
    def own_items(self) -> tuple[Item, ...]:
        """The items of the request itself."""
        return self.items[len(self.items) - self.own :]


def items_of(given: Any) -> list[Item]:
    """Return `input` as items with their paths; a string is one message."""
    if isinstance(given, str):
        return [Item("input", {"type": "message", "role": "user", "content": given})]
    return [Item(f"input[{number}]", value) for number, value in enumerate(arr(given))]


def parts_of(content: Any, path: str) -> list[tuple[str, Json]]:
    """Return *content*, a string or a list of parts, as parts with their paths."""
    if isinstance(content, str):
        return [(path, {"type": "input_text", "text": content})]
    return [(f"{path}[{number}]", part) for number, part in enumerate(arr(content))]


def text_of(content: Any) -> str:
    """Return the texts of *content*, one on a line."""
    return "\n".join(part["text"] for _, part in parts_of(content, "") if "text" in part)


def sealed_facts(seals: Seals, item: Mapping[str, Any]) -> Json | None:
    """Return what the encrypted content of a reasoning item says; `None` if there is none, or it is not ours."""
    encrypted = item.get("encrypted_content")
    return seals.read(encrypted) if isinstance(encrypted, str) else None
