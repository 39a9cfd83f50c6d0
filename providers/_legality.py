"""What makes a transcript legal, whatever happened before: one place for all encoders.

Vendors refuse a request whose calls and results do not match, whose arguments are no JSON object, whose names or ids
break their alphabet. Runs are cancelled, crash, lose entries and change vendors, so each of these happens. Encoders
translate what this module returns and repair nothing themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import final

import msgspec

from shoal.providers._json import as_object, mended
from shoal.providers._text import Text
from shoal.providers._values import Message, Request, Role, ToolCall, ToolSpec

NAME_LENGTH = 64

OPENING = Text.of("Begin.")
CLOSING = Text.of("Continue.")
NO_RESULT = Text.of("[error] not executed: the call was interrupted before it gave a result")
EMPTY_OBJECT = Text(b"{}")

_LEGAL = re.compile(r"[a-zA-Z0-9_-]+")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
_MAPPED_ID = "sh_"
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_json = msgspec.json.Encoder(order="sorted").encode


# --- transcripts


@final
class Answered(msgspec.Struct, frozen=True, gc=False):
    """A call with its one result.

    Args:
        call: The call.
        key: What its wire id is made of; unique in its turn.
        result: The tool message that answers it, made up where none was recorded.
    """

    call: ToolCall
    key: str
    result: Message


@final
class Turn(msgspec.Struct, frozen=True, gc=False):
    """A message that is sent, with the results that stand directly behind it.

    Args:
        message: A user, system or assistant message that says or asks something.
        answers: Of an assistant: its calls, in its order.
    """

    message: Message
    answers: tuple[Answered, ...] = ()


def legal(messages: Iterable[Message]) -> list[Turn]:
    """Return *messages* as turns of which every call has exactly one result, directly behind it and in call order.

    A result belongs to the nearest turn in front of it that asked for its id; one that nobody asked for is dropped. A
    call without a result gets one that says so. Messages that say nothing, or nothing but white space, are dropped.
    """
    turns: list[Turn] = []
    waiting: dict[str, deque[tuple[int, int]]] = {}
    results: dict[tuple[int, int], Message] = {}
    for message in messages:
        if message.role == "tool":
            slots = waiting.get(message.call_id)
            if slots:
                results[slots.popleft()] = message
        elif message.calls:
            asked: dict[str, deque[tuple[int, int]]] = {}
            for position, call in enumerate(message.calls):
                asked.setdefault(call.call_id, deque()).append((len(turns), position))
            waiting.update(asked)
            turns.append(Turn(message))
        elif not silent(message):
            turns.append(Turn(message))
    if not waiting:
        return turns
    return [
        Turn(turn.message, _answers(turn.message.calls, index, results)) if turn.message.calls else turn
        for index, turn in enumerate(turns)
    ]


def _answers(calls: Sequence[ToolCall], index: int, results: dict[tuple[int, int], Message]) -> tuple[Answered, ...]:
    answers: list[Answered] = []
    used: dict[str, int] = {}
    for position, call in enumerate(calls):
        nth = used.get(call.call_id, 0)
        used[call.call_id] = nth + 1
        key = f"{call.call_id}\0{nth}" if nth else call.call_id
        result = results.get((index, position))
        if result is None:
            result = Message("tool", (NO_RESULT,), call_id=call.call_id, tool_name=call.name, is_error=True)
        answers.append(Answered(call, key, result))
    return tuple(answers)


def blank(texts: Iterable[Text]) -> bool:
    """Say whether *texts* are nothing but white space, which vendors refuse as a text."""
    for text in texts:
        # One look at the first byte settles nearly all of them; a backslash may begin an escaped line end.
        first = text.body[:1]
        if b" " < first < b"\x80" and first != b"\\":
            return False
        if first and str(text).strip():
            return False
    return True


def silent(message: Message) -> bool:
    """Say whether *message* says and asks nothing, so that it is not sent."""
    return not message.calls and not message.blobs and blank(message.texts)


def tail_of(request: Request) -> Text | None:
    """Return the tail of *request*; `None` where it is nothing, or nothing but white space."""
    tail = request.tail
    return None if tail is None or blank((tail,)) else tail


def starts_answering(messages: Sequence[Message]) -> bool:
    """Say whether *messages* begin with a result, whose call may stand in front of them."""
    return bool(messages) and messages[0].role == "tool"


def leaves_open(messages: Sequence[Message]) -> bool | None:
    """Say whether a call of the last assistant turn in *messages* has no result in them; `None` where none calls."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool":
            answered.add(message.call_id)
        elif message.calls:
            return any(call.call_id not in answered for call in message.calls)
    return None


