"""What is said in a conversation, as content blocks of the Anthropic Messages API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

from shoal.providers._blobs import in_base64, in_words, said_of, takes
from shoal.providers._elements import Element, Leaves, bodies
from shoal.providers._legality import Turn, blank, object_source, tool_name, wire_ids
from shoal.providers._states import Opaque, Reader, Said, pieces
from shoal.providers._text import Text
from shoal.providers._values import Blob, Message, ModelProfile, ToolCall

MAX_IMAGE_BASE64 = 10 * 1024 * 1024
MAX_SIDE_PX = 8000
MAX_PAGES = 600
MAX_PAGES_SMALL = 100
_LARGE_WINDOW = 1_000_000

_ID_LENGTH = 64
_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_NO_ERROR_TEXT = Text.of("[error] the tool failed and said nothing")

TURN = "system for one turn"
"""The run of system messages that count for one turn."""
TEXT_OPEN = b'{"type":"text","text":"'


@final
class ContentBlocks:
    """Says turns as content blocks.

    Args:
        profile: What is known of the model.
        reader: Who can read what its vendor wants back.
    """

    def __init__(self, profile: ModelProfile, reader: Reader) -> None:
        self._profile = profile
        self._reader = reader
        self._most_pages = MAX_PAGES if profile.window_tokens >= _LARGE_WINDOW else MAX_PAGES_SMALL

    def __repr__(self) -> str:
        return f"<ContentBlocks for {self._profile.model}>"

    def say(self, turn: Turn) -> Sequence[Element]:
        """Return the elements of *turn*: its message, then the result of each of its calls."""
        message = turn.message
        if message.role != "assistant":
            run = self._run(message)
            if message.blobs:
                return [*self._with_parts(message, run)]
            return (Element(run, (TEXT_OPEN, *bodies(message.texts)), b'"}'),)
        message = in_words(message)
        state = self._reader.read(message)
        ids = wire_ids(turn.answers, length=_ID_LENGTH, own=state is not None)
        results = [self._result(answer.result, id_) for answer, id_ in zip(turn.answers, ids, strict=True)]
        return [*_assistant(message, ids, state), *results]

    def _run(self, message: Message) -> str:
        if message.role != "system" or not self._profile.mid_system:
            return "user"
        return TURN if message.turn_scoped and self._profile.turn_system else "system"

    def _with_parts(self, message: Message, run: str) -> Iterator[Element]:
        if not blank(message.texts):
            yield Element(run, (TEXT_OPEN, *bodies(message.texts)), b'"}')
        for blob in message.blobs:
            yield Element(run, (TEXT_OPEN, said_of(blob)), b'"}')
            shown = self._shown(blob)
            if shown is not None:
                yield Element(run, shown, b"}", blobs=1, side_px=blob.side_px or 0)

    def _result(self, message: Message, id_: str) -> Element:
        head: list[Any] = [b'{"type":"tool_result","tool_use_id":%b' % Text.of(id_).quoted]
        said: list[Leaves] = [] if blank(message.texts) else [(TEXT_OPEN, *bodies(message.texts), b'"}')]
        blobs = side_px = 0
        for blob in message.blobs:
            said.append((TEXT_OPEN, said_of(blob), b'"}'))
            shown = self._shown(blob)
            if shown is not None:
                said.append((*shown, b"}"))
                blobs, side_px = blobs + 1, max(side_px, blob.side_px or 0)
        if not said and message.is_error:
            said.append((TEXT_OPEN, _NO_ERROR_TEXT.body, b'"}'))
        for index, leaves in enumerate(said):
            head += [b',"content":[' if index == 0 else b",", *leaves]
        if said:
            head.append(b"]")
        if message.is_error:
            head.append(b',"is_error":true')
        return Element("user", tuple(head), b"}", blobs=blobs, side_px=side_px)

    def _shown(self, blob: Blob) -> Leaves | None:
        """Return *blob* as a content block, without its end; `None` where its bytes are not sent."""
        if blob.text is not None or not takes(self._profile, blob.mime):
            return None
        data = in_base64(blob)
        if blob.mime in _IMAGES and data.size <= MAX_IMAGE_BASE64 and (blob.side_px or 0) <= MAX_SIDE_PX:
            kind = b"image"
        elif blob.mime == "application/pdf" and (blob.pages or 0) <= self._most_pages:
            kind = b"document"
        else:
            return None
        head = b'{"type":"%b","source":{"type":"base64","media_type":"%b","data":"' % (kind, blob.mime.encode())
        return head, data, b'"}'


def _assistant(message: Message, ids: Sequence[str], state: bytes | None) -> Iterator[Element]:
    """Yield the content of an assistant turn, with what its vendor wants back in its places."""
    calls = [_call(call, id_) for call, id_ in zip(message.calls, ids, strict=True)]
    body = b"" if blank(message.texts) else b"".join([text.body for text in message.texts])
    for part in pieces(state or b"[]", body, len(calls)):
        match part:
            case Opaque():
                yield Element("assistant", (part.raw[:-1],), b"}", markable=False)
            case Said():
                yield Element("assistant", (TEXT_OPEN, body[part.start : part.end]), b'"}')
            case _:
                yield calls[part.index]


def _call(call: ToolCall, id_: str) -> Element:
    head = b'{"type":"tool_use","id":%b,"name":%b,"input":' % (
        Text.of(id_).quoted,
        Text.of(tool_name(call.name)).quoted,
    )
    return Element("assistant", (head, object_source(call.arguments)), b"}")
