"""Model APIs: one request in, one stream that ends in one reply out. It knows nothing of runs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from shoal.providers._blobs import blob, blob_of, readable, stand_in
from shoal.providers._breaker import Breaker, BreakerState
from shoal.providers._chat import ChatEncoder, chat_encoder
from shoal.providers._exchange import RetryPolicy, exchange
from shoal.providers._intake import TEXT_ONLY, Intake, matches
from shoal.providers._listed import list_source, list_trouble
from shoal.providers._media import Media, media_of, sniff
from shoal.providers._offline import OfflineProvider, Policy, offline
from shoal.providers._profiles import (
    Fact,
    facts_of,
    profiles_from,
    shipped_models,
    shipped_profile,
    shipped_source,
)
from shoal.providers._servers import SERVERS, Capabilities
from shoal.providers._text import EMPTY, Text, join
from shoal.providers._tokens import TextCounter, counter
from shoal.providers._values import (
    NO_TOOLS,
    OWN_WORD,
    Blob,
    Block,
    Bucket,
    Completed,
    Finish,
    Message,
    ModelProfile,
    OutputFormat,
    PolicyStep,
    Price,
    Provider,
    ProviderState,
    Purpose,
    Reach,
    ReasoningDelta,
    Reply,
    Request,
    Role,
    Segment,
    Situation,
    SituationSource,
    StreamEvent,
    TextDelta,
    TokenCount,
    ToolCall,
    ToolSet,
    ToolSpec,
    Trace,
    Usage,
    Volatility,
    digest,
)
from shoal.providers._wire import Wire

if TYPE_CHECKING:
    from shoal.providers._anthropic import anthropic
    from shoal.providers._codex import codex
    from shoal.providers._compatible import compatible
    from shoal.providers._google import google
    from shoal.providers._marking import Breakpoint, Marking
    from shoal.providers._openai import openai, openai_chat
    from shoal.providers._rates import RateLimit, Rates, RateStatistics
    from shoal.providers._responses import ResponsesServer
    from shoal.providers._transport import Timeouts
    from shoal.providers._vendor import VendorProvider

__all__ = [
    "EMPTY",
    "NO_TOOLS",
    "OWN_WORD",
    "SERVERS",
    "TEXT_ONLY",
    "Blob",
    "Block",
    "Breaker",
    "BreakerState",
    "Breakpoint",
    "Bucket",
    "Capabilities",
    "ChatEncoder",
    "Completed",
    "Fact",
    "Finish",
    "Intake",
    "Marking",
    "Media",
    "Message",
    "ModelProfile",
    "OfflineProvider",
    "OutputFormat",
    "Policy",
    "PolicyStep",
    "Price",
    "Provider",
    "ProviderState",
    "Purpose",
    "RateLimit",
    "RateStatistics",
    "Rates",
    "Reach",
    "ReasoningDelta",
    "Reply",
    "Request",
    "ResponsesServer",
    "RetryPolicy",
    "Role",
    "Segment",
    "Situation",
    "SituationSource",
    "StreamEvent",
    "Text",
    "TextCounter",
    "TextDelta",
    "Timeouts",
    "TokenCount",
    "ToolCall",
    "ToolSet",
    "ToolSpec",
    "Trace",
    "Usage",
    "VendorProvider",
    "Volatility",
    "Wire",
    "anthropic",
    "blob",
    "blob_of",
    "chat_encoder",
    "codex",
    "compatible",
    "counter",
    "digest",
    "exchange",
    "facts_of",
    "google",
    "join",
    "list_source",
    "list_trouble",
    "matches",
    "media_of",
    "offline",
    "openai",
    "openai_chat",
    "profiles_from",
    "readable",
    "shipped_models",
    "shipped_profile",
    "shipped_source",
    "sniff",
    "stand_in",
]

# What needs an HTTP client is loaded when it is first asked for: importing one costs more than everything else here.
_LAZY = {
    "Breakpoint": "_marking",
    "Marking": "_marking",
    "RateLimit": "_rates",
    "RateStatistics": "_rates",
    "Rates": "_rates",
    "ResponsesServer": "_responses",
    "Timeouts": "_transport",
    "VendorProvider": "_vendor",
    "anthropic": "_anthropic",
    "codex": "_codex",
    "compatible": "_compatible",
    "google": "_google",
    "openai": "_openai",
    "openai_chat": "_openai",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"shoal.providers.{_LAZY[name]}"), name)
    globals()[name] = found
    return found
