"""How single values of a blueprint stand in a file: each codec reads one sort of value and writes it back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Protocol, TypeGuard, cast, final

from shoal.blueprints._report import Report, hint, listed, shown
from shoal.blueprints._toml import Path

# Bounded, since a number may come from a stranger: a Decimal of a million digits takes its time, and then its room.
_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,400})?)%", re.ASCII)
_AMOUNT = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,40})?", re.ASCII)
_MOST_DIGITS = 40
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_NESTED = 64
_MOST_INTEGER = 2**63 - 1
_MOST_NUMBER: Mapping[type, float] = {int: _MOST_INTEGER, float: math.inf}


@final
class Bad:
    """What reading gives for a value that cannot be used; a problem says why."""

    __slots__ = ()


BAD: Final = Bad()


class Codec(Protocol):
    """Reads one sort of value from a file and writes it back."""

    def read(self, value: object, path: Path, report: Report) -> object:
        """Return what *value* means, or `BAD` after a problem was added."""
        ...

    def write(self, value: object) -> object:
        """Return *value* as a file holds it. A value of another type is passed on: reading it again says so."""
        ...


def is_table(value: object) -> TypeGuard[dict[str, object]]:
    """Say whether *value* is a table of a document: a dictionary whose keys are text."""
    return isinstance(value, dict) and is_mapping(cast("object", value))


def is_list(value: object) -> TypeGuard[list[object]]:
    """Say whether *value* is an array of a document."""
    return isinstance(value, list)


def is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    """Say whether *value* is a mapping of a blueprint: its keys are text."""
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in cast("Mapping[object, object]", value))


def is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    """Say whether *value* is a list, of a document, or a tuple, of a blueprint."""
    return isinstance(value, (list, tuple))


def is_unicode(text: str, path: Path, report: Report) -> bool:
    """Say whether *text* can be stored as UTF-8; add a problem if not. Only text from Python cannot."""
    if _SURROGATE.search(text) is None:
        return True
    refuse(text, "text without halves of characters (surrogates)", path, report, id_="bad-value")
    return False


def refuse(value: object, wants: str, path: Path, report: Report, *, id_: str = "wrong-type") -> Bad:
    """Add the problem that *value* is not what the key at *path* *wants*."""
    name = path[-1] if isinstance(path[-1], str) else "this element"
    report.error(id_, path, f"`{name}` is {shown(value)}; write {wants}")
    return BAD


class _Same:
    """A codec whose values stand in a file as they are."""

    __slots__ = ()

    def write(self, value: object) -> object:
        return value


@final
class Text(_Same):
    """Any text; with *full* not an empty or blank one."""

    __slots__ = ("_full",)

    def __init__(self, *, full: bool = True) -> None:
        self._full = full

    def read(self, value: object, path: Path, report: Report) -> str | Bad:
        if not isinstance(value, str):
            return refuse(value, "text in quotes", path, report)
        if self._full and not value.strip():
            return refuse(value, "a text that is not empty, or leave the key out", path, report, id_="bad-value")
        return value if is_unicode(value, path, report) else BAD


@final
class Matching(_Same):
    """Text that *pattern* matches as a whole. *wants* says what that is."""

    __slots__ = ("_pattern", "_wants")

    def __init__(self, pattern: str, wants: str) -> None:
        self._pattern = re.compile(pattern)
        self._wants = wants

    def read(self, value: object, path: Path, report: Report) -> str | Bad:
        if not isinstance(value, str):
            return refuse(value, self._wants, path, report)
        return value if self._pattern.fullmatch(value) else refuse(value, self._wants, path, report, id_="bad-value")


@final
class Flag(_Same):
    """`true` or `false`."""

    __slots__ = ()

    def read(self, value: object, path: Path, report: Report) -> bool | Bad:
        return value if isinstance(value, bool) else refuse(value, "`true` or `false`", path, report)


@final
class Whole:
    """A whole number, *least* or more. With *zero_is_none* 0 stands for `None`, which is no limit."""

    __slots__ = ("_least", "_wants", "_zero_is_none")

    def __init__(self, least: int, *, zero_is_none: bool = False) -> None:
        self._least = least
        self._zero_is_none = zero_is_none
        self._wants = f"a whole number, {least} or more" + (", or 0 for no limit" if zero_is_none else "")

    def read(self, value: object, path: Path, report: Report) -> int | Bad | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return refuse(value, self._wants, path, report)
        if value == 0 and self._zero_is_none:
            return None
        if not self._least <= value <= _MOST_INTEGER:
            return refuse(value, self._wants, path, report, id_="bad-value")
        return value

    def write(self, value: object) -> object:
        return 0 if value is None and self._zero_is_none else value


@final
class Number(_Same):
    """A finite number: above 0, or with *zero* also 0. What is read is multiplied by *factor*."""

    __slots__ = ("_factor", "_wants", "_zero")

    def __init__(self, *, zero: bool = False, factor: float = 1.0) -> None:
        self._zero = zero
        self._factor = factor
        self._wants = "a number, 0 or more" if zero else "a number above 0"

    def read(self, value: object, path: Path, report: Report) -> float | Bad:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return refuse(value, self._wants, path, report)
        if not 0 <= value <= _MOST_INTEGER or (value == 0 and not self._zero):  # a NaN is in no range
            return refuse(value, self._wants, path, report, id_="bad-value")
        return float(value) if self._factor == 1.0 else value * self._factor


@final
class Money:
    """An amount, 0 or more, as a number or, where more digits count than a float has, as text."""

    __slots__ = ()

    wants = "an amount, 0 or more, such as `2.50`"

    def read(self, value: object, path: Path, report: Report) -> Decimal | Bad:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            return refuse(value, self.wants, path, report)
        usable = bool(_AMOUNT.fullmatch(value)) if isinstance(value, str) else 0 <= value <= _MOST_INTEGER
        # By its text: the nearest double of 0.1 is a longer number than what was written.
        return Decimal(str(value)) if usable else refuse(value, self.wants, path, report, id_="bad-value")

    def write(self, value: object) -> object:
        if not isinstance(value, Decimal):
            return value
        as_float = float(value)
        is_exact = math.isfinite(as_float) and Decimal(str(as_float)) == value
        if is_exact or not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS:
            return as_float
        return f"{value:f}"


@final
class Share:
    """A share of something, written `"35%"`: above 0 and at most 100 %."""

    __slots__ = ()

    wants = 'a share above 0 % and at most 100 %, such as `"35%"`'

    def read(self, value: object, path: Path, report: Report) -> float | Bad:
        if not isinstance(value, str):
            return refuse(value, self.wants, path, report)
        match = _SHARE.fullmatch(value)
        # Decimal moves the point without rounding, so that a share that was written is the one that is read.
        share = float(Decimal(match[1]).scaleb(-2)) if match else 0.0
        return share if 0 < share <= 1 else refuse(value, self.wants, path, report, id_="bad-value")

    def write(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return value
        percent = f"{Decimal(str(value)).scaleb(2):f}"
        return f"{percent.rstrip('0').rstrip('.') if '.' in percent else percent}%"


@final
class Soft:
    """Another codec, whose bad values the other runtime takes as not written: in its files they are a warning."""

    __slots__ = ("_codec",)

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def read(self, value: object, path: Path, report: Report) -> object:
        since = len(report.problems)
        read = self._codec.read(value, path, report)
        report.soften(since)
        return read

    def write(self, value: object) -> object:
        return self._codec.write(value)


@final
class Choice(_Same):
    """One of *names*; *others* maps further spellings to them."""

    __slots__ = ("_names", "_others", "_wants")

    def __init__(self, *names: str, **others: str) -> None:
        self._names = names
        self._others = others
        self._wants = f"one of {listed((*names, *others))}"

    def read(self, value: object, path: Path, report: Report) -> str | Bad:
        if not isinstance(value, str):
            return refuse(value, self._wants, path, report)
        name = self._others.get(value, value)
        if name in self._names:
            return name
        near = hint(value, (*self._names, *self._others))
        return refuse(value, self._wants + near, path, report, id_="bad-value")


@final
class Json:
    """A free table for a vendor or a tool: anything that JSON can say, in the order of the file."""

    __slots__ = ()

    def read(self, value: object, path: Path, report: Report) -> Mapping[str, object] | Bad:
        if not is_table(value):
            return refuse(value, "a table whose keys are text", path, report)
        return MappingProxyType(value) if _is_json(value, path, report) else BAD

    def write(self, value: object) -> object:
        return dict(value) if is_mapping(value) else value


def _is_json(value: object, path: Path, report: Report, depth: int = 0) -> bool:
    """Say whether *value* can be sent as JSON; the first thing that cannot is added as a problem."""
    if isinstance(value, bool):
        return True
    if isinstance(value, str):
        return is_unicode(value, path, report)
    if isinstance(value, (int, float)):
        if math.isfinite(value) and abs(value) <= _MOST_NUMBER[type(value)]:
            return True
        refuse(value, "a finite number; whole ones have at most 64 bits", path, report, id_="bad-value")
        return False
    if depth == _MOST_NESTED:
        refuse(value, f"tables and lists at most {_MOST_NESTED} deep", path, report, id_="bad-value")
        return False
    if is_table(value):
        return all(
            is_unicode(name, path, report) and _is_json(inner, (*path, name), report, depth + 1)
            for name, inner in value.items()
        )
    if is_list(value):
        return all(_is_json(inner, (*path, index), report, depth + 1) for index, inner in enumerate(value))
    refuse(value, "text, a number, `true`, `false`, a list or a table", path, report)
    return False


@final
class ListOf:
    """A list of values that *item* reads; *least* of them at least."""

    __slots__ = ("_item", "_least")

    def __init__(self, item: Codec, *, least: int = 0) -> None:
        self._item = item
        self._least = least

    def read(self, value: object, path: Path, report: Report) -> tuple[object, ...] | Bad:
        if not is_list(value):
            return refuse(value, "a list in `[` and `]`", path, report)
        if len(value) < self._least:
            report.error("bad-value", path, f"`{path[-1]}` is empty; write {self._least} or more elements")
            return BAD
        read = (self._item.read(inner, (*path, index), report) for index, inner in enumerate(value))
        return tuple(inner for inner in read if inner is not BAD)

    def write(self, value: object) -> object:
        return [self._item.write(inner) for inner in value] if is_sequence(value) else value


@final
class MapOf:
    """A table whose keys are names that the file chooses. *check* adds a problem for a key that it does not like."""

    __slots__ = ("_check", "_item")

    def __init__(self, item: Codec, *, check: Callable[[str, Path, Report], None] | None = None) -> None:
        self._item = item
        self._check = check

    def read(self, value: object, path: Path, report: Report) -> Mapping[str, object] | Bad:
        if not is_table(value):
            return refuse(value, "a table", path, report)
        read: dict[str, object] = {}
        for name, inner in value.items():
            if not is_unicode(name, path, report):
                continue
            if self._check is not None:
                self._check(name, (*path, name), report)
            if (item := self._item.read(inner, (*path, name), report)) is not BAD:
                read[name] = item
        return MappingProxyType(read)

    def write(self, value: object) -> object:
        return {name: self._item.write(inner) for name, inner in value.items()} if is_mapping(value) else value
