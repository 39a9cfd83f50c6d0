"""The embedded provider: what it answers, and that the same request always has the same answer."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import assistant, block, request, requests, result, segment, standing, takes, tool, tools, user

from shoal.errors import ContextOverflow, OfflinePolicyMissing
from shoal.providers import (
    Completed,
    Message,
    PolicyStep,
    Reply,
    Request,
    Situation,
    Text,
    TextDelta,
    ToolCall,
    Usage,
    exchange,
    offline,
)
from shoal.providers._policy import CLOSING, Decision, decide, items_of

TOOLS = tools(
    tool("hand_in", takes(content="string")),
    tool("list", takes(path="string")),
    tool("look", takes(path="string")),
    tool("many", takes(items="array")),
)


class Visit:
    """A visit of a stage that is played as the runtime plays it: each answer and its results join the transcript."""

    def __init__(self, *policy: PolicyStep, **situation: Any) -> None:
        self.policy = policy or None
        self.situation = situation
        self.said: list[Message] = [user("go")]
        self.iteration = 0

    @property
    def asked(self) -> Request:
        where = standing(policy=self.policy, iteration=self.iteration, **self.situation)
        return request(*self.said, tools=TOOLS, situation=lambda: where)

    def next(self, *results: str, is_error: bool = False) -> Decision:
        """Return the next answer, and play it: each of its calls gives one of *results*, or `ok`."""
        where = standing(policy=self.policy, iteration=self.iteration, **self.situation)
        decision = decide(self.asked, where)
        calls = [
            ToolCall(f"c{self.iteration}-{n}", name, Text.of(json.dumps(arguments)))
            for n, (name, arguments) in enumerate(decision.calls)
        ]
        given = [*results, *["ok"] * len(calls)]
        self.said.append(assistant(decision.text, *calls))
        self.said += [result(call.call_id, text, is_error=is_error) for call, text in zip(calls, given, strict=False)]
        self.iteration += 1
        return decision


def calls(decision: Decision) -> list[Any]:
    return [(name, dict(arguments)) for name, arguments in decision.calls]


# --- steps


def test_steps_run_in_order_one_an_iteration():
    visit = Visit(PolicyStep(say="one"), PolicyStep(call="look", args={"path": "a"}), PolicyStep(say="three"))
    assert [visit.next(), visit.next(), visit.next()] == [
        Decision("one"),
        Decision(calls=(("look", {"path": "a"}),)),
        Decision("three"),
    ]


def test_after_the_last_step_it_says_that_it_is_done():
    visit = Visit(PolicyStep(say="one"))
    assert [visit.next().text, visit.next().text, visit.next().text] == ["one", CLOSING, CLOSING]


def test_after_the_last_step_an_owed_output_is_handed_in():
    visit = Visit(PolicyStep(call="look", args={"path": "a"}), output_tool="hand_in")
    visit.next("The pier is closed. Boats wait.")
    assert calls(visit.next()) == [("hand_in", {"content": "The pier is closed.\nBoats wait."})]
    assert visit.next().text == CLOSING


def test_an_output_that_was_refused_is_handed_in_again():
    visit = Visit(PolicyStep(say="x"), output_tool="hand_in", regions={"notes": "The pier is closed."})
    visit.next()
    first = visit.next(is_error=True)
    assert visit.next() == first


def test_an_output_that_is_refused_again_needs_a_policy():
    visit = Visit(PolicyStep(say="x"), output_tool="hand_in", regions={"notes": "The pier is closed."})
    visit.next()
    visit.next("it is no JSON\nat all", is_error=True)
    visit.next("it is no JSON\nat all", is_error=True)
    with pytest.raises(OfflinePolicyMissing, match=r"refuses what is handed in \(it is no JSON\)"):
        visit.next()


def test_an_output_that_a_step_handed_in_is_not_owed():
    visit = Visit(PolicyStep(call="hand_in", args={"content": "x"}), output_tool="hand_in")
    visit.next()
    assert visit.next().text == CLOSING


def test_an_owed_output_is_given_though_there_is_nothing_to_say():
    visit = Visit(PolicyStep(say="x"), output_tool="hand_in")
    visit.said = []
    visit.next()
    visit.said = []
    assert calls(visit.next()) == [("hand_in", {"content": CLOSING})]


# --- templates


def filled(template: str, **situation: Any) -> str:
    return Visit(PolicyStep(say=template), **situation).next().text


def test_the_task_and_regions_are_filled_in():
    assert filled("{task}: {region(notes)}{region(none)}!", task="T", regions={"notes": "N"}) == "T: N!"


def test_doubled_braces_are_braces():
    assert filled('{{"a": {{}}}}') == '{"a": {}}'


def test_an_extract_of_a_region_is_filled_in():
    assert filled("{extract(notes, 1)}", regions={"notes": "The pier is closed. So it is."}) == "The pier is closed."


def test_templates_are_filled_at_any_depth_of_the_arguments():
    step = PolicyStep(call="many", args={"items": [{"id": "{task}", "n": 1}, [True, None, "x{task}"]]})
    assert calls(Visit(step, task="T").next()) == [("many", {"items": [{"id": "T", "n": 1}, [True, None, "xT"]]})]


@pytest.mark.parametrize(
    "template",
    ["{other}", "{}", "{item}", "{result(0)}", "{result(1)}", "{result(x)}", "{extract(notes)}", "{extract(a, 0)}"],
)
def test_a_placeholder_that_cannot_be_filled_is_an_error_with_its_key(template: str):
    with pytest.raises(OfflinePolicyMissing) as caught:
        filled(template)
    assert caught.value.stage == "work"
    assert caught.value.key in template or caught.value.key == ""


def test_the_result_of_an_earlier_step_is_filled_in():
    visit = Visit(PolicyStep(say="x"), PolicyStep(call="list", args={"path": "."}), PolicyStep(say="<{result(2)}>"))
    visit.next()
    visit.next("a\nb")
    assert visit.next().text == "<a\nb>"


def test_the_results_of_parallel_calls_are_joined_in_call_order():
    look = PolicyStep(call="look", for_each="region(files)", args={"path": "{item}"})
    visit = Visit(look, PolicyStep(say="{result(1)}"), regions={"files": "a\nb"})
    visit.next("A", "B")
    assert visit.next().text == "A\nB"


def test_what_an_earlier_visit_got_is_not_this_visits_result():
    visit = Visit(PolicyStep(call="look", args={"path": "b"}), PolicyStep(say="{result(1)}"))
    visit.said = [
        user("go"),
        assistant("", ToolCall("old", "look", Text.of("{}"))),
        result("old", "OLD"),
        user("again"),
    ]
    visit.next("NEW")
    assert visit.next().text == "NEW"


def test_an_id_that_two_answers_use_leads_to_each_ones_own_result():
    policy = (PolicyStep(say="{result(1)}"),)
    said = [assistant("", ToolCall("c", "look", Text.of("{}"))), result("c", "OLD")]
    said += [assistant("", ToolCall("c", "look", Text.of("{}"))), result("c", "NEW")]
    where = standing(policy=(PolicyStep(call="look"), PolicyStep(call="look"), *policy), iteration=2)
    assert decide(request(user("go"), *said, tools=TOOLS), where).text == "OLD"


def test_a_result_that_has_left_the_window_is_an_error():
    visit = Visit(PolicyStep(call="look", args={"path": "b"}), PolicyStep(say="{result(1)}"))
    visit.next()
    visit.said = [user("go")]
    with pytest.raises(OfflinePolicyMissing, match="left the window"):
        visit.next()


def test_a_text_that_comes_out_blank_says_so():
    assert filled("{region(none)}") == "There was nothing to say."


# --- items


@pytest.mark.parametrize(
    ("source", "items"),
    [
        ("a\nb", ["a", "b"]),
        ("a\n\nb", ["a"]),
        ("", []),
        ("\na", []),
        ('"a\\nb"\nc', ["a\nb", "c"]),
        ('"half\n"5"', ['"half', "5"]),
        ("  a \n \nb", ["  a "]),
    ],
)
def test_items_are_the_lines_up_to_the_first_blank_one(source: str, items: list[str]):
    assert items_of(source) == items


def test_each_item_is_a_call_of_its_own():
    step = PolicyStep(call="look", for_each="region(files)", args={"path": "in/{item}"})
    assert calls(Visit(step, regions={"files": "a\nb"}).next()) == [
        ("look", {"path": "in/a"}),
        ("look", {"path": "in/b"}),
    ]


def test_a_list_of_one_that_mentions_the_item_holds_all_of_them_in_one_call():
    args = {
        "n": 1,
        "to": "{task}",
        "items": [{"id": "{item}", "seeds": {"path": "{ item }"}}],
        "rest": ["x", ["{item}"]],
    }
    step = PolicyStep(call="many", for_each="region(files)", args=args)
    assert calls(Visit(step, task="T", regions={"files": "a\nb"}).next()) == [
        (
            "many",
            {
                "n": 1,
                "to": "T",
                "items": [{"id": "a", "seeds": {"path": "a"}}, {"id": "b", "seeds": {"path": "b"}}],
                "rest": ["x", ["a", "b"]],
            },
        )
    ]


def test_the_items_of_a_result_are_worked_on():
    visit = Visit(
        PolicyStep(call="list", args={"path": "."}),
        PolicyStep(call="look", for_each="result(1)", args={"path": "{item}"}),
    )
    visit.next("a\nb\n\n2 files")
    assert calls(visit.next()) == [("look", {"path": "a"}), ("look", {"path": "b"})]


def test_a_step_without_items_is_passed_over():
    each = PolicyStep(call="look", for_each="region(files)", args={"path": "{item}"})
    visit = Visit(each, PolicyStep(say="two"), PolicyStep(say="three: {result(1)}"))
    assert [visit.next().text, visit.next().text] == ["two", "three:"]


def test_a_step_that_was_passed_over_stays_so_though_items_turn_up_later():
    each = PolicyStep(call="look", for_each="region(files)", args={"path": "{item}"})
    visit = Visit(each, PolicyStep(call="list", args={"path": "."}), PolicyStep(say="three"))
    assert visit.next().calls[0][0] == "list"
    visit.situation["regions"] = {"files": "a"}
    assert visit.next().text == "three"


def test_a_step_that_left_the_window_is_taken_to_have_run():
    each = PolicyStep(call="look", for_each="region(files)", args={"path": "{item}"})
    visit = Visit(each, PolicyStep(say="two"), regions={"files": "a"})
    visit.next()
    visit.said = [user("go")]
    assert visit.next().text == "two"


def test_items_come_from_a_region_or_a_result_only():
    with pytest.raises(OfflinePolicyMissing, match="for_each"):
        Visit(PolicyStep(call="look", for_each="task", args={})).next()


# --- pages


def test_a_step_goes_on_while_its_result_says_so():
    visit = Visit(PolicyStep(call="look", args={"path": "a"}, pages=3), PolicyStep(say="{result(1)}"))
    visit.next("one\n[continue with offset=100]")
    assert calls(visit.next("two\n[continue with offset=200]\n")) == [("look", {"path": "a", "offset": 100})]
    assert calls(visit.next("three")) == [("look", {"path": "a", "offset": 200})]
    assert visit.next().text == "one\ntwo\nthree"


def test_a_step_goes_on_no_longer_than_its_pages():
    visit = Visit(PolicyStep(call="look", args={"path": "a"}, pages=2), PolicyStep(say="done"))
    visit.next("one\n[continue with offset=1]")
    visit.next("two\n[continue with offset=2]")
    assert visit.next().text == "done"


def test_only_the_calls_that_go_on_are_repeated():
    step = PolicyStep(call="look", for_each="region(files)", args={"path": "{item}"}, pages=2)
    visit = Visit(step, regions={"files": "a\nb"})
    visit.next("A", "B\n[continue with from=next part]")
    assert calls(visit.next()) == [("look", {"path": "b", "from": "next part"})]


def test_a_failed_call_does_not_go_on():
    visit = Visit(PolicyStep(call="look", args={"path": "a"}, pages=3), PolicyStep(say="done"))
    visit.next("no\n[continue with offset=1]", is_error=True)
    assert visit.next().text == "done"


def test_pages_that_have_left_the_window_are_still_those_of_their_step():
    visit = Visit(PolicyStep(call="look", args={"path": "a"}, pages=9), PolicyStep(say="two"), PolicyStep(say="three"))
    for page in range(5):
        visit.next(f"{page}\n[continue with offset={page + 1}]")
    visit.said = [user("go"), *visit.said[-2:]]
    assert calls(visit.next("end")) == [("look", {"path": "a", "offset": 5})]
    assert visit.next().text == "two"


def test_a_page_that_has_left_the_window_does_not_go_on():
    visit = Visit(PolicyStep(call="look", args={"path": "a"}, pages=3), PolicyStep(say="done"))
    visit.next("one\n[continue with offset=1]")
    visit.said = [user("go")]
    assert visit.next().text == "done"


# --- extracts


NOTES = {"notes": "The pier is closed. Storms broke the old bridge."}


def test_an_extract_is_said():
    assert Visit(PolicyStep(extract="notes", sentences=1), regions=NOTES).next().text in NOTES["notes"]


def test_an_extract_goes_into_the_one_text_argument_of_a_tool():
    [(name, arguments)] = calls(Visit(PolicyStep(extract="notes", sentences=9, into="hand_in"), regions=NOTES).next())
    assert (name, set(arguments["content"].splitlines())) == (
        "hand_in",
        {"The pier is closed.", "Storms broke the old bridge."},
    )


def test_an_extract_of_nothing_says_so():
    assert Visit(PolicyStep(extract="notes")).next().text == "There was nothing to take sentences from."


def test_an_extract_of_nothing_after_a_failure_says_what_went_wrong():
    visit = Visit(PolicyStep(call="look", args={"path": "a"}), PolicyStep(extract="notes"))
    visit.next("[error] 'a' is binary", is_error=True)
    assert visit.next().text == "[error] 'a' is binary"


def test_what_a_failed_call_says_is_no_item():
    visit = Visit(
        PolicyStep(call="look", args={"path": "a"}),
        PolicyStep(call="look", for_each="result(1)", args={"path": "{item}"}),
        PolicyStep(say="over"),
    )
    visit.next("[error] the disk is gone", is_error=True)
    assert visit.next().text == "over"


@pytest.mark.parametrize(
    ("step", "key"),
    [
        (PolicyStep(call="none"), "none"),
        (PolicyStep(extract="notes", into="many"), "many"),
        (PolicyStep(extract="notes", into="none"), "none"),
        (PolicyStep(), "policy"),
    ],
)
def test_a_step_that_the_stage_cannot_take_is_an_error_with_its_key(step: PolicyStep, key: str):
    with pytest.raises(OfflinePolicyMissing) as caught:
        Visit(step, regions=NOTES).next()
    assert (caught.value.stage, caught.value.key) == ("work", key)


def test_an_output_tool_that_takes_more_than_a_text_needs_a_policy():
    with pytest.raises(OfflinePolicyMissing, match="policy that calls it"):
        Visit(output_tool="many").next()


# --- without a policy


def test_tools_that_regions_can_fill_are_called_once_and_then_the_output_is_handed_in():
    visit = Visit(output_tool="hand_in", regions={"path": "a.md"}, task="T")
    assert calls(visit.next("The pier is closed.", "It is.")) == [
        ("list", {"path": "a.md"}),
        ("look", {"path": "a.md"}),
    ]
    assert calls(visit.next()) == [("hand_in", {"content": "The pier is closed."})]


def test_the_task_fills_an_argument_of_that_name():
    asked = request(user("x"), tools=tools(tool("plan", takes(task="string")), tool("free", b'{"type":"object"}')))
    assert calls(decide(asked, standing(task="T"))) == [("plan", {"task": "T"})]


def test_without_tools_that_can_be_filled_an_extract_is_said():
    assert "pier" in Visit(regions=NOTES).next().text


@pytest.mark.parametrize(
    ("situation", "said"),
    [
        ({"regions": {"a": "Regions speak first."}, "task": "Tasks speak."}, "Regions"),
        ({"task": "Tasks speak."}, "Tasks"),
        ({}, "Users"),
    ],
)
def test_an_extract_comes_from_regions_then_the_task_then_the_transcript(situation: dict[str, Any], said: str):
    assert decide(request(user("Users speak last.")), standing(**situation)).text.startswith(said)


def test_without_any_text_the_default_is_at_its_end():
    with pytest.raises(OfflinePolicyMissing) as caught:
        decide(request(), standing())
    assert caught.value.key == "policy"


# --- routing, titles, summaries


def routed(*messages: Message, policy: tuple[PolicyStep, ...] | None = None, **choices: str) -> str:
    where = standing(policy=policy, choices=choices, task="the tests are red")
    return decide(request(*messages, purpose="routing"), where).text


def test_a_route_step_names_the_stage():
    policy = (PolicyStep(say="x"), PolicyStep(route="gone"), PolicyStep(route="b"))
    assert routed(policy=policy, a="", b="") == "b"


def test_a_route_goes_by_the_words_of_the_newest_text():
    said = (assistant("All tests are red, there are failures."), user("Where to? a: all good, b: failures"))
    assert routed(*said, policy=(PolicyStep(route="overlap"),), a="all good", b="there were failures") == "b"


def test_a_route_without_a_transcript_goes_by_the_task():
    assert routed(fine="all is good", mend_tests="something is red") == "mend_tests"


def test_the_first_of_two_equal_routes_is_taken():
    assert routed(assistant("nothing"), b="x", a="x") == "b"


def test_a_route_step_answers_no_iteration():
    visit = Visit(
        PolicyStep(route="b"), PolicyStep(say="one"), PolicyStep(route="a"), PolicyStep(say="four: {result(2)}")
    )
    assert [visit.next().text, visit.next().text] == ["one", "four:"]


def test_a_routing_question_without_choices_is_an_error():
    with pytest.raises(OfflinePolicyMissing, match="offers no stage"):
        routed()


def test_a_run_is_titled_after_its_task():
    assert decide(request(purpose="titling"), standing(task="Count the boats.")).text == "Count the boats"
    assert decide(request(user("Count them."), purpose="titling"), standing()).text == "Count them"


def test_a_summary_is_shorter_than_the_material():
    text = "The pier is closed for repairs. Storms broke the old bridge of the harbour. Boats wait outside. " * 5
    said = decide(request(user(text), purpose="compaction", max_tokens=12), standing()).text
    assert said
    assert len(said) <= 48


def test_a_summary_is_made_of_the_material_that_the_situation_names():
    shown = user("user: [System] Weigh the boats of the harbour against its piers.\n\nassistant: The pier is closed.")
    asked = request(shown, purpose="compaction", max_tokens=100)
    assert decide(asked, standing(material="assistant: The pier is closed.")).text == "assistant: The pier is"


def test_a_summary_of_nothing_but_the_runtime_s_own_words_says_that_nothing_was_said():
    asked = request(user("user: [System] Weigh the boats."), purpose="compaction", max_tokens=100)
    assert decide(asked, standing(material="")).text == "Nothing was said here."


def test_what_a_model_says_is_quoted_though_it_begins_as_the_runtime_does():
    asked = request(user("x"), assistant("[System] The pier is closed."), purpose="compaction", max_tokens=100)
    assert "The pier is closed." in decide(asked, standing()).text


def test_what_the_runtime_says_of_its_own_is_not_quoted():
    asked = request(user("The pier is closed."), user("[System] Weigh the boats of the harbour."))
    assert decide(asked, standing()).text == "The pier is closed."


# --- the provider


pytestmark = pytest.mark.anyio


async def test_an_answer_streams_and_says_that_no_model_was_used():
    asked = request(user("The pier is closed. " + "Boats wait outside of the harbour today. " * 9))
    async with aclosing(offline().stream(asked)) as stream:
        *deltas, completed = [event async for event in stream]
    assert isinstance(completed, Completed)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == str(completed.reply.text)
    assert (completed.simulated, completed.finish, completed.model) == (True, "stop", "m")


async def test_calls_are_made_with_ids_of_their_own():
    where = standing(
        policy=(PolicyStep(call="look", for_each="region(f)", args={"path": "{item}"}),), regions={"f": "a\nb"}
    )
    completed = await exchange(offline(), request(user("x"), tools=TOOLS, situation=lambda: where))
    assert completed.finish == "tool_calls"
    assert [(call.call_id, str(call.arguments)) for call in completed.reply.calls] == [
        ("call_0", '{"path":"a"}'),
        ("call_1", '{"path":"b"}'),
    ]


async def test_a_resumed_request_has_the_same_reply_from_another_provider():
    visit = Visit(PolicyStep(call="look", args={"path": "a"}), PolicyStep(extract="notes"), regions=NOTES)
    visit.next()
    first, second = [await exchange(offline(), visit.asked) for _ in range(2)]
    assert first == second


async def test_a_request_sent_twice_is_read_from_the_cache():
    provider = offline()
    asked = request(user("The pier is closed. " * 400))
    first, second = [(await exchange(provider, asked)).usage for _ in range(2)]
    assert first.cache_write > 1024
    assert second == Usage(first.uncached, first.cache_write, output=first.output)
    assert (await provider.count_tokens(asked)).tokens == first.input


async def test_siblings_that_are_asked_at_once_read_nothing_of_each_other():
    provider = offline(latency_s=5.0)
    asked = request(user("The pier is closed. " * 400))
    reads: list[int] = []

    async def ask(after_s: float) -> None:
        await anyio.sleep(after_s)
        reads.append((await exchange(provider, asked)).usage.cache_read)

    async with anyio.create_task_group() as tasks:
        for after_s in (0.0, 1.0, 20.0):
            tasks.start_soon(ask, after_s)
    assert [read > 0 for read in reads] == [False, False, True]


async def test_an_answer_takes_the_latency_that_is_asked_for():
    await exchange(offline(latency_s=30.0), request(user("The pier is closed.")))
    assert anyio.current_time() == pytest.approx(30.0, abs=0.5)


async def test_what_does_not_fit_the_window_is_not_answered():
    with pytest.raises(ContextOverflow) as caught:
        await exchange(offline(), request(user("x" * 780_000), max_tokens=8192))
    assert caught.value.window_tokens == 200_000


async def test_a_callable_may_answer_and_may_leave_it_to_the_policy():
    def policy(asked: Request, where: Situation) -> Reply | None:
        return Reply(Text.of(f"mine for {where.stage}")) if where.iteration == 0 else None

    def asked(iteration: int) -> Request:
        return request(user("x"), situation=lambda: standing(iteration=iteration, task="Count the boats."))

    provider = offline(policy=policy)
    assert str((await exchange(provider, asked(0))).reply.text) == "mine for work"
    assert str((await exchange(provider, asked(1))).reply.text) == "Count the boats."


async def test_a_request_that_says_nothing_of_where_it_stands_counts_the_answers_since_the_user():
    asked = Request(
        "m",
        system=(block("s"),),
        messages=(
            segment(
                user("a"),
                assistant("x"),
                user("The pier is closed."),
                assistant("", ToolCall("1", "look", Text.of("{}"))),
                result("1", "Boats wait."),
            ),
        ),
    )
    assert str((await exchange(offline(), asked)).reply.text) == "Boats wait."


async def test_every_model_is_served_for_nothing():
    provider = offline()
    profile = provider.profile("anything")
    assert (profile.window_tokens, profile.max_output_tokens) == (200_000, 8_192)
    assert profile.price is not None
    assert profile.price.cost(Usage(10, 10, 10, 10, 10)) == 0
    assert repr(provider) == "<OfflineProvider, <PrefixCache of 0 prefixes>>"
    assert (provider.name, provider.default_model) == ("offline", "offline")
    await provider.aclose()


@given(
    drawn=requests(), iteration=st.integers(0, 3), regions=st.dictionaries(st.sampled_from("ab"), st.text(), max_size=2)
)
def test_any_request_has_one_answer(drawn: Request, iteration: int, regions: dict[str, str]):
    policy = (PolicyStep(say="{task}"), PolicyStep(extract="a"), PolicyStep(say="end"))
    where = standing(policy=policy, iteration=iteration, regions=regions, task="T")
    assert decide(drawn, where) == decide(drawn, where)
