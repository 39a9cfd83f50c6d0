"""The examples of the page on providers run."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import msgspec
import pytest

from shoal.blueprints import loads
from shoal.providers import SERVERS, PolicyStep

PAGE = (Path(__file__).parents[2] / "docs" / "providers.md").read_text("utf-8")


def blocks(language: str, *, about: str = "") -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in found if about in block]


@pytest.mark.parametrize("source", blocks("python"))
def test_an_example_runs(source: str):
    exec(compile(source, "docs/providers.md", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("source", blocks("toml", about="models ="))
def test_a_stage_names_its_candidates(source: str):
    assert loads('[agent]\nname = "x"\n' + source).stages[0].model is not None


@pytest.mark.parametrize("source", blocks("toml", about="policy ="))
def test_a_policy_is_made_of_steps(source: str):
    for stage in tomllib.loads(source)["stages"].values():
        assert msgspec.convert(stage["offline"]["policy"], list[PolicyStep])


@pytest.mark.parametrize("server", sorted(SERVERS))
def test_each_record_stands_in_the_table(server: str):
    record = SERVERS[server]
    [row] = re.findall(rf"^\| `{re.escape(server)}` \|.*$", PAGE, re.MULTILINE)
    assert f"`{record.max_tokens_field}`" in row
    assert ("exactly" if record.call_id_exact else "up to") + f" {record.call_id_length}" in row
    assert ("one system message a block" in row) is (record.system_blocks == "separate")


def test_each_placeholder_and_key_that_the_page_names_is_there():
    named = set(re.findall(r"`\{ (\w+)", PAGE))
    assert named == {"call", "extract", "route", "say"}
    assert named < set(PolicyStep.__struct_fields__)
