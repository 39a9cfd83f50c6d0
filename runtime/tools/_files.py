"""The built-in tools that read files and list folders; they stay in the working directory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import anyio.to_thread
import msgspec
import pathspec

from shoal.providers import Text
from shoal.runtime._paths import PathRefused, open_inside
from shoal.runtime.tools._tool import Effects, Tool, ToolContext, ToolResult

_READS = Effects(reads=True)
_MOST_REPLACED = 0.1
"""Above this share of characters that are not UTF-8 a file counts as binary."""


# --- reading


@final
class Page(msgspec.Struct, frozen=True, gc=False):
    """A stretch of a file: its text, where the next one begins (`None` at the end), and how big the file is."""

    text: str
    next_offset: int | None
    size: int
    replaced: int = 0


def read_page(root: Path, path: str, offset: int, most_bytes: int) -> Page:
    """Read the text of *path* from byte *offset* on, at most *most_bytes*; a page ends at the end of a line if it can.

    Raises:
        PathRefused: It cannot be opened, or is binary.
    """
    descriptor = open_inside(root, path)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        size = os.fstat(descriptor).st_size
        file.seek(offset)
        data = file.read(most_bytes + 1)
    more = len(data) > most_bytes
    data = data[:most_bytes]
    if more:
        data = data[: _page_end(data)]
    text = data.decode("utf-8", "replace")
    replaced = text.count("\N{REPLACEMENT CHARACTER}") - data.count("\N{REPLACEMENT CHARACTER}".encode())
    if b"\0" in data or replaced > _MOST_REPLACED * len(text):
        raise PathRefused("special", f"{path!r} is binary ({size:,} bytes), not text")
    return Page(text, offset + len(data) if more else None, size, replaced)


def _page_end(data: bytes) -> int:
    """Return where to end a page: behind the last line of *data*, or at least between two characters."""
    line = data.rfind(b"\n") + 1
    if line > len(data) // 2:
        return line
    end = len(data)
    # Step back over a character that was cut: continuation bytes, then its first byte.
    while end > len(data) - 4 and data[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if data[end - 1] >= 0xC0 else len(data)


async def _read_file(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    path, offset = str(args["path"]), int(args.get("offset", 0))
    most = min(context.read_bytes, int(args.get("limit") or context.read_bytes))
    try:
        page = await anyio.to_thread.run_sync(read_page, context.workdir, path, offset, most, limiter=context.threads)
    except PathRefused as refused:
        return ToolResult.error(_advice(context, path, refused))
    return ToolResult(Text.of(page.text or _nothing(page, offset)), _note(page, offset, args))


def _nothing(page: Page, offset: int) -> str:
    return "(the file is empty)" if not page.size else f"(nothing at offset {offset}: the file has {page.size} bytes)"


def _note(page: Page, offset: int, args: Mapping[str, Any]) -> str:
    notes: list[str] = []
    if page.replaced:
        notes.append(f"[{page.replaced} characters are not UTF-8 and were replaced]")
    if page.next_offset is not None:
        notes.append(f"[bytes {offset} to {page.next_offset} of {page.size}]")
        notes.append(f"[continue with offset={page.next_offset}]")
    return "\n".join(notes)


def _advice(context: ToolContext, path: str, refused: PathRefused) -> str:
    if refused.why == "missing" and path in context.regions:
        return f'{path!r} is a region, not a file: its text stands in this prompt under "## {path}"'
    if refused.why == "directory":
        return f"{refused}; list it with `list_dir`"
    return str(refused)


async def _read_files(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    texts: list[str] = []
    notes: list[str] = []
    left = context.read_bytes
    offset = int(args.get("offset", 0))
    for path in args["paths"]:
        if left <= 0:
            notes.append(f"[{path}: not read, the cap of {context.read_bytes:,} bytes is reached]")
            continue
        try:
            page = await anyio.to_thread.run_sync(
                read_page, context.workdir, path, offset, left, limiter=context.threads
            )
        except PathRefused as refused:
            texts.append(f"--- {path} ---\n[error] {_advice(context, path, refused)}")
            continue
        left -= len(page.text.encode())
        texts.append(f"--- {path} ---\n{page.text or _nothing(page, offset)}")
        note = _note(page, offset, args)
        notes.extend(f"[{path}] {line}" for line in note.splitlines())
    return ToolResult.of("\n\n".join(texts), note="\n".join(notes))


# --- listing


_PLAIN = re.compile(r"^[^\x00-\x1f\x7f\"\\][^\x00-\x1f\x7f\\]*$")


def shown_name(name: str) -> str | None:
    """Return *name* as a listing shows it, quoted as JSON where it has control characters; `None` if it is no text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return None
    return name if _PLAIN.match(name) else json.dumps(name, ensure_ascii=False)


