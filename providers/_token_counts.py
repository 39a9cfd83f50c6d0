"""Counting a whole request with the model's own vocabulary, where that is on this machine."""

from __future__ import annotations

import anyio
import anyio.to_thread

from shoal.providers._text import Text
from shoal.providers._tokens import counter
from shoal.providers._values import ModelProfile, Request, TokenCount

_MESSAGE_TOKENS = 4  # what frames a message
_REPLY_TOKENS = 3  # what opens the reply
_TOOL_TOKENS = 8  # what frames a tool


async def count_locally(request: Request, profile: ModelProfile) -> TokenCount:
    """Return what *request* costs by the vocabulary that *profile* names, counted in a thread; never exact."""
    tokens, how = await anyio.to_thread.run_sync(_count, request, profile)
    return TokenCount(tokens, how)


def _count(request: Request, profile: ModelProfile) -> tuple[int, str]:
    counting, intake = counter(profile.tokenizer), profile.intake
    tokens = _REPLY_TOKENS
    for spec in request.tools.specs:
        source = f"{spec.name}{spec.description}{spec.schema.decode('utf-8', 'replace')}"
        tokens += counting.count(Text.of(source)) + _TOOL_TOKENS
    for block in request.system:
        tokens += sum(map(counting.count, block.texts)) + _MESSAGE_TOKENS
    for segment in request.messages:
        for message in segment.messages:
            tokens += sum(map(counting.count, message.texts)) + _MESSAGE_TOKENS
            for blob in message.blobs:
                said = (blob.stand_in,) if blob.text is None else (blob.stand_in, blob.text)
                tokens += sum(map(counting.count, said)) + intake.tokens(blob)
            for call in message.calls:
                tokens += counting.count(call.arguments) + counting.count(Text.of(call.name)) + _TOOL_TOKENS
    if request.tail is not None:
        tokens += counting.count(request.tail)
    return tokens, counting.name
