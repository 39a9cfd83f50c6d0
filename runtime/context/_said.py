"""What the scripts of custom regions say, read: a decision on a write, entries that go, a rendering.

Whatever a script returns is read to the letter of its contract. What is none of it counts as not said, and whoever
asked is told so once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, final

import msgspec

from shoal.providers import Message, Text, ToolCall
from shoal.runtime.context._calls import ScriptCall
from shoal.runtime.context._cut import materialise
from shoal.runtime.context._entry import Draft, estimate
from shoal.runtime.context._pairs import paired


@final
class Misread(Exception):
    """A script returned what its contract has no meaning for; the message says what."""


# --- on_write


@final
class Wrote(msgspec.Struct, frozen=True):
    """What `on_write` makes of an entry.

    Args:
        content: The text that takes the place of the entry's; `None` keeps it.
        key: The key that takes the place of the entry's; `None` keeps it.
        refused: The entry is not to be stored.
        reason: Why; empty where the script does not say.
    """

    content: Text | None = None
    key: str | None = None
    refused: bool = False
    reason: str = ""

    def on(self, draft: Draft) -> Draft:
        """Return *draft* as it is to be stored; its kind stays."""
        if self.content is None:
            return draft if self.key is None else msgspec.structs.replace(draft, key=self.key)
        message = materialise(draft.message, 0, self.content, draft.message.blobs)
        tokens = estimate(message)
        if draft.parts:  # they cost what they cost
            tokens += draft.tokens - estimate(draft.message)
        return msgspec.structs.replace(
            draft,
            message=message,
            tokens=tokens,
            key=draft.key if self.key is None else self.key,
            cut=0 if draft.source else None,
            text=self.content if draft.source else None,
        )


ACCEPTED = Wrote()


def read_write(value: object) -> Wrote:
    """Return what `on_write` decided with *value*.

    Raises:
        Misread: It is no decision; the entry is accepted unchanged.
    """
    match value:
        case None | True:
            return ACCEPTED
        case False:
            return Wrote(refused=True)
        case str():
            return Wrote(Text.of(value))
        case dict():
            return _decision(cast("dict[str, object]", value))
        case _:
            raise Misread(f"`on_write` returned {_shown(value)}; return nothing, a decision or a text")


def _decision(made: Mapping[str, object]) -> Wrote:
    match made.get("action"):
        case "accept":
            return Wrote(_text(made), _key(made))
        case "reject":
            return Wrote(refused=True, reason=_reason(made))
        case action:
            raise Misread(f"`on_write` has no action {_shown(action)}; return `accept` or `reject`")


def _text(made: Mapping[str, object]) -> Text | None:
    value = made.get("content")
    if value is not None and not isinstance(value, str):
        raise Misread(f"`content` of an accepted entry is {_shown(value)}; make it a text")
    return None if value is None else Text.of(value)


def _key(made: Mapping[str, object]) -> str | None:
    value = made.get("key")
    if value is not None and not (isinstance(value, str) and value.strip()):
        raise Misread(f"`key` of an accepted entry is {_shown(value)}; make it a text")
    return value


def _reason(made: Mapping[str, object]) -> str:
    reason = made.get("reason")
    return " ".join(reason.split()) if isinstance(reason, str) else ""


# --- on_overflow


def read_overflow(value: object, call: ScriptCall) -> tuple[int, ...]:
    """Return the ids of what goes by the indices *value*, widened to whole groups, oldest first.

    Raises:
        Misread: It is no list of indices of the entries that the script was shown; nothing of it counts.
    """
    if not isinstance(value, list):
        raise Misread(f"`on_overflow` returned {_shown(value)}; return a list of indices of `entries`")
    indices = cast("list[object]", value)
    for index in indices:
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(call.groups):
            raise Misread(
                f"`on_overflow` names the entry {_shown(index)}, and there are {len(call.groups)}, counted from 0"
            )
    chosen = {entry_id for index in cast("list[int]", indices) for entry_id in call.groups[index]}
    return tuple(dict.fromkeys(i for group in call.groups for i in group if i in chosen))


# --- render


@final
class Rendering(msgspec.Struct, frozen=True):
    """What `render` returned.

    Args:
        system: Texts of the system section, in order, each a block of its own.
        messages: Messages, in order; each call has its result and each result its call.
        data: All of it as the journal keeps it.
    """

    system: tuple[Text, ...]
    messages: tuple[Message, ...]
    data: bytes

    @classmethod
    def of(cls, system: Sequence[str], messages: Sequence[Message] = ()) -> Rendering:
        """Return the rendering that shows *system* and *messages*; blank texts are no blocks."""
        texts = tuple(Text.of(text) for text in system if text)
        said = paired(messages)
        return cls(texts, said, _dump(texts, said))

    @property
    def digest(self) -> str:
        """Stands for all of it."""
        return hashlib.sha256(self.data).hexdigest()[:32]


def read_render(value: object) -> Rendering:
    """Return the rendering that *value* is; a call without its result, or a result without its call, is left out.

    Raises:
        Misread: It is none.
    """
    if isinstance(value, str):
        return Rendering.of([value])
    if not isinstance(value, dict):
        raise Misread(f"`render` returned {_shown(value)}; return a text, or `system` and `messages`")
    made = cast("dict[str, object]", value)
    unknown = sorted(set(made) - {"system", "messages"})
    if unknown:
        raise Misread(f"`render` returned the unknown key {unknown[0]!r}; return `system` and `messages`")
    system, messages = made.get("system", ""), made.get("messages", [])
    texts = [system] if isinstance(system, str) else system
    if not _is_list(texts) or not all(isinstance(text, str) for text in cast("list[object]", texts)):
        raise Misread(f"`system` of `render` is {_shown(system)}; make it a text or a list of texts")
    if not _is_list(messages):
        raise Misread(f"`messages` of `render` is {_shown(messages)}; make it a list")
    said = [part for message in cast("list[object]", messages) for part in _messages(message)]
    return Rendering.of(cast("list[str]", texts), said)


_KEYS = frozenset({"role", "content", "tool_calls", "tool_results"})


def _messages(value: object) -> list[Message]:
    """Return the messages that one message of a script is: results stand in front of what is said beside them."""
    if not isinstance(value, dict):
        raise Misread(f"a message of `render` is {_shown(value)}; make it a `role` with its `content`")
    made = cast("dict[str, object]", value)
    role, content = made.get("role"), made.get("content", "")
    unknown = sorted(set(made) - _KEYS)
    if unknown:
        raise Misread(f"a message of `render` has the unknown key {unknown[0]!r}; it has {', '.join(sorted(_KEYS))}")
    if role not in ("user", "assistant"):
        raise Misread(f"a message of `render` has the role {_shown(role)}; make it `user` or `assistant`")
    if not isinstance(content, str):
        raise Misread(f"a message of `render` has the content {_shown(content)}; make it a text")
    calls = tuple(_call(item) for item in _items(made, "tool_calls", "assistant"))
    results = [_result(item) for item in _items(made, "tool_results", "user")]
    if content or calls:
        results.append(Message(role, (Text.of(content),) if content else (), calls))
    return results


def _items(made: Mapping[str, object], name: str, role: str) -> Sequence[Mapping[str, object]]:
    value = made.get(name)
    if not value:
        return ()
    if made["role"] != role:
        raise Misread(f"`{name}` stands in a message whose role is not `{role}`; move it to one that is")
    if not _is_list(value) or not all(isinstance(item, dict) for item in cast("list[object]", value)):
        raise Misread(f"`{name}` of a message is {_shown(value)}; make it a list of tables")
    return cast("list[dict[str, object]]", value)


def _call(item: Mapping[str, object]) -> ToolCall:
    arguments = item.get("arguments", {})
    source = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return ToolCall(_word(item, "id"), _word(item, "name"), Text.of(source))


def _result(item: Mapping[str, object]) -> Message:
    content, failed = item.get("content", ""), item.get("is_error", False)
    if not isinstance(content, str) or not isinstance(failed, bool):
        raise Misread("a tool result of `render` needs a text as `content`, and true or false as `is_error`")
    name = item.get("tool_name", "")
    texts = (Text.of(content),) if content else ()
    return Message(
        "tool",
        texts,
        call_id=_word(item, "tool_call_id"),
        tool_name=name if isinstance(name, str) else "",
        is_error=failed,
    )


def _word(item: Mapping[str, object], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise Misread(f"`{name}` of a tool call or result of `render` is {_shown(value)}; make it a text")
    return value


def _is_list(value: object) -> bool:
    return isinstance(value, list)


_MOST_SHOWN = 60


def _shown(value: object) -> str:
    said = repr(value)
    return said if len(said) <= _MOST_SHOWN else f"{said[: _MOST_SHOWN - 1]}…"


# --- bytes

_Kept = tuple[list[str], list[tuple[Literal["user", "assistant", "tool"], str, list[list[str]], str, str, bool]]]


def _dump(system: Sequence[Text], messages: Sequence[Message]) -> bytes:
    rows: list[Any] = [
        (
            message.role,
            message.text,
            [[call.call_id, call.name, str(call.arguments)] for call in message.calls],
            message.call_id,
            message.tool_name,
            message.is_error,
        )
        for message in messages
    ]
    return msgspec.json.encode(([str(text) for text in system], rows))


def load_rendering(data: bytes) -> Rendering:
    """Return the rendering that the journal keeps as *data*."""
    system, rows = msgspec.json.decode(data, type=_Kept)
    messages = [
        Message(
            role,
            (Text.of(text),) if text else (),
            tuple(ToolCall(call_id, name, Text.of(arguments)) for call_id, name, arguments in calls),
            answered,
            tool,
            failed,
        )
        for role, text, calls, answered, tool, failed in rows
    ]
    return Rendering.of(system, messages)
