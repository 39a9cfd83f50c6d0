"""What a child is given of its parent's regions, beside its task and seeds: the `[[transforms]]` of the two."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, final

import msgspec

from shoal.blueprints import Blueprint, CallerSeed, Region, TransformMapping
from shoal.errors import SpawnRefused
from shoal.runtime._words import is_own_word
from shoal.runtime.context import RegionState
from shoal.runtime.state import RunState
from shoal.runtime.tools import parse_json


@final
class Carried(msgspec.Struct, frozen=True, gc=False):
    """A text that a child's *region* is to hold when it begins, and the region of its parent that it comes from.

    *summarize* says that the text is still to be summarised.
    """

    region: str
    source: str
    text: str
    summarize: bool = False


def carried(parent: RunState, child: Blueprint, regions: Mapping[str, Region]) -> tuple[Carried, ...]:
    """Return what a child of *parent* is given by the transforms of both; empty regions give nothing.

    Args:
        parent: The parent.
        child: The child's blueprint.
        regions: Every region that the child has.

    Raises:
        SpawnRefused: A transform names a region that one of the two does not have.
    """
    mine = parent.program.blueprint
    mappings = [
        mapping
        for transform in (*mine.transforms, *(child.transforms if child is not mine else ()))
        if (transform.from_blueprint, transform.to_blueprint) == (mine.name, child.name)
        for mapping in transform.mappings
    ]
    return tuple(_all(parent, child, regions, mappings))


def _all(
    parent: RunState, child: Blueprint, regions: Mapping[str, Region], mappings: Sequence[TransformMapping]
) -> Iterator[Carried]:
    for mapping in mappings:
        held = parent.view.states.get(mapping.from_region)
        target = regions.get(mapping.to_region)
        if held is None or target is None:
            mine = parent.program.blueprint.name
            whose, name = (mine, mapping.from_region) if held is None else (child.name, mapping.to_region)
            raise SpawnRefused(
                f"a transform from {mine!r} to {child.name!r} names the region {name!r}, which {whose!r} does not "
                "have; name one of its regions"
            )
        text = _extracted(held, mapping.fields) if mapping.transform == "extract" else text_of(held)
        if text:
            yield Carried(mapping.to_region, mapping.from_region, text, mapping.transform == "summarize")


def as_seeds(given: Sequence[Carried], regions: Mapping[str, Region]) -> tuple[dict[str, str], tuple[Carried, ...]]:
    """Return what of *given* are values that the child's caller may give, by name, and the rest."""
    seeds: dict[str, str] = {}
    rest: list[Carried] = []
    for each in given:
        seed = regions[each.region].seed
        if isinstance(seed, CallerSeed):
            seeds[seed.name] = each.text
        else:
            rest.append(each)
    return seeds, tuple(rest)


def text_of(state: RegionState, *, own_words: bool = True) -> str:
    """Return what a region holds, an entry or an item a line; without *own_words* not what the runtime said itself."""
    items = [str(item.text) for item in state.items.values()]
    return "\n".join([*(e.text for e in state.all_entries() if own_words or not is_own_word(e)), *items])


def _extracted(state: RegionState, fields: Sequence[str]) -> str:
    """Return *fields* of the newest entry that is a JSON object, as JSON; empty where there is nothing of them."""
    for entry in reversed(list(state.all_entries())):
        try:
            parsed = parse_json(entry.text)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            values = cast("dict[str, Any]", parsed)
            found = {name: values[name] for name in fields if name in values}
            return json.dumps(found, ensure_ascii=False) if found else ""
    return ""
