"""What an encoder hands to the transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import msgspec

from shoal.providers._breakpoints import Outline
from shoal.providers._values import Block, Request, digest
from shoal.providers._wire import Wire


@final
class Sent(msgspec.Struct, frozen=True):
    """An encoded request.

    Args:
        body: The JSON body.
        names: Our name of each tool, by the name that was sent.
        prefixes: 16 bytes for each marked prefix in front of the conversation, shortest first.
        headers: Further headers that the body asks for.
    """

    body: Wire
    names: Mapping[str, str]
    prefixes: tuple[bytes, ...] = ()
    headers: Mapping[str, str] = {}


def chained(request: Request, plan: Outline, marked: Sequence[int], blocks: Sequence[Block]) -> tuple[bytes, ...]:
    """Return what stands for each marked prefix in front of the conversation, shortest first.

    Args:
        request: The request.
        plan: Its spots.
        marked: Indexes of the spots with a marker behind them, in order.
        blocks: The system blocks that are sent.
    """
    front = [index for index in marked if index < plan.blocks]
    if not front:
        return ()
    key = digest(request.model.encode("utf-8", "surrogatepass"))
    chain = [request.tools.digest] * (plan.blocks - len(blocks)) + [block.digest for block in blocks]
    keys: list[bytes] = []
    for index, part in enumerate(chain[: front[-1] + 1]):
        key = digest(key, part)
        if index in front:
            keys.append(key)
    return tuple(keys)
