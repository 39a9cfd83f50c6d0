"""Going back in time at the command line: what a run's prompt was, and a copy that goes on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front_shell import Serve, Shell, newest

from shoal.testing import ScriptedProvider, call


@pytest.fixture
def answered(shell: Shell, serve: Serve, answers: Path) -> str:
    """The id of a run that has submitted its answer."""
    replies = [call("submit_output", content="the first answer"), "done"]
    serve(ScriptedProvider(*replies, purposes={"titling": "A title"}))
    assert shell("run", answers, "--workdir", answers, "--task", "Answer").status == 0
    return str(newest(shell)["run_id"])


def events(shell: Shell, run_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell("events", run_id, "--json").out.splitlines()]


def first_request(shell: Shell, run_id: str) -> int:
    asked = [e for e in events(shell, run_id) if e["kind"] == "InferenceStarted" and e["payload"]["purpose"] == "stage"]
    return int(asked[0]["seq"])


def test_a_fork_gives_an_answer_of_its_own(shell: Shell, serve: Serve, answered: str):
    serve(ScriptedProvider(call("submit_output", content="another answer"), "done"))
    at = first_request(shell, answered)
    said = shell("fork", answered, "--at", str(at), "--json")
    assert (said.status, said.json["output"]) == (0, "another answer")
    assert said.json["run_id"] != answered
    assert shell("result", answered).out.strip() == "the first answer"


def test_a_fork_goes_on_although_the_blueprint_was_edited(shell: Shell, serve: Serve, answered: str, answers: Path):
    provider = ScriptedProvider(call("submit_output", content="another answer"), "done")
    serve(provider)
    (answers / "blueprint.toml").write_text("this is no blueprint any more")
    before = shell("context", answered, "--at", str(first_request(shell, answered)), "--json").json
    assert shell("fork", answered, "--at", str(first_request(shell, answered))).status == 0
    assert provider.requests[0].digest.hex() == before["prompt_digest"]


def test_a_fork_is_billed_for_what_is_its_own(shell: Shell, serve: Serve, answered: str):
    first = shell("stages", answered, "--json").json
    serve(ScriptedProvider("that is all"))
    said = shell("fork", answered, "--json")
    assert 0 < said.json["usage"]["uncached"] < sum(stage["usage"]["uncached"] for stage in first)


def test_a_fork_at_an_event_that_is_not_there_is_refused(shell: Shell, answered: str):
    said = shell("fork", answered, "--at", "9999")
    assert said.status == 2
    assert "has no event 9999; its last is" in said.err


def test_a_fork_of_a_run_that_is_not_there_is_refused(shell: Shell, answered: str):
    assert shell("fork", "nothing-like-it").status == 2
