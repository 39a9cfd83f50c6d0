"""Servers that speak Chat Completions, and what each does in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

FlavourName: TypeAlias = Literal["openai", "llama.cpp", "vllm", "ollama", "openrouter", "deepseek", "mistral", "azure"]

_OPEN = frozenset({"unknown", "O2", "O3"})
"""What servers of your own let pass."""


@final
@dataclass(frozen=True, slots=True)
class Flavour:
    """How one server differs from OpenAI's.

    Args:
        name: The server.
        tolerates: Rules that it does not enforce; breaking them is a mistake all the same, and recorded.
        any_model: It takes any model's name, or none.
        any_key: It needs no key.
        cache: How it caches: as `openai` by model, by `units` of tokens, in `slots`, or `none`.
        unit: Tokens that a cache of units holds at a time.
        leaves_last: It computes the last token of a prompt anew even if it knows it.
        usage: Whether usage comes in a stream without being asked for.
        cached_field: Whether the counter of cached tokens is reported, where it is `prompt_tokens_details`.
        reasoning: The field that carries reasoning; `None` hides it.
        echo: The field of an assistant message in which reasoning may come back; `None` for none.
        opening: What the first chunk says.
        call_id: How ids of calls look: `call`, or nine letters and digits (`nine`).
        id_limit: Longest id of a call that it takes.
        names_limit: Longest name of a tool.
        empty_arguments: Status of the error for arguments that are no JSON object: 400, or 500 where templates crash.
        tools_stop: What it says when it stops to call tools.
        one_index: Every streamed call has the number 0.
        whole_calls: Each call streams in one piece.
        truncates: It cuts a prompt that is too long, and says nothing.
        images: It takes images.
    """

    name: FlavourName
    tolerates: frozenset[str] = frozenset()
    any_model: bool = False
    any_key: bool = False
    cache: Literal["openai", "units", "slots", "none"] = "openai"
    unit: int = 1
    leaves_last: bool = False
    usage: Literal["asked", "always"] = "asked"
    cached_field: bool = True
    reasoning: str | None = None
    echo: str | None = None
    opening: Literal["empty", "null", "filters"] = "empty"
    call_id: Literal["call", "nine"] = "call"
    id_limit: int = 40
    names_limit: int = 64
    empty_arguments: Literal[400, 500] = 400
    tools_stop: Literal["tool_calls", "stop"] = "tool_calls"
    one_index: bool = False
    whole_calls: bool = False
    truncates: bool = False
    images: bool = True


FLAVOURS: Mapping[FlavourName, Flavour] = {
    made.name: made
    for made in (
        Flavour("openai"),
        Flavour(
            "llama.cpp",
            tolerates=_OPEN | {"O1"},
            any_model=True,
            any_key=True,
            cache="slots",
            leaves_last=True,
            reasoning="reasoning_content",
            echo="reasoning_content",
            opening="null",
            empty_arguments=500,
            id_limit=512,
            images=False,
        ),
        Flavour(
            "vllm",
            tolerates=_OPEN,
            any_model=True,
            any_key=True,
            cache="units",
            unit=16,
            leaves_last=True,
            reasoning="reasoning_content",
            echo="reasoning_content",
            empty_arguments=500,
            id_limit=512,
        ),
        Flavour(
            "ollama",
            tolerates=_OPEN,
            any_model=True,
            any_key=True,
            cache="none",
            cached_field=False,
            reasoning="reasoning",
            tools_stop="stop",
            one_index=True,
            whole_calls=True,
            truncates=True,
            id_limit=512,
        ),
        Flavour(
            "openrouter",
            tolerates=frozenset({"unknown"}),
            any_model=True,
            reasoning="reasoning",
            echo="reasoning_details",
            id_limit=512,
        ),
        Flavour(
            "deepseek",
            any_model=True,
            cache="units",
            unit=64,
            reasoning="reasoning_content",
            echo="reasoning_content",
            id_limit=512,
        ),
        Flavour("mistral", any_model=True, cache="none", usage="always", call_id="nine", id_limit=9),
        Flavour("azure", any_model=True, opening="filters"),
    )
}
