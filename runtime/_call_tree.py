"""The call tree: what functions called, as the model of one of them is shown it.

A pure function of a run's frames. What is over keeps its line and loses what it said, so that the size follows how deep
the calls are, not how many there were.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, final

import msgspec

from shoal.runtime.context import tagged
from shoal.runtime.state import Frame, Frames

CALL_TREE = "call_tree"
"""Its name as an owner of the prompt, and its tag."""
FOLD = 50
"""How many finished siblings become one line, and how many of those one more; as many of the newest never do."""
_MOST_DRAWN = 512
"""Functions that are over whose lines are kept: a tree shows a hundred or so of one caller, the rest is folded."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_NO_BLOCK = re.compile(r"[^\x20-\x7e\n\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_BREAKS = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


@final
class _Folded(msgspec.Struct, frozen=True):
    """Finished siblings in one line."""

    functions: tuple[tuple[str, int], ...]
    status: tuple[tuple[str, int], ...]


_Line: TypeAlias = "Frame | _Folded"


def call_tree(frames: Frames, asking: int, at: int) -> str:
    """Return the tree as the function of frame *asking* is shown it, by the events in front of event *at*."""
    own = frames.frames[asking]
    path = own.path
    if own.entered.callers == 0:
        path = path[-1:]
    tree = _Tree(frames, own, at)
    return tagged(CALL_TREE, "\n".join(tree.node(frames.frames[path[0]], 0, kept=True)))


@final
class _Tree:
    """One tree that is being drawn.

    Args:
        frames: The frames.
        own: The frame that is shown it.
        at: Only events in front of this one count.
    """

    def __init__(self, frames: Frames, own: Frame, at: int) -> None:
        self._frames = frames
        self._own = own
        self._at = at
        self._shown = self._within_caps()

    def _within_caps(self) -> frozenset[int] | None:
        """Return the finished frames beside the path that may be shown; `None` for all."""
        own = self._own
        callers, subcalls = own.entered.callers, own.entered.subcalls
        if callers is None and subcalls is None:
            return None
        beside = [f.seq for f in self._frames.frames.values() if f.seq < self._at and f.seq not in own.path]
        before = [seq for seq in beside if seq < own.seq]
        since = [seq for seq in beside if seq > own.seq]
        return frozenset((*_newest(before, callers), *_newest(since, subcalls)))

    def node(self, frame: Frame, depth: int, *, kept: bool) -> Iterator[str]:
        """Yield the lines of *frame*; it keeps what it said where *kept* says so."""
        entered, left = frame.entered, frame.left
        running = frame.running_at(self._at)
        below = list(self._below(frame))
        tells = entered.expose in ("io", "full") or frame.seq == self._own.seq
        fields: list[tuple[str, str]] = [("function", _scalar(entered.function))]
        if running and tells:
            said = _said(str(entered.arguments))
            if said:
                fields.append(("input", said))
        elif not running and tells and kept and left is not None:
            output = left[1].key if below else _text(left[1].output)
            if output:
                fields.append(("output", output))
        status = "running" if running or left is None else left[1].status
        fields.append(("status", status))
        pad = "  " * depth
        if not running and len(fields) == 2 and not below:
            yield f"{pad}- {{function: {fields[0][1]}, status: {status}}}"
            return
        for number, (name, value) in enumerate(fields):
            lead = f"{pad}- " if not number else f"{pad}  "
            yield from _field(lead, name, value, plain=name in ("function", "status"))
        if below:
            yield f"{pad}  children:"
            inner = running or (kept and entered.expose == "full")
            for line in folded(below, self._at):
                if isinstance(line, _Folded):
                    yield f"{pad}    - {_fold_line(line)}"
                else:
                    yield from self._lines(line, depth + 2, kept=inner)

    def _lines(self, frame: Frame, depth: int, *, kept: bool) -> Iterable[str]:
        """Return the lines of *frame*; those of one that is over are made once."""
        if self._shown is not None or frame.running_at(self._at) or frame.seq in self._own.path:
            return self.node(frame, depth, kept=kept)
        key = (frame.seq, depth, kept)
        lines = self._frames.drawn.get(key)
        if lines is None:
            lines = self._frames.drawn[key] = tuple(self.node(frame, depth, kept=kept))
            if len(self._frames.drawn) > _MOST_DRAWN:
                del self._frames.drawn[next(iter(self._frames.drawn))]
        return lines

    def _below(self, frame: Frame) -> Iterator[Frame]:
        for seq in frame.below:
            each = self._frames.frames[seq]
            if seq >= self._at:
                return
            if seq in self._own.path or (
                each.entered.expose != "hidden" and (self._shown is None or seq in self._shown)
            ):
                yield each


def _newest(seqs: Sequence[int], most: int | None) -> Sequence[int]:
    return seqs if most is None else seqs[max(0, len(seqs) - most) :]


# --- folding


def folded(siblings: Sequence[Frame], at: int) -> Sequence[_Line]:
    """Return *siblings* with every full run of finished ones as one line, but for the newest."""
    foldable = max(0, len(siblings) - FOLD) // FOLD
    lines: list[_Line] = []
    for number in range(foldable):
        block = siblings[number * FOLD : (number + 1) * FOLD]
        if any(each.running_at(at) for each in block):
            lines.extend(block)
        else:
            lines.append(_fold_of(block))
            _join(lines)
    lines.extend(siblings[foldable * FOLD :])
    return lines


def _fold_of(block: Sequence[Frame]) -> _Folded:
    functions = Counter(each.entered.function for each in block)
    status = Counter(each.left[1].status for each in block if each.left is not None)
    return _Folded(tuple(functions.items()), tuple(status.items()))


def _join(lines: list[_Line]) -> None:
    """Make one line of the newest ones wherever there are enough that stand for equally many."""
    while True:
        size = _size(lines[-1])
        alike = lines[-FOLD:]
        if len(alike) < FOLD or any(_size(each) != size for each in alike):
            return
        functions: Counter[str] = Counter()
        status: Counter[str] = Counter()
        for each in alike:
            assert isinstance(each, _Folded)  # it stands for as many as the newest does
            functions.update(dict(each.functions))
            status.update(dict(each.status))
        lines[-FOLD:] = [_Folded(tuple(functions.items()), tuple(status.items()))]


def _size(line: _Line) -> int:
    return sum(count for _, count in line.status) if isinstance(line, _Folded) else 1


def _fold_line(line: _Folded) -> str:
    functions = ", ".join(f"{_scalar(name)}: {count}" for name, count in line.functions)
    status = ", ".join(f"{name}: {count}" for name, count in line.status)
    return f"{{folded: {_size(line)}, functions: {{{functions}}}, status: {{{status}}}}}"


# --- YAML


def _said(arguments: str) -> str:
    """Return the arguments of a function, one a line."""
    given: dict[str, object] = json.loads(arguments)
    return "\n".join(f"{name}: {_value(value)}" for name, value in given.items())


def _text(output: object) -> str:
    """Return what a function returned: a text as it is, nothing as nothing, all else as JSON."""
    value: object = None if output is None else json.loads(str(output))
    return "" if value is None else _value(value)


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED else _quoted(text)


def _quoted(text: str) -> str:
    """Return *text* in double quotes, on one line; what YAML takes for the end of a line is escaped."""
    return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _field(lead: str, name: str, value: str, *, plain: bool) -> Iterator[str]:
    if plain:
        yield f"{lead}{name}: {value}"
        return
    body = value.rstrip("\n")
    # A block cannot begin with a space or an empty line, and holds no control characters.
    if "\n" not in body or body[0] in " \n" or _NO_BLOCK.search(body):
        yield f"{lead}{name}: {_quoted(value)}"
        return
    yield f"{lead}{name}: |"
    pad = " " * (len(lead) + 2)
    yield from (f"{pad}{line}" if line else "" for line in body.split("\n"))
