"""The scanner knows the place of every key and value that tomli read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from shoal.blueprints._toml import Document, Path, Syntax, parse

KEY_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=6)
LINE_TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\"'\\", exclude_categories=("Cc", "Cs")), max_size=8
)
SCALARS = (
    "true", "false", "0", "-17", "+3", "1_000", "0xDEAD_beef", "0o17", "0b101", "3.5", "-2e+10", "6.0_1e-3", "inf",
    "-nan", "1979-05-27", "1979-05-27T07:32:00Z", "1979-05-27 07:32:00.5-07:00", "1979-05-27 07:32",
    "07:32:10", "07:32",
)  # fmt: skip
ESCAPES = st.sampled_from([r"\n", r"\"", r"\\", r"\u00e9", r"\U0001f600", r"\e", r"\x41", r"\t"])


class Writer:
    """Writes a document piece by piece, and notes where each key and value begins."""

    def __init__(self, draw: Callable[..., object]) -> None:
        self.draw = draw
        self.text = ""
        self.key: dict[Path, tuple[int, int]] = {}
        self.value: dict[Path, tuple[int, int]] = {}
        self.names = 0

    def here(self) -> tuple[int, int]:
        return self.text.count("\n") + 1, len(self.text) - (self.text.rfind("\n") + 1) + 1

    def pick(self, *options: str) -> str:
        return str(self.draw(st.sampled_from(options)))

    def blank(self) -> None:
        self.text += self.pick("", " ", "\t ")

    def gap(self) -> None:
        """Blanks, new lines and comments, as they may stand inside arrays and inline tables."""
        self.text += self.pick("", " ", "\n", " # ] } ' \" comment\n", "\n\t\n  ")

    def part(self, parent: Path, *, note: bool = True) -> Path:
        """Write one part of a key, with a name that is not used yet."""
        self.names += 1
        name = f"{self.draw(KEY_TEXT)}{self.names}"
        path = (*parent, name)
        if note:
            self.key.setdefault(path, self.here())
            self.value.setdefault(path, self.here())
        self.spell(name)
        return path

    def spell(self, name: str) -> None:
        plain = all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
        escaped = "".join(f"\\U{ord(c):08x}" if c in '"\\' or self.draw(st.booleans()) else c for c in name)
        forms = [f'"{escaped}"'] + ([name] if plain else []) + ([f"'{name}'"] if "'" not in name else [])
        self.text += self.pick(*forms)

    def pair(self, table: Path, depth: int) -> None:
        path = self.part(table)
        while self.draw(st.booleans()):
            self.blank()
            self.text += "."
            self.blank()
            path = self.part(path)
        self.blank()
        self.text += "="
        self.blank()
        self.write(path, depth)

    def write(self, path: Path, depth: int) -> None:
        self.value[path] = self.here()
        kinds = ["scalar", "basic", "literal", "lines", "literal lines"] + (["array", "table"] if depth < 3 else [])
        getattr(self, self.pick(*kinds).replace(" ", "_"))(path, depth)

    def scalar(self, path: Path, depth: int) -> None:
        self.text += self.pick(*SCALARS)

    def basic(self, path: Path, depth: int) -> None:
        self.text += f'"{self.draw(LINE_TEXT)}{self.draw(ESCAPES)}# ]}}{self.draw(LINE_TEXT)}"'

    def literal(self, path: Path, depth: int) -> None:
        self.text += f"'{self.draw(LINE_TEXT)}\" \\ # [{{'"

    def lines(self, path: Path, depth: int) -> None:
        inside = self.pick("", '"', '""', "\n", "\n x = [1\n", "\\\n   ", "'''", "\\\\")
        self.text += f'"""{self.draw(LINE_TEXT)}{inside}{self.draw(ESCAPES)}{self.pick("", chr(34), chr(34) * 2)}"""'

    def literal_lines(self, path: Path, depth: int) -> None:
        inside = self.pick("", "'", "''", "\n", '"""', "\n[no]\nk = 1\n")
        self.text += f"'''{self.draw(LINE_TEXT)}{inside}\\{self.pick('', chr(39), chr(39) * 2)}'''"

    def array(self, path: Path, depth: int) -> None:
        self.text += "["
        self.gap()
        for index in range(self.draw(st.integers(0, 3))):
            if index:
                self.text += ","
                self.gap()
            self.key[(*path, index)] = self.here()
            self.write((*path, index), depth + 1)
            self.gap()
        if self.text[-1] not in "[\n \t" or self.draw(st.booleans()):
            self.text += self.pick("", ",") if (*path, 0) in self.key else ""
        self.text += "]"

    def table(self, path: Path, depth: int) -> None:
        self.text += "{"
        self.gap()
        count = self.draw(st.integers(0, 3))
        for index in range(count):
            if index:
                self.text += ","
                self.gap()
            self.pair(path, depth + 1)
            self.gap()
        self.text += (self.pick("", ",") if count else "") + "}"

    def header(self, path: Path, names: list[str], *, array: bool) -> None:
        """Write a header; *path* has the indexes that *names* leave out."""
        self.text += "[[" if array else "["
        self.blank()
        for index, name in enumerate(names):
            at = path[: self.upto(path, index)]
            self.key.setdefault(at, self.here())
            self.value.setdefault(at, self.here())
            if index == len(names) - 1:
                if not array:
                    self.key[at] = self.value[at] = self.here()
                else:
                    self.key[path] = self.value[path] = self.here()
            self.spell(name)
            self.blank()
            if index < len(names) - 1:
                self.text += "."
                self.blank()
        self.text += "]]" if array else "]"

    @staticmethod
    def upto(path: Path, index: int) -> int:
        """Return how much of *path* the name number *index* reaches, without an array's index behind it."""
        seen = -1
        for length, part in enumerate(path, 1):
            seen += isinstance(part, str)
            if seen == index:
                return length
        raise AssertionError((path, index))

    def end(self) -> None:
        self.text += self.pick("", " ", " # [x] = '\"") + "\n" + self.pick("", "\n", "# comment\n", "  \t\n")


