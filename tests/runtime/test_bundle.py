"""What the journal keeps of a run's definition, so that nothing of it is looked up in files again."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from shoal.blueprints import Blueprint, FanOut, Stage
from shoal.errors import BlueprintInvalid, DefinitionMissing
from shoal.runtime import tool
from shoal.runtime._bundle import Bundle, bundle_of, definition_of, read_definition


def hands_to(name: str, *workers: str, folder: bool = True) -> Blueprint:
    """Return a blueprint whose stages hand work to *workers*."""
    stages = [Stage(f"s{n}", mode="fan_out", fan_out=FanOut(worker_agent=worker)) for n, worker in enumerate(workers)]
    return Blueprint(name, (Stage("first"), *stages), folder=Path("/agents") / name if folder else None)


class Library:
    """Blueprints by name, and what was asked of it."""

    def __init__(self, *known: Blueprint) -> None:
        self.known = {each.name: each for each in known}
        self.asked: list[tuple[str, Path | None]] = []

    def load(self, name: str, base: Path | None) -> Blueprint:
        self.asked.append((name, base))
        return self.known[name]


def tree(bundle: Bundle) -> object:
    """Return the names of a bundle's workers, and theirs."""
    return {name: tree(worker) for name, worker in bundle.workers.items()}


def test_a_blueprint_without_workers_is_alone():
    library = Library()
    assert tree(bundle_of(hands_to("a"), library.load)) == {}
    assert library.asked == []


def test_workers_and_their_workers_are_loaded_from_the_folder_that_names_them():
    library = Library(hands_to("b", "c"), hands_to("c"))
    assert tree(bundle_of(hands_to("a", "b"), library.load)) == {"b": {"c": {}}}
    assert library.asked == [("b", Path("/agents/a")), ("c", Path("/agents/b"))]


def test_a_worker_that_two_stages_name_is_loaded_once():
    library = Library(hands_to("b"))
    assert tree(bundle_of(hands_to("a", "b", "b"), library.load)) == {"b": {}}
    assert len(library.asked) == 1


def test_a_blueprint_without_a_folder_has_workers_too():
    library = Library(hands_to("b", folder=False))
    assert tree(bundle_of(hands_to("a", "b", folder=False), library.load)) == {"b": {}}
    assert library.asked == [("b", None)]


@pytest.mark.parametrize("way", [("a",), ("b", "a"), ("b", "c", "a"), ("b", "c", "b")])
def test_a_blueprint_that_hands_work_back_has_a_bundle_with_an_end(way: tuple[str, ...]):
    steps = ("a", *way)
    library = Library(*[hands_to(name, following) for name, following in pairwise(steps)])
    bundle = bundle_of(library.known["a"], library.load)
    assert len(json.dumps(tree(bundle))) < 100


def test_a_worker_that_cannot_be_loaded_says_so():
    def fail(name: str, base: Path | None) -> Blueprint:
        raise BlueprintInvalid(f"{name} is no blueprint")

    with pytest.raises(BlueprintInvalid, match="b is no blueprint"):
        bundle_of(hands_to("a", "b"), fail)


@tool
async def look(word: str) -> str:
    """Look."""
    return word


def test_a_definition_gives_back_what_it_was_made_of():
    library = Library(hands_to("b", "c"), hands_to("c"))
    made = bundle_of(hands_to("a", "b"), library.load)
    read, tools = read_definition(definition_of(made, [look.tool]))
    assert (read.blueprint, tree(read)) == (made.blueprint, {"b": {"c": {}}})
    assert read.workers["b"].workers["c"].blueprint == library.known["c"]
    assert [(each["name"], each["description"], each["schema"]) for each in tools] == [
        ("look", "Look.", look.tool.schema)
    ]


@pytest.mark.parametrize("folder", [None, Path("/agents/a"), Path("/agents/\udcff")])
def test_a_definition_knows_the_folder_of_its_blueprint(folder: Path | None):
    made = Blueprint("a", (Stage("one"),), folder=folder)
    assert read_definition(definition_of(Bundle(made), []))[0].blueprint.folder == folder


def test_the_same_definition_has_the_same_bytes():
    made = [definition_of(bundle_of(hands_to("a", "b"), Library(hands_to("b")).load), [look.tool]) for _ in range(2)]
    assert made[0] == made[1]
    assert json.loads(made[0])["format"] == 1


def test_a_definition_of_a_newer_format_is_refused_by_its_number():
    newer = definition_of(Bundle(hands_to("a")), []).replace(b'"format":1', b'"format":2')
    with pytest.raises(DefinitionMissing, match="has format 2; this version reads 1 to 1"):
        read_definition(newer)


DAMAGED = [b"", b"{", b"[]", b"{}", b'{"format": 1}', b'{"format":1,"blueprint":7,"folder":null,"workers":{}}']


@pytest.mark.parametrize("data", DAMAGED)
def test_a_definition_that_is_damaged_is_refused(data: bytes):
    with pytest.raises(DefinitionMissing, match="definition is damaged"):
        read_definition(data)
