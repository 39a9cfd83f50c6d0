"""The runtime's own words between those of people, models and tools: nudges, stage prompts, notes."""

from __future__ import annotations

from shoal.providers import OWN_WORD, Message, Text
from shoal.runtime.context import Entry

EDITED = f"{OWN_WORD}A person edited this text."


def own_word(text: str) -> Message:
    """Return *text* as a message of the runtime's own."""
    return Message("user", (Text.of(f"{OWN_WORD}{text}"),))


def is_own_word(entry: Entry) -> bool:
    """Say whether nobody but the runtime said *entry*; a file and a tool's result are not, whatever they begin with."""
    return (entry.kind == "user_message" and entry.text.startswith(OWN_WORD)) or entry.text == EDITED
