"""TOML 1.1 with the place of every key and value.

tomli parses; no parser gives the places of keys, so a scanner goes over the accepted text a second time. It checks
nothing (tomli has) and keeps its own stack, so that nesting costs no recursion.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias, cast, final

import tomli

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands in a document: names of tables and keys, and indexes into arrays from 0."""

At: TypeAlias = Literal["key", "value"]

_SKIP = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")
_BLANK = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^"\\]+|\\.|"(?!""))*"""(?:""?)?'
    r"|'''(?:[^']+|'(?!''))*'''(?:''?)?"
    r'|"(?:[^"\\]+|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)
# A date and its time may stand apart by one space; nothing else in a plain value has one.
_PLAIN = re.compile(r"[^\s,\]}#]+(?: [0-9][^\s,\]}#]*)?")
_TWICE = ("Cannot overwrite", "Cannot declare", "Duplicate", "Cannot redefine", "Cannot mutate")


class Spot(NamedTuple):
    """Offsets of a key and of its value; the same for an array's element and for a table with a header."""

    key: int
    value: int


class Syntax(NamedTuple):
    """Why a text is no TOML document. *line* and *column* count from 1."""

    id: str
    line: int
    column: int
    message: str


@final
class Document:
    """A parsed text: its *data*, and where each part of it stands."""

    __slots__ = ("_lines", "data", "spots")

    def __init__(self, text: str, data: dict[str, object], spots: dict[Path, Spot]) -> None:
        self.data = data
        self.spots = spots
        self._lines = line_starts(text)

    def place(self, path: Path, at: At = "value") -> tuple[int, int]:
        """Return line and column, both from 1, of *path* or, where that is not written, of what encloses it."""
        spot = self.spots.get(path)
        while spot is None and path:
            path, at = path[:-1], "key"
            spot = self.spots.get(path)
        return (1, 1) if spot is None else position(self._lines, getattr(spot, at))


def parse(text: str) -> Document | Syntax:
    """Return *text* as a document, or why it is none."""
    # Both readers see the same text; a byte order mark and carriage returns move no column of what is left.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        data = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        return _syntax(text, error)
    except RecursionError:
        return Syntax("toml-syntax", 1, 1, "tables or arrays are nested too deep; write them flatter")
    except ValueError:
        # Python refuses to read an integer of thousands of digits, and so tomli reports no place.
        return Syntax("toml-syntax", 1, 1, "a number has thousands of digits; TOML integers have 64 bits")
    return Document(text, data, _Scanner(text).scan().spots)


def line_starts(text: str) -> list[int]:
    """Return the offset at which each line of *text* starts."""
    return [0, *(match.end() for match in re.finditer("\n", text))]


def position(starts: list[int], offset: int) -> tuple[int, int]:
    """Return line and column, both from 1, of *offset* in a text whose lines begin at *starts*."""
    line = bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1


def _syntax(text: str, error: tomli.TOMLDecodeError) -> Syntax:
    """Return what *error* says; of two equal keys the second is named, since tomli points behind its value."""
    if not error.msg.startswith(_TWICE):
        return Syntax("toml-syntax", error.lineno, error.colno, f"this is no TOML: {error.msg}")
    starts = line_starts(text)
    partial = _Scanner(text[: error.pos])
    with suppress(IndexError):  # The text was cut inside the statement; its key has been seen.
        partial.scan()
    path, offset = partial.last
    name = ".".join(str(part) for part in path if isinstance(part, str))
    first = partial.spots[path].key
    if first == offset:
        message = f"`{name}` adds to a table that is complete already; write all of that table in one place"
    else:
        message = (
            f"`{name}` is written a second time; the first is on line {position(starts, first)[0]}; keep one of them"
        )
    return Syntax("duplicate-key", *position(starts, offset), message)


