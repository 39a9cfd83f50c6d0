"""How tables of a file become the frozen values of a blueprint, and back: one table of keys serves both ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, final

from shoal.blueprints._codec import BAD, Bad, Codec, is_list, is_sequence, is_table, refuse
from shoal.blueprints._report import Report, key_path, listed
from shoal.blueprints._toml import Path

Elsewhere: TypeAlias = Mapping[str, tuple[str, str]]
"""Keys that are known and belong to another place: the id of the finding, and what to do instead."""

_NOTHING: Elsewhere = MappingProxyType({})
_MOST_NAME = 200


@final
class Key:
    """One key of a table.

    Args:
        name: Its name in the file.
        codec: What reads and writes its value; a `Group` puts the keys of a table beside those around it.
        attr: The field it fills; its own name unless given.
        also: Other spellings that are read.
        required: The table is refused without it.
        writes: False for a spelling that is only read.
    """

    __slots__ = ("also", "attr", "codec", "name", "required", "writes")

    def __init__(
        self,
        name: str,
        codec: Codec | Group,
        attr: str | None = None,
        *,
        also: tuple[str, ...] = (),
        required: bool = False,
        writes: bool = True,
    ) -> None:
        self.name = name
        self.codec = codec
        self.attr = attr or name
        self.also = also
        self.required = required
        self.writes = writes


class Fields:
    """The keys of one table.

    Args:
        keys: Every key that may stand in it.
        lenient: Where the other runtime ignores unknown keys, its files get a warning.
        elsewhere: Keys that are known and belong to another place.
    """

    def __init__(self, *keys: Key, lenient: bool = False, elsewhere: Elsewhere = _NOTHING) -> None:
        self.keys = keys
        self._lenient = lenient
        self._elsewhere = elsewhere
        self._by_name = {name: key for key in keys for name in (key.name, *key.also)}

    def gather(self, table: Mapping[str, object], path: Path, report: Report, found: dict[str, object]) -> None:
        """Read *table* into *found*: field by field, `BAD` for a value that cannot be used."""
        for name, value in table.items():
            here = (*path, name)
            key = self._by_name.get(name)
            if key is None:
                self._unknown(name, here, report)
            elif isinstance(key.codec, Group):
                key.codec.spread(value, here, report, found)
            else:
                self._keep(key, key.codec.read(value, here, report), here, report, found)
        for key in self.keys:
            if key.required and key.attr not in found:
                report.error("missing-key", path, f"`{key.name}` is missing; write it", at="key")

    def tabulate(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the table for *values*, single values in front: in a file they stand before tables."""
        table: dict[str, object] = {}
        for key in self.keys:
            if isinstance(key.codec, Group):
                if inner := key.codec.tabulate(values):
                    table[key.name] = inner
            elif key.writes and key.attr in values:
                table[key.name] = key.codec.write(values[key.attr])
        single = {name: value for name, value in table.items() if not holds_tables(value)}
        return single | table

    def _keep(self, key: Key, read: object, path: Path, report: Report, found: dict[str, object]) -> None:
        known = found.get(key.attr, BAD)
        if known is BAD:
            found[key.attr] = read
        elif read is not BAD and read != known:
            message = f"`{path[-1]}` is also written in another spelling, with another value; keep one of them"
            report.error("conflicting-keys", path, message, at="key")

    def _unknown(self, name: str, path: Path, report: Report) -> None:
        if name in self._elsewhere:
            id_, advice = self._elsewhere[name]
            report.soft(id_, path, f"`{name}` {advice}", at="key")
            return
        names = [key.name for key in self.keys]
        table = f"`{key_path(path[:-1])}`" if path[:-1] else "the top level of a blueprint"
        message = f"`{name}` is no key of {table}{report.near(name, self._by_name)}; it takes {listed(names)}"
        add = report.soft if self._lenient else report.error
        add("unknown-key", path, message, at="key")


@final
class Group(Fields):
    """A table that exists in the file only: its keys fill fields of the value around it."""

    def spread(self, value: object, path: Path, report: Report, found: dict[str, object]) -> None:
        """Read *value* into *found*."""
        if is_table(value):
            self.gather(value, path, report, found)
        else:
            refuse(value, "a table", path, report)


class Record(Fields):
    """A table that becomes a value of *type_*. A field whose key is not written keeps its default."""

    def __init__(self, type_: type[Any], *keys: Key, lenient: bool = False, elsewhere: Elsewhere = _NOTHING) -> None:
        super().__init__(*keys, lenient=lenient, elsewhere=elsewhere)
        self.type = type_
        self._defaults = {field.name: _default(field) for field in dataclasses.fields(type_)}

    def read(self, value: object, path: Path, report: Report) -> object:
        """Return the value that the table stands for, or `BAD` where it cannot be made."""
        return self.read_with({}, value, path, report)

    def read_with(self, given: dict[str, object], value: object, path: Path, report: Report) -> object:
        """Return the value, with the fields in *given* filled already."""
        if not is_table(value):
            refuse(value, "a table", path, report)
            return self.make(given)
        self.gather(value, path, report, given)
        self.complete(given, value, path, report)
        return self.make(given)

    def make(self, found: Mapping[str, object]) -> object:
        """Return the value with the usable fields of *found*; `BAD` where one without a default is not among them."""
        usable = {name: value for name, value in found.items() if value is not BAD}
        missing = any(default is BAD and name not in usable for name, default in self._defaults.items())
        return BAD if missing else self.type(**usable)

    def write(self, value: object) -> object:
        """Return the table for *value*; fields that have their default are left out."""
        return self.tabulate(self.explode(value)) if isinstance(value, self.type) else value

    def complete(self, found: dict[str, object], table: Mapping[str, object], path: Path, report: Report) -> None:
        """Change what was *found* in *table* by rules that concern several keys."""

    def explode(self, value: Any) -> dict[str, object]:
        """Return the fields of *value* that differ from their defaults."""
        fields = {name: getattr(value, name) for name in self._defaults}
        return {name: field for name, field in fields.items() if field != self._defaults[name]}


@final
class Named:
    """A table of tables, each a value that is called by its key; the order is the file's."""

    __slots__ = ("_attr", "_record")

    def __init__(self, record: Record, *, attr: str = "name") -> None:
        self._record = record
        self._attr = attr

    def read(self, value: object, path: Path, report: Report) -> tuple[object, ...] | Bad:
        """Return the values, in order. One that cannot be read is there by its name, so that others may refer to it."""
        if not is_table(value):
            return refuse(value, "a table of tables", path, report)
        made: list[object] = []
        for name, inner in value.items():
            here = (*path, name)
            _check_name(name, here, report)
            made.append(self._record.read_with({self._attr: name}, inner, here, report))
        return tuple(made)

    def write(self, value: object) -> object:
        """Return the table of tables for a tuple of values."""
        if not is_sequence(value):
            return value
        return {getattr(item, self._attr, str(index)): self._record.write(item) for index, item in enumerate(value)}


def holds_tables(value: object) -> bool:
    """Say whether *value* is a table, or a list of nothing but tables."""
    return is_table(value) or (is_list(value) and bool(value) and all(is_table(inner) for inner in value))


def _check_name(name: str, path: Path, report: Report) -> None:
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > _MOST_NAME:
        message = (
            f"{name!r} is no name; write a printable one of at most {_MOST_NAME} characters, without blanks around"
        )
        report.error("bad-value", path, message, at="key")


def _default(field: dataclasses.Field[Any]) -> object:
    """Return the default of *field*; `BAD`, which equals nothing, where it has none."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return BAD if field.default_factory is dataclasses.MISSING else field.default_factory()
