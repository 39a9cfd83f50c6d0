"""Functions as tools: the schema of a signature, the values that arrive, and what comes back."""

from __future__ import annotations

import datetime as dt
import enum
import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from toolkit import called, read

from shoal.errors import ToolInvalid
from shoal.providers import Text
from shoal.runtime import Effects, FunctionTool, Tool, ToolResult, tool
from shoal.runtime.tools import as_tool, source_digest

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(pydantic.BaseModel):
    """Where something is."""

    name: str
    depth: int = 0


@dataclass
class Pair:
    left: int
    right: str


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON schema of each parameter of *function*."""
    found: dict[str, Any] = dict(as_tool(function).schema["properties"])
    return found


# --- schemas


async def test_a_function_is_a_tool_of_its_name_with_its_docstring(tmp_path: Path):
    @tool
    async def look_up(word: str) -> str:
        """Look a word up.

        It knows few words.

        Args:
            word: The word, in lower case.
        """
        return f"{word}: unknown"

    made = look_up.tool
    assert (made.name, made.description) == ("look_up", "Look a word up.\n\nIt knows few words.")
    assert made.schema == {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "The word, in lower case."}},
        "required": ["word"],
        "additionalProperties": False,
    }
    assert read(await called(made, tmp_path, word="shoal")) == "shoal: unknown"


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (Any, {}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (Annotated[int, pydantic.Field(gt=0)], {"exclusiveMinimum": 0, "type": "integer"}),
        (dt.date, {"format": "date", "type": "string"}),
        (Place, {"$ref": "#/$defs/Place"}),
        (Colour, {"$ref": "#/$defs/Colour"}),
    ],
)
def test_a_type_has_its_schema(hint: object, schema: dict[str, Any]):
    async def take(value: object) -> None: ...

    take.__annotations__["value"] = hint
    assert properties(take) == {"value": schema}


def test_a_parameter_with_a_default_may_be_left_out():
    async def take(needed: str, count: int = 3, name: str | None = None) -> None: ...

    made = as_tool(take)
    assert made.schema["required"] == ["needed"]
    assert properties(take)["count"] == {"default": 3, "type": "integer"}
    assert properties(take)["name"]["default"] is None


def test_a_function_without_parameters_takes_an_empty_object():
    async def nothing() -> None: ...

    assert as_tool(nothing).schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_what_an_annotation_says_of_a_parameter_goes_before_the_docstring():
    async def take(one: Annotated[int, pydantic.Field(description="mine")], two: int) -> None:
        """Take.

        Args:
            one: Theirs.
            two: Theirs.
        """

    assert [each["description"] for each in properties(take).values()] == ["mine", "Theirs."]


@pytest.mark.parametrize(
    "name", ["schema", "json", "copy", "model_config", "model_fields", "_hidden", "class_", "dict"]
)
async def test_a_parameter_may_have_any_name(tmp_path: Path, name: str):
    scope: dict[str, Any] = {}
    exec(f"async def take({name}: int, other: int = 2) -> str:\n    return f'{{{name}}} {{other}}'", scope)
    made = as_tool(scope["take"])
    assert made.schema["required"] == [name]
    assert read(await called(made, tmp_path, **{name: 1})) == "1 2"


async def sync(value: int) -> None: ...


def plain(value: int) -> None: ...


async def variadic(*values: int) -> None: ...


async def keywords(**values: int) -> None: ...


async def positional(value: int, /) -> None: ...


async def bare(value) -> None: ...  # type: ignore[no-untyped-def]


async def callback(value: Callable[[], None]) -> None: ...


async def unknown(value: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821


async def arbitrary(value: Event) -> None: ...  # type: ignore[name-defined] # noqa: F821


async def generates(value: int) -> Any:
    yield value


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (plain, "'plain' is not an async function"),
        (len, "'len' is not an async function"),
        (generates, "'generates' is not an async function"),
        (functools.partial(sync, 1), "is not an async function"),
        (Place, "'Place' is not an async function"),
        (variadic, r"'variadic' takes `\*values: .*`; a tool's parameters need a name each"),
        (keywords, r"'keywords' takes `\*\*values"),
        (positional, "'positional' takes `value"),
        (bare, "'bare' says no type for `value`"),
        (callback, "'callback' has a parameter that no JSON schema can say"),
        (unknown, "'unknown' has an annotation that means nothing where it stands: name 'Nowhere' is not defined"),
    ],
)
def test_what_can_be_no_tool_is_refused_with_the_reason(function: Any, why: str):
    with pytest.raises(ToolInvalid, match=why):
        as_tool(function)


def test_a_type_that_no_schema_can_say_is_refused():
    async def take(value: object) -> None: ...

    take.__annotations__["value"] = msgspec.Raw
    with pytest.raises(ToolInvalid, match="no JSON schema can say"):
        as_tool(take)


@pytest.mark.parametrize("name", ["", "with space", "dots.in", "é", "x" * 65, "bash"])
def test_a_name_that_no_vendor_takes_is_refused(name: str):
    with pytest.raises(ToolInvalid, match="is no name for a tool"):
        tool(name=name)(sync)


@pytest.mark.parametrize("schema", [{"enum": {1, 2}}, {"default": object()}, {(1, 2): 3}])
def test_a_schema_that_is_no_json_is_refused(schema: Any):
    with pytest.raises(ToolInvalid, match="the schema of the tool `look` is no JSON"):
        Tool("look", "Look.", schema, None)


def test_name_and_description_may_be_given():
    made = tool(name="other", description="Says more.", permission="ask", writes=True)(sync).tool
    assert (made.name, made.description, made.permission) == ("other", "Says more.", "ask")
    assert made.effects == Effects(writes=True)
    assert tool(description="")(sync).tool.description == ""


def test_a_bare_function_is_allowed_and_without_declared_effects():
    made = as_tool(sync)
    assert (made.permission, made.effects) == ("allow", Effects())


def test_a_tool_that_is_made_already_is_taken_as_it_is():
    made = tool(sync)
    assert as_tool(made) is made.tool
    assert as_tool(made.tool) is made.tool


async def test_a_function_that_is_a_tool_is_called_as_before():
    @tool
    async def double(value: int, *, plus: int = 0) -> int:
        """Double it."""
        return 2 * value + plus

    assert await double(4, plus=1) == 9
    assert (double.__name__, double.__doc__, str(inspect.signature(double))) == (
        "double",
        "Double it.",
        "(value: 'int', *, plus: 'int' = 0) -> 'int'",
    )
    assert repr(double) == "<FunctionTool double>"


async def test_a_method_may_be_a_tool(tmp_path: Path):
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        async def add(self, by: int) -> int:
            self.count += by
            return self.count

    counter = Counter()
    assert read(await called(as_tool(counter.add), tmp_path, by=3)) == "3"
    assert counter.count == 3


async def test_a_wrapped_function_shows_what_it_wraps(tmp_path: Path):
    async def inner(value: int) -> str:
        """Say it."""
        return str(value)

    @functools.wraps(inner)
    async def outer(*args: Any, **kwargs: Any) -> str:
        return "<" + await inner(*args, **kwargs) + ">"

    made = as_tool(outer)
    assert (made.name, list(made.schema["properties"])) == ("inner", ["value"])
    assert read(await called(made, tmp_path, value=1)) == "<1>"


@pytest.mark.parametrize(
    ("effects", "repeatable"),
    [
        (Effects(), False),
        (Effects(reads=True), True),
        (Effects(reads=True, writes=True), False),
        (Effects(reads=True, network=True), False),
        (Effects(reads=True, asks_human=True), False),
        (Effects(writes=True, idempotent=True), True),
        (Effects(reads=True, idempotent=False), False),
    ],
)
def test_only_what_does_no_harm_is_called_again(effects: Effects, repeatable: bool):
    assert effects.repeatable == repeatable


# --- values


async def test_values_arrive_as_what_the_signature_asks_for(tmp_path: Path):
    seen: list[object] = []

    async def take(day: dt.date, place: Place, colour: Colour, pairs: list[tuple[int, str]]) -> None:
        seen.extend([day, place, colour, pairs])

    given = {"day": "2026-01-02", "place": {"name": "here"}, "colour": "blue", "pairs": [[1, "a"]]}
    await called(as_tool(take), tmp_path, **given)
    assert seen == [dt.date(2026, 1, 2), Place(name="here"), Colour.BLUE, [(1, "a")]]


async def test_a_default_is_the_functions_own_object(tmp_path: Path):
    seen: list[object] = []
    default: list[int] = []

    async def take(values: list[int] = default) -> None:
        seen.append(values)

    await called(as_tool(take), tmp_path)
    assert seen[0] is default


async def test_values_that_the_schema_let_pass_and_the_type_does_not_are_listed(tmp_path: Path):
    async def take(day: dt.date, place: Place) -> None: ...

    result = await called(as_tool(take), tmp_path, day="tomorrow", place={"name": 3})
    assert result.is_error
    assert read(result).startswith("[error] the arguments are wrong: day: Input should be a valid date")
    assert "; place/name: Input should be a valid string" in read(result)
    assert "pydantic" not in read(result)


# --- results


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("plain text", "plain text"),
        ("", ""),
        (None, ""),
        (0, "0"),
        (False, "false"),
        (1.5, "1.5"),
        (Decimal("1.10"), '"1.10"'),
        ([1, "a", None], '[1,"a",null]'),
        ({"a": {"b": (1, 2)}}, '{"a":{"b":[1,2]}}'),
        ({1}, "[1]"),
        (dt.date(2026, 1, 2), '"2026-01-02"'),
        (Colour.RED, '"red"'),
        (Pair(1, "b"), '{"left":1,"right":"b"}'),
        (Place(name="here"), '{"name":"here","depth":0}'),
        ([Place(name="here")], '[{"name":"here","depth":0}]'),
        (Path("a/b"), '"a/b"'),
        (Text.of("held “text”"), "held “text”"),
        ("half \ud800", "half \ufffd"),
        (["half \udcff"], '["half \\udcff"]'),
    ],
)
async def test_whatever_a_function_returns_is_text_for_the_model(tmp_path: Path, returned: object, text: str):
    async def give() -> object:
        return returned

    result = await called(as_tool(give), tmp_path)
    assert (read(result), result.is_error) == (text, False)


async def test_a_function_may_return_a_result_of_its_own(tmp_path: Path):
    async def give() -> ToolResult:
        return ToolResult.of("text", note="and a note")

    assert read(await called(as_tool(give), tmp_path)) == "text\nand a note"


@pytest.mark.parametrize("returned", [object(), [object()], lambda: None])
async def test_what_no_json_can_say_is_an_error_of_the_function(tmp_path: Path, returned: object):
    async def give() -> object:
        return returned

    with pytest.raises(TypeError, match="which JSON cannot say; return text or plain values"):
        await called(as_tool(give), tmp_path)


async def test_what_a_function_raises_passes_through(tmp_path: Path):
    async def fail() -> None:
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError):
        await called(as_tool(fail), tmp_path)


def test_an_error_says_so_to_the_model():
    assert (str(ToolResult.error("it broke").text), ToolResult.error("x").is_error) == ("[error] it broke", True)


# --- what the journal and the request hold


def test_a_tool_says_where_its_source_is_and_what_it_was():
    made = as_tool(sync)
    assert made.source == (f"{__name__}:sync", source_digest(sync))


def test_another_source_has_another_digest():
    assert source_digest(sync) != source_digest(plain)
    assert len(source_digest(sync)) == 16


def test_a_function_without_a_source_has_the_digest_of_its_code():
    scope: dict[str, Any] = {}
    exec("async def one(): return 1\nasync def two(a): return a", scope)
    assert source_digest(scope["one"]) != source_digest(scope["two"])


def test_the_schema_of_a_request_is_the_same_bytes_every_time():
    one, other = (as_tool(sync) for _ in range(2))
    assert one.spec.schema == other.spec.schema
    assert one.spec.schema == json.dumps(one.schema, sort_keys=True, separators=(",", ":")).encode()


def test_a_tool_knows_about_what_it_costs():
    framed = b'{"name":"sync","description":"","input_schema":%b}' % as_tool(sync).spec.schema
    assert as_tool(sync).tokens == pytest.approx(len(framed) / 4, abs=1)


def test_a_function_tool_keeps_its_type():
    assert isinstance(tool(sync), FunctionTool)
    assert isinstance(tool(reads=True)(sync), FunctionTool)
