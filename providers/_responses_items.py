"""What is said in a conversation, as items of the OpenAI Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from shoal.providers._blobs import in_base64, in_words, said_of, takes
from shoal.providers._elements import Element, Leaves, bodies, listed
from shoal.providers._legality import Turn, arguments, blank, tool_name, wire_ids
from shoal.providers._states import Opaque, Reader, Said, pieces
from shoal.providers._text import Text
from shoal.providers._values import Blob, Message, ModelProfile

API = "responses"
MAX_IMAGE_CHARS = 20_971_520
MAX_FILE_CHARS = 73_400_320
MAX_TEXT_CHARS = 10_485_760

TEXT_OPEN = b'{"type":"input_text","text":"'
_OPENINGS = {role: b'{"type":"message","role":"%b","content":[' % role.encode() for role in ("developer", "user")}
_ID_LENGTH = 64
_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})


@final
class Items:
    """Says turns as input items.

    Args:
        profile: What is known of the model.
        reader: Who can read the reasoning that is sent back.
        marks_results: A cache marker in a result has an effect.
    """

    def __init__(self, profile: ModelProfile, reader: Reader, *, marks_results: bool = False) -> None:
        self._profile = profile
        self._reader = reader
        self._marks_results = marks_results

    def __repr__(self) -> str:
        return f"<Items for {self._profile.model}>"

    def say(self, turn: Turn) -> Sequence[Element]:
        """Return the elements of *turn*: its message, reasoning and calls, then the result of each call."""
        message = turn.message
        if message.role != "assistant":
            head = _OPENINGS["developer" if message.role == "system" else "user"]
            texts = bodies(message.texts)
            if message.blobs or _too_long(texts):
                return (listed(message.role, head, self._parts(message), b"]}"),)
            return (Element(message.role, (head + TEXT_OPEN, *texts), b'"}]}'),)
        message = in_words(message)
        state = self._reader.read(message)
        ids = wire_ids(turn.answers, length=_ID_LENGTH, own=state is not None)
        results = [self._result(answer.result, id_) for answer, id_ in zip(turn.answers, ids, strict=True)]
        return [*_assistant(message, ids, state), *results]

    def _result(self, message: Message, id_: str) -> Element:
        head = b'{"type":"function_call_output","call_id":%b,"output":' % Text.of(id_).quoted
        texts = bodies(message.texts)
        if message.blobs or (self._marks_results and not blank(message.texts)) or _too_long(texts):
            parts = self._parts(message)
            return listed("tool", head + b"[", parts, b"]}", markable=self._marks_results)
        return Element("tool", (head + b'"', *texts), b'"}', markable=False)

    def _parts(self, message: Message) -> list[Leaves]:
        parts: list[Leaves] = [] if blank(message.texts) else _said(message)
        for blob in message.blobs:
            parts.append((TEXT_OPEN, said_of(blob), b'"}'))
            shown = self._shown(blob)
            if shown is not None:
                parts.append(shown)
        return parts

    def _shown(self, blob: Blob) -> Leaves | None:
        """Return *blob* as a content part with its bytes; `None` where they are not sent."""
        if blob.text is not None or not takes(self._profile, blob.mime):
            return None
        data = in_base64(blob)
        mime = blob.mime.encode()
        if blob.mime in _IMAGES and data.size < MAX_IMAGE_CHARS - 64:
            return b'{"type":"input_image","detail":"auto","image_url":"data:%b;base64,' % mime, data, b'"}'
        if blob.mime == "application/pdf" and data.size < MAX_FILE_CHARS - 64:
            name = Text.of(blob.name or "document.pdf").quoted
            return b'{"type":"input_file","filename":%b,"file_data":"data:%b;base64,' % (name, mime), data, b'"}'
        return None


def _too_long(texts: Leaves) -> bool:
    return sum(map(len, texts)) > MAX_TEXT_CHARS


def _said(message: Message) -> list[Leaves]:
    """Return the text of *message* as parts, which are no longer than the vendor takes."""
    texts = bodies(message.texts)
    if not _too_long(texts):
        return [(TEXT_OPEN, *texts, b'"}')]
    whole = message.text
    cut = [Text.of(whole[at : at + MAX_TEXT_CHARS]) for at in range(0, len(whole), MAX_TEXT_CHARS)]
    return [(TEXT_OPEN, piece.body, b'"}') for piece in cut]


def _assistant(message: Message, ids: Sequence[str], state: bytes | None) -> Iterator[Element]:
    body = b"" if blank(message.texts) else b"".join(bodies(message.texts))  # type: ignore[arg-type] # bytes only
    calls = [
        Element(
            "assistant",
            (
                b'{"type":"function_call","call_id":%b,"name":%b,"arguments":"'
                % (Text.of(id_).quoted, Text.of(tool_name(call.name)).quoted),
                arguments(call.arguments).body,
            ),
            b'"}',
            markable=False,
        )
        for call, id_ in zip(message.calls, ids, strict=True)
    ]
    for part in pieces(state or b"[]", body, len(calls)):
        match part:
            case Opaque():
                yield Element("assistant", (part.raw[:-1],), b"}", markable=False)
            case Said():
                phase = b',"phase":%b' % Text.of(part.note).quoted if part.note else b""
                head = b'{"type":"message","role":"assistant"%b,"content":"' % phase
                yield Element("assistant", (head, body[part.start : part.end]), b'"}', markable=False)
            case _:
                yield calls[part.index]
