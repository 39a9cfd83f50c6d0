"""Questions about runs, such as `region.codebase.cost_usd > 0.5 and status = complete`.

question   = either ("or" either)*
either     = single ("and" single)*
single     = "(" question ")" | "not" single | figure operator value
operator   = "=" | "!=" | "<" | "<=" | ">" | ">="
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias, cast, final

from shoal.errors import ConfigInvalid

Figures: TypeAlias = Mapping[str, Any]
"""The figures of a run by name; those of regions and stages are tables of tables."""
Question: TypeAlias = Callable[[Figures], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<op><=|>=|!=|==|=|<|>)|(?P<mark>[()])|(?P<word>(?:[^\s()<>=!"']|"[^"]*"|'[^']*')+))""", re.VERBOSE
)
_PIECE = re.compile(r"""(?:[^."']|"[^"]*"|'[^']*')+""")
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_USED = ("calls", "uncached", "cache_read", "cache_write", "output", "reasoning", "cost_usd", "cache_hit_ratio")
TABLES: Mapping[str, Sequence[str]] = {
    "region": (*_USED, "high_water_tokens"),
    "stage": (*_USED, "visits", "tool_calls", "seconds"),
}
"""The figures of each region and of each stage."""
_EXAMPLE = '`--where "region.codebase.cost_usd > 0.5"`'


def question_of(text: str) -> Question:
    """Return *text* as a question about the figures of a run.

    A region or stage that a run does not have makes the comparison false, and so does a price that nobody knows.

    Raises:
        ConfigInvalid: It is none; the message says where.
    """
    return _Reader(text).whole()


@final
class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._place = 0

    def whole(self) -> Question:
        if not self._tokens:
            raise ConfigInvalid(f"the question is empty; ask something such as {_EXAMPLE}")
        question = self._either()
        if self._peek():
            raise self._wrong(f"{self._peek()!r} stands where `and`, `or` or the end was expected")
        return question

    def _either(self) -> Question:
        parts = [self._both()]
        while self._took("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda figures: any(part(figures) for part in parts)

    def _both(self) -> Question:
        parts = [self._single()]
        while self._took("and"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else lambda figures: all(part(figures) for part in parts)

    def _single(self) -> Question:
        if self._took("not"):
            inner = self._single()
            return lambda figures: not inner(figures)
        if self._took("("):
            inner = self._either()
            if not self._took(")"):
                raise self._wrong("a `(` is not closed")
            return inner
        path = self._next("a figure")
        operator = self._next("one of = != < <= > >=")
        if operator not in _COMPARE:
            raise self._wrong(f"{operator!r} stands where one of = != < <= > >= was expected")
        return _comparison(path, operator, _plain(self._next("a value")))

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _next(self, what: str) -> str:
        found = self._peek()
        if not found or found in "()":
            raise self._wrong(f"{what} is missing")
        self._place += 1
        return found

    def _took(self, word: str) -> bool:
        if self._peek().lower() != word:
            return False
        self._place += 1
        return True

    def _wrong(self, why: str) -> ConfigInvalid:
        return ConfigInvalid(f"{self._text!r} is no question: {why}; ask something such as {_EXAMPLE}")


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise ConfigInvalid(f"{text!r} is no question: a quote is not closed; ask something such as {_EXAMPLE}")
        found.append(match[0].strip())
        place = match.end()
    return found


def _comparison(path: str, operator: str, wanted: str) -> Question:
    keys = [_plain(piece) for piece in _PIECE.findall(path)]
    compare = _COMPARE[operator]
    _check(keys, path)

    def asked(figures: Figures) -> bool:
        value = _value(figures, keys, path)
        if value is None:
            return False
        if isinstance(value, str):
            return compare(value.casefold(), wanted.casefold())
        try:
            return compare(Decimal(value), Decimal(wanted))
        except InvalidOperation:
            raise ConfigInvalid(f"`{path}` is a number, and {wanted!r} is none; compare it with a number") from None

    return asked


def _check(keys: Sequence[str], path: str) -> None:
    """Refuse a figure that no region or stage has, also where no run has that region or stage."""
    known = TABLES.get(keys[0])
    if known is None or (len(keys) == 3 and keys[2] in known):
        return
    there = ", ".join(f"`{name}`" for name in known)
    if len(keys) < 3:
        raise ConfigInvalid(f"`{path}` holds several figures; name one: {there}")
    raise ConfigInvalid(f"`{path}` is no figure: there is no {'.'.join(keys[2:])!r}; there are {there}")


def _value(figures: Figures, keys: Sequence[str], path: str) -> str | Decimal | int | None:
    """Return the figure at *keys*; `None` for one of a region or stage that the run does not have."""
    place: Any = figures
    for depth, key in enumerate(keys):
        if not isinstance(place, Mapping):
            raise ConfigInvalid(f"`{path}` is no figure: `{'.'.join(keys[:depth])}` holds nothing further")
        table = cast("Mapping[str, Any]", place)
        if key not in table:
            if depth and keys[depth - 1] in ("region", "stage"):
                return None
            known = ", ".join(f"`{name}`" for name in table)
            raise ConfigInvalid(f"`{path}` is no figure: there is no {key!r}; there are {known}")
        place = table[key]
    return cast("str | Decimal | int | None", place)


def _plain(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word
