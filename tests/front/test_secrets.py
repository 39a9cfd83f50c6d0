"""Which values of the environment count as secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from shoal._secrets import secrets_from
from shoal.errors import ConfigInvalid


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder, with a folder of settings beside it."""
    (tmp_path / "here").mkdir()
    (tmp_path / "shoal").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(folder), **more}


def test_the_keys_of_vendors_are_secrets_by_themselves(nowhere: Path):
    found = secrets_from(environ=environ(nowhere, OPENAI_API_KEY=" sk-12345678 ", MISTRAL_API_KEY="m-12345678"))
    assert found == {"OPENAI_API_KEY": "sk-12345678", "MISTRAL_API_KEY": "m-12345678"}


def test_the_variable_that_the_settings_name_for_a_key_is_a_secret_too(nowhere: Path):
    mine = '[providers.mine]\nbase_url = "http://there/v1"\nkey_env = "MY_KEY"\n'
    (nowhere / "shoal" / "shoal.toml").write_text(mine)
    assert secrets_from(environ=environ(nowhere, MY_KEY="k-12345678\n")) == {"MY_KEY": "k-12345678"}


def test_a_key_that_only_fills_its_place_is_no_secret(nowhere: Path):
    assert secrets_from(environ=environ(nowhere, SHOAL_API_KEY="none", OPENAI_API_KEY="")) == {}


def test_variables_that_are_named_are_secrets_where_they_are_set(nowhere: Path):
    assert secrets_from(["DOOR", "GATE"], environ(nowhere, DOOR="tr0ub4dor")) == {"DOOR": "tr0ub4dor"}


def test_the_settings_name_secrets_those_of_the_working_directory_too(nowhere: Path):
    (nowhere / "shoal" / "shoal.toml").write_text('[security]\nsecrets = ["DOOR"]\n')
    (nowhere / "here" / "shoal.toml").write_text('[security]\nsecrets = ["GATE", "DOOR"]\n')
    known = environ(nowhere, DOOR="tr0ub4dor", GATE="0pen-sesame")
    assert secrets_from(environ=known) == {"DOOR": "tr0ub4dor", "GATE": "0pen-sesame"}


def test_a_secret_that_is_too_short_is_refused_when_the_swarm_is_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOOR", "short")
    with pytest.raises(ConfigInvalid, match="the secret `DOOR` has 5 characters"):
        shoal.Swarm(secrets=["DOOR"])


@pytest.mark.anyio
async def test_a_swarm_strikes_out_what_its_secrets_hold(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOOR", "tr0ub4dor")
    async with shoal.Swarm(secrets=["DOOR"]) as swarm:
        run = await swarm.spawn("digest", task="What does tr0ub4dor open?", workdir=".")
        await run.result()
        assert str(swarm.state(run.run_id).made_by.task) == "What does [redacted] open?"
