"""Writes a document as TOML text.

Our own, since the order of keys matters (it is the order of stages, edges and prompts), since a long text reads best
over several lines, and since the one writer among our dependencies takes 50 ms for what takes one here. What is
written is also TOML 1.0: no line breaks inside inline tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from shoal.blueprints._codec import is_list, is_table
from shoal.blueprints._record import holds_tables

_WIDTH = 110
_SHORT = 90
_ALWAYS_HEADERS = 2  # `[context.regions]` and `[stages.review]` have a line of their own, however short they are
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPECIAL = re.compile(r'[\x00-\x1f\x7f"\\]')
_SPECIAL_IN_LINES = re.compile(r'[\x00-\x08\x0b-\x1f\x7f\\]|""(?=")|"(?=\Z)')
_ESCAPES = {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r", '"': r"\"", "\\": r"\\", '""': r"\"\""}


def emit(document: Mapping[str, object]) -> str:
    """Return *document*, a table of tables with text, numbers, booleans and lists in them, as TOML."""
    blocks = (block for name, value in document.items() for block in _blocks(value, (name,)))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _blocks(value: object, path: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield *value*, a table or a list of tables, in blocks of lines: a header with what is under it each."""
    dotted = ".".join(map(_key, path))
    for table in _tables(value):
        below = _headed(table, path)
        lines = [_pair(name, inner) for name, inner in table.items() if name not in below]
        if is_list(value):
            yield [f"[[{dotted}]]", *lines]
        elif lines or not below:
            yield [f"[{dotted}]", *lines]
        for name in below:
            yield from _blocks(table[name], (*path, name))


def _headed(table: Mapping[str, object], path: tuple[str, ...]) -> list[str]:
    """Return the keys of *table* whose values have headers of their own: all that hold tables, or none.

    Never some: what has a header comes after what has none, and tables have to stay in their order.
    """
    below = [name for name, value in table.items() if holds_tables(value)]
    if len(path) < _ALWAYS_HEADERS:
        return below
    inner = [item for name in below for item in _tables(table[name])]
    if any(_must_be_inline(item, path) for item in inner):
        return []
    short = all(len(_pair(name, table[name])) <= _SHORT and "\\n" not in _value(table[name]) for name in below)
    return [] if short else below


def _must_be_inline(table: Mapping[str, object], path: tuple[str, ...]) -> bool:
    """Say whether headers inside *table* would change the order of its keys."""
    below = _headed(table, (*path, ""))
    names = list(table)
    return bool(below) and names[-len(below) :] != below


def _tables(value: object) -> list[dict[str, object]]:
    return [item for item in (value if is_list(value) else [value]) if is_table(item)]


def _pair(name: str, value: object) -> str:
    if isinstance(value, str) and "\n" in value:
        return f"{_key(name)} = {_lines(value)}"
    line = f"{_key(name)} = {_value(value)}"
    if not is_list(value) or len(line) <= _WIDTH:
        return line
    return "\n".join([f"{_key(name)} = [", *(f"    {_value(item)}," for item in value), "]"])


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _value(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if is_list(value):
        return f"[{', '.join(map(_value, value))}]"
    if is_table(value):
        pairs = ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _quoted(text: str) -> str:
    return f'"{_SPECIAL.sub(_escape, text)}"'


def _lines(text: str) -> str:
    """Return *text* over several lines; on one where the end of a line would not survive an editor."""
    if any(line != line.rstrip() for line in text.split("\n")):
        return _quoted(text)
    return f'"""\n{_SPECIAL_IN_LINES.sub(_escape, text)}"""'


def _escape(match: re.Match[str]) -> str:
    found = match[0]
    return _ESCAPES.get(found) or f"\\u{ord(found):04x}"
