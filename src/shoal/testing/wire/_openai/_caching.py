"""Which cache a request meets: that of its model at OpenAI, or that of the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import final

from shoal.testing.wire._anthropic._cache import MarkerCache
from shoal.testing.wire._flavours import Flavour
from shoal.testing.wire._json import Json, obj
from shoal.testing.wire._models import Model
from shoal.testing.wire._openai._caches import (
    LEAST,
    BreakpointCache,
    Machines,
    PrefixCache,
    SlotCache,
    points,
    stepped,
    units,
)
from shoal.testing.wire._prompt import Block, Lookup, Prompt
from shoal.testing.wire._settings import CacheSwitches

FOREVER_S = 86_400.0
GATEWAY = "anthropic/"
"""Models behind a gateway that takes their vendor's markers."""


@final
class Caching:
    """The caches of one server.

    Args:
        flavour: Whose server this is.
        switches: What vendors do not say.
    """

    def __init__(self, flavour: Flavour, switches: CacheSwitches) -> None:
        self._flavour = flavour
        self._automatic = PrefixCache(
            switches.openai_retention_s, lambda common, _: stepped(common), at_once=switches.readable_at_once
        )
        self._breakpoints = BreakpointCache(at_once=switches.readable_at_once)
        self._machines = Machines(switches.openai_machine_rpm)
        self._read = units(flavour.unit, leaves_last=flavour.leaves_last)
        # Blocks of vLLM can be used again within the same batch.
        self._units = PrefixCache(FOREVER_S, self._read, at_once=flavour.name == "vllm")
        self._slots = SlotCache(switches.slots, memory=switches.slot_memory)
        self._markers = MarkerCache(switches)

    def __repr__(self) -> str:
        return f"<Caching of {self._flavour.name}>"

    def look(self, prompt: Prompt, now_s: float, *, model: Model, body: Json, ends: Sequence[int]) -> Lookup:
        """Return what is read and written for *prompt*.

        Args:
            prompt: What the model reads.
            now_s: When it arrived, in seconds.
            model: The model's facts.
            body: The request: its cache key and options.
            ends: Positions of the last block of each message.
        """
        match self._flavour.cache:
            case "none":
                return Lookup(0, {}, lambda _: None)
            case "units":
                return self._units.look(prompt, now_s)
            case "slots":
                return self._slots.look(prompt, now_s)
            case _:
                return self._openai(prompt, now_s, model, body, ends)

    def _openai(self, prompt: Prompt, now_s: float, model: Model, body: Json, ends: Sequence[int]) -> Lookup:
        if prompt.model.startswith(GATEWAY):
            return self._markers.look(prompt, now_s, least=model.cache_min or LEAST)
        key = str(body.get("prompt_cache_key") or "")
        if not model.breakpoints:
            machine = self._machines.of(prompt, key, now_s)
            return self._automatic.look(replace(prompt, scope=f"{prompt.scope}\0{key}\0{machine}"), now_s)
        options = obj(body.get("prompt_cache_options"))
        where = points(prompt.blocks, ends, options.get("mode") or "implicit")
        scoped = replace(prompt, scope=f"{prompt.scope}\0{key}")
        return self._breakpoints.look(scoped, now_s, where=where, ttl=options.get("ttl") or "30m")

    def best(self, prompt: Prompt, model: Model) -> Callable[[int], int]:
        """Return what a cache could read at best of a common prefix of *prompt*."""
        match self._flavour.cache:
            case "none":
                return lambda _: 0
            case "units":
                return lambda common: self._read(common, prompt.tokens)
            case "slots":
                return lambda common: max(0, min(common, prompt.tokens - 1))
            case _:
                marked = model.breakpoints or prompt.model.startswith(GATEWAY)
                return (lambda common: common if common >= LEAST else 0) if marked else stepped

    def whole_blocks(self, prompt: Prompt, model: Model) -> bool:
        """Say whether entries end with blocks."""
        return self._flavour.cache == "openai" and (model.breakpoints or prompt.model.startswith(GATEWAY))

    def said(self, prompt: Prompt, blocks: Sequence[Block]) -> None:
        """Take note of what was said to *prompt*: a local server keeps it."""
        self._slots.said(prompt, blocks)
