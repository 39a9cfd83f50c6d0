"""Limits, pools and lanes of the settings, and what a working directory may say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal._narrowing import lanes_from, limits_from, pools_from
from shoal.blueprints import Lanes, LaneSettings, ModelChoice
from shoal.errors import ConfigInvalid
from shoal.runtime import Limits

HOME = "home/shoal/shoal.toml"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "home" / "shoal").mkdir(parents=True)
    return tmp_path


def said(what: Any, here: Path, own: str = "", local: str = "") -> Any:
    (here / HOME).write_text(own)
    (here / "shoal.toml").write_text(local)
    return what({"XDG_CONFIG_HOME": str(here / "home")}, here)


def test_without_files_the_defaults_hold(here: Path):
    assert said(limits_from, here) == Limits()
    assert said(pools_from, here) == {}
    assert said(lanes_from, here) == Lanes()


def test_the_user_may_set_any_limit(here: Path):
    made = said(limits_from, here, '[limits]\nmax_iterations = 500\nidle_s = "never"\n[limits.scripts]\nseconds = 1\n')
    assert (made.max_iterations, made.idle_s, made.scripts.seconds) == (500, None, 1)
    assert made.scripts.depth == Limits().scripts.depth


def test_a_working_directory_may_narrow_them(here: Path):
    made = said(limits_from, here, "[limits]\nasks = 9\n", "[limits]\nasks = 0\nquestion_s = 60\nmax_child_depth = 1\n")
    assert (made.asks, made.question_s, made.max_child_depth) == (0, 60, 1)


def test_a_tree_may_be_narrowed_to_its_root(here: Path):
    assert said(limits_from, here, local="[limits]\nmax_child_depth = 0\n").max_child_depth == 0


def test_what_waits_for_ever_may_be_given_an_end(here: Path):
    assert said(limits_from, here, '[limits]\nidle_s = "never"\n', "[limits]\nidle_s = 5\n").idle_s == 5


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("[limits]\nmax_iterations = 51\nasks = 1\n", "`limits.max_iterations`"),
        ('[limits]\nquestion_s = "never"\n', "`limits.question_s`"),
        ("[limits.scripts]\nseconds = 0.3\n", "`limits.scripts.seconds`"),
    ],
)
def test_a_working_directory_does_not_widen_them(here: Path, text: str, keys: str):
    with pytest.raises(ConfigInvalid, match=f"may only narrow limits, and widens {keys}; move it to .*home/shoal"):
        said(limits_from, here, local=text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("limits = 3\n", "`limits` in .* is no table"),
        ("[limits]\nscripts = 3\n", r"is no table; write `\[limits.scripts\]`"),
        ("[limits]\nmax_iteration = 3\n", "unknown key `limits.max_iteration`; did you mean `max_iterations`"),
        ("[limits.scripts]\nxyzzy = 3\n", "unknown key `limits.scripts.xyzzy`; there is `seconds`"),
        ("[limits]\nmax_iterations = 0\n", "is 0; write a whole number above 0"),
        ("[limits]\nmax_iterations = 1.5\n", "is 1.5; write a whole number above 0"),
        ("[limits]\nasks = -1\n", "is -1; write a whole number, 0 or more"),
        ("[limits]\nshutdown_s = true\n", "is True; write a number above 0"),
        ('[limits]\nidle_s = "no"\n', "is 'no'; write a number above 0, or \"never\""),
    ],
)
def test_a_limit_that_is_none_is_refused(here: Path, text: str, why: str):
    with pytest.raises(ConfigInvalid, match=why):
        said(limits_from, here, text)


def test_pools_are_merged_and_narrowed(here: Path):
    made = said(pools_from, here, "[pools]\nopenai = 90\ntools = 3\n", "[pools]\nopenai = 2\nlab = 64\n")
    assert made == {"openai": 2, "tools": 3, "lab": 64}


@pytest.mark.parametrize("text", ["openai = 91", "lab = 65", "tools = 65"])
def test_a_working_directory_does_not_widen_pools(here: Path, text: str):
    with pytest.raises(ConfigInvalid, match="widens `pools"):
        said(pools_from, here, "[pools]\nopenai = 90\n", f"[pools]\n{text}\n")


@pytest.mark.parametrize("most", ["0", "1.5", "true", '"x"'])
def test_a_pool_that_is_none_is_refused(here: Path, most: str):
    with pytest.raises(ConfigInvalid, match="write a whole number, 1 or more"):
        said(pools_from, here, f"[pools]\nopenai = {most}\n")


def test_lanes_are_merged_key_by_key_and_the_working_directory_wins(here: Path):
    own = '[lanes.compaction]\nmodel = "openai:small"\nretries = 1\n[lanes.refresh]\ntimeout_s = 5\n'
    made = said(lanes_from, here, own, "[lanes.compaction]\nretries = 0\n[lanes.titling]\nmodel = 'lab'\n")
    assert made == Lanes(
        LaneSettings(ModelChoice("openai", "small"), retries=0),
        LaneSettings(ModelChoice("lab")),
        LaneSettings(timeout_s=5),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[lanes.compactin]\n", "unknown field `compactin`"),
        ("[lanes.refresh]\nmodel = 'x'\n", "unknown field `model`"),
        ("[lanes.titling]\nretries = -1\n", "lets nothing through"),
        ("[lanes.titling]\ntimeout_s = 0\n", "lets nothing through"),
        ("[lanes.titling]\nmax_tokens = 0\n", "lets nothing through"),
    ],
)
def test_a_lane_that_is_none_is_refused(here: Path, text: str, why: str):
    with pytest.raises(ConfigInvalid, match=why):
        said(lanes_from, here, text)


@pytest.mark.anyio
async def test_a_swarm_takes_what_the_settings_say_where_it_is_given_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    (here / HOME).write_text("[limits]\nasks = 7\n[pools]\ntools = 5\n[lanes.titling]\nretries = 9\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "home"))
    async with shoal.Swarm() as swarm:
        assert swarm.hall.limits.asks == 7
        assert swarm.hall.pools.get("tools").limit == 5
        assert swarm.hall.lane_defaults.titling.retries == 9
    async with shoal.Swarm(limits=Limits(), pools={}, lanes=Lanes()) as swarm:
        assert swarm.hall.limits.asks == 3
