"""The page on testing leaves nothing out."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import pytest

from shoal.testing import wire

PAGE = (Path(__file__).parents[3] / "docs/testing.md").read_text("utf-8")


@pytest.mark.parametrize("fault", [kind.__name__ for kind in get_args(wire.Fault)])
def test_every_fault_is_told(fault: str):
    assert f"`{fault}(" in PAGE


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(wire.Settings)])
def test_every_setting_is_told(field: str):
    settings = PAGE[PAGE.index("## Settings") :]
    assert f"`{field}`" in settings


def test_every_rule_is_told():
    told = {name for row in re.findall(r"^\| ([^|]*) \|", PAGE, re.MULTILINE) for name in re.findall(r"[AORG]\d+", row)}
    numbers = {"A": 21, "O": 13, "R": 8, "G": 10}
    assert told == {f"{letter}{number}" for letter, most in numbers.items() for number in range(1, most + 1)}
