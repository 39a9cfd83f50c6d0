"""What is said in a conversation, as parts of the Gemini API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from shoal.providers._blobs import in_base64, in_words, said_of, takes
from shoal.providers._elements import Element, Leaves, bodies
from shoal.providers._legality import Turn, blank, object_source, tool_name, wire_ids
from shoal.providers._states import Called, Made, Opaque, Reader, Said, pieces
from shoal.providers._text import Text
from shoal.providers._values import Blob, Message, ModelProfile, ToolCall

API = "gemini"
PLACEHOLDER = b',"thoughtSignature":"skip_thought_signature_validator"'

TEXT_OPEN = b'{"text":"'
_ID_LENGTH = 64
_FAILED = Text.of("the tool failed and said nothing")


def signed(profile: ModelProfile) -> bool:
    """Say whether the model of *profile* checks the signatures of its calls."""
    return "level" in (profile.thinking or ())


@final
class Parts:
    """Says turns as parts.

    Args:
        profile: What is known of the model.
        reader: Who can read the signatures that are sent back.
    """

    def __init__(self, profile: ModelProfile, reader: Reader) -> None:
        self._profile = profile
        self._reader = reader

    def __repr__(self) -> str:
        return f"<Parts for {self._profile.model}>"

    def say(self, turn: Turn) -> Sequence[Element]:
        """Return the elements of *turn*: its message, then the result of each of its calls."""
        message = turn.message
        if message.role == "assistant":
            return [*self._answered(turn)]
        said = (Element("user", (TEXT_OPEN, *bodies(message.texts)), b'"}'),)
        if not message.blobs:
            return said
        return [*([] if blank(message.texts) else said), *self._blobs(message)]

    def _answered(self, turn: Turn) -> Iterator[Element]:
        ids, placed = self._assistant(turn)
        yield from placed
        shown: list[Element] = []
        for answer, id_ in zip(turn.answers, ids, strict=True):
            name = tool_name(answer.call.name, letter_first=True)
            yield self._result(answer.result, name, id_)
            if not signed(self._profile):
                shown += self._blobs(answer.result)
        yield from shown

    def _blobs(self, message: Message) -> Iterator[Element]:
        for blob in message.blobs:
            yield Element("user", (TEXT_OPEN, said_of(blob)), b'"}')
            data = self._data(blob)
            if data is not None:
                yield Element("user", data, b'"}}', blobs=1)

    def _data(self, blob: Blob) -> Leaves | None:
        if blob.text is not None or not takes(self._profile, blob.mime):
            return None
        return b'{"inlineData":{"mimeType":%b,"data":"' % Text.of(blob.mime).quoted, in_base64(blob)

    def _result(self, message: Message, name: str, id_: str | None) -> Element:
        given = b'"id":%b,' % Text.of(id_).quoted if id_ is not None else b""
        key = b"error" if message.is_error else b"output"
        head = b'{"functionResponse":{%b"name":%b,"response":{"%b":"' % (given, Text.of(name).quoted, key)
        texts = (_FAILED,) if message.is_error and blank(message.texts) else message.texts
        said: list[bytes] = [text.body for text in texts]
        shown: list[Leaves] = []
        for blob in message.blobs:
            data = self._data(blob)
            if data is None or signed(self._profile):
                said.append((b"\\n" if any(said) else b"") + said_of(blob))
            if data is not None and signed(self._profile):
                shown.append((*data, b'"}}'))
        if not shown:
            return Element("results", (head, *said), b'"}}}')
        leaves: Leaves = (head, *said, b'"},"parts":[')
        for index, part in enumerate(shown):
            leaves += (b",", *part) if index else part
        return Element("results", leaves, b"]}}", blobs=len(shown))

    def _assistant(self, turn: Turn) -> tuple[list[str | None], list[Element]]:
        """Return the id of each call, `None` where none is sent, and the elements of the model's turn."""
        message = turn.message
        state = self._reader.read(message)
        message = in_words(message) if state is None else message  # what another model made is told in words
        body = b"" if blank(message.texts) else b"".join([text.body for text in message.texts])
        wire = wire_ids(turn.answers, length=_ID_LENGTH, own=state is not None)
        ids: list[str | None] = [id_ if state is None else None for id_ in wire]
        elements: list[Element] = []
        for part in pieces(state or b"[]", body, len(message.calls), len(message.blobs)):
            match part:
                case Opaque():
                    elements.append(Element("model", (part.raw[:-1],), b"}"))
                case Said():
                    elements.append(_text(body[part.start : part.end], part.note))
                case Made():
                    elements.append(self._made(message.blobs[part.index], part.note))
                case _:
                    call = message.calls[part.index]
                    if part.named:
                        ids[part.index] = wire[part.index]
                    first = part.index == 0
                    elements.append(self._call(call, part, ids[part.index], first=first))
        return ids, elements

    def _made(self, blob: Blob, signature: str) -> Element:
        data = self._data(blob)
        if data is None or (signed(self._profile) and not signature):
            return Element("model", (TEXT_OPEN, said_of(blob)), b'"}')
        end = b'"},"thoughtSignature":%b}' % Text.of(signature).quoted if signature else b'"}}'
        return Element("model", data, end, blobs=1)

    def _call(self, call: ToolCall, part: Called, id_: str | None, *, first: bool) -> Element:
        given = b'"id":%b,' % Text.of(id_).quoted if id_ is not None else b""
        name = Text.of(tool_name(call.name, letter_first=True)).quoted
        end = b"}"
        if part.note:
            end += b',"thoughtSignature":%b' % Text.of(part.note).quoted
        elif first and signed(self._profile):
            end += PLACEHOLDER
        head = b'{"functionCall":{%b"name":%b,"args":' % (given, name)
        return Element("model", (head, object_source(call.arguments)), end + b"}")


def _text(body: bytes, signature: str) -> Element:
    end = b'","thoughtSignature":%b}' % Text.of(signature).quoted if signature else b'"}'
    return Element("model", (TEXT_OPEN, body), end)
