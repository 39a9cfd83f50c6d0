"""The built-in tools that read files and list folders; they stay in the working directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, final

import anyio.to_thread
import msgspec

from shoal.providers import EMPTY, Text, sniff
from shoal.runtime._attachment import Attachment
from shoal.runtime._paths import Also, PathRefused, open_inside
from shoal.runtime.tools._listing import Listing, list_folder, shown_name
from shoal.runtime.tools._schema import PATH, object_of
from shoal.runtime.tools._tool import Effects, Tool, ToolContext, ToolResult

_READS = Effects(reads=True)
_MOST_REPLACED = 0.1
_FEW_REPLACED = 8
"""With more characters than this, and more than this share of them, that are not UTF-8 a page counts as no text."""
_HEAD_BYTES = 4096
"""So much of a file says what it is."""
_SMALLEST_PAGE = 4
"""Bytes of the longest character: a page of fewer could be empty, and never end."""


# --- reading


@final
class Page(msgspec.Struct, frozen=True, gc=False):
    """A stretch of a file: its text, where the next one begins (`None` at the end), and how big the file is."""

    text: str
    next_offset: int | None
    size: int
    replaced: int = 0


def read_page(root: Path, path: str, offset: int, most_bytes: int, also: Also | None = None) -> Page:
    """Read the text of *path* from byte *offset* on, at most *most_bytes*; a page ends at the end of a line if it can.

    Args:
        root: The folder that is not left, a real path.
        path: The file, relative to *root* or absolute.
        offset: Where to begin.
        most_bytes: Most bytes to read.
        also: Says what outside *root* may be read all the same; `None` for nothing.

    Raises:
        PathRefused: It cannot be opened, or is binary.
    """
    with os.fdopen(open_inside(root, path, also=also), "rb") as file:
        return _page(file, path, offset, most_bytes)


def _page(file: BinaryIO, path: str, offset: int, most_bytes: int) -> Page:
    size = os.fstat(file.fileno()).st_size
    file.seek(min(offset, size))
    data = file.read(max(most_bytes, _SMALLEST_PAGE) + 1)
    more = len(data) > max(most_bytes, _SMALLEST_PAGE)
    if more:
        data = data[: _page_end(data[:-1])]
    text = data.decode("utf-8", "replace")
    replaced = text.count("\N{REPLACEMENT CHARACTER}") - data.count("\N{REPLACEMENT CHARACTER}".encode())
    if b"\0" in data:
        raise PathRefused("special", f"{path!r} is binary ({size:,} bytes), not text")
    if replaced > max(_FEW_REPLACED, _MOST_REPLACED * len(text)):
        raise PathRefused("special", f"{path!r} is not UTF-8 text ({size:,} bytes)")
    return Page(text, offset + len(data) if more else None, size, replaced)


def read_shown(context: ToolContext, path: str, offset: int, most_bytes: int) -> Page | Attachment:
    """Read a page of *path* as `read_page` does, or all of an image, a recording or a PDF, whatever it is called.

    Raises:
        PathRefused: It cannot be opened, is binary, or too large to be attached.
    """
    with os.fdopen(open_inside(context.workdir, path, also=context.also), "rb") as file:
        if offset or not is_shown(sniff(file.read(_HEAD_BYTES))):
            return _page(file, path, offset, most_bytes)
        return _whole(file, path, context.part_bytes)


def is_shown(mime: str) -> bool:
    """Say whether a file of the type *mime* is looked at, or listened to, and not read as text."""
    return mime.startswith(("image/", "audio/", "video/")) or mime == "application/pdf"


def read_attachment(root: Path, path: str, most_bytes: int, also: Also | None = None) -> Attachment:
    """Read all of the file at *path*, whatever its bytes are.

    Args:
        root: The folder that is not left, a real path.
        path: The file, relative to *root* or absolute.
        most_bytes: Largest file that is taken.
        also: Says what outside *root* may be read all the same; `None` for nothing.

    Raises:
        PathRefused: It cannot be opened, or is larger.
    """
    with os.fdopen(open_inside(root, path, also=also), "rb") as file:
        return _whole(file, path, most_bytes)


def _whole(file: BinaryIO, path: str, most_bytes: int) -> Attachment:
    file.seek(0)
    data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        size = os.fstat(file.fileno()).st_size
        raise PathRefused(
            "special", f"{path!r} holds {size:,} bytes and at most {most_bytes:,} are attached; raise `part_bytes`"
        )
    return Attachment(data, shown_name(path) or path)


def _page_end(data: bytes) -> int:
    """Return where to end a page: behind the last line of *data*, or at least between two characters."""
    line = data.rfind(b"\n") + 1
    if line > len(data) // 2:
        return line
    for back in range(1, _SMALLEST_PAGE):
        first = data[-back]
        if first & 0xC0 != 0x80:  # the first byte of the last character, which says how long that is
            length = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            return len(data) - back if length > back else len(data)
    return len(data)


async def _read_file(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    path, offset = str(args["path"]), int(args.get("offset", 0))
    most = min(context.read_bytes, int(args.get("limit") or context.read_bytes))
    try:
        page = await anyio.to_thread.run_sync(read_shown, context, path, offset, most, limiter=context.threads)
    except PathRefused as refused:
        return ToolResult.error(_advice(context, path, refused))
    if isinstance(page, Attachment):
        return ToolResult(EMPTY, parts=(page,))
    return ToolResult(Text.of(page.text or _nothing(page, offset)), _note(page, offset))


def _nothing(page: Page, offset: int) -> str:
    return "(the file is empty)" if not page.size else f"(nothing at offset {offset}: the file has {page.size} bytes)"


def _note(page: Page, offset: int) -> str:
    notes: list[str] = []
    if page.replaced:
        notes.append(f"[characters that are not UTF-8 and were replaced: {page.replaced}]")
    if page.next_offset is not None:
        notes.append(f"[bytes {offset} to {page.next_offset} of {page.size}]")
        notes.append(f"[continue with offset={page.next_offset}]")
    return "\n".join(notes)


def _advice(context: ToolContext, path: str, refused: PathRefused) -> str:
    where = context.region(path) if refused.why == "missing" else None
    if where is not None:
        return f"{path!r} is a region, not a file. {where}"
    if refused.why == "directory":
        return f"{refused}; list it with `list_dir`"
    if refused.why == "file":
        return f"{refused}; read it with `read_file`"
    return str(refused)


async def _read_files(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    """Read each file under its path; one that cannot be read says so there, and fails the call if none can."""
    texts: list[str] = []
    parts: list[Attachment] = []
    notes: list[str] = []
    left: int = context.read_bytes
    room = context.part_bytes
    offset = int(args.get("offset", 0))
    any_read = False
    for path in map(str, args["paths"]):
        name = shown_name(path) or path
        if left <= 0:
            notes.append(f"[{name}: not read, the cap of {context.read_bytes:,} bytes is reached]")
            continue
        try:
            page: Page | Attachment = await anyio.to_thread.run_sync(
                read_shown, replace(context, part_bytes=room), path, offset, left, limiter=context.threads
            )
        except PathRefused as refused:
            texts.append(f"--- {name} ---\n[error] {_advice(context, path, refused)}")
            continue
        any_read = True
        if isinstance(page, Attachment):
            parts.append(page)
            room -= len(page.data)  # together they are no more than one may be
            continue
        left -= len(page.text.encode())
        texts.append(f"--- {name} ---\n{page.text or _nothing(page, offset)}")
        note = _note(page, offset)
        notes.extend(f"[{name}] {line}" for line in note.splitlines())
    said = Text.of("\n\n".join(texts))
    return ToolResult(said, "\n".join(notes), is_error=not any_read, parts=tuple(parts))


# --- listing


async def _list_dir(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    path = str(args.get("path", "."))
    recursive = bool(args.get("recursive", False))

    def listing() -> Listing:
        return list_folder(
            context.workdir,
            path,
            recursive=recursive,
            most=context.list_entries,
            hidden=context.hidden_dir,
            also=context.also,
        )

    try:
        found = await anyio.to_thread.run_sync(listing, limiter=context.threads)
    except PathRefused as refused:
        return ToolResult.error(_advice(context, path, refused))
    notes: list[str] = []
    if found.left_out:
        notes.append(f"[{found.left_out} more are left out; list a folder below]")
    if found.not_text:
        notes.append(f"[{found.not_text} names are not UTF-8 and cannot be given to a tool]")
    if found.unreadable:
        notes.append(f"[{found.unreadable} folders cannot be read]")
    # A blank line ends the names: what reads the listing line by line stops there.
    if not found.names:
        notes.append("[there are no files]" if recursive else "[the folder is empty]")
    return ToolResult.of("\n\n".join(["\n".join(found.names), *filter(None, ["\n".join(notes)])]))


# --- what models see

_OFFSET = {"type": "integer", "minimum": 0, "default": 0, "description": "Byte to start at."}


FILE_TOOLS = (
    Tool(
        "read_file",
        "Read a file. A long text comes in pages; the result says where to continue. An image, a recording or a PDF is "
        "attached whole.",
        object_of(
            {
                "path": PATH,
                "offset": _OFFSET,
                "limit": {"type": "integer", "minimum": 1, "description": "Most bytes to read."},
            },
            "path",
        ),
        _read_file,
        effects=_READS,
    ),
    Tool(
        "read_files",
        "Read several files at once, each text under its path; images, recordings and PDFs are attached.",
        object_of({"paths": {"type": "array", "items": PATH, "minItems": 1}, "offset": _OFFSET}, "paths"),
        _read_files,
        effects=_READS,
    ),
    Tool(
        "list_dir",
        "List a folder, one name a line; folders end in `/`. Recursively, it lists all files below, without hidden "
        "and ignored ones. A name with control characters is quoted as a JSON string.",
        object_of(
            {
                "path": {**PATH, "default": "."},
                "recursive": {"type": "boolean", "default": False, "description": "List all files below it."},
            }
        ),
        _list_dir,
        effects=_READS,
    ),
)
"""Tools that look at files."""
