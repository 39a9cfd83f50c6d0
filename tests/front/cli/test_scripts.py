"""What scripts showed, at the command line: as it was sent, and without running any of them again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from front_shell import BLUEPRINT, Shell, newest

BRAIN = 'brain = { kind = "custom", script = "brain.py", max_tokens = 500 }'


@pytest.fixture
def run_id(shell: Shell) -> str:
    """A run whose region is shown by a script that is gone by now."""
    Path("made").mkdir()
    regions = "[context.regions]\n"
    Path("made/blueprint.toml").write_text(BLUEPRINT.replace(regions, f"{regions}{BRAIN}\n"))
    Path("made/brain.py").write_text("def render(ctx):\n    return f\"seen {ctx['stage_iterations']} times\"\n")
    said = shell("run", "./made", "--task", "x", "--seed", "brief=b", "--seed", "house_rules=r")
    assert said.status == 0, said.err
    Path("made/brain.py").unlink()
    return str(newest(shell)["run_id"])


def test_the_context_shows_what_a_script_showed(shell: Shell, run_id: str):
    assert "seen 1 times" in shell("context", run_id).out


def test_each_request_is_shown_as_it_was_sent(shell: Shell, run_id: str):
    events = [json.loads(line) for line in shell("events", run_id, "--json").out.splitlines()]
    started = [e for e in events if e["kind"] == "InferenceStarted" and e["payload"]["purpose"] == "stage"]
    shown = [shell("context", run_id, "--at", str(event["seq"]), "--json").json for event in started]
    assert [prompt["prompt_digest"] for prompt in shown] == [event["payload"]["prompt_digest"] for event in started]
    assert ["seen 0 times" in str(prompt["system"]) for prompt in shown] == [True, False]
