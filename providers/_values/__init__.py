"""What goes to a provider and what comes back: the vendor-neutral values of one exchange.

A request is built from parts that stay the same object for as long as they stay the same text: system blocks,
segments of messages, a tool set. Each has room for what an encoder made of it (`_wire`), so a part is encoded once
and then travels as the same bytes in every later request.
"""

from shoal.providers._values._digest import digest
from shoal.providers._values._message import (
    ROLES,
    Blob,
    Message,
    ProviderState,
    Role,
    ToolCall,
    known_number,
    numbers_of,
)
from shoal.providers._values._parts import Block, Reach, Segment, Volatility
from shoal.providers._values._profile import EFFORTS, Bucket, ModelProfile, Price, TokenCount
from shoal.providers._values._provider import Provider
from shoal.providers._values._reply import Completed, Finish, ReasoningDelta, Reply, StreamEvent, TextDelta, Usage
from shoal.providers._values._request import OWN_WORD, PolicyStep, Purpose, Request, Situation, SituationSource, Trace
from shoal.providers._values._tools import NO_TOOLS, OutputFormat, ToolSet, ToolSpec

__all__ = [
    "EFFORTS",
    "NO_TOOLS",
    "OWN_WORD",
    "ROLES",
    "Blob",
    "Block",
    "Bucket",
    "Completed",
    "Finish",
    "Message",
    "ModelProfile",
    "OutputFormat",
    "PolicyStep",
    "Price",
    "Provider",
    "ProviderState",
    "Purpose",
    "Reach",
    "ReasoningDelta",
    "Reply",
    "Request",
    "Role",
    "Segment",
    "Situation",
    "SituationSource",
    "StreamEvent",
    "TextDelta",
    "TokenCount",
    "ToolCall",
    "ToolSet",
    "ToolSpec",
    "Trace",
    "Usage",
    "Volatility",
    "digest",
    "known_number",
    "numbers_of",
]
