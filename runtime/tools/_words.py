"""Reads a shell line into simple commands, as far as any shell is certain to read it the same way.

This understands far less than a shell, on purpose: who decides by it must never overlook a command. What dash, bash and
the shell of macOS could take for something else is refused, be it as harmless as a `for`. The parsers that can be had
do not serve: bashlex is GPL, and tree-sitter-bash is made for editors: of a line that joins `a` and `#b` by a backslash
at the line's end it takes the rest for a comment, without an error, and so overlooks a command that a shell runs.

Source: POSIX.1-2024, Shell Command Language, 2.2 (Quoting), 2.3 (Token Recognition), 2.6 (Word Expansions), 2.7
(Redirection); bash(1) 5.2 and dash(1) 0.5.12 where they differ from it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NoReturn, TypeAlias, final

import msgspec

Shape: TypeAlias = Literal["exact", "pattern", "text", "open"]
"""What a shell makes of a word: `exact`, the word as it stands; `pattern`, the names that its `*` and `?` match, or the
word as it stands where none does; `text`, one word with the value of a variable in it; `open`, nobody can say."""

_ENDS = frozenset(" \t\n;&|<>()")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_COPIES = re.compile(r"[0-9]+-?|-")
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_REDIRECTS = ("<>", "<&", ">&", ">>", ">|", "<", ">")
_COUNTS = "?#$!"
"""Special parameters whose value is a number: it is neither split nor matched against names."""


@final
class Unreadable(Exception):
    """A line that is not certain to mean one thing; the message says what about it."""


@final
class Word(msgspec.Struct, frozen=True, gc=False):
    """A word of a command.

    Args:
        text: Its text without the quotes; where a variable stood there is `$` and its name.
        shape: What a shell makes of it.
        bare: How many characters at its beginning are neither quoted nor expanded.
    """

    text: str
    shape: Shape = "exact"
    bare: int = 0

    @property
    def is_bare(self) -> bool:
        """Nothing of it is quoted or expanded."""
        return self.bare == len(self.text)

    @property
    def assigns(self) -> str | None:
        """The variable that it sets where it stands in front of a command; `None` where it sets none."""
        found = _ASSIGNS.match(self.text)
        return found[1] if found is not None and found.end() <= self.bare else None


@final
class Command(msgspec.Struct, frozen=True):
    """A simple command.

    Args:
        words: Its words, assignments in front of them.
        reads: Targets of redirections that read.
        writes: Targets of redirections that may write.
    """

    words: tuple[Word, ...]
    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()


def read_commands(line: str) -> tuple[Command, ...]:
    """Return the simple commands of *line*, in its order, whatever operators join them.

    Raises:
        Unreadable: It holds something else, or something that shells do not agree on.
    """
    for char in line:
        if unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n":
            raise Unreadable(f"it holds the character U+{ord(char):04X}")
    return _Reader(line).read()


def _refuse(why: str) -> NoReturn:
    raise Unreadable(why)


@final
class _Reader:
    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0
        self._commands: list[Command] = []
        self._words: list[Word] = []
        self._reads: list[Word] = []
        self._writes: list[Word] = []

    def read(self) -> tuple[Command, ...]:
        joined = ""
        while (char := self._next()) is not None:
            if char in " \t" or self._goes_on():
                self._at += 1 if char in " \t" else 2
            elif char == "#":
                end = self._line.find("\n", self._at)
                self._at = len(self._line) if end < 0 else end
            elif char == "\n":
                self._at += 1
                if self._end_command():
                    joined = char
            elif char in ";&|":
                joined = self._operator() or joined
            elif char in "<>":
                self._redirection()
            elif char in "()":
                _refuse(f"it holds `{char}`")
            else:
                self._argument()
        if not self._end_command() and joined in ("&&", "||", "|"):
            _refuse(f"nothing follows its last `{joined}`")
        return tuple(self._commands)

    def _next(self, ahead: int = 0) -> str | None:
        at = self._at + ahead
        return self._line[at] if at < len(self._line) else None

    def _goes_on(self) -> bool:
        """Say whether a backslash between two words makes the next line part of this one."""
        before = self._line[self._at - 1] if self._at else "\n"
        return self._line.startswith("\\\n", self._at) and before in " \t\n"

    def _end_command(self) -> bool:
        """End the command that is being read; false where there is none."""
        if not (self._words or self._reads or self._writes):
            return False
        self._commands.append(Command(tuple(self._words), tuple(self._reads), tuple(self._writes)))
        self._words, self._reads, self._writes = [], [], []
        return True

    def _operator(self) -> str:
        """Read an operator and return it; empty for `&>`, which ends no command in every shell."""
        if self._line.startswith("&>", self._at):
            self._at += 3 if self._line.startswith("&>>", self._at) else 2
            self._writes.append(self._target())
            return ""
        two = self._line[self._at : self._at + 2]
        if two in (";;", ";&", "|&"):
            _refuse(f"it holds `{two}`")
        operator = two if two in ("&&", "||") else two[0]
        self._at += len(operator)
        if not self._end_command():
            _refuse(f"nothing stands in front of its `{operator}`")
        return operator

    def _redirection(self) -> None:
        if self._line.startswith("<<", self._at):
            _refuse("it holds a here-document")
        operator = next(each for each in _REDIRECTS if self._line.startswith(each, self._at))
        self._at += len(operator)
        target = self._target()
        copies = operator in ("<&", ">&") and target.is_bare and _COPIES.fullmatch(target.text) is not None
        if copies:
            return
        if operator == "<&":
            _refuse("it copies from something else than a descriptor")
        if operator == ">&" and not target.is_bare:
            _refuse("it holds `>&` with a quoted target, which bash expands once more")
        (self._reads if operator == "<" else self._writes).append(target)

    def _target(self) -> Word:
        while self._next() in (" ", "\t"):
            self._at += 1
        char = self._next()
        if char is None or char in _ENDS:
            _refuse("a redirection in it has no plain target")
        return self._word()

    def _argument(self) -> None:
        word = self._word()
        if self._next() in ("<", ">"):
            if word.is_bare and word.text.isdigit():
                # Of more digits dash makes a word.
                if len(word.text) > 1:
                    _refuse("a redirection in it has a descriptor of several digits")
                return
            if word.text.endswith("}"):
                _refuse("a redirection in it sets a variable")
        self._words.append(word)

    # --- words

    def _word(self) -> Word:
        made = _Making()
        while (char := self._next()) is not None and char not in _ENDS:
            self._at += 1
            match char:
                case "\\":
                    made.quote(self._escaped())
                case "'":
                    made.quote(self._until_quote())
                case '"':
                    self._quoted(made)
                case "$":
                    self._expansion(made, quoted=False)
                case "`":
                    _refuse("it holds a command substitution")
                case _:
                    made.add(char)
        return made.word()

    def _escaped(self) -> str:
        char = self._next()
        if char is None or char == "\n":
            _refuse("a backslash at the end of a line continues something else than a list of words")
        self._at += 1
        return char

    def _until_quote(self) -> str:
        end = self._line.find("'", self._at)
        if end < 0:
            _refuse("a quote in it is not closed")
        text = self._line[self._at : end]
        self._at = end + 1
        return text

    def _quoted(self, made: _Making) -> None:
        made.quote("")
        while (char := self._next()) != '"':
            if char is None:
                _refuse("a quote in it is not closed")
            self._at += 1
            if char == "`":
                _refuse("it holds a command substitution")
            elif char == "$":
                self._expansion(made, quoted=True)
            elif char == "\\" and self._next() in ("$", "`", '"', "\\", "\n"):
                made.quote(self._escaped())
            else:
                made.quote(char)
        self._at += 1

    def _expansion(self, made: _Making, *, quoted: bool) -> None:
        """Read what stands behind a `$`."""
        char = self._next() or ""
        if char in ("(", "[") or (char in ("'", '"') and not quoted):
            _refuse(f"it holds `${char}`")
        name = _NAME.match(self._line, self._at) or _BRACED.match(self._line, self._at)
        if char == "{" and name is None:
            _refuse("it holds an expansion that does more than name a variable")
        if name is not None:
            self._at = name.end()
            made.expand(f"${name[0].strip('{}')}", one_word=quoted)
        elif char and char in "0123456789@*-" + _COUNTS:
            self._at += 1
            made.expand(f"${char}", one_word=char in _COUNTS or (quoted and char != "@"))
        else:
            made.quote("$")


@final
class _Making:
    """A word that is being read."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._bare: int | None = None
        self._expands = self._open = self._matches = self._quoted_marks = False

    def add(self, char: str) -> None:
        """Add a character that is not quoted."""
        if char.isspace():
            _refuse(f"it holds the character U+{ord(char):04X}, which some shells take for a blank")
        self._matches |= char in "*?"
        self._open |= char in "[]{}~"
        self._text.append(char)

    def quote(self, text: str) -> None:
        """Add text that is quoted."""
        self._end_bare()
        self._quoted_marks |= any(mark in text for mark in "*?[]\\")
        self._text.append(text)

    def expand(self, shown: str, *, one_word: bool) -> None:
        """Add the value of a parameter."""
        self._end_bare()
        self._expands = True
        self._open |= not one_word
        self._text.append(shown)

    def _end_bare(self) -> None:
        if self._bare is None:
            self._bare = sum(map(len, self._text))

    def word(self) -> Word:
        """Return the word."""
        self._end_bare()
        text = "".join(self._text)
        shape: Shape = "exact"
        if text in ("[", "]") and not self._expands:
            shape = "exact"  # alone it matches nothing
        elif self._open or (self._matches and (self._expands or self._quoted_marks)):
            shape = "open"
        elif self._matches or self._expands:
            shape = "pattern" if self._matches else "text"
        return Word(text, shape, self._bare or 0)
