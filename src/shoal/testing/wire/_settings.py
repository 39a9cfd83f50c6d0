"""How a server behaves, apart from what its brain says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

from shoal.testing.wire._clock import Clock
from shoal.testing.wire._faults import Fault, FaultPolicy
from shoal.testing.wire._flavours import FlavourName
from shoal.testing.wire._limits import Limits


@final
@dataclass(frozen=True, slots=True)
class CacheSwitches:
    """What vendors do not say about their caches.

    Args:
        refresh_path: A read keeps every entry on its path alive, not only the one it found.
        thinking_counts: A thinking block takes up one of the places of Anthropic's look-back.
        thinking_in_tools: Anthropic's entries for tools are lost when thinking or effort changes.
        thinking_in_system: The same for entries that end in the system prompt.
        alive_at_limit: An entry can be read at the very moment its lifetime ends.
        readable_at_once: An entry can be read before the first byte of the reply that writes it.
        gemini_hit_rate: How often Gemini's implicit cache finds what it could, 0 to 1; decided for each prompt.
        openai_retention_s: How long OpenAI's automatic cache keeps a prefix after its last use, in seconds.
        gemini_retention_s: The same for Gemini's implicit cache.
        openai_machine_rpm: How many requests of one prefix and key a minute go to one machine before others, with
            caches of their own, take the rest; `None` for all.
        slots: How many sequences a llama.cpp server keeps.
        slot_memory: How many more, which its slots gave up, lie in its memory; 0 for none.
    """

    refresh_path: bool = True
    thinking_counts: bool = True
    thinking_in_tools: bool = False
    thinking_in_system: bool = False
    alive_at_limit: bool = False
    readable_at_once: bool = False
    gemini_hit_rate: float = 1.0
    openai_retention_s: float = 600.0
    openai_machine_rpm: int | None = 15
    gemini_retention_s: float = 3600.0
    slots: int = 1
    slot_memory: int = 64


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """What a server enforces, knows, limits and breaks.

    Args:
        skip: Ids of rules that are recorded but not enforced. `schema` cannot be skipped: what has no shape has no
            meaning.
        faults: What goes wrong with every request, or a policy that says so for each.
        limits: Rate limits.
        models: More models, or other facts about known ones: rows with the keys of `models.toml`, or `like`.
        keys: API keys that are taken; `None` takes any, but one must be sent.
        server: Whose Chat Completions these are: OpenAI's, or those of a compatible server.
        cache: What vendors do not say about their caches.
        binding: What an account does with a thinking block whose prefix changed, unless the request says: refuse it, or
            drop the block, or let it pass, as accounts from before 2026-08-31 do.
        clock: What caches, limits and dates go by; `None` is the event loop's own time.
        delta_chars: How many characters of text or arguments one event of a stream carries, 1 or more.
        secret: Two servers with the same secret take each other's opaque blocks.
        ids: What ids are made from: with the same, a server gives the same ids to the same requests. `None` is
            something new for each server, so that two of them never give the same id.
    """

    skip: frozenset[str] = frozenset()
    faults: Sequence[Fault] | FaultPolicy = ()
    limits: Limits = field(default_factory=Limits)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    keys: frozenset[str] | None = None
    server: FlavourName = "openai"
    cache: CacheSwitches = field(default_factory=CacheSwitches)
    binding: Literal["error", "drop_block", "allow"] = "error"
    clock: Clock | None = None
    delta_chars: int = 16
    secret: bytes = b"a secret of the emulator"
    ids: str | None = None
