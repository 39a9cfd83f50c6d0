"""Programs that only look, and when a line of them stays in the working directory.

A program is in the table if nothing that it is called with makes it write, run another program or connect; the options
that would are listed beside it, and a call with one of them is not covered. So there is no `find`, `sed`, `awk`, `sort`
or `env`; no `ps`, which shows the environment of others, keys included; and no `git`, which runs what a repository's
configuration names (`core.fsmonitor`, `textconv`, filters, hooks), while a repository may be a stranger's.

A line is covered only if it could not read anything outside the working directory either: `cat` is no way around the
containment of `read_file`. Links are looked at before the line runs; one that somebody swaps in between is followed.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from shoal.runtime.tools._lines import Line, Step
from shoal.runtime.tools._words import Word


@final
@dataclass(frozen=True, slots=True)
class _Looks:
    """What of a program is not covered.

    Args:
        letters: Its short options that are not; `*` for all words that begin with `-`.
        names: Its long options that are not, and each beginning of them.
        text: Its words are no paths.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    text: bool = False


LOOKING: Mapping[str, _Looks] = {
    "[": _Looks(),
    ":": _Looks(text=True),
    "basename": _Looks(text=True),
    "cat": _Looks(),
    "cd": _Looks("*"),
    "cmp": _Looks(),
    "column": _Looks(),
    "command -v": _Looks(text=True),
    "cut": _Looks(),
    "date": _Looks("dfrsjv", ("date", "file", "reference", "set")),
    "df": _Looks(),
    # Recursion follows links that it meets; `-l` pipes through `pr`.
    "diff": _Looks("rl", ("recursive", "paginate")),
    "dirname": _Looks(text=True),
    "du": _Looks("LHD", ("dereference", "files0-from")),
    "echo": _Looks(text=True),
    "egrep": _Looks("RS", ("dereference-recursive",)),
    "exit": _Looks(text=True),
    "false": _Looks(text=True),
    "fgrep": _Looks("RS", ("dereference-recursive",)),
    # It compiles magic files, and unpacks by other programs.
    "file": _Looks("CzZmf", ("compile", "uncompress", "magic-file", "files-from")),
    "grep": _Looks("RS", ("dereference-recursive",)),
    "head": _Looks(),
    "hostname": _Looks("*"),
    "id": _Looks(text=True),
    "jq": _Looks("L", ("library-path",)),
    "ls": _Looks("LH", ("dereference",)),
    "od": _Looks(),
    "printf": _Looks("*", text=True),
    "pwd": _Looks(text=True),
    "readlink": _Looks(),
    "realpath": _Looks(),
    "seq": _Looks(text=True),
    "sleep": _Looks(text=True),
    "stat": _Looks("L", ("dereference",)),
    "strings": _Looks(),
    "tail": _Looks(),
    "test": _Looks(),
    "tr": _Looks(text=True),
    "true": _Looks(text=True),
    "type": _Looks(text=True),
    "uname": _Looks(text=True),
    "wc": _Looks(names=("files0-from",)),
    "which": _Looks(text=True),
    "whoami": _Looks(text=True),
}
"""Programs, or what they are told to do, that only look."""

READ_ONLY_GIT = (
    "git blame",
    "git describe",
    "git diff",
    "git log",
    "git ls-files",
    "git rev-parse",
    "git show",
    "git status",
)
"""What of git only looks, for users who trust the repositories that their runs work in: `safe_commands=READ_ONLY_GIT`.
`git branch` and `git remote` are not in it, since words behind them make branches and connect."""

_MOST_MATCHES = 1_000
# A path that is absolute, or has `..` in it, wherever in a word it begins.
_LEADS_OUT = re.compile(r"(?:^|[^A-Za-z0-9_.+@%-])/|(?:^|[^A-Za-z0-9_.])\.\.(?:$|[^A-Za-z0-9_.])|^[~@]")
_MATCHES_PARENT = re.compile(r"(?:^|/)\.[^/]*[*?]")
_JQ_READS = re.compile(r"import|include")


