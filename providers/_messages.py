"""Requests as Anthropic Messages bodies.

Elements are content blocks; those of one role in a row share a message, over the bounds of segments too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TypeAlias, final

import msgspec

from shoal.errors import ProviderRefused
from shoal.providers._breakpoints import (
    ANTHROPIC,
    ONCE,
    Front,
    Marker,
    MarkerRules,
    plan_breakpoints,
)
from shoal.providers._conversation import Conversation, keep, kept
from shoal.providers._elements import Spoken, bodies, in_array
from shoal.providers._fronts import Fronts
from shoal.providers._legality import (
    object_schema,
    tail_of,
    tool_names,
)
from shoal.providers._messages_blocks import TEXT_OPEN, TURN, ContentBlocks
from shoal.providers._messages_settings import settings_of
from shoal.providers._outline import outline
from shoal.providers._sent import NO_HEADERS, Heads, Sent
from shoal.providers._states import Reader
from shoal.providers._text import Text
from shoal.providers._values import Block, ModelProfile, Request, ToolSet
from shoal.providers._wire import Wire

API = "messages"
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_BLOBS = 600
MAX_BLOBS_SMALL = 100
SMALL_WINDOW = 200_000
MAX_IMAGE_BASE64 = 10 * 1024 * 1024
MAX_SIDE_PX = 8000
MANY_IMAGES = 20
MAX_SIDE_MANY_PX = 2000

_ID_LENGTH = 64
_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_TURN_HEADERS: Mapping[str, str] = {"anthropic-beta": "mid-conversation-system-clear-at-2026-08-21"}
_NO_ERROR_TEXT = Text.of("[error] the tool failed and said nothing")
_json = msgspec.json.Encoder(order="sorted").encode
_layout = msgspec.json.Decoder(list[msgspec.Raw]).decode

_SHORT = b',"cache_control":{"type":"ephemeral"}'
_BEGIN = b'"messages":['
_END = b"]}]}"
_LONG = b',"cache_control":{"type":"ephemeral","ttl":"1h"}'

Piece: TypeAlias = tuple[str, int]


@final
class Tools(msgspec.Struct, frozen=True, gc=False):
    """An encoded tool set.

    Args:
        wire: The definitions with commas between them, without the end of the last one.
        names: Our name of each tool, by the name that was sent.
    """

    wire: Wire
    names: dict[str, str]


@final
class MessagesEncoder:
    """Encodes requests for one model; the key under which parts keep what it made.

    Args:
        provider: Name of the provider, for errors and for what is read back.
        profile: What is known of the model.
        rules: What its cache makes of markers.
        version: The API version.
    """

    def __init__(
        self, provider: str, profile: ModelProfile, *, rules: MarkerRules = ANTHROPIC, version: str = "2023-06-01"
    ) -> None:
        self.profile = profile
        self.rules = rules
        self._version = version
        self._provider = provider
        self._reader = Reader(provider, profile.model, API)
        self._fronts = Fronts(tools_markable=True)
        self._heads = Heads()
        self._conversation = Conversation(
            self,
            say=ContentBlocks(profile, self._reader).say,
            between=_between,
            thinks=lambda message: self._reader.read(message) is not None,
            system_leads=profile.mid_system,
        )

    def __repr__(self) -> str:
        return f"<MessagesEncoder for {self.profile.model}>"

    # --- whole requests

    def encode(self, request: Request, *, counting: bool = False) -> Sent:
        """Return the body of *request*.

        Args:
            request: The request.
            counting: The body is to be counted: without markers and what only generating needs.

        Raises:
            ProviderRefused: It could only be refused.
        """
        tools = self.tools(request.tools)
        tail = tail_of(request)
        spoken = self._conversation.whole(request.messages, tailed=tail is not None)
        blobs, thinks, for_turns = _facts(spoken)
        if blobs:
            self._check_blobs(request, spoken, blobs)
        head = self._heads.of(request, tools, (thinks, counting), self._head)
        known = self._fronts.of(request, tools.wire.size if tools.names else 0, self.block)
        plan = outline(known, spoken, request.purpose, tail)
        once = counting or request.purpose in ONCE
        markers = plan_breakpoints(
            known, plan.said, self.profile, self.rules, once=once, ended=plan.ended, far=plan.far
        )
        front, prefixes = plan.encoded(markers.ahead, tools, self._front)
        opening = _begun(spoken[0].opening) if spoken else _BEGIN
        said = in_array(spoken, _between, plan.placed(markers.behind, _SHORT))
        body = Wire.of(head, front, opening, said, _END if tail is None else _with_tail(spoken, tail))
        if body.size > MAX_BODY_BYTES:
            raise ProviderRefused(
                f"{self._provider}: the request is {body.size!r} bytes long, and {MAX_BODY_BYTES!r} are taken; "
                "send fewer or smaller parts",
                provider=self._provider,
                model=request.model,
            )
        return Sent(body, tools.names, prefixes, _TURN_HEADERS if for_turns else NO_HEADERS)

    def _head(self, request: Request, tools: Tools, more: tuple[bool | None, bool]) -> bytes:
        thinks, counting = more
        settings = settings_of(
            request,
            self.profile,
            names=tools.names,
            thinks=thinks,
            version=self._version,
            provider=self._provider,
            counting=counting,
        )
        return _json(settings)[:-1] + b","

    def _check_blobs(self, request: Request, spoken: Sequence[Spoken], blobs: int) -> None:
        most = MAX_BLOBS_SMALL if self.profile.window_tokens <= SMALL_WINDOW else MAX_BLOBS
        if blobs > most:
            raise ProviderRefused(
                f"{self._provider}: the request holds {blobs!r} stored parts, and {most!r} are taken; "
                "give the regions that hold them a smaller `max_stored`",
                provider=self._provider,
                model=request.model,
            )
        side_px = max([part.side_px for part in spoken], default=0)
        if blobs > MANY_IMAGES and side_px > MAX_SIDE_MANY_PX:
            raise ProviderRefused(
                f"{self._provider}: with more than {MANY_IMAGES} images none may have a side of {side_px!r} pixels; "
                f"scale them to {MAX_SIDE_MANY_PX}, or send fewer",
                provider=self._provider,
                model=request.model,
            )

    # --- tools and system section

    def tools(self, tools: ToolSet) -> Tools:
        """Return *tools*, encoded once."""
        made: Tools | None = kept(tools, self)
        if made is not None:
            return made
        by_name = tool_names(tools.specs)
        wires = [
            b'{"name":%b,%b"input_schema":%b'
            % (
                Text.of(name).quoted,
                b'"description":%b,' % Text.of(spec.description).quoted if spec.description.strip() else b"",
                object_schema(spec.schema),
            )
            for name, spec in by_name.items()
        ]
        text = b"},".join(wires)
        return keep(tools, self, Tools(Wire((text,), len(text)), {name: spec.name for name, spec in by_name.items()}))

    def block(self, block: Block) -> Wire:
        """Return *block* as a text block without its end, encoded once."""
        made: Wire | None = kept(block, self)
        if made is not None:
            return made
        leaves = (b'{"type":"text","text":"', *bodies(block.texts), b'"')
        return keep(block, self, Wire(leaves, sum(map(len, leaves))))

    def _front(self, tools: Tools, front: Front, ahead: tuple[Marker, ...]) -> Wire:
        """Return what stands in front of the conversation."""
        marked = {at: _cache_control(marker) for at, marker in front.on_blocks(ahead).items()}
        blocks = front.blocks
        parts: list[bytes | Wire] = []
        if tools.names:
            parts += [b'"tools":[', tools.wire, marked.get(-1, b""), b"}],"]
        if blocks:
            parts.append(b'"system":[')
        for index, block in enumerate(blocks):
            parts += [self.block(block), marked.get(index, b""), b"}," if index < len(blocks) - 1 else b"}],"]
        return Wire.of(*parts)


def _facts(spoken: Sequence[Spoken]) -> tuple[int, bool | None, bool]:
    """Return what is to be known of *spoken* as a whole.

    Returns:
        How many stored parts are sent; whether the last assistant turn brings back what its model thought, `None` where
        there is no such turn; and whether a system message counts for one turn only.
    """
    blobs = 0
    thinks: bool | None = None
    for_turns = False
    for part in spoken:
        blobs += part.blobs
        if part.thinks is not None:
            thinks = part.thinks
        if TURN in part.runs:
            for_turns = True
    return blobs, thinks, for_turns


# --- framing


@functools.cache
def _begun(run: str) -> bytes:
    return _BEGIN + _opening(run)


def _with_tail(spoken: Sequence[Spoken], tail: Text) -> Wire:
    """Return *tail* as it stands behind *spoken*, with the end of the body."""
    # Behind a system message only another one may stand.
    last = spoken[-1].closing if spoken else ""
    run = last if last in ("system", TURN) else "user"
    joint = _between(last, run) if spoken else _opening(run)
    return Wire.of(joint, TEXT_OPEN, tail.body, b'"}', _END)


@functools.cache
def _opening(run: str) -> bytes:
    if run == TURN:
        return b'{"role":"system","clear_at":"next_user_message","content":['
    return b'{"role":"%b","content":[' % run.encode()


@functools.cache
def _between(before: str, after: str) -> bytes:
    return b"," if before == after else b"]}," + _opening(after)


def _cache_control(marker: Marker) -> bytes:
    return _LONG if marker.long else _SHORT
