"""The built-in tools on what agents remember from run to run; a run whose user named no memory is offered none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shoal.runtime.tools._notes import Memory, Note, NoteRefused
from shoal.runtime.tools._schema import object_of, text_of
from shoal.runtime.tools._tool import Effects, Tool, ToolContext, ToolResult

_MOST_FOUND = 10
_MOST_LISTED = 500
_MOST_LINES = 3
_LINE_CHARS = 200
_READS = Effects(reads=True)


def _memory(context: ToolContext) -> Memory:
    if context.memory is None:
        raise NoteRefused("there is no memory here")
    return context.memory


async def _search(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    query = str(args["query"])
    found = await _memory(context).recall(query)
    if not query.strip() or not found:
        return ToolResult.of(f"Nothing in memory has to do with {query!r}.")
    words = [word.casefold() for word in re.findall(r"\w{2,}", query)]
    shown = [f"### {note.name}\n{_lines(note, words)}" for note in found[:_MOST_FOUND]]
    left = len(found) - len(shown)
    return ToolResult.of("\n\n".join([*shown, *([f"({left} more notes)"] if left else [])]))


def _lines(note: Note, words: list[str]) -> str:
    """Return the first lines of *note* that hold one of *words*, or else its first line."""
    lines = [line.strip() for line in note.text.splitlines() if line.strip()]
    hits = [line for line in lines if any(word in line.casefold() for word in words)] or lines[:1]
    return "\n".join(line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}…" for line in hits[:_MOST_LINES])


async def _read(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    name = str(args["name"])
    notes = await _memory(context).recall("")
    found = next((note for note in notes if note.name == name), None)
    if found is None:
        return ToolResult.error(f"there is no note {name!r}; `memory_list` shows their names")
    data = found.text.encode("utf-8", "replace")
    if len(data) <= context.read_bytes:
        return ToolResult.of(found.text)
    kept = data[: context.read_bytes].decode("utf-8", "ignore")
    return ToolResult.of(kept, note=f"[the first {context.read_bytes:,} of {len(data):,} bytes]")


async def _list(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    notes = await _memory(context).recall("")
    if not notes:
        return ToolResult.of("Memory holds nothing yet.")
    lines = [f"{note.name} ({len(note.text):,} characters)" for note in notes[:_MOST_LISTED]]
    left = len(notes) - len(lines)
    return ToolResult.of("\n".join([*lines, *([f"({left} more)"] if left else [])]))


async def _write(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    name, content, append = str(args["name"]), str(args["content"]), bool(args.get("append", False))
    await _memory(context).remember(name, content, append=append)
    return ToolResult.of(f"{name}: {'added to' if append else 'written'}")


def _told(call: Any) -> Any:
    """Return *call* with what a memory refuses as an error that the model reads."""

    async def told(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
        try:
            result: ToolResult = await call(context, args)
        except NoteRefused as refused:
            return ToolResult.error(str(refused))
        return result

    return told


_NOTE = text_of("Name of the note.")

MEMORY_TOOLS = (
    Tool(
        "memory_search",
        "Search what is remembered from earlier runs; shows the notes that have to do with the words.",
        object_of({"query": text_of("Words to look for.")}, "query"),
        _told(_search),
        effects=_READS,
        deferred=True,
    ),
    Tool(
        "memory_read",
        "Show one note of memory whole.",
        object_of({"name": _NOTE}, "name"),
        _told(_read),
        effects=_READS,
        deferred=True,
    ),
    Tool(
        "memory_write",
        "Keep a note for later runs, in place of what the note held, or behind that.",
        object_of(
            {
                "name": _NOTE,
                "content": text_of("What to remember, as Markdown."),
                "append": {"type": "boolean", "description": "Add it behind what the note holds."},
            },
            "name",
            "content",
        ),
        _told(_write),
        effects=Effects(writes=True),
        deferred=True,
    ),
    Tool(
        "memory_list",
        "List the notes of memory.",
        object_of({}),
        _told(_list),
        effects=_READS,
        deferred=True,
    ),
)
"""Tools on memory."""

MEMORY = frozenset(tool.name for tool in MEMORY_TOOLS)
