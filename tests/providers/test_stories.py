"""Any run, whatever happened to it, sends what its vendor takes: held against types, and against the wire server."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given, settings
from providers_stories import PLANS, Casting, Move, Story

from shoal.providers import anthropic
from shoal.testing import wire

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.wall_limit(3600 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 120),
]

TRANSCRIPTS = 20_000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 500
BATCH = 250
KEY = "a-key-of-the-tests"


class Stage:
    """A wire server with providers that speak to it, set up anew every so many stories: it keeps all that it saw."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._left = 0
        self._open = functools.partial(wire.serve, wire.Fuzz(steps=6, odd=0.1))
        self._serving = None

    def server(self) -> wire.Server:
        if self._left == 0:
            self.close()
            self._serving = self._portal.wrap_async_context_manager(self._open())
            self._server = self._serving.__enter__()
            self._left = BATCH
        self._left -= 1
        return self._server

    def close(self) -> None:
        if self._serving is not None:
            self._serving.__exit__(None, None, None)

    def play(self, models: Sequence[str], moves: Sequence[Move]) -> None:
        server = self.server()
        before = len(server.violations)
        self._portal.call(_play, server, models, moves)
        assert server.violations[before:] == ()


async def _play(server: wire.Server, models: Sequence[str], moves: Sequence[Move]) -> None:
    providers = {"anthropic": anthropic(KEY, base_url=server.base_url, prefix_leader=False)}
    try:
        cast = [Casting(providers[model.partition(":")[0]], model.partition(":")[2]) for model in models]
        await Story(cast, moves).play()
    finally:
        for provider in providers.values():
            await provider.aclose()


@contextmanager
def a_stage() -> Iterator[Stage]:
    with start_blocking_portal() as portal:
        stage = Stage(portal)
        try:
            yield stage
        finally:
            stage.close()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with a_stage() as made:
        yield made


CASTS = [
    ("anthropic:claude-opus-5-5",),
    ("anthropic:claude-haiku-4-5", "anthropic:claude-opus-4-8"),
    ("anthropic:claude-sonnet-4-6", "anthropic:claude-fable-5-2"),
]


@pytest.mark.parametrize("models", CASTS, ids=[" ".join(models) for models in CASTS])
def test_no_story_makes_a_request_that_its_vendor_refuses(stage: Stage, models: tuple[str, ...]):
    @settings(max_examples=TRANSCRIPTS)
    @given(moves=PLANS)
    def check(moves: list[Move]) -> None:
        stage.play(models, moves)

    check()
