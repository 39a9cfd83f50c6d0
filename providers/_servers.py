"""What sets servers that speak Chat Completions apart, as data: one record each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, final

from shoal.errors import ConfigInvalid


@final
@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one server takes and gives, where servers differ.

    Args:
        server: What it is called.
        hosted: It is a vendor's, with list prices; false for servers that people run themselves.
        auth: The header that carries the key.
        system_role: The role of the system section.
        system_blocks: `joined` sends one system message with blank lines between the blocks, `separate` one each.
        max_tokens_field: The name of the reply budget.
        include_usage: It takes `stream_options` and sends a usage chunk for it only.
        call_id_length: The most characters of a tool-call id, 8 or more.
        call_id_exact: Ids have just that length, letters and digits only.
        max_tools: The most tools in one request; `None` for no limit.
        strict_options: It enforces the documented ranges of sampling options.
        reasoning_field: The field in which reasoning has to come back; `None` never sends any back.
        ends_with: `done` where a stream ends in `[DONE]`, `finish` where a finish reason is all there is.
        counts: How it counts a prompt: by rendering and tokenising it, by messages, with the model's own vocabulary
            where that is on this machine, or not at all.
        files: It takes documents as file parts.
        marker: The field of a text part that marks where a cache is to be written, of models that want markers;
            `None` for no such field.
        cache_key: It takes a `prompt_cache_key`.
    """

    server: str
    hosted: bool = False
    auth: Literal["bearer", "api-key"] = "bearer"
    system_role: Literal["system", "developer"] = "system"
    system_blocks: Literal["joined", "separate"] = "joined"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    include_usage: bool = True
    call_id_length: int = 40
    call_id_exact: bool = False
    max_tools: int | None = 128
    strict_options: bool = False
    reasoning_field: Literal["reasoning_content", "reasoning_details"] | None = None
    ends_with: Literal["done", "finish"] = "done"
    counts: Literal["template", "messages", "vocabulary"] | None = None
    files: bool = False
    marker: Literal["cache_control", "prompt_cache_breakpoint"] | None = None
    cache_key: bool = False


SERVERS: Mapping[str, Capabilities] = MappingProxyType(
    {
        record.server: record
        for record in (
            Capabilities("generic", hosted=True),
            Capabilities("llama.cpp", max_tools=None, counts="template"),
            Capabilities("vllm", max_tools=None, counts="messages"),
            Capabilities("ollama", max_tools=None),
            Capabilities(
                "openai",
                hosted=True,
                system_role="developer",
                system_blocks="separate",
                max_tokens_field="max_completion_tokens",
                strict_options=True,
                counts="vocabulary",
                files=True,
                marker="prompt_cache_breakpoint",
                cache_key=True,
            ),
            Capabilities(
                "openrouter",
                hosted=True,
                system_blocks="separate",
                reasoning_field="reasoning_details",
                files=True,
                marker="cache_control",
            ),
            Capabilities("deepseek", hosted=True, reasoning_field="reasoning_content"),
            Capabilities("mistral", hosted=True, include_usage=False, call_id_length=9, call_id_exact=True),
            Capabilities(
                "azure",
                hosted=True,
                auth="api-key",
                system_blocks="separate",
                max_tokens_field="max_completion_tokens",
                strict_options=True,
                files=True,
            ),
        )
    }
)


def capabilities_of(server: Capabilities | str) -> Capabilities:
    """Return the record of *server*, which is its name or the record itself.

    Raises:
        ConfigInvalid: No record has that name.
    """
    if isinstance(server, Capabilities):
        return server
    try:
        return SERVERS[server]
    except KeyError:
        names = ", ".join(f"`{name}`" for name in SERVERS)
        raise ConfigInvalid(
            f"no capabilities are known for {server!r}; name one of {names}, or pass a `Capabilities` of your own"
        ) from None