@final
class Listing(msgspec.Struct, frozen=True, gc=False):
    """What a folder holds: names in sorted order, how many were left out for the cap, and how many are no text."""

    names: tuple[str, ...]
    left_out: int = 0
    not_text: int = 0


def list_folder(root: Path, path: str, *, recursive: bool, most: int, hidden: Path | None) -> Listing:
    """List *path*. Recursively, only files are listed, and hidden and ignored ones are left out.

    Raises:
        PathRefused: It cannot be opened, or is no folder.
    """
    descriptor = open_inside(root, path, directory=True)
    try:
        if recursive:
            found = sorted(_files_below(root, path, descriptor, hidden))
        else:
            with os.scandir(descriptor) as entries:
                found = sorted(
                    f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in entries
                )
    finally:
        os.close(descriptor)
    shown = [name for name in map(shown_name, found) if name is not None]
    return Listing(tuple(shown[:most]), max(0, len(shown) - most), len(found) - len(shown))


def _files_below(root: Path, path: str, descriptor: int, hidden: Path | None) -> Iterator[str]:
    top = (root / path).resolve()
    base = Path(path)
    rules: dict[Path, pathspec.GitIgnoreSpec] = {}
    # By descriptor: a folder that is swapped for a link while we walk is not followed.
    for folder, folders, files, handle in os.fwalk(".", dir_fd=descriptor, follow_symlinks=False):
        here = (top / folder).resolve()
        if ".gitignore" in files:
            rules[here] = _ignore_rules(handle)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and here / name != hidden and not _ignored(rules, here, name + "/")
        )
        for name in files:
            if name.startswith(".") or _ignored(rules, here, name):
                continue
            if not (here / name).is_symlink() or _links_inside(root, here / name):
                yield (base / folder / name).as_posix()


def _ignore_rules(folder: int) -> pathspec.GitIgnoreSpec:
    handle = os.open(".gitignore", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(handle, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        return pathspec.GitIgnoreSpec.from_lines(file.read(1 << 20).decode("utf-8", "replace").splitlines())


def _ignored(rules: Mapping[Path, pathspec.GitIgnoreSpec], folder: Path, name: str) -> bool:
    """Say whether the nearest rule that has an opinion of *folder*/*name* ignores it."""
    for place in (folder, *folder.parents):
        spec = rules.get(place)
        if spec is not None:
            verdict = spec.check_file(
                (folder / name).relative_to(place).as_posix() + ("/" if name.endswith("/") else "")
            ).include
            if verdict is not None:
                return verdict
    return False


def _links_inside(root: Path, link: Path) -> bool:
    real = Path(os.path.realpath(link))
    return root in real.parents and real.is_file()


async def _list_dir(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    path = str(args.get("path", "."))
    recursive = bool(args.get("recursive", False))

    def listing() -> Listing:
        return list_folder(
            context.workdir, path, recursive=recursive, most=context.list_entries, hidden=context.hidden_dir
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
    # A blank line ends the names: what reads the listing line by line stops there.
    if not found.names:
        notes.append("[there are no files]" if recursive else "[the folder is empty]")
    return ToolResult.of("\n\n".join(["\n".join(found.names), *filter(None, ["\n".join(notes)])]))


# --- what models see

_PATH = {"type": "string", "description": "Path relative to the working directory."}
_OFFSET = {"type": "integer", "minimum": 0, "default": 0, "description": "Byte to start at."}


def _object(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


FILE_TOOLS = (
    Tool(
        "read_file",
        "Read a text file. A long file comes in pages; the result says where to continue.",
        _object(
            {
                "path": _PATH,
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
        "Read several text files at once, each under its path.",
        _object({"paths": {"type": "array", "items": _PATH, "minItems": 1}, "offset": _OFFSET}, "paths"),
        _read_files,
        effects=_READS,
    ),
    Tool(
        "list_dir",
        "List a folder, one name a line; folders end in `/`. Recursively, it lists all files below, without hidden "
        "and ignored ones. A name with control characters is quoted as a JSON string.",
        _object(
            {
                "path": {**_PATH, "default": "."},
                "recursive": {"type": "boolean", "default": False, "description": "List all files below it."},
            }
        ),
        _list_dir,
        effects=_READS,
    ),
)
"""Tools that look at files."""
