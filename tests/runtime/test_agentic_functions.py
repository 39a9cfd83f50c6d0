"""How agentic functions are declared, and what their arguments and results become."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import typing
from typing import Any

import pytest
from agentkit import called

import shoal
from shoal.errors import ConfigInvalid, SpawnRefused, ToolInvalid
from shoal.runtime import AgenticFunction
from shoal.runtime._asked import offered
from shoal.testing import ScriptedProvider

if typing.TYPE_CHECKING:
    from shoal import Context

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    """A colour."""

    RED = "red"


@dataclasses.dataclass(frozen=True)
class Job:
    """Something to do."""

    name: str
    due: dt.date


@shoal.agentic
async def kinds(ctx: Context, job: Job, colour: Colour = Colour.RED, /, *, counts: tuple[int, ...] = ()) -> list[Any]:
    """Say what it is given."""
    return [type(job).__name__, job.due.year, type(colour).__name__, type(counts).__name__]


async def test_arguments_are_values_of_their_types_again():
    outcome, _ = await called(kinds.bound(Job("x", dt.date(2026, 1, 2)), counts=(1,)), ScriptedProvider())
    assert outcome.output == ["Job", 2026, "Colour", "tuple"]


async def _untyped(ctx: Any, value: Any, other: Any = 2) -> Any:
    return [value, other]


_untyped.__annotations__.clear()
untyped: Any = shoal.agentic(_untyped)


async def test_arguments_without_types_are_plain_values():
    outcome, _ = await called(untyped.bound({"a": (1,)}), ScriptedProvider())
    assert outcome.output == '[{"a":[1]},2]'


@shoal.agentic
async def nothing(ctx: shoal.Context) -> None:
    """Give nothing."""


async def test_a_function_may_give_nothing():
    outcome, _ = await called(nothing.bound(), ScriptedProvider())
    assert (outcome.status, outcome.output) == ("complete", None)


def test_arguments_that_it_does_not_take_are_refused():
    with pytest.raises(SpawnRefused, match="cannot be called like that"):
        nothing.bound(1)  # type: ignore[call-arg]


def test_an_argument_that_json_cannot_say_is_refused():
    with pytest.raises(SpawnRefused, match="cannot be kept as JSON"):
        untyped.bound(object())


def letters(result: str) -> str:
    return f"{len(result)} letters"


async def plain(ctx: Any) -> str:
    return ""


def sync(ctx: Any) -> str:
    return ""


async def variadic(ctx: Any, *more: int) -> str:
    return ""


async def alone() -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (sync, "'sync' is not an async function"),
        (variadic, r"takes `\*more: 'int'`"),
        (alone, "takes no context"),
        (len, "is not an async function"),
    ],
)
def test_what_can_be_no_agentic_function_is_refused(function: Any, why: str):
    with pytest.raises(ToolInvalid, match=why):
        shoal.agentic(function)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"expose": "some"}, "`expose` is 'some'"),
        ({"render_range": {"siblings": 1}}, "has the key 'siblings'"),
        ({"render_range": {"callers": -1}}, "has 'callers' at -1"),
        ({"render_range": {"subcalls": -2}}, "has 'subcalls' at -2"),
        ({"max_depth": 0}, "`max_depth` is 0"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options: dict[str, Any], why: str):
    with pytest.raises(ConfigInvalid, match=why):
        shoal.agentic(**options)(plain)


def test_options_are_kept_as_they_are_given():
    made = shoal.agentic(render_range={"callers": 2, "subcalls": -1}, expose="full")(plain)
    assert (made.options.callers, made.options.subcalls, made.options.expose) == (2, None, "full")


def test_what_a_line_of_the_tree_keeps_is_how_the_result_begins_or_what_the_function_says():
    named = shoal.agentic(key_output=letters)(plain)
    assert named.key("abc") == "3 letters"
    assert shoal.agentic(plain).key("x" * 500) == "x" * 400
    assert kinds.key([1, "a"]) == '[1, "a"]'
    assert nothing.key(None) == ""


@pytest.mark.parametrize(
    ("said", "job"), [("", ""), ("One thing", "One thing"), ("One\n thing. And more.\n\nAll of it.", "One thing.")]
)
def test_the_job_of_a_function_is_the_first_sentence_of_its_docstring(said: str, job: str):
    async def documented(ctx: Any) -> str:
        return ""

    documented.__doc__ = said
    assert shoal.agentic(documented).job == job


def test_a_function_is_still_what_it_was():
    assert isinstance(kinds, AgenticFunction)
    assert (kinds.name, kinds.__doc__) == ("kinds", "Say what it is given.")
    assert repr(kinds) == "<AgenticFunction kinds>"
    assert kinds.source.qualname.endswith(":kinds")


def test_a_parameter_that_no_schema_says_makes_no_tool():
    @shoal.agentic(as_tool=True)
    async def odd(ctx: Any, value) -> str:  # type: ignore[no-untyped-def]
        return ""

    with pytest.raises(ToolInvalid, match="says no type for `value`"):
        offered([odd])  # pyright: ignore[reportUnknownArgumentType]


async def test_a_context_shows_where_it_stands():
    @shoal.agentic
    async def shown(ctx: Any) -> list[str]:
        await ctx.now()
        return [repr(ctx), repr(ctx._running).partition(" ")[0], ctx.run_id]

    outcome, events = await called(shown.bound(), ScriptedProvider())
    assert outcome.output == ["<Context of `shown`, 1 calls>", "<Running", events[0].run_id]
