"""Schemas for the form of a reply."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ProviderRefused
from shoal.providers._schemas import closed_schema, is_strict


def closed(schema: Any) -> Any:
    return closed_schema(schema, "p", "m")


def test_each_object_is_closed():
    inner = {"type": "object", "properties": {"x": {"type": "string"}}}
    made = closed({"type": "object", "properties": {"a": inner, "b": {"type": "array", "items": inner}}})
    assert made["additionalProperties"] is False
    assert made["properties"]["a"]["additionalProperties"] is False
    assert made["properties"]["b"]["items"]["additionalProperties"] is False


def test_measures_move_into_the_description():
    made = closed({"type": "integer", "minimum": 1, "maximum": 5, "description": "How many"})
    assert made == {"type": "integer", "description": "How many (minimum: 1, maximum: 5)"}
    assert closed({"type": "string", "maxLength": 3}) == {"type": "string", "description": "maxLength: 3"}


def test_only_small_least_counts_of_items_stay():
    assert closed({"type": "array", "minItems": 1}) == {"type": "array", "minItems": 1}
    assert closed({"type": "array", "minItems": 3}) == {"type": "array", "description": "minItems: 3"}


def test_names_of_properties_and_values_are_no_keywords():
    schema = {
        "type": "object",
        "properties": {"minimum": {"type": "string"}, "$ref": {"type": "string"}},
        "enum": [{"minimum": 1}],
        "anyOf": [{"type": "string"}, True],
    }
    made = closed(schema)
    assert set(made["properties"]) == {"minimum", "$ref"}
    assert made["enum"] == [{"minimum": 1}]
    assert made["anyOf"] == [{"type": "string"}, True]


def test_a_reference_within_is_kept():
    schema = {"$defs": {"a": {"type": "string"}}, "type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}}
    assert closed(schema)["properties"]["x"] == {"$ref": "#/$defs/a"}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "https://elsewhere"}, "outside"),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}, "itself"),
        ({"anyOf": [{"$ref": "other.json"}]}, "outside"),
    ],
)
def test_what_cannot_be_written_out_is_refused(schema: Any, problem: str):
    with pytest.raises(ProviderRefused, match=problem):
        closed(schema)


def optional(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(count)}}


def test_a_schema_that_leaves_too_much_open_is_refused():
    listed = {"type": "array", "items": optional(13)}
    with pytest.raises(ProviderRefused, match="26 optional properties"):
        closed({**optional(12), "properties": {**optional(12)["properties"], "x": listed}, "required": []})
    assert closed(optional(24))


def test_what_refers_to_the_same_again_and_again_is_looked_at_once():
    twice = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(64)
    }
    schema = {"$defs": {**twice, "d64": {"type": "string"}}, "$ref": "#/$defs/d0"}
    with pytest.raises(ProviderRefused, match="optional properties"):
        closed_schema(schema, "p", "m")


def test_unions_are_counted_wherever_they_are_referred_to():
    either = {"$defs": {"e": {"anyOf": [{"type": "string"}, {"type": ["integer", "null"]}]}}, "type": "object"}
    names = [f"p{number}" for number in range(9)]
    wide = {**either, "properties": {name: {"$ref": "#/$defs/e"} for name in names}, "required": names}
    with pytest.raises(ProviderRefused, match="18 unions"):
        closed(wide)
    assert closed({**wide, "properties": {name: {"$ref": "#/$defs/e"} for name in names[:8]}})


def test_a_strict_schema_requires_all_and_forbids_more():
    loose = {"type": "object", "properties": {"x": {}}}
    assert not is_strict(loose)
    assert is_strict({**loose, "required": ["x"], "additionalProperties": False})
    assert is_strict({"type": "string"})
