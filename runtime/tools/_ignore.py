"""The rules of a `.gitignore` file, for a walk that goes from the top and never enters a folder that is ignored.

So a rule only has to say whether it matches a path itself, and the last one that does decides. Matching takes time in
proportion to path and rule, whoever wrote them: a name of many stars costs nothing.

Source: gitignore(5), "Pattern format", of git 2.47.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

_CLASSES: Mapping[str, str] = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": "!-/:-@[-`{-~",
    "space": " \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}
_CLASS = re.compile(r"\[:(\w+):\]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

_Part: TypeAlias = re.Pattern[str] | None
"""What one part of a path must look like; `None` stands for any number of parts."""
_NOTHING = re.compile("(?!)")
_ANYTHING = re.compile(".*", re.DOTALL)


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the file.

    Args:
        ignores: What it matches is ignored; otherwise it is taken back in.
        folders_only: It matches folders only.
        parts: What it asks of a path, part by part.
    """

    ignores: bool
    folders_only: bool
    parts: tuple[_Part, ...]

    def matches(self, path: Sequence[str]) -> bool:
        """Say whether it matches *path*, given in its parts."""
        part = at = 0
        back: tuple[int, int] | None = None
        while at < len(path):
            wanted = self.parts[part] if part < len(self.parts) else _NOTHING
            if wanted is None:
                part += 1
                back = part, at
            elif wanted.fullmatch(path[at]):
                part += 1
                at += 1
            elif back is not None:
                # Going back to the last `**` is enough: what an earlier one could take, this one can take as well.
                back = back[0], back[1] + 1
                part, at = back
            else:
                return False
        return all(wanted is None for wanted in self.parts[part:])


def read_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of a file with the content *text*, the last one first."""
    lines = text.removeprefix("\ufeff").split("\n")
    return tuple(rule for line in reversed(lines) if (rule := _rule(line.removesuffix("\r"))) is not None)


def rule_of_parts(names: Sequence[str]) -> Rule:
    """Return a rule that matches paths whose parts match *names* one by one; `**` stands for any number of parts."""
    return Rule(ignores=True, folders_only=False, parts=tuple(map(_part, names)))


def verdict(rules: Iterable[Rule], path: Sequence[str], *, folder: bool) -> bool | None:
    """Say whether *rules* (the last one first) ignore *path*, given in its parts; `None` where none speaks of it."""
    for rule in rules:
        if (folder or not rule.folders_only) and rule.matches(path):
            return rule.ignores
    return None


def _rule(line: str) -> Rule | None:
    pattern = _trimmed(line)
    if pattern.startswith("#"):
        return None
    ignores = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    folders_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    anchored = "/" in pattern
    names = pattern.removeprefix("/").split("/")
    if not all(map(_is_complete, names)):
        return None
    parts = [_part(name) for name in names]
    if not anchored:
        parts = [None, *(_ANYTHING if part is None else part for part in parts)]
    elif parts[-1] is None:
        parts.insert(-1, _ANYTHING)  # what is inside the folder, not the folder
    return Rule(ignores, folders_only, tuple(parts))


def _trimmed(line: str) -> str:
    """Return *line* without the spaces at its end, but for one that is escaped."""
    trimmed = line.rstrip(" ")
    escapes = len(trimmed) - len(trimmed.rstrip("\\"))
    return line[: len(trimmed) + 1] if escapes % 2 and len(trimmed) < len(line) else trimmed


def _is_complete(name: str) -> bool:
    """Say whether *name* could match anything: it is not empty, and no escape stands at its end."""
    return bool(name) and (len(name) - len(name.rstrip("\\"))) % 2 == 0


def _part(name: str) -> _Part:
    if len(name) > 1 and not name.strip("*"):
        return None
    plain = _ESCAPED.sub(lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], name)
    plain = _CLASS.sub(lambda found: _CLASSES.get(found[1], ""), plain).replace("[^", "[!")
    return re.compile(fnmatch.translate(plain))
