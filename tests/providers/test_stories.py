"""Any run, whatever happened to it, sends what its vendor takes: held against types, and against the wire server."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given, settings
from hypothesis import strategies as st
from providers_bodies import schema_faults
from providers_stories import PLANS, Casting, Move, Story

from shoal.providers import (
    VendorProvider,
    anthropic,
    codex,
    compatible,
    google,
    openai,
    openai_chat,
    shipped_models,
)
from shoal.testing import wire

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"

pytestmark = [pytest.mark.sockets, pytest.mark.wall_limit(4 * 3600 if NIGHTLY else 600)]

TRANSCRIPTS = 20_000 if NIGHTLY else 500
"""How many stories each vendor has."""
SHARED = TRANSCRIPTS if NIGHTLY else 75
"""The same for each server that speaks as another vendor does."""
BATCH = 250
KEY = "a-key-of-the-tests"
SHIPPED = tuple(shipped_models())
CLAUDE = tuple(model for model in SHIPPED if model.startswith("claude-"))
GPT = tuple(model for model in SHIPPED if model.startswith("gpt-"))
GEMINI = tuple(model for model in SHIPPED if model.startswith("gemini-"))
SERVERS: Mapping[str, str] = {
    "llama.cpp": "local",
    "vllm": "local",
    "ollama": "local",
    "openrouter": "anthropic/claude-opus-4-8",
    "deepseek": "deepseek-v4-pro",
    "mistral": "local",
    "azure": "my-deployment",
}

# What the wire server does not know by name behaves like what it knows.
ALIKE: Mapping[str, Mapping[str, Any]] = {
    "claude-mythos-5-2": {"like": "claude-fable-5-2"},
    "gpt-6-sol": {"like": "gpt-6.1-sol"},
    **{f"gpt-5.6-{size}": {"like": "gpt-6.1-sol"} for size in ("sol", "terra", "luna")},
    **{model: {"like": "gpt-5.4"} for model in ("gpt-5.5", "gpt-5.4-mini", "gpt-5", "gpt-5-mini")},
    **{model: {"like": "gemini-3.8-flash"} for model in ("gemini-3.5-flash", "gemini-3.5-flash-lite")},
    "gemini-3.1-pro-preview": {"like": "gemini-4-argon"},
    "gemini-2.5-pro": {"like": "gemini-2.5-flash"},
}


class House:
    """A wire server with providers that speak to it, set up anew every so many stories: it keeps all that it saw.

    Args:
        portal: Its event loop.
        server: Whose Chat Completions it serves.

    Attributes:
        played: How many stories it has seen.
    """

    def __init__(self, portal: BlockingPortal, server: str = "openai") -> None:
        self._portal = portal
        self._server = server
        self._left = 0
        self.played = 0
        self._serving: AbstractContextManager[wire.Server] | None = None

    def play(self, cast: Sequence[tuple[str, str]], moves: Sequence[Move]) -> None:
        """Play *moves* with *cast*, provider and model each, and hold every request that was sent against the rules."""
        if self._left == 0:
            self._open()
        self._left -= 1
        self.played += 1
        seen = len(self._wire.journal)
        self._portal.call(Story([Casting(self._providers[name], model) for name, model in cast], moves).play)
        for exchange in list(self._wire.journal)[seen:]:
            assert [found for found in exchange.violations if not _of_the_gateway(found)] == []
            assert schema_faults(exchange.incoming.path, json.loads(exchange.raw)) == []

    def _open(self) -> None:
        self.close()
        made = wire.Settings(server=self._server, models=ALIKE)  # type: ignore[arg-type]
        serve = functools.partial(wire.serve, wire.Fuzz(steps=6, odd=0.1), made)
        self._serving = self._portal.wrap_async_context_manager(serve())
        self._wire = self._serving.__enter__()
        self._providers = providers(self._wire, self._server)
        self._left = BATCH

    def close(self) -> None:
        """Close what is open."""
        if self._serving is not None:
            for provider in self._providers.values():
                self._portal.call(provider.aclose)
            self._serving.__exit__(None, None, None)


def _of_the_gateway(found: wire.Violation) -> bool:
    """Say whether this is a marker on its way through a gateway, which is no field of OpenAI's."""
    return not found.enforced and found.path.endswith(".cache_control")


def providers(server: wire.Server, flavour: str) -> dict[str, VendorProvider]:
    """Return a provider for each way of speaking to *server*, by name."""
    made = (
        anthropic(KEY, base_url=server.base_url, prefix_leader=False),
        openai_chat(KEY, base_url=server.openai_url),
        openai(KEY, base_url=server.openai_url, prefix_leader=False),
        codex(KEY, base_url=f"{server.base_url}/backend-api/codex"),
        google(KEY, base_url=f"{server.base_url}/v1beta"),
        compatible(server.openai_url, api_key=KEY, capabilities=flavour, name="server"),
    )
    return {provider.name: provider for provider in made}


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as made:
        yield made


VENDORS: Mapping[str, Sequence[tuple[str, str]]] = {
    "anthropic": [("anthropic", model) for model in CLAUDE],
    "chat": [("openai-chat", model) for model in GPT],
    "responses": [("openai", model) for model in GPT],
    "codex": [("codex", model) for model in GPT],
    "gemini": [("google", model) for model in GEMINI],
}
EVERYBODY = [casting for vendor in VENDORS.values() for casting in vendor]


def casts(
    castings: Sequence[tuple[str, str]], others_too: Sequence[tuple[str, str]]
) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Return who serves: one of *castings* first, and whoever a run fails over to behind it."""
    others = st.lists(st.sampled_from([*castings, *others_too]), max_size=2)
    return st.builds(lambda first, more: [first, *more], st.sampled_from(castings), others)


@pytest.mark.parametrize("vendor", VENDORS)
def test_no_story_makes_a_request_that_its_vendor_refuses(portal: BlockingPortal, vendor: str):
    house = House(portal)

    @settings(max_examples=TRANSCRIPTS)
    @given(cast=casts(VENDORS[vendor], EVERYBODY), moves=PLANS)
    def check(cast: list[tuple[str, str]], moves: list[Move]) -> None:
        house.play(cast, moves)

    try:
        check()
    finally:
        house.close()
    assert house.played >= TRANSCRIPTS


@pytest.mark.parametrize("server", SERVERS)
def test_no_story_makes_a_request_that_a_compatible_server_refuses(portal: BlockingPortal, server: str):
    house = House(portal, server)

    @settings(max_examples=SHARED)
    @given(cast=casts([("server", SERVERS[server])], VENDORS["anthropic"]), moves=PLANS)
    def check(cast: list[tuple[str, str]], moves: list[Move]) -> None:
        house.play(cast, moves)

    try:
        check()
    finally:
        house.close()
    assert house.played >= SHARED


def test_every_profile_that_ships_has_its_stories():
    assert {*CLAUDE, *GPT, *GEMINI, "deepseek-v4-pro", "deepseek-v4-flash"} == set(SHIPPED)
