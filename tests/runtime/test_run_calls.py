"""The calls of a reply: gates, order, parallel calls, routed results, limits, mail between turns."""

from __future__ import annotations

import anyio
import pytest
from runkit import (
    NOTES,
    TALK,
    TASK,
    blueprint,
    bodies,
    events_of,
    kinds,
    messages,
    payloads,
    run_once,
    stage,
    swarm_of,
    system_text,
)

from shoal.blueprints import Nudge, Region, Route, Stage, ToolRouting
from shoal.runtime import Limits, Permissions, tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio


@tool(reads=True)
async def shout(text: str) -> str:
    """Return the text in capitals."""
    return text.upper()


@tool
async def explode() -> str:
    """Fail."""
    raise ValueError("no luck")


def scripted(*replies: object) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})  # type: ignore[arg-type]


def shouting(**more: object) -> Stage:
    return stage(available_tools=("shout", "explode", "context_append"), nudge=Nudge(enabled=False), **more)


TOOLS = (shout, explode)


async def test_a_call_is_answered_in_the_next_request():
    provider = scripted(call("shout", text="hi"), "done")
    await run_once(blueprint(shouting()), provider, tools=TOOLS)
    assert messages(bodies(provider)[1])[-1] == ("tool", "HI")


async def test_what_a_tool_raises_is_an_error_that_the_model_reads():
    provider = scripted(call("explode"), "done")
    await run_once(blueprint(shouting()), provider, tools=TOOLS)
    assert messages(bodies(provider)[1])[-1] == ("tool", "[error] ValueError: no luck")