def needs_pause(before: Role | None, after: Role | None) -> bool:
    """Say whether a user message has to stand between two messages.

    Two assistant turns in a row were asked for with a closing message between them, which no window keeps.
    """
    return before == after == "assistant"


def needs_closing(last: Role | None) -> bool:
    """Say whether a user message has to end the request: a trailing assistant turn is taken for a prefill."""
    return last in (None, "assistant")


# --- arguments


def arguments(text: Text) -> Text:
    """Return *text* if it is the source of a JSON object, else an empty object: servers fail on anything else.

    Halves of characters in it are replaced.
    """
    try:
        _object.decode(str(text))
    except (msgspec.MsgspecError, RecursionError):
        return _without_halves(text)
    return text


def _without_halves(text: Text) -> Text:
    """Return *text* without the halves of characters that made it no JSON; an empty object where it is none still."""
    source = str(text)
    if not _HALF_CHARACTER.search(source):
        return EMPTY_OBJECT
    try:
        whole = mended(source)
        _object.decode(whole)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return EMPTY_OBJECT
    return Text.of(whole)


def object_source(text: Text) -> bytes:
    """Return *text* as the bytes of a JSON object; an empty one where it is none."""
    return str(arguments(text)).encode()


def object_schema(schema: bytes) -> bytes:
    """Return *schema* as the schema of an object: what describes something else, or nothing, takes any object."""
    try:
        keys = _object.decode(schema)
    except (msgspec.MsgspecError, RecursionError):
        return b'{"type":"object"}'
    if bytes(keys.get("type", b"")) == b'"object"':
        return schema
    return _json({**as_object(msgspec.json.decode(schema)), "type": "object"})


# --- ids and names


def call_id(key: str, *, length: int, exact: bool) -> str:
    """Return the id that a vendor gets for *key*: the same for a call and its result, different for different keys.

    Args:
        key: Our id.
        length: The most characters that the vendor takes, 8 or more.
        exact: The vendor takes ids of just this length, letters and digits only.
    """
    if exact:
        return _base62(key, length)
    if len(key) <= length and _LEGAL.fullmatch(key) and not key.startswith(_MAPPED_ID):
        return key
    return _MAPPED_ID + _base62(key, min(length, 32) - len(_MAPPED_ID))


def wire_ids(answers: Sequence[Answered], *, length: int, exact: bool = False, own: bool = False) -> list[str]:
    """Return what a vendor gets as the id of each call of a turn, all different.

    Args:
        answers: The calls of one turn.
        length: The most characters that the vendor takes, 8 or more.
        exact: See `call_id`.
        own: The vendor made these calls and gets its own ids back, as long as it takes them.
    """
    made = [call_id(answer.key, length=length, exact=exact) for answer in answers]
    if not own:
        return made
    theirs = [answer.call.vendor_id or id_ for answer, id_ in zip(answers, made, strict=True)]
    taken = all(call_id(id_, length=length, exact=exact) == id_ for id_ in theirs)
    return theirs if taken and len(set(theirs)) == len(theirs) else made


def tool_name(name: str, *, length: int = NAME_LENGTH, letter_first: bool = False) -> str:
    """Return *name* in the vendors' alphabet and length; a name that had to change ends in a digest of itself.

    Args:
        name: Our name.
        length: The most characters that the vendor takes, 12 or more.
        letter_first: The vendor wants a letter or `_` at the start.
    """
    starts = not letter_first or name[:1].isalpha() or name[:1] == "_"
    if len(name) <= length and _LEGAL.fullmatch(name) and starts:
        return name
    tag = _base62(name, 8)
    readable = _ILLEGAL.sub("_", name if starts else f"_{name}")
    return f"{readable[: length - 9]}_{tag}"


def tool_names(specs: Sequence[ToolSpec], *, letter_first: bool = False) -> dict[str, ToolSpec]:
    """Return *specs* by the name that a vendor sees, in order; a second tool of one name is left out."""
    by_name: dict[str, ToolSpec] = {}
    for spec in specs:
        by_name.setdefault(tool_name(spec.name, letter_first=letter_first), spec)
    return by_name


def _base62(text: str, length: int) -> str:
    number = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=24).digest(), "big")
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(digits)
