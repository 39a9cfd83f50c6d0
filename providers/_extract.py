"""Summaries and titles taken from a text itself: the sentences that say most of it, in its own order.

Good enough to read on prose, Markdown, source code and logs, and the same for the same text always.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, final

import msgspec

MAX_TITLE = 80

_Kind: TypeAlias = Literal["nothing", "prose", "item", "field", "log", "code"]
_WORTH: Mapping[_Kind, float] = {"prose": 1.0, "field": 0.8, "log": 0.9, "code": 0.2}

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(\[`]?[A-Z0-9])")
_WORD = re.compile(r"[^\W\d_][\w'-]*")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_MARK = re.compile(r"\*\*|\"\"\"|'''")
# Of several words: a single one between underscores is a name, such as `__init__`.
_STRONG = re.compile(r"(?<!\w)__(?=\S)([^_]*\s[^_]*)(?<=\S)__(?!\w)")
_HEADING = re.compile(r"#{1,6}\s+|//+\s*|/?\*+\s+")
_ITEM = re.compile(r"(?:[-*+•]|\d+[.)])\s+(?:\[[ x]\]\s+)?")
_NOISE = re.compile(r"```|~~~|[-=_*#|:+\s.]+$|\[!\[|<!--|--- .* ---$|\|.*\|$")
_STAMP = re.compile(r"\W{0,2}(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z]{4,8}\b[:\]\s])")
_CODE = re.compile(
    r".*(?:[{};=(,\\]$|\s[-+*/|&]?=\s|\(\)|->|=>|\w\(\w*[=\"'.\[(]|\bself\.)|[@)\]}]"
    r"|(?:import|from|return|def|class|func|fn|const|let|var|public|private|async|await|raise|yield|for|while|if|elif"
    r"|else|try|except|with|finally)\b.*[^.!?]$"
)
_LABEL = re.compile(r"\w+:$")
_FIELD = re.compile(r"[\w`]+: ")
_DIGITS = re.compile(r"\d+")


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TELLING = _word_set(
    """
    critical error errors exception fail failed failing failure fatal missing timeout warning
    """
)
_STOP = _word_set(
    """
    a about above after again all also am an and any are as at be because been before being below between both but
    by can could did do does doing down each either else every few for from further had has have having he her here
    him his how i if in into is it its just let may me more most must my no nor not now of off on once one only or
    other our out over own per please same shall she should so some such than that the their them then there these
    they this those through to too under until up upon us very was we were what when where which while who whom why
    will with within without would you your
    """
)


@final
class _Unit(msgspec.Struct):
    """A sentence, list item, log line or line of code.

    Args:
        text: As it is said.
        place: Its number among the units of the text.
        weight: What its kind and place are worth.
        words: Its words that mean something, lower case.
    """

    text: str
    place: int
    weight: float
    words: frozenset[str]


def extract(text: str, sentences: int) -> str:
    """Return the *sentences* (1 or more) of *text* that say most, one a line, in the order of the text."""
    return "\n".join(unit.text for unit in _best(_units(text), sentences, None))


def summarise(text: str, max_tokens: int) -> str:
    """Return what says most of *text* within *max_tokens* (at four bytes a token), always shorter than the text."""
    limit = min(max_tokens * 4, len(text.encode()) - 1)
    units = _units(text)
    said = "\n".join(unit.text for unit in _best(units, max(len(units) // 2, 1), limit))
    return said or _cut(" ".join(text.split()), limit)


def title(text: str) -> str:
    """Return a title for *text*: its first sentence where that is short, else its key phrases; one line."""
    units = _units(text)
    first = units[0].text if units else " ".join(text.split())
    first = first.rstrip(".!?:;, ")
    if len(first) <= MAX_TITLE:
        return first or "Untitled"
    named = ""
    for phrase in _phrases(first):
        longer = f"{named}, {phrase}" if named else phrase
        named = longer if len(longer) <= MAX_TITLE else named
    return (named or _cut(first, MAX_TITLE)).capitalize() if named.islower() else named or _cut(first, MAX_TITLE)


def words_of(text: str) -> frozenset[str]:
    """Return the words of *text* that mean something, lower case, plural and singular alike."""
    found = (word.lower().removesuffix("'s") for word in _WORD.findall(text.replace("_", " ").replace("-", " ")))
    return frozenset(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in found if word not in _STOP)


# --- units


def _units(text: str) -> list[_Unit]:
    """Return what *text* says, piece by piece; headings, fences and other markup are left out."""
    found: list[tuple[str, float]] = []
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        said, kind = _line(line.strip())
        if paragraph and kind != "prose":
            found.extend((sentence.strip(), _WORTH["prose"]) for sentence in _SENTENCE_END.split(" ".join(paragraph)))
            paragraph.clear()
        if kind in ("prose", "item"):
            paragraph.append(said)
        elif kind != "nothing":
            found.append((said, _WORTH[kind]))
    seen: set[str] = set()
    units: list[_Unit] = []
    for said, weight in found:
        words = words_of(said)
        same = _DIGITS.sub("#", said)
        if words and same not in seen:
            seen.add(same)
            units.append(_Unit(said, len(units), weight, words))
    return units


def _line(line: str) -> tuple[str, _Kind]:
    """Return what *line* says and what it is: an item starts a paragraph, and prose goes on with one."""
    if not line or _NOISE.match(line) or _LABEL.match(line):
        return "", "nothing"
    if _STAMP.match(line):
        return line, "log"
    heading, item = _HEADING.match(line), _ITEM.match(line)
    bare = line[heading.end() :] if heading else line[item.end() :] if item else line
    bare = " ".join(_STRONG.sub(r"\1", _MARK.sub("", _TAG.sub("", _LINK.sub(r"\1", bare)))).split())
    if heading and not bare.endswith((".", "!", "?")):
        return "", "nothing"
    if item:
        return bare, "item"
    if _CODE.match(bare) or not _is_prose(bare):
        return bare, "code"
    return bare, "field" if _FIELD.match(bare) else "prose"


def _is_prose(text: str) -> bool:
    return sum(char.isalpha() or char.isspace() for char in text) >= 0.75 * len(text)


# --- choosing


def _best(units: Sequence[_Unit], count: int, max_bytes: int | None) -> list[_Unit]:
    """Return the best *count* of *units* within *max_bytes*, in the order of the text; none says what another said."""
    frequency = Counter(word for unit in units for word in unit.words)
    scores = {unit.place: _score(unit, frequency, len(units)) for unit in units}
    chosen: list[_Unit] = []
    size = 0
    for unit in sorted(units, key=lambda unit: (-scores[unit.place], unit.place)):
        cost = len(unit.text.encode()) + 1
        if len(chosen) == count:
            break
        if (max_bytes is None or size + cost <= max_bytes) and not any(_alike(unit, other) for other in chosen):
            chosen.append(unit)
            size += cost
    return sorted(chosen, key=lambda unit: unit.place)


def _score(unit: _Unit, frequency: Counter[str], count: int) -> float:
    common = sum(min(frequency[word], 10) for word in unit.words) / math.sqrt(len(unit.words))
    length = min(len(unit.words) / 6, 1.0) * min(30 / len(unit.words), 1.0)
    place = 1.0 - 0.5 * unit.place / count
    telling = 1.5 if unit.words & _TELLING else 1.0
    return common * length * place * telling * unit.weight


def _alike(one: _Unit, other: _Unit) -> bool:
    return len(one.words & other.words) >= 0.7 * len(one.words | other.words)


# --- titles


def _phrases(text: str) -> list[str]:
    """Return runs of words that mean something, the longest of them, in the order of the text."""
    runs: list[list[str]] = [[]]
    for token in re.findall(r"[\w'-]+|[^\w\s]", text):
        if token.lower() in _STOP or not token[0].isalnum():
            runs.append([])
        else:
            runs[-1].append(token)
    phrases = list(dict.fromkeys(" ".join(run[:5]) for run in runs if run))
    longest = sorted(phrases, key=lambda phrase: -len(phrase.split()))[:4]
    longest = [phrase for phrase in longest if " " in phrase] or longest
    return [phrase for phrase in phrases if phrase in longest]


def _cut(text: str, limit: int) -> str:
    """Return the start of *text* within *limit* bytes, at the end of a word where there is one."""
    raw = text.encode()[: max(limit, 0)].decode("utf-8", "ignore")
    if len(raw) == len(text):
        return raw
    return (raw.rpartition(" ")[0] or raw).rstrip(" ,;:")