def looking(line: Line, root: Path) -> frozenset[int]:
    """Return the positions of those commands of *line* that only look, and only into *root*; call it in a thread.

    Args:
        line: The line.
        root: The working directory, a real path.
    """
    folders = folders_of(line, root)
    if folders is None or not all(_is_inside(root, folder) for folder in folders):
        return frozenset()
    return frozenset(i for i, step in enumerate(line.steps) if _looks(step, root, folders))


def folders_of(line: Line, root: Path) -> tuple[Path, ...] | None:
    """Return every folder that a command of *line* may run in, *root* first; `None` where that cannot be said."""
    folders = [root]
    for step in line.moves:
        target = step.words[0] if step.program == "cd" and len(step.words) == 1 else Word("", "open")
        if target.shape != "exact" or not target.text or target.text.startswith("-"):
            return None
        # Nobody knows which of these happen: one may fail, or stand in a pipe.
        folders += [folder / target.text for folder in folders]
        if len(folders) > _MOST_MATCHES:
            return None
    return tuple(folders)


def _looks(step: Step, root: Path, folders: Sequence[Path]) -> bool:
    if not all(_stays(Word(path), root, folders) for path in step.reads):
        return False
    if not step.program:
        return True
    known = LOOKING.get(step.keys[-1]) if step.keys else None
    if known is None or any(_is_withheld(word.text, known) for word in step.words):
        return False
    match step.program:
        case "hostname":
            return not step.words
        case "date":
            return all(word.shape == "exact" and word.text.startswith(("+", "-")) for word in step.words)
        case "jq" if any(_JQ_READS.search(word.text) for word in step.words):
            return False
        case _:
            return all(_is_harmless(word, known, root, folders) for word in step.words)


def _is_withheld(text: str, known: _Looks) -> bool:
    if text.startswith("--") and len(text) > 2:
        name = text[2:].partition("=")[0]
        return known.letters == "*" or any(each.startswith(name) or name.startswith(each) for each in known.names)
    if text.startswith("-") and len(text) > 1:
        return known.letters == "*" or any(letter in text for letter in known.letters)
    return False


def _is_harmless(word: Word, known: _Looks, root: Path, folders: Sequence[Path]) -> bool:
    if known.text and word.shape in ("exact", "text"):
        return True
    return _stays(word, root, folders)


def _stays(word: Word, root: Path, folders: Sequence[Path]) -> bool:
    """Say whether *word*, read as a path in any of *folders*, leads nowhere outside *root*."""
    text = word.text
    if word.shape not in ("exact", "pattern") or _LEADS_OUT.search(text):
        return False
    if text.startswith("-") and ("/" in text or ".." in text):
        return False
    if word.shape == "pattern":
        return not _MATCHES_PARENT.search(text) and all(_matches_stay(text, root, folder) for folder in folders)
    return all(_is_inside(root, folder / part) for folder in folders for part in _paths(text))


def _paths(text: str) -> Iterator[str]:
    """Yield what of a word may be a path: all of it, or what stands behind an option or a `=`."""
    yield text
    if "=" in text:
        yield text.partition("=")[2]
    if text.startswith("-") and not text.startswith("--"):
        yield from (text[start:] for start in range(2, len(text)))


def _matches_stay(pattern: str, root: Path, folder: Path) -> bool:
    found = list(itertools.islice(glob.iglob(pattern, root_dir=folder), _MOST_MATCHES + 1))  # noqa: PTH207 - has an end
    return len(found) <= _MOST_MATCHES and all(_is_inside(root, folder / name) for name in (pattern, *found))


def _is_inside(root: Path, path: Path) -> bool:
    try:
        real = path.resolve()
    except (OSError, RuntimeError, ValueError):
        return False
    return real == root or root in real.parents