@st.composite
def documents(draw: Callable[..., object]) -> Writer:
    """Documents in every form of TOML 1.1, with the places of all they hold."""
    out = Writer(draw)
    out.text = out.pick("", "# first\n", "\n")
    for _ in range(draw(st.integers(0, 3))):
        out.pair((), 0)
        out.end()
    tables: list[Path] = [()]
    for _ in range(draw(st.integers(0, 4))):
        parent = draw(st.sampled_from(tables))
        names = [part for part in parent if isinstance(part, str)]
        middle = [f"m{out.names}_{i}" for i in range(draw(st.integers(0, 1)))]
        out.names += 1
        last = f"{draw(KEY_TEXT)}t{out.names}"
        if not draw(st.booleans()):
            path = (*parent, *middle, last)
            out.header(path, [*names, *middle, last], array=False)
            section(out, path)
            tables.append(path)
            if middle and draw(st.booleans()):  # the table in the middle, after what is in it
                out.header((*parent, *middle), [*names, *middle], array=False)
                section(out, (*parent, *middle))
            continue
        for index in range(draw(st.integers(1, 3))):
            path = (*parent, *middle, last, index)
            out.header(path, [*names, *middle, last], array=True)
            section(out, path)
            if draw(st.booleans()):
                out.header((*path, "inner"), [*names, *middle, last, "inner"], array=False)
                section(out, (*path, "inner"))
        tables.append(path)
    return out


def section(out: Writer, path: Path) -> None:
    out.end()
    for _ in range(out.draw(st.integers(0, 2))):
        out.pair(path, 0)
        out.end()


def paths_of(data: object, path: Path = ()) -> set[Path]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    below = [paths_of(value, (*path, step)) for step, value in items]
    return {path}.union(*below) if path else set().union(*below)


@pytest.mark.wall_limit(300)
@given(documents(), st.booleans(), st.booleans())
def test_the_scanner_finds_the_paths_that_tomli_read_each_where_it_was_written(
    out: Writer, crlf: bool, mark: bool
) -> None:
    text = ("\ufeff" if mark else "") + (out.text.replace("\n", "\r\n") if crlf else out.text)
    document = parse(text)
    assert isinstance(document, Document), document
    assert document.data == tomli.loads(out.text) or "nan" in out.text
    assert document.spots.keys() == paths_of(document.data)
    assert {path: document.place(path, "key") for path in document.spots} == out.key
    assert {path: document.place(path, "value") for path in document.spots} == out.value


def test_a_path_that_is_not_written_has_the_place_of_what_encloses_it() -> None:
    document = parse("a = 1\n[t]\nx = 2\n")
    assert isinstance(document, Document)
    assert document.place(("t", "y", 3)) == (2, 2)
    assert document.place(("nowhere",)) == (1, 1)


def test_an_explicit_header_is_the_place_of_a_table_that_was_implied_before() -> None:
    document = parse("[a.b]\n[a]\n")
    assert isinstance(document, Document)
    assert document.place(("a",)) == (2, 2)


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("a = 1\n\na = 2", 3, 1, "`a` is written a second time; the first is on line 1"),
        ("[a]\nx = 1\n[b]\n[a]", 4, 2, "`a` is written a second time; the first is on line 1"),
        ("b = { c = 1,\n  c = 2 }", 2, 3, "`b.c` is written a second time; the first is on line 1"),
        ('a = 1\na = """\nlong\n"""', 2, 1, "`a` is written a second time; the first is on line 1"),
        ("a = [1]\n[[a]]", 2, 3, "`a` is written a second time"),
        ("a = { b = 1 }\na.c = 2", 2, 3, "`a.c` adds to a table that is complete already"),
        ("a = { b = { c = 1 }, b.d = 2 }", 1, 24, "`a.b.d` adds to a table that is complete already"),
        ("x = 1 2", 1, 7, "this is no TOML"),
        ("x = [1,\n", 2, 1, "this is no TOML"),
        ("x = " + "9" * 5000, 1, 1, "thousands of digits"),
        ("x = " + "[" * 500, 1, 1, "nested too deep"),
    ],
)
def test_what_is_no_toml_is_said_with_its_place(text: str, line: int, column: int, says: str) -> None:
    fault = parse(text)
    assert isinstance(fault, Syntax)
    assert (fault.line, fault.column) == (line, column)
    assert says in fault.message


def test_arrays_nested_to_the_parsers_limit_are_scanned_without_recursion() -> None:
    document = parse("x = " + "[" * 350 + "]" * 350)
    assert isinstance(document, Document)
    assert document.place(("x", *[0] * 349)) == (1, 5 + 349)
