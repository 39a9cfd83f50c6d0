"""What the user's settings say of models."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from shoal._config import config_files, model_profiles
from shoal.errors import ConfigInvalid

HOME = "home/shoal/shoal.toml"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "home" / "shoal").mkdir(parents=True)
    return tmp_path


def profiles(here: Path, **files: str):
    for name, text in files.items():
        (here / {"own": HOME, "local": "shoal.toml"}[name]).write_text(text)
    return model_profiles({"XDG_CONFIG_HOME": str(here / "home")}, here)


def test_without_files_nothing_is_said(here: Path):
    assert profiles(here) == {}


def test_a_row_is_laid_over_what_ships(here: Path):
    made = profiles(here, own='[models."gpt-5.4"]\nprice = { input = "1", output = "2" }\n')["gpt-5.4"]
    assert made.price is not None
    assert (made.price.input, made.price.source) == (Decimal(1), str(here / HOME))
    assert made.window_tokens == 1_050_000


def test_the_working_directory_wins_key_by_key(here: Path):
    own = "[models.mine]\ncontext = 1000\nmax_output = 100\n"
    made = profiles(here, own=own, local="[models.mine]\ncontext = 2000\n")["mine"]
    assert (made.window_tokens, made.max_output_tokens) == (2000, 100)
    assert dict(made.sources) == {"context": str(here / "shoal.toml"), "max_output": str(here / HOME)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[modls.x]\n", "unknown table 'modls'; did you mean `models`"),
        ("[unheard]\n", r"unknown table 'unheard'; there is `\[models\]`, `\[permissions\]`"),
        ("models = 3\n", "holds no tables"),
        ("[models]\nx = 3\n", "holds no tables"),
        ("[models.x]\ncontxt = 3\n", "did you mean `context`"),
        ("[models", "cannot be read"),
    ],
)
def test_what_is_of_no_use_is_refused_with_its_file(here: Path, text: str, why: str):
    with pytest.raises(ConfigInvalid, match=why) as caught:
        profiles(here, local=text)
    assert "shoal.toml" in str(caught.value)


def test_a_relative_folder_of_settings_is_the_users_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    expected = (Path("/home/somebody/.config/shoal/shoal.toml"), Path("/work/shoal.toml"))
    assert config_files({"XDG_CONFIG_HOME": "relative"}, Path("/work")) == expected


def test_a_user_without_a_home_has_the_working_directory_alone(monkeypatch: pytest.MonkeyPatch):
    def homeless(_path: Path) -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert config_files({}, Path("/work")) == (Path("/work/shoal.toml"),)
