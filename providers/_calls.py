"""Tool calls, put together from the fragments in which Chat Completions servers stream them.

The documented form numbers each call. Servers also leave the number out, send it as null, number every call 0, leave
ids out, use one id twice, or send a whole call at once. What starts a new call is decided from all that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, final

import msgspec

from shoal.providers._legality import EMPTY_OBJECT, arguments
from shoal.providers._text import Text
from shoal.providers._values import Completed, Request, ToolCall

_RANDOM = 24
"""From so many characters on an id is taken to be random, as vendors' own are, and not looked for in the transcript."""


@final
class FunctionDelta(msgspec.Struct):
    """The name, and a piece of the arguments; an object where a server sends them decoded."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


@final
class CallDelta(msgspec.Struct):
    """One fragment of one call."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


@final
class _Call:
    """A call in the making."""

    __slots__ = ("call_id", "name", "pieces")

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.pieces: list[str] = []

    @property
    def source(self) -> str:
        return "".join(self.pieces)

    def is_whole(self) -> bool:
        """Say whether the arguments are a whole object already."""
        # Looked at only where an object may end: some servers repeat the name in front of every piece.
        if not self.pieces or self.pieces[-1].rstrip()[-1:] != "}":
            return False
        text = Text.of(self.source)
        return arguments(text) is text


@final
class CallAssembler:
    """Puts the calls of one reply together, in the order in which they first appeared."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def __repr__(self) -> str:
        return f"<CallAssembler of {[call.name for call in self._calls]!r}>"

    def add(self, delta: CallDelta) -> None:
        """Take one fragment."""
        function = delta.function or FunctionDelta()
        newest = self._calls[-1] if self._calls else None
        last = newest if delta.index is None else self._by_index.get(delta.index)
        call = self._start(delta.index) if last is None or _starts_anew(last, delta.id, function) else last
        call.call_id = call.call_id or delta.id or ""
        call.name = call.name or function.name or ""
        if isinstance(function.arguments, dict):
            call.pieces.append(msgspec.json.encode(function.arguments).decode())
        elif function.arguments:
            call.pieces.append(function.arguments)

    def _start(self, index: int | None) -> _Call:
        call = _Call()
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls; ids that are missing or used twice are replaced, empty arguments are an empty object."""
        ids = distinct([call.call_id for call in self._calls])
        return tuple([tool_call(id_, call.name, call.source) for id_, call in zip(ids, self._calls, strict=True)])


def tool_call(call_id: str, name: str, source: str) -> ToolCall:
    """Return a call with the arguments as the model wrote them; nothing at all is an empty object."""
    return ToolCall(call_id, name, Text.of(source) if source.strip() else EMPTY_OBJECT)


def distinct(ids: Sequence[str]) -> list[str]:
    """Return *ids*; those that are empty or come again are replaced."""
    made: dict[str, None] = {}
    for position, wanted in enumerate(ids):
        call_id = wanted if wanted and wanted not in made else f"call_{position}"
        while call_id in made:
            call_id += "_"
        made[call_id] = None
    return list(made)


def told_apart(completed: Completed, request: Request) -> Completed:
    """Return *completed*, the answer to *request*, with calls of which none has the id of one in the transcript.

    Some servers count anew in each turn, and where ids are left out so do we; a vendor that gets two calls of one id
    refuses them.
    """
    calls = completed.reply.calls
    if all(len(call.call_id) >= _RANDOM for call in calls):
        return completed
    said = [call for segment in request.messages for message in segment.messages for call in message.calls]
    used = {call.vendor_id or call.call_id for call in said}
    if used.isdisjoint([call.call_id for call in calls]):
        return completed
    taken = used | {call.call_id for call in calls}

    def renamed(call: ToolCall) -> ToolCall:
        # No two calls of a reply have one id (`distinct`), so none comes to the name of another here.
        fresh = next(id_ for n in count(len(said)) if (id_ := f"{call.call_id}_{n}") not in taken)
        return msgspec.structs.replace(call, call_id=fresh)

    told = tuple([renamed(call) if call.call_id in used else call for call in calls])
    return msgspec.structs.replace(completed, reply=msgspec.structs.replace(completed.reply, calls=told))


def _starts_anew(last: _Call, call_id: str | None, function: FunctionDelta) -> bool:
    """Say whether a fragment that could go on with *last* is the start of another call instead."""
    if call_id and last.call_id and call_id != last.call_id:
        return True
    if call_id and call_id == last.call_id:
        return False
    # Without ids: a name stands at the start of a call, and some servers repeat it in each fragment.
    return bool(function.name and last.name) and (function.name != last.name or last.is_whole())
