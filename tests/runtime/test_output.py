"""The answer of a run: what counts as one, what is recorded of it, and where it is shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from runkit import NOTES, TALK, TASK, blueprint, payloads, run_once, stage, swarm_of, write_files

from shoal.blueprints import OutputSpec, Region
from shoal.runtime import Event, Limits, Outcome
from shoal.runtime._output import problem_of
from shoal.testing import ScriptedProvider, call

pytestmark = pytest.mark.anyio

STAGES = ("work", "review")


def problem(content: str, **spec: Any) -> str | None:
    return problem_of(content, OutputSpec(**spec), STAGES)


# --- what an answer is


@pytest.mark.parametrize("content", ["an answer", "0", "# Heading\n\ntext", "work on it", "{", "é文😀"])
def test_any_text_is_an_answer_where_nothing_is_asked_of_it(content: str):
    assert problem(content) is None
    assert problem(content, format="markdown") is None


@pytest.mark.parametrize("content", ["", " ", "\n\t"])
def test_a_blank_text_is_none(content: str):
    assert problem(content) == "`content` is empty; submit the whole answer in it"


@pytest.mark.parametrize("content", ["work", " review\n"])
def test_the_name_of_a_stage_is_none(content: str):
    said = problem(content)
    assert said == f"{content.strip()!r} is the name of a stage, not an answer; submit the whole answer in `content`"


GOOD = {
    "json": ["{}", "[1, 2]", '"text"', "null", "0", '{"a": "\\ud83d\\ude00"}'],
    "JSON": ["{}"],
    "xml": ["<a/>", '<?xml version="1.0"?><a b="c">text</a>'],
    "toml": ["", "a = 1", "[t]\nb = 2026-01-01"][1:],
    "csv": ["a,b\n1,2", "one", 'a,"b,c"\n"x\ny",z\n', "a,b\n\n1,2\n"],
}
BAD = {
    "json": ["{", "text", "{'a': 1}", "NaN", "[Infinity]", '```json\n{"a": 1}\n```', "[" * 100_000],
    "xml": ["<a>", "text", "<a/><b/>", "<a>&undefined;</a>"],
    "toml": ["a", "a = ", "[t", "a = 1\na = 2"],
    "csv": ["a,b\n1", 'a,"b', "a,b\n1,2,3"],
}
BOMB = (
    "<!DOCTYPE l [<!ENTITY a0 'lol'>"
    + "".join(f"<!ENTITY a{n + 1} '{f'&a{n};' * 10}'>" for n in range(9))
    + "]><l>&a9;</l>"
)


@pytest.mark.parametrize(("kind", "content"), [(kind, content) for kind, each in GOOD.items() for content in each])
def test_an_answer_in_its_format_is_one(kind: str, content: str):
    assert problem(content, format=kind) is None


@pytest.mark.parametrize(("kind", "content"), [(kind, content) for kind, each in BAD.items() for content in each])
def test_an_answer_that_is_not_in_its_format_is_none(kind: str, content: str):
    said = problem(content, format=kind)
    assert said is not None
    assert said.startswith(f"the answer has to be {kind} and cannot be read as such: ")


def test_an_answer_that_grows_without_bound_is_none():
    assert "amplification" in str(problem(BOMB, format="xml"))


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("kind", ["json", None, "markdown"])
def test_an_answer_that_matches_its_schema_is_one(kind: str | None):
    assert problem('{"n": 3}', format=kind, schema=SCHEMA) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{}", '"n" is a required property'),
        ('{"n": "x"}', 'n: "x" is not of type "integer"'),
        ("[]", "[] is not of type"),
    ],
)
def test_an_answer_that_breaks_its_schema_is_none(content: str, why: str):
    said = problem(content, format="json", schema=SCHEMA)
    assert said is not None
    assert said.startswith(f"the answer breaks its schema: {why}")


def test_an_answer_that_has_a_schema_has_to_be_json():
    assert str(problem("text", schema=SCHEMA)).startswith("the answer has to match a schema, and is not JSON: ")


def test_a_schema_reaches_nothing_outside(tmp_path: Path):
    (tmp_path / "secret.json").write_text('{"type": "string"}')
    assert problem("{}", schema={"$ref": (tmp_path / "secret.json").as_uri()}) is None


@pytest.mark.parametrize("content", ['{"n": "\\ud800"}', '{"a":' * 600 + "1" + "}" * 600])
def test_odd_json_is_checked_too(content: str):
    assert str(problem(content, format="json", schema=SCHEMA)).startswith("the answer breaks its schema: ")


# --- what becomes of it


async def submitted(
    *replies: Any,
    spec: OutputSpec | None = None,
    limits: Limits | None = None,
    workdir: Path = Path(),
    **more: Any,
) -> tuple[Outcome, list[Event]]:
    """Let a stage of mode `output` make *replies*, and return how its run ended."""
    made = blueprint(stage(mode="output", available_tools=(), require_output=True, output=spec), **more)
    provider = ScriptedProvider(*replies, "done", purposes={"titling": "T"})
    outcome, events = await run_once(made, provider, limits=limits, workdir=workdir)
    return outcome, events


async def test_an_answer_is_recorded_and_is_what_the_run_comes_to():
    outcome, events = await submitted(call("submit_output", content="the answer"))
    assert (outcome.status, outcome.output) == ("complete", "the answer")
    (recorded,) = payloads(events, "OutputSubmitted")
    assert (recorded.stage, recorded.format, recorded.truncated, recorded.artifacts) == ("work", None, None, ())


async def test_a_later_answer_takes_the_place_of_an_earlier_one():
    outcome, events = await submitted(call("submit_output", content="first"), call("submit_output", content="second"))
    assert (outcome.output, len(payloads(events, "OutputSubmitted"))) == ("second", 2)


async def test_a_bad_answer_never_takes_the_place_of_a_good_one():
    outcome, events = await submitted(
        call("submit_output", content="[1]"),
        call("submit_output", content="nonsense"),
        spec=OutputSpec(format="json"),
    )
    assert outcome.output == "[1]"
    assert [each.is_error for each in payloads(events, "ToolCallCompleted")] == [False, True]


async def test_a_stage_completes_what_the_blueprint_says_of_its_answer():
    agent = OutputSpec(format="json", schema={"type": "array"})
    outcome, _ = await submitted(
        call("submit_output", content="{}"),
        call("submit_output", content="[]"),
        spec=OutputSpec(schema={"type": "object"}),
        output=agent,
    )
    assert outcome.output == "{}"


async def test_an_answer_that_is_too_long_is_cut_between_two_characters():
    outcome, events = await submitted(call("submit_output", content="é" * 60), limits=Limits(output_bytes=101))
    assert outcome.output == "é" * 50
    assert payloads(events, "OutputSubmitted")[0].truncated == 50
    assert str(payloads(events, "ToolCallCompleted")[0].text) == "Submitted. It was longer than 101 bytes and was cut."


async def test_an_answer_as_long_as_it_may_be_is_kept():
    outcome, _ = await submitted(call("submit_output", content="x" * 100), limits=Limits(output_bytes=100))
    assert outcome.output == "x" * 100


async def test_the_answer_is_shown_in_its_region_cut_to_what_that_holds():
    small = Region("final_output", kind="pinned", max_tokens=20)
    made = blueprint(stage(mode="output", available_tools=()), regions=(TASK, NOTES, TALK, small))
    answers = [call("submit_output", content=letter * 400) for letter in "xy"]
    async with swarm_of(ScriptedProvider(*answers, "done", purposes={"titling": "T"})) as swarm:
        run = await swarm.spawn(made, task="t")
        outcome = await run.result()
        shown = run.region("final_output")
    assert outcome.output == "y" * 400
    assert re.fullmatch(r"y{4,80}\n\[cut: about \d+ of 100 tokens\]", shown)


# --- artifacts


async def test_files_that_belong_to_an_answer_are_named(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "a", "sub/b.txt": "b"})
    outcome, events = await submitted(
        call("submit_output", content="done", artifacts=["a.txt", "sub/b.txt"]), workdir=tmp_path
    )
    assert outcome.artifacts == payloads(events, "OutputSubmitted")[0].artifacts == ("a.txt", "sub/b.txt")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("gone", "'gone' does not exist"),
        ("../secret", "'../secret' leads outside the folder 'work'; name a path inside it"),
        ("sub", "'sub' is a folder"),
        ("\ud800", "'\ufffd' does not exist"),
    ],
)
async def test_an_answer_with_a_file_that_cannot_be_had_is_not_submitted(tmp_path: Path, path: str, why: str):
    write_files(tmp_path, {"secret": "s", "work/sub/x": "x"})
    bad = call("submit_output", content="bad", artifacts=["sub/x", path])
    outcome, events = await submitted(bad, call("submit_output", content="good"), workdir=tmp_path / "work")
    assert outcome.output == "good"
    assert str(payloads(events, "ToolCallCompleted")[0].text) == f"[error] the artifact {why}; nothing was submitted"
