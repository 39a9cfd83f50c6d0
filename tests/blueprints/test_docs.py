"""The page on blueprints tells the truth: its examples load, and no key and no finding is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal.blueprints
import shoal.validate
from shoal.blueprints import _codec, _format, _record, check, loads
from shoal.blueprints._seeds import _FORMS

PAGE = Path(__file__).parents[2] / "docs" / "blueprints.md"
TEXT = PAGE.read_text()
_FOLDERS = (shoal.blueprints.__file__, shoal.validate.__file__)
SOURCE = "\n".join(path.read_text() for file in _FOLDERS for path in sorted(Path(file).parent.glob("*.py")))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def keys_of(thing: object, seen: set[int]) -> Iterator[str]:
    """Yield the name of every key that any codec inside *thing* reads."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, _record.Key):
        yield from (thing.name, *thing.also)
        yield from keys_of(thing.codec, seen)
    if isinstance(thing, _record.Fields):
        for key in thing.keys:
            yield from keys_of(key, seen)
    for slot in ("_item", "_record", "_codec"):
        if isinstance(thing, (_codec.ListOf, _codec.MapOf, _codec.Soft, _record.Named)) and hasattr(thing, slot):
            yield from keys_of(getattr(thing, slot), seen)


@pytest.mark.parametrize("text", blocks("toml"), ids=range(len(blocks("toml"))))
def test_each_example_loads(text: str) -> None:
    assert loads(text).stages


def test_the_first_example_has_nothing_to_warn_of(tmp_path: Path) -> None:
    (tmp_path / "blueprint.toml").write_text(blocks("toml")[0])
    assert check(tmp_path)[1] == ()


def test_the_example_in_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("python")[1], {})
    assert loads(capsys.readouterr().out).name == "pair"


def test_the_other_example_in_python_uses_names_that_are_there() -> None:
    names = re.findall(r"blueprints\.(\w+)\(", blocks("python")[0])
    assert len(names) == 6
    assert set(names) <= set(shoal.blueprints.__all__)


def test_every_key_is_in_the_tables() -> None:
    keys = {*keys_of(_format.BLUEPRINT, set()), *(form for form in _FORMS)}
    assert len(keys) > 150
    assert {key for key in keys if not re.search(rf"[`.\[ ]{key}\b", TEXT)} == set()


def test_every_finding_is_in_the_table_and_nothing_else() -> None:
    raised = set(re.findall(r'(?:\b(?:error|soft|warning|note)|_finding|Finding|Syntax|add)\(\s*"([a-z-]+)"', SOURCE))
    raised |= set(re.findall(r'(?:id_(?:: str)? ?= ?|= \(|: \(|NOT_UNDERSTOOD = )"([a-z]+(?:-[a-z]+)+)"', SOURCE))
    listed = set(re.findall(r"`([a-z-]+)`", TEXT[TEXT.index("## Findings") :].split("| says |", 1)[1]))
    ids = {
        one
        for line in TEXT[TEXT.index("## Findings") :].split("\n")
        for one in re.findall(r"`([a-z-]+)`", line.split("|")[1] if line.startswith("|") else "")
    }
    assert raised - ids == set()
    assert ids - raised == set()
    assert ids <= listed
