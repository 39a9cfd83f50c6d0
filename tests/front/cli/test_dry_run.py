"""`shoal test --dry-run`: what a blueprint would send first, without sending it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from front_shell import BLUEPRINT, Shell

from shoal.cli import _test
from shoal.testing import ScriptedProvider

GIVEN = ("--task", "x", "--seed", "brief=b", "--seed", "house_rules=r")


@pytest.fixture
def made() -> Path:
    """A blueprint with two regions that scripts show, one of which fails."""
    folder = Path("made")
    folder.mkdir()
    regions = "[context.regions]\n"
    mine = """brain = { kind = "custom", script = "brain.py", max_tokens = 500 }
broken = { kind = "custom", script = "broken.py", max_tokens = 500 }
"""
    (folder / "blueprint.toml").write_text(BLUEPRINT.replace(regions, f"{regions}{mine}"))
    (folder / "brain.py").write_text("def render(ctx):\n    return f\"seen {ctx['stage_iterations']} times\"\n")
    (folder / "broken.py").write_text("def render(ctx):\n    return 1 / 0\n")
    return folder


def test_a_dry_run_shows_the_first_request_with_region_scripts_active(shell: Shell, made: Path):
    said = shell("test", "./made", "--dry-run", *GIVEN)
    assert said.status == 0, said.err
    assert "seen 0 times" in said.out
    assert "broken: `blueprint:broken.py`, line 2: ZeroDivisionError: division by zero" in said.err


def test_a_dry_run_sends_nothing_and_leaves_nothing_behind(shell: Shell, made: Path, monkeypatch: pytest.MonkeyPatch):
    provider = ScriptedProvider()
    monkeypatch.setattr(_test, "providers_from", lambda: (provider,))
    assert shell("test", "./made", "--dry-run", *GIVEN).status == 0
    assert provider.requests == ()
    assert json.loads(shell("ps", "--json").out or "[]") == []


def test_a_dry_run_shows_the_prompt_that_a_run_sends(shell: Shell, made: Path):
    dry = shell("test", "./made", "--dry-run", *GIVEN, "--json").json
    assert shell("run", "./made", *GIVEN).status == 0
    events = [
        json.loads(row) for row in shell("events", shell("ps", "--json").json[0]["run_id"], "--json").out.splitlines()
    ]
    first = next(e for e in events if e["kind"] == "InferenceStarted" and e["payload"]["purpose"] == "stage")
    assert dry["prompt_digest"] == first["payload"]["prompt_digest"]


def test_a_dry_run_is_served_as_a_run_would_be(shell: Shell, made: Path):
    settings = Path("../config/shoal/shoal.toml")
    settings.parent.mkdir(parents=True)
    settings.write_text('[providers]\ndefault_model = "offline:mine"\n')
    file = made / "blueprint.toml"
    text = file.read_text()
    file.write_text(f'{text}\n[defaults]\nmodel = ["anthropic:claude", "offline:mine"]\n')
    assert shell("test", "./made", "--dry-run", *GIVEN, "--json").json["model"] == "mine"
    file.write_text(f'{text}\n[defaults]\nmodel = "anthropic:claude"\n')
    stood_in = shell("test", "./made", "--dry-run", *GIVEN, "--json").json
    assert (stood_in["provider"], stood_in["model"]) == ("offline", "claude")


def test_a_dry_run_explains_who_owns_which_part(shell: Shell, made: Path):
    assert "brain" in shell("test", "./made", "--dry-run", *GIVEN, "--explain").out


def test_a_run_that_ends_before_its_first_request_says_why(shell: Shell, made: Path):
    (made / "hooks.py").write_text(
        "def before_inference(ctx):\n    return {'action': 'cancel', 'reason': 'not today'}\n"
    )
    text = (made / "blueprint.toml").read_text()
    head, stage, tail = text.partition("[stages.")
    name = tail.partition("]")[0].partition(".")[0]
    hooks = f'[stages.{name}.hooks]\nbefore_inference = "hooks.py"\n\n'
    (made / "blueprint.toml").write_text(f"{head}{stage}{tail}\n{hooks}")
    said = shell("test", "./made", "--dry-run", *GIVEN)
    assert (said.status, "not today" in said.err) == (1, True), said.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("./made", "--dry-run", *GIVEN, "--model", "nobody:x"), "names no provider"),
        (("./made", "--dry-run", *GIVEN, "--seed", "nonsense=1"), "nonsense"),
    ],
    ids=["unknown-provider", "unknown-seed"],
)
def test_what_cannot_be_tried_is_refused(shell: Shell, made: Path, arguments: tuple[str, ...], why: str):
    said = shell("test", *arguments)
    assert said.status != 0
    assert why in said.err
