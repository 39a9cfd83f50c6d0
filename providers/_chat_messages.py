"""What is said in a conversation, as messages of Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from shoal.providers._blobs import in_base64, in_words, said_of, takes
from shoal.providers._elements import Element, Leaves, Spoken, bodies, listed
from shoal.providers._legality import Turn, arguments, blank, call_id, tool_name
from shoal.providers._servers import Capabilities
from shoal.providers._states import Reader
from shoal.providers._text import Text
from shoal.providers._values import Blob, Message, ModelProfile, ToolCall
from shoal.providers._wire import Wire

API = "chat"
END = b'"}'
BLANK_LINE = b"\\n\\n"

_PART = b'{"type":"text","text":"'
_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})


@final
class ChatMessages:
    """Says turns as messages.

    Args:
        capabilities: What the server takes.
        profile: What is known of the model.
        reader: Who can read the reasoning that is sent back.
        parts: Texts of users and of the system travel as parts, which take markers, and not as plain strings.
    """

    def __init__(self, capabilities: Capabilities, profile: ModelProfile, reader: Reader, *, parts: bool) -> None:
        self._capabilities = capabilities
        self._profile = profile
        self._reader = reader
        self._parts = parts
        self._marks_images = capabilities.marker == "prompt_cache_breakpoint"
        roles = {"system": capabilities.system_role, "user": "user"}
        self._openings = {role: b'{"role":"%b","content":' % sent.encode() for role, sent in roles.items()}

    def __repr__(self) -> str:
        return f"<ChatMessages for {self._capabilities.server}>"

    def say(self, turn: Turn) -> Sequence[Element]:
        """Return the elements of *turn*: its message, the result of each call, and what results cannot hold."""
        message = turn.message
        return (self._spoken(message),) if message.role != "assistant" else [*self._answered(turn)]

    def _answered(self, turn: Turn) -> Iterator[Element]:
        keys = [answer.key for answer in turn.answers]
        yield self._assistant(in_words(turn.message), keys)
        shown: list[Blob] = []
        for answer in turn.answers:
            result = answer.result
            head = b'{"role":"tool","tool_call_id":%b,"content":"' % self._id(answer.key)
            yield Element("tool", (head, *_lines(result, result.blobs)), END, markable=False)
            shown += [blob for blob in result.blobs if self._native(blob)]
        if shown:  # results are text only, and nothing may stand between two of them
            parts = [part for blob in shown for part in (_part((blob.stand_in.body,)), _blob(blob))]
            yield listed("user", b'{"role":"user","content":[', parts, b"]}", markable=False)

    def _spoken(self, message: Message) -> Element:
        head = self._openings[message.role]
        if not message.blobs:
            texts = bodies(message.texts)
            if self._parts:
                return Element(message.role, (head + b"[" + _PART, *texts), END + b"]}")
            return Element(message.role, (head + b'"', *texts), END, markable=False)
        native = [blob for blob in message.blobs if self._native(blob)]
        if self._parts or native:
            parts = [] if blank(message.texts) else [_part(bodies(message.texts))]
            for blob in message.blobs:
                parts.append(_part((said_of(blob),)))
                if blob in native:
                    parts.append(_blob(blob))
            return listed(message.role, head + b"[", parts, b"]}", markable=self._marks_images or not native)
        return Element(message.role, (head + b'"', *_lines(message, message.blobs)), END, markable=False)

    def _native(self, blob: Blob) -> bool:
        if blob.text is not None or not takes(self._profile, blob.mime):
            return False
        return blob.mime in _IMAGES or (blob.mime == "application/pdf" and self._capabilities.files)

    def _assistant(self, message: Message, keys: Sequence[str]) -> Element:
        head = b'{"role":"assistant",%b"content":' % self._reasoning(message)
        if not message.calls:
            return Element("assistant", (head + b'"', *bodies(message.texts)), END, markable=False)
        said: Leaves = (b'"', *bodies(message.texts), b'"') if any(message.texts) else (b"null",)
        calls: list[bytes] = []
        for call, key in zip(message.calls, keys, strict=True):
            calls += [b"," if calls else b',"tool_calls":[', *self._call(call, key)]
        return Element("assistant", (head, *said, *calls), b"]}", markable=False)

    def _call(self, call: ToolCall, key: str) -> tuple[bytes, ...]:
        name = Text.of(tool_name(call.name)).quoted
        head = b'{"id":%b,"type":"function","function":{"name":%b,"arguments":"' % (self._id(key), name)
        return head, arguments(call.arguments).body, b'"}}'

    def _id(self, key: str) -> bytes:
        capabilities = self._capabilities
        made = call_id(key, length=capabilities.call_id_length, exact=capabilities.call_id_exact)
        return Text.of(made).quoted

    def _reasoning(self, message: Message) -> bytes:
        """Return the reasoning of *message* as a field, where it is this model's own and the server wants it back."""
        field = self._capabilities.reasoning_field
        state = None if field is None else self._reader.read(message)
        return b"" if field is None or state is None else b'"%b":%b,' % (field.encode(), state)


def _lines(message: Message, blobs: Sequence[Blob]) -> Leaves:
    """Return what *message* says as the inside of one string, and each of *blobs* in words on a line of its own."""
    stored = [said_of(blob) for blob in blobs]
    if not any(message.texts):
        return (b"\\n".join(stored),) if stored else bodies(message.texts)
    return (*bodies(message.texts), *[b"\\n" + body for body in stored])


def _part(text: Leaves) -> Leaves:
    return _PART, *text, END


def _blob(blob: Blob) -> Leaves:
    data = in_base64(blob)
    mime = blob.mime.encode()
    if blob.mime in _IMAGES:
        return b'{"type":"image_url","image_url":{"url":"data:%b;base64,' % mime, data, b'"}', b"}"
    name = Text.of(blob.name or "document.pdf").quoted
    return b'{"type":"file","file":{"filename":%b,"file_data":"data:%b;base64,' % (name, mime), data, b'"}', b"}"


def with_tail(last: Spoken, tail: Text) -> list[bytes | Wire] | None:
    """Return *last*, the last part of what is said, going on with *tail* a blank line below.

    `None` where its last message is no plain text.
    """
    leaves = last.leaves
    if leaves[-1] != END or last.closing not in ("user", "tool"):
        return None
    opening = next(leaf for leaf in reversed(leaves[:-1]) if leaf)
    joint = b"" if isinstance(opening, bytes) and opening.endswith(b'"content":"') else BLANK_LINE
    size = last.wire.size - len(END)
    return [Wire(leaves[:-1], size), joint, tail.body, END]
