"""Where a tool's result goes, and what the conversation says in its place."""

from __future__ import annotations

import pytest
from windowkit import Held, stage

from shoal.blueprints import Region, Route, ToolRouting
from shoal.runtime.context import Destination, Plan, destination, pointer

# --- where it goes


@pytest.mark.parametrize(
    ("routing", "tool", "goes"),
    [
        pytest.param(None, "grep", Destination("conversation", None), id="no routing"),
        pytest.param(ToolRouting(), "grep", Destination("conversation", None), id="routing without a rule"),
        pytest.param(ToolRouting("notes"), "grep", Destination("notes", None), id="the default region"),
        pytest.param(
            ToolRouting("notes", max_result_tokens=40), "grep", Destination("notes", 40), id="the default ceiling"
        ),
        pytest.param(
            ToolRouting("notes", overrides={"grep": Route("code")}), "grep", Destination("code", None), id="an override"
        ),
        pytest.param(
            ToolRouting("notes", overrides={"grep": Route("code")}), "ls", Destination("notes", None), id="another tool"
        ),
        pytest.param(
            ToolRouting("notes", max_result_tokens=40, overrides={"grep": Route("code", 9)}),
            "grep",
            Destination("code", 9),
            id="an override's own ceiling",
        ),
        pytest.param(
            ToolRouting("notes", max_result_tokens=40, overrides={"grep": Route("code")}),
            "grep",
            Destination("code", 40),
            id="an override without a ceiling",
        ),
        pytest.param(
            ToolRouting("notes", overrides={"grep": Route(None, 9)}),
            "grep",
            Destination("notes", 9),
            id="a ceiling that moves nothing",
        ),
        pytest.param(
            ToolRouting("notes", max_result_tokens=40, max_result_tokens_per_tool={"grep": 7}),
            "grep",
            Destination("notes", 7),
            id="a ceiling by tool",
        ),
        pytest.param(
            ToolRouting("n", overrides={"grep": Route("code", 9)}, max_result_tokens_per_tool={"grep": 7}),
            "grep",
            Destination("code", 9),
            id="an override's ceiling before the tool's",
        ),
        pytest.param(
            ToolRouting("n", overrides={"bash": Route("code")}), "shell", Destination("code", None), id="an alias"
        ),
        pytest.param(
            ToolRouting("n", max_result_tokens_per_tool={"shell": 7}),
            "bash",
            Destination("n", 7),
            id="an alias's ceiling",
        ),
        pytest.param(ToolRouting("n"), "context_append", Destination("conversation", None), id="an operation's answer"),
        pytest.param(
            ToolRouting("n", overrides={"context_read": Route("code")}),
            "context_read",
            Destination("code", None),
            id="an operation with a rule",
        ),
    ],
)
def test_a_result_goes_where_the_narrowest_rule_says(routing: ToolRouting | None, tool: str, goes: Destination):
    assert destination(Held(Region("notes")).window.layout, routing, tool) == goes


def test_what_no_rule_names_goes_to_the_results_where_they_are_declared():
    declared = Held(Region("tool_results", max_tokens=900)).window.layout
    assert destination(declared, ToolRouting(max_result_tokens=40), "grep") == Destination("tool_results", 40)
    assert destination(declared, None, "grep") == Destination("conversation", None)


def test_a_stages_own_layout_declares_the_results_for_all():
    own = stage("a", regions=[Region("tool_results")])
    held = Held(Region("notes"), stages=(own, stage("b")))
    assert destination(held.layouts["b"], ToolRouting(), "grep").region == "tool_results"


def test_what_is_not_to_be_kept_goes_to_scratch_where_the_stage_has_it():
    held = Held(Region("scratch"), Region("tool_results"), stages=(stage("a"), stage("b", hide=("scratch",))))
    passing = ToolRouting(persist=False)
    assert destination(held.layouts["a"], passing, "grep").region == "scratch"
    assert destination(held.layouts["b"], passing, "grep").region == "conversation"
    assert destination(held.layouts["a"], ToolRouting("notes", persist=False), "grep").region == "notes"


# --- what is said


def said(held: Held, region: str, tokens: int, *, reads: bool = False, releases: bool = False, **how: int) -> str:
    plan = held.write(region, tokens, writer="routing", **how)
    return pointer(held.window.layout, region, plan, reads_regions=reads, releases=releases)


def test_a_whole_result_is_already_in_this_prompt_under_its_heading():
    held = Held(Region("notes"))
    assert said(held, "notes", 30, reads=True) == (
        '[The whole result, 30 tokens, is kept. It is already in this prompt, under "## notes".]'
    )


def test_a_result_that_was_cut_says_how_much_of_it_is_kept():
    held = Held(Region("notes"))
    assert said(held, "notes", 100, most_tokens=40) == (
        '[The result was cut: 40 of 100 tokens are kept. It is already in this prompt, under "## notes".]'
    )


def test_a_refused_result_says_why_and_promises_nothing():
    held = Held(Region("rules", kind="pinned", max_tokens=50))
    held.write("rules", 40)
    assert said(held, "rules", 20) == (
        "[The result of 20 tokens was not kept: `rules` is full: 40 of 50 tokens, and this needs 20, "
        "which is 10 too many. It holds: id 1 (40)]"
    )


def test_a_refusal_names_context_delete_only_where_the_stage_has_it():
    held = Held(Region("rules", kind="pinned", max_tokens=50))
    held.write("rules", 40)
    assert "context_delete" not in said(held, "rules", 20)
    assert "Release at least 10 tokens with `context_delete` first." in said(held, "rules", 20, releases=True)


def test_sizes_are_corrected():
    held = Held(Region("notes"))
    held.calibrate(2.0)
    assert said(held, "notes", 30).startswith("[The whole result, 60 tokens, is kept.")


@pytest.mark.parametrize(
    ("region", "where"),
    [
        (Region("r", kind="sliding_window"), "It is a message of the region `r` in this prompt."),
        (Region("r", placement="tail"), 'It is at the end of this prompt, under "## r".'),
    ],
)
def test_where_the_text_has_no_heading_in_front_it_says_where_it_stands(region: Region, where: str):
    held = Held(region)
    assert said(held, "r", 30) == f"[The whole result, 30 tokens, is kept. {where}]"
    assert said(held, "r", 30, reads=True).endswith(f"{where} `context_read` shows it: region `r`.]")


def test_a_region_that_this_stage_hides_is_said_to_be_hidden():
    held = Held(Region("r"), stages=(stage(hide=("r",)),))
    assert said(held, "r", 30).endswith("It is in the region `r`, which this stage does not show.]")


def test_a_custom_region_is_shown_in_its_scripts_way():
    held = Held(Region("r", kind="custom", script="s.py"))
    written = Plan("written", tokens=30, of_tokens=30)
    assert pointer(held.window.layout, "r", written, reads_regions=False) == (
        "[The whole result, 30 tokens, is kept. It is in the region `r`, which a script shows in its own way.]"
    )


def test_what_the_tool_has_to_say_beside_its_result_stands_behind():
    written = Plan("written", tokens=30, of_tokens=30)
    layout = Held(Region("r")).window.layout
    assert pointer(layout, "r", written, reads_regions=False, note="3 more pages").endswith("]\n3 more pages")


def test_a_pointer_never_tells_the_model_to_read_or_fetch():
    held = Held(Region("notes"), Region("mail", kind="sliding_window"), Region("last", placement="tail"))
    for region in ("notes", "mail", "last"):
        words = said(held, region, 30, reads=True).lower().replace("`context_read` shows it", "")
        assert not {"read", "fetch", "call", "use"} & set(words.replace(".", " ").split())
