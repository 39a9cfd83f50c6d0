"""Calls that repeat: the same call with the same arguments, or nothing but looking; the model is told, once a time."""

from __future__ import annotations

from typing import final

from shoal.blueprints import Repetition
from shoal.providers import ToolCall, digest

PRODUCTIVE = frozenset({"write_file", "edit_file", "shell", "context_write", "context_append", "context_delete"})
"""Calls of these that succeed are progress: whatever was counted is forgotten."""
_MOST_KNOWN = 1_024


@final
class Repeats:
    """What a run has called since it last got on.

    Args:
        settings: When a note says that calls repeat.
    """

    __slots__ = ("_calls", "_looks", "_settings", "note")

    def __init__(self, settings: Repetition) -> None:
        self._settings = settings
        self._calls: dict[bytes, int] = {}
        self._looks = 0
        self.note = ""
        """What the model is to be told before its next turn; empty for nothing."""

    def ended(self, call: ToolCall, *, is_error: bool, only_reads: bool) -> None:
        """Take note of a call that came to its end.

        Args:
            call: The call.
            is_error: It failed.
            only_reads: Its tool only looks at things.
        """
        if not self._settings.enabled:
            return
        if call.name in PRODUCTIVE and not is_error:
            self._calls, self._looks = {}, 0
            return
        key = digest(call.name.encode(), call.arguments.digest)
        count = self._calls[key] = self._calls.pop(key, 0) + 1
        if len(self._calls) > _MOST_KNOWN:
            del self._calls[next(iter(self._calls))]
        self._looks = self._looks + 1 if only_reads else 0
        if count % self._settings.max_repeat_calls == 0:
            self.note = (
                f"`{call.name}` was called {count} times with the same arguments. Its result is in front of you; "
                "use it, or try something else."
            )
        elif self._looks and self._looks % self._settings.max_readonly_streak == 0:
            self.note = (
                f"The last {self._looks} calls only looked at something. Write down what you know, and act on it."
            )

    def said(self) -> None:
        """Take note that the model was told."""
        self.note = ""

    def dump(self) -> object:
        """Return all of it as plain values."""
        return dict(self._calls), self._looks, self.note