@final
class _Scanner:
    """Goes over a document once and notes where each key and value stands.

    *last* is the key that was read last. A text that ends too early raises `IndexError`.
    """

    __slots__ = ("_counts", "_implied", "_text", "last", "spots")

    def __init__(self, text: str) -> None:
        self._text = text
        self._counts: dict[Path, int] = {}
        self._implied: set[Path] = set()
        self.spots: dict[Path, Spot] = {}
        self.last: tuple[Path, int] = ((), 0)

    def scan(self) -> _Scanner:
        """Read to the end of the text."""
        text = self._text
        header: Path = ()
        at = _end(_SKIP, text, 0)
        while at < len(text):
            if text[at] == "[":
                at, header = self._header(at)
            else:
                at = self._pair(at, header)
            at = _end(_SKIP, text, at)
        return self

    def _header(self, at: int) -> tuple[int, Path]:
        """Read the table header at *at*; return where it ends and the path of what follows."""
        is_array = self._text[at + 1] == "["
        at = _end(_BLANK, self._text, at + (2 if is_array else 1))
        at, parts = self._key(at)
        path: Path = ()
        for part, offset in parts[:-1]:
            path = (*path, part)
            self._imply(path, offset)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        part, offset = parts[-1]
        path = (*path, part)
        self.last = path, offset
        if path in self._implied or path not in self.spots:
            self._implied.discard(path)
            self.spots[path] = Spot(offset, offset)
        if is_array:
            index = self._counts.get(path, 0)
            self._counts[path] = index + 1
            path = (*path, index)
            self.spots[path] = Spot(offset, offset)
        return at + (2 if is_array else 1), path

    def _pair(self, at: int, table: Path) -> int:
        """Read `key = value` at *at* inside *table*, and all that the value holds; return where it ends."""
        text = self._text
        at, path = self._name(at, table)
        # One frame for each open bracket: what it belongs to, and the next index of an array.
        open_: list[tuple[Path, int | None]] = []
        while True:
            at = self._value(at, path, open_)
            while open_:
                at = _end(_SKIP, text, at)
                if text[at] == ",":
                    at = _end(_SKIP, text, at + 1)
                if text[at] not in "]}":
                    break
                open_.pop()
                at += 1
            if not open_:
                return at
            owner, index = open_[-1]
            if index is None:
                at, path = self._name(at, owner)
            else:
                open_[-1] = owner, index + 1
                path = (*owner, index)
                self.spots[path] = Spot(at, at)

    def _value(self, at: int, path: Path, open_: list[tuple[Path, int | None]]) -> int:
        """Note that the value of *path* is at *at*; return where it ends, or where its first element may begin."""
        text = self._text
        self.spots[path] = Spot(self.spots[path].key, at)
        if text[at] in "[{":
            open_.append((path, 0 if text[at] == "[" else None))
            return at + 1
        return _end(_STRING if text[at] in "\"'" else _PLAIN, text, at)

    def _name(self, at: int, table: Path) -> tuple[int, Path]:
        """Read a key and its equals sign; return where the value begins and the key's whole path."""
        at, parts = self._key(at)
        path = table
        for part, offset in parts[:-1]:
            path = (*path, part)
            self._imply(path, offset)
        part, offset = parts[-1]
        path = (*path, part)
        self.last = path, offset
        self.spots.setdefault(path, Spot(offset, offset))
        return _end(_EQUALS, self._text, at), path

    def _imply(self, path: Path, offset: int) -> None:
        if path not in self.spots:
            self.spots[path] = Spot(offset, offset)
            self._implied.add(path)

    def _key(self, at: int) -> tuple[int, list[tuple[str, int]]]:
        """Read the dotted key at *at*; return where it and blanks behind it end, and its parts with their offsets."""
        text = self._text
        parts: list[tuple[str, int]] = []
        while True:
            end = _end(_STRING if text[at] in "\"'" else _BARE, text, at)
            parts.append((_unquote(text[at:end]), at))
            at = _end(_BLANK, text, end)
            if text[at : at + 1] != ".":
                return at, parts
            at = _end(_BLANK, text, at + 1)


def _unquote(part: str) -> str:
    if part[0] not in "\"'":
        return part
    return part[1:-1] if "\\" not in part or part[0] == "'" else str(tomli.loads(f"k={part}")["k"])


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where the match of *pattern* at *at* ends. There is one: tomli accepted what stands there."""
    return cast("re.Match[str]", pattern.match(text, at)).end()
