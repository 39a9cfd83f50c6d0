"""What is wrong with a document or a value: problems, collected while it is read, named by key path."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time
from typing import Literal, NamedTuple, TypeAlias, final

from shoal.blueprints._model import Finding
from shoal.blueprints._toml import At, Document, Path

Severity: TypeAlias = Literal["error", "warning", "note"]

# Looking for the nearest name costs 0.1 ms; a hostile file would ask for it a hundred thousand times.
_MOST_HINTS = 100
_MOST_SHOWN = 60
_MOST_LISTED = 50
# Checks name a key by its first spelling, whatever the file wrote.
_SPELLINGS: Mapping[str | int, tuple[str, ...]] = {
    "directives": ("followups",),
    "options": ("choices",),
    "pinned": ("persistent",),
    "script": ("rhai",),
    "stuck_after_minutes": ("stuck_after_s",),
}
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STEP = re.compile(r'\[(?P<index>[0-9]+)\]|\.?(?:(?P<plain>[A-Za-z0-9_-]+)|(?P<quoted>"(?:[^"\\]|\\.)*"))')


class Problem(NamedTuple):
    """A finding before it has a place. *path* is spelled as in a file; *at* says which half of the pair is meant."""

    id: str
    severity: Severity
    path: Path
    message: str
    at: At = "value"


@final
class Report:
    """Collects the problems of one blueprint.

    Args:
        peer: The file is an `agent.leviath`: what its own runtime lets pass is a warning.
    """

    __slots__ = ("_hints", "_spoiled", "peer", "problems")

    def __init__(self, *, peer: bool = False) -> None:
        self.peer = peer
        self.problems: list[Problem] = []
        self._spoiled: set[Path] = set()
        self._hints = _MOST_HINTS

    @property
    def failed(self) -> bool:
        """Whether there is any error so far."""
        return any(problem.severity == "error" for problem in self.problems)

    def error(self, id_: str, path: Path, message: str, *, at: At = "value", about: Iterable[Path] = ()) -> None:
        """Add an error at *path*, unless *path* or one of *about* was not readable in the first place."""
        self._add(Problem(id_, "error", path, message, at), about)

    def soft(self, id_: str, path: Path, message: str, *, at: At = "value", about: Iterable[Path] = ()) -> None:
        """Add what is an error here and passes in the other runtime: there it is a warning."""
        self._add(Problem(id_, "warning" if self.peer else "error", path, message, at), about)

    def warning(self, id_: str, path: Path, message: str, *, at: At = "value") -> None:
        """Add a warning at *path*."""
        self._add(Problem(id_, "warning", path, message, at), ())

    def note(self, id_: str, path: Path, message: str, *, at: At = "value") -> None:
        """Add a note at *path*."""
        self._add(Problem(id_, "note", path, message, at), ())

    def soften(self, since: int) -> None:
        """Make warnings of the problems after the first *since*, in a file whose own runtime lets them pass."""
        if self.peer:
            self.problems[since:] = [problem._replace(severity="warning") for problem in self.problems[since:]]

    def spoil(self) -> None:
        """Take what failed so far as unreadable: later checks stay silent about it, instead of blaming its stand-in."""
        self._spoiled = {problem.path for problem in self.problems if problem.severity == "error"}

    def spoiled(self, path: Path) -> bool:
        """Say whether *path*, or what encloses it, was unreadable."""
        return any(path[:length] in self._spoiled for length in range(1, len(path) + 1)) if self._spoiled else False

    def spoiled_where(self, concerns: Callable[[Path], bool]) -> bool:
        """Say whether a path that was unreadable *concerns* what is to be checked."""
        return any(map(concerns, self._spoiled))

    def near(self, name: str, known: Iterable[str]) -> str:
        """Return ` (did you mean ...?)` with the nearest of *known*, or nothing where none is near."""
        self._hints -= 1
        return hint(name, known) if self._hints >= 0 else ""

    def _add(self, problem: Problem, about: Iterable[Path]) -> None:
        if not any(self.spoiled(path) for path in (problem.path, *about)):
            self.problems.append(problem)


def hint(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest of *known*, or nothing where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean `{near[0]}`?)" if near else ""


def listed(names: Iterable[str]) -> str:
    """Return *names* in backticks, with commas; `nothing` for none. A very long list is cut."""
    quoted = [f"`{name}`" for name in names]
    more = [f"{len(quoted) - _MOST_LISTED} more"] if len(quoted) > _MOST_LISTED else []
    return ", ".join([*quoted[:_MOST_LISTED], *more]) or "nothing"


def shown(value: object) -> str:
    """Return *value* and what it is, short enough for a message."""
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
        case date() | time():
            return f"the date or time {value.isoformat()}"
        case _:
            text = repr(value)
            return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def key_path(path: Path) -> str:
    """Return *path* as a file would name it, such as `stages.review.available_tools[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part if _PLAIN_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{plain}" if text else plain
    return text


def path_of(key: str) -> Path:
    """Return the path that `key_path` wrote as *key*."""
    path: Path = ()
    for step in _STEP.finditer(key):
        if step["index"] is not None:
            path = (*path, int(step["index"]))
        else:
            path = (*path, step["plain"] or json.loads(step["quoted"]))
    return path


def findings(
    problems: Iterable[Problem], *, file: str | None = None, document: Document | None = None
) -> tuple[Finding, ...]:
    """Return *problems* as findings; with a *document* they have places and stand in the order of the file."""
    found = [_finding(problem, file, document) for problem in problems]
    return tuple(sorted(found, key=lambda finding: (finding.line or 0, finding.column or 0)))


def _finding(problem: Problem, file: str | None, document: Document | None) -> Finding:
    path = problem.path if document is None else _spelled(problem.path, document)
    line, column = (None, None) if document is None else document.place(path, problem.at)
    return Finding(problem.id, problem.severity, problem.message, file, line, column, key_path(path) or None)


def _spelled(path: Path, document: Document) -> Path:
    """Return *path* as *document* spells it, where that is another spelling."""
    at: Path = ()
    for part in path:
        spellings = [(*at, name) for name in (part, *_SPELLINGS.get(part, ()))]
        at = next((one for one in spellings if one in document.spots), spellings[0])
    return at
