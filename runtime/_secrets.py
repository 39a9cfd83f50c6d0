"""Values that nobody is to read again, struck out of what comes into a run before an event is made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import final

import msgspec

from shoal.errors import ConfigInvalid
from shoal.providers import Completed, Reply, Text, ToolCall
from shoal.runtime._seeds import Resolved
from shoal.runtime.tools import ToolResult

LEAST_SECRET_CHARS = 8
"""A shorter value would strike out ordinary words."""
STRUCK = "[redacted]"
"""What stands in the place of a secret."""


@final
class Secrets:
    """Strikes secrets out of what tools, people, seeds and models say.

    Args:
        values: The secrets, by the names under which people know them.

    Raises:
        ConfigInvalid: One is so short that prompts would not survive without it.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        values = values or {}
        for name, value in values.items():
            if len(value) < LEAST_SECRET_CHARS:
                raise ConfigInvalid(
                    f"the secret `{name}` has {len(value)} characters, and striking it out would destroy prompts; "
                    f"use one of {LEAST_SECRET_CHARS} or more, or take the name out"
                )
        plain = set(values.values())
        self._count = len(plain)
        # As they are, and as JSON in JSON says them; the longest first, since one may begin with another.
        bodies = {Text.of(form).body for value in plain for form in (value, json.dumps(value)[1:-1])}
        self._plain = re.compile("|".join(map(re.escape, sorted(plain, key=len, reverse=True)))) if plain else None
        self._bodies = re.compile(b"|".join(map(re.escape, sorted(bodies, key=len, reverse=True)))) if plain else None

    def __bool__(self) -> bool:
        return self._count > 0

    def __repr__(self) -> str:
        return f"<Secrets, {self._count} of them>"

    def strike(self, text: Text) -> Text:
        """Return *text* without secrets: the same object where it has none."""
        if self._bodies is None or self._bodies.search(text.body) is None:
            return text
        return Text(self._bodies.sub(STRUCK.encode(), text.body))

    def strike_plain(self, text: str) -> str:
        """Return *text* without secrets."""
        return text if self._plain is None else self._plain.sub(STRUCK, text)

    def in_result(self, result: ToolResult) -> ToolResult:
        """Return what a tool gave without secrets; the bytes behind its text stay as they are."""
        if not self:
            return result
        return msgspec.structs.replace(result, text=self.strike(result.text), note=self.strike_plain(result.note))

    def in_seed(self, resolved: Resolved) -> Resolved:
        """Return what a seed gave without secrets; the bytes behind its texts stay as they are."""
        if not self:
            return resolved
        blocks = tuple([msgspec.structs.replace(block, text=self.strike(block.text)) for block in resolved.blocks])
        notes = tuple([self.strike_plain(note) for note in resolved.notes])
        return msgspec.structs.replace(resolved, blocks=blocks, notes=notes)

    def in_reply(self, completed: Completed) -> Completed:
        """Return a reply without secrets; what its vendor wants back goes with one that held some."""
        if not self:
            return completed
        reply = completed.reply
        struck = Reply(
            self.strike(reply.text),
            tuple([_with(call, self.strike(call.arguments)) for call in reply.calls]),
            self.strike_plain(reply.reasoning),
            reply.state,
            reply.parts,
        )
        if struck == reply:
            return completed
        return msgspec.structs.replace(completed, reply=msgspec.structs.replace(struck, state=None))


def _with(call: ToolCall, arguments: Text) -> ToolCall:
    return call if arguments is call.arguments else msgspec.structs.replace(call, arguments=arguments)
