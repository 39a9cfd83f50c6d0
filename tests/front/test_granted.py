"""What the settings grant, and that a working directory grants nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from shoal._granted import permissions_from
from shoal.errors import ConfigInvalid
from shoal.runtime import Grants, Permissions

USERS = """
[permissions]
write_file = "allow"
bash = "deny"

[safe_commands]
shell = ["make", "git status"]
allow_looking = false
allow_blueprint = true

[read_paths]
allow = ["~/notes"]

[security]
allow_seed_commands = false
allow_env_vars = ["CI_TOKEN"]
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "home" / "shoal").mkdir(parents=True)
    return tmp_path


def permissions(here: Path, own: str = "", local: str = "") -> Permissions:
    (here / "home" / "shoal" / "shoal.toml").write_text(own)
    (here / "shoal.toml").write_text(local)
    return permissions_from({"XDG_CONFIG_HOME": str(here / "home")}, here)


def test_without_settings_the_defaults_hold(tmp_path: Path):
    assert permissions_from({"XDG_CONFIG_HOME": str(tmp_path / "home")}, tmp_path) == Permissions()


def test_the_user_allows_and_grants(here: Path):
    assert permissions(here, USERS) == Permissions(
        user={"write_file": "allow", "shell": "deny"},
        grants=Grants(
            safe_commands=("make", "git status"),
            allow_looking=False,
            allow_blueprint_commands=True,
            allow_seed_commands=False,
            read_paths=("~/notes",),
            allow_env_vars=("CI_TOKEN",),
        ),
    )


def test_a_working_directory_may_tighten(here: Path):
    local = (
        '[permissions]\nread_file = "ask"\nshell = "deny"\n'
        "[safe_commands]\nallow_looking = false\n[security]\nallow_seed_commands = false\n"
    )
    made = permissions(here, local=local)
    assert made.folder == {"read_file": "ask", "shell": "deny"}
    assert (made.grants.allow_looking, made.grants.allow_seed_commands) == (False, False)


@pytest.mark.parametrize(
    ("local", "key"),
    [
        ('[permissions]\nwrite_file = "allow"\n', "`permissions.write_file`"),
        ('[safe_commands]\nshell = ["make"]\n', "`safe_commands.shell`"),
        ("[safe_commands]\nallow_looking = true\n", "`safe_commands.allow_looking`"),
        ("[safe_commands]\nallow_blueprint = true\n", "`safe_commands.allow_blueprint`"),
        ('[read_paths]\nallow = ["/"]\n', "`read_paths.allow`"),
        ("[security]\nallow_seed_commands = true\n", "`security.allow_seed_commands`"),
        ('[security]\nallow_env_vars = ["X"]\n', "`security.allow_env_vars`"),
    ],
)
def test_a_working_directory_that_grants_is_refused_with_the_place_to_move_it_to(here: Path, local: str, key: str):
    with pytest.raises(ConfigInvalid, match="which grants nothing") as caught:
        permissions(here, local=local)
    assert key in str(caught.value)
    assert str(here / "home" / "shoal" / "shoal.toml") in str(caught.value)


def test_without_a_folder_of_the_users_own_a_working_directory_grants_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def nowhere(_path: Path) -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "expanduser", nowhere)
    assert permissions_from({}, tmp_path) == Permissions()
    (tmp_path / "shoal.toml").write_text('[read_paths]\nallow = ["/"]\n')
    with pytest.raises(ConfigInvalid, match="the user's own settings"):
        permissions_from({}, tmp_path)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ('[permissions]\nshell = "maybe"\n', r"Invalid enum value 'maybe' - at `\$\.permissions\[\.\.\.\]`"),
        ("[safe_commands]\nshel = []\n", r"unknown field `shel` - at `\$\.safe_commands`"),
        ('[safe_commands]\nshell = ["git"]\nallow_looking = 3\n', r"`\$\.safe_commands\.allow_looking`"),
        ('[safe_commands]\nshell = ["echo $(x)"]\n', "no line can match"),
        ('[read_paths]\nallow = ["regex:("]\n', "`read_paths`"),
        ("permissions = 3\n", r"Expected `object`, got `int` - at `\$\.permissions`"),
        ("[permisions]\n", "did you mean `permissions`"),
    ],
)
def test_what_is_of_no_use_is_refused_with_its_file(here: Path, own: str, why: str):
    with pytest.raises(ConfigInvalid, match=why) as caught:
        permissions(here, own)
    assert str(here / "home" / "shoal" / "shoal.toml") in str(caught.value)


def test_a_swarm_takes_what_the_settings_say_unless_it_is_told(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "home"))
    (here / "shoal.toml").write_text('[read_paths]\nallow = ["/"]\n')
    with pytest.raises(ConfigInvalid, match="which grants nothing"):
        shoal.Swarm()
    assert shoal.Swarm(permissions=Permissions())
