"""Cutting a text to what fits, with a marker that says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

import msgspec

from shoal.blueprints import Region
from shoal.providers import Blob, Message, Text
from shoal.runtime.context._changes import SeedBlock
from shoal.runtime.context._entry import BYTES_PER_TOKEN, estimate_text, unused
from shoal.runtime.context._shelf import Shelf
from shoal.runtime.context._taking import takes_blocks

SMALLEST_SHARE = 256
"""Tokens that each tool result of a turn keeps at the least."""


@final
class Cut(msgspec.Struct, frozen=True, gc=False):
    """A text that was cut.

    Args:
        message: The message with what is left of its text, marker included.
        chars: How many characters of the text are left.
        marker: What stands behind them.
        tokens: What the message costs now.
        of_tokens: What it cost before.
    """

    message: Message
    chars: int
    marker: Text
    tokens: int
    of_tokens: int


def materialise(content: Message, cut: int | None, text: Text | None, blobs: tuple[Blob, ...] = ()) -> Message:
    """Return *content* as an entry holds it: its first *cut* characters, then *text*, then *blobs*."""
    if cut is None and text is None and blobs == content.blobs:
        return content
    if cut is None:
        texts = content.texts if text is None else (*content.texts, text)
    else:
        texts = tuple(piece for piece in (Text.of(content.text[:cut]), text) if piece)
    return msgspec.structs.replace(content, texts=texts, blobs=blobs)


def cut_to(content: Message, tokens: int, most_tokens: int) -> Cut:
    """Cut *content*, which costs *tokens*, so that it costs at most *most_tokens*, marker included.

    The marker stays whole, so that a very small limit is passed by what the marker costs. Stored parts cannot be cut:
    what is left of them are their stand-ins, which the marker lists.
    """
    plain = content.text
    lines = "".join(f"\n{blob.stand_in}" for blob in content.blobs)
    only = "; of the parts above only the names" if lines else ""
    line = f"{lines}\n[cut: about {max(0, most_tokens)} of {tokens} tokens{only}]"
    marker = Text.of(line if plain else line.lstrip("\n"))
    room = max(0, most_tokens - estimate_text(marker))
    chars = _fitting(plain, room * BYTES_PER_TOKEN)
    message = materialise(content, chars, marker)
    cost = sum(estimate_text(text) for text in message.texts)
    return Cut(message, chars, marker, cost, tokens)


def _fitting(plain: str, most_bytes: int) -> int:
    """Return how many characters of *plain* fit into *most_bytes* of UTF-8."""
    if plain.isascii():
        return min(len(plain), most_bytes)
    return len(plain.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore"))


def fair_shares(costs: Sequence[int], room_tokens: int) -> tuple[int, ...]:
    """Share *room_tokens* among results that cost *costs*: what one does not need goes to the others.

    Returns:
        What each may cost, n in the order of *costs*; at least 256 where it costs as much.
    """
    shares = [0] * len(costs)
    left = room_tokens
    for position, index in enumerate(sorted(range(len(costs)), key=lambda i: costs[i])):
        share = max(SMALLEST_SHARE, left // (len(costs) - position))
        shares[index] = min(costs[index], share)
        left = max(0, left - shares[index])
    return tuple(shares)


def named(blocks: Iterable[SeedBlock]) -> tuple[SeedBlock, ...]:
    """Return *blocks* with a name of its own for each, so that a refresh knows which was which."""
    taken: set[str] = set()
    made: list[SeedBlock] = []
    for block in blocks:
        name = unused(block.name, taken)
        taken.add(name)
        made.append(block if name == block.name else msgspec.structs.replace(block, name=name))
    return tuple(made)


def fit_blocks(
    blocks: Sequence[SeedBlock], room_tokens: int, region: Region, shelf: Shelf, *, held_parts: int = 0
) -> tuple[tuple[SeedBlock, ...], tuple[str, ...]]:
    """Cut what a seed gave to *room_tokens*, with a marker; blocks for which nothing is left are dropped.

    Args:
        blocks: What the seed gave, in order; those that failed are left out.
        room_tokens: What the region takes.
        region: The region; blocks of a type that it does not take are dropped.
        shelf: Where their stored parts are.
        held_parts: How many stored parts the region holds that stay beside them.

    Returns:
        The blocks that fit, in order, and a note on each that was cut or dropped.
    """
    taken, notes = takes_blocks(region, [block for block in named(blocks) if block.ok], shelf, held_parts)
    fitting: list[SeedBlock] = []
    left = room_tokens
    for block in taken:
        kept = block
        if block.tokens > left:
            whole = Message("user", (block.text,) if block.text else (), blobs=shelf.blobs(block.parts))
            shorter = cut_to(whole, block.tokens, left)
            text = Text(b"".join([piece.body for piece in shorter.message.texts]))
            says = shorter.chars or (block.parts and shorter.tokens <= left)
            cost = shorter.tokens if says else 0
            kept = msgspec.structs.replace(block, text=text, tokens=cost, parts=())
            notes.append(f"{block.name or 'seed'}: {kept.tokens} of {block.tokens} tokens fit")
        if kept.tokens:
            fitting.append(kept)
            left -= kept.tokens
    return tuple(fitting), tuple(notes)
