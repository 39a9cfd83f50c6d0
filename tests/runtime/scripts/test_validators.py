"""Validators of answers: what they refuse is said to the model, and one that is broken lets the answer pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runkit import blueprint, bodies, messages, payloads, run_once, stage, write_files

from shoal.blueprints import Blueprint, OutputSpec
from shoal.errors import SpawnRefused
from shoal.runtime import Limits
from shoal.runtime.scripts import ScriptLimits
from shoal.testing import ScriptedProvider, call

pytestmark = pytest.mark.anyio

AMPLE = Limits(scripts=ScriptLimits(seconds=10))
SHORT = "def validate(content):\n    return 'say it in one line' if '\\n' in content else ''\n"


def checked(folder: Path, script: str, *, stage_s: bool = False) -> Blueprint:
    write_files(folder, {"check.py": script})
    spec = OutputSpec(validator="check.py")
    made = stage(available_tools=("submit_output",), require_output=True, output=spec if stage_s else None)
    return blueprint(made, output=None if stage_s else spec, folder=folder)


def submitting(*contents: str) -> ScriptedProvider:
    calls: list[Any] = [call("submit_output", content=content) for content in contents]
    return ScriptedProvider(*calls, "done", purposes={"titling": "A title"})


@pytest.mark.parametrize("stage_s", [False, True])
async def test_an_answer_that_is_refused_is_not_recorded_and_the_model_reads_why(tmp_path: Path, stage_s: bool):
    provider = submitting("one\ntwo", "one line")
    outcome, events = await run_once(checked(tmp_path, SHORT, stage_s=stage_s), provider, limits=AMPLE)
    assert messages(bodies(provider)[1])[-1] == ("tool", "[error] say it in one line")
    assert (outcome.output, len(payloads(events, "OutputSubmitted"))) == ("one line", 1)


@pytest.mark.parametrize("returned", ["None", "''"])
async def test_an_answer_is_good_where_nothing_is_said_against_it(tmp_path: Path, returned: str):
    script = f"def validate(content):\n    return {returned}\n"
    outcome, events = await run_once(checked(tmp_path, script), submitting("x"), limits=AMPLE)
    assert (outcome.output, payloads(events, "ScriptFailed")) == ("x", [])


@pytest.mark.parametrize(
    ("body", "reason"),
    [("return 1 / 0", "raised"), ("return True", "misread"), ("return {1}", "result"), ("return validate(1)", "depth")],
)
async def test_a_broken_validator_lets_the_answer_pass_with_a_warning(tmp_path: Path, body: str, reason: str):
    script = f"def validate(content):\n    {body}\n"
    outcome, events = await run_once(checked(tmp_path, script), submitting("x"), limits=AMPLE)
    [failed] = payloads(events, "ScriptFailed")
    assert outcome.output == "x"
    assert (failed.script, failed.function, failed.region, failed.reason) == (
        "blueprint:check.py",
        "validate",
        "",
        reason,
    )


async def test_a_validator_that_is_not_defined_refuses_the_spawn(tmp_path: Path):
    with pytest.raises(SpawnRefused, match=r"`agent.output.validator`, 'check.py', defines no function `validate`"):
        await run_once(checked(tmp_path, "x = 1"), submitting("x"), limits=AMPLE)


async def test_what_breaks_the_format_is_refused_before_the_validator_is_asked(tmp_path: Path):
    write_files(tmp_path, {"check.py": "def validate(content):\n    return 'asked'\n"})
    spec = OutputSpec(format="json", validator="check.py")
    made = blueprint(stage(available_tools=("submit_output",)), output=spec, folder=tmp_path)
    provider = submitting("{torn")
    await run_once(made, provider, limits=AMPLE)
    assert messages(bodies(provider)[1])[-1][1].startswith("[error] the answer has to be json")
