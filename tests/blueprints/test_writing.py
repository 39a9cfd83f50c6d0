"""What is written is read back as the same value: as TOML, and as canonical bytes."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import tomli
from bits import DATA, HEAD
from drawn import EVERYTHING, blueprints
from hypothesis import given

import shoal.blueprints
from shoal.blueprints import (
    Blueprint,
    Budget,
    Finding,
    ModelSettings,
    OutputSpec,
    Region,
    Stage,
    canonical,
    dumps,
    from_canonical,
    loads,
    validate,
)
from shoal.errors import BlueprintInvalid


def values_in(value: object) -> Iterator[Any]:
    """Yield every value of the model inside *value*."""
    if dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from values_in(getattr(value, field.name))
    elif isinstance(value, (tuple, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from values_in(inner)


def test_the_full_example_sets_every_field_of_every_value() -> None:
    set_ = {
        (type(value).__name__, field.name)
        for value in values_in(EVERYTHING)
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    }
    types = [vars(shoal.blueprints)[name] for name in shoal.blueprints.__all__ if name[0].isupper()]
    every = {
        (type_.__name__, field.name)
        for type_ in types
        if dataclasses.is_dataclass(type_) and type_ is not Finding
        for field in dataclasses.fields(type_)
    }
    assert every - set_ == {("Blueprint", "folder")}


def test_the_full_example_is_written_as_committed() -> None:
    """To renew the file: write `dumps(EVERYTHING)` to it, and look at the difference."""
    assert dumps(EVERYTHING) == (DATA / "everything.toml").read_text()


def test_the_full_example_is_valid_and_read_back() -> None:
    assert [one for one in validate(EVERYTHING) if one.severity == "error"] == []
    assert loads(dumps(EVERYTHING)) == EVERYTHING


@pytest.mark.wall_limit(300)
@given(blueprints())
def test_a_valid_blueprint_has_no_errors_and_is_read_back_from_its_text(blueprint: Blueprint) -> None:
    assert [str(one) for one in validate(blueprint) if one.severity == "error"] == []
    again = loads(dumps(blueprint))
    assert again == blueprint
    assert canonical(again) == canonical(blueprint)  # the order of keys in free tables too


@pytest.mark.wall_limit(300)
@given(blueprints())
def test_what_is_written_is_toml_of_the_older_version_too(blueprint: Blueprint) -> None:
    text = dumps(blueprint)
    assert tomllib.loads(text) == tomli.loads(text)


@pytest.mark.wall_limit(300)
@given(blueprints())
def test_canonical_bytes_give_the_blueprint_back_and_themselves(blueprint: Blueprint) -> None:
    data = canonical(blueprint)
    again = from_canonical(data)
    assert again == blueprint
    assert canonical(again) == data
    assert data.isascii()


# --- TOML


def test_a_long_text_stands_over_lines_where_an_editor_would_keep_it() -> None:
    text = dumps(Blueprint("trial", (Stage("s", system_prompt='One.\n\tTwo "three" """four"""\\five"'),)))
    assert 'system_prompt = """\nOne.\n\tTwo "three" \\"\\""four\\"\\""\\\\five\\""""' in text
    blanks = dumps(Blueprint("trial", (Stage("s", system_prompt="ends in blanks  \nhere"),)))
    assert 'system_prompt = "ends in blanks  \\nhere"' in blanks


@pytest.mark.parametrize(
    "prompt", ['"', '""', '"""', '""""', '\n"', '"\n""', "\r\n", "\x00\n\x7f", "\n\n", "a\\\nb", "\u2028\n"]
)
def test_every_odd_text_survives(prompt: str) -> None:
    blueprint = Blueprint("trial", (Stage("s", system_prompt=prompt),))
    assert loads(dumps(blueprint)) == blueprint


def test_a_long_list_stands_over_lines() -> None:
    tools = tuple(f"a_tool_with_the_number_{number}" for number in range(6))
    text = dumps(Blueprint("trial", (Stage("s", available_tools=tools),)))
    assert 'available_tools = [\n    "a_tool_with_the_number_0",\n' in text


def test_tables_in_a_free_table_get_headers_only_where_that_keeps_the_order() -> None:
    long = {"description": "x" * 100, "type": "object"}
    in_order = {"type": "object", "properties": {"a": long, "b": {}}}
    out_of_order = {"properties": {"a": long}, "type": "object"}
    stages = tuple(
        Stage(name, output=OutputSpec(schema=schema)) for name, schema in (("a", in_order), ("b", out_of_order))
    )
    blueprint = Blueprint("trial", stages)
    text = dumps(blueprint)
    assert "[stages.a.output.schema.properties.a]" in text
    assert "schema = { properties = { a = {" in text
    assert canonical(loads(text)) == canonical(blueprint)


def test_the_folder_is_not_written(tmp_path: Path) -> None:
    blueprint = loads(HEAD, folder=tmp_path)
    assert blueprint.folder == tmp_path
    assert loads(dumps(blueprint)) == dataclasses.replace(blueprint, folder=None)


def test_what_no_file_can_hold_is_not_written() -> None:
    with pytest.raises(BlueprintInvalid, match="the blueprint cannot be written") as refused:
        dumps(Blueprint("trial", (Stage("s", max_iterations=-1),)))
    assert [one.key for one in refused.value.findings] == ["stages.s.max_iterations"]
    with pytest.raises(BlueprintInvalid, match="`budget` is '3500%'"):
        dumps(Blueprint("trial", (Stage("s"),), regions=(Region("r", budget=35),)))


# --- canonical bytes


def test_canonical_bytes_do_not_depend_on_the_folder(tmp_path: Path) -> None:
    here, nowhere = loads(HEAD, folder=tmp_path), loads(HEAD)
    assert canonical(here) == canonical(nowhere)
    assert from_canonical(canonical(here), folder=tmp_path) == here


def test_canonical_bytes_hold_every_field_so_that_later_defaults_change_nothing() -> None:
    document = json.loads(canonical(Blueprint("trial", (Stage("s"),), regions=(Region("r"),))))
    assert document["format"] == 1
    assert document["blueprint"]["regions"][0].keys() == {field.name for field in dataclasses.fields(Region)}


def test_equal_numbers_give_equal_bytes() -> None:
    one, other = (Blueprint("t", (Stage("s"),), budget=Budget(max_wall_s=wall)) for wall in (60, 60.0))
    assert one == other
    assert canonical(one) == canonical(other)


def test_a_field_that_an_older_version_did_not_have_keeps_its_default() -> None:
    document = json.loads(canonical(EVERYTHING))
    del document["blueprint"]["budget"]["max_wall_s"]
    assert from_canonical(json.dumps(document).encode()).budget.max_wall_s is None


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"blueprint": {}},
        {"blueprint": []},
        {"blueprint": {"name": 5, "stages": []}},
        {"blueprint": {"name": "x", "stages": {}}},
        {"blueprint": {"name": "x", "stages": [], "later": 1}},
        {"blueprint": {"name": "x", "stages": [], "tool_list": "both"}},
        {"blueprint": {"name": "x", "stages": [], "tool_permissions": []}},
        {"blueprint": {"name": "x", "stages": [], "budget": {"max_cost_usd": "much"}}},
        {"blueprint": {"name": "x", "stages": [], "regions": [{"name": "r", "seed": {"form": "Odd"}}]}},
    ],
)
def test_bytes_that_are_no_blueprint_are_refused(change: dict[str, object]) -> None:
    document = json.loads(canonical(Blueprint("trial", (Stage("s"),)))) | change
    with pytest.raises(BlueprintInvalid):
        from_canonical(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"format": 1}'])
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    with pytest.raises(BlueprintInvalid, match="no canonical blueprint"):
        from_canonical(data)


def test_an_amount_keeps_its_digits() -> None:
    exact = Decimal("0.12345678901234567890")
    blueprint = Blueprint("trial", (Stage("s"),), budget=Budget(max_cost_usd=exact))
    assert loads(dumps(blueprint)).budget.max_cost_usd == exact
    assert from_canonical(canonical(blueprint)).budget.max_cost_usd == exact


def test_settings_without_candidates_are_kept() -> None:
    blueprint = Blueprint("trial", (Stage("s", model=ModelSettings()),))
    assert loads(dumps(blueprint)) == blueprint
