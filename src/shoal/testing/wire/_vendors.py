"""The vendors that one server speaks for, and how long each of their caches can remember at most."""

from __future__ import annotations

from shoal.testing.wire._anthropic._api import Anthropic
from shoal.testing.wire._engine import Engine, World
from shoal.testing.wire._gemini._api import Gemini
from shoal.testing.wire._openai._chat_api import Chat
from shoal.testing.wire._openai._responses_api import Responses
from shoal.testing.wire._values import Brain, Dialect

HOUR_S = 3600.0
ORACLE_LIFE_S: dict[Dialect, float] = {
    "anthropic": HOUR_S,
    "chat": 24 * HOUR_S,
    "responses": 24 * HOUR_S,
    "gemini": HOUR_S,
}


def engine(world: World, brain: Brain) -> Engine:
    """Return what serves the requests of every vendor."""
    return Engine(world, brain, (Anthropic(world), Gemini(world), Responses(world), Chat(world)), ORACLE_LIFE_S)
