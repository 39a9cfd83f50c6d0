"""The examples of the page on windows run, and its blueprints load without a warning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from shoal.blueprints import loads
from shoal.runtime.context import Theme, layout_of, names_of

PAGE = (Path(__file__).parents[3] / "docs" / "windows.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_in_python_run_one_after_the_other():
    names: dict[str, Any] = {"__name__": "example"}
    for source in blocks("python"):
        exec(compile(source, "docs/windows.md", "exec"), names)
    assert "write" in names


@pytest.mark.parametrize("text", blocks("toml"))
def test_each_blueprint_loads_and_lays_out_its_stages(text: str):
    made = loads(text)
    theme = Theme(names_of(made))
    assert all(layout_of(made, stage, theme).sees("conversation") for stage in made.stages)


def test_the_page_names_every_kind_and_every_volatility():
    rows = set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))
    assert rows >= {
        "temporary", "pinned", "sliding_window", "compacting", "compact_history", "clearable", "hashmap", "checklist",
        "stable", "grows", "rewritten",
    }  # fmt: skip
