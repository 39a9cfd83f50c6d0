"""Agentic functions: what a call shows its model, how its answer is read, and what functions do to each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, final

import pydantic
import pytest
from agentkit import asked, called, said, tree_of
from runkit import payloads, swarm_of, system_text

import shoal
from shoal.errors import OutputInvalid, RunFailed, ToolInvalid
from shoal.runtime import ContextComponent, Deliverable, FolderMemory, Limits, Note, PassedTo
from shoal.testing import Say, ScriptedProvider, request_json

pytestmark = pytest.mark.anyio


class Framework(pydantic.BaseModel):
    """What a survey gives."""

    name: str
    branches: int


@shoal.agentic
async def ask(ctx: shoal.Context, topic: str) -> str:
    """Ask about a topic. This sentence is not its job."""
    return await ctx.infer(f"What of {topic}?")


@shoal.agentic
async def caller(ctx: shoal.Context, topic: str) -> str:
    """Have somebody ask."""
    return await ask(ctx, topic)


async def test_a_function_gives_what_it_returns():
    outcome, _ = await called(ask.bound("ants"), ScriptedProvider("They are small."))
    assert (outcome.status, outcome.output) == ("complete", "They are small.")


async def test_the_situation_opens_the_message_and_says_where_the_model_is():
    provider = ScriptedProvider("small")
    await called(caller.bound("ants"), provider)
    assert said(provider.requests[0]) == (
        "<situation>\n"
        "You work inside the function `ask`.\n"
        "Job: Ask about a topic.\n"
        "Call path: caller → ask\n"
        "Your output: it is passed to `caller`.\n"
        "Do not call `ask` yourself, though it may be among your tools: it would only come back to where you are. "
        "Use the tools below it.\n"
        "</situation>\n\n"
        "What of ants?"
    )


@shoal.agentic
async def bare(ctx: shoal.Context) -> str:
    return await ctx.infer("Well?")


async def test_a_function_without_docstring_and_caller_says_neither_job_nor_consumer():
    provider = ScriptedProvider("well")
    await called(bare.bound(), provider)
    situation = said(provider.requests[0])
    assert "Job:" not in situation
    assert "Your output:" not in situation


@shoal.agentic
async def telling(ctx: shoal.Context) -> str:
    """Say all that can be said of a call."""
    await ctx.infer("one", position="step 1 of 2", output=Deliverable("report.md", "the editor"))
    return await ctx.infer("two", output=PassedTo("idea", "framework"), timestamp=True)


async def test_position_and_contract_are_lines_of_the_situation():
    provider = ScriptedProvider("a", "b")
    await called(telling.bound(), provider)
    first, second = map(said, provider.requests)
    assert "Position: step 1 of 2\nYour output: it becomes `report.md`, which the editor uses." in first
    assert "Your output: it is passed to `idea` as its `framework`." in second
    assert second.endswith("two\n\n<timestamp>\n2026-01-01T00:00:00Z\n</timestamp>")


async def test_what_served_one_call_stands_in_no_later_one_but_the_question_and_its_answer_do():
    provider = ScriptedProvider("answer one", "b")
    await called(telling.bound(), provider)
    messages = request_json(provider.requests[1])["messages"]
    assert [str(m["content"]) for m in messages if m["role"] != "system"][1:3] == ["one", "answer one"]
    assert str(messages).count("<situation>") == 1


@shoal.agentic(max_depth=30)
async def down(ctx: shoal.Context, levels: int) -> str:
    """Go down."""
    return await down(ctx, levels - 1) if levels else await ctx.infer("deep")


async def test_of_a_long_call_path_the_twenty_newest_are_shown():
    provider = ScriptedProvider("x")
    await called(down.bound(24), provider)
    line = next(each for each in said(provider.requests[0]).splitlines() if each.startswith("Call path"))
    assert line == "Call path: … → " + " → ".join(["down"] * 20)


@shoal.agentic
async def recursing(ctx: shoal.Context) -> str:
    """Call itself."""
    return await recursing(ctx)


async def test_a_function_may_stand_five_times_in_its_path():
    outcome, events = await called(recursing.bound(), ScriptedProvider())
    assert outcome.status == "error"
    assert outcome.reason.startswith("RecursionError: `recursing` would stand 6 times in its call path")
    left = payloads(events, "FrameLeft")
    assert [each.status for each in left] == ["error"] * 6


@shoal.agentic(max_depth=100)
async def endless(ctx: shoal.Context) -> str:
    """Call itself without end."""
    return await endless(ctx)


async def test_a_path_has_an_end_whatever_its_functions_allow():
    outcome, _ = await called(endless.bound(), ScriptedProvider())
    assert "longer than 50" in outcome.reason


# --- answers with a type


@shoal.agentic
async def survey(ctx: shoal.Context) -> Framework:
    """Survey."""
    return await ctx.infer("Survey.", returns=Framework)


GOOD = '{"name": "ants", "branches": 4}'


async def test_an_answer_is_a_value_of_its_type():
    provider = ScriptedProvider(f"```json\n{GOOD}\n```")
    outcome, _ = await called(survey.bound(), provider)
    assert outcome.output == Framework(name="ants", branches=4)
    schema = said(provider.requests[0]).partition("<output_schema>\n")[2]
    assert json.loads(schema.splitlines()[1]) == Framework.model_json_schema()


async def test_an_answer_that_does_not_fit_is_asked_for_again_and_told_why():
    provider = ScriptedProvider('{"name": "ants"}', GOOD)
    outcome, _ = await called(survey.bound(), provider)
    assert outcome.output.branches == 4
    assert said(provider.requests[1]).startswith("[System] Your answer cannot be used: branches: Field required")


async def test_a_model_is_asked_again_so_often_and_no_more():
    provider = ScriptedProvider(*["no"] * 3)
    outcome, _ = await called(survey.bound(), provider, limits=Limits(asks=2))
    assert outcome.status == "error"
    assert outcome.output is None
    assert outcome.reason.startswith("OutputInvalid: the model's answer does not fit after 3 tries")


@shoal.agentic
async def forgiving(ctx: shoal.Context) -> str:
    """Go on without an answer."""
    try:
        await ctx.infer("Survey.", returns=Framework)
    except OutputInvalid as exc:
        return f"none: {exc}"[:20]
    return "some"


async def test_a_function_may_go_on_without_an_answer():
    outcome, _ = await called(forgiving.bound(), ScriptedProvider(*["no"] * 4))
    assert outcome.output == "none: the model's an"


# --- decisions


@shoal.agentic
async def deciding(ctx: shoal.Context) -> str:
    """Choose who asks."""
    chosen: Any = await ctx.decide("Who?", options=[ask, "nobody"])
    return chosen if isinstance(chosen, str) else await chosen(ctx, "bees")


async def test_a_decision_gives_the_option_itself_and_tells_what_functions_do():
    provider = ScriptedProvider('{"choice": "ask"}', "They sting.")
    outcome, _ = await called(deciding.bound(), provider)
    assert outcome.output == "They sting."
    assert "Who?\n\nMenu:\n- ask: Ask about a topic.\n- nobody" in said(provider.requests[0])
    assert "it is read as a choice" in said(provider.requests[0])


@pytest.mark.parametrize("answer", ['{"choice": "me"}', '["nobody"]', '{"choice": 1}', "nobody"])
async def test_an_answer_that_is_not_on_the_menu_is_asked_for_again(answer: str):
    provider = ScriptedProvider(answer, '{"choice": "nobody"}')
    outcome, _ = await called(deciding.bound(), provider)
    assert outcome.output == "nobody"
    assert "cannot be used" in said(provider.requests[1])


@shoal.agentic
async def odd_menu(ctx: shoal.Context, options: list[str]) -> str:
    """Choose from what is given."""
    return await ctx.decide("Which?", options=options)


@pytest.mark.parametrize(
    ("options", "why"), [([], "nothing to choose from"), (["a", "a"], "two options are called 'a'")]
)
async def test_a_menu_that_is_none_is_refused(options: list[str], why: str):
    outcome, _ = await called(odd_menu.bound(options), ScriptedProvider())
    assert why in outcome.reason


# --- failures


class Odd(Exception):
    """An exception that only this module knows."""


@shoal.agentic
async def failing(ctx: shoal.Context, how: str) -> str:
    """Fail."""
    raise KeyError("gone") if how == "known" else Odd("unheard of")


@shoal.agentic
async def catching(ctx: shoal.Context, how: str) -> list[str]:
    """Say what was raised."""
    try:
        await failing(ctx, how)
    except (KeyError, RunFailed) as exc:
        return [type(exc).__name__, str(exc)]
    return []


@pytest.mark.parametrize(
    ("how", "what"), [("known", ["KeyError", "\"'gone'\""]), ("odd", ["RunFailed", "Odd: unheard of"])]
)
async def test_what_a_function_raises_reaches_its_caller(how: str, what: list[str]):
    outcome, events = await called(catching.bound(how), ScriptedProvider())
    assert outcome.output == what
    assert [left.status for left in payloads(events, "FrameLeft")] == ["error", "done"]


@shoal.agentic(timeout_s=5)
async def slow(ctx: shoal.Context) -> str:
    """Take its time."""
    await ctx.sleep(10)
    return "late"


@shoal.agentic(timeout_s=50)
async def quick(ctx: shoal.Context) -> str:
    """Be there in time."""
    try:
        return await slow(ctx)
    except TimeoutError as exc:
        return str(exc)


async def test_a_function_that_takes_too_long_is_cut_off():
    outcome, _ = await called(quick.bound(), ScriptedProvider())
    assert outcome.output == "`slow` took longer than 5 s; raise its `timeout_s`, or have it do less"


@shoal.agentic
async def unsayable(ctx: shoal.Context) -> Any:
    """Return what no JSON says."""
    return object()


async def test_a_result_that_json_cannot_say_is_an_error():
    outcome, _ = await called(unsayable.bound(), ScriptedProvider())
    assert outcome.reason.startswith("TypeError: <object object")


@shoal.agentic
async def together(ctx: shoal.Context) -> list[str]:
    """Call one that fails beside one that waits."""

    async def waits() -> str:
        await slow(ctx)
        return ""

    return await ctx.gather(waits(), failing(ctx, "known"))


async def test_a_function_that_was_cut_off_is_cancelled_in_the_journal():
    outcome, events = await called(together.bound(), ScriptedProvider())
    assert outcome.status == "error"
    assert sorted(left.status for left in payloads(events, "FrameLeft")) == ["cancelled", "error", "error"]


@shoal.agentic
async def both_fail(ctx: shoal.Context) -> list[str]:
    """Call two that fail."""
    return await ctx.gather(failing(ctx, "known"), failing(ctx, "odd"))


async def test_a_group_of_failures_stays_a_group():
    outcome, _ = await called(both_fail.bound(), ScriptedProvider())
    assert outcome.reason.startswith("ExceptionGroup: ")


# --- what stands in front


@shoal.agentic(system="Be brief.")
async def brief(ctx: shoal.Context) -> str:
    """Be brief."""
    return await ctx.infer("Well?")


async def test_a_function_gets_the_components_and_its_own_word_in_the_system_section():
    provider = ScriptedProvider("x")
    await called(brief.bound(), provider)
    text = system_text(request_json(provider.requests[0]))
    assert text.startswith("<identity>\nYou are `brief`: Be brief.\n</identity>\n\n<inline_prompt>\nBe brief.\n")
    assert text.endswith("Today is Thursday, January 1, 2026.")
    assert "<bindings>" not in text


async def test_components_of_your_own_stand_in_calls_where_their_layer_says():
    mine = [
        ContextComponent("house_rules", "L1", 12, lambda _: True, lambda around: f"Rules for {around.stage}."),
        ContextComponent("hint", "L2", 25, lambda around: around.inside is not None, lambda _: "A hint."),
    ]
    provider = ScriptedProvider("x")
    await called(ask.bound("ants"), provider, components=mine)
    assert "Rules for ask." in system_text(request_json(provider.requests[0]))
    assert "</situation>\n\nA hint.\n\nWhat of ants?" in said(provider.requests[0])


def broken(_around: object) -> str:
    raise ValueError("no")


async def test_a_component_that_raises_is_left_out_and_said_once():
    mine = [
        ContextComponent("a", "L1", 26, lambda _: True, broken),
        ContextComponent("b", "L2", 26, lambda _: True, broken),
    ]
    provider = ScriptedProvider("x", "y")
    outcome, events = await called(telling.bound(), provider, components=mine)
    assert outcome.ok
    assert sorted((each.script, each.message) for each in payloads(events, "ScriptFailed")) == [
        ("a", "ValueError: no"),
        ("b", "ValueError: no"),
    ]


async def test_the_question_stands_in_the_call_even_where_its_component_does_not():
    mine = [ContextComponent("input", "L2", 30, lambda _: False, broken)]
    provider = ScriptedProvider("x")
    await called(ask.bound("ants"), provider, components=mine)
    assert asked(provider) == ["What of ants?"]


async def test_memory_shows_what_has_to_do_with_the_question(tmp_path: Any):
    (tmp_path / "insects.md").write_text("Ants live in hills.\n")
    provider = ScriptedProvider("x")
    await called(ask.bound("ants"), provider, memory=FolderMemory(tmp_path))
    text = said(provider.requests[0])
    assert "</situation>\n\n<memory-context>\nWhat memory holds of what follows." in text
    assert "Ants live in hills.\n</memory-context>\n\nWhat of ants?" in text


@final
class Broken:
    """A memory that fails."""

    place = "nowhere"

    async def resident(self, budget_tokens: int) -> str:
        return ""

    async def recall(self, query: str) -> Sequence[Note]:
        raise OSError("gone")

    async def remember(self, name: str, text: str, *, append: bool = False) -> None:
        raise OSError("gone")


async def test_a_memory_that_fails_takes_no_call_down():
    outcome, events = await called(ask.bound("ants"), ScriptedProvider("x"), memory=Broken())
    assert outcome.output == "x"
    assert [each.message for each in payloads(events, "ScriptFailed")] == ["OSError: gone"]


async def test_the_tree_opens_the_messages_and_knows_the_arguments():
    provider = ScriptedProvider("x")
    await called(caller.bound("ants"), provider)
    assert tree_of(provider.requests[0]) == (
        "- function: caller\n"
        '  input: "topic: ants"\n'
        "  status: running\n"
        "  children:\n"
        "    - function: ask\n"
        '      input: "topic: ants"\n'
        "      status: running"
    )


async def test_a_run_of_a_function_is_found_by_its_name_and_billed_by_owner():
    async with swarm_of(ScriptedProvider(Say("x"))) as swarm:
        run = await swarm.spawn(ask.bound("ants"))
        await run.result()
        row = swarm.row(run.run_id)
        assert (row.name, row.stage, row.title) == ("ask", "ask", None)
        owners = run.ledger().stages["ask"].regions
        assert {"call_tree", "situation", "input", "identity", "reply.text"} <= owners.keys()
        assert run.ledger().total.usage == (await run.result()).usage


@pytest.mark.parametrize(
    ("said_of_it", "why"),
    [({"task": "x"}, "no `task`"), ({"seeds": {"a": "b"}}, "no `seeds`"), ({"returns": int}, "no `returns`")],
)
async def test_what_a_function_says_itself_is_no_word_of_its_spawn(said_of_it: dict[str, Any], why: str):
    async with swarm_of(ScriptedProvider()) as swarm:
        with pytest.raises(shoal.errors.SpawnRefused, match=why):
            await swarm.spawn(ask.bound("ants"), **said_of_it)


async def test_a_call_may_name_its_model_and_the_length_of_its_answer():
    @shoal.agentic
    async def picky(ctx: Any) -> str:
        return await ctx.infer("x", model="scripted:other", max_tokens=7)

    provider = ScriptedProvider("x")
    await called(picky.bound(), provider)
    assert (provider.requests[0].model, provider.requests[0].max_tokens) == ("other", 7)


async def test_a_function_whose_types_mean_nothing_is_refused():
    class Local(pydantic.BaseModel):
        """A type that nobody finds by its name."""

    @shoal.agentic
    async def lost(ctx: Any, value: Local) -> str:
        return ""

    with pytest.raises(ToolInvalid, match="has an annotation that means nothing where it stands"):
        lost.bound(Local())
