"""Stored parts of a live run: what its tools, its model and its files bring, kept and named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

import anyio.to_thread
import msgspec

from shoal.errors import PartRefused
from shoal.providers import Message, Text, readable
from shoal.runtime._attachment import Attachment, Prepared, prepared
from shoal.runtime._host import Host
from shoal.runtime._live import Live
from shoal.runtime._paths import PathRefused
from shoal.runtime._seeds import Resolved
from shoal.runtime.context import estimate
from shoal.runtime.tools import ToolResult, read_attachment


@final
class Looked(msgspec.Struct, frozen=True):
    """A tool's result, its parts looked at.

    Args:
        result: The result; an error where a part cannot be kept.
        parts: What stands behind its text.
        whole: Its text, where that is too long to be shown; `None` where it is not.
    """

    result: ToolResult
    parts: tuple[Prepared, ...] = ()
    whole: Prepared | None = None


async def looked_at(host: Host, tool: str, result: ToolResult) -> Looked:
    """Return *result*, which the tool called *tool* gave, with its parts looked at; nothing is kept yet."""
    limits, result = host.limits, host.secrets.in_result(result)
    long = result.text.size > limits.result_bytes
    brought = (*result.parts, *([Attachment(_bytes(result.text), f"{tool}-result.txt")] if long else []))
    if not brought:
        return Looked(result)
    try:
        parts = await prepared(brought, limits.part_bytes, host.threads)
    except PartRefused as refused:
        return Looked(ToolResult.error(str(refused)))
    return Looked(result, parts[:-1], parts[-1]) if long else Looked(result, parts)


def kept(live: Live, looked: Looked) -> tuple[Text, tuple[int, ...]]:
    """Keep the parts of *looked*; return the text that is shown and the seqs of the parts behind it."""
    seqs = tuple([live.keep(part) for part in looked.parts])
    text, whole = looked.result.text, looked.whole
    if whole is None:
        return text, seqs
    [name] = live.state.shelf.names([live.keep(whole)])
    limits = live.host.limits
    shown = whole.data[: min(limits.read_bytes, limits.result_bytes)].decode("utf-8", "ignore")
    line = f"[cut: the whole result, {readable(len(whole.data))}, is the stored part {name!r}]"
    return Text.of(f"{shown}\n{line}"), seqs


def _bytes(text: Text) -> bytes:
    return str(text).encode("utf-8", "replace")


async def bring_in(live: Live, args: Mapping[str, Any]) -> Mapping[str, Any] | ToolResult:
    """Keep the file that a call of `context_attach` names, where no stored part goes by that name.

    Returns:
        The arguments, naming the part that was made of the file; or why that cannot be kept.
    """
    wanted, shelf = str(args["part"]), live.state.shelf
    if shelf.find(wanted) is not None:
        return args
    context = live.context
    read = partial(read_attachment, context.workdir, wanted, context.part_bytes, context.also)
    try:
        brought = await anyio.to_thread.run_sync(read, limiter=live.host.threads)
        [part] = await prepared([brought], context.part_bytes, live.host.threads)
    except PathRefused as refused:
        return args if refused.why == "missing" else ToolResult.error(str(refused))
    [name] = shelf.names([live.keep(part)])
    return {**args, "part": name}


async def made_by_model(live: Live, parts: Sequence[bytes]) -> tuple[Prepared, ...]:
    """Return what a model made, looked at; what is too large to be kept is left out."""
    made: list[Prepared] = []
    for data in parts:
        try:
            made += await prepared([Attachment(data)], live.host.limits.part_bytes, live.host.threads)
        except PartRefused:
            continue
    return tuple(made)


def with_parts(live: Live, resolved: Resolved) -> Resolved:
    """Keep the parts of what a seed gave and return it with them in its blocks, counted."""
    if not resolved.parts:
        return resolved
    blocks = list(resolved.blocks)
    for number, parts in resolved.parts.items():
        seqs = tuple([live.keep(part) for part in parts])
        block = blocks[number]
        message = Message("user", (block.text,) if block.text else (), blobs=live.state.shelf.blobs(seqs))
        cost = max(1, estimate(message, live.state.view.intake))
        blocks[number] = msgspec.structs.replace(block, tokens=cost, parts=seqs)
    return msgspec.structs.replace(resolved, blocks=tuple(blocks), parts={})