async def test_parallel_calls_run_together_and_are_answered_in_call_order():
    running = 0
    most = 0

    @tool(reads=True)
    async def shout(text: str) -> str:
        """Shout, after a while."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(10 if text == "a" else 1)
        running -= 1
        return text.upper()

    provider = scripted(Say(calls=tuple(call("shout", text=name) for name in "abc")), "done")
    await run_once(blueprint(shouting()), provider, tools=(shout, explode))
    assert [text for role, text in messages(bodies(provider)[1]) if role == "tool"] == ["A", "B", "C"]
    assert most == 3


async def test_each_result_is_journaled_as_it_comes_and_not_in_call_order():
    @tool(reads=True)
    async def shout(text: str) -> str:
        """Shout, after a while."""
        await anyio.sleep(10 if text == "a" else 1)
        return text

    provider = scripted(Say(calls=(call("shout", text="a"), call("shout", text="b"))), "done")
    _, events = await run_once(blueprint(shouting()), provider, tools=(shout, explode))
    assert [p.index for p in payloads(events, "ToolCallCompleted")] == [1, 0]


async def test_a_call_is_journaled_before_it_runs():
    seen: list[str] = []

    async with swarm_of(scripted(call("shout", text="x"), "done")) as swarm:

        @tool(reads=True)
        async def shout(text: str) -> str:
            """Look at the journal."""
            seen.extend(kinds(events_of(swarm, swarm.runs()[0])))
            return text

        run = await swarm.spawn(blueprint(shouting()), task="x", tools=(shout, explode))
        await run.result()
    assert seen[-1] == "ToolCallStarted"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (call("nothing"), "[unavailable]"),
        (call("shout", wrong=1), "[error] the arguments of `shout` break its schema"),
        (call("shout", text=5), "[error] the arguments of `shout` break its schema"),
    ],
)
async def test_a_call_that_stops_at_a_gate_has_no_effect_and_says_which(made: object, said: str):
    provider = scripted(made, "done")
    _, events = await run_once(blueprint(shouting()), provider, tools=TOOLS)
    assert messages(bodies(provider)[1])[-1][1].startswith(said)
    assert payloads(events, "ToolCallStarted") == []


async def test_a_tool_that_needs_asking_is_denied_where_nobody_is_there():
    provider = scripted(call("shout", text="x"), "done")
    made = blueprint(shouting(tool_permissions={"shout": "ask"}))
    await run_once(made, provider, tools=TOOLS)
    assert messages(bodies(provider)[1])[-1][1].startswith("[denied]")


async def test_a_launch_flag_lifts_ask_and_never_deny():
    provider = scripted(Say(calls=(call("shout", text="x"), call("explode"))), "done")
    made = blueprint(shouting(tool_permissions={"shout": "ask", "explode": "deny"}))
    flags = Permissions(launch={"shout": "allow", "explode": "allow"})
    await run_once(made, provider, tools=TOOLS, permissions=flags)
    results = [text for role, text in messages(bodies(provider)[1]) if role == "tool"]
    assert results[0] == "X"
    assert results[1].startswith("[denied]")


async def test_calls_past_the_limit_of_a_turn_get_an_error_that_says_so():
    provider = scripted(Say(calls=tuple(call("shout", text=str(n)) for n in range(3))), "done")
    await run_once(blueprint(shouting()), provider, tools=TOOLS, limits=Limits(max_calls_per_turn=2))
    results = [text for role, text in messages(bodies(provider)[1]) if role == "tool"]
    assert results[:2] == ["0", "1"]
    assert "at most 2 calls" in results[2]


async def test_malformed_arguments_are_an_error_result_and_not_a_crash():
    from shoal.providers import Text, ToolCall

    provider = scripted(ToolCall("c", "shout", Text.of('{"text": ')), "done")
    outcome, _ = await run_once(blueprint(shouting()), provider, tools=TOOLS)
    assert outcome.status == "complete"
    assert "are not JSON" in messages(bodies(provider)[1])[-1][1]


# --- routing


def routed(region: Region, routing: ToolRouting, **more: object):
    return blueprint(shouting(tool_routing=routing, **more), regions=(TASK, NOTES, region, TALK))


async def test_a_routed_result_stands_in_its_region_and_a_pointer_in_the_conversation():
    provider = scripted(call("shout", text="found it"), "done")
    made = routed(Region("finds", max_tokens=500), ToolRouting(overrides={"shout": Route("finds")}))
    await run_once(made, provider, tools=TOOLS)
    body = bodies(provider)[1]
    assert "## finds\nFOUND IT" in system_text(body)
    assert (
        messages(body)[-1][1]
        == '[The whole result, 2 tokens, is kept. It is already in this prompt, under "## finds".]'
    )


async def test_a_result_that_is_cut_says_how_much_of_it_is_kept():
    provider = scripted(call("shout", text="word " * 400), "done")
    made = routed(Region("finds", max_tokens=500), ToolRouting(overrides={"shout": Route("finds", 100)}))
    await run_once(made, provider, tools=TOOLS)
    pointer = messages(bodies(provider)[1])[-1][1]
    assert pointer.startswith("[The result was cut: ")
    assert "of 500 tokens are kept" in pointer


async def test_a_result_that_its_region_refuses_is_not_promised():
    provider = scripted(call("shout", text="word " * 60), call("shout", text="word " * 60), "done")
    finds = Region("finds", max_tokens=100, kind="pinned")
    made = routed(finds, ToolRouting(overrides={"shout": Route("finds")}))
    await run_once(made, provider, tools=TOOLS)
    assert "was not kept: `finds` is full" in messages(bodies(provider)[2])[-1][1]


async def test_an_error_stays_where_the_model_called():
    provider = scripted(call("explode"), "done")
    made = routed(Region("finds", max_tokens=500), ToolRouting(default_region="finds"))
    await run_once(made, provider, tools=TOOLS)
    body = bodies(provider)[1]
    assert "## finds" not in system_text(body)
    assert messages(body)[-1][1] == "[error] ValueError: no luck"


async def test_results_of_one_turn_share_what_the_conversation_holds():
    talk = Region("conversation", kind="sliding_window", max_tokens=1200, max_items=None)
    provider = scripted(Say(calls=(call("shout", text="a" * 4000), call("shout", text="b" * 4000))), "done")
    made = blueprint(shouting(), regions=(TASK, talk))
    _, events = await run_once(made, provider, tools=TOOLS)
    written = [p for p in payloads(events, "EntryWritten") if p.kind == "tool_result"]
    assert all(256 <= p.tokens <= 600 for p in written)
    assert all("[cut:" in text for role, text in messages(bodies(provider)[1]) if role == "tool")


# --- regions through tools


async def test_what_the_model_appends_stands_in_the_next_request():
    provider = scripted(call("context_append", region="notes", content="remember"), "done")
    await run_once(blueprint(shouting()), provider, tools=TOOLS)
    assert "## notes\nremember" in system_text(bodies(provider)[1])


async def test_content_of_a_call_is_journaled_once():
    provider = scripted(call("context_append", region="notes", content="only once"), "done")
    _, events = await run_once(blueprint(shouting()), provider, tools=TOOLS)
    from shoal.runtime.events import encode

    assert sum(b"only once" in encode(event.payload) for event in events) == 1


async def test_a_write_that_does_not_fit_is_refused_and_says_what_to_release():
    provider = scripted(call("context_append", region="notes", content="x" * 4000), "done")
    await run_once(blueprint(shouting()), provider, tools=TOOLS)
    assert messages(bodies(provider)[1])[-1][1].startswith("[error] `notes` holds 500 tokens at all")


# --- mail


async def test_mail_is_delivered_between_two_requests():
    async with swarm_of(provider := scripted(call("shout", text="x"), "done")) as swarm:

        @tool(reads=True)
        async def shout(text: str) -> str:
            """Send the run mail while it works."""
            await swarm.runs()[0].send("a hint")
            return text

        run = await swarm.spawn(blueprint(shouting()), task="x", tools=(shout, explode))
        await run.result()
    assert messages(bodies(provider)[1])[-2:] == [("tool", "x"), ("user", "a hint")]


async def test_a_stage_that_takes_no_messages_leaves_them_to_the_next():
    async with swarm_of(provider := scripted(call("shout", text="x"), "one", "two")) as swarm:

        @tool(reads=True)
        async def shout(text: str) -> str:
            """Send the run mail while it works."""
            await swarm.runs()[0].send("a hint")
            return text

        made = blueprint(shouting(accepts_messages=False), stage("later", available_tools=()))
        run = await swarm.spawn(made, task="x", tools=(shout, explode))
        await run.result()
    held, delivered = bodies(provider)[1], bodies(provider)[2]
    assert "a hint" not in str(held)
    assert messages(delivered)[-1] == ("user", "a hint")


async def test_mail_can_name_a_region():
    async with swarm_of(provider := scripted(call("shout", text="x"), "done")) as swarm:

        @tool(reads=True)
        async def shout(text: str) -> str:
            """Send the run mail while it works."""
            await swarm.runs()[0].send("a hint", region="notes")
            return text

        run = await swarm.spawn(blueprint(shouting()), task="x", tools=(shout, explode))
        await run.result()
    assert "## notes\na hint" in system_text(bodies(provider)[1])
